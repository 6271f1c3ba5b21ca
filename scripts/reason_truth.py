"""Whether refusals say the truth: python -m scripts.reason_truth FILE|DIR... [--preset NAME]... [--sample 300] [--seed
1]

Fuses each module as it is (--simplify auto for raw dumps) and looks at the result from outside: every kernel that reads
another one's result, also through bitcasts, tuples and their elements, must have a decision with a reason, and no
reason may lack a number. Then draws refused edges, taking all codes in turn, and fuses again with all codes of the edge
switched off (with --each also one code at a time): the edge must fuse or be refused for another reason. Where that is
FUS504 (a pass would fuse the edge now, but was done), the pass is run once more on the result and must fuse it. Prints
a table by code, and what refuses edges whose codes are all switched off; exit code 1 when an edge has no decision, a
reason lacks a number, or a reason is untrue.
"""

from __future__ import annotations

import argparse
import gc
import random
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from hlo_opt import parse
from hlo_opt.analysis.properties import is_boundary_fusion
from hlo_opt.diag import Reason
from hlo_opt.fusion.decision import FusionDecision
from hlo_opt.ir import Computation, Instruction, Module
from hlo_opt.ir.walk import executed_computations
from hlo_opt.ops.sets import launches, looped
from hlo_opt.passes import preset_names
from hlo_opt.passes.pipeline import Pipeline
from hlo_opt.passes.run import Outcome, run
from hlo_opt.passes.stages import SIMPLIFY_MODES

PASSED_ON = frozenset({"bitcast", "get-tuple-element", "tuple", "opt-barrier", "add-dependency"})
"""Opcodes that hand a value on without a kernel."""

NO_RULES = frozenset({"FUS110", "FUS502", "FUS503", "FUS504"})
"""Codes that tell of the pipeline or of a rule that stays: there is nothing to switch off."""

VERDICTS = ("fused", "another reason", "apart", "untrue")


def kernel_edges(module: Module) -> Iterator[tuple[str, str]]:
    """Which kernel reads which, by their names, within each computation that runs."""
    for computation in executed_computations(module):
        for consumer in computation.instructions:
            if not launches(consumer):
                continue
            todo, seen = list(consumer.operands), set(consumer.operands)
            while todo:
                value = todo.pop()
                if launches(value):
                    yield value.name, consumer.name
                elif value.opcode in PASSED_ON:
                    todo.extend(o for o in _passed_on(value) if o not in seen)
                    seen.update(value.operands)


def _passed_on(value: Instruction) -> Sequence[Instruction]:
    """The operands whose value an instruction hands on; of a tuple that is taken apart at once, the element asked
    for."""
    if value.opcode == "get-tuple-element" and value.operands[0].opcode == "tuple":
        return [value.operands[0].operands[value.attribute("index", int)]]
    return value.operands


def lacks_number(reason: Reason) -> bool:
    """Whether one of a reason's numbers or names is empty."""
    return any(value in ("", None) or value != value for value in reason.numbers.values()) or not reason.message.strip()


