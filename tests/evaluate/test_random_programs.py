"""Random programs against XLA:CPU, and fused against themselves. `python -m scripts.random_modules` does the same with
thousands."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from opcode_samples import specs_in_xla
from random_modules.comparable import EFFECTS, FAMILIES, RECIPES, UNKNOWN_TO_XLA_CPU, fusible_programs, programs

import hlo_opt
from hlo_opt.passes import preset_names
from hlo_opt.runtime.host.library import has_compiler
from scripts import random_modules
from scripts.random_modules import Tally, Way, against_fused, against_host, chunk, wide_ways
from scripts.xla_judge import difference

QUIET = {"deadline": None, "database": None, "suppress_health_check": list(HealthCheck)}


def test_every_opcode_has_a_recipe():
    opcodes = {spec.opcode for spec in specs_in_xla()}
    assert set(RECIPES) == set(FAMILIES) == opcodes
    assert set(UNKNOWN_TO_XLA_CPU) <= opcodes and opcodes >= EFFECTS


@given(programs())
@seed(1)
@settings(max_examples=30, **QUIET)
def test_programs_verify_and_their_values_are_finite_or_an_identity(program):
    hlo_opt.verify(program.module)
    for known, value in zip(program.parameters, program.inputs(), strict=True):
        shape, interval = known
        assert value.shape == shape.dimensions and value.dtype == shape.type.dtype
        if value.size and value.dtype.kind in "iuf" and value.dtype.itemsize > 1:
            assert interval.low <= float(value.min()) and float(value.max()) <= interval.high
    assert not any(
        np.isnan(out).any() for out in hlo_opt.evaluate(program.module, program.inputs()) if out.dtype.kind in "fc"
    )


WAYS = [*map(Way, preset_names()), *wide_ways()]


@given(st.one_of(programs(), fusible_programs(most=20)), st.lists(st.sampled_from(WAYS), min_size=2, max_size=3))
@seed(2)
@settings(max_examples=25, **QUIET)
def test_fusing_changes_no_bit(program, ways):
    assert against_fused(ways, program, Tally()) is None


@pytest.mark.skipif(not has_compiler(), reason="no C++ compiler")
@given(programs(tile_edges=True, most=6))
@seed(3)
@settings(max_examples=8, **QUIET)
def test_kernels_of_every_preset_agree_with_the_evaluator(program):
    assert against_host(preset_names(), program, Tally()) is None


def test_a_disagreement_is_found_and_made_small(monkeypatch):
    monkeypatch.setattr(random_modules, "SHRINKING", 0.5)
    sizes = []

    def check(program, tally):
        if not any(i.opcode == "clamp" for i in program.module.entry.instructions):
            return None
        sizes.append(len(program.module.entry.instructions))
        return "wrong"

    (found,) = chunk(0, 30, 1, check).disagreements
    assert found.why == "wrong" and "  ROOT %clamp" in found.text
    assert len(hlo_opt.parse(found.text).entry.instructions) < sizes[0]


@pytest.mark.parametrize(
    ("got", "want", "same"),
    [
        (np.float32([1, 2]), np.float32([1, 2.0001]), True),
        (np.float32([1, 2]), np.float32([1, 2.01]), False),
        (np.float32([1e-6, 2, 2]), np.float32([0, 2, 2]), True),
        (np.float32([np.inf]), np.float32([-np.inf]), False),
        (np.float32([np.inf]), np.float32([1]), False),
        (np.float32([np.nan]), np.float32([1]), False),
        (np.int32([1]), np.int32([2]), False),
        (np.int32([1]), np.int64([1]), False),
        (np.complex64([1 + 1j]), np.complex64([1 + 1.1j]), False),
    ],
)
def test_difference(got, want, same):
    assert (difference([got], [want]) is None) == same
