"""The ladder of loops: python -m scripts.bench.loops [--only WORD] [--time] [--rounds N] [--seconds S] [--out FILE]

For each loop of `loop_programs.py`, `coupled_loops.py`, `further_loops.py`, `gradient_loops.py`, `state_loops.py`,
`narrow_loops.py`, `mixed_loops.py`, `method_loops.py`, `nested_loops.py`, `solver_loops.py`, `lattice_loops.py`,
`estimate_loops.py`, `scattered_loops.py` and `field_loops.py`: the rung that was written down and the rung that
preset `default` reaches, what brings its lanes together where it stays a loop, launches and estimated microseconds on
an H100 as XLA fuses it (preset xla-2026) and as we do. `--time` runs both on this machine's CPU, backend `host` and
XLA:CPU in turn: the median ratio of pairs, with its quartiles. Prints a table; exits with 1 where a rung is lower
than written down.
"""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from scripts.bench.host_vs_xla_cpu import measure, of_case  # sets up JAX for the CPU, so it comes first

import hlo_opt  # isort: skip
from hlo_opt.analysis.targets import DEFAULT_TARGET
from hlo_opt.analysis.targets import target as find
from hlo_opt.fusion.summary import module_summary
from hlo_opt.ir import Instruction, Module
from hlo_opt.ir.walk import executed_computations
from hlo_opt.ops.sets import looped
from hlo_opt.plans.lane_obstacle import obstacle
from hlo_opt.runtime.schedule import build_schedule
from scripts.bench import (  # noqa: F401  # the loops of the table
    coupled_loops,
    estimate_loops,
    field_loops,
    further_loops,
    gradient_loops,
    lattice_loops,
    loop_programs,
    method_loops,
    mixed_loops,
    narrow_loops,
    nested_loops,
    scattered_loops,
    solver_loops,
    state_loops,
)
from scripts.bench.loop_table import Loop, Rung, chosen

RUNGS: tuple[Rung, ...] = ("launches", "grid", "block", "lanes")
"""From the lowest to the highest."""


@dataclass(frozen=True)
class Reached:
    """What becomes of a loop. `coupled_by` is the operation that keeps one that stays a loop from being one kernel."""

    rung: Rung
    coupled_by: Instruction | None = None


def reached(module: Module, fused: Module) -> Reached:
    """The lowest rung of the loops of a program, before and after fusion."""
    left = [i for c in executed_computations(fused) for i in c.instructions if looped(i) is not None]
    if left:
        return Reached("launches", obstacle(fused, left[0]).instruction)
    kinds = {part for kernel in build_schedule(fused).kernels for part in kernel.kind.split("+")}
    return Reached(next((rung for rung in RUNGS if f"{rung[:5].rstrip('s')}-loop" in kinds), "lanes"))


def row(loop: Loop) -> tuple[list[str], bool]:
    """The cells of a loop's row, and whether its rung is as high as written down."""
    module = hlo_opt.parse(of_case(loop.case).text)
    target = find(DEFAULT_TARGET)
    fused, _ = hlo_opt.fuse(module)
    theirs, ours = (module_summary(m, target) for m in (hlo_opt.fuse(module, preset="xla-2026")[0], fused))
    found = reached(module, fused)
    by = "" if found.coupled_by is None else f"{found.coupled_by.name} ({found.coupled_by.opcode})"
    cells = [loop.case.name, loop.rung, found.rung, by, f"{theirs.launches:,}", f"{ours.launches:,}"]
    return [*cells, f"{theirs.est_us:,.1f}", f"{ours.est_us:,.1f}"], RUNGS.index(found.rung) >= RUNGS.index(loop.rung)


HEAD = ["loop", "expected", "reached", "coupled by", "launches, XLA", "ours", "us on the device, XLA", "ours"]
TIMED = ["us on the CPU, host", "XLA:CPU", "times quicker (quartiles)"]


def main() -> int:
    """The command."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="WORD", help="loops whose names hold a word")
    parser.add_argument("--time", action="store_true", help="run them on this machine, too")
    parser.add_argument("--rounds", type=int, default=30, help="pairs of runs")
    parser.add_argument("--seconds", type=float, default=10.0, help="stop a loop after so long")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the table there, too")
    given = parser.parse_args()
    said = " ".join(a for a in sys.argv[1:])
    lines = [
        f"# python -m scripts.bench.loops {said}".rstrip(),
        f"# the device is {find(DEFAULT_TARGET).name}, by price",
    ]
    if given.time:
        lines.append(f"# {os.cpu_count()} processors, load {os.getloadavg()[0]:.1f} before the start")
    head = HEAD + TIMED * given.time
    lines += ["", f"| {' | '.join(head)} |", f"|{' --- |' * len(head)}"]
    print("\n".join(lines), flush=True)
    lower = 0
    for loop in chosen(given.only):
        cells, is_reached = row(loop)
        lower += not is_reached
        if given.time:
            timed = measure(of_case(loop.case), given.rounds, given.seconds)
            cells += [f"{timed.host_us:,.0f}", f"{timed.xla_us:,.0f}"]
            cells += [f"{timed.ratio:.2f} ({timed.lower:.2f} to {timed.upper:.2f})"]
        lines.append(f"| {' | '.join(cells)} |")
        print(lines[-1], flush=True)
    lines += ["", f"{len(chosen(given.only))} loops, {lower} on a lower rung than written down"]
    print(lines[-1])
    if given.out is not None:
        given.out.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return 1 if lower else 0


if __name__ == "__main__":
    sys.exit(main())
