"""The table of workloads: what it says of PyTorch, what it hides, and that its figures are those that are kept; nothing
is timed here."""

from __future__ import annotations

import ast
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from scripts.bench import workloads
from scripts.bench.counted import both
from scripts.bench.host_vs_xla_cpu import Result, Work, of_case
from scripts.bench.workload_programs import WORKLOADS
from tests.small_modules import H100

BENCH = Path(workloads.__file__).parent
AGAIN = "python -m scripts.bench.workloads --keep-times --write"


@pytest.fixture(scope="module")
def found() -> workloads.Workloads:
    return workloads.from_json((workloads.RESULTS / "workloads.json").read_text(encoding="utf-8"))


def test_pytorch_has_the_same_programs() -> None:
    tree = ast.parse((BENCH / "torch_programs.py").read_text(encoding="utf-8"))
    (table,) = (
        node.value for node in tree.body if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "PROGRAMS"
    )
    assert isinstance(table, ast.Dict)
    assert [ast.literal_eval(key) for key in table.keys if key] == [case.name for case in WORKLOADS.values()]


def test_a_cell_says_why_it_has_no_figure() -> None:
    good = {"ms": 1.234, "kernels": 12345, "first_s": 1.0, "differ": 0.0}
    ways = {
        "eager": good,
        "TorchScript": {"cannot": "RuntimeError: no"},
        "Inductor": {**good, "differ": 0.5, "kernels": None},
    }
    torch = {"torch": "2", "rows": {"it": ways}}
    assert workloads.cell(None, "it", "eager", "ms") == "not installed"
    assert workloads.cell(torch, "it", "eager", "ms") == "1.23"
    assert workloads.cell(torch, "it", "eager", "kernels") == "12,345"
    assert workloads.cell(torch, "it", "TorchScript", "ms") == "cannot"
    assert workloads.cell(torch, "other", "eager", "ms") == "cannot"
    assert workloads.cell(torch, "it", "Inductor", "ms") == "differs"
    ways["Inductor"]["differ"] = None
    assert workloads.cell(torch, "it", "Inductor", "kernels") == "-"


def test_no_path_of_a_python_is_shown() -> None:
    shown = workloads.command("cartpole", ["--torch", "/a/b/python", "--write"])
    assert shown == "python -m scripts.bench.cartpole --torch PYTHON --write"
    assert workloads.command("workloads", ["--torch=/a/b"]) == "python -m scripts.bench.workloads --torch=PYTHON"


@pytest.mark.parametrize("script", ["#!/bin/sh\nexit 1\n", None], ids=["no PyTorch", "no Python"])
def test_without_pytorch_there_are_no_figures_of_it(
    tmp_path: Path, script: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    python = tmp_path / "python"
    if script is not None:
        python.write_text(script)
        python.chmod(0o755)
    assert workloads.in_torch(str(python), [], 1, 0.0) is None
    assert "has no PyTorch" in capsys.readouterr().err


def test_a_busy_machine_says_so() -> None:
    assert "rough" in str(workloads.Machine(2, 1.5)) and "rough" not in str(workloads.Machine(2, 1.0))


def test_the_command_prints_and_writes_what_it_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[Work] = []

    def measure(work: Work, rounds: int, seconds: float) -> Result:
        seen.append(work)
        return Result(work.name, 2000.0, 3000.0, 1.5, 1.4, 1.6, rounds, 1.0, 0.5)

    monkeypatch.setattr(workloads, "measure", measure)
    monkeypatch.setattr(workloads, "RESULTS", tmp_path)
    monkeypatch.setattr(sys, "argv", ["workloads", "--only", "grad of grad", "--write"])
    assert workloads.main() == 0
    first = capsys.readouterr().out
    assert "| grad of grad | 2 | 3 | 1.5 | not installed | not installed | not installed |\n" in first
    assert first == (tmp_path / "workloads.md").read_text()
    kept = workloads.from_json((tmp_path / "workloads.json").read_text())
    assert [row.name for row in kept.rows] == ["second_derivative"] == [work.name for work in seen]
    monkeypatch.setattr(sys, "argv", ["workloads", "--only", "grad of grad", "--keep-times"])
    assert workloads.main() == 0
    assert capsys.readouterr().out == first and len(seen) == 1


def test_what_is_kept_has_every_workload(found: workloads.Workloads) -> None:
    assert [(row.name, row.title) for row in found.rows] == [(case.name, title) for title, case in WORKLOADS.items()]
    assert workloads.from_json(found.as_json()) == found
    assert (workloads.RESULTS / "workloads.md").read_text(encoding="utf-8") == workloads.tables(found), AGAIN


@pytest.mark.parametrize("title", ["Lotka-Volterra, RK4", "layer norm with gradient", "gradient of a simulation"])
def test_the_figures_that_are_kept_are_those_of_today(found: workloads.Workloads, title: str) -> None:
    made = both(of_case(WORKLOADS[title]).text, H100)
    kept = next(row.device for row in found.rows if row.title == title)
    assert made.xla.launches == kept.xla.launches and made.ours.launches == kept.ours.launches, AGAIN


def test_every_number_has_its_command(found: workloads.Workloads) -> None:
    told = workloads.tables(replace(found, command="python -m scripts.bench.workloads --rounds 3"))
    assert told.startswith("`python -m scripts.bench.workloads --rounds 3`\n")
