"""Atomic updates whose values take long to compute."""

from __future__ import annotations

import numpy as np
import pytest

from hlo_opt.codegen.lanes_updates import VALUES, update_of
from hlo_opt.codegen.statements import THREAD
from hlo_opt.codegen.tree import Block, Do, Let, Statement
from hlo_opt.ops.code import Name, address, call, cell, code, of
from hlo_opt.runtime.host.library import has_compiler
from tests.host_text import run_on_host

SCATTER = """
add {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}}

ENTRY e {{
  old = f32[40] parameter(2)
  to = s32[{count}] parameter(0)
  x = f32[{count}] parameter(1)
  new = f32[{count}] exponential(x)
  places = s32[{count},1] reshape(to)
  ROOT r = f32[40] scatter(old, places, new), update_window_dims={{}}, inserted_window_dims={{0}},
    scatter_dims_to_operand_dims={{0}}, index_vector_dim=1, to_apply=add
}}
"""


def update(function: str = "expf", kind: str = "float", more: int = 1) -> list[Statement]:
    value = Let(kind, Name("value"), call(function, cell(Name("in0"), of(THREAD))))
    change = Do(call("atomicAdd", address(Name("out0"), of(THREAD)), of(Name("value"))))
    return [Block(code("{} < 5", THREAD), [value, *[change] * more])]


def test_a_value_is_kept_between_the_loops() -> None:
    halves = update_of(update(), {Name("out0")})
    assert halves is not None
    (computing,), (combining,) = halves.computing, halves.combining
    assert isinstance(computing, Block) and isinstance(combining, Block)
    own = cell(VALUES, of(THREAD))
    assert (computing.body[0], computing.body[1].target) == (update()[0].body[0], own)  # type: ignore[union-attr]
    assert (combining.body[0].value, combining.body[1]) == (own, update()[0].body[1])  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("body", "written"),
    [
        (update("hlo_maximum"), "out0"),
        (update(kind="double"), "out0"),
        (update(more=2), "out0"),
        (update(), "in0"),
    ],
    ids=["quick", "of no vectors", "several", "of what is written"],
)
def test_what_stays_one_loop(body: list[Statement], written: str) -> None:
    assert update_of(body, {Name(written)}) is None


@pytest.mark.skipif(not has_compiler(), reason="no C++ compiler")
@pytest.mark.parametrize("count", [130, 256])
def test_values_before_sums(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some places are outside of the array; some values are not finite."""
    random = np.random.default_rng(count)
    to = random.integers(-4, 44, count).astype(np.int32)
    x = random.standard_normal(count).astype(np.float32)
    x[:3] = np.inf, np.nan, -np.inf
    wanted = random.random(40)
    inputs = to, x, wanted.astype(np.float32)
    found, text = run_on_host(SCATTER.format(count=count), *inputs, monkeypatch=monkeypatch)
    assert VALUES.text in text
    inside = (to >= 0) & (to < 40)
    np.add.at(wanted, to[inside], np.exp(x[inside].astype(np.float64)))
    np.testing.assert_allclose(found, wanted, rtol=1e-5)
