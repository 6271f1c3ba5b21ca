"""Whether the sentence that `explain` says of an edge names what decides: python -m scripts.explain_truth FILE|DIR...
[--edges 200] [--seed 1] [--preset NAME]

Fuses each module, then draws refused edges: half of them among the dearest, as far as there are so many, the others of
all codes in turn. The cause of each sentence is taken away, and the edge must then be decided otherwise: it is fused,
its ends are no neighbours any more, or something refuses it that did not before. In this order, until one shows it:

  switched off    the codes of the sentence are switched off (`explain --what-if`); edges of a module whose sentences
                  have the same codes share a run
  module changed  a rule that keeps the program right stays on (FUS110): the module is changed so that there is nothing
                  for it to refuse (scripts/truth_changes.py), for each edge by itself; where one change is not
                  enough, two causes of the sentence are taken away at once
  pass left out   a kernel has further outputs because a pass gave it these: the passes without those that do
  run once more   a pass was done before it could fuse the edge (FUS504): run again on the result, it does
  impossible      one kernel of both would need itself, or the ends run in different computations: seen in the printed
                  module, by nothing that the rules use

The others are not shown; where a rule that was named all the time, but not in the sentence, still refuses the edge, the
sentence is untrue. Prints a table by the code that the sentence names first, and every edge that is not shown; exit
code 1 where fewer than 95 % of the sentences are shown.

`--results` appends what comes out of each run to a file as it comes; with `--resume` what the file has already is not
done again.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import random
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from hlo_opt import parse, verify
from hlo_opt.diag import HloOptError, Reason
from hlo_opt.fusion.decision import FusionDecision
from hlo_opt.ir import Module
from hlo_opt.passes import ExplainReport, preset_names
from hlo_opt.passes.pipeline import Pipeline
from hlo_opt.passes.run import report_on, run
from scripts.by_file import Row, add_options, checked, each, files_of
from scripts.reason_truth import NO_RULES, Fused, ended_in, verdict
from scripts.truth_changes import CYCLES, Begun, Change, changes, is_across, is_cycle

LEAST = 0.95
"""Share of sentences that are shown to be true below which the script fails."""

ALIKE = 5
"""Edges that one run serves, at most."""

JOINED = "FUS105"
"""What refuses a kernel that a pass gave further outputs."""

WAS_DONE = "FUS504"
"""What refuses where a pass ran before later ones made the edge possible."""

MOST_PAIRS = 12
"""Pairs of changes that are tried for an edge."""

ALWAYS_ON = "FUS110"
"""What refuses where a rule of the sentence keeps the program right or the kernel writable, so that it cannot be
switched off."""

TOLD = (
    "producer",
    "consumer",
    "computation",
    "producer_opcode",
    "consumer_opcode",
    "rule",
    "producer_kernel",
    "consumer_kernel",
    "relation",
)
"""What is told of an edge besides its reasons."""

VERDICTS = ("switched off", "module changed", "pass left out", "run once more", "impossible", "not shown", "untrue")
BY_SWITCHING = ("fused", "apart", "another reason")
"""Verdicts that show a sentence by switching its codes off."""


@dataclass(frozen=True)
class Told:
    """A refused edge of a module, and the codes of its sentence."""

    edge: FusionDecision
    codes: frozenset[str]
    is_dearest: bool


@dataclass(frozen=True)
class Drawn:
    """Edges of a file, by their places, that one run serves: the codes of their sentence."""

    path: str
    codes: frozenset[str]
    places: tuple[int, ...]
    dearest: int


def told_in(module: Module, preset: str) -> list[Told]:
    """The refused edges of a module, the dearest first."""
    return told_of(report_on(run(module, preset)))


def told_of(report: ExplainReport) -> list[Told]:
    """The same of a report."""
    dearest = report.dearest
    first = {id(d) for d in dearest}
    rest = [d for d in report.refused if id(d) not in first]
    return [Told(d, frozenset(r.code for r in d.cause), id(d) in first) for d in (*dearest, *rest)]


def told(path: str, preset: str) -> Row:
    """The same of a file: each edge with the codes of its sentence, and how many are among the dearest."""
    return told_rows(path, report_on(run(_read(path), preset)))


def told_rows(path: str, report: ExplainReport) -> Row:
    """The same of a report."""
    found = told_of(report)
    edges = [{"codes": sorted(t.codes), "edge": _as_row(t.edge)} for t in found]
    return {"path": path, "edges": edges, "dearest": sum(t.is_dearest for t in found)}


def _as_row(edge: FusionDecision) -> Row:
    row: Row = {name: getattr(edge, name) for name in TOLD}
    reasons = {"reasons": edge.reasons, "cause": edge.cause}
    return {**row, **{name: [[r.code, dict(r.numbers)] for r in told] for name, told in reasons.items()}}


def _from_row(row: Row) -> FusionDecision:
    """An edge whose sentence is that of the row: all reasons, and those of one pass, which are its cause."""
    told = {name: tuple(Reason.of(code, **numbers) for code, numbers in row[name]) for name in ("reasons", "cause")}
    return FusionDecision(**{name: row[name] for name in TOLD}, reasons=told["reasons"], by_pass=(told["cause"],))


def tried(path: str, preset: str, codes: list[str], rows: list[Row]) -> Row:
    """What shows the sentences of edges of a file that have the same codes, and in which words."""
    off, edges = frozenset(codes) - NO_RULES, [_from_row(row) for row in rows]
    after = Fused.of(_read(path), preset, "auto", sorted(off)) if off else None
    found: list[tuple[str, str]] = []
    begun: Begun | None = None
    for edge in edges:
        name, why = ("always on", "") if after is None else judge(edge, off, after)
        if name in BY_SWITCHING:
            found.append(("switched off", f"{name} {why}".strip()))
            continue
        begun = Begun.of(_read(path), preset) if begun is None else begun
        shown = changed(edge, off, begun) or run_once_more(edge, path, preset) or impossible(edge, path, preset)
        found.append(shown or ("untrue" if name == "still refused" else "not shown", why))
    names = [f"{edge.producer} -> {edge.consumer} ({edge.relation})" for edge in edges]
    first = [edge.cause[0].code for edge in edges]
    return {
        "path": path,
        "codes": sorted(codes),
        "found": [[n, c, *f] for n, c, f in zip(names, first, found, strict=True)],
    }


@dataclass(frozen=True)
class Removal:
    """A way to take the cause of a code away: a change of the module, or none where passes are left out."""

    code: str
    words: str
    change: Change | None


def removals(edge: FusionDecision) -> list[Removal]:
    """The ways to take the causes of an edge's sentence away."""
    ways = []
    for reason in edge.cause:
        ways += [Removal(reason.code, words, change) for words, change in changes(edge, reason.code)]
        if reason.code == JOINED:
            ways.append(Removal(JOINED, "passes left out", None))
    return ways


