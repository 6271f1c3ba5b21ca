"""Random loops give the same in one launch, where they become one, as round after round."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

import hlo_opt
from hlo_opt.analysis.targets import DeviceTarget, InLanes
from hlo_opt.evaluate.inputs import module_inputs
from hlo_opt.runtime.executable import compile
from hlo_opt.runtime.host.library import has_compiler
from scripts.random_loops import Loop, always, differences
from tests.random_cell_loops import random_cell_loop
from tests.random_loops import random_loop
from tests.random_wild_loops import random_wild_loop
from tests.random_window_loops import random_window_loop
from tests.small_modules import H100

PIPELINE = "while-fusion,dce"


@pytest.mark.skipif(not has_compiler(), reason="no C++ compiler")
@pytest.mark.parametrize("seed", range(40))
def test_they_agree(seed: int) -> None:
    module = hlo_opt.parse(random_loop(Random(seed)))
    given = [np.rint(a * 4).astype(a.dtype) for a in module_inputs(module, seed=seed)]
    fused, _ = hlo_opt.fuse(module, passes=PIPELINE)
    for got, want in zip(compile(fused, "host", form="plain")(*given), hlo_opt.evaluate(module, given), strict=True):
        np.testing.assert_array_equal(got, want)


def test_a_good_part_of_them_is_one_launch() -> None:
    found = [hlo_opt.fuse(hlo_opt.parse(random_loop(Random(seed))), passes=PIPELINE)[0] for seed in range(40)]
    alone = sum(any(i.opcode == "fusion" for i in made.entry.instructions) for made in found)
    assert alone >= 35


@pytest.mark.skipif(not has_compiler(), reason="no C++ compiler")
@pytest.mark.parametrize("first", [0, 20])
def test_wild_loops_agree_where_there_is_a_plan(first: int) -> None:
    with always():
        loops = [Loop.of(seed, random_wild_loop(Random(seed))) for seed in range(first, first + 20)]
    assert sum(loop.is_alone for loop in loops) >= 12
    assert differences(loops) == []


@pytest.mark.skipif(not has_compiler(), reason="no C++ compiler")
def test_loops_that_blocks_share_agree() -> None:
    """No other kind may have them, and blocks are small, so that small loops have several."""
    with always("grid-loop", 32):
        loops = [Loop.of(seed, random_loop(Random(seed))) for seed in range(10)]
        loops += [Loop.of(seed, random_wild_loop(Random(seed))) for seed in range(12)]
        loops += [Loop.of(seed, random_cell_loop(Random(seed))) for seed in range(8)]
    shared = [k for loop in loops for k in loop.schedule.kernels if k.launch.cooperative]
    assert len(shared) >= 12 and sum(k.launch.grid > 1 for k in shared) >= 6
    assert differences(loops) == []


@pytest.mark.skipif(not has_compiler(), reason="no C++ compiler")
@pytest.mark.parametrize("device", [H100, InLanes.of(H100)], ids=["device", "lanes"])
def test_loops_of_a_block_agree(device: DeviceTarget) -> None:
    with always("block-loop", 64):
        loops = [Loop.of(seed, random_cell_loop(Random(seed)), device) for seed in range(8)]
        loops += [Loop.of(seed, random_window_loop(Random(seed)), device) for seed in range(16)]
    assert sum(loop.is_alone for loop in loops) >= 20
    assert differences(loops) == []
