"""Modules that `reduce` tries in scripts/reduce_faults.py: kept in a folder, and judged by XLA."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from hlo_opt.cutting.questions import Question
from hlo_opt.ir import Module

TAKEN = ".taken.hlo"
"""The end of the names of recorded modules that `reduce` went on from."""
ACCEPTED = "accepted"


def record(folder: str | None, text: str, end: str) -> None:
    """Keep a module in a folder, if there is one, under a name that its text gives."""
    if folder:
        path = Path(folder, hashlib.sha256(text.encode()).hexdigest()[:20] + end)
        part = path.with_suffix(f".{os.getpid()}.part")  # a try may be ended while it writes
        part.write_text(text, encoding="utf-8")
        part.replace(path)


@dataclass(frozen=True)
class Recorded:
    """A question that keeps each module it is asked of."""

    question: Question
    folder: str

    def ways(self) -> Sequence[Callable[[Module, str], str | None]]:
        return [partial(self._ask, way) for way in self.question.ways()]

    def _ask(self, way: Callable[[Module, str], str | None], module: Module, text: str) -> str | None:
        record(self.folder, text, ".hlo")
        return way(module, text)


def judged(folder: Path) -> tuple[list[int], list[str]]:
    """How many recorded modules there are, how many of them `reduce` went on from, and for each that XLA refuses
    its name and why."""
    import jaxlib._hlo as hlo

    files, refused = sorted(folder.glob("*.hlo")), []
    for file in files:
        try:
            hlo.hlo_module_from_text(file.read_text(encoding="utf-8"))
        except Exception as error:
            refused.append(f"{file.name}: {str(error).splitlines()[0]}")
    taken = [file for file in files if file.name.endswith(TAKEN)]
    left = taken
    while left:  # XLA:CPU may crash: go on behind the module at which it does
        command = [sys.executable, "-m", "scripts.reduce_faults", "--compile", *map(str, left)]
        lines = subprocess.run(command, capture_output=True, text=True, check=False).stdout.splitlines()
        refused += [f"{file.name}: {why}" for file, why in zip(left, lines, strict=False) if why != ACCEPTED]
        if len(lines) < len(left):
            refused.append(f"{left[len(lines)].name}: XLA:CPU crashes")
        left = left[len(lines) + 1 :]
    return [len(files), len(taken)], refused


def compile_all(files: Sequence[Path]) -> None:
    """Print a line for each module: whether XLA:CPU compiles it, or why not."""
    from scripts.xla_cpu import Program

    for file in files:
        try:
            Program(file.read_text(encoding="utf-8"), optimized=False)
            print(ACCEPTED, flush=True)
        except Exception as error:
            print(str(error).splitlines()[0], flush=True)
