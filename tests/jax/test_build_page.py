"""docs/build.md: the C program compiles and runs against a bundle."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from hlo_opt.cli.group import run

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "build.md").read_text(encoding="utf-8")


def test_the_c_program_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip("there is no gcc")
    monkeypatch.chdir(tmp_path)
    assert run(["build", str(ROOT / "testdata" / "dumps" / "softmax.hlo"), "-o", "softmax"]) == 0
    (program,) = re.findall(r"```c\n(.*?)```", TEXT, re.DOTALL)
    (tmp_path / "main.c").write_text(program)
    (command,) = re.findall(r"^ {4}gcc (.*)$", TEXT, re.MULTILINE)
    arguments = [a.strip("'") if "'" not in a.strip("'") else a.replace("'", "") for a in command.split()]
    subprocess.run([compiler, "-Wall", "-Werror", *arguments], check=True)
    done = subprocess.run(["./main"], capture_output=True, text=True, check=True)
    assert float(done.stdout) == pytest.approx(1 / 1000)
