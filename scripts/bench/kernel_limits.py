"""Our kernels next to the physical limit: python -m scripts.bench.kernel_limits [--target T] [--out FILE] [NAME...]

Each program of `kernel_programs`, `kernel_further`, `kernel_layouts`, `kernel_models`, `kernel_recent`,
`kernel_various` and `kernel_others` is fused, and every launch priced by its plan (`hlo_opt.plans.price`); no GPU is
needed. NAME picks the programs whose names hold one. Copies that the schedule makes beside launches, and libraries'
calls, are no kernels of ours and not counted.

plan       kinds of the launches, each with how often it comes
GB, least  bytes between memory and L2 of all launches; bytes that the program has to move
loads, stores, waves, limit   of the dearest launch: bits of the widest and the narrowest access, waves of blocks, and
the part of its price that is largest
regs       of a thread in that launch: as NVRTC compiles it (with spilled bytes, where there are any), and as the price
           guesses; without NVRTC only the guess
us         microseconds, launches included
share      of what a plain copy reaches, in percent: least bytes by time by the bandwidth of a copy
review     what a review by hand gave the kernels of commit a121473 on an H100, as reasoned from their machine code: no
           device measured it. Left out for other devices
off        points by which the share lies outside that
remarks    the review's number of what it found there; why the share stays below 85 %, where the device does not let it
           be more; what is no longer as it saw it
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import jax

import hlo_opt
from hlo_opt.analysis.targets import DEFAULT_TARGET, DeviceTarget
from hlo_opt.analysis.targets import target as find
from hlo_opt.codegen import Kernel
from hlo_opt.ir import Module
from hlo_opt.plans import Plan, plan, region_of
from hlo_opt.plans.price import Price, price
from hlo_opt.runtime.schedule import build_schedule, ops
from scripts.bench.kernel_further import further
from scripts.bench.kernel_layouts import layouts
from scripts.bench.kernel_models import models
from scripts.bench.kernel_others import others
from scripts.bench.kernel_programs import Program, least_bytes, programs
from scripts.bench.kernel_recent import recent
from scripts.bench.kernel_various import various

CLOSE = 15.0
"""Points by which a share may lie outside the review's and still hold."""
FAR = 25.0
"""Percent below which the kernels stay that the review found far from the limit."""
GOOD = 85.0
"""Percent of a copy that every program should reach, but for what the device does not let."""
FOUND_FAR = ("F1", "F2", "F4", "F9")
REVIEWED = "h100_sxm"
PARTS = ("memory", "cache", "instructions", "slow", "way", "launch")


@dataclass(frozen=True)
class Row:
    """A program with the prices of its launches; `bandwidth` is that of a copy, in bytes per second. `copied` are the
    bytes that copies of arguments move, before kernels update them in place: a caller who needs them no longer can
    donate them, and saves that."""

    program: Program
    least: float
    kinds: tuple[str, ...]
    prices: tuple[Price, ...]
    kernels: tuple[Kernel, ...]
    bandwidth: float
    copied: float = 0.0

    @property
    def us(self) -> float:
        return sum(p.us for p in self.prices)

    @property
    def us_with_copies(self) -> float:
        """Microseconds of a call that donates nothing."""
        return self.us + self.copied / self.bandwidth * 1e6

    @property
    def share(self) -> float:
        """Percent of a copy."""
        return 100 * self.least / (self.us * 1e-6) / self.bandwidth

    @property
    def off(self) -> float:
        """Points above (or below, negative) what the review gave; 0 where it gave none."""
        if self.program.share is None:
            return 0.0
        low, high = self.program.share
        return self.share - min(max(self.share, low), high)

    @property
    def holds(self) -> bool:
        return abs(self.off) <= CLOSE

    @property
    def reason(self) -> str:
        """Why it stays below what it should reach, where the device does not let it."""
        return "" if self.share >= GOOD else self.program.reason

    @property
    def is_far(self) -> bool:
        """Whether the review found it far from the limit."""
        share = self.program.share
        return self.program.finding in FOUND_FAR and share is not None and share[1] < FAR

    @property
    def dearest(self) -> int:
        """The number of the launch that takes longest."""
        return max(range(len(self.prices)), key=lambda n: self.prices[n].us)

    @property
    def plan(self) -> str:
        return " ".join(f"{n} {kind}" if n > 1 else kind for kind, n in Counter(self.kinds).items())

    @property
    def changed(self) -> str:
        """What is no longer as the review saw it."""
        seen, found = self.program, []
        if seen.share is None:
            return ""
        kinds = {part for kind in self.kinds for part in kind.split("+")}
        if kinds != set(seen.plan.split("+")):
            found.append(f"then {seen.plan}")
        if len(self.kinds) != seen.launches:
            found.append(f"then {seen.launches} launch{'es' * (seen.launches > 1)}")
        widest = self.prices[self.dearest].loads[0]
        if seen.loads not in (0, widest):
            found.append(f"then loads of {seen.loads} bits")
        if seen.since:
            found.append(f"then {seen.since}")
        return "; ".join(found)


def row_of(program: Program, target: DeviceTarget) -> Row:
    """Fuse a program for a device and price its launches."""
    module = program.made()
    return row_of_fused(program, module, hlo_opt.fuse(module, target=target.name)[0], target)


