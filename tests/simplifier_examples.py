"""Modules on which each rule of the simplifier must fire, and near misses on which it must not.

A module is a line: parts between semicolons, parameters as `p: T[4,3]`, other instructions as HLO writes them, the last
one the root, without a name. `T` stands for each type of the example's kinds: f floats, i integers, u unsigned, s
signed ones, b truth values, c complex numbers. `add`, `max` and `min` name reducers of T.
"""

from __future__ import annotations

from dataclasses import dataclass

TYPES = {
    "f": ("f32", "bf16", "f16", "f64"),
    "g": ("f32", "f64"),
    "i": ("s32", "u8", "s8", "u32", "s64"),
    "u": ("u32", "u8"),
    "s": ("s32", "s8"),
    "b": ("pred",),
    "c": ("c64",),
}
"""The types of a kind."""


@dataclass(frozen=True)
class Example:
    """Texts on which a rule fires, and texts on which it does not; `rounds` where values may be rounded in another
    order, or once more: in their own type, or in the one that it names. `devices` run it as replicas."""

    kinds: str
    fires: tuple[str, ...]
    misses: tuple[str, ...]
    rounds: bool | str = False
    devices: int = 1


EXAMPLES: dict[str, Example] = {}


def example(
    rule: str,
    kinds: str,
    fires: str | tuple[str, ...],
    misses: str | tuple[str, ...],
    rounds: bool | str = False,
    devices: int = 1,
) -> None:
    as_tuple = lambda texts: (texts,) if isinstance(texts, str) else texts  # noqa: E731
    assert rule not in EXAMPLES, rule
    EXAMPLES[rule] = Example(kinds, as_tuple(fires), as_tuple(misses), rounds, devices)


X, XY, M = "x: T[12]", "x: T[12]; y: T[12]", "x: T[4,3]"


def number(value: str, dimensions: str = "12") -> str:
    """A scalar `k`, and `n`, which is it everywhere."""
    return f"k = T[] constant({value}); n = T[{dimensions}] broadcast(k), dimensions={{}}"


# ---- identities

