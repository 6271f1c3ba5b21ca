"""How long `hlo-opt fuse` takes, against XLA's own parser on the same text: python -m scripts.bench.fuse_time [FILE...]
[--runs N]

Without FILE: all our dumps. XLA's parser stands for what reading the text costs at the least (XLA has no fusion passes
that run without a GPU), and a Python that does nothing for what starting costs. Prints, slowest last, the fastest of N
runs of the whole command (start, parse, verify, fuse, proof, decisions, print), how often that is the empty Python's
time, the fastest of N runs of parsing and fusing inside one process, and how often that is the time of XLA's parser;
then the totals.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import jaxlib._hlo as hlo

import hlo_opt

DUMPS = Path(__file__).resolve().parent.parent.parent / "testdata" / "dumps"


@dataclass(frozen=True)
class Times:
    """Seconds that one dump takes."""

    name: str
    command: float
    inside: float
    xla_parser: float


def fastest(action: Callable[[], object], runs: int) -> float:
    """The least wall time of several runs, in seconds."""
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        action()
        times.append(time.perf_counter() - start)
    return min(times)


def command_time(command: Sequence[str], runs: int) -> float:
    """The least wall time of a command, in seconds."""
    return fastest(lambda: subprocess.run(command, check=True, capture_output=True), runs)


def measure(path: Path, runs: int) -> Times:
    """Time one dump."""
    text = path.read_text(encoding="utf-8")
    return Times(
        path.stem,
        command_time([sys.executable, "-m", "hlo_opt", "fuse", str(path)], runs),
        fastest(lambda: len(hlo_opt.fuse(hlo_opt.parse(text))[1]), runs),
        fastest(lambda: hlo.hlo_module_from_text(text), runs),
    )


def main() -> int:
    """The command."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE")
    parser.add_argument("--runs", type=int, default=3)
    arguments = parser.parse_args()
    files: list[Path] = arguments.files or sorted(DUMPS.glob("*.hlo"))
    nothing = command_time([sys.executable, "-c", "pass"], max(5, arguments.runs))
    rows = sorted((measure(path, arguments.runs) for path in files), key=lambda row: row.command)
    width = max(len(row.name) for row in rows)
    print(f"{'':{width}}  hlo-opt fuse               inside             XLA's parser")
    rows.append(
        Times("total", sum(r.command for r in rows), sum(r.inside for r in rows), sum(r.xla_parser for r in rows))
    )
    for row in rows:
        empty = nothing * (len(rows) - 1 if row is rows[-1] else 1)
        print(
            f"{row.name:{width}}  {row.command:7.3f} s {row.command / empty:6.1f} x python  {row.inside:7.3f} s "
            f"{row.inside / row.xla_parser:7.1f} x  {row.xla_parser:8.4f} s"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
