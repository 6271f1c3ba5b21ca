"""Edges that were left, as they were before kernels that do not read each other were joined: what refused an edge is
told, not what its kernels became."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_modules import module_of

import hlo_opt
from hlo_opt.diag import Reason
from hlo_opt.fusion.decision import FusionDecision
from hlo_opt.ir import Module
from hlo_opt.passes.run import report_on, run
from hlo_opt.report.sentences import sentence

DUMPS = Path(__file__).resolve().parents[2] / "testdata" / "dumps"
ROW, WIDE = "f32[64]{0}", "f32[64,96]{1,0}"
CALL = 'custom_call_target="library"'
FUSERS = "priority-fusion,cse,dce,multi-output-fusion{levels=true},cse,dce"
PACKED = f"{FUSERS},launch-packing,dce"
BESIDE = (
    f"p = {ROW} parameter(0)",
    f"w = {WIDE} parameter(1)",
    "z = f32[] constant(0)",
    f"a = {ROW} cosine(p)",
    f"b = {ROW} reduce(w, z), dimensions={{1}}, to_apply=sum",
)
"""`a` and `b` become one launch."""


def refused(module: Module, passes: str, **options: object) -> dict[tuple[str, str, str], FusionDecision]:
    outcome = run(module, passes=passes, simplify="never", **options)  # type: ignore[arg-type]
    return {(d.producer, d.consumer, d.relation): d for d in reversed(outcome.decide()) if not d.fused}


def codes(decision: FusionDecision) -> list[str]:
    return [r.code for r in decision.reasons]


def test_a_reader_of_a_joined_kernel_is_refused_for_what_refused_it() -> None:
    module = module_of(*BESIDE, f"c = {ROW} custom-call(a), {CALL}", f"r = ({ROW}, {ROW}) tuple(b, c)")
    alone, joined = (refused(module, passes)["a", "c", "operand"] for passes in (FUSERS, PACKED))
    assert codes(joined) == codes(alone) and "FUS105" not in codes(joined)
    assert sentence(joined) == sentence(alone) and joined.rule == alone.rule
    assert alone.producer_kernel == "a" and joined.producer_kernel != "a"


def test_so_is_what_reads_into_a_joined_kernel() -> None:
    module = module_of(
        f"q = {ROW} parameter(0)",
        f"w = {WIDE} parameter(1)",
        "z = f32[] constant(0)",
        f"p = {ROW} custom-call(q), {CALL}",
        f"v = {WIDE} custom-call(w), {CALL}",
        f"a = {ROW} cosine(p)",
        f"b = {ROW} reduce(v, z), dimensions={{1}}, to_apply=sum",
        f"r = ({ROW}, {ROW}) tuple(a, b)",
    )
    alone, joined = refused(module, FUSERS), refused(module, PACKED)
    for ends in (("p", "a", "operand"), ("v", "b", "operand")):
        assert codes(joined[ends]) == codes(alone[ends])
    assert joined["p", "a", "operand"].consumer_kernel == joined["v", "b", "operand"].consumer_kernel


def test_a_cycle_that_the_joint_kernel_makes_comes_last() -> None:
    """`a` and `b` are one launch, and `d`, which reads what `a` reads, needs `b` through `c`: one kernel of `a` and `d`
    could have been made before, and cannot now."""
    module = module_of(
        *BESIDE,
        f"c = {ROW} custom-call(b), {CALL}",
        f"d = {ROW} add(p, c)",
        f"r = ({ROW}, {ROW}) tuple(a, d)",
    )
    alone = refused(module, "multi-output-fusion")["a", "d", "sibling"]
    assert codes(alone) == ["FUS135"] and alone.cost is not None
    joined = refused(module, "multi-output-fusion,launch-packing,dce")["a", "d", "sibling"]
    assert codes(joined) == ["FUS135", "FUS132"]
    assert joined.unpriced is not None and joined.unpriced.code == "FUS132"
    assert sentence(joined).endswith("(FUS135, then FUS132)")


def test_a_reader_of_a_kernel_of_two_is_told_of_alone() -> None:
    lines = (*BESIDE, f"c = {ROW} custom-call(b), {CALL}", f"d = {ROW} add(a, c)", f"e = {ROW} custom-call(a), {CALL}")
    module = module_of(*lines, f"r = ({ROW}, {ROW}) tuple(d, e)")
    once = "instruction-fusion{may-duplicate=false}"
    for passes in (once, f"{once},launch-packing,dce"):
        found = refused(module, passes)["a", "d", "operand"]
        assert codes(found) == ["FUS501"] and found.cost is not None


def test_what_no_pass_had_anything_against_is_refused_by_what_it_became() -> None:
    module = module_of(*BESIDE, f"c = {ROW} negate(a)", f"r = ({ROW}, {ROW}) tuple(b, c)")
    found = refused(module, "launch-packing,priority-fusion")["a", "c", "operand"]
    assert "FUS504" not in codes(found) and "FUS105" in codes(found)


def test_siblings_of_an_earlier_pass_are_told_of_as_they_were() -> None:
    lines = (*BESIDE[:-1], f"b = {ROW} reverse(p), dimensions={{0}}", f"c = {ROW} custom-call(a), {CALL}")
    module = module_of(*lines, f"r = ({ROW}, {ROW}) tuple(b, c)")
    alone, joined = (refused(module, passes) for passes in (FUSERS, PACKED))
    assert {ends for ends in alone if ends[2] == "sibling"} == {("a", "b", "sibling")}
    assert not any(ends[2] == "sibling" for ends in joined)  # they are one launch


@pytest.mark.parametrize("name", ["mlp_train_step", "k_means", "adam_one"])
def test_packing_changes_no_cause(name: str) -> None:
    """Every edge that both runs refuse, copies of a value told apart, is refused for the same, in the same words; but
    for what no pass refused."""
    module = hlo_opt.parse((DUMPS / f"{name}.hlo").read_text(encoding="utf-8"))
    told: list[dict[tuple[str, str], list[tuple[tuple[Reason, ...], ...]]]] = [{}, {}]
    for passes, found in zip((FUSERS, PACKED), told, strict=True):
        for d in run(module, passes=passes, simplify="never").decide():
            if d.relation == "operand" and not d.fused and "FUS504" not in codes(d):
                found.setdefault((d.producer, d.consumer), []).append(d.by_pass)
    both = told[0].keys() & told[1].keys()
    assert both
    for ends in both:
        assert all(by_pass in told[0][ends] for by_pass in told[1][ends]), ends


def test_the_promise_of_an_edge_is_kept_on_joint_kernels() -> None:
    """What forcing is said to save is what it saves, whatever the ends were joined with."""
    module = hlo_opt.parse((DUMPS / "mlp_train_step.hlo").read_text(encoding="utf-8"))
    report = report_on(run(module))
    edge = next(d for d in report.refused if d.cost is not None and d.relation == "operand")
    forced = report_on(run(module, force=[edge.edge]))
    assert edge.cost is not None
    assert forced.after.est_us == pytest.approx(report.after.est_us - edge.cost.us_saved, abs=1e-6)


HANDED_ON = """HloModule m

