"""Argmin and argmax as folds of one array each."""

from __future__ import annotations

import numpy as np
import pytest

import hlo_opt
from hlo_opt.ir import Module, edit
from hlo_opt.ops.extremes import Extremes, extreme_of, in_any_order
from hlo_opt.runtime.executable import KernelForm
from tests.small_modules import ARGMAX_STEP

NAN = float("nan")
VALUES = {
    "numbers": [3, 1, 2, 1, 5, 5, 4],
    "zeros of both signs": [1, 0.0, -0.0, 2, -0.0, 0.0, 3],
    "a NaN": [3, 1, NAN, -1, NAN, 9, 4],
    "only infinities": [np.inf] * 7,
    "only infinities below": [-np.inf] * 7,
}


def step(direction: str, kind: str = "f32") -> str:
    """The reducer as JAX writes it."""
    return f"""pick {{
  a = {kind}[] parameter(0)
  b = {kind}[] parameter(2)
  before = pred[] compare(a, b), direction={direction}
  none = pred[] compare(a, a), direction=NE
  wins = pred[] or(before, none)
  x = {kind}[] select(wins, a, b)
  eq = pred[] compare(a, b), direction=EQ
  i = s32[] parameter(1)
  j = s32[] parameter(3)
  less = pred[] compare(i, j), direction=LT
  tie = pred[] and(eq, less)
  first = pred[] or(wins, tie)
  k = s32[] select(first, i, j)
  ROOT t = ({kind}[], s32[]) tuple(x, k)
}}
"""


def module_of(reducer: str, start: str, shape: str = "f32[3,7]", counts: str = "iota(), iota_dimension=1") -> Module:
    kind = shape.split("[")[0]
    return hlo_opt.parse(
        f"HloModule m\n{reducer}ENTRY e {{\n  x = {shape} parameter(0)\n  n = s32[3,7] {counts}\n"
        f"  low = {kind}[] constant({start})\n  z = s32[] constant(0)\n"
        f"  ROOT r = ({kind}[3], s32[3]) reduce(x, n, low, z), dimensions={{1}}, "
        f"to_apply={reducer.split(' ')[0]}\n}}\n"
    )


def written(module: Module) -> Module | None:
    """The module with the reduce of its root written as folds of one array; None where it is left."""
    writer, copies, root = Extremes("e"), {}, module.entry.root
    for i in module.entry.instructions:
        if i is not root:
            copies[i] = edit.clone_into(writer.computation, i, [copies[o] for o in i.operands])
    made = writer.extreme(root, [copies[o] for o in root.operands])
    if made is None:
        return None
    edit.set_root(writer.computation, made)
    other = Module("m")
    for called in {c for i in writer.computation.instructions for c in i.called()}:
        called.name = other.unique_name("fold")
        edit.add_computation(other, called)
    edit.add_computation(other, writer.computation, entry=True)
    return hlo_opt.parse(str(other))


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize(("direction", "start"), [("LT", "inf"), ("GT", "-inf")])
def test_floats(direction: str, start: str, name: str) -> None:
    x = np.array([VALUES[name], VALUES[name][::-1], VALUES["numbers"]], np.float32)
    module = module_of(step(direction), start)
    other = written(module)
    assert other is not None
    for got, want in zip(hlo_opt.evaluate(other, [x]), hlo_opt.evaluate(module, [x]), strict=True):
        np.testing.assert_array_equal(got, want)
        np.testing.assert_array_equal(np.signbit(got), np.signbit(want))


def test_integers() -> None:
    x = np.array([VALUES["numbers"], [2**31 - 1] * 7, [-(2**31)] * 7], np.int32)
    module = module_of(step("LT", "s32"), str(2**31 - 1), "s32[3,7]")
    other = written(module)
    assert other is not None
    for got, want in zip(hlo_opt.evaluate(other, [x]), hlo_opt.evaluate(module, [x]), strict=True):
        np.testing.assert_array_equal(got, want)


