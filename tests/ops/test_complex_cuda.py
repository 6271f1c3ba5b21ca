"""The C++ of complex numbers: built by the host's compiler and compared with `evaluate`, and compiled by NVRTC."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hlo_opt
from hlo_opt.codegen import emit_kernel
from hlo_opt.ir import ELEMENT_TYPES, Module
from hlo_opt.ops.coverage import has_lowering
from hlo_opt.ops.spec import find
from hlo_opt.plans import Plan, Region, plan, region_of
from hlo_opt.runtime.host.library import has_compiler
from tests.small_modules import H100

Array = np.ndarray[Any, Any]

UNARY = (
    *("negate", "abs", "sign", "real", "imag", "copy", "sqrt", "rsqrt", "logistic"),
    *("exponential", "exponential-minus-one", "log", "log-plus-one"),
    *("sine", "cosine", "tan", "sinh", "cosh", "tanh"),
)
BINARY = ("add", "subtract", "multiply", "divide", "power", "maximum", "minimum", "atan2")
PARTS = {"c64": "f32", "c128": "f64"}


def line(opcode: str, kind: str, count: int) -> str:
    result = PARTS[kind] if opcode in ("abs", "real", "imag") else kind
    operands = "x" if opcode in UNARY else "a, b"
    return f"  r_{opcode.replace('-', '_')} = {result}[{count}] {opcode}({operands})\n"


def module_of(opcodes: tuple[str, ...], kind: str, counts: tuple[int, int]) -> Module:
    one, two = counts
    body = f"  x = {kind}[{one}] parameter(0)\n  a = {kind}[{two}] parameter(1)\n  b = {kind}[{two}] parameter(2)\n"
    body += "".join(line(o, kind, one if o in UNARY else two) for o in opcodes)
    shapes = ", ".join(line(o, kind, one if o in UNARY else two).split()[2] for o in opcodes)
    roots = ", ".join(f"r_{o.replace('-', '_')}" for o in opcodes)
    return hlo_opt.parse(f"HloModule m\n\nENTRY e {{\n{body}  ROOT all = ({shapes}) tuple({roots})\n}}\n")


def special_values(kind: str) -> Array:
    """Every pair of limits, zeros, infinities, NaN and plain parts; numbers of many sizes; numbers near 1."""
    part = ELEMENT_TYPES[PARTS[kind]].dtype
    info = np.finfo(part)
    positive = [0.0, 1.0, 0.5, 2.5, 1e-3, 100.0, float(info.tiny), float(info.smallest_subnormal), float(info.max)]
    parts = np.array([*positive, np.inf, *(-v for v in positive), -np.inf, np.nan], part)
    real, imaginary = np.meshgrid(parts, parts)
    pairs = np.empty(real.size, ELEMENT_TYPES[kind].dtype)
    pairs.real, pairs.imag = real.ravel(), imaginary.ravel()
    return np.concatenate([pairs, plain_values(kind, 300, 0)])


def plain_values(kind: str, count: int, seed: int) -> Array:
    generator = np.random.default_rng(seed)
    values = generator.normal(size=count) + 1j * generator.normal(size=count)
    sizes = 10.0 ** generator.uniform(-4, 1.5, count)
    near_one = 1 + 1e-4 * values[: count // 4]
    return np.concatenate([(values * sizes)[count // 4 :], near_one]).astype(ELEMENT_TYPES[kind].dtype)


def misses(got: Array, want: Array, ulp: float) -> Array:
    """Where parts are farther apart than `ulp` ULP of the modulus; NaN and infinities must be the same in each part."""
    info = np.finfo(want.real.dtype)
    a, b = got.astype(np.complex128), want.astype(np.complex128)
    with np.errstate(all="ignore"):
        size = np.clip(np.abs(b), float(info.tiny), float(info.max))
        step = ulp * 2.0 ** np.floor(np.log2(np.where(np.isfinite(size), size, 1.0))) * float(info.eps)
        wrong = np.zeros(a.shape, bool)
        for x, y in ((a.real, b.real), (a.imag, b.imag)):
            wrong |= ~((x == y) | (np.isnan(x) & np.isnan(y)) | (np.isfinite(y) & (np.abs(x - y) <= step)))
    return np.flatnonzero(wrong)


@pytest.mark.skipif(not has_compiler(), reason="needs a C++ compiler")
@pytest.mark.parametrize("kind", ["c64", "c128"])
def test_kernels_agree_with_evaluation(kind: str) -> None:
    x = special_values(kind)
    # quotients and extremes of special values too; products near overflow depend on how the processor rounds them,
    # powers on how logarithms do
    a, b = np.tile(x, 2), np.concatenate([np.roll(x, 7), x[::-1]])
    plain = (plain_values(kind, a.size, 1), np.clip(plain_values(kind, a.size, 2).real, -9, 9).astype(a.dtype))
    for opcodes, left, right in (
        ((*UNARY, "add", "subtract", "divide", "maximum", "minimum"), a, b),
        (("multiply", "power"), *plain),
    ):
        module = module_of(opcodes, kind, (x.size, a.size))
        executable = hlo_opt.compile(module, backend="host")
        made = executable(x, left, right)
        assert not executable.report()["fallbacks"] and not executable.report()["library"]
        for opcode, got, want in zip(opcodes, made, hlo_opt.evaluate(module, [x, left, right]), strict=True):
            spec = find(opcode)
            assert spec is not None and spec.tolerance is not None and got.dtype == want.dtype
            wrong = misses(got, want, spec.tolerance(ELEMENT_TYPES[kind]))
            inputs = (x,) if opcode in UNARY else (left, right)
            assert not wrong.size, (opcode, [i[wrong[0]] for i in inputs], got[wrong[0]], want[wrong[0]])


@pytest.mark.skipif(not has_compiler(), reason="needs a C++ compiler")
def test_whole_powers_and_zeros() -> None:
    module = module_of(("power", "multiply"), "c128", (1, 12))
    base = np.array([2j, 2j, 2j, 2j, 2j, 1 + 1j, 0, 0, 0, 0, 0, 3])
    exponent = np.array([0, 1, 2, 3, -2, 99, 0, 2, -1, 1j, 0.5, 0])
    got = hlo_opt.compile(module, backend="host")(np.ones(1, complex), base, exponent)[0]
    nan = complex(np.nan, np.nan)
    want = np.array([1, 2j, -4, -8j, -0.25, (1 + 1j) ** 99, 1, 0, nan, nan, 0, 1])
    np.testing.assert_allclose(got, want, rtol=1e-13, atol=1e-300)


@pytest.mark.skipif(not has_compiler(), reason="needs a C++ compiler")
def test_everything_around_arithmetic() -> None:
    """Constants, conversions, comparisons, choice, movement, sums."""
    text = """HloModule m

