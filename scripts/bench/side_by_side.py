"""Processes that share a list: each takes the next item that none has taken, and one at a time does what is timed."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PATIENCE = 10
"""Seconds after their time in which processes end by themselves."""


@dataclass(frozen=True)
class Queue:
    """A list of `count` items that processes share by files in a folder."""

    folder: Path
    count: int

    def __iter__(self) -> Iterator[int]:
        """The numbers of the items that no other process takes."""
        while True:
            with _held(self.folder / "next") as file:
                number = int(file.read() or 0)
                file.seek(0)
                file.truncate()
                file.write(str(number + 1))
            if number >= self.count:
                return
            yield number

    @contextmanager
    def alone(self) -> Iterator[None]:
        """While no other process is in such a block."""
        with _held(self.folder / "alone"):
            yield


def started(module: str, arguments: Sequence[str], folder: Path, jobs: int, seconds: float) -> list[dict[str, Any]]:
    """Run `python -m module arguments --beside FOLDER --out FILE` in some processes, which end after some seconds. The
    contents of their files."""
    end = time.monotonic() + seconds + PATIENCE
    files = [folder / f"{k}.json" for k in range(jobs)]
    command = [sys.executable, "-m", module, *arguments, "--beside", str(folder), "--out"]
    environment = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", **os.environ}  # they share the memory of a GPU
    processes = [subprocess.Popen([*command, str(file)], env=environment) for file in files]
    for process in processes:
        try:
            process.wait(None if seconds == float("inf") else max(0.0, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    return [json.loads(file.read_text(encoding="utf-8")) for file in files if file.is_file()]


@contextmanager
def _held(path: Path) -> Iterator[Any]:
    """A file that no other process holds."""
    with path.open("a+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        yield file
