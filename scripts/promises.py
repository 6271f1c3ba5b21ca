"""Whether promises are kept: python -m scripts.promises [--most N] [--preset P] [--target T] FILE|DIR...

Fuses each module, takes the N dearest refused edges of all (200 where nothing is said) that have a price and would save
time, forces them one by one, and holds what the module then takes against what it took, less the saving that the edge's
price promised. A promise is kept within 5 % of the saving, or a nanosecond, which is less than is printed. Prints a row
for each module and every promise that is not kept; then how many refusals under FUS4xx have a price. Exits 1 where a
promise is broken.

Each module has a process of its own, so that memory is given back.
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import hlo_opt
from hlo_opt.fusion.context import Memory, PassContext
from hlo_opt.fusion.decision import FusionDecision
from hlo_opt.fusion.proof import prove_same_graph
from hlo_opt.fusion.summary import module_summary
from hlo_opt.ir import edit
from hlo_opt.passes import ExplainReport, run
from hlo_opt.passes.forcing import join_edge
from hlo_opt.passes.run import report_on

KEPT = 0.05
"""The part of a promise that it may be wrong by."""
LEAST = 1e-3
"""Microseconds that are as good as nothing."""


@dataclass(frozen=True)
class Promise:
    """A refused edge of a file, by its kernels; microseconds of all rounds that its price says joining saves, and that
    forcing it saved (None before that)."""

    file: str
    producer: str
    consumer: str
    promised: float
    forced: float | None = None

    @property
    def kept(self) -> bool:
        return self.forced is not None and abs(self.forced - self.promised) <= max(KEPT * abs(self.promised), LEAST)


@dataclass(frozen=True)
class Refusals:
    """Those of a module: how many under FUS4xx, how many of these with a price, and the promises of those that would
    save time, one for each two kernels."""

    by_choice: int
    priced: int
    promises: tuple[Promise, ...]


def refusals(file: str, preset: str, target: str) -> Refusals:
    """What fusing a module leaves, and promises."""
    report = report_on(run(_read(file), preset, target=target))
    by_choice = [d for d in report.refused if any(r.code.startswith("FUS4") for r in d.reasons)]
    promises = tuple(promise for promise, _ in _promises(file, report))
    return Refusals(len(by_choice), sum(d.cost is not None for d in by_choice), promises)


def _promises(file: str, report: ExplainReport) -> list[tuple[Promise, FusionDecision]]:
    found: dict[frozenset[str], tuple[Promise, FusionDecision]] = {}
    for d in report.refused:
        if d.cost is not None and d.cost.us_saved > LEAST:
            often = report.rounds.get(d.computation, 1)
            promise = Promise(file, d.producer_kernel, d.consumer_kernel, d.cost.us_saved * often)
            found.setdefault(frozenset({d.producer_kernel, d.consumer_kernel}), (promise, d))
    return list(found.values())


def forced(promises: Sequence[Promise], preset: str, target: str) -> list[Promise]:
    """Each of the promises of one file forced by itself, as `run(force=...)` does it, in a copy of the one result."""
    file = promises[0].file
    report = report_on(run(_read(file), preset, target=target))
    outcome, wanted, found = report.outcome, set(promises), []
    for promise, decision in _promises(file, report):
        if promise not in wanted:
            continue
        copy = edit.clone_module(outcome.module)
        context = PassContext(outcome.context.options, memory=Memory(outcome.context.memory.known))
        if join_edge(copy, context, decision) is not None:
            prove_same_graph(outcome.module, copy)
            now = module_summary(copy, outcome.target, outcome.context.memory.known).est_us
            promise = replace(promise, forced=report.after.est_us - now)
        found.append(promise)
        gc.collect()
    return found


def _read(file: str) -> hlo_opt.Module:
    return hlo_opt.parse(Path(file).read_text(encoding="utf-8"), filename=file)


def _told(saved: float | None) -> str:
    return "nothing: there is no one kernel" if saved is None else f"{saved:.3f} us"


def files_of(paths: Iterable[str]) -> list[str]:
    """Files as they are, and those of folders."""
    return [str(f) for p in map(Path, paths) for f in (sorted(p.glob("*.hlo")) if p.is_dir() else [p])]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="+")
    parser.add_argument("--most", type=int, default=200)
    parser.add_argument("--preset", default="default")
    parser.add_argument("--target", default="h100_sxm")
    options = parser.parse_args(arguments)
    files = files_of(options.paths)
    how = (options.preset, options.target)
    with multiprocessing.get_context("spawn").Pool(maxtasksperchild=1) as pool:
        found = pool.starmap(refusals, [(f, *how) for f in files], chunksize=1)
        dearest = sorted((p for r in found for p in r.promises), key=lambda p: -p.promised)[: options.most]
        tasks = [(tuple(p for p in dearest if p.file == f), *how) for f in files]
        kept = pool.starmap(forced, [t for t in tasks if t[0]], chunksize=1)
    broken = 0
    for promises in kept:
        wrong = [p for p in promises if not p.kept]
        broken += len(wrong)
        print(f"{len(promises) - len(wrong):4} of {len(promises):3} kept  {Path(promises[0].file).name}")
        for p in wrong:
            print(f"      {p.producer}:{p.consumer} promised {p.promised:.3f} us, forcing saved {_told(p.forced)}")
    by_choice, priced = sum(r.by_choice for r in found), sum(r.priced for r in found)
    print(f"{len(files)} modules: {len(dearest) - broken} of {len(dearest)} promises kept within {KEPT:.0%}")
    print(f"{priced} of {by_choice} refusals under FUS4xx have a price")
    return int(broken > 0)


if __name__ == "__main__":
    sys.exit(main())
