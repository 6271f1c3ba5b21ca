"""Kernels of loops by lanes: all rounds in a thread give what the rounds give one after another."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hlo_opt
from hlo_opt.evaluate.inputs import module_inputs
from hlo_opt.runtime.executable import compile
from hlo_opt.runtime.host.library import Form, has_compiler
from tests.loops import HALVED, LANES, loop


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


def test_what_is_the_same_for_all_lanes_is_written_once(planner: Any) -> None:
    text = planner.kernel(LANES["a key for all"][0]).source
    assert text.count("if (linear == 0)") == 1


ROWS = (*HALVED, "o = s32[] constant(0)", "u = f32[1,64] reshape(y)")


@pytest.mark.skipif(not has_compiler(), reason="no C++ compiler")
@pytest.mark.parametrize("form", ["plain", "lanes"])
def test_a_counter_that_wraps_leaves_rows_as_they_were(form: Form) -> None:
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
@pytest.mark.parametrize("place", ["x0", "n0", "o"])
def test_rows_that_no_round_writes_stay_as_they_were(form: Form, place: str) -> None:
    text = loop(["f32[64]", "f32[9,64]"], [*ROWS, f"d = f32[9,64] dynamic-update-slice(x2, u, {place}, o)"], ["y", "d"])
    module = hlo_opt.parse(text)
    fused, _ = hlo_opt.fuse(module)
    assert [i.opcode for i in fused.entry.instructions].count("fusion") == 1
    given = module_inputs(module, seed=1)
    for got, want in zip(compile(fused, "host", form=form)(*given), hlo_opt.evaluate(module, given), strict=True):
        np.testing.assert_array_equal(got, want)
