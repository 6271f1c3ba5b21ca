"""docs/tutorial.md runs from top to bottom as it stands: its Python blocks are files, its commands print what it
shows."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("jax", reason="the extra jax is not installed")

from hlo_opt.cli.group import VERBS
from hlo_opt.runtime.host.library import has_compiler

ROOT = Path(__file__).resolve().parent.parent
TEXT = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", TEXT, re.DOTALL)

pytestmark = pytest.mark.skipif(not has_compiler(), reason="there is no C++ compiler")


def printed(line: str, folder: Path, environment: dict[str, str]) -> str:
    """What a command prints; `| head -N` and `| tail -N` as in a shell."""
    command, _, rest = line.partition(" | ")
    program, *arguments = command.split()
    start = {"hlo-opt": [sys.executable, "-m", "hlo_opt"], "python": [sys.executable]}[program]
    done = subprocess.run(
        [*start, *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    text = re.sub(r"\S+/(\w+\.(?:py|hlo))\b", r"\1", done.stdout + done.stderr)  # folders are nobody's
    assert done.returncode == 0 or "HLO710" in text, text
    if rest:
        which, count = re.fullmatch(r"(head|tail) -(\d+)", rest).groups()  # type: ignore[union-attr]
        lines = text.splitlines(keepends=True)
        text = "".join(lines[: int(count)] if which == "head" else lines[-int(count) :])
    return text


def general(text: str) -> list[str]:
    """Lines without what depends on the machine: times that were measured, and how far results of other compilers are
    apart."""
    found = []
    for line in text.splitlines():
        if line.startswith("check:"):
            line = line.partition(" on ")[0]
        elif line.startswith(("as it was", "fixed", "with the hook", "JAX")):
            line = re.sub(r" +[\d.]+ (ms|us)", " N", line)
        elif "regions replaced" in line:
            line = line.partition(" (")[0]
        found.append(line)
    return found


def test_every_block_runs_and_prints_what_is_shown(tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}",
        "HLO_OPT_CACHE": str(tmp_path / "cache"),
        "JAX_PLATFORMS": "cpu",
        "NO_COLOR": "1",
    }
    for number, (kind, block) in enumerate(BLOCKS):
        if kind == "python":
            name = block.partition("\n")[0].removeprefix("# ")
            (tmp_path / name).write_text(block, encoding="utf-8")
        elif kind == "sh":
            got = "".join(printed(line, tmp_path, environment) for line in block.splitlines())
            following = BLOCKS[number + 1] if number + 1 < len(BLOCKS) else ("", "")
            if following[0] != "text":
                continue
            shown, real = general(following[1]), general(got)
            if "live.py" in block:
                assert [line for line in real if not line.startswith("JAX")] == [
                    line for line in shown if not line.startswith("JAX")
                ]
                assert "JAX402 jit_swarm: while.7" in got
            else:
                assert real == shown, block


def test_each_text_is_what_commands_print() -> None:
    kinds = [kind for kind, _ in BLOCKS]
    assert set(kinds) == {"python", "sh", "text"}
    assert all(before == "sh" for before, kind in itertools.pairwise(kinds) if kind == "text")


def test_every_verb_that_is_named_exists() -> None:
    assert {m[1] for m in re.finditer(r"(?:^|`)hlo-opt ([a-z]+)", TEXT, re.MULTILINE)} <= set(VERBS)
