"""Programs side by side, each with its time: one that hangs, crashes, or leaves a GPU's context broken spoils nothing
but its own row."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

SAID = 4000
"""Characters of what a program that fails said last, which its row keeps."""


@dataclass(frozen=True)
class Job:
    """A program, which prints one JSON object as its last line, and the seconds that it may take. `row` is what is
    known before."""

    row: dict[str, Any]
    command: tuple[str, ...]
    seconds: float


def run_jobs(jobs: Sequence[Job], at_once: int, seconds: float, done: Callable[[dict[str, Any]], None]) -> int:
    """Runs jobs in order, so many at once, all within so many seconds; `done` gets the row of each as it ends, one at a
    time. Returns how many did not get their time.

    A row holds what the job knew, what the program printed, `seconds`, and `holds` and `why`: a program that fails, or
    takes too long, does not hold.
    """
    end = time.monotonic() + seconds
    lock = Lock()

    def work(job: Job) -> bool:
        left = end - time.monotonic()
        if left < 1:
            return False
        start = time.monotonic()
        found = _run(job.command, min(job.seconds, left))
        if found.get("late") and left < job.seconds:
            return False
        row = {**job.row, **found, "seconds": round(time.monotonic() - start, 2)}
        with lock:
            done(row)
        return True

    with ThreadPoolExecutor(max(1, at_once)) as pool:
        return sum(not reached for reached in pool.map(work, jobs))


def _run(command: Sequence[str], seconds: float) -> dict[str, Any]:
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        errors="replace", start_new_session=True,
    )  # fmt: skip
    try:
        text, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=5)
        return {"holds": False, "why": f"stopped after {seconds:.0f} s", "late": True}
    lines = [line for line in text.splitlines() if line.strip()]
    found = next((parsed for line in reversed(lines) if (parsed := _object(line)) is not None), None)
    if process.returncode == 0 and found is not None:
        return {"holds": True, "why": "", **found}
    told = [line for line in lines if line.startswith("========= ")][1:4]  # compute-sanitizer's words, but for its name
    told += [line for line in lines[-6:] if not line.startswith("========= ")][-1:]
    why = (found or {}).get("why") or " / ".join(line.removeprefix("========= ").strip() for line in told)
    return {
        **(found or {}),
        "holds": False,
        "why": f"exit status {process.returncode}: {why}"[:600],
        "said": text[-SAID:],
    }


def _object(line: str) -> dict[str, Any] | None:
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


@dataclass
class Rows:
    """Rows of a part of the results, in a file that is complete after each of them."""

    name: str
    path: Path | None
    rows: list[dict[str, Any]]

    def add(self, row: dict[str, Any]) -> None:
        """Keep a row; one that does not hold is printed."""
        self.rows.append(row)
        if not row["holds"]:
            print(f"  {row['case']}: {row['why']}", flush=True)
        self.write({})

    def write(self, more: dict[str, Any]) -> None:
        """The file anew."""
        if self.path is None:
            return
        partial = self.path.with_name(f".{self.path.name}.partial")
        partial.write_text(json.dumps({self.name: self.rows, **more}, indent=1) + "\n", encoding="utf-8")
        partial.replace(self.path)

    def end(self, left: int, may_end_early: bool = False) -> int:
        """The totals in a line; an exit status, which is 1 where some were not reached, unless that may be."""
        held = sum(bool(row["holds"]) for row in self.rows)
        late = sum(bool(row.get("late")) for row in self.rows)
        print(
            f"{self.name}: {held} of {len(self.rows)} hold"
            + (f", {late} of the others ran out of time" if late else "")
            + (f", {left} not reached in time" if left else ""),
            flush=True,
        )
        self.write({f"{self.name}_not_reached": left})
        return 0 if self.rows and held == len(self.rows) and (may_end_early or not left) else 1