@dataclass
class Fused:
    """A module fused once: what was decided, and where the instructions of the input ended."""

    outcome: Outcome
    decisions: list[FusionDecision]
    homes: dict[str, set[str]]

    @classmethod
    def of(
        cls,
        module: Module,
        preset: str,
        simplify: str,
        what_if: Iterable[str] = (),
        edges: Sequence[FusionDecision] | None = None,
    ) -> Fused:
        """Decided about all edges, or only about what became of some."""
        gc.collect()  # of the run before: modules are full of cycles
        outcome = run(module, preset, simplify=simplify, what_if=what_if)
        homes = ended_in(outcome)
        if edges is None:
            return cls(outcome, outcome.decide(), homes)
        kernels = {home for edge in edges for name in (edge.producer, edge.consumer) for home in homes.get(name, ())}
        return cls(outcome, outcome.decide(kernels, siblings=any(e.relation == "sibling" for e in edges)), homes)

    def untold(self) -> list[tuple[str, str]]:
        """The edges between kernels, found by reading the printed result, that no decision tells of."""
        told = {(d.producer_kernel, d.consumer_kernel) for d in self.decisions if d.reasons and d.relation == "operand"}
        return [edge for edge in kernel_edges(parse(str(self.outcome.module))) if edge not in told]

    def fuses_now(self, edge: FusionDecision) -> bool:
        """Whether each pass that FUS504 names fuses an edge when it is run once more on the result."""
        named = {name for r in edge.reasons if r.code == "FUS504" for name in str(r.numbers["passes"]).split(", ")}
        kernels = {k.name: k for c in executed_computations(self.outcome.module) for k in c.instructions}
        ends = [kernels[name] for name in (edge.producer_kernel, edge.consumer_kernel)]
        for step in self.outcome.pipeline.passes():
            if step.name in named:
                off = self.outcome.context.options.disabled
                homes = ended_in(run(self.outcome.module, passes=Pipeline((step,)), simplify="never", what_if=off))
                above, below = (
                    {home for part in (end, *_members(end)) for home in homes.get(part.name, ())} for end in ends
                )
                if above.isdisjoint(below):
                    return False
        return bool(named)

    def refusals(self, edge: FusionDecision) -> list[FusionDecision]:
        """The refusals between what became of an edge's ends: those of its names, else those of the kernels that hold
        them now."""
        ends = {edge.producer, edge.consumer}
        named = [d for d in self.decisions if d.reasons and {d.producer, d.consumer} == ends]
        if named:
            return named
        above, below = self.homes.get(edge.producer, set()), self.homes.get(edge.consumer, set())
        if edge.relation == "operand":
            between = {(a, b) for a in above for b in below}
        else:
            between = {pair for a in above for b in below for pair in ((a, b), (b, a))}
        return [d for d in self.decisions if d.reasons and (d.producer_kernel, d.consumer_kernel) in between]


def ended_in(outcome: Outcome) -> dict[str, set[str]]:
    """The kernels of a result that hold each instruction of the input."""
    origins = outcome.context.origins
    homes: dict[str, set[str]] = defaultdict(set)
    for computation in executed_computations(outcome.module):
        for kernel in computation.instructions:
            if launches(kernel):
                homes[origins.get(kernel, kernel.name)].add(kernel.name)
                for member in _members(kernel):
                    homes[origins.get(member, member.name)].add(kernel.name)
    return dict(homes)


def _members(kernel: Instruction) -> Iterator[Instruction]:
    todo: list[Computation] = []
    if kernel.opcode == "fusion" and not is_boundary_fusion(kernel):
        todo.append(kernel.called_by("calls"))
    while todo:
        for member in todo.pop().instructions:
            yield member
            if member.opcode == "fusion" or looped(member) is not None:
                todo.extend(member.called())


def verdict(edge: FusionDecision, off: frozenset[str], after: Fused) -> tuple[str, str]:
    """What became of a refused edge with some codes switched off, and the codes that refuse it now."""
    left = after.refusals(edge)
    above, below = after.homes.get(edge.producer, set()), after.homes.get(edge.consumer, set())
    if edge.relation == "operand" and above & below and all(d.relation == "sibling" for d in left):
        return "fused", ""  # what stays for other readers is beside it
    if left:
        codes = {r.code for d in left for r in d.reasons}
        told = " ".join(sorted(codes))
        if codes & off:
            return "untrue", f"{told}, although switched off"
        if "FUS503" in codes and "FUS503" not in {r.code for r in edge.reasons}:
            return "untrue", f"{told}: nothing else is known"
        if codes == {"FUS504"} and not all(map(after.fuses_now, left)):
            return "untrue", f"{told}, but run again it does not fuse"
        return "another reason", told
    if above & below:
        return "fused", ""
    if edge.relation == "sibling" and above and below and not _still_beside(edge, after):
        return "apart", ""
    if not above or not below:
        return "fused", "an end is gone"
    return "untrue", "neither fused nor refused"


