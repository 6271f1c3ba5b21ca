"""Each step of CartPole agrees between NumPy, `host` and XLA:CPU within the declared tolerance, from the same state."""

from __future__ import annotations

import re

import pytest

from scripts import cartpole_steps
from scripts.bench.cartpole_forms import FORMS
from scripts.bench.host_vs_xla_cpu import of_case
from scripts.cartpole_steps import ROUNDS, Steps, cut
from scripts.xla_cpu import Program


@pytest.mark.parametrize("form", ["random", "call"])
def test_steps_from_the_same_state_agree(form: str) -> None:
    pairs = Steps.of(form, 32).run(20)
    assert [(p.left, p.right) for p in pairs] == [("numpy", "host"), ("numpy", "XLA:CPU"), ("host", "XLA:CPU")]
    for pair in pairs:
        assert not pair.beyond and pair.worst <= pair.allowed, pair
        assert pair.open < 20 and pair.elements > 20 * 32 * 4


def test_the_emitted_text_itself_agrees() -> None:
    (own, *_) = Steps.of("separate", 64, "plain").run(5)
    assert not own.beyond and own.elements > 5 * 64 * 4


def test_a_step_that_computes_something_else_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = Steps.of("joined", 64)
    text = cut(of_case(FORMS["joined"].timed(64, ROUNDS)).text)
    heavier = re.sub(r"constant\(9\.8\)", "constant(9.801)", text)
    assert heavier != text
    steps.program = Program(heavier)
    own, theirs, both = steps.run(2)
    assert not own.beyond and theirs.beyond and both.beyond
    assert theirs.first.startswith("step 0: out0[")
    monkeypatch.setattr(Steps, "of", lambda *_: steps)
    assert cartpole_steps.main(["joined", "--environments", "64", "--steps", "2"]) == 1
    assert "elements beyond it" in capsys.readouterr().out
