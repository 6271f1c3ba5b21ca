"""The first screen of `explain`: it fits, says one sentence for each edge, and the sentence has what decides."""

from __future__ import annotations

from dataclasses import replace

import pytest

import hlo_opt
from hlo_opt.diag import Reason, reason_specs
from hlo_opt.fusion.decision import CostEstimate, FusionDecision, Pricing
from hlo_opt.passes.run import report_on, run
from hlo_opt.report import explain
from hlo_opt.report.sentences import (
    COLUMNS,
    LINES,
    EdgePrices,
    advice,
    dearest_first,
    edge_page,
    figures_page,
    first_page,
    fit,
    sentence,
    short_path,
)

TEXT = """HloModule m

ENTRY e {
  p = f32[64,8]{1,0} parameter(0)
  q = f32[64,8]{1,0} parameter(1)
  a = f32[64,8]{1,0} add(p, q), metadata={op_name="a" source_file="model.py" source_line=7}
  t = f32[64,8]{1,0} tanh(a), metadata={op_name="t" source_file="model.py" source_line=8}
  d = f32[64,64]{1,0} dot(a, q), lhs_contracting_dims={1}, rhs_contracting_dims={1}
  ROOT o = (f32[64,8]{1,0}, f32[64,64]{1,0}) tuple(t, d)
}
"""
LIBRARY = Reason.of("FUS302", opcode="dot", runs_as="a library call")
FORM = Reason.of("FUS142", instruction="f", form="reduction kernel")
READ = Reason.of("FUS141", instruction="f", user="u", consumer="c")


def edge(*by_pass: tuple[Reason, ...], saved: float = 1.0, unpriced: Reason | None = None) -> FusionDecision:
    reasons = tuple(r for found in by_pass for r in found)
    pricing = Pricing(lambda: unpriced or CostEstimate(2.0 + saved, 2.0, 0.0, 0.0))
    return FusionDecision("p", "c", "e", "add", "dot", "some pass", reasons, pricing, by_pass=by_pass)


def test_the_line_of_codes_names_as_many_as_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    report = report_on(run(hlo_opt.parse(TEXT), passes="instruction-fusion"))
    for number, end in ((1, "FUS302 1 and 1 more code"), (10_000_000, " 10,000,000 and 3 more codes")):
        counts = dict.fromkeys(("FUS302", "FUS403", "FUS105", "FUS122", "FUS136"), number)
        monkeypatch.setattr(type(report), "refusals_by_code", counts)
        (line,) = [line for line in str(figures_page(report)).splitlines() if "reasons:" in line]
        assert len(line) <= COLUMNS and line.endswith(end)


def test_an_edge_is_three_lines() -> None:
    report = report_on(run(hlo_opt.parse(TEXT), passes="instruction-fusion"))
    lines = str(first_page(report, report.refused, most=10)).splitlines()
    assert lines[0] == "m on h100_sxm" and lines[2].split() == ["kernels", "3", "3"]
    assert "launches" not in "".join(lines)  # as many as kernels
    assert lines[5] == "  0 edges fused, 2 refused; reasons: FUS302 1, FUS403 1"
    assert lines[6] == "edges (-v: every reason): what joining saves or costs, cause, change"
    first, why, change = lines[7:10]
    assert first.split()[-5:] == ["%)", "a", "->", "t", "model.py:8"] and first.split()[1] == "us"
    assert why == "    its 2 readers would read 4096 bytes each; its result is 2048 (FUS403)"
    assert change == "    change: let one kernel read it, so that the producer goes away; or --force a:t"
    assert lines[10].split() == ["no", "price", "a", "->", "d", "model.py:7"]
    assert len(lines) == 13


def test_where_joining_saves_at_no_edge_the_title_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    report = report_on(run(hlo_opt.parse(TEXT), passes="instruction-fusion"))

    def title(*saved: float | None) -> str:
        values = dict(zip(map(id, report.refused), saved, strict=True))
        monkeypatch.setattr(EdgePrices, "saved", lambda prices, decision: values[id(decision)])
        return str(first_page(report, report.refused, most=10)).splitlines()[6]

    assert title(0.0, -3.0) == "edges (-v: every reason): joining saves no time at any of these"
    for saved in ((0.0, 3.0), (0.0, None)):
        assert title(*saved) == "edges (-v: every reason): what joining saves or costs, cause, change"


