"""The worklist, certificates and the stage: what is looked at again, what is left alone, and that random modules keep
their values."""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

import hlo_opt
from hlo_opt.diag import ProofError
from hlo_opt.passes.run import Outcome
from hlo_opt.passes.simplified import check_certificate, simplified
from scripts.random_modules import Tally, against_simplified
from scripts.swept import drawn

CHAIN = """HloModule m

ENTRY e {
  x = f32[8]{0} parameter(0)
  a = f32[8]{0} negate(x)
  b = f32[8]{0} negate(a)
  c = f32[8]{0} negate(b)
  ROOT d = f32[8]{0} negate(c)
}
"""


def outcome_of(text: str) -> Outcome:
    module = hlo_opt.parse(text)
    hlo_opt.verify(module)
    return simplified(module)


def opcodes(outcome: Outcome) -> list[str]:
    return [i.opcode for i in outcome.module.entry.instructions]


def test_what_changed_is_looked_at_again() -> None:
    found = outcome_of(CHAIN)
    assert opcodes(found) == ["parameter"]
    assert [s.rule for steps in found.context.simplified for s in steps] == ["negate-negate"] * 2


def test_a_limit_of_steps_is_kept() -> None:
    made, _ = hlo_opt.fuse(hlo_opt.parse(CHAIN), passes="algebraic-simplifier", stop_after_step=1)
    assert [i.opcode for i in made.entry.instructions] == ["parameter", "negate", "negate"]


@pytest.mark.parametrize(
    "old_new",
    [
        ("c = f32[8]{0} negate(b)", "c = f32[8]{0} negate(b), control-predecessors={a}"),
        ("d = f32[8]{0} negate(c)", "d = f32[8]{0} negate(c), sharding={replicated}"),
    ],
)
def test_what_waits_or_is_placed_stays(old_new: tuple[str, str]) -> None:
    assert "negate" in opcodes(outcome_of(CHAIN.replace(*old_new)))


def test_a_dynamic_dimension_stays() -> None:
    text = "HloModule m\n\nENTRY e {\n  x = f32[<=8] parameter(0)\n  ROOT a = f32[<=8] copy(x)\n}\n"
    assert opcodes(outcome_of(text)) == ["parameter", "copy"]


def test_a_value_that_lies_otherwise_does_not_take_the_place() -> None:
    text = """HloModule m

ENTRY e {
  x = f32[4,3]{1,0} parameter(0)
  a = f32[4,3]{0,1} copy(x)
  ROOT b = f32[4,3]{0,1} negate(a)
}
"""
    assert opcodes(outcome_of(text)) == ["parameter", "copy", "negate"]


def test_a_certificate_is_done_again_and_a_wrong_one_refused() -> None:
    found = outcome_of(CHAIN)
    assert check_certificate(found) == 2
    (steps, *rest) = found.context.simplified
    for wrong in (
        [replace(steps[0], rule="abs-of-sign"), steps[1]],
        [replace(steps[0], instruction="x"), steps[1]],
        [replace(steps[0], rule="no-such-rule"), steps[1]],
        [steps[0]],
    ):
        found.context.simplified[:] = [wrong, *rest]
        with pytest.raises(ProofError):
            check_certificate(found)


def test_branches_that_are_taken_are_inlined() -> None:
    text = """HloModule m

up {
  a = f32[8]{0} parameter(0)
  ROOT r = f32[8]{0} exponential(a)
}

down {
  a = f32[8]{0} parameter(0)
  ROOT r = f32[8]{0} negate(a)
}

ENTRY e {
  x = f32[8]{0} parameter(0)
  one = s32[] constant(1)
  ROOT c = f32[8]{0} conditional(one, x, x), branch_computations={up, down}
}
"""
    found = outcome_of(text)
    assert opcodes(found) == ["parameter", "negate"]
    assert len(found.module.computations) == 1


@pytest.mark.parametrize("number", [n for n in range(1, 60) if n % 6])
@pytest.mark.filterwarnings("ignore::hlo_opt.diag.errors.DeviceWarning")
def test_random_modules_keep_their_values(number: int) -> None:
    tally = Tally()
    program, _ = drawn(11, number)
    try:
        hlo_opt.evaluate(program.module, program.inputs(), max_steps=1000)
    except hlo_opt.EvaluationError:
        pytest.skip("nobody says what it gives")
    assert against_simplified(program, tally) is None


PACKED = """HloModule m

ENTRY e {
  x = s4[4,6]{1,0:E(4)} parameter(0)
  y = s4[24]{0:E(4)} parameter(1)
  three = s4[]{:E(4)} constant(3)
  threes = s4[24]{0:E(4)} broadcast(three), dimensions={}
  a = s4[24]{0:E(4)} reshape(x)
  b = s4[2,12]{1,0:E(4)} reshape(a)
  c = s4[24]{0:E(4)} reshape(b)
  d = s4[24]{0:E(4)} add(c, threes)
  f = s4[24]{0:E(4)} add(d, threes)
  s = s4[6]{0:E(4)} slice(f), slice={[2:20:3]}
  t = s4[2]{0:E(4)} slice(s), slice={[1:5:2]}
  u = s4[24]{0:E(4)} concatenate(y), dimensions={0}
  ROOT r = (s4[2]{0:E(4)}, s4[24]{0:E(4)}) tuple(t, u)
}
"""


def test_packed_arrays_are_simplified_and_stay_packed() -> None:
    module = hlo_opt.parse(PACKED)
    hlo_opt.verify(module)
    made = simplified(module).module
    hlo_opt.verify(made)
    assert len(made.entry.instructions) < len(module.entry.instructions) - 4
    of_four_bits = [i for i in made.entry.instructions if i.shape.is_array and i.shape.type.bits == 4]
    assert all(i.shape.layout is not None and i.shape.layout.tail == "E(4)" for i in of_four_bits), str(made)
    rng = np.random.default_rng(0)
    inputs = [rng.integers(-8, 8, n).astype(ml_dtypes.int4) for n in ((4, 6), (24,))]
    for want, got in zip(hlo_opt.evaluate(module, inputs), hlo_opt.evaluate(made, inputs), strict=True):
        assert np.array_equal(np.asarray(want).astype(int), np.asarray(got).astype(int))
    assert len(simplified(hlo_opt.parse(PACKED.replace("E(4)", "E(8)"))).module.entry.instructions) == 13
