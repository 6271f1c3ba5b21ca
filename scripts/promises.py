"""Whether promises are kept: python -m scripts.promises [--most N] [--preset P] [--target T] FILE|DIR...

Fuses each module once and takes, of the edges that are left between two kernels and that can be joined, the N dearest
of all modules (200 where nothing is said). Each is joined in the finished module with nothing else decided again, as
`--force` with the names of its ends does it, and what the module then takes is held against what the price of the edge
promises. A promise is kept within 5 % of it, or a nanosecond, which is less than is printed. Prints a row for each
module and every promise that is not kept; then how many refusals under FUS4xx have a price. Exits 1 where a promise is
broken.

Edges that have no kernel in common are joined in one copy of the module: what a join changes is priced by itself, and
all of a copy's together must be what the copy takes less.

`--results` appends what comes out of each module to a file as it comes; with `--resume` what the file has already is
not done again.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import hlo_opt
from hlo_opt.fusion.context import PassContext, PassMemory
from hlo_opt.fusion.decision import FusionDecision
from hlo_opt.fusion.proof import prove_same_graph
from hlo_opt.fusion.state import FusionState
from hlo_opt.fusion.summary import module_summary
from hlo_opt.ir import Instruction, edit
from hlo_opt.passes import ExplainReport, run
from hlo_opt.passes.forcing import chosen, join_edge
from hlo_opt.passes.run import collector_paused, report_on
from scripts.by_file import Row, add_options, checked, each, files_of

KEPT = 0.05
"""The part of a promise that it may be wrong by."""
LEAST = 1e-3
"""Microseconds that are as good as nothing."""
SAME = 1e-6
"""The part of a module's time that sums of prices may be apart by, for the order of adding up."""


@dataclass(frozen=True)
class Promise:
    """A refused edge of a file; microseconds of all rounds that its price says joining saves, and that forcing it
    saved: None where there is no such kernel after all, or the names force another edge."""

    file: str
    producer: str
    consumer: str
    kernels: tuple[str, str]
    promised: float
    forced: float | None
    note: str = ""

    @property
    def kept(self) -> bool:
        return self.forced is not None and abs(self.forced - self.promised) <= max(KEPT * abs(self.promised), LEAST)

    @property
    def told(self) -> str:
        saved = f"forcing saved {self.forced:.3f} us" if self.forced is not None else self.note
        ends = f"{self.producer}:{self.consumer} ({' and '.join(self.kernels)})"
        return f"{ends} promised {self.promised:.3f} us, {saved}"


def kept(file: str, preset: str, target: str, most: int) -> Row:
    """What fusing a module leaves under FUS4xx, how many of these have a price, and the dearest, each tried."""
    module = hlo_opt.parse(Path(file).read_text(encoding="utf-8"), filename=file)
    report = report_on(run(module, preset, target=target))
    return kept_of(file, report, most)


def kept_of(file: str, report: ExplainReport, most: int) -> Row:
    """The same of a report."""
    with collector_paused():
        by_choice = [d for d in report.refused if any(r.code.startswith("FUS4") for r in d.reasons)]
        priced = sum(d.cost is not None for d in by_choice)
        promises = [asdict(p) for p in forced(file, report, most)]
    return {"file": file, "by_choice": len(by_choice), "priced": priced, "promises": promises}


def forced(file: str, report: ExplainReport, most: int) -> list[Promise]:
    """The dearest edges of a result, one for each two kernels, and what joining each gives."""
    often = report.rounds
    dearest: dict[frozenset[str], tuple[float, FusionDecision]] = {}
    for d in report.refused:
        if d.cost is not None:
            pair = frozenset({d.producer_kernel, d.consumer_kernel})
            dearest.setdefault(pair, (d.cost.us_saved * often.get(d.computation, 1), d))
    left = sorted(dearest.values(), key=lambda p: -p[0])[:most]
    found: list[Promise] = []
    while left:
        copy = _Copy(report)
        later: list[tuple[float, FusionDecision]] = []
        for promised, d in left:
            edge = d.edge
            kernels = (d.producer_kernel, d.consumer_kernel)
            meant = chosen(report.refused, edge)
            if meant is None or {meant.producer_kernel, meant.consumer_kernel} != set(kernels):
                found.append(Promise(file, *edge, kernels, promised, None, "its names force another edge"))
            elif copy.is_free(d):
                saved = copy.join(d)
                if saved is None and copy.touched:  # what was joined before may be in the way
                    later.append((promised, d))
                else:
                    found.append(Promise(file, *edge, kernels, promised, saved, "there is no one kernel"))
            else:
                later.append((promised, d))
        copy.hold_together()
        left = later
    return found


