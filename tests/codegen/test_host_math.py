"""The host's own functions of f32: as close as the op table promises, and special values as in the C library."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from hlo_opt.codegen.kernel import Kernel
from hlo_opt.codegen.statements import BLOCK, THREAD
from hlo_opt.codegen.tree import Assign, Let
from hlo_opt.ir import ELEMENT_TYPES, array
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
    "acos": np.arccos, "acosh": np.arccosh, "asin": np.arcsin, "asinh": np.arcsinh, "atan": np.arctan, "atanh": np.arctanh,
    "cbrt": np.cbrt, "cos": np.cos, "cosh": np.cosh, "erf": np.vectorize(math.erf), "exp": np.exp, "expm1": np.expm1, "log": np.log,
    "log1p": np.log1p, "sin": np.sin, "sinh": np.sinh, "tan": np.tan, "tanh": np.tanh,
}  # fmt: skip
BINARY = {"atan2": np.arctan2, "pow": np.power}
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
    narrow = [HERE, Assign(cell(Name("out0"), AT), call("hlo_round_f16", cell(Name("in0"), AT)))]
    made["f16"] = of_tree("f16_of", narrow, Launch(N // 128, 128), [shape], [shape])
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


@pytest.mark.parametrize("name", list(UNARY))
def test_one_argument(library: Any, name: str) -> None:
    made, kernels = library
    x, out = samples(1), np.empty(N, np.float32)
    made.launch(kernels[name], [x], [out])
    with np.errstate(all="ignore"):
        compared(out, UNARY[name](x.astype(np.float64)), 3 if name == "tan" else 2)


@pytest.mark.parametrize("name", list(BINARY))
def test_two_arguments(library: Any, name: str) -> None:
    made, kernels = library
    x, y, out = samples(1), np.random.default_rng(3).permutation(samples(2)), np.empty(N, np.float32)
    pairs = np.array(np.meshgrid(SPECIAL, SPECIAL)).reshape(2, -1)
    x[: pairs.shape[1]], y[: pairs.shape[1]] = pairs
    made.launch(kernels[name], [x, y], [out])
    with np.errstate(all="ignore"):
        compared(out, BINARY[name](x.astype(np.float64), y.astype(np.float64)), 2)


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


def test_rounding_to_f16(library: Any) -> None:
    """Any number, the f16 themselves, and the ones in the middle between two of them and beside it."""
    made, kernels = library
    halves = np.arange(0, 0x7C00, dtype=np.uint16).view(np.float16).astype(np.float64)
    middle = ((halves + np.append(halves[1:], 65536.0)) / 2).astype(np.float32)
    steps = (np.nextafter(middle, np.float32(-np.inf)), middle, np.nextafter(middle, np.float32(np.inf)))
    every = np.concatenate([samples(5), halves.astype(np.float32), *steps, SPECIAL, np.float32(2.0) ** np.arange(-149, 128, dtype=np.float32)])  # fmt: skip
    every = np.concatenate([every, -every, np.zeros(-2 * len(every) % N, np.float32)])
    for x in every.reshape(-1, N):
        out = np.empty(N, np.float32)
        made.launch(kernels["f16"], [np.ascontiguousarray(x)], [out])
        with np.errstate(all="ignore"):
            want = x.astype(np.float16).astype(np.float32)
        np.testing.assert_array_equal(np.isnan(out), np.isnan(want))
        np.testing.assert_array_equal(out.view(np.uint32)[~np.isnan(x)], want.view(np.uint32)[~np.isnan(x)])
