"""`hlo-opt test`: the summary, the exit status, several processes, and where filecheck is missing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hlo_opt.cli.group import run

MODULE = "HloModule m\n\nENTRY e {\n  ROOT p = f32[8]{0} parameter(0)\n}\n"
PRINT = "// RUN: hlo-opt print %s\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for number in range(5):
        (tmp_path / f"t{number}.hlo").write_text(PRINT + MODULE)
        (tmp_path / f"t{number}.golden.hlo").touch()
    assert run(["test", ".", "--update", "--jobs", "1"]) == 0
    (tmp_path / "t3.golden.hlo").write_text("HloModule other\n")
    return tmp_path


def test_what_fails_is_shown_and_the_rest_counted(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    capfd.readouterr()
    assert run(["test", ".", "--jobs", "1"]) == 1
    out = capfd.readouterr().out
    assert out.startswith("failed t3.hlo\n  t3.hlo: prints something else than t3.golden.hlo\n  --- t3.golden.hlo\n")
    assert "\n  -HloModule other\n  +HloModule m\n" in out
    assert out.endswith("\n4 passed, 1 failed\n")
    assert run(["test", "t1.hlo", "-v"]) == 0
    assert capfd.readouterr().out == "passed t1.hlo\n1 passed\n"
    assert run(["test", ".", "--update", "-j", "1"]) == 0
    assert capfd.readouterr().out == "updated t3.golden.hlo\n4 passed, 1 updated\n"
    assert run(["test", ".", "-j", "1"]) == 0


def test_several_processes_print_the_same_in_the_same_order(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    capfd.readouterr()
    run(["test", ".", "-v", "--jobs", "1"])
    expected = capfd.readouterr().out
    done = subprocess.run(
        [sys.executable, "-m", "hlo_opt", "test", ".", "-v", "--jobs", "3"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        timeout=120,
    )
    assert (done.returncode, done.stdout, done.stderr) == (1, expected, "")


def test_nothing_to_test_is_bad_usage(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["test", str(tmp_path)]) == 2
    assert capfd.readouterr().err.startswith(f"{tmp_path}: HLO300 there is no golden file\n")
    assert run(["test", str(tmp_path / "no")]) == 2


def test_names_steer_no_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "\x1b]0;x\x07.hlo").write_text(PRINT + MODULE.replace("p = ", "\x1b[31m = "))
    assert run(["test", ".", "-j", "1"]) == 1
    out = capfd.readouterr().out
    assert "\x1b" not in out and "\\x1b]0;x\\x07.hlo" in out


def test_without_filecheck_it_says_how_to_install_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "filecheck", None)
    capfd.readouterr()
    assert run(["test", "t1.hlo"]) == 0  # no CHECK lines, no need
    (folder / "c.hlo").write_text(f"// RUN: hlo-opt print %s | FileCheck %s\n// CHECK: m\n{MODULE}")
    assert run(["test", "."]) == 2
    err = capfd.readouterr().err
    assert err.startswith("HLO341 CHECK lines need the package filecheck") and "pip install 'hlo-opt[golden]'" in err
