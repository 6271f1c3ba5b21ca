"""What the page shows, as data: both graphs, kernels with their prices, edges, lines, passes; and two modules
compared."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hlo_opt import diff, parse
from hlo_opt.passes.run import ExplainReport, report_on, run
from hlo_opt.report.view.data import comparison_data, data_of
from hlo_opt.report.view.steps import PassLog

ROOT = Path(__file__).resolve().parents[3]
LOOP = (ROOT / "testdata" / "dumps" / "nested.hlo").read_text()
BLOCK = (ROOT / "testdata" / "dumps" / "transformer_block.hlo").read_text()


def made(text: str, root: str | None = None) -> tuple[ExplainReport, dict[str, Any]]:
    module = parse(text)
    log = PassLog.of(module)
    report = report_on(run(module, observer=log))
    return report, json.loads(json.dumps(data_of(report, log, root)))


@pytest.fixture(scope="module")
def block() -> tuple[ExplainReport, dict[str, Any]]:
    return made(BLOCK, str(ROOT))


def test_graphs_hold_every_executed_instruction_once(block: tuple[ExplainReport, dict[str, Any]]) -> None:
    report, data = block
    for side, module in zip(data["sides"], (report.outcome.original, report.outcome.module), strict=True):
        graph = side["graph"]
        placed = sorted(node for scope in graph["scopes"] for row in scope["rows"] for node in row)
        assert placed == list(range(len(graph["names"])))
        assert {i.name for i in module.entry.instructions} <= set(graph["names"])
        columns = ("names", "opcodes", "shapes", "texts", "free", "lines", "homes", "groups")
        assert len({len(graph[column]) for column in columns}) == 1


def test_edges_stay_in_their_scope(block: tuple[ExplainReport, dict[str, Any]]) -> None:
    for side in block[1]["sides"]:
        homes, edges = side["graph"]["homes"], side["graph"]["edges"]
        assert all(homes[a] == homes[b] for a, b in zip(edges[::2], edges[1::2], strict=True))


def test_kernels_add_up_to_the_module(block: tuple[ExplainReport, dict[str, Any]]) -> None:
    report, data = block
    for side, summary in zip(data["sides"], (report.before, report.after), strict=True):
        assert len(side["kernels"]) == summary.kernels == side["figures"]["kernels"]
        total = sum(k["us"] * k["rounds"] for k in side["kernels"])
        assert total == pytest.approx(summary.est_us, rel=1e-3)
        for kernel in side["kernels"]:
            assert side["graph"]["names"][kernel["node"]] == kernel["name"]
            longest = max(us for name, us in kernel["parts"].items() if name != "launch")
            assert kernel["us"] >= longest + kernel["parts"]["launch"] - 1e-3


def test_kernels_have_plans_and_texts(block: tuple[ExplainReport, dict[str, Any]]) -> None:
    after = block[1]["sides"][1]
    for kernel in after["kernels"]:
        plan = kernel["plan"]
        if "text" in plan:
            assert plan["symbol"] in after["cuda"][plan["text"]] and plan["grid"] * plan["block"] > 0
        else:
            assert plan["kind"] == "library" and plan["calls"]


def test_what_a_kernel_holds_is_found_on_the_other_side(block: tuple[ExplainReport, dict[str, Any]]) -> None:
    before, after = (side["graph"] for side in block[1]["sides"])
    *_, row = (k for k in block[1]["sides"][1]["kernels"] if k["plan"]["kind"] == "row-reduction")
    mine = {name for name, group in zip(after["names"], after["groups"], strict=True) if group == row["group"]}
    theirs = {name for name, group in zip(before["names"], before["groups"], strict=True) if group == row["group"]}
    assert len(theirs) > 3 and theirs & mine


def test_edges_lines_and_passes(block: tuple[ExplainReport, dict[str, Any]]) -> None:
    report, data = block
    assert len(data["edges"]) == len(report.refused) and len(data["fused"]) == len(report.fused)
    savings = [edge["saved"] for edge in data["edges"] if edge["saved"] is not None]
    assert savings == sorted(savings, reverse=True)
    assert all(edge["sentence"] and edge["reasons"][0]["code"].startswith("FUS") for edge in data["edges"])
    source = data["sources"][0]
    assert source["file"].endswith(".py") and source["text"]
    assert "def " in "\n".join(source["text"])
    first, *runs = data["passes"]
    assert first["kernels"] == report.before.kernels and runs[-1]["kernels"] == report.after.kernels
    assert all(step["gone"] or step["new"] for step in runs)


def test_a_loop_is_a_scope_of_its_node() -> None:
    _, data = made(LOOP)
    graph = data["sides"][0]["graph"]
    owners = {graph["opcodes"][scope["owner"]] for scope in graph["scopes"] if scope["owner"] >= 0}
    assert "while" in owners


def test_without_a_root_no_file_is_read() -> None:
    assert all(source["text"] is None for source in made(LOOP)[1]["sources"])


def test_two_modules_are_matched_by_what_they_compute() -> None:
    old, new = ((ROOT / "testdata" / "diff" / f"{day}.hlo").read_text() for day in ("monday", "tuesday"))
    data = json.loads(json.dumps(comparison_data(diff(old, new))))
    first, second = data["sides"]
    assert data["kind"] == "comparison" and data["diff"]["differences"]
    assert {k["group"] for k in first["kernels"]} <= {k["group"] for k in second["kernels"]}


def test_the_same_module_gives_the_same_data() -> None:
    assert made(LOOP)[1] == made(LOOP)[1]