def _still_beside(edge: FusionDecision, after: Fused) -> bool:
    """Whether two siblings are neighbours yet: none has moved into another kernel, and none is told of with a new
    neighbour in between."""
    homes = {edge.producer: edge.producer_kernel, edge.consumer: edge.consumer_kernel}
    if not all(home in after.homes.get(name, set()) for name, home in homes.items()):
        return False
    told = [name for d in after.decisions if d.reasons and d.relation == "sibling" for name in (d.producer, d.consumer)]
    return not all(name in told for name in homes)


@dataclass
class Table:
    """How many sampled edges each code was told of, and what came of switching it off, alone or with the edge's
    others."""

    edges: Counter[str] = field(default_factory=Counter)
    others: Counter[str] = field(default_factory=Counter)
    """What refuses edges all of whose codes are switched off, by code."""
    verdicts: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    faults: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        rows = [["code", "edges", *VERDICTS]]
        for code in sorted(self.edges, key=lambda c: (c == "all of an edge's", c)):
            rows.append([code, str(self.edges[code]), *(str(self.verdicts[code][v]) for v in VERDICTS)])
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        lines = ["  ".join(f"{cell:>{w}}" for cell, w in zip(row, widths, strict=True)) for row in rows]
        if self.others:
            lines.append("then refused by " + ", ".join(f"{code} {n}" for code, n in sorted(self.others.items())))
        return "\n".join(lines)


@dataclass(frozen=True)
class Case:
    """A refused edge of a file under a preset."""

    path: Path
    preset: str
    edge: FusionDecision

    @property
    def codes(self) -> frozenset[str]:
        return frozenset(r.code for r in self.edge.reasons) - NO_RULES


def draw(cases: Sequence[Case], count: int, seed: int, together: int = 1) -> list[Case]:
    """So many cases without repeats: for each code in turn a few (`together`) of one module that are refused by the
    same codes, as one run serves them all; the module is one that fewest were taken from."""
    shuffled = list(cases)
    chance = random.Random(seed)
    chance.shuffle(shuffled)
    alike: dict[tuple[str, str, tuple[str, ...]], list[Case]] = defaultdict(list)
    for case in shuffled:
        alike[str(case.path), case.preset, tuple(sorted(case.codes))].append(case)
    bundles = [group[n : n + together] for group in alike.values() for n in range(0, len(group), together)]
    chance.shuffle(bundles)
    by_code: dict[str, dict[int, None]] = defaultdict(dict)
    for number, bundle in enumerate(bundles):
        for code in bundle[0].codes:
            by_code[code][number] = None
    drawn: list[Case] = []
    from_file: Counter[Path] = Counter()
    while len(drawn) < count and any(by_code.values()):
        for code in sorted(by_code):
            if by_code[code] and len(drawn) < count:
                number = min(by_code[code], key=lambda n: from_file[bundles[n][0].path])
                for pile in by_code.values():
                    pile.pop(number, None)
                from_file[bundles[number][0].path] += 1
                drawn += bundles[number][: count - len(drawn)]
    return drawn


def survey(
    paths: Sequence[Path], presets: Sequence[str], simplify: str, table: Table, progress: bool
) -> tuple[list[Case], int]:
    """Fuse everything once: the refused edges, and how many edges between kernels there are."""
    cases: list[Case] = []
    edges = 0
    for path in paths:
        module = parse(path.read_text(encoding="utf-8"))
        for preset in presets:
            found = Fused.of(module, preset, simplify)
            where = f"{path.name} {preset}"
            table.faults += [f"{where}: {a} -> {b} has no reason" for a, b in found.untold()]
            for decision in found.decisions:
                edges += not decision.fused
                if decision.reasons:
                    cases.append(Case(path, preset, decision))
                name = f"{where}: {decision.producer} -> {decision.consumer}"
                table.faults += [f"{name}: {r} lacks a number" for r in decision.reasons if lacks_number(r)]
                if {r.code for r in decision.reasons} == {"FUS504"}:
                    truth = "fused" if found.fuses_now(decision) else "untrue"
                    table.edges["FUS504"] += 1
                    table.verdicts["FUS504"][truth] += 1
                    if truth == "untrue":
                        table.faults.append(f"{name}: {decision.reasons[0]}, but run again it does not")
            if progress:
                print(f"{where}: {sum(map(bool, (d.reasons for d in found.decisions)))} refused", file=sys.stderr)
    return cases, edges


