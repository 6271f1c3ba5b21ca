"""How long fusing takes, against XLA's own parser on the same text: python -m scripts.bench.fuse_time [FILE...] [--runs N]

Without FILE: the largest of our dumps. XLA's parser stands for what reading the text costs at the least; XLA has no fusion passes that could be run
without a GPU. Prints the fastest of N runs of each: the whole command `hlo-opt fuse`, the steps inside one process, and XLA's parser.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import jaxlib._hlo as hlo

import hlo_opt

DUMPS = Path(__file__).resolve().parent.parent.parent / "testdata" / "dumps"


def fastest(action: Callable[[], object], runs: int) -> float:
    """The least wall time of several runs, in seconds."""
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        action()
        times.append(time.perf_counter() - start)
    return min(times)


def measure(path: Path, runs: int) -> None:
    """Print the figures of one dump."""
    text = path.read_text(encoding="utf-8")
    command = [sys.executable, "-m", "hlo_opt", "fuse", str(path)]
    whole = fastest(lambda: subprocess.run(command, check=True, capture_output=True), runs)
    xla = fastest(lambda: hlo.hlo_module_from_text(text), runs)
    parse = fastest(lambda: hlo_opt.parse(text), runs)
    fuse = fastest(lambda: hlo_opt.fuse(hlo_opt.parse(text)), runs) - parse
    print(f"{path.name}: {len(text) / 1e6:.2f} MB")
    print(f"  hlo-opt fuse, the whole command  {whole:8.3f} s")
    print(f"  parse                            {parse:8.3f} s   {parse / xla:8.1f} times XLA's parser")
    print(f"  fuse                             {fuse:8.3f} s   {fuse / xla:8.1f} times XLA's parser")
    print(f"  XLA's parser                     {xla:8.3f} s")


def main() -> int:
    """The command."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE")
    parser.add_argument("--runs", type=int, default=3)
    arguments = parser.parse_args()
    files: list[Path] = arguments.files or [max(DUMPS.glob("*.hlo"), key=lambda p: p.stat().st_size)]
    for path in files:
        measure(path, arguments.runs)
    return 0


if __name__ == "__main__":
    sys.exit(main())