def test_others_are_left() -> None:
    assert written(module_of(step("LT"), "0")) is None  # what is above 0 has no place
    assert written(module_of(step("GT"), "inf")) is None
    assert written(module_of(step("LT"), "inf", counts="iota(), iota_dimension=0")) is None
    assert written(module_of(ARGMAX_STEP, "-inf")) is None  # a NaN is lost there
    empty = str(module_of(step("LT"), "inf")).replace("[3,7]", "[3,0]")
    assert written(hlo_opt.parse(empty)) is None  # the place is that of the start
    unknown = str(module_of(step("LT"), "inf")).replace("constant(inf)", "parameter(1)")
    assert written(hlo_opt.parse(unknown)) is None
    last = step("LT").replace("compare(i, j), direction=LT", "compare(i, j), direction=GT")
    assert written(module_of(last, "inf")) is None  # the last of equal ones
    assert written(module_of(step("LT").replace("select(first, i, j)", "add(i, j)"), "inf")) is None


def test_a_reducer_that_never_sees_a_nan() -> None:
    found = hlo_opt.parse(f"HloModule m\n{ARGMAX_STEP}ENTRY e {{\n  ROOT x = f32[] parameter(0)\n}}\n")
    reducer = next(c for c in found.computations if c.name == "argmax")
    assert extreme_of(reducer, is_float=False) == "maximum"
    assert extreme_of(reducer, is_float=True) is None


@pytest.mark.parametrize("form", ["plain", "lanes"])
@pytest.mark.parametrize("dimension", [0, 1])
@pytest.mark.parametrize("tie", ["LT", "none"])
def test_threads_agree_on_the_first_nan(dimension: int, tie: str, form: KernelForm) -> None:
    """Two NaN are no equal values: a reducer that takes its left side then depends on which of them is there."""
    reducer = step("GT")
    if tie == "none":  # of equal values, too, the left one
        reducer = reducer.replace("direction=GT", "direction=GE").replace("or(wins, tie)", "or(wins, wins)")
    text = f"""HloModule m
{reducer}ENTRY e {{
  x = f32[70,130] parameter(0)
  n = s32[70,130] iota(), iota_dimension={dimension}
  low = f32[] constant(-inf)
  z = s32[] constant(0)
  ROOT r = (f32[{(130, 70)[dimension]}], s32[{(130, 70)[dimension]}]) reduce(x, n, low, z), dimensions={{{dimension}}},
    to_apply=pick
}}
"""
    x = np.round(np.random.default_rng(3).normal(size=(70, 130)).astype(np.float32))
    x[:, 41::23], x[5, 7] = np.nan, np.inf
    module, _ = hlo_opt.fuse(hlo_opt.parse(text))
    _, place = hlo_opt.compile(module, form=form)(x)
    np.testing.assert_array_equal(place, np.argmax(x, dimension))


@pytest.mark.parametrize("form", ["plain", "lanes"])
@pytest.mark.parametrize("dimension", [0, 1])
@pytest.mark.parametrize(("direction", "start"), [("GE", 0), ("GT", 0), ("LE", 9), ("LT", 9)])
def test_threads_agree_on_ties(direction: str, start: int, dimension: int, form: KernelForm) -> None:
    """A reducer that compares values alone takes the first of equals or the last, and the init comes before all."""
    text = f"""HloModule m
pick {{
  a = f32[] parameter(0)
  i = s32[] parameter(1)
  b = f32[] parameter(2)
  j = s32[] parameter(3)
  p = pred[] compare(a, b), direction={direction}
  x = f32[] select(p, a, b)
  y = s32[] select(p, i, j)
  ROOT t = (f32[], s32[]) tuple(x, y)
}}
ENTRY e {{
  x = f32[70,700] parameter(0)
  n = s32[70,700] iota(), iota_dimension={dimension}
  low = f32[] constant({start})
  z = s32[] constant(800)
  ROOT r = (f32[{(700, 70)[dimension]}], s32[{(700, 70)[dimension]}]) reduce(x, n, low, z), dimensions={{{dimension}}},
    to_apply=pick
}}
"""
    x = np.random.default_rng(3).integers(0, 4, (70, 700)).astype(np.float32)
    x[:, 0], x[1] = start, start
    module = hlo_opt.parse(text)
    fused, _ = hlo_opt.fuse(module)
    np.testing.assert_array_equal(hlo_opt.compile(fused, form=form)(x)[1], hlo_opt.evaluate(module, [x])[1])


@pytest.mark.parametrize("kind", ["f32", "s32"])
def test_reducers_that_need_no_order(kind: str) -> None:
    in_order = module_of(step("LT", kind), "3", f"{kind}[3,7]").entry.root
    assert (in_any_order(in_order) is None) == (kind == "s32")
    other = module_of(step("LT", kind), "3", f"{kind}[3,7]", counts="iota(), iota_dimension=0").entry.root
    assert in_any_order(other) is None