def switch_off(cases: Sequence[Case], simplify: str, table: Table, *, each: bool, progress: bool) -> None:
    """Fuse again without the codes of each case (`each`: also without one of them at a time): one run serves all cases
    of a module that ask for the same."""
    groups: dict[tuple[Path, str], list[Case]] = defaultdict(list)
    for case in cases:
        groups[case.path, case.preset].append(case)
    told = 0
    for (path, preset), group in sorted(groups.items(), key=lambda item: (str(item[0][0]), item[0][1])):
        module = parse(path.read_text(encoding="utf-8"))
        asked: dict[frozenset[str], list[Case]] = defaultdict(list)
        for case in group:
            for off in {case.codes, *(frozenset({code}) for code in case.codes if each)}:
                asked[off].append(case)
        for off in sorted(asked, key=sorted):
            after = Fused.of(module, preset, simplify, sorted(off), [case.edge for case in asked[off]])
            if any(verdict(case.edge, off, after)[0] == "untrue" for case in asked[off]):
                after = replace(after, decisions=after.outcome.decide())
            for case in asked[off]:
                _try(case, off, after, table)
            if progress:
                print(f"{path.name} {preset} without {' '.join(sorted(off))}: {len(asked[off])}", file=sys.stderr)
                told = _tell(table.faults, told)


def _tell(faults: Sequence[str], told: int) -> int:
    """Show what is untrue as soon as it is found. Returns how many faults are told now."""
    for fault in faults[told:]:
        print(f"  {fault}", file=sys.stderr)
    return len(faults)


def _try(case: Case, off: frozenset[str], after: Fused, table: Table) -> None:
    found, why = verdict(case.edge, off, after)
    if off == case.codes and found == "another reason":
        table.others.update(why.split())
    for code in [*sorted(off), *(["all of an edge's"] if off == case.codes else [])]:
        table.edges[code] += 1
        table.verdicts[code][found] += 1
    if found == "untrue":
        edge = f"{case.edge.producer} -> {case.edge.consumer} ({case.edge.relation})"
        table.faults.append(f"{case.path.name} {case.preset}: {edge} without {' '.join(sorted(off))}: {why}")


def files(given: Iterable[Path]) -> list[Path]:
    """The files given, and the modules in the folders given, the smallest first."""
    found = [p for path in given for p in (path.glob("*.hlo") if path.is_dir() else [path])]
    return sorted(found, key=lambda p: (p.stat().st_size, p.name))


def main() -> int:
    """The command."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="+", type=Path, metavar="FILE|DIR")
    parser.add_argument("--preset", action="append", choices=preset_names(), help="default: all presets")
    parser.add_argument("--sample", type=int, default=300, help="edges to try per preset")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--each", action="store_true", help="also switch one code of an edge off at a time")
    parser.add_argument("--together", type=int, default=1, help="draw up to so many alike: one run serves them")
    parser.add_argument("--largest", type=int, help="leave out files of more bytes")
    parser.add_argument("--simplify", default="never", choices=SIMPLIFY_MODES, help="raw dumps want auto")
    parser.add_argument("--progress", action="store_true")
    arguments = parser.parse_args()
    paths = [p for p in files(arguments.paths) if not arguments.largest or p.stat().st_size <= arguments.largest]
    bad = 0
    for preset in arguments.preset or preset_names():
        table = Table()
        cases, edges = survey(paths, [preset], arguments.simplify, table, arguments.progress)
        drawn = draw(cases, arguments.sample, arguments.seed, arguments.together)
        switch_off(drawn, arguments.simplify, table, each=arguments.each, progress=arguments.progress)
        print(f"{preset}: {len(paths)} modules, {edges} refused edges, {len(drawn)} tried")
        print(table)
        for fault in table.faults:
            print(f"  {fault}")
        bad += len(table.faults)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
