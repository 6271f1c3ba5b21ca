"""Measured times next to what the price says today: python -m scripts.bench.price_error FILE.json [NAME...]

FILE is what `kernel_times --out` wrote on a GPU. Its programs are fused and priced again for the same target, which
needs no GPU, so that a constant of the price can be judged. A program whose kernels are no longer those that were timed
is marked `new`: its time is of other code, and it does not count in the last line. One that failed there is left out.

us         microseconds that were measured
then, now  what the price said when they were, and says today
off        how far today's price lies from the time, in percent of the time
over       microseconds above the time in which a copy moves as many bytes as the launches do: the start of a launch,
           its last blocks, and whatever does not overlap with memory
memory, cache, instructions, slow, way   the parts of today's price
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hlo_opt.analysis.targets import target as find
from scripts.bench.kernel_limits import PARTS, Row, row_of
from scripts.bench.kernel_programs import programs

FAR = 0.15
"""The part of a time by which a price that is far from it differs."""
SHOWN = [part for part in PARTS if part != "launch"]


@dataclass(frozen=True)
class Judged:
    """A program's measured microseconds (`us`), its price then and now, and whether its kernels are still the same."""

    name: str
    us: float
    then: float
    over: float
    row: Row
    is_same: bool

    @property
    def off(self) -> float:
        """How far today's price lies from the time, as a part of the time."""
        return self.row.us_with_copies / self.us - 1

    def line(self) -> str:
        """The columns, as the head names them."""
        parts = "".join(f"{sum(getattr(p, part) for p in self.row.prices):8.1f}" for part in SHOWN)
        new, now = "" if self.is_same else "  new", self.row.us_with_copies
        return (
            f"{self.name[:42]:42s} {self.us:9.1f} {self.then:9.1f} {now:9.1f} {100 * self.off:+6.0f} "
            f"{self.over:7.1f} {parts}{new}"
        )


def judged(measured: dict[str, Any], names: list[str]) -> list[Judged]:
    """The programs of a measurement that were timed, priced again."""
    rows = {row["case"]: row for row in measured["kernel_times"] if "us" in row}
    target, bandwidth = find(measured["target"]), measured["copy_gb_per_s"] * 1e3
    every = []
    for program in programs():
        row = rows.get(program.name)
        if row is None or (names and not any(name in program.name for name in names)):
            continue
        today = row_of(program, target)
        timed = {kernel["symbol"] for kernel in row["kernels"]}
        moved = sum(p["read"] + p["written"] for p in row["prices"]) + row.get("copied", 0.0)
        is_same = timed == {kernel.symbol for kernel in today.kernels}
        every.append(Judged(program.name, row["us"], row["price_us"], row["us"] - moved / bandwidth, today, is_same))
    return every


def summary(every: list[Judged]) -> str:
    """How far the prices of kernels that are still the same lie from the times."""
    offs = [abs(each.off) for each in every if each.is_same]
    if not offs:
        return "no kernel is still the same"
    far = sum(off > FAR for off in offs)
    return (
        f"{len(offs)} of {len(every)} programs with the same kernels: the price is {100 * statistics.median(offs):.1f} "
        f"% off in the median, {100 * statistics.fmean(offs):.1f} % on average; {far} by more than {100 * FAR:.0f} %"
    )


def main() -> int:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, metavar="FILE.json")
    parser.add_argument("names", nargs="*", metavar="NAME", help="part of a program's name; default: all")
    given = parser.parse_args()
    measured = json.loads(given.file.read_text(encoding="utf-8"))
    print(f"{measured['device']}: a copy reaches {measured['copy_gb_per_s']:.0f} GB/s; target {measured['target']}")
    heads = "".join(f"{part[:7]:>8s}" for part in SHOWN)
    print(f"{'program':42s} {'us':>9s} {'then':>9s} {'now':>9s} {'off':>6s} {'over':>7s} {heads}")
    every = judged(measured, given.names)
    for each in every:
        print(each.line())
    print(summary(every))
    return 0


if __name__ == "__main__":
    sys.exit(main())