def test_a_long_price_does_not_touch_the_edge() -> None:
    report = report_on(run(hlo_opt.parse(TEXT), passes="instruction-fusion"))
    prices = EdgePrices(report)
    prices.total = 100.0
    first = str(edge_page(edge((FORM,), saved=0.0151), prices)).splitlines()[0]
    assert first == "  0.0151 us (0.0 %) p -> c"


def test_the_pass_with_least_against_an_edge_decides() -> None:
    assert edge((FORM, READ, FORM), (LIBRARY,)).cause == (LIBRARY,)
    assert edge((READ, FORM, FORM)).cause == (READ, FORM)
    assert edge((LIBRARY,), (FORM, READ), unpriced=LIBRARY).cause == (LIBRARY,)


def test_where_no_kernel_can_be_both_the_reason_for_that_comes_first() -> None:
    one = FusionDecision(
        "p", "c", "e", "add", "dot", "r", (LIBRARY, FORM), Pricing(lambda: LIBRARY), by_pass=((FORM, LIBRARY), (FORM,))
    )
    assert one.cause == (LIBRARY, FORM)
    other = FusionDecision(
        "p", "c", "e", "add", "dot", "r", (LIBRARY, FORM), Pricing(lambda: LIBRARY), by_pass=((FORM,),)
    )
    assert other.cause == (LIBRARY,)


def test_a_sentence_names_what_refuses_next_or_counts_it() -> None:
    short = "a reduction kernel is not put beside others; only loops share a launch"
    assert sentence(edge((FORM,))) == f"{short} (FUS142)"
    assert sentence(edge((FORM, READ))) == f"{short} (FUS142, then FUS141)"
    assert sentence(edge((FORM, READ, LIBRARY)), room=120) == f"{short} (FUS142, then FUS141, FUS302)"
    assert sentence(edge((FORM, READ, LIBRARY)), room=95) == f"{short} (FUS142, then 2 more)"
    assert sentence(edge((FORM, READ, LIBRARY)), room=88) == f"{short} (FUS142, then 2 more)"
    assert sentence(edge((FORM, READ, LIBRARY)), room=88, cut=True) == f"{short} (FUS142, ...)"
    many = (FORM, READ, LIBRARY, Reason.of("FUS203", count=9, limit=8))
    assert sentence(edge(many)) == f"{short} (FUS142, then 3 more)"
    fused = FusionDecision("p", "c", "e", "add", "dot", "some pass")
    assert (sentence(fused), advice(fused)) == ("fused by some pass", "")


def test_what_saves_time_can_be_forced() -> None:
    change = LIBRARY.change
    assert advice(edge((READ,))).endswith("; or --force p:c")
    assert advice(edge((READ,)), room=20) == READ.change
    assert change.startswith("nothing") and advice(edge((LIBRARY,))) == "--force p:c"
    assert advice(edge((LIBRARY,), saved=-1.0)) == advice(edge((LIBRARY,), unpriced=LIBRARY)) == change


def test_no_change_is_advised_where_joining_saves_no_time() -> None:
    several = Reason.of("FUS105", producer="p", outputs=2)
    assert advice(edge((several,), saved=-1.0)) == "nothing: one kernel of both would take longer"
    assert advice(edge((several,), saved=0.0)) == "nothing: one kernel of both would take as long"
    assert advice(edge((several,), unpriced=LIBRARY)) == several.change
    dear = Reason.of("FUS408", producer="p", users=2, us_fused=3.0, us_unfused=2.0, model="")
    assert advice(edge((dear,), saved=-1.0)) == dear.change  # says what would make it pay


@pytest.mark.parametrize("spec", reason_specs(), ids=lambda s: s.code)
def test_every_code_has_a_sentence_and_a_change_that_fit_a_line(spec) -> None:
    numbers = {
        name: 1.5
        if f"{{{name}:" in spec.template + spec.hint + spec.short
        else "loop_add_fusion.12"
        if name in NAMES
        else "4096"
        for name in spec.fields
    }
    reason = Reason(spec.code, numbers)
    assert spec.short and spec.change and len(reason.short) <= COLUMNS - len("     (FUS000)")
    assert len(reason.change) <= COLUMNS
    assert not reason.short.endswith(".") and reason.short[0] == reason.short[0].lower()


NAMES = frozenset(
    {
        "producer",
        "consumer",
        "instruction",
        "user",
        "parent",
        "first",
        "second",
        "needed",
        "loop",
        "fusion",
        "buffer",
        "scatter",
    }
)


