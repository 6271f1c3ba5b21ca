"""Whether the sentence that `explain` says of an edge names what decides: python -m scripts.explain_truth FILE|DIR...
[--edges 200] [--seed 1] [--preset NAME]

Takes the dearest refused edges of all modules for half of them, then draws others, of all codes in turn. Each is fused
again with the codes of its sentence switched off (`explain --what-if`). The sentence is true when the edge is then
fused, when its ends are no neighbours any more, when a rule of the sentence cannot be switched off, which is then said
(FUS110), or when what refuses it was not known before; it is not when a rule that was named all the time, but not in
the sentence, still refuses it. Prints a table by code and every edge whose sentence is not true; exit code 1 where
fewer than 95 % are.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hlo_opt import parse
from hlo_opt.fusion.decision import FusionDecision
from hlo_opt.ir import Module
from hlo_opt.passes import preset_names
from hlo_opt.passes.run import report_on, run
from scripts.reason_truth import NO_RULES, Fused, files, verdict

LEAST = 0.95
"""Share of true sentences below which the script fails."""

ALIKE = 3
"""Edges that one run serves besides the dearest, at most."""

ALWAYS_ON = "FUS110"
"""What refuses where a rule of the sentence keeps the program right or the kernel writable, so that it cannot be
switched off."""

VERDICTS = ("fused", "apart", "another reason", "still refused", "always on")


@dataclass(frozen=True)
class Told:
    """A refused edge of a file, and the codes of its sentence."""

    path: Path
    edge: FusionDecision
    codes: frozenset[str]
    is_dearest: bool


def told_in(path: Path, module: Module, preset: str) -> list[Told]:
    """The refused edges of a module, the dearest first."""
    report = report_on(run(module, preset))
    dearest = report.dearest
    first = {id(d) for d in dearest}
    rest = [d for d in report.refused if id(d) not in first]
    return [Told(path, d, frozenset(r.code for r in d.cause), id(d) in first) for d in (*dearest, *rest)]


def draw(found: Sequence[Told], count: int, seed: int) -> list[Told]:
    """All the dearest, as far as there is room; then others, first those of a module whose sentence has the codes of
    one that is drawn, for one run serves both, then by code in turn."""
    chance = random.Random(seed)
    shuffled = list(found)
    chance.shuffle(shuffled)
    drawn = [t for t in shuffled if t.is_dearest][: count // 2]
    runs = {(t.path, t.codes) for t in drawn}
    alike: Counter[tuple[Path, frozenset[str]]] = Counter()
    piles: dict[frozenset[str], list[Told]] = defaultdict(list)
    for one in shuffled:
        if one.is_dearest:
            continue
        run_of = one.path, one.codes
        if run_of in runs and alike[run_of] < ALIKE and len(drawn) < count * 3 // 4:
            alike[run_of] += 1
            drawn.append(one)
        else:
            piles[one.codes].append(one)
    while len(drawn) < count and any(piles.values()):
        for pile in piles.values():
            if pile and len(drawn) < count:
                drawn.append(pile.pop())
    return drawn


def judge(one: Told, off: frozenset[str], after: Fused) -> tuple[str, str]:
    """What became of an edge without the codes of its sentence, and what refuses it now."""
    found, why = verdict(one.edge, off, after)
    codes = set(why.split())
    if found == "another reason" and ALWAYS_ON in codes:
        return "always on", why
    if found == "another reason" and not codes - {r.code for r in one.edge.reasons}:
        return "still refused", why
    return ("still refused" if found == "untrue" else found), why


def main() -> int:
    """The command."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="+", type=Path, metavar="FILE|DIR")
    parser.add_argument("--edges", type=int, default=200, help="edges to try")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--largest", type=int, help="leave out files of more bytes")
    parser.add_argument("--preset", default="default", choices=preset_names())
    arguments = parser.parse_args()
    paths = [p for p in files(arguments.paths) if not arguments.largest or p.stat().st_size <= arguments.largest]
    modules = {path: parse(path.read_text(encoding="utf-8")) for path in paths}
    found = [told for path, module in modules.items() for told in told_in(path, module, arguments.preset)]
    drawn = draw(found, arguments.edges, arguments.seed)
    groups: dict[tuple[Path, frozenset[str]], list[Told]] = defaultdict(list)
    for one in drawn:
        groups[one.path, one.codes - NO_RULES].append(one)
    table: dict[str, Counter[str]] = defaultdict(Counter)
    untrue: list[str] = []
    for (path, off), group in sorted(groups.items(), key=lambda item: (str(item[0][0]), sorted(item[0][1]))):
        after = Fused.of(modules[path], arguments.preset, "auto", sorted(off)) if off else None
        for one in group:
            name, why = ("always on", "") if after is None else judge(one, off, after)
            table[" ".join(sorted(one.codes))][name] += 1
            if name == "still refused":
                edge = f"{one.edge.producer} -> {one.edge.consumer} ({one.edge.relation})"
                untrue.append(f"{path.name}: {edge} without {' '.join(sorted(off))}: {why}")
                print(f"  {untrue[-1]}", file=sys.stderr, flush=True)
    print_table(table)
    share = 1 - len(untrue) / len(drawn)
    dearest = sum(t.is_dearest for t in drawn)
    print(
        f"{len(modules)} modules, {len(drawn)} edges, {dearest} of them among the dearest: {share:.1%} of the "
        f"sentences are true"
    )
    for line in untrue:
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