example(
    "add-zero",
    "i",
    f"{X}; {number('0')}; T[12] add(n, x)",
    (
        f"{X}; {number('1')}; T[12] add(x, n)",
        "x: s32[12]; a = f32[12] bitcast(x); k = f32[] constant(0); n = f32[12] broadcast(k), dimensions={}; f32[12] add(a, n)",
    ),
)
example(
    "add-positive-zero", "f", f"{X}; {number('0')}; T[12] add(x, n)", f"{X}; {number('-0.0')}; T[12] add(x, n)", True
)
example("subtract-zero", "fi", f"{X}; {number('0')}; T[12] subtract(x, n)", f"{X}; {number('0')}; T[12] subtract(n, x)")
example(
    "subtract-from-zero", "i", f"{X}; {number('0')}; T[12] subtract(n, x)", f"{X}; {number('1')}; T[12] subtract(n, x)"
)
example("multiply-one", "fi", f"{X}; {number('1')}; T[12] multiply(n, x)", f"{X}; {number('2')}; T[12] multiply(n, x)")
example(
    "multiply-minus-one",
    "fs",
    f"{X}; {number('-1')}; T[12] multiply(x, n)",
    f"{X}; {number('1')}; T[12] multiply(x, n)",
)
example("divide-one", "fi", f"{X}; {number('1')}; T[12] divide(x, n)", f"{X}; {number('1')}; T[12] divide(n, x)")
example(
    "divide-by-power",
    "f",
    (f"{X}; {number('4')}; T[12] divide(x, n)", f"{X}; {number('0.125')}; T[12] divide(x, n)"),
    (f"{X}; {number('3')}; T[12] divide(x, n)", f"{X}; {number('-4')}; T[12] divide(x, n)"),
)
example(
    "divide-by-constant",
    "g",
    f"{X}; {number('3')}; T[12] divide(x, n)",
    f"{X}; {number('0')}; T[12] divide(x, n)",
    True,
)
example(
    "negate-negate",
    "fsc",
    f"{X}; n = T[12] negate(x); T[12] negate(n)",
    (
        f"{X}; n = T[12] copy(x); T[12] negate(n)",
        "x: f8e8m0fnu[12]; n = f8e8m0fnu[12] negate(x); f8e8m0fnu[12] negate(n)",
    ),
)
example(
    "negate-subtract",
    "s",
    f"{XY}; d = T[12] subtract(x, y); T[12] negate(d)",
    f"{XY}; d = T[12] add(x, y); T[12] negate(d)",
)
example(
    "add-negated",
    "fsc",
    (f"{XY}; n = T[12] negate(y); T[12] add(x, n)", f"{XY}; n = T[12] negate(y); T[12] add(n, x)"),
    f"{XY}; n = T[12] negate(y); T[12] multiply(x, n)",
)
example(
    "subtract-negated",
    "fsc",
    f"{XY}; n = T[12] negate(y); T[12] subtract(x, n)",
    f"{XY}; n = T[12] negate(y); T[12] subtract(n, x)",
)
example(
    "two-negated",
    "f",
    (
        f"{XY}; a = T[12] negate(x); b = T[12] negate(y); T[12] multiply(a, b)",
        f"{XY}; a = T[12] negate(x); b = T[12] negate(y); T[12] divide(a, b)",
    ),
    f"{XY}; a = T[12] negate(x); T[12] multiply(a, y)",
)
example(
    "abs-of-sign",
    "f",
    (f"{X}; a = T[12] negate(x); T[12] abs(a)", f"{X}; a = T[12] abs(x); T[12] abs(a)"),
    f"{X}; a = T[12] sqrt(x); T[12] abs(a)",
)
example(
    "abs-of-square",
    "f",
    f"{X}; a = T[12] multiply(x, x); T[12] abs(a)",
    (f"{XY}; a = T[12] multiply(x, y); T[12] abs(a)", "x: u32[12]; a = f32[12] bitcast(x); f32[12] abs(a)"),
)
example(
    "square-of-abs",
    "fs",
    f"{X}; a = T[12] abs(x); T[12] multiply(a, a)",
    f"{XY}; a = T[12] abs(x); T[12] multiply(a, y)",
)
example(
    "even-of-sign",
    "f",
    (f"{X}; a = T[12] negate(x); T[12] cosine(a)", f"{X}; a = T[12] abs(x); T[12] cosine(a)"),
    (
        f"{X}; a = T[12] negate(x); T[12] sine(a)",
        "z: c64[12]; a = f32[12] abs(z); f32[12] cosine(a)",
        "x: f8e8m0fnu[12]; a = f8e8m0fnu[12] negate(x); f8e8m0fnu[12] cosine(a)",
    ),
)
example("power-one", "f", f"{X}; {number('1')}; T[12] power(x, n)", f"{X}; {number('1')}; T[12] power(n, x)")
example("power-zero", "f", f"{X}; {number('0')}; T[12] power(x, n)", f"{X}; {number('1')}; T[12] power(x, n)")
example("power-two", "f", f"{X}; {number('2')}; T[12] power(x, n)", f"{X}; {number('2.5')}; T[12] power(x, n)", True)
example(
    "power-minus-one", "f", f"{X}; {number('-1')}; T[12] power(x, n)", f"{X}; {number('1')}; T[12] power(x, n)", True
)
example("power-three", "g", f"{X}; {number('3')}; T[12] power(x, n)", f"{X}; {number('4')}; T[12] power(x, n)", True)
example(
    "power-half", "g", f"{X}; {number('0.5')}; T[12] power(x, n)", f"{X}; {number('0.25')}; T[12] power(x, n)", True
)
example(
    "part-of-complex",
    "g",
    tuple(f"{XY}; c = C[12] complex(x, y); T[12] {part}(c)" for part in ("real", "imag")),
    "x: C[12]; T[12] real(x)",
)
example(
    "complex-of-parts",
    "g",
    "z: C[12]; r = T[12] real(z); i = T[12] imag(z); C[12] complex(r, i)",
    "z: C[12]; r = T[12] real(z); i = T[12] imag(z); C[12] complex(i, r)",
)
example("real-of-real", "f", f"{X}; T[12] real(x)", f"{X}; T[12] imag(x)")
example("extreme-of-itself", "fi", f"{X}; T[12] maximum(x, x)", f"{XY}; T[12] maximum(x, y)")
example(
    "extreme-of-bound",
    "f",
    (f"{X}; {number('-inf')}; T[12] maximum(x, n)", f"{X}; {number('inf')}; T[12] minimum(n, x)"),
    f"{X}; {number('inf')}; T[12] maximum(x, n)",
)
example(
    "extreme-of-extreme",
    "fi",
    f"{XY}; m = T[12] maximum(x, y); T[12] maximum(y, m)",
    f"{XY}; m = T[12] maximum(x, y); T[12] minimum(y, m)",
)
example(
    "relu-of-square",
    "f",
    f"{X}; s = T[12] multiply(x, x); {number('0')}; T[12] maximum(s, n)",
    f"{X}; {number('0')}; T[12] maximum(x, n)",
)
example(
    "clamp-constant-bounds",
    "i",
    f"{X}; a = T[] constant(LEAST); b = T[] constant(MOST); T[12] clamp(a, x, b)",
    f"{X}; a = T[] constant(1); b = T[] constant(MOST); T[12] clamp(a, x, b)",
)
example("sign-of-sign", "f", f"{X}; a = T[12] floor(x); T[12] floor(a)", f"{X}; a = T[12] floor(x); T[12] sign(a)")

