"""How fast texts are read, against XLA's C++ parser in the same run: python -m scripts.bench.parse_speed [FILE...]
[--runs N] [--memory]

Without FILE: the largest of our dumps. For each text: seconds and MB/s of both parsers (the fastest of N runs, taken in
turns), and the same with verification and printing. Then the time per instruction of made-up modules from 1,000 to
40,000 instructions, which should be flat, and with `--memory` the peak of the whole process when it reads a text of 4
MB and nothing else.
"""

from __future__ import annotations

import argparse
import re
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import hlo_opt

DUMPS = Path(__file__).resolve().parent.parent.parent / "testdata" / "dumps"
SIZES = (1_000, 2_000, 5_000, 10_000, 20_000, 40_000)
MEGABYTES = 4


def fastest(actions: list[Callable[[], object]], runs: int) -> list[float]:
    """The least wall time of each action over several rounds, in seconds."""
    best = [float("inf")] * len(actions)
    for _ in range(runs):
        for number, action in enumerate(actions):
            start = time.perf_counter()
            action()
            best[number] = min(best[number], time.perf_counter() - start)
    return best


def generated(instructions: int) -> str:
    """A module of so many instructions in the style of JAX's dumps, in computations of up to 500."""
    parts = ["HloModule generated\n"]
    done = number = 0
    while done < instructions:
        count = min(500, instructions - done)
        rows = [f"  %x.{number} = f32[64,128]{{1,0}} parameter(0)"]
        for n in range(1, count):
            before = f"%x.{number}" if n == 1 else f"%v.{number}.{n - 1}"
            opcode = ("negate", "tanh", "exponential")[n % 3]
            place = f'metadata={{op_name="jit(f)/layer_{number}/{opcode}_{n}" source_file="model.py" source_line={n}}}'
            rows.append(
                f"  {'ROOT ' if n == count - 1 else ''}%v.{number}.{n} = f32[64,128]{{1,0}} {opcode}({before}), {place}"
            )
        head = f"%part.{number} (x.{number}: f32[64,128]) -> f32[64,128] {{"
        done += count
        parts.append("\n".join([f"ENTRY {head}" if done >= instructions else head, *rows, "}\n"]))
        number += 1
    return "\n".join(parts)


def measure(path: Path, runs: int) -> None:
    """Print the figures of one dump."""
    import jaxlib._hlo as hlo

    text = path.read_text(encoding="utf-8")
    module = hlo_opt.parse(text)
    xla, ours, checked, printed = fastest(
        [
            lambda: hlo.hlo_module_from_text(text),
            lambda: hlo_opt.parse(text),
            lambda: hlo_opt.verify(hlo_opt.parse(text)),
            lambda: str(module),
        ],
        runs,
    )
    size = len(text) / 1e6
    print(f"{path.name[:60]}: {size:.2f} MB, {sum(len(c.instructions) for c in module.computations)} instructions")
    print(f"  XLA's parser    {xla:7.3f} s  {size / xla:6.1f} MB/s")
    print(f"  parse           {ours:7.3f} s  {size / ours:6.1f} MB/s   {ours / xla:.1f} times XLA's")
    print(f"  parse, verify   {checked:7.3f} s  {size / checked:6.1f} MB/s   {checked / xla:.1f} times XLA's")
    print(f"  print           {printed:7.3f} s  {size / printed:6.1f} MB/s")


def scaling(runs: int) -> None:
    """Print the time per instruction by the number of instructions."""
    texts = [generated(size) for size in SIZES]
    hlo_opt.parse(texts[0])
    times = fastest([lambda t=t: hlo_opt.parse(t) for t in texts], max(runs, 5))  # type: ignore[misc]
    each = [1e6 * seconds / size for seconds, size in zip(times, SIZES, strict=True)]
    print("instructions     " + "".join(f"{size:>9,}" for size in SIZES))
    print("us / instruction " + "".join(f"{value:9.2f}" for value in each))
    print(f"largest / smallest {max(each) / min(each):.2f}")


def peak() -> int:
    """Print the peak memory of a process that reads 4 MB: run by `--memory` as a process of its own."""
    text = generated(1_000)
    text = generated(1_000 * MEGABYTES * 1_000_000 // len(text))
    before = resident()
    module = hlo_opt.parse(text)
    hlo_opt.verify(module)
    print(f"{len(text) / 1e6:.2f} MB read and verified: peak {resident():.0f} MB, {before:.0f} MB of it before")
    return 0


def resident() -> float:
    """The most memory that this process ever had, in MB."""
    status = Path("/proc/self/status")
    if status.exists():  # getrusage counts what the parent process had, too
        found = re.search(r"VmHWM:\s*(\d+) kB", status.read_text())
        if found is not None:
            return int(found[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> int:
    """The command."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--memory", action="store_true", help="also the peak memory of a process that reads 4 MB")
    parser.add_argument("--peak", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.peak:
        return peak()
    files: list[Path] = arguments.files or [max(DUMPS.glob("*.hlo"), key=lambda p: p.stat().st_size)]
    for path in files:
        measure(path, arguments.runs)
    scaling(arguments.runs)
    if arguments.memory:
        subprocess.run([sys.executable, "-m", "scripts.bench.parse_speed", "--peak"], check=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