def changed(edge: FusionDecision, off: frozenset[str], begun: Begun) -> tuple[str, str] | None:
    """Whether an edge is decided otherwise once a cause of its sentence is taken away, or two of them at once, and its
    other rules are off: in which way, and what came of it."""
    ways = removals(edge)
    pairs = [pair for pair in itertools.combinations(ways, 2) if pair[0].words != pair[1].words]
    for removed in (*((way,) for way in ways), *pairs[:MOST_PAIRS]):
        module, is_whole = begun.module, all(way.change is not None for way in removed)
        try:
            for way in removed:
                if way.change is not None:
                    way.change(module)
            verify(module)
            after = _fused(module, begun.left if is_whole else begun.without_joining(), off - {w.code for w in removed})
        except (ValueError, KeyError, StopIteration, IndexError, HloOptError):
            continue
        became = decided_otherwise(edge, off, after)
        words = " and ".join(way.words for way in removed)
        if became and any(way.change is not None for way in removed):
            return "module changed", f"{words}: {became}"
        if became:
            return "pass left out", became
    return None


def decided_otherwise(edge: FusionDecision, off: frozenset[str], after: Fused) -> str:
    """What became of an edge from which the causes `off` are taken; empty where one of them still refuses it, or
    nothing is known of it."""
    left = [d for d in after.refusals(edge) if d.reasons]
    above, below = after.homes.get(edge.producer, set()), after.homes.get(edge.consumer, set())
    # of two kernels with both ends, one may read another of the other's values
    if above & below and (below <= above or all(d.relation == "sibling" for d in left)):
        return "fused"
    codes = {r.code for d in left for r in d.reasons}
    if left:
        return "" if codes & off or ALWAYS_ON in codes else " ".join(sorted(codes))
    if edge.relation != "operand" and above and below:
        return "apart"
    return ""


def _fused(module: Module, passes: Pipeline, off: frozenset[str]) -> Fused:
    gc.collect()
    outcome = run(module, passes=passes, simplify="never", what_if=sorted(off))
    return Fused(outcome, outcome.decide(), ended_in(outcome))


def run_once_more(edge: FusionDecision, path: str, preset: str) -> tuple[str, str] | None:
    """Whether the passes that were done before an edge was possible fuse it when they run again."""
    if all(r.code != WAS_DONE for r in edge.cause):
        return None
    return ("run once more", "fused") if Fused.of(_read(path), preset, "auto").fuses_now(edge) else None


def impossible(edge: FusionDecision, path: str, preset: str) -> tuple[str, str] | None:
    """The proof that there can be no one kernel, where the sentence says that: in the module as it is, or as it was
    before its kernels were joined with others."""
    codes = {r.code for r in edge.cause}
    if not codes & {*CYCLES, "FUS111", "FUS112"}:
        return None
    outcome = run(_read(path), preset)
    if codes & CYCLES and is_cycle(outcome.module, edge):
        return "impossible", "a third kernel needs one end and is needed by the other"
    if not codes & CYCLES and is_across(outcome.module, edge):
        return "impossible", "the ends run in different computations"
    return None


