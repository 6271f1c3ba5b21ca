"""Sines, cosines and tangents of lanes, which have a short way and a long one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hlo_opt
from hlo_opt.codegen.lanes import lanes_unit
from hlo_opt.codegen.statements import BLOCK, THREAD
from hlo_opt.codegen.tree import Assign, Leave, Let
from hlo_opt.evaluate.inputs import module_inputs
from hlo_opt.ir import ELEMENT_TYPES, array
from hlo_opt.ir.index_map import Condition, Variable, add, multiply
from hlo_opt.ops.code import Code, Name, call, cell, code
from hlo_opt.plans.plan import Launch
from hlo_opt.runtime.differences import ulp_distance
from hlo_opt.runtime.executable import compile
from hlo_opt.runtime.host.library import HostLibrary, has_compiler
from tests.loops import loop
from tests.written_kernels import of_tree

pytestmark = pytest.mark.skipif(not has_compiler(), reason="no C++ compiler")

N = 1 << 12
NAMES = {"sinf": np.sin, "cosf": np.cos, "tanf": np.tan}
MOST = {"sinf": 2, "cosf": 2, "tanf": 4}


@pytest.fixture(scope="module")
def turned() -> Any:
    """The functions of an array."""
    shape = array(ELEMENT_TYPES["f32"], N)
    at, x = Name("i"), Name("x")
    made = [Name(f"made{k}") for k in range(3)]
    body = [
        Let("int", at, code("{} * 128 + {}", BLOCK, THREAD)),
        Let("float", x, code("{}", cell(Name("in0"), at))),
        *(Let("float", y, call(f, x)) for f, y in zip(NAMES, made, strict=True)),
        *(Assign(cell(Name(f"out{k}"), at), code("{}", y)) for k, y in enumerate(made)),
    ]
    kernel = of_tree("turned", body, Launch(N // 128, 128), [shape], [shape] * 3)
    assert lanes_unit([kernel]).count("hlo::turn<true, true, true>(x_of") == 1
    library = HostLibrary([kernel])

    def run(given: Any) -> list[Any]:
        out = [np.empty(N, np.float32) for _ in range(3)]
        library.launch(kernel, [given], out)
        return out

    return run


def angles(kind: str) -> Any:
    generator = np.random.default_rng(1)
    near = (generator.standard_normal(N) * 30).astype(np.float32)
    any_bits = generator.integers(0, 2**32, N, np.uint32).view(np.float32)
    some = near.copy()
    some[::97] = any_bits[::97]  # in some groups
    edges = np.concatenate([np.arange(-90, 90) * np.pi / 2, [71476, 71477, -71476, 71475.99, 0, -0.0, 1e-45, -1e-40]])
    ends = near.copy()
    ends[: len(edges)] = edges
    ends[500:503] = [np.inf, -np.inf, np.nan]  # whose group is near
    return {"near": near, "any": any_bits, "some": some, "ends": ends}[kind]


@pytest.mark.parametrize("kind", ["near", "any", "some", "ends"])
def test_they_are_what_they_are_by_themselves(turned: Any, kind: str) -> None:
    x = angles(kind)
    for (name, meaning), got in zip(NAMES.items(), turned(x), strict=True):
        with np.errstate(all="ignore"):
            want = meaning(x.astype(np.float64)).astype(np.float32)
        assert ulp_distance(got, want).max() <= MOST[name], name
        zeros = (want == 0) & (got == 0)
        np.testing.assert_array_equal(np.signbit(got[zeros]), np.signbit(want[zeros]))


LOOPS = {
    "an angle that changes": ["s = f32[300] sine(x1)", "y = f32[300] add(x1, s)", "c = f32[300] cosine(y)",
        "z = f32[300] add(x2, c)"],
    "the same angle twice": ["s = f32[300] sine(x1)", "c = f32[300] cosine(x1)", "y = f32[300] add(s, x2)",
        "v = f32[300] sine(y)", "z = f32[300] multiply(v, c)"],
    "an angle that all lanes have": ["o = f32[] constant(0.5)", "b = f32[] sine(o)", "y = f32[300] sine(x1)",
        "e = f32[300] broadcast(b), dimensions={}", "z = f32[300] add(e, x2)"],
}  # fmt: skip


@pytest.mark.parametrize("name", LOOPS)
def test_in_loops(name: str) -> None:
    module = hlo_opt.parse(loop(["f32[300]", "f32[300]"], LOOPS[name], ["y", "z"]))
    fused, _ = hlo_opt.fuse(module)
    given = module_inputs(module, seed=1)
    for got, want in zip(compile(fused, "host")(*given), hlo_opt.evaluate(module, given), strict=True):
        np.testing.assert_allclose(got, want, 1e-5, 1e-6)


def test_an_angle_that_is_assigned_is_found_again() -> None:
    """The second sine is not that of the first angle."""
    shape = array(ELEMENT_TYPES["f32"], 256)
    at, x = Name("i"), Name("x")
    one, two = Name("one"), Name("two")
    body = [
        Let("int", at, code("{} * 128 + {}", BLOCK, THREAD)),
        Let("float", x, code("{}", cell(Name("in0"), at)), constant=False),
        Let("float", one, call("sinf", x)),
        Assign(code("{}", x), code("{} + 1.0f", x)),
        Let("float", two, call("sinf", x)),
        Assign(cell(Name("out0"), at), code("{} + {}", one, two)),
    ]
    kernel = of_tree("again", body, Launch(2, 128), [shape], [shape])
    assert lanes_unit([kernel]).count("hlo::turn<true, false, false>(x_of") == 2
    given, out = np.linspace(-3, 3, 256, dtype=np.float32), np.empty(256, np.float32)
    HostLibrary([kernel]).launch(kernel, [given], [out])
    np.testing.assert_allclose(out, np.sin(given) + np.sin(given + 1), 1e-5, 1e-6)


def test_lanes_that_leave_have_no_angles() -> None:
    shape = array(ELEMENT_TYPES["f32"], 100)
    at, x, y = Name("i"), Name("x"), Name("y")
    number = add(multiply(Variable(0, 1, BLOCK.text), 64), Variable(0, 63, THREAD.text))
    body = [
        Let("int", at, code("{} * 64 + {}", BLOCK, THREAD), is_index=True, expression=number),
        Leave(Code(code("{} >= 100", at).pieces, says=(Condition(Variable(0, 127, "i"), 100, 127),))),
        Let("float", x, code("{}", cell(Name("in0"), at))),
        Let("float", y, call("sinf", x)),
        Assign(cell(Name("out0"), at), code("{}", y)),
    ]
    kernel = of_tree("leaving", body, Launch(2, 64), [shape], [shape])
    assert "hlo::turn" in lanes_unit([kernel]).split("namespace kernel_0")[1]
    given, out = np.linspace(-3, 3, 100, dtype=np.float32), np.empty(100, np.float32)
    HostLibrary([kernel]).launch(kernel, [given], [out])
    np.testing.assert_allclose(out, np.sin(given), 1e-6, 1e-7)