class _Copy:
    """A copy of a result in which edges are joined."""

    def __init__(self, report: ExplainReport) -> None:
        self.report = report
        self.outcome = report.outcome
        self.module = edit.clone_module(self.outcome.module)
        self.context = PassContext(self.outcome.context.options, memory=PassMemory(self.outcome.context.memory.known))
        self.touched: set[tuple[str, str]] = set()
        self.saved = 0.0

    def _ends(self, edge: FusionDecision) -> set[tuple[str, str]]:
        return {(edge.computation, kernel) for kernel in (edge.producer_kernel, edge.consumer_kernel)}

    def is_free(self, edge: FusionDecision) -> bool:
        return self.touched.isdisjoint(self._ends(edge))

    def join(self, edge: FusionDecision) -> float | None:
        """Microseconds that joining saves in all rounds; None where there is no one kernel."""
        before = self._prices(edge.computation)
        if join_edge(self.module, self.context, edge) is None:
            return None
        self.touched |= self._ends(edge)
        after = self._prices(edge.computation)
        gone = sum(us for kernel, us in before.items() if kernel not in after)
        come = sum(us for kernel, us in after.items() if kernel not in before)
        saved = (gone - come) * self.report.rounds.get(edge.computation, 1)
        self.saved += saved
        return saved

    def _prices(self, computation: str) -> dict[Instruction, float]:
        state = FusionState(self.module, self.outcome.target, self.context.memory.known)
        (found,) = (c for c in self.module.computations if c.name == computation)
        return {i: state.prices.of(i).us for i in found.instructions}

    def hold_together(self) -> None:
        """Raises AssertionError where the copy does not take less by what its joins saved, and ProofError where it is
        not the same program."""
        prove_same_graph(self.outcome.module, self.module)
        options = self.context.options
        now = module_summary(self.module, options.target, self.context.memory.known, options.trip_counts).est_us
        before = self.report.after.est_us
        assert abs(before - self.saved - now) <= SAME * before, (before, self.saved, now)


def main(arguments: Sequence[str] | None = None) -> int:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="+")
    parser.add_argument("--most", type=int, default=200)
    parser.add_argument("--preset", default="default")
    parser.add_argument("--target", default="h100_sxm")
    add_options(parser)
    options = checked(parser, arguments)
    tasks = [(str(f), options.preset, options.target, options.most) for f in files_of(options.paths)]
    rows = sorted(each(kept, tasks, options), key=lambda row: str(row["file"]))
    every = [Promise(**{**p, "kernels": tuple(p["kernels"])}) for row in rows for p in row["promises"]]
    dearest = sorted(every, key=lambda p: -p.promised)[: options.most]
    broken = [p for p in dearest if not p.kept]
    for file in dict.fromkeys(p.file for p in dearest):
        of_file = [p for p in dearest if p.file == file]
        print(f"{sum(p.kept for p in of_file):4} of {len(of_file):3} kept  {Path(file).name}")
        for p in of_file:
            if not p.kept:
                print(f"      {p.told}")
    print(f"{len(rows)} modules: {len(dearest) - len(broken)} of {len(dearest)} promises kept within {KEPT:.0%}")
    by_choice, priced = (sum(row[name] for row in rows) for name in ("by_choice", "priced"))
    print(f"{priced} of {by_choice} refusals under FUS4xx have a price")
    return int(bool(broken))


if __name__ == "__main__":
    sys.exit(main())
