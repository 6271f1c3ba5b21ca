"""The host's own functions of f32: as close as the op table promises, and special values as in the C library."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from ml_dtypes import bfloat16

import hlo_opt
from hlo_opt.codegen.kernel import Kernel
from hlo_opt.codegen.statements import BLOCK, THREAD
from hlo_opt.codegen.tree import Assign, Let
from hlo_opt.ir import ELEMENT_TYPES, array
from hlo_opt.ir.index_map import constant
from hlo_opt.ops.code import Name, call, cell, code
from hlo_opt.plans.plan import Launch
from hlo_opt.runtime.differences import ulp_distance
from hlo_opt.runtime.host.library import HostLibrary, has_compiler
from tests.written_kernels import of_tree

pytestmark = pytest.mark.skipif(not has_compiler(), reason="no C++ compiler")

N = 1 << 14
AT = Name("i")
HERE = Let("int", AT, code("{} * 128 + {}", BLOCK, THREAD))
UNARY = {
    "acos": np.arccos, "acosh": np.arccosh, "asin": np.arcsin, "asinh": np.arcsinh, "atan": np.arctan,
    "atanh": np.arctanh,
    "cbrt": np.cbrt, "cos": np.cos, "cosh": np.cosh, "erf": np.vectorize(math.erf), "exp": np.exp, "expm1": np.expm1,
    "log": np.log,
    "log1p": np.log1p, "sin": np.sin, "sinh": np.sinh, "tan": np.tan, "tanh": np.tanh,
}  # fmt: skip
BINARY = {"atan2": np.arctan2, "fmod": np.fmod, "pow": np.power}
SPECIAL = np.array(
    [0.0, -0.0, 1, -1, 0.5, -0.5, 2, -2, 3, -3, 2.5, 16777216, 16777217, -16777215, 88.7, 89, -103, -104, 1e-45, -1e-45,
     1e-38, 3.4e38, -3.4e38, np.inf, -np.inf, np.nan, 1e10, 1e30, -1e36],
    np.float32,
)  # fmt: skip


@pytest.fixture(scope="module")
def library() -> tuple[HostLibrary, dict[str, Kernel]]:
    shape = array(ELEMENT_TYPES["f32"], N)
    made = {}
    for name in (*UNARY, *BINARY, "round"):
        count = 1 + (name in BINARY)
        arguments = [cell(Name(f"in{k}"), AT) for k in range(count)]
        body = [HERE, Assign(cell(Name("out0"), AT), call(f"{name}f", *arguments))]
        made[name] = of_tree(f"{name}_of", body, Launch(N // 128, 128), [shape] * count, [shape])
    for opcode in ("round_f16", "round_bf16"):
        narrow = [HERE, Assign(cell(Name("out0"), AT), call(f"hlo_{opcode}", cell(Name("in0"), AT)))]
        made[opcode] = of_tree(f"{opcode}_of", narrow, Launch(N // 128, 128), [shape], [shape])
    for opcode in ("add_bf16", "subtract_bf16", "multiply_bf16", "maximum<float>", "minimum<float>"):
        both = call(f"hlo_{opcode}", cell(Name("in0"), AT), cell(Name("in1"), AT))
        stem = opcode.removesuffix("<float>")
        made[stem] = of_tree(
            f"{stem}_of", [HERE, Assign(cell(Name("out0"), AT), both)], Launch(N // 128, 128), [shape] * 2, [shape]
        )
    half = array(ELEMENT_TYPES["f16"], N)
    into = [HERE, Assign(cell(Name("out0"), AT), call("hlo_store_f16", cell(Name("in0"), AT)))]
    made["store_f16"] = of_tree("store_f16_of", into, Launch(N // 128, 128), [shape], [half])
    back = [HERE, Assign(cell(Name("out0"), AT), call("hlo_load_f16", cell(Name("in0"), AT)))]
    made["load_f16"] = of_tree("load_f16_of", back, Launch(N // 128, 128), [half], [shape])
    return HostLibrary(list(made.values())), made


def samples(seed: int) -> np.ndarray[Any, Any]:
    """Special values, all magnitudes, and many usual ones."""
    generator = np.random.default_rng(seed)
    any_bits = generator.integers(0, 2**32, N // 4, np.uint32).view(np.float32)
    near = (1 + generator.standard_normal(N // 4) * 0.1).astype(np.float32)
    usual = (generator.standard_normal(N) * 5).astype(np.float32)
    return np.concatenate([SPECIAL, any_bits, near, usual])[:N]


def compared(got: Any, exact: Any, most: float) -> None:
    with np.errstate(all="ignore"):
        want = np.asarray(exact).astype(np.float32)
    distance = ulp_distance(got, want)
    worst = int(np.argmax(distance))
    assert distance[worst] <= most, (worst, got[worst], want[worst])
    zeros = (want == 0) & (got == 0)
    np.testing.assert_array_equal(np.signbit(got[zeros]), np.signbit(want[zeros]))


WIDE = {"exp": np.exp, "expm1": np.expm1, "log": np.log, "log1p": np.log1p, "tanh": np.tanh}


@pytest.fixture(scope="module")
def wide() -> tuple[HostLibrary, dict[str, Kernel]]:
    shape = array(ELEMENT_TYPES["f64"], N)
    made = {
        name: of_tree(
            f"{name}_of",
            [HERE, Assign(cell(Name("out0"), AT), call(name, cell(Name("in0"), AT)))],
            Launch(N // 128, 128),
            [shape],
            [shape],
        )
        for name in WIDE
    }
    return HostLibrary(list(made.values())), made


@pytest.mark.parametrize("name", list(WIDE))
def test_f64(wide: Any, name: str) -> None:
    """Against more digits than a double has."""
    made, kernels = wide
    generator = np.random.default_rng(2)
    special = [
        *SPECIAL,
        709.7,
        709.79,
        710,
        -708,
        -745.1,
        -745.2,
        -746,
        5e-324,
        2.2250738585072014e-308,
        1.7e308,
        -1 + 2**-53,
    ]
    any_bits = generator.integers(0, 2**64, N // 4, np.uint64).view(np.float64)
    near = 1 + generator.standard_normal(N // 4) * 0.1
    small = generator.standard_normal(N // 4) * 10.0 ** generator.integers(-20, 0, N // 4)
    x = np.concatenate([special, any_bits, near, small, generator.standard_normal(N) * 100])[:N]
    out = np.empty(N, np.float64)
    made.launch(kernels[name], [x], [out])
    with np.errstate(all="ignore"):
        exact = WIDE[name](x.astype(np.longdouble))
        want = exact.astype(np.float64)
    distance = ulp_distance(out, want)
    worst = int(np.argmax(distance))
    assert distance[worst] <= 2, (x[worst], out[worst], want[worst])
    zeros = (want == 0) & (out == 0)
    np.testing.assert_array_equal(np.signbit(out[zeros]), np.signbit(want[zeros]))


@pytest.mark.parametrize("name", list(UNARY))
def test_one_argument(library: Any, name: str) -> None:
    made, kernels = library
    x, out = samples(1), np.empty(N, np.float32)
    made.launch(kernels[name], [x], [out])
    with np.errstate(all="ignore"):
        compared(out, UNARY[name](x.astype(np.float64)), 3 if name in ("erf", "tan", "tanh") else 2)


@pytest.mark.parametrize("name", list(BINARY))
def test_two_arguments(library: Any, name: str) -> None:
    made, kernels = library
    x, y, out = samples(1), np.random.default_rng(3).permutation(samples(2)), np.empty(N, np.float32)
    pairs = np.array(np.meshgrid(SPECIAL, SPECIAL)).reshape(2, -1)
    x[: pairs.shape[1]], y[: pairs.shape[1]] = pairs
    made.launch(kernels[name], [x, y], [out])
    with np.errstate(all="ignore"):
        compared(out, BINARY[name](x.astype(np.float64), y.astype(np.float64)), 2)


@pytest.mark.parametrize("alike", [0, 1])
def test_powers_beside_one_number_for_all_lanes(alike: int) -> None:
    """Conditions on the number that all lanes share are no selections by it, of which GCC 12 makes no vector code."""
    shape, x = array(ELEMENT_TYPES["f32"], N), samples(4)
    x[: len(SPECIAL)] = SPECIAL
    given = [cell(Name("in0"), AT), cell(Name("in1"), constant(0))]
    power = call("powf", *(given if alike else given[::-1]))
    kernel = of_tree("one", [HERE, Assign(cell(Name("out0"), AT), power)], Launch(N // 128, 128), [shape] * 2, [shape])
    library, out = HostLibrary([kernel]), np.empty(N, np.float32)
    for value in SPECIAL:
        every = np.full(N, value)
        library.launch(kernel, [x, every], [out])
        pair = (x, every) if alike else (every, x)
        with np.errstate(all="ignore"):
            compared(out, np.power(*(a.astype(np.float64) for a in pair)), 2)


@pytest.mark.parametrize("halves", [-8, -5, -3, -2, -1, 1, 2, 3, 4, 5, 7, 8])
def test_powers_of_known_halves(halves: int) -> None:
    shape, x = array(ELEMENT_TYPES["f32"], N), samples(4)
    power = code("powf({}, {}f)", cell(Name("in0"), AT), str(halves / 2))
    kernel = of_tree("halves", [HERE, Assign(cell(Name("out0"), AT), power)], Launch(N // 128, 128), [shape], [shape])
    out = np.empty(N, np.float32)
    HostLibrary([kernel]).launch(kernel, [x], [out])
    with np.errstate(all="ignore"):
        compared(out, np.power(x.astype(np.float64), np.full(N, halves / 2)), 1)


def test_round_takes_halves_away_from_zero(library: Any) -> None:
    made, kernels = library
    x, out = np.zeros(N, np.float32), np.empty(N, np.float32)
    x[:8] = [0.5, -0.5, 2.5, -1.5, 0.49999997, 8388609.0, np.inf, -0.0]
    made.launch(kernels["round"], [x], [out])
    np.testing.assert_array_equal(out[:8], np.array([1, -1, 3, -2, 0, 8388609, np.inf, 0], np.float32))
    assert np.signbit(out[7])


def of_16_bits(every: Any) -> list[Any]:
    """Any number, all finite ones of a type of 16 bits from 0 on, `every`, and the ones in the middle between two of
    them and beside it; both signs, so many at a time."""
    wide = every.astype(np.float64)
    middle = ((wide + np.append(wide[1:], 2 * wide[-1] - wide[-2])) / 2).astype(np.float32)
    steps = (np.nextafter(middle, np.float32(-np.inf)), middle, np.nextafter(middle, np.float32(np.inf)))
    found = np.concatenate(
        [
            samples(5),
            every.astype(np.float32),
            *steps,
            SPECIAL,
            np.float32(2.0) ** np.arange(-149, 128, dtype=np.float32),
        ]
    )
    found = np.concatenate([found, -found, np.zeros(-2 * len(found) % N, np.float32)])
    return [np.ascontiguousarray(x) for x in found.reshape(-1, N)]


def rounded(x: Any, dtype: Any) -> Any:
    with np.errstate(all="ignore"):
        return x.astype(dtype).astype(np.float32)


def same(got: Any, want: Any) -> None:
    """Bit by bit, but for what is in a NaN."""
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    kept = ~np.isnan(want)
    bits = f"u{want.dtype.itemsize}"
    np.testing.assert_array_equal(got.view(bits)[kept], want.view(bits)[kept])


@pytest.mark.parametrize(
    "opcode, dtype, infinite", [("round_f16", np.float16, 0x7C00), ("round_bf16", bfloat16, 0x7F80)]
)
def test_rounding(library: Any, opcode: str, dtype: Any, infinite: int) -> None:
    made, kernels = library
    for x in of_16_bits(np.arange(0, infinite, dtype=np.uint16).view(dtype)):
        out = np.empty(N, np.float32)
        made.launch(kernels[opcode], [x], [out])
        same(out, rounded(x, dtype))


def test_f16_in_memory(library: Any) -> None:
    made, kernels = library
    for x in of_16_bits(np.arange(0, 0x7C00, dtype=np.uint16).view(np.float16)):
        out = np.empty(N, np.float16)
        made.launch(kernels["store_f16"], [x], [out])
        same(out.astype(np.float32), rounded(x, np.float16))
    for halves in np.arange(0, 1 << 16, dtype=np.uint16).view(np.float16).reshape(-1, N):
        out = np.empty(N, np.float32)
        made.launch(kernels["load_f16"], [halves], [out])
        same(out, halves.astype(np.float32))


@pytest.mark.parametrize("name", ["add", "subtract", "multiply"])
def test_operations_of_bf16(library: Any, name: str) -> None:
    """Of any two bf16, NaNs with any digits among them: rounded once, and NaN stays NaN."""
    made, kernels = library
    generator = np.random.default_rng(7)
    special = np.array(
        [0, 0x8000, 1, 0x7F7F, 0x7F80, 0xFF80, 0x7F81, 0x7FC0, 0x7FFF, 0xFFFF, 0xFFC1, 0x3F80], np.uint16
    )
    pairs = np.array(np.meshgrid(special, special)).reshape(2, -1)
    x, y = generator.integers(0, 1 << 16, (2, N), np.uint16)
    x[: pairs.shape[1]], y[: pairs.shape[1]] = pairs
    a, b = ((half.astype(np.uint32) << 16).view(np.float32) for half in (x, y))
    out = np.empty(N, np.float32)
    made.launch(kernels[f"{name}_bf16"], [a, b], [out])
    with np.errstate(all="ignore"):
        same(out, rounded(getattr(np, name)(a, b), bfloat16))


@pytest.mark.parametrize("name", ["maximum", "minimum"])
def test_extremes(library: Any, name: str) -> None:
    """NaN wins from either side, and of two zeros the one with the sign that counts."""
    made, kernels = library
    x, y, out = samples(1), np.random.default_rng(3).permutation(samples(2)), np.empty(N, np.float32)
    pairs = np.array(np.meshgrid(SPECIAL, SPECIAL)).reshape(2, -1)
    x[: pairs.shape[1]], y[: pairs.shape[1]] = pairs
    made.launch(kernels[name], [x, y], [out])
    want = getattr(np, name)(x, y)
    zeros = (x == 0) & (y == 0)
    combined = np.signbit(x) & np.signbit(y) if name == "maximum" else np.signbit(x) | np.signbit(y)
    want[zeros] = np.where(combined[zeros], np.float32(-0.0), np.float32(0.0))
    same(out, want)


@pytest.mark.parametrize("name", ["maximum", "minimum"])
@pytest.mark.parametrize("kind", ["f32", "f64"])
@pytest.mark.parametrize("known", [None, "0", "-0", "1.5", "-2", "inf", "-inf", "nan"])
@pytest.mark.parametrize("swapped", [False, True])
def test_extremes_beside_a_constant(name: str, kind: str, known: str | None, swapped: bool) -> None:
    """What is known while compiling changes no result, on either side; nor does a second array."""
    dtype = ELEMENT_TYPES[kind].dtype
    x, y = (np.resize(part.ravel(), 999).astype(dtype) for part in np.meshgrid(SPECIAL, SPECIAL))
    other = f"{kind}[999] parameter(1)"
    if known is not None:
        y = np.full(999, float(known), dtype)
        other = f"{kind}[999] broadcast(k), dimensions={{}}"
    order = "q, p" if swapped else "p, q"
    body = f"  p = {kind}[999] parameter(0)\n  k = {kind}[] constant({known or 0})\n  q = {other}\n"
    module = hlo_opt.parse(f"HloModule m\n\nENTRY e {{\n{body}  ROOT r = {kind}[999] {name}({order})\n}}\n")
    (found,) = hlo_opt.compile(hlo_opt.fuse(module)[0], backend="host")(*([x] if known is not None else [x, y]))
    want = getattr(np, name)(x, y)
    zeros = (x == 0) & (y == 0)
    combined = np.signbit(x) & np.signbit(y) if name == "maximum" else np.signbit(x) | np.signbit(y)
    want[zeros] = np.where(combined[zeros], -0.0, 0.0)
    same(found, want)


@pytest.mark.parametrize("name", ["c64", "c128"])
def test_complex_quotients(name: str) -> None:
    """To the bit as the evaluator has them, which follows C99, annex G."""
    special = np.array([0.0, -0.0, 1, -1, 3, 1e-30, 1e30, np.inf, -np.inf, np.nan])
    parts = np.array(np.meshgrid(special, special, special, special)).reshape(4, -1)
    parts = np.concatenate([parts, np.random.default_rng(4).standard_normal((4, 2000))], axis=1)
    dtype = ELEMENT_TYPES[name].dtype
    z, w = (parts[0] + 0j).astype(dtype), (parts[2] + 0j).astype(dtype)
    z.real, z.imag, w.real, w.imag = parts
    size = parts.shape[1]
    body = f"  p = {name}[{size}] parameter(0)\n  q = {name}[{size}] parameter(1)\n  ROOT r = {name}[{size}] divide(p, q)\n"
    module = hlo_opt.fuse(hlo_opt.parse(f"HloModule m\n\nENTRY e {{\n{body}}}\n"))[0]
    (found,) = hlo_opt.compile(module, backend="host")(z, w)
    (wanted,) = hlo_opt.compile(module, backend="numpy")(z, w)
    for part in ("real", "imag"):
        one, two = getattr(found, part), getattr(wanted, part)
        np.testing.assert_array_equal(one, two)
        zeros = one == 0
        np.testing.assert_array_equal(np.signbit(one[zeros]), np.signbit(two[zeros]))


QUOTIENTS = """HloModule m

