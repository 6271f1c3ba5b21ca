"""Where XLA:CPU and the reference differ, and who is right: elements that are not compared, bounds that XLA:CPU needs,
and what it cannot run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from xla_cases.case import Array, Case
from xla_cases.values import COMPLEX, EVERYTHING, FLOATS, INTEGERS

Where = Callable[[Case, Array, Array], Array]
"""(case, our result, XLA's) -> whether an element is in doubt."""

FUNCTIONS = ("cosine", "exponential", "exponential-minus-one", "logistic", "power", "sine", "sqrt")


@dataclass(frozen=True)
class Doubt:
    """Elements that are not compared. It must be needed for each of its opcodes at each of its types."""

    opcodes: tuple[str, ...]
    types: tuple[str, ...]
    where: Where
    reason: str

    def covers(self, case: Case) -> bool:
        return case.opcode in self.opcodes and case.type in self.types


def _wide(array: Array) -> Array:
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def _denormal(array: Array) -> Array:
    """Whether a value is denormal as f32; for f64 as f64."""
    least = np.finfo(np.float64 if array.dtype == np.float64 else np.float32).smallest_normal
    wide = np.abs(_wide(array))
    return (wide > 0) & (wide <= float(least))


def _any_denormal(case: Case, ours: Array, theirs: Array) -> Array:
    return np.logical_or.reduce([_denormal(x) for x in case.inputs])


def _not_finite(case: Case, ours: Array, theirs: Array) -> Array:
    return np.logical_or.reduce([~np.isfinite(x) for x in case.inputs])


def _any_zero_part(case: Case, ours: Array, theirs: Array) -> Array:
    return np.logical_or.reduce([(x.real == 0) | (x.imag == 0) | ~np.isfinite(x) for x in case.inputs])


def _equal_real_parts(case: Case, ours: Array, theirs: Array) -> Array:
    x, y = case.inputs
    return (x.real == y.real) | np.isnan(x) | np.isnan(y)


def _greatest(case: Case, ours: Array, theirs: Array) -> Array:
    """6 and -6, the limits of f4e2m1fn, where the result is an integer."""
    if ours.dtype.kind not in "iuV":
        return np.zeros(ours.shape, bool)
    return np.abs(_wide(case.inputs[0])) == 6


def _least_power(case: Case, ours: Array, theirs: Array) -> Array:
    """The least value of f8e8m0fnu, 2^-127."""
    if case.opcode == "convert":
        return (_wide(case.inputs[0]) == 2.0**-127) & (ours.dtype == np.bool_)
    return (_wide(ours) == 2.0**-127) if ours.dtype == case.inputs[0].dtype else np.zeros(ours.shape, bool)


def _overflowing(case: Case, ours: Array, theirs: Array) -> Array:
    return _wide(case.inputs[0]) < -11


def _negative(case: Case, ours: Array, theirs: Array) -> Array:
    return _wide(case.inputs[0]) < 0


def _minus_zero(case: Case, ours: Array, theirs: Array) -> Array:
    x = case.inputs[0]
    parts = [x.real, x.imag] if x.dtype.kind == "c" else [_wide(x)]
    return np.logical_or.reduce([(part == 0) & np.signbit(part) for part in parts])


def _small(case: Case, ours: Array, theirs: Array) -> Array:
    return (_wide(ours) != 0) & (np.abs(_wide(ours)) < 2.0**-14)


DOUBTS = (
    Doubt(("power",), ("f64",), _any_denormal, "XLA:CPU's approximation takes a denormal number for a normal one"),
    Doubt(("cbrt", "power"), ("f32", "bf16"), _any_denormal,
        "XLA:CPU's approximation takes a denormal number for a normal one"),
    Doubt(("atan2",), ("f32", "f64", "bf16"), _any_denormal,
        "XLA:CPU flushes denormal numbers in one place and not in another, and gets NaN or loses the sign"),
    Doubt(("atan2",), COMPLEX, _any_zero_part, "on the branch cuts the sign of a rounding error decides"),
    Doubt(
        FUNCTIONS, COMPLEX, _not_finite,
        "HLO says nothing about complex functions of infinities and NaN; C99 does, and XLA:CPU's formulas, like "
        "XLA:GPU's others, do not keep to it",
    ),
    Doubt(
        ("maximum", "minimum"), COMPLEX, _equal_real_parts,
        "complex numbers are ordered by real part, then imaginary part (StableHLO, maximum); XLA:CPU looks at the real "
        "part only",
    ),
    Doubt(("logistic",), ("f16",), _overflowing, "XLA:CPU computes exp(-x) in f16, which overflows from -11.09 on"),
    Doubt(("popcnt",), ("s4",), _negative, "XLA:CPU counts the ones of the sign extension to 8 bits too"),
    Doubt(("convert",), ("f4e2m1fn",), _greatest, "XLA:CPU takes the limits of f4e2m1fn for infinities when it "
                                                  "converts to integers"),
    Doubt(("convert", "sort"), ("f8e8m0fnu",), _least_power,
        "2^-127 is a denormal number of f32, which XLA:CPU flushes; f8e8m0fnu has no zero"),
    Doubt(("while",), ("f8e5m2fnuz",), _small, "XLA:CPU keeps the loop's state in f16 and rounds what is denormal "
                                               "there"),
    Doubt(
        ("reduce-scatter",),
        ("f4e2m1fn", "f8e5m2", "f8e4m3", "f8e4m3fn", "f8e3m4", "f16", "bf16", "f32", "f64", *COMPLEX), _minus_zero,
        "XLA:CPU adds to 0, with which -0 becomes 0; a group of one device adds nothing",
    ),
)  # fmt: skip


@dataclass(frozen=True)
class Bound:
    """A bound for XLA:CPU above the one that the op table declares for kernels. `unit` is the size below which ULP are
    those of the unit."""

    ulp: float
    reason: str
    unit: float = 0.0


BOUNDS = {
    ("abs", "c64"): Bound(
        2, "a modulus takes several operations; the table's bound is that of real numbers, which have none"
    ),
    ("abs", "c128"): Bound(
        2, "a modulus takes several operations; the table's bound is that of real numbers, which have none"
    ),
    ("exponential-minus-one", "f16"): Bound(2, "XLA:CPU computes it with f16 steps"),
    ("exponential-minus-one", "f32"): Bound(4, "XLA:CPU takes exp(x) - 1 down to small x"),
    ("logistic", "f16"): Bound(2, "XLA:CPU computes it with f16 steps"),
    ("log-plus-one", "f64"): Bound(128, "XLA:CPU loses digits below 0"),
    ("tanh", "f64"): Bound(8, "XLA:CPU's approximation in f64 is that for f32 with more terms"),
    ("log-plus-one", "c128"): Bound(64, "XLA:CPU loses digits where |1 + z| is below 1"),
    ("sine", "c64"): Bound(16, "XLA:CPU takes sinh(y) as exp(y) - exp(-y), which cancels", 1.0),
    ("sine", "c128"): Bound(16, "XLA:CPU takes sinh(y) as exp(y) - exp(-y), which cancels", 1.0),
}

QUIETENS = ("f8e5m2",)
"""Types whose NaNs XLA:CPU changes on the way: it widens them to f16 and back where HLO only moves them. No program can
rely on the bits of a NaN."""


@dataclass(frozen=True)
class Lack:
    """Opcodes that XLA:CPU cannot run on these types.

    refuses  whether compiling raises an error, which a test checks; else it crashes or corrupts memory, which none can
    """

    opcodes: tuple[str, ...]
    types: tuple[str, ...]
    reason: str
    refuses: bool = True


TWO_BITS = ("s2", "u2")
BELOW_A_BYTE = ("s2", "u2", "s4", "u4", "f4e2m1fn")
SIX_BITS = ("f6e2m3fn", "f6e3m2fn")
HYPERBOLIC = ("acos", "acosh", "asin", "asinh", "atanh", "cosh", "sinh")
LACKS = (
    Lack(("*",), SIX_BITS, "jaxlib knows no floats of 6 bits", refuses=False),
    Lack(HYPERBOLIC, ("f16", "f32", "f64", *COMPLEX), "XLA:CPU leaves it to JAX to expand this opcode"),
    Lack(("abs",), tuple(t for t in INTEGERS if t.startswith("u")), "StableHLO has no abs of unsigned integers"),
    Lack(("mulhi",), INTEGERS, "StableHLO has no mulhi"),
    Lack(("scaled-dot",), EVERYTHING, "StableHLO has no scaled-dot"),
    Lack(("ragged-dot",), EVERYTHING, "XLA:CPU has no ragged-dot"),
    Lack(("dot", "convolution"), TWO_BITS, "XLA:CPU has no products of 2-bit integers"),
    Lack(("topk",), BELOW_A_BYTE, "XLA's verifier refuses the s32 indices that its own expansion gives the element "
                                  "size of the operand"),
    Lack(("copy-start", "copy-done", "collective-broadcast", "ragged-all-to-all"), EVERYTHING,
        "XLA:CPU has no such operation"),
    Lack(("async-start", "async-update", "async-done"), EVERYTHING,
        "the way through StableHLO wraps the result in a tuple, which XLA's verifier refuses"),
    Lack(("all-reduce", "all-reduce-start", "all-reduce-done", "reduce-scatter"), TWO_BITS,
        "XLA:CPU reduces no 2-bit integers over devices"),
    Lack(
        ("all-gather", "all-gather-start", "all-gather-done", "collective-permute", "collective-permute-start",
            "collective-permute-done", "all-to-all"),
        BELOW_A_BYTE, "XLA:CPU copies a byte per element out of packed buffers and writes past their "
                      "ends", refuses=False,
    ),
    Lack(("concatenate",), TWO_BITS, "XLA:CPU aborts: its vectorised copy knows no 2-bit offsets", refuses=False),
    Lack(("sort",), TWO_BITS, "XLA:CPU sorts a byte per element in packed buffers and writes past their "
                              "ends", refuses=False),
    Lack(
        ("cholesky", "triangular-solve"), ("f4e2m1fn", "f8e3m4", "f8e8m0fnu"),
        "XLA:CPU rounds each step to a type in which the steps overflow, or which has no zero", refuses=False,
    ),
    Lack(
        ("stochastic-convert",), ("f4e2m1fn", "f8e4m3", "f8e4m3b11fnuz", "f8e4m3fnuz", "f8e3m4", "f8e8m0fnu"),
        "XLA multiplies the fraction by the range of the random numbers in the type itself, where that "
        "overflows", refuses=False,
    ),
    Lack(("infeed", "outfeed", "send", "send-done", "recv", "recv-done", "rng", "rng-get-and-update-state"), EVERYTHING,
        "no value to compare", refuses=False),
)  # fmt: skip


def lack_of(opcode: str, element_type: str) -> Lack | None:
    """Why XLA:CPU cannot run an opcode at a type; None where it can."""
    for lack in LACKS:
        if element_type in lack.types and (opcode in lack.opcodes or lack.opcodes == ("*",)):
            return lack
    return None


assert all(t in EVERYTHING or t in FLOATS for doubt in DOUBTS for t in doubt.types)