sum {
  x = c64[] parameter(0)
  y = c64[] parameter(1)
  ROOT z = c64[] add(x, y)
}

product {
  x = c128[] parameter(0)
  y = c128[] parameter(1)
  ROOT z = c128[] multiply(x, y)
}

ENTRY e {
  p = c64[3,4] parameter(0)
  q = c128[6,40] parameter(1)
  r = f32[3,4] parameter(2)
  n = u64[3,4] parameter(3)
  t = c64[3,4] constant({{(1,2),(0,-0),(nan,1),(inf,-inf)},{(1,2),(3,4),(5,6),(7,8)},{(0,0),(0,0),(1,0),(0,1)}})
  d = c128[3] constant({(1,2),(nan,inf),(1e300,-1e-300)})
  zero = c64[] constant((0,0))
  one = c128[] constant((1,0))
  a = c64[3,4] add(p, t)
  eq = pred[3,4] compare(p, t), direction=EQ
  ne = pred[3,4] compare(a, t), direction=NE
  s = c64[3,4] select(eq, p, t)
  made = c64[3,4] complex(r, r)
  wide = c128[3,4] convert(p)
  thin = c64[6,40] convert(q)
  whole = c64[3,4] convert(n)
  moved = c64[4,3] transpose(made), dimensions={1,0}
  padded = c64[5,4] pad(p, zero), padding=1_1x0_0
  counted = c64[5] iota(), iota_dimension=0
  rows = c64[6] reduce(thin, zero), dimensions={1}, to_apply=sum
  columns = c128[40] reduce(q, one), dimensions={0}, to_apply=product
  ROOT all = (c64[3,4], pred[3,4], pred[3,4], c64[3,4], c128[3,4], c64[3,4], c64[4,3], c64[5,4], c64[5], c64[6], c128[40], c128[3]) tuple(a, eq, ne, s, wide, whole, moved, padded, counted, rows, columns, d)
}
"""
    module = hlo_opt.parse(text)
    generator = np.random.default_rng(4)
    p = np.array([[1 + 2j, 0, complex(np.nan, 1), 3], [1 + 2j, 3, 5 + 6j, 1], [0, 1, 1, 1j]], np.complex64)
    q = generator.normal(size=(6, 40)) + 1j * generator.normal(size=(6, 40))
    given = [p, q, generator.normal(size=(3, 4)).astype(np.float32), np.full((3, 4), 2**63 + 5, np.uint64)]
    executable = hlo_opt.compile(module, backend="host")
    got, want = executable(*given), hlo_opt.evaluate(module, given)
    assert not executable.report()["fallbacks"] and not executable.report()["library"]
    for a, b in zip(got, want, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=1e-5)


@pytest.mark.parametrize(("kind", "architecture"), [("c64", "sm_80"), ("c128", "sm_90"), ("c64", "sm_100")])
def test_nvrtc_compiles_every_complex_text(kind: str, architecture: str) -> None:
    """Functions are those of c128 in both types."""
    pytest.importorskip("cupy")
    from cupy.cuda import nvrtc

    opcodes = ("add", "multiply", "divide", "abs", "sign") if architecture == "sm_100" else (*UNARY, *BINARY)
    module = module_of(opcodes, kind, (8, 8))
    entry = module.entry
    made = plan(Region(entry.root, entry, tuple(entry.parameters), tuple(entry.root.operands)), H100)
    assert isinstance(made, Plan), str(made)
    source = emit_kernel(made).source
    assert "hlo_complex_divide" in source
    program = nvrtc.createProgram(source, "complex.cu", (), ())
    try:
        nvrtc.compileProgram(program, (f"-arch={architecture}", "-fmad=false", "--std=c++17"))
    except nvrtc.NVRTCError:
        pytest.fail(nvrtc.getProgramLog(program)[:2000])


def test_what_has_no_lowering_is_a_hole_of_the_table() -> None:
    for opcode in ("acos", "acosh", "asin", "asinh", "atanh"):
        spec = find(opcode)
        assert spec is not None and not has_lowering(spec, ELEMENT_TYPES["c64"])
    for opcode in (*UNARY, *BINARY, "compare", "select", "convert"):
        spec = find(opcode)
        assert spec is not None and has_lowering(spec, ELEMENT_TYPES["c64"]), opcode


def test_constants_keep_their_bits() -> None:
    text = "HloModule m\n\nENTRY e {\n  ROOT c = c128[] constant((-0, nan))\n}\n"
    module = hlo_opt.parse(text)
    made = plan(region_of(module, module.entry.root), H100)
    assert isinstance(made, Plan)
    assert "hlo_complex<double>((-0.0), __longlong_as_double(" in emit_kernel(made).source