def row_of_fused(program: Program, module: Module, fused: Module, target: DeviceTarget) -> Row:
    """Price the launches of a program that is fused for a device."""
    schedule = build_schedule(fused, target.name)
    kinds, prices, kernels, copied = [], [], [], 0
    for _, op in schedule.ops():
        if isinstance(op, ops.Copy):
            copied += 2 * op.instruction.shape.stored_bytes
        if isinstance(op, ops.LaunchOp):
            made = plan(region_of(schedule.module, op.instruction), target)
            assert isinstance(made, Plan)
            kinds.append(made.kind)
            prices.append(price(made, target))
            kernels.append(op.kernel)
    bandwidth = target.copied_per_second
    least = least_bytes(program, module)
    return Row(program, least, tuple(kinds), tuple(prices), tuple(kernels), bandwidth, copied)


def registers(kernel: Kernel, target: DeviceTarget) -> str:
    """Registers of a thread, and bytes that it spills, as NVRTC says; nothing where it is not there."""
    try:
        from scripts.compile_kernels import compiled

        found = compiled(kernel, "", target.architecture)
    except (ImportError, RuntimeError):
        return ""
    spilled = found.stores + found.loads
    return "fails" if found.refusal else f"{found.registers}" + (f" +{spilled}" if spilled else "")


HEADER = (
    "program",
    "plan",
    "n",
    "GB",
    "least",
    "loads",
    "stores",
    "waves",
    "limit",
    "regs",
    "us",
    "share",
    "review",
    "off",
    "remarks",
)
TEXTS = (0, 1, 8, len(HEADER) - 1)
"""Columns of words."""


def cells(row: Row, target: DeviceTarget) -> list[str]:
    """The row as texts, one for each title."""
    dear = row.prices[row.dearest]
    limit = max(PARTS, key=lambda part: getattr(dear, part))
    low, high = row.program.share or (0.0, 0.0)
    reviewed = f"{low:g}" if low == high else f"{low:g}-{high:g}"
    counted = registers(row.kernels[row.dearest], target)
    return [
        row.program.name,
        row.plan,
        f"{len(row.prices)}",
        f"{sum(p.bytes for p in row.prices) / 1e9:.3f}",
        f"{row.least / 1e9:.3f}",
        "/".join(map(str, dict.fromkeys(dear.loads))),
        "/".join(map(str, dict.fromkeys(dear.stores))),
        f"{dear.waves:.2f}",
        limit,
        f"{counted or '-'} ({dear.registers})",
        f"{row.us:.1f}",
        f"{row.share:.2g}" if row.share < 1 else f"{row.share:.1f}",
        reviewed if row.program.share else "",
        "" if not row.off else f"{row.off:+.1f}",
        "; ".join(text for text in (row.program.finding, row.reason, row.changed) if text),
    ]


def table(rows: Sequence[Row], target: DeviceTarget) -> str:
    """The rows as aligned columns, and what holds; without the review's columns where the device is not the one that it
    was of."""
    lines = [list(HEADER), *(cells(row, target) for row in rows)]
    is_reviewed = target.name == REVIEWED
    shown = [k for k in range(len(HEADER)) if is_reviewed or k < HEADER.index("review")]
    widths = {k: max(len(line[k]) for line in lines) for k in shown}
    made = [
        "  ".join(line[k].ljust(widths[k]) if k in TEXTS else line[k].rjust(widths[k]) for k in shown).rstrip()
        for line in lines
    ]
    if is_reviewed:
        for rest, of_rest in (("as the review saw them", False), ("that have changed since", True)):
            found = [row for row in rows if row.program.share and bool(row.changed) == of_rest]
            held = sum(row.holds for row in found)
            made += ["", f"{held} of {len(found)} programs with kernels {rest} within {CLOSE:g} points of it"]
            far = [row for row in found if row.is_far]
            if far:
                held = sum(row.share < FAR for row in far)
                made.append(
                    f"{held} of {len(far)} that it found far from the limit ({', '.join(FOUND_FAR)}) below {FAR:g} %"
                )
    below = [row for row in rows if row.share < GOOD]
    others = [row.program.name for row in below if not row.reason]
    made += ["", f"{len(rows) - len(below)} of {len(rows)} programs at {GOOD:g} % of a copy or more, "
                 f"{len(below) - len(others)} below for the device's reasons"]  # fmt: skip
    if others:
        made.append(f"below without one: {', '.join(others)}")
    return "\n".join(made)


def main() -> int:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="part of a program's name; default: all")
    parser.add_argument("--target", default=DEFAULT_TARGET)
    parser.add_argument("--out", type=Path, metavar="FILE", help="also write the table to it")
    given = parser.parse_args()
    target = find(given.target)
    chosen = [
        p
        for p in [*programs(), *further(), *layouts(), *models(), *recent(), *various(), *others()]
        if not given.names or any(name in p.name for name in given.names)
    ]
    if not chosen:
        parser.error("no program has such a name")
    rows = [row_of(program, target) for program in chosen]
    command = " ".join(
        [
            "# python -m scripts.bench.kernel_limits",
            *(["--target", target.name] if target.name != DEFAULT_TARGET else []),
            *given.names,
        ]
    )
    text = (
        f"{command}\n# {target.title}; hlo-opt {hlo_opt.__version__}, JAX {jax.__version__}\n\n{table(rows, target)}\n"
    )
    print(text, end="")
    if given.out is not None:
        given.out.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
