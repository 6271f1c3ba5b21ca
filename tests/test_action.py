"""The GitHub Action, as far as it runs without GitHub: its script, with the environment that a runner gives it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
TEXT = (ROOT / "action.yml").read_text(encoding="utf-8")

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="the action is a bash script")


def script() -> str:
    """The last step's script."""
    return textwrap.dedent(TEXT.rpartition("run: |\n")[2])


def run(folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """The script in a folder, with this Python's hlo-opt in front of the path."""
    programs = folder / "bin"
    programs.mkdir(exist_ok=True)
    (programs / "hlo-opt").write_text(f'#!/bin/sh\nexec {sys.executable} -m hlo_opt "$@"\n')
    (programs / "hlo-opt").chmod(0o755)
    given = {
        **os.environ,
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "GITHUB_WORKSPACE": str(folder),
        **environment,
    }
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script()]
    return subprocess.run(command, cwd=folder, env=given, capture_output=True, text=True, timeout=300, check=False)


@pytest.fixture
def dumps(tmp_path: Path) -> Path:
    for folder, name in (("before", "monday"), ("now", "tuesday")):
        (tmp_path / folder).mkdir()
        shutil.copy(ROOT / "testdata" / "diff" / f"{name}.hlo", tmp_path / folder / "model with a space.hlo")
    return tmp_path


def test_a_regression_is_annotated_and_fails(dumps: Path) -> None:
    done = run(dumps, FILES="now", BASE="before", LIMIT="5%", TARGET="h100_sxm")
    assert done.returncode == 1, done.stderr
    assert re.search(r"^::error .*title=HLO714::", done.stdout, re.MULTILINE)


def test_what_is_no_worse_passes(dumps: Path) -> None:
    done = run(dumps, FILES="before", BASE="before", LIMIT="5%", TARGET="h100_sxm")
    assert (done.returncode, done.stderr) == (0, "")


def test_without_a_base_only_the_lines_are_annotated(dumps: Path) -> None:
    shutil.copy(ROOT / "testdata" / "dumps" / "nested.hlo", dumps / "now")
    done = run(dumps, FILES="now", BASE="", LIMIT="5%", TARGET="a100_sxm_80")
    assert done.returncode == 0 and "HLO714" not in done.stdout and "title=LNT105" in done.stdout


def test_inputs_reach_the_script_as_variables_only() -> None:
    """A text from outside that stood in the script itself could run as one."""
    assert "${{" not in script()
    declared = set(re.findall(r"^  ([a-z-]+):$", TEXT.partition("inputs:")[2].partition("runs:")[0], re.MULTILINE))
    assert set(re.findall(r"\$\{\{ inputs\.([a-z-]+) \}\}", TEXT)) == declared
