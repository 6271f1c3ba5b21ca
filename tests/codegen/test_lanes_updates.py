"""Atomic updates whose values take long to compute."""

from __future__ import annotations

import numpy as np
import pytest

from hlo_opt.codegen.lanes_updates import PLACES, VALUES, update_of
from hlo_opt.codegen.statements import THREAD
from hlo_opt.codegen.tree import Block, Do, Leave, Let, Statement
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


def placed(function: str = "hlo_float_to_integer", kind: str = "int") -> list[Statement]:
    """A thread that leaves, or finds a place and adds one to what is there."""
    linear, place = Name("linear"), Name("place")
    change = Do(call("atomicAdd", address(Name("out0"), of(place)), code("1.0f")))
    return [
        Let("int", linear, of(THREAD)),
        Leave(code("{} >= 9", linear)),
        Let(kind, place, call(function, cell(Name("in0"), of(linear)))),
        Block(code("{} < 5", place), [change]),
    ]


def test_a_place_is_kept_and_what_decides_who_leaves_is_not() -> None:
    body = placed()
    halves = update_of(body, {Name("out0")})
    assert halves is not None
    array = Name(f"{PLACES}0")
    assert halves.arrays == (("int", array),)
    *computing, kept = halves.computing
    assert computing == body[:3] and kept.target == cell(array, of(THREAD))  # type: ignore[union-attr]
    linear, leave, place, last = halves.combining
    assert [linear, leave, last] == [*body[:2], body[3]]
    assert place.value == cell(array, of(THREAD))  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("body", "written"),
    [
        ([*placed()[:2], Let("int", Name("place"), cell(Name("in0"), of(THREAD))), placed()[3]], "out0"),
        (placed(kind="double"), "out0"),
        (placed(), "in0"),
        ([*placed(), Leave(code("true"))], "out0"),
    ],
    ids=["read as it is", "of another type", "of what is written", "more behind the update"],
)
def test_whose_place_stays_in_one_loop(body: list[Statement], written: str) -> None:
    assert update_of(body, {Name(written)}) is None


VOXELS = """
fold {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] {fold}(a, b)
}}

ENTRY e {{
  at = f32[{count},2] parameter(0)
  new = f32[{count}] parameter(1)
  old = f32[5,6] parameter(2)
  places = s32[{count},2] convert(at)
  ROOT r = f32[5,6] scatter(old, places, new), update_window_dims={{}}, inserted_window_dims={{0,1}},
    scatter_dims_to_operand_dims={{0,1}}, index_vector_dim=1, to_apply=fold
}}
"""


@pytest.mark.skipif(not has_compiler(), reason="no C++ compiler")
@pytest.mark.parametrize("fold", ["add", "maximum"])
@pytest.mark.parametrize("count", [130, 256])
def test_places_before_updates(count: int, fold: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some places are outside of the array."""
    random = np.random.default_rng(count)
    at = random.uniform(-3, 8, (count, 2)).astype(np.float32)
    new, wanted = (random.random(size).astype(np.float32) for size in (count, (5, 6)))
    text = VOXELS.format(count=count, fold=fold)
    found, printed = run_on_host(text, at, new, wanted, monkeypatch=monkeypatch)
    assert f"{PLACES}1" in printed
    rows, columns = at.astype(np.int32).T
    inside = (rows >= 0) & (rows < 5) & (columns >= 0) & (columns < 6)
    combine = np.add if fold == "add" else np.maximum
    combine.at(wanted, (rows[inside], columns[inside]), new[inside])
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


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
