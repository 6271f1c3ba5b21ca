"""Refused edges as annotations: where, in which order, and many on one line as one."""

from __future__ import annotations

import hlo_opt
from hlo_opt.diag import CheckError, Reason
from hlo_opt.diag.annotation import Annotation
from hlo_opt.fusion.decision import CostEstimate, FusionDecision, Pricing
from hlo_opt.report.annotate import budget_annotations, dearest_annotations, edge_annotations
from hlo_opt.report.sentences import EdgePrices

TEXT = """HloModule m

ENTRY e {
  p = f32[8]{0} parameter(0)
  ROOT n = f32[8]{0} negate(p)
}
"""


def edge(
    producer: str, consumer: str, saved: float, source: str = "", above: str = "", codes: str = "D"
) -> FusionDecision:
    reasons = {
        "D": Reason.of("FUS302", opcode="dot", runs_as="a library call"),
        "S": Reason.of("FUS302", opcode="sort", runs_as="a kernel of its own or a library call"),
        "R": Reason.of("FUS203", count=9, limit=8),
    }
    return FusionDecision(
        producer,
        consumer,
        "e",
        "add",
        "dot",
        "legality",
        tuple(reasons[c] for c in codes),
        Pricing(lambda: CostEstimate(saved, 0.0, 0.0, 0.0)),
        above,
        source,
    )


def made(*edges: FusionDecision, root: str = "/proj") -> list[Annotation]:
    return edge_annotations(hlo_opt.parse(TEXT, filename="m.hlo"), edges, root)


def test_the_dearest_comes_first_and_a_line_and_a_code_are_one() -> None:
    found = made(
        edge("a", "b", 1.0, "x.py:1"), edge("c", "d", 3.0, "x.py:2", codes="DR"), edge("f", "g", 2.0, "x.py:1")
    )
    assert [(a.file, a.line, a.code) for a in found] == [
        ("x.py", 2, "FUS302"),
        ("x.py", 2, "FUS203"),
        ("x.py", 1, "FUS302"),
    ]
    assert found[2].message.splitlines() == [
        "f -> g is not fused: `dot` runs as a library call",
        "hint: a library call may take what follows `dot` as its epilogue",
        "fusing it alone would save 2 us",
        "nor are, from the same line: a -> b",
    ]
    assert found[2].properties["edges"] == [{"producer": "f", "consumer": "g"}, {"producer": "a", "consumer": "b"}]
    assert len({a.key for a in found}) == 3


def test_of_many_edges_some_are_named_and_the_rest_counted() -> None:
    (found,) = made(*(edge(f"a{n}", "b", 0.0, "x.py:1") for n in range(9)))
    assert found.message.endswith(
        "nor are, from the same line: a1 -> b, a2 -> b, a3 -> b, a4 -> b, a5 -> b and 3 more edges"
    )


def test_an_edge_that_one_code_refuses_twice_is_named_once() -> None:
    (found,) = made(edge("a", "b", 0.0, "x.py:1", codes="DS"))
    assert "so are" not in found.message and len(found.properties["edges"]) == 1


def test_the_place_is_the_consumers_else_the_producers_else_in_the_dump() -> None:
    found = made(
        edge("a", "n", 4.0, "/proj/src/x.py:1", "y.py:2"),
        edge("b", "n", 3.0, "", "y.py:2"),
        edge("p", "n", 2.0),
        edge("q", "r", 1.0),
        edge("s", "t", 0.5, "just a file"),
    )
    places = [("src/x.py", 1), ("y.py", 2), ("m.hlo", 5), ("", 0), ("just a file", 0)]
    assert [(a.file, a.line) for a in found] == places


def test_only_paths_below_the_root_become_relative() -> None:
    found = made(
        *(edge(f"a{n}", "b", -n, s) for n, s in enumerate(["/projshop/x.py:1", "/proj/../etc/x.py:1", "/proj/x.py:1"]))
    )
    assert [a.file for a in found] == ["/projshop/x.py", "/proj/../etc/x.py", "x.py"]


def test_a_budget_is_annotated_as_an_error_of_the_dump() -> None:
    (found,) = budget_annotations([CheckError("3 kernels", code="HLO710", filename="/proj/m.hlo")], "/proj")
    assert (found.code, found.level, found.file, found.line, found.message) == (
        "HLO710",
        "error",
        "m.hlo",
        0,
        "3 kernels",
    )


def test_each_of_the_dearest_edges_is_annotated_then_the_module() -> None:
    from hlo_opt.passes.run import report_on, run

    report = report_on(run(hlo_opt.parse(TEXT, filename="m.hlo")))
    shown = [edge("a", "n", 4.0, "/proj/src/x.py:1"), edge("b", "n", -3.0, codes="R")]
    first, second, figures = dearest_annotations(report.outcome.original, EdgePrices(report), shown, "/proj")
    assert (first.file, first.line, first.code, first.level) == ("src/x.py", 1, "FUS302", "warning")
    price, change = first.message.splitlines()
    assert price.endswith(
        ": a -> n are two kernels: `dot` runs as a library call, which reads and writes whole arrays (FUS302)"
    )
    assert price.startswith("4 us (") and change == "change: --force a:n"
    assert (second.file, second.line, second.code) == ("m.hlo", 5, "FUS203") and second.message.startswith(
        "costs 3 us: "
    )
    assert figures.level == "note" and figures.message.startswith("m on h100_sxm: 1 kernel before, 1 after fusing; ")