# ---- integers

example("subtract-itself", "i", f"{X}; T[12] subtract(x, x)", f"{XY}; T[12] subtract(x, y)")
example("multiply-zero", "i", f"{X}; {number('0')}; T[12] multiply(x, n)", f"{X}; {number('1')}; T[12] multiply(x, n)")
example(
    "remainder-one", "i", f"{X}; {number('1')}; T[12] remainder(x, n)", f"{X}; {number('2')}; T[12] remainder(x, n)"
)
example(
    "unsigned-by-power",
    "u",
    (f"{X}; {number('8')}; T[12] divide(x, n)", f"{X}; {number('8')}; T[12] remainder(x, n)"),
    f"{X}; {number('6')}; T[12] divide(x, n)",
)
example(
    "bits-of-nothing",
    "i",
    tuple(f"{X}; {number('0')}; T[12] {o}(x, n)" for o in ("and", "or", "xor")),
    f"{X}; {number('1')}; T[12] and(x, n)",
)
example(
    "bits-of-everything",
    "i",
    tuple(f"{X}; {number('ONES')}; T[12] {o}(n, x)" for o in ("and", "or", "xor")),
    f"{X}; {number('1')}; T[12] or(x, n)",
)
example(
    "bits-of-opposite",
    "b",
    tuple(f"{X}; n = T[12] not(x); T[12] {o}(x, n)" for o in ("and", "or")),
    f"{XY}; n = T[12] not(x); T[12] or(y, n)",
)
example("not-not", "ib", f"{X}; n = T[12] not(x); T[12] not(n)", f"{X}; n = T[12] copy(x); T[12] not(n)")
example(
    "shift-nothing", "i", f"{X}; {number('0')}; T[12] shift-left(x, n)", f"{X}; {number('1')}; T[12] shift-left(x, n)"
)
example(
    "shift-out",
    "i",
    f"{X}; {number('64')}; T[12] shift-right-logical(x, n)",
    f"{X}; {number('7')}; T[12] shift-right-logical(x, n)",
)
TWO = (
    "k = T[] constant(3); n = T[12] broadcast(k), dimensions={}; j = T[] constant(5); m = T[12] broadcast(j), "
    "dimensions={}"
)
example(
    "constants-together",
    "i",
    tuple(
        f"{X}; {TWO}; a = T[12] {o}(x, n); T[12] {o}(a, m)" for o in ("add", "multiply", "and", "or", "xor", "maximum")
    ),
    f"{X}; {TWO}; a = T[12] add(x, n); T[12] multiply(a, m)",
)
example(
    "differences-together",
    "i",
    (
        f"{X}; {TWO}; a = T[12] subtract(x, n); T[12] add(a, m)",
        f"{X}; {TWO}; a = T[12] add(x, n); T[12] subtract(a, m)",
    ),
    f"{X}; {TWO}; a = T[12] subtract(n, x); T[12] add(a, m)",
)
example(
    "add-and-take-away",
    "i",
    (f"{XY}; a = T[12] add(x, y); T[12] subtract(a, y)", f"{XY}; a = T[12] subtract(x, y); T[12] add(y, a)"),
    f"{XY}; a = T[12] add(x, y); T[12] subtract(y, a)",
)
example(
    "common-factor",
    "i",
    "x: T[12]; y: T[12]; z: T[12]; a = T[12] multiply(x, z); b = T[12] multiply(z, y); T[12] subtract(a, b)",
    "x: T[12]; y: T[12]; z: T[12]; a = T[12] multiply(x, z); b = T[12] multiply(z, y); T[12] xor(a, b)",
)

# ---- converts