def test_the_dearest_come_first_then_what_costs_then_what_has_no_price() -> None:
    report = report_on(run(hlo_opt.parse(TEXT), passes="instruction-fusion"))
    assert [d.consumer for d in dearest_first(EdgePrices(report), report.refused[::-1])] == ["t", "d"]
    cheap, dear, none = edge((READ,), saved=-3.0), edge((READ,), saved=-1.0), edge((LIBRARY,), unpriced=LIBRARY)
    assert dearest_first(EdgePrices(report), [none, cheap, dear]) == [dear, cheap, none]


def test_what_is_too_long_is_cut_in_its_middle() -> None:
    assert fit("a" * 40, 20) == "aaaaaaaaaaa...aaaaaa"
    assert fit("as it is", 20) == "as it is" and fit("\x1b[2J") == "\\x1b[2J"
    assert short_path("/home/me/project/model/layers.py:12", 24) == ".../model/layers.py:12"
    assert short_path("/home/me/" + "x" * 40 + ".py:12", 20) == "..." + "xxxxxxxxxxx.py:12"
    assert short_path("model.py:7", 24) == "model.py:7"


@pytest.mark.parametrize("name", ["mlp_train_step", "cartpole_scan", "k_means", "autoencoder_step"])
def test_the_first_screen_fits(name: str, dump) -> None:
    report = report_on(run(dump(name)))
    lines = str(first_page(report, report.refused, most=explain.EDGES_SHOWN)).splitlines()
    assert len(lines) <= LINES and max(map(len, lines)) <= COLUMNS
    edges = [
        line
        for line in lines
        if " -> " in line or (" and " in line and line.startswith("  ") and not line.startswith("    "))
    ]
    assert len(edges) >= min(len(report.refused), explain.EDGES_SHOWN)


@pytest.fixture
def dump():
    from pathlib import Path

    folder = Path(__file__).resolve().parents[2] / "testdata" / "dumps"
    return lambda name: hlo_opt.parse((folder / f"{name}.hlo").read_text(encoding="utf-8"))


def test_names_as_long_as_they_like_leave_the_line_as_long_as_it_is() -> None:
    long = FusionDecision(
        "p" * 90,
        "c" * 90,
        "e",
        "add",
        "dot",
        "r",
        (READ,),
        Pricing(lambda: CostEstimate(3, 2, 0, 0)),
        "",
        "/a/" + "d/" * 60 + "m.py:3",
    )
    report = report_on(run(hlo_opt.parse(TEXT), passes="instruction-fusion"))
    lines = str(edge_page(long, EdgePrices(report))).splitlines()
    assert len(lines) == 3 and max(map(len, lines)) <= COLUMNS and lines[0].endswith("m.py:3")


@pytest.mark.parametrize("name", ["adam_one", "k_means"])
def test_sentences_are_true(name: str, dump) -> None:
    """Without the codes of its sentence an edge fuses, or something refuses it that did not before."""

    from scripts.explain_truth import judge, told_in
    from scripts.reason_truth import NO_RULES, Fused

    module = dump(name)
    for one in told_in(module, "default")[:3]:
        off = one.codes - NO_RULES
        after = Fused.of(module, "default", "auto", sorted(off))
        assert judge(one.edge, off, after)[0] != "still refused", one


def layer(number: int, saved: float, **more: str) -> FusionDecision:
    names = {"producer": f"p{number}", "consumer": f"c{number}", "producer_kernel": f"k{number}"} | more
    return replace(edge((LIBRARY,), saved=saved), **names)


def test_edges_alike_are_one_on_the_first_screen() -> None:
    """Those of equal layers where joining saves nothing, and one edge in several kernels; what saves has its names."""
    report = report_on(run(hlo_opt.parse(TEXT)))
    layers = [layer(n, -1.0) for n in range(24)]
    copies = [layer(n, 3.0, producer="p", consumer="c") for n in range(40, 43)]
    savings = [layer(50, 2.0), layer(51, 2.0)]
    other = layer(60, -1.0, consumer_source="model.py:7")
    lines = str(first_page(report, [*layers, *copies, *savings, other], most=10)).splitlines()
    edges = [line for line in lines if line.startswith("  ") and " -> " in line and not line.startswith("    ")]
    ends = [line[19:].strip() for line in edges]
    assert ends == [
        "p -> c, and 2 similar",
        "p50 -> c50",
        "p51 -> c51",
        "p0 -> c0, and 23 similar",
        "p60 -> c60  model.py:7",
    ]
    assert "grouped (--all: all, -v" in "".join(lines)
    assert len(str(first_page(report, layers)).splitlines()) > 24
