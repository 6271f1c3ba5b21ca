"""The workloads that fusion is praised for: python -m scripts.bench.workloads [--only WORD] [--torch PYTHON] [--rounds
N] [--seconds S] [--keep-times] [--write]

For each program of `workload_programs`: kernels, launches, bytes and price of a run on an H100 as XLA fuses it (preset
xla-2026) and as we do (default), which needs no device; then milliseconds on this machine's CPU, by backend `host` and
by XLA:CPU in turns in the same run. With the Python of an environment that has PyTorch (and NumPy), the same in PyTorch
on the CPU, straight after: eager, TorchScript and Inductor (`torch_programs`). Prints Markdown tables; `--write` also
writes them and the figures to `results/workloads.md` and `results/workloads.json`. `--keep-times` takes what a clock
said from there, and counts again.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from hlo_opt.analysis.targets import DEFAULT_TARGET, target
from scripts.bench.counted import Both, both, both_from
from scripts.bench.host_vs_xla_cpu import Result, Work, measure, of_case
from scripts.bench.markdown import figures, size, table, times
from scripts.bench.workload_programs import WORKLOADS
from scripts.xla_cpu import Program, sample_inputs

ROOT = Path(__file__).resolve().parents[2]
RESULTS = Path(__file__).resolve().parent / "results"
WAYS = ("eager", "TorchScript", "Inductor")
MISSING = "not installed"
WRONG = 0.001
"""The share of outputs that may differ from XLA's before a figure of PyTorch is not shown: rounding moves single points
of a Mandelbrot set."""


@dataclass(frozen=True)
class Machine:
    """Where times were taken: processors, and how many tasks wanted one before the start."""

    processors: int
    load: float

    def __str__(self) -> str:
        busy = " It had other work to do meanwhile, so times are rough." if self.load > self.processors / 2 else ""
        return (
            f"Times are of a machine with {self.processors} processors; its load was {self.load:.1f} before the "
            f"start.{busy}"
        )


def this_machine() -> Machine:
    """The one that this runs on."""
    return Machine(os.cpu_count() or 1, round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else 0.0)


@dataclass(frozen=True)
class Row:
    """A workload: its name as a case, what the table calls it, what it comes to on the device, and times on the CPU."""

    name: str
    title: str
    device: Both
    timed: Result


@dataclass(frozen=True)
class Workloads:
    """All of them; `torch` is what `torch_programs` printed, nothing where PyTorch is not installed."""

    command: str
    machine: Machine
    rows: tuple[Row, ...]
    torch: dict[str, Any] | None

    def as_json(self) -> str:
        """For `from_json`."""
        return json.dumps(asdict(self), indent=1) + "\n"


def from_json(text: str) -> Workloads:
    """What `as_json` wrote."""
    found = json.loads(text)
    rows = (Row(r["name"], r["title"], both_from(r["device"]), Result(**r["timed"])) for r in found["rows"])
    return Workloads(found["command"], Machine(**found["machine"]), tuple(rows), found["torch"])


def command(module: str, arguments: Sequence[str]) -> str:
    """The command line as it is shown: the path of a Python is nobody's business."""
    shown = list(arguments)
    for number, word in enumerate(shown):
        if word.startswith("--torch="):
            shown[number] = "--torch=PYTHON"
        elif number and shown[number - 1] == "--torch":
            shown[number] = "PYTHON"
    return " ".join(["python", "-m", f"scripts.bench.{module}", *shown])


