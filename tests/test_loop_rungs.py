"""The table of loops: each reaches the rung that was written down for it, in the launches that a kernel for all rounds
takes."""

from __future__ import annotations

import pytest

import hlo_opt
from hlo_opt.fusion.summary import module_summary
from scripts.bench.loop_table import LOOPS, Loop
from scripts.bench.loops import RUNGS, of_case, reached
from tests.small_modules import H100


@pytest.mark.parametrize("loop", LOOPS, ids=lambda found: found.case.name)
@pytest.mark.sweep
def test_a_loop_reaches_its_rung(loop: Loop) -> None:
    module = hlo_opt.parse(of_case(loop.case).text)
    fused, _ = hlo_opt.fuse(module)
    found = reached(module, fused)
    assert RUNGS.index(found.rung) >= RUNGS.index(loop.rung)
    if found.rung == "launches":
        assert found.coupled_by is not None and found.coupled_by.opcode in loop.couples
    else:
        assert module_summary(fused, H100).launches <= 4  # of the loop one, beside what stands before and after it


def test_the_table_has_loops_of_each_rung() -> None:
    names = [loop.case.name for loop in LOOPS]
    assert len(names) == len(set(names)) >= 40
    assert {loop.rung for loop in LOOPS} >= {"lanes", "block", "launches"}
    assert all(loop.couples for loop in LOOPS if loop.rung != "lanes")
