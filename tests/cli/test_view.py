"""`hlo-opt view`: formats, two files, and what is refused."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from hlo_opt.cli.group import run

ROOT = Path(__file__).resolve().parents[2]
SOFTMAX = str(ROOT / "testdata" / "dumps" / "softmax.hlo")
MONDAY, TUESDAY = (str(ROOT / "testdata" / "diff" / f"{day}.hlo") for day in ("monday", "tuesday"))


def test_a_page_is_written_and_its_file_named(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.html"
    assert run(["view", SOFTMAX, "-o", str(out)]) == 0
    assert out.read_text().startswith("<!DOCTYPE html>")
    assert capfd.readouterr().err == f"hlo-opt: wrote {out}\n"
    assert run(["-q", "view", SOFTMAX, "-o", str(out)]) == 0
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("words", [["view", SOFTMAX], ["diff", MONDAY, TUESDAY, "--format", "html"]])
def test_a_page_does_not_go_to_a_terminal(words: list[str]) -> None:
    controller, terminal = pty.openpty()
    done = subprocess.run([sys.executable, "-m", "hlo_opt", *words], stdout=terminal, stderr=subprocess.PIPE, text=True)
    os.close(terminal)
    os.close(controller)
    assert done.returncode == 2 and done.stderr.endswith("hint: -o out.html\n")


def test_the_formats(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["view", SOFTMAX, "--format", "json"]) == 0
    assert json.loads(capfd.readouterr().out)["schema"] == 1
    assert run(["view", SOFTMAX, "--format", "perfetto"]) == 0
    assert json.loads(capfd.readouterr().out)["traceEvents"]
    assert run(["view", SOFTMAX, "--format", "dot"]) == 0
    assert capfd.readouterr().out.startswith("digraph")


def test_two_files_are_compared(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["view", MONDAY, TUESDAY, "--format", "json"]) == 0
    assert json.loads(capfd.readouterr().out)["kind"] == "comparison"


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ((MONDAY, TUESDAY, SOFTMAX), "takes a file, or two"),
        ((MONDAY, TUESDAY, "--format", "dot"), "not as dot"),
        (("-", "-"), "only one file can be stdin"),
    ],
)
def test_what_is_refused(capfd: pytest.CaptureFixture[str], arguments: tuple[str, ...], why: str) -> None:
    assert run(["view", *arguments]) == 2
    assert why in capfd.readouterr().err
