"""How long `hlo-opt --help` takes, against a Python that does nothing: python -m scripts.bench.help_time [--runs N]

Prints the fastest and the median of N runs each, taken in turns.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence


def seconds(command: Sequence[str]) -> float:
    """Wall time of one run of a command."""
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def main() -> int:
    """The command."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20)
    runs: int = parser.parse_args().runs
    commands = {
        "python -c pass": [sys.executable, "-c", "pass"],
        "hlo-opt --help": [sys.executable, "-m", "hlo_opt", "--help"],
    }
    times: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(runs):
        for name, command in commands.items():
            times[name].append(1000 * seconds(command))
    for name, found in times.items():
        print(f"{name:16} fastest {min(found):6.1f} ms, median {statistics.median(found):6.1f} ms of {runs} runs")
    nothing, shown = (statistics.median(found) for found in times.values())
    print(f"hlo-opt --help takes {shown / nothing:.1f} times as long as a Python that does nothing")
    return 0


if __name__ == "__main__":
    sys.exit(main())