example("convert-to-itself", "fib", (f"{X}; T[12] convert(x)", f"{X}; T[12] copy(x)"), "x: u8[12]; s16[12] convert(x)")
example("bitcast-to-itself", "fib", f"{X}; T[12] bitcast(x)", f"{M}; T[3,4] bitcast(x)")
example(
    "convert-there-and-back",
    "f",
    (
        "x: bf16[12]; a = f32[12] convert(x); bf16[12] convert(a)",
        "x: s8[12]; a = s32[12] convert(x); s16[12] convert(a)",
    ),
    (
        "x: f32[12]; a = bf16[12] convert(x); f32[12] convert(a)",
        "x: s8[12]; a = u32[12] convert(x); s64[12] convert(a)",
    ),
)
example(
    "convert-rounded-back",
    "g",
    f"{X}; a = bf16[12] convert(x); T[12] convert(a)",
    f"{X}; a = s32[12] convert(x); T[12] convert(a)",
    "bf16",
)
example(
    "bitcast-convert-twice",
    "f",
    (
        "x: f32[12]; a = s32[12] bitcast-convert(x); u32[12] bitcast-convert(a)",
        "x: s8[3,4]; a = s32[3] bitcast-convert(x); f32[3] bitcast-convert(a)",
    ),
    (
        "x: f32[12]; a = s32[12] convert(x); u32[12] bitcast-convert(a)",
        "x: s8[3,4]; a = s32[3] bitcast-convert(x); s16[3,2] bitcast-convert(a)",
        "x: s8[3,2,2]; a = s16[3,2] bitcast-convert(x); b = s32[3] bitcast-convert(a); s32[3] add(b, b)",
    ),
)
example(
    "reduce-precision-of-all",
    "f",
    "x: f32[12]; f32[12] reduce-precision(x), exponent_bits=8, mantissa_bits=23",
    "x: f32[12]; f32[12] reduce-precision(x), exponent_bits=8, mantissa_bits=7",
)

# ---- selects

S = "p: pred[12]; x: T[12]; y: T[12]"
TRUE = "k = pred[] constant(true); t = pred[12] broadcast(k), dimensions={}"
FALSE = "j = pred[] constant(false); f = pred[12] broadcast(j), dimensions={}"
example("select-known", "fi", f"{XY}; {TRUE}; T[12] select(t, x, y)", f"{S}; T[12] select(p, x, y)")
example("select-same", "fi", f"{S}; T[12] select(p, x, x)", f"{S}; T[12] select(p, x, y)")
example(
    "select-of-truths",
    "b",
    (
        f"p: pred[12]; {TRUE}; {FALSE}; pred[12] select(p, t, f)",
        f"p: pred[12]; {TRUE}; {FALSE}; pred[12] select(p, f, t)",
    ),
    f"p: pred[12]; x: pred[12]; {TRUE}; pred[12] select(p, t, x)",
)
example(
    "select-with-truth",
    "b",
    (
        f"p: pred[12]; x: pred[12]; {TRUE}; pred[12] select(p, t, x)",
        f"p: pred[12]; x: pred[12]; {FALSE}; pred[12] select(p, x, f)",
    ),
    f"p: pred[12]; x: pred[12]; {FALSE}; pred[12] select(p, f, x)",
)
example("select-of-not", "fi", f"{S}; n = pred[12] not(p); T[12] select(n, x, y)", f"{S}; T[12] select(p, x, y)")
example(
    "select-within-select",
    "fi",
    f"{S}; z: T[12]; s = T[12] select(p, x, y); T[12] select(p, s, z)",
    f"{S}; q: pred[12]; s = T[12] select(p, x, y); T[12] select(q, s, x)",
)
example(
    "not-compare",
    "i",
    f"{XY}; c = pred[12] compare(x, y), direction=LT; pred[12] not(c)",
    "x: f32[12]; y: f32[12]; c = pred[12] compare(x, y), direction=LT; pred[12] not(c)",
)
example(
    "compare-itself",
    "i",
    f"{X}; pred[12] compare(x, x), direction=LE",
    "x: f32[12]; pred[12] compare(x, x), direction=LE",
)
example(
    "compare-never", "f", f"{X}; pred[12] compare(x, x), direction=GT", f"{X}; pred[12] compare(x, x), direction=GE"
)
example(
    "compare-with-truth",
    "b",
    (f"{X}; {TRUE}; pred[12] compare(x, t), direction=EQ", f"{X}; {TRUE}; pred[12] compare(t, x), direction=NE"),
    f"{XY}; pred[12] compare(x, y), direction=EQ",
)
example(
    "compare-with-bound",
    "i",
    (
        f"{X}; {number('LEAST')}; pred[12] compare(x, n), direction=LT",
        f"{X}; {number('MOST')}; pred[12] compare(n, x), direction=GE",
    ),
    f"{X}; {number('LEAST')}; pred[12] compare(x, n), direction=GT",
)
example(
    "compare-absolute",
    "f",
    f"{X}; a = T[12] abs(x); {number('0')}; pred[12] compare(a, n), direction=LT",
    f"{X}; {number('0')}; pred[12] compare(x, n), direction=LT",
)
