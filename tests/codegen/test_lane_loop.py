"""Kernels of loops by lanes: all rounds in a thread give what the rounds give one after another."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hlo_opt
from hlo_opt.diag import Reason
from hlo_opt.evaluate.inputs import module_inputs
from hlo_opt.runtime.executable import compile
from hlo_opt.runtime.host.library import KernelForm, has_compiler
from tests.host_text import run_on_host
from tests.loops import HALVED, LANES, loop
from tests.plans.test_lane_loop import planned
from tests.plans.test_lane_nests import ended, nest


def test_they_agree(tool: Any) -> None:
    tool.all_agree([text for text, _ in LANES.values()])


def test_state_is_in_variables(planner: Any) -> None:
    text = planner.kernel(LANES["joined state"][0]).source
    body = text[text.index('extern "C"') :]
    rounds = body[body.index("for (") : body.rindex("}", 0, body.rindex("out0["))]
    assert "in0[" not in rounds and "out0[" not in rounds and "pragma unroll 1" in body


@pytest.mark.parametrize("sizes", [(1,), (127,), (129,), (5000,), (3, 50), (2, 3, 4)])
@pytest.mark.parametrize("rounds", [0, 1, 2, 33])
def test_sizes_and_rounds(sizes: tuple[int, ...], rounds: int, tool: Any) -> None:
    shape = f"f32[{','.join(map(str, sizes))}]"
    tool.all_agree([loop([shape], [f"y = {shape} add(x1, x1)"], ["y"], rounds=rounds)])


def test_a_fold_of_nothing_reads_nothing(tool: Any) -> None:
    """What only such a fold takes is no part of the kernel."""
    lines = [
        "e = f32[7,0] slice(x2), slice={[0:7], [3:3]}",
        "c = f32[] constant(3)",
        "f = f32[7] reduce(e, c), dimensions={1}, to_apply=sum",
        "y = f32[7] add(x1, f)",
        "w = f32[7,4] add(x2, x2)",
    ]
    tool.all_agree([loop(["f32[7]", "f32[7,4]"], lines, ["y", "w"], read=[1])])


def test_what_is_the_same_for_all_lanes_is_written_once(planner: Any) -> None:
    text = planner.kernel(LANES["a key for all"][0]).source
    assert text.count("if (linear == 0)") == 1


def test_what_takes_long_is_computed_before_the_rounds(planner: Any, tool: Any) -> None:
    lines = ["y = f32[64] add(x1, x2)"]
    text = loop(["f32[64]"] * 3, lines, ["y", "x2", "x3"], given=["g2 = f32[64] sine(p3)"])
    source = planner.kernel(text).source
    assert source.count(" = sinf(") == 1 and source.index(" = sinf(") < source.index("for (int s0")
    tool.all_agree([text], relative=1e-6)


def test_a_place_of_each_lane_named_by_the_number_of_the_lane(planner: Any, tool: Any) -> None:
    """`x[jnp.arange(40), i]`, read and added to."""
    lines = [
        "i = s32[40] iota(), iota_dimension=0",
        "k = s32[40,1] reshape(i)",
        "v = s32[40,1] reshape(x2)",
        "j = s32[40,2] concatenate(k, v), dimensions={1}",
        "g = f32[40] gather(x1, j), offset_dims={}, collapsed_slice_dims={0,1}, start_index_map={0,1}, "
        "index_vector_dim=1, slice_sizes={1,1}",
        "y = f32[40,5] scatter(x1, j, g), update_window_dims={}, inserted_window_dims={0,1}, "
        "scatter_dims_to_operand_dims={0,1}, index_vector_dim=1, to_apply=sum",
        "n = s32[40] negate(x2)",
    ]
    text = loop(["f32[40,5]", "s32[40]"], lines, ["y", "n"])
    assert planner.kernel(text).kind == "lane-loop"
    others = planned(text.replace("reshape(i)", "reshape(x2)"))
    assert isinstance(others, Reason) or others.kind != "lane-loop"
    tool.all_agree([text])


ROWS = (*HALVED, "o = s32[] constant(0)", "u = f32[1,64] reshape(y)")


@pytest.mark.skipif(not has_compiler(), reason="no C++ compiler")
@pytest.mark.parametrize("form", ["plain", "lanes"])
def test_a_counter_that_wraps_leaves_rows_as_they_were(form: KernelForm) -> None:
    lines = [*ROWS, "few = u8[] constant(1)", "n = u8[] add(x3, few)", "no = u8[] constant(0)"]
    lines.append("d = f32[300,64] dynamic-update-slice(x2, u, x3, no)")
    text = loop(["f32[64]", "f32[300,64]", "u8[]"], lines, ["y", "d", "n"], rounds=300, given=["g3 = u8[] constant(0)"])
    module = hlo_opt.parse(text)
    fused, _ = hlo_opt.fuse(module)
    given = module_inputs(module, seed=1)
    for got, want in zip(compile(fused, "host", form=form)(*given), hlo_opt.evaluate(module, given), strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.skipif(not has_compiler(), reason="no C++ compiler")
@pytest.mark.parametrize("form", ["plain", "lanes"])
@pytest.mark.parametrize("place", ["x0", "n0", "o", "back", "wrapped"])
def test_rows_that_no_round_writes_stay_as_they_were(form: KernelForm, place: str) -> None:
    places = ["last = s32[] constant(4)", "back = s32[] subtract(last, x0)"]  # row 0, and those below 5
    places += ["high = s32[] constant(2147483646)", "wrapped = s32[] add(high, x0)"]  # the last rows, then the first
    lines = [*ROWS, *places, f"d = f32[9,64] dynamic-update-slice(x2, u, {place}, o)"]
    text = loop(["f32[64]", "f32[9,64]"], lines, ["y", "d"])
    module = hlo_opt.parse(text)
    fused, _ = hlo_opt.fuse(module)
    assert [i.opcode for i in fused.entry.instructions].count("fusion") == 1
    given = module_inputs(module, seed=1)
    for got, want in zip(compile(fused, "host", form=form)(*given), hlo_opt.evaluate(module, given), strict=True):
        np.testing.assert_array_equal(got, want)


def reading(rounds: int, lanes: int, rows: int, place: str = "x0") -> str:
    """A loop in which each round reads a row of an array, and writes one of another: the next one, or the one before
    (`back`)."""
    return loop(
        [f"f32[{lanes},4]", f"f32[{rows},{lanes},4]", f"f32[{rounds},{lanes}]"],
        [
            "o = s32[] constant(0)",
            f"last = s32[] constant({rounds - 1})",
            "back = s32[] subtract(last, x0)",
            f"a = f32[1,{lanes},4] dynamic-slice(x2, {place}, o, o), dynamic_slice_sizes={{1,{lanes},4}}",
            f"b = f32[{lanes},4] reshape(a)",
            f"h = f32[{lanes},4] subtract(x1, b)",
            f"y = f32[{lanes},4] multiply(h, h)",
            f"s = f32[{lanes},1] slice(y), slice={{[0:{lanes}],[1:2]}}",
            f"u = f32[1,{lanes}] reshape(s)",
            f"d = f32[{rounds},{lanes}] dynamic-update-slice(x3, u, {place}, o)",
        ],
        ["y", "x2", "d"],
        rounds=rounds,
    )


@pytest.mark.parametrize("place", ["x0", "back"])
def test_rows_that_the_counter_places_are_read_rounds_ahead(place: str, planner: Any) -> None:
    text = planner.kernel(reading(11, 300, 11, place)).source
    rounds = text[text.index("for (") :]
    assert text.count("for (") == 1  # rounds write all rows: what was there before does not matter
    assert text.count("in1[") == (4 + 4) * 4  # of the first rounds, and for those after them
    assert rounds.count("in1[") == 4 * 4 and "< 2;" in rounds[: rounds.index("{")]
    assert rounds.rindex("in1[") < rounds.rindex("out1[")  # the last three rounds read nothing


def test_few_rounds_read_what_they_need(planner: Any) -> None:
    text = planner.kernel(reading(4, 300, 4)).source
    assert text.count("in1[") == 4


@pytest.mark.parametrize("rounds", [4, 5, 8, 11])
@pytest.mark.parametrize("lanes", [1, 3, 130])
def test_reading_ahead_changes_nothing(rounds: int, lanes: int, tool: Any) -> None:
    """Also where the array has fewer rows than there are rounds."""
    tool.all_agree([reading(rounds, lanes, rows, place) for rows in (6, rounds) for place in ("x0", "back")])


COUNTING_DOWN = """HloModule m