drawn {
  k = u64[2]{0} parameter(0)
  x = f32[64]{0} parameter(1)
  bits = (u64[2]{0}, u32[64]{0}) rng-bit-generator(k), algorithm=rng_philox
  first = u64[2]{0} get-tuple-element(bits), index=0
  second = u32[64]{0} get-tuple-element(bits), index=1
  c = f32[64]{0} cosine(x)
  ROOT r = (u64[2]{0}, u32[64]{0}, f32[64]{0}) tuple(first, second, c)
}

ENTRY e {
  key = u64[2]{0} parameter(0)
  x = f32[64]{0} parameter(1)
  all = (u64[2]{0}, u32[64]{0}, f32[64]{0}) fusion(key, x), kind=kLoop, calls=drawn
  taken = u32[64]{0} get-tuple-element(all), index=1
  turned = f32[64]{0} get-tuple-element(all), index=2
  n = u32[64]{0} not(taken)
  ROOT r = (u32[64]{0}, f32[64]{0}) tuple(n, turned)
}
"""


def test_one_of_several_results_is_named_by_its_operation() -> None:
    """The element that a kernel hands on is of its own making: nobody finds its name in the input."""
    found = refused(hlo_opt.parse(HANDED_ON), PACKED)
    assert [(a, b) for a, b, relation in found if relation == "operand"] == [("bits", "n")]
    decision = found["bits", "n", "operand"]
    assert (decision.producer_opcode, codes(decision)[0]) == ("rng-bit-generator", "FUS105")
