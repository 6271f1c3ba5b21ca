"""A promise is what forcing gives: the module with these two kernels as one takes what the edge's price said."""

from __future__ import annotations

import pytest
from small_modules import text_of

import hlo_opt
from hlo_opt.diag import UsageError
from hlo_opt.passes.forcing import chosen
from hlo_opt.passes.run import report_on, run

V = "f32[65536]{0}"
P = f"p = {V} parameter(0)"
MODULES = {
    "written": (P, f"n = {V} negate(p)", f"t = {V} tanh(n)", f"s = {V} sine(n)", f"r = ({V}, {V}) tuple(t, s)"),
    "beside": (P, f"n = {V} negate(p)", f"t = {V} tanh(p)", f"r = ({V}, {V}) tuple(n, t)"),
    "reduced": (
        P,
        "z = f32[] constant(0)",
        f"n = {V} exponential(p)",
        "t = f32[] reduce(n, z), dimensions={0}, to_apply=sum",
        f"r = ({V}, f32[]) tuple(n, t)",
    ),
    "again": (P, f"n = {V} negate(p)", f's = {V} custom-call(n), custom_call_target="x"', f"t = {V} add(n, s)"),
    "bitcast": (
        P,
        f"n = {V} negate(p)",
        "b = f32[256,256]{1,0} bitcast(n)",
        "t = f32[256,256]{1,0} transpose(b), dimensions={1,0}",
    ),
}


@pytest.mark.parametrize("name", MODULES)
def test_forcing_gives_what_the_price_promised(name: str) -> None:
    text = text_of(*MODULES[name])
    passes = "multi-output-fusion" if name == "beside" else "dce"  # of siblings only a pass speaks
    left = report_on(run(hlo_opt.parse(text), passes=passes, simplify="never"))
    edge = chosen(left.decisions, ("n", "t"))
    assert edge is not None and edge.cost is not None
    forced = report_on(run(hlo_opt.parse(text), passes=passes, simplify="never", force=[("n", "t")]))
    assert left.after.est_us - forced.after.est_us == pytest.approx(edge.cost.us_saved, rel=1e-6, abs=1e-6)
    assert forced.after.kernels == left.after.kernels - (not edge.cost.kept)


def test_two_forced_edges_are_joined_one_after_the_other() -> None:
    text = text_of(P, f"a = {V} negate(p)", f"b = {V} tanh(a)", f"c = {V} sine(b)")
    outcome = run(hlo_opt.parse(text), passes="dce", simplify="never", force=[("a", "b"), ("b", "c")])
    assert [i.opcode for i in outcome.module.entry.instructions] == ["parameter", "fusion"]
    (one,) = {d.rule for d in outcome.decide()}
    assert one == "force"


def test_deciding_again_leaves_what_is_not_legal_apart() -> None:
    text = text_of(P, f'n = {V} custom-call(p), custom_call_target="x"', f"t = {V} tanh(n)")
    for again in (False, True):
        outcome = run(hlo_opt.parse(text), passes="priority-fusion", force=[("n", "t")], decide_again=again)
        assert [i.opcode for i in outcome.module.entry.instructions] == ["parameter", "custom-call", "tanh"]


def test_an_end_that_there_is_not() -> None:
    with pytest.raises(UsageError):
        run(hlo_opt.parse(text_of(P, f"t = {V} tanh(p)")), passes="dce", force=[("x", "t")])


def test_dearest_edges_are_priced_by_joining_them() -> None:
    """The ten dearest have the price of the kernel that joining makes, found in copies: the result stays as it is."""
    text = text_of(*MODULES["written"])
    report = report_on(run(hlo_opt.parse(text), passes="dce", simplify="never"))
    before = str(report.outcome.module)
    dearest = report.dearest
    assert {(d.producer, d.consumer) for d in dearest} == {("n", "t"), ("n", "s")}
    for edge in dearest:
        assert edge.cost is not None and edge.cost.us_saved > 0
    assert str(report.outcome.module) == before


COPIED = (
    P,
    "z = f32[] constant(0)",
    "w = f32[] reduce(p, z), dimensions={0}, to_apply=sum",
    f"b = {V} broadcast(w), dimensions={{}}",
    f"a = {V} add(p, b)",
    f"t = {V} tanh(a)",
    "s = f32[] reduce(a, z), dimensions={0}, to_apply=sum",
    f"r = ({V}, f32[]) tuple(t, s)",
)
"""What reads `w` is copied into two kernels: two edges have the same ends."""


def test_each_of_two_edges_of_the_same_names_is_meant_by_what_it_says() -> None:
    passes = "instruction-fusion{may-duplicate=true}"
    left = report_on(run(hlo_opt.parse(text_of(*COPIED)), passes=passes, simplify="never"))
    edges = [d for d in left.refused if (d.producer, d.consumer) == ("w", "b")]
    assert len({d.consumer_kernel for d in edges}) == 2 and sorted(d.by_kernels for d in edges) == [False, True]
    for edge in edges:
        assert edge.cost is not None
        assert chosen(left.decisions, edge.edge) == edge
        assert (edge.consumer_kernel in edge.force) == (edge.consumer_kernel in edge.ends) == edge.by_kernels
        outcome = run(hlo_opt.parse(text_of(*COPIED)), passes=passes, simplify="never", force=[edge.edge])
        kernels = {i.name for i in outcome.module.entry.instructions}
        assert edge.consumer_kernel not in kernels
        assert {d.consumer_kernel for d in edges if d is not edge} <= kernels
        forced = report_on(outcome)
        assert left.after.est_us - forced.after.est_us == pytest.approx(edge.cost.us_saved, rel=1e-6, abs=1e-6)