either {
  a = pred[] parameter(0)
  b = pred[] parameter(1)
  ROOT r = pred[] or(a, b)
}

body {
  t = (s32[N], f32[N]) parameter(0)
  n = s32[N] get-tuple-element(t), index=0
  x = f32[N] get-tuple-element(t), index=1
  z = s32[] constant(0)
  zs = s32[N] broadcast(z), dimensions={}
  g = pred[N] compare(n, zs), direction=GT
  o = s32[] constant(1)
  os = s32[N] broadcast(o), dimensions={}
  m = s32[N] subtract(n, os)
  k = s32[N] select(g, m, n)
  y = f32[N] sine(x)
  w = f32[N] select(g, y, x)
  ROOT r = (s32[N], f32[N]) tuple(k, w)
}

test {
  t = (s32[N], f32[N]) parameter(0)
  n = s32[N] get-tuple-element(t), index=0
  z = s32[] constant(0)
  zs = s32[N] broadcast(z), dimensions={}
  g = pred[N] compare(n, zs), direction=GT
  f = pred[] constant(false)
  ROOT a = pred[] reduce(g, f), dimensions={0}, to_apply=either
}

ENTRY e {
  n = s32[N] parameter(0)
  x = f32[N] parameter(1)
  t = (s32[N], f32[N]) tuple(n, x)
  w = (s32[N], f32[N]) while(t), condition=test, body=body
  ROOT r = f32[N] get-tuple-element(w), index=1
}
"""


@pytest.mark.skipif(not has_compiler(), reason="no C++ compiler")
@pytest.mark.parametrize("lanes", [1, 7, 31, 32, 33, 129, 300])
def test_lanes_that_end_at_different_times_go_side_by_side(lanes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of them takes many rounds, most few, some none."""
    draw = np.random.default_rng(0)
    counts = draw.integers(-2, 9, lanes).astype(np.int32)
    counts[lanes // 2] = 200
    angles = draw.standard_normal(lanes).astype(np.float32)
    text = COUNTING_DOWN.replace("N]", f"{lanes}]")
    found, made = run_on_host(text.removeprefix("HloModule m\n\n"), counts, angles, monkeypatch=monkeypatch)
    wanted = angles.astype(np.float64)
    for step in range(200):
        wanted = np.where(counts > step, np.sin(wanted), wanted)
    np.testing.assert_allclose(found, wanted, rtol=1e-5)
    assert made.count("if (!hlo_goes) break;") == (lanes > 1)


GREATEST = """HloModule m

greater {
  a = s32[] parameter(0)
  i = s32[] parameter(1)
  b = s32[] parameter(2)
  j = s32[] parameter(3)
  g = pred[] compare(b, a), direction=GT
  v = s32[] select(g, b, a)
  k = s32[] select(g, j, i)
  ROOT t = (s32[], s32[]) tuple(v, k)
}

body {
  t = (s32[], s32[40,3]) parameter(0)
  n = s32[] get-tuple-element(t), index=0
  x = s32[40,3] get-tuple-element(t), index=1
  o = s32[] constant(1)
  m = s32[] add(n, o)
  at = s32[40,3] iota(), iota_dimension=1
  least = s32[] constant(-2147483648)
  zero = s32[] constant(0)
  r = (s32[40], s32[40]) reduce(x, at, least, zero), dimensions={1}, to_apply=greater
  v = s32[40] get-tuple-element(r), index=0
  k = s32[40] get-tuple-element(r), index=1
  vs = s32[40,3] broadcast(v), dimensions={0}
  ks = s32[40,3] broadcast(k), dimensions={0}
  is = pred[40,3] compare(at, ks), direction=EQ
  sum = s32[40,3] subtract(x, vs)
  y = s32[40,3] select(is, sum, x)
  ROOT s = (s32[], s32[40,3]) tuple(m, y)
}

test {
  t = (s32[], s32[40,3]) parameter(0)
  n = s32[] get-tuple-element(t), index=0
  c = s32[] constant(9)
  ROOT l = pred[] compare(n, c), direction=LT
}

ENTRY e {
  x = s32[40,3] parameter(0)
  z = s32[] constant(0)
  t = (s32[], s32[40,3]) tuple(z, x)
  w = (s32[], s32[40,3]) while(t), condition=test, body=body
  ROOT r = s32[40,3] get-tuple-element(w), index=1
}
"""


@pytest.mark.skipif(not has_compiler(), reason="no C++ compiler")
@pytest.mark.parametrize("form", ["plain", "lanes"])
def test_a_lane_folds_several_arrays_at_once(form: KernelForm) -> None:
    """The greatest of a few numbers and its place, as `argmax` has it."""
    module = hlo_opt.parse(GREATEST)
    fused, _ = hlo_opt.fuse(module)
    assert [i.opcode for i in fused.entry.instructions] == ["parameter", "fusion"]
    given = np.random.default_rng(0).integers(-50, 50, (40, 3)).astype(np.int32)
    (found,) = compile(fused, "host", form=form)(given)
    wanted = given.copy()
    for _ in range(9):
        at = wanted.argmax(1)
        wanted[np.arange(40), at] = 0
    np.testing.assert_array_equal(found, wanted)


def test_inner_loops_of_lanes_agree(tool: Any) -> None:
    tool.all_agree([nest(), ended()])