def in_torch(python: str, works: Sequence[Work], rounds: int, seconds: float) -> dict[str, Any] | None:
    """The workloads in PyTorch, by the Python of another environment; nothing where that has no PyTorch."""
    try:
        subprocess.run([python, "-c", "import torch, numpy"], capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError) as fault:
        print(f"{python} has no PyTorch: {fault}", file=sys.stderr)
        return None
    with tempfile.TemporaryDirectory() as folder:
        for work in works:
            program = Program(work.text)
            inputs = sample_inputs(work.parameters or program.parameters, seed=0)
            outputs = program(inputs)
            arrays = {f"in{k}": a for k, a in enumerate(inputs)} | {f"out{k}": a for k, a in enumerate(outputs)}
            made: dict[str, Any] = {name: np.asarray(a) for name, a in arrays.items()}
            np.savez(Path(folder) / f"{work.name}.npz", **made)
        limits = ["--rounds", str(rounds), "--seconds", str(seconds)]
        call = [python, "-m", "scripts.bench.torch_programs", folder, *limits]
        # compiled anew, so that seconds to compile are true; modules of this environment are not for that one
        environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(Path(folder) / "cache"), "PYTHONPATH": ""}
        done = subprocess.run(call, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    printed: dict[str, Any] = json.loads(done.stdout)
    return printed


def rows(only: str, rounds: int, seconds: float, old: Workloads | None) -> tuple[list[Row], list[Work]]:
    """Count every workload, and time those that have no times yet."""
    device = target(DEFAULT_TARGET)
    known = {row.name: row.timed for row in old.rows} if old is not None else {}
    found, works = [], []
    for title, case in WORKLOADS.items():
        if only.lower() not in title.lower():
            continue
        work = of_case(case)
        timed = known.get(case.name) or measure(work, rounds, seconds)
        found.append(Row(case.name, title, both(work.text, device), timed))
        works.append(work)
        print(f"{title}: done", file=sys.stderr, flush=True)
    return found, works


def made(shown: str, only: str, torch: str | None, rounds: int, seconds: float, old: Workloads | None) -> Workloads:
    """Everything; with `old`, times are taken from there."""
    machine = this_machine()
    counted, works = rows(only, rounds, seconds, old)
    if old is not None:
        return replace(old, rows=tuple(counted))
    return Workloads(shown, machine, tuple(counted), in_torch(torch, works, rounds, seconds) if torch else None)


def device_table(found: Workloads) -> str:
    """Launches, bytes and price."""
    titles = ["workload", "launches, XLA", "ours", "bytes, XLA", "ours", "us by price, XLA", "ours", "gain"]
    lines = []
    for row in found.rows:
        xla, ours = row.device.xla, row.device.ours
        counts = f"{xla.launches:,}", f"{ours.launches:,}", size(xla.bytes), size(ours.bytes)
        lines.append([row.title, *counts, figures(xla.us), figures(ours.us), times(xla.us / ours.us)])
    return table(titles, lines)


def time_table(found: Workloads) -> str:
    """Milliseconds on the CPU."""
    titles = ["workload", "host", "XLA:CPU", "ratio", *(f"PyTorch {way}" for way in WAYS)]
    lines = []
    for row in found.rows:
        timed = row.timed
        ours = [figures(timed.host_us / 1e3), figures(timed.xla_us / 1e3), figures(timed.ratio)]
        lines.append([row.title, *ours, *(cell(found.torch, row.name, way, "ms") for way in WAYS)])
    return table(titles, lines)


def kernel_table(found: Workloads) -> str:
    """Kernels of a run, as the device would launch them."""
    titles = ["workload", "ours", "XLA", *(f"PyTorch {way}" for way in WAYS)]
    lines = []
    for row in found.rows:
        counts = f"{row.device.ours.launches:,}", f"{row.device.xla.launches:,}"
        lines.append([row.title, *counts, *(cell(found.torch, row.name, way, "kernels") for way in WAYS)])
    return table(titles, lines)


def cell(torch: dict[str, Any] | None, name: str, way: str, what: str) -> str:
    """A figure of PyTorch, or why there is none."""
    if torch is None:
        return MISSING
    found = torch["rows"].get(name, {}).get(way)
    if found is None or "cannot" in found:
        return "cannot"
    if (found["differ"] or 0.0) > WRONG:
        return "differs"
    value = found[what]
    return "-" if value is None else f"{value:,}" if what == "kernels" else figures(value)


def tables(found: Workloads) -> str:
    """All of it as a file of its own."""
    with_torch = "PyTorch is not installed." if found.torch is None else f"PyTorch {found.torch['torch']}."
    parts = [
        f"`{found.command}`\n\n{found.machine} {with_torch}\n",
        f"A run on an {target(DEFAULT_TARGET).title}, by price:\n",
        device_table(found),
        "Milliseconds of a run on the CPU (medians):\n",
        time_table(found),
        "Launches of a run; of PyTorch, operations that compute something (eager, TorchScript), generated kernels and "
        "calls of libraries (Inductor):\n",
        kernel_table(found),
    ]
    return "\n".join(parts)


def options(parser: argparse.ArgumentParser) -> None:
    """What this command and the case study's have in common."""
    parser.add_argument("--torch", metavar="PYTHON", help="of an environment that has PyTorch")
    parser.add_argument("--rounds", type=int, default=30, help="pairs of runs")
    parser.add_argument("--seconds", type=float, default=10.0, help="stop a row after so long")
    parser.add_argument("--keep-times", action="store_true", help="take what a clock said from the results")
    parser.add_argument("--write", action="store_true", help="write results and pages, too")


def main() -> int:
    """The command."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="WORD", help="workloads whose names hold a word")
    options(parser)
    given = parser.parse_args()
    file = RESULTS / "workloads.json"
    old = from_json(file.read_text(encoding="utf-8")) if given.keep_times else None
    shown = command("workloads", sys.argv[1:])
    with fresh_cache():
        found = made(shown, given.only, given.torch, given.rounds, given.seconds, old)
    print(tables(found), end="")
    if given.write:
        save(found)
    return 0


@contextlib.contextmanager
def fresh_cache() -> Iterator[None]:
    """Nothing that was compiled before is found, so that seconds to compile are true."""
    before = os.environ.get("HLO_OPT_CACHE")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["HLO_OPT_CACHE"] = folder
        try:
            yield
        finally:
            del os.environ["HLO_OPT_CACHE"]
            os.environ.update({} if before is None else {"HLO_OPT_CACHE": before})


def save(found: Workloads) -> None:
    """Write the figures and the tables."""
    (RESULTS / "workloads.json").write_text(found.as_json(), encoding="utf-8")
    (RESULTS / "workloads.md").write_text(tables(found), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
