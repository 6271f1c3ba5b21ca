"""The peak of small modules, counted by hand; and those of dumps against the evaluator's own count of what is alive."""

from __future__ import annotations

from pathlib import Path

import pytest

from hlo_opt import parse
from hlo_opt.report.memory.timeline import Moment, moment_of
from hlo_opt.runtime.schedule import build_schedule
from hlo_opt.runtime.schedule.lifetimes import peak_of

DUMPS = Path(__file__).resolve().parents[3] / "testdata" / "dumps"
KILO = 4096
"""Bytes of f32[1024]."""


def moment(body: str) -> Moment:
    return moment_of(build_schedule(parse(f"HloModule m\n\n{body}")))


def test_a_chain_holds_two_values_and_its_input() -> None:
    found = moment(
        "ENTRY e {\n  p = f32[1024]{0} parameter(0)\n  a = f32[1024]{0} tanh(p)\n"
        "  b = f32[1024]{0} negate(a)\n  ROOT c = f32[1024]{0} cosine(b)\n}\n"
    )
    assert found.bytes == 3 * KILO
    assert {h.kind for h in found.holders} == {"inputs", "temporaries"}
    assert found.at.name == "b" and found.after is not None and found.after.name == "a"


def test_who_holds_and_who_reads() -> None:
    found = moment(
        "ENTRY e {\n  p = f32[1024]{0} parameter(0)\n  a = f32[1024]{0} tanh(p)\n  b = f32[1024]{0} negate(p)\n"
        "  c = f32[1024]{0} add(a, b)\n  ROOT d = (f32[1024]{0}, f32[1024]{0}) tuple(c, a)\n}\n"
    )
    assert found.bytes == 4 * KILO
    holders = {h.maker.name: h for h in found.holders}
    assert {name: h.kind for name, h in holders.items()} == {
        "p": "inputs",
        "a": "results",
        "b": "temporaries",
        "c": "results",
    }
    assert [r.name for r in holders["b"].readers] == ["c"]
    assert holders["a"].number == 1 and holders["p"].number == 0


def test_what_a_body_makes_counts_while_its_loop_runs() -> None:
    found = moment(
        "body {\n  s = (s32[], f32[1024]{0}) parameter(0)\n  i = s32[] get-tuple-element(s), index=0\n"
        "  one = s32[] constant(1)\n  j = s32[] add(i, one)\n  x = f32[1024]{0} get-tuple-element(s), index=1\n"
        "  y = f32[1024]{0} tanh(x)\n  z = f32[1024]{0} negate(y)\n  ROOT t = (s32[], f32[1024]{0}) tuple(j, z)\n}\n\n"
        "condition {\n  s = (s32[], f32[1024]{0}) parameter(0)\n  i = s32[] get-tuple-element(s), index=0\n"
        "  n = s32[] constant(3)\n  ROOT c = pred[] compare(i, n), direction=LT\n}\n\n"
        "ENTRY e {\n  p = f32[1024]{0} parameter(0)\n  z = s32[] constant(0)\n"
        "  t = (s32[], f32[1024]{0}) tuple(z, p)\n  w = (s32[], f32[1024]{0}) while(t), condition=condition, "
        "body=body\n"
        "  ROOT r = f32[1024]{0} get-tuple-element(w), index=1\n}\n"
    )
    assert 4 * KILO <= found.bytes < 4 * KILO + 64  # the input, the loop's state, what a round makes
    assert {h.maker.name for h in found.holders if h.bytes == KILO} >= {"p", "w", "y", "z"}


@pytest.mark.parametrize("name", ["softmax", "mlp_train_step", "heat", "branch", "cache_update", "lstm"])
def test_holders_add_up_and_a_run_holds_no_less(name: str) -> None:
    schedule = build_schedule(parse((DUMPS / f"{name}.hlo").read_text()))
    found = moment_of(schedule)
    inputs = sum(h.bytes for h in found.holders if h.kind == "inputs")
    assert inputs <= found.bytes <= peak_of(schedule).bytes
    held = sum(h.bytes for h in found.holders)
    assert held == found.bytes