def _read(path: str) -> Module:
    return parse(Path(path).read_text(encoding="utf-8"), filename=path)


def draw(rows: Iterable[Row], count: int, seed: int) -> list[Drawn]:
    """Runs that serve so many edges: first those of the dearest, until they are half, then by code in turn."""
    chance = random.Random(seed)
    piles: dict[tuple[str, frozenset[str]], list[int]] = defaultdict(list)
    dearest: Counter[tuple[str, frozenset[str]]] = Counter()
    for row in rows:
        for place, edge in enumerate(row["edges"]):
            pile = row["path"], frozenset(edge["codes"])
            piles[pile].append(place)
            dearest[pile] += place < row["dearest"]
    keys = sorted(piles, key=lambda k: (k[0], sorted(k[1])))
    chance.shuffle(keys)
    left: dict[tuple[str, frozenset[str]], None] = dict.fromkeys(keys)
    drawn: list[Drawn] = []

    def take(key: tuple[str, frozenset[str]]) -> None:
        places, first = piles[key], dearest[key]
        room = min(ALIKE, count - sum(len(d.places) for d in drawn))
        others = chance.sample(places[first:], min(max(room - first, 0), len(places) - first))
        taken = tuple(sorted([*places[: min(first, room)], *others]))
        drawn.append(Drawn(key[0], key[1], taken, min(first, room)))
        del left[key]

    for key in keys:
        if dearest[key] and sum(d.dearest for d in drawn) < count // 2:
            take(key)
    while left and sum(len(d.places) for d in drawn) < count:
        for codes in sorted({key[1] for key in left}, key=sorted):
            if sum(len(d.places) for d in drawn) < count:
                take(next(key for key in left if key[1] == codes))
    return drawn


def judge(edge: FusionDecision, off: frozenset[str], after: Fused) -> tuple[str, str]:
    """What became of an edge without the codes of its sentence, and what refuses it now."""
    found, why = verdict(edge, off, after)
    codes = set(why.split())
    if found == "another reason" and ALWAYS_ON in codes:
        return "always on", why
    if found == "another reason" and not codes - {r.code for r in edge.reasons}:
        return "still refused", why
    return ("still refused" if found == "untrue" else found), why


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="+", type=Path, metavar="FILE|DIR")
    parser.add_argument("--edges", type=int, default=200, help="edges to try")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--largest", type=int, help="leave out files of more bytes")
    parser.add_argument("--preset", default="default", choices=preset_names())
    add_options(parser)
    options = checked(parser, arguments)
    paths = [p for p in files_of(options.paths) if not options.largest or p.stat().st_size <= options.largest]
    rows = sorted(each(told, [(str(p), options.preset) for p in paths], options), key=lambda row: str(row["path"]))
    drawn = draw(rows, options.edges, options.seed)
    drawn.sort(key=lambda d: (Path(d.path).stat().st_size, d.path, sorted(d.codes)))
    edges = {row["path"]: [e["edge"] for e in row["edges"]] for row in rows}
    tasks = [(d.path, options.preset, sorted(d.codes), [edges[d.path][n] for n in d.places]) for d in drawn]
    table: dict[str, Counter[str]] = defaultdict(Counter)
    missing: list[str] = []
    for row in each(tried, tasks, options):
        for edge, code, name, why in row["found"]:
            table[code][name] += 1
            if name in ("not shown", "untrue"):
                without = " ".join(row["codes"])
                missing.append(f"{name}: {Path(row['path']).name}: {edge} without {without}: {why}")
                print(f"  {missing[-1]}", file=sys.stderr, flush=True)
    print_table(table)
    count = sum(len(d.places) for d in drawn)
    share = 1 - len(missing) / count
    dearest = sum(d.dearest for d in drawn)
    print(
        f"{len(paths)} modules, {count} edges, {dearest} of them among the dearest: {share:.1%} of the sentences are "
        f"shown to be true"
    )
    for line in sorted(missing):
        print(f"  {line}")
    return 0 if share >= LEAST else 1


def print_table(table: dict[str, Counter[str]]) -> None:
    """Verdicts by the first codes of sentences."""
    rows = [("code", *VERDICTS), *((code, *(str(table[code][v]) for v in VERDICTS)) for code in sorted(table))]
    total: Counter[str] = sum(table.values(), Counter())
    rows.append(("together", *(str(total[v]) for v in VERDICTS)))
    for row in rows:
        print(f"{row[0]:<10}" + "".join(f"{cell:>16}" for cell in row[1:]))


if __name__ == "__main__":
    sys.exit(main())
