"""The worklist, certificates and the stage: what is looked at again, what is left alone, and that random modules keep
their values."""

from __future__ import annotations

from dataclasses import replace

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
