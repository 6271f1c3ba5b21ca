"""Modules without the cause that a sentence names: what is changed, and what is proved."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from small_modules import module_of, named

import hlo_opt
from hlo_opt.diag import Reason
from hlo_opt.fusion.decision import FusionDecision
from hlo_opt.passes.run import run
from scripts import explain_truth
from scripts.explain_truth import changed, decided_otherwise, impossible, run_once_more
from scripts.truth_changes import Begun, is_cycle, stand_in

ROW, SQUARE = "f32[64]{0}", "f32[64,64]{1,0}"


@pytest.mark.parametrize("shape", ["f32[64,64]{1,0}", "s32[8]{0}", "pred[70,64]{0,1}"])
def test_plain_operations_stand_in_for_any(shape: str) -> None:
    module = module_of(
        f"p = {SQUARE} parameter(0)",
        "q = s8[3]{0} parameter(1)",
        f'c = {shape} custom-call(p, q), custom_call_target="x"',
        f"r = {shape} copy(c)",
    )
    stand_in(named(module, "c"))
    hlo_opt.verify(module)
    assert named(module, "c").shape == named(module, "r").shape
    assert not any(i.opcode == "custom-call" for i in module.entry.instructions)


def test_of_several_results_the_one_that_is_read_has_the_name() -> None:
    module = module_of(
        f"p = {ROW} parameter(0)",
        f'c = ({ROW}, s32[8]{{0}}) custom-call(p), custom_call_target="x"',
        "g = s32[8]{0} get-tuple-element(c), index=1",
        "r = s32[8]{0} negate(g)",
    )
    stand_in(named(module, "c"), "r")
    hlo_opt.verify(module)
    assert named(module, "r").operands == [named(module, "c")]


def test_an_edge_is_decided_otherwise_once_its_library_call_is_gone() -> None:
    lines = (f"p = {SQUARE} parameter(0)", f"d = {SQUARE} cholesky(p), lower=true", f"r = {SQUARE} negate(d)")
    module = module_of(*lines)
    (edge,) = run(module).decide()
    assert edge.cause[0].code == "FUS302"
    shown = changed(edge, frozenset({"FUS302"}), Begun.of(module, "default"))
    assert shown == ("module changed", "d as plain operations: fused")


def test_two_causes_are_taken_away_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = (
        f"p = {SQUARE} parameter(0)",
        f"d = {SQUARE} cholesky(p), lower=true",
        f"e = {SQUARE} cholesky(d), lower=true",
    )
    module = module_of(*lines, f"r = {SQUARE} negate(e)")
    edge = next(d for d in run(module).decide() if (d.producer, d.consumer) == ("d", "e"))
    ways = [way for way in explain_truth.removals(edge) if " and " not in way.words]
    assert [way.words for way in ways] == ["d as plain operations", "e as plain operations"]
    monkeypatch.setattr(explain_truth, "removals", lambda _: ways)
    shown = changed(edge, frozenset({"FUS302"}), Begun.of(module, "default"))
    assert shown == ("module changed", "d as plain operations and e as plain operations: fused")


def refused(code: str, **numbers: str) -> FusionDecision:
    reasons = (Reason.of(code, **numbers),)
    return FusionDecision("a", "d", "e", "cosine", "dot", "some pass", reasons, by_pass=(reasons,))


def test_two_kernels_that_both_have_both_ends_are_fused() -> None:
    edge = refused("FUS302", opcode="dot", runs_as="a library call")
    homes = {"a": {"k", "l"}, "d": {"k", "l"}}
    after = SimpleNamespace(refusals=lambda _: [edge], homes=homes)
    assert decided_otherwise(edge, frozenset({"FUS302"}), after) == "fused"  # type: ignore[arg-type]
    homes["d"].add("m")
    assert decided_otherwise(edge, frozenset({"FUS302"}), after) == ""  # type: ignore[arg-type]


@pytest.mark.parametrize("fuses", [True, False])
def test_passes_that_were_done_run_once_more(fuses: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "m.hlo"
    file.write_text(str(module_of(f"p = {ROW} parameter(0)", f"r = {ROW} cosine(p)")))
    monkeypatch.setattr(explain_truth.Fused, "fuses_now", lambda after, edge: fuses)
    edge = refused("FUS504", passes="fusion-merger", producer="a", consumer="d")
    assert run_once_more(edge, str(file), "default") == (("run once more", "fused") if fuses else None)
    edge = refused("FUS302", opcode="dot", runs_as="a library call")
    assert run_once_more(edge, str(file), "default") is None


def test_a_cycle_is_seen_in_the_printed_module(tmp_path: Path) -> None:
    call = 'custom_call_target="x"'
    module = module_of(
        f"p = {ROW} parameter(0)",
        f"a = {ROW} cosine(p)",
        f"c = {ROW} custom-call(a), {call}",
        f"d = {ROW} add(p, c)",
        f"r = ({ROW}, {ROW}) tuple(a, d)",
    )
    outcome = run(module, passes="multi-output-fusion", simplify="never")
    edges = {(d.producer, d.consumer): d for d in outcome.decide()}
    assert is_cycle(outcome.module, edges["a", "d"]) and not is_cycle(outcome.module, edges["a", "c"])
    file = tmp_path / "m.hlo"
    file.write_text(str(module))
    assert impossible(edges["a", "c"], str(file), "default") is None


def test_kernels_of_which_one_reads_the_other_are_no_siblings() -> None:
    module = module_of(
        f"p = {ROW} parameter(0)",
        f"a = {ROW} cosine(p)",
        f"d = {ROW} add(p, a)",
        f"r = ({ROW}, {ROW}) tuple(a, d)",
    )
    found = run(module, passes="multi-output-fusion{producer-consumer=false}", simplify="never").decide()
    assert [(d.producer, d.consumer, d.relation) for d in found] == [("a", "d", "operand")]