ENTRY e {
  x = T[300] parameter(0)
  c = T[] constant(D)
  d = T[300] broadcast(c), dimensions={}
  q = T[300] divide(x, d)
  r = T[300] remainder(x, d)
  ROOT t = (T[300], T[300]) tuple(q, r)
}
"""


@pytest.mark.parametrize("kind", ["s8", "s16", "s32", "s64", "u8", "u32"])
@pytest.mark.parametrize("divisor", [1, 2, 4, 64, 3, 0, -1, -2])
def test_quotients_of_integers(kind: str, divisor: int) -> None:
    dtype = ELEMENT_TYPES[kind].dtype
    limits = np.iinfo(dtype)
    if divisor < limits.min:
        pytest.skip("no number of the type")
    ends = [limits.min, limits.min + 1, limits.max, limits.max - 1, 0, 1]
    given = np.resize(np.array([*range(0 if limits.min == 0 else -120, 120), *ends], dtype), 300)
    module = hlo_opt.parse(QUOTIENTS.replace("T[", f"{kind}[").replace("D)", f"{divisor})"))
    found = hlo_opt.compile(hlo_opt.fuse(module)[0], backend="host")(given)
    for got, want in zip(found, hlo_opt.evaluate(module, [given]), strict=True):
        np.testing.assert_array_equal(got, want)
