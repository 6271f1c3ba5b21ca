"""Random loops give the same in one launch, where they become one, as round after round."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

import hlo_opt
from hlo_opt.evaluate.inputs import module_inputs
from hlo_opt.runtime.executable import compile
from hlo_opt.runtime.host.library import has_compiler
from tests.random_loops import random_loop

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
