"""Whether the sentence that `explain` says of an edge names what decides: python -m scripts.explain_truth FILE|DIR...
[--edges 200] [--seed 1] [--preset NAME]

Fuses each module, then draws refused edges: half of them among the dearest, as far as there are so many, the others of
all codes in turn. Each is fused again with the codes of its sentence switched off (`explain --what-if`); edges of a
module whose sentences have the same codes share a run. The sentence is true when the edge is then fused, when its ends
are no neighbours any more, when a rule of the sentence cannot be switched off, which is then said (FUS110), or when
what refuses it was not known before; it is not when a rule that was named all the time, but not in the sentence, still
refuses it. Prints a table by code and every edge whose sentence is not true; exit code 1 where fewer than 95 % are.

`--results` appends what comes out of each run to a file as it comes; with `--resume` what the file has already is not
done again.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from hlo_opt import parse
from hlo_opt.diag import Reason
from hlo_opt.fusion.decision import FusionDecision
from hlo_opt.ir import Module
from hlo_opt.passes import ExplainReport, preset_names
from hlo_opt.passes.run import report_on, run
from scripts.by_file import Row, add_options, checked, each, files_of
from scripts.reason_truth import NO_RULES, Fused, verdict

LEAST = 0.95
"""Share of true sentences below which the script fails."""

ALIKE = 5
"""Edges that one run serves, at most."""

ALWAYS_ON = "FUS110"
"""What refuses where a rule of the sentence keeps the program right or the kernel writable, so that it cannot be
switched off."""

TOLD = ("producer", "consumer", "computation", "producer_opcode", "consumer_opcode", "rule", "producer_kernel", "consumer_kernel", "relation")  # fmt: skip
"""What is told of an edge besides its reasons."""

VERDICTS = ("fused", "apart", "another reason", "still refused", "always on")


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
    return {**row, "reasons": [[r.code, dict(r.numbers)] for r in edge.reasons]}


def _from_row(row: Row) -> FusionDecision:
    return FusionDecision(**{**row, "reasons": tuple(Reason.of(code, **numbers) for code, numbers in row["reasons"])})


def tried(path: str, preset: str, codes: list[str], rows: list[Row]) -> Row:
    """What became of edges of a file without the codes of their sentence, and what refuses them now."""
    off, edges = frozenset(codes) - NO_RULES, [_from_row(row) for row in rows]
    after = Fused.of(_read(path), preset, "auto", sorted(off)) if off else None
    found = [("always on", "") if after is None else judge(edge, off, after) for edge in edges]
    names = [f"{edge.producer} -> {edge.consumer} ({edge.relation})" for edge in edges]
    return {"path": path, "codes": sorted(codes), "found": [[n, *f] for n, f in zip(names, found, strict=True)]}


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
    untrue: list[str] = []
    for row in each(tried, tasks, options):
        codes = " ".join(row["codes"])
        for edge, name, why in row["found"]:
            table[codes][name] += 1
            if name == "still refused":
                untrue.append(f"{Path(row['path']).name}: {edge} without {codes}: {why}")
                print(f"  {untrue[-1]}", file=sys.stderr, flush=True)
    print_table(table)
    count = sum(len(d.places) for d in drawn)
    share = 1 - len(untrue) / count
    dearest = sum(d.dearest for d in drawn)
    print(
        f"{len(paths)} modules, {count} edges, {dearest} of them among the dearest: {share:.1%} of the "
        f"sentences are true"
    )
    for line in sorted(untrue):
        print(f"  {line}")
    return 0 if share >= LEAST else 1


def print_table(table: dict[str, Counter[str]]) -> None:
    """Verdicts by the codes of sentences."""
    rows = [("codes", *VERDICTS), *((codes, *(str(table[codes][v]) for v in VERDICTS)) for codes in sorted(table))]
    total: Counter[str] = sum(table.values(), Counter())
    rows.append(("together", *(str(total[v]) for v in VERDICTS)))
    for row in rows:
        print(f"{row[0]:<32}" + "".join(f"{cell:>16}" for cell in row[1:]))


if __name__ == "__main__":
    sys.exit(main())
