"""What stands behind many refusals at once, with the lines of the program: concatenates that several read, random numbers, tuples, the edges of loops.

These are the four things that kept a reinforcement-learning environment from being one kernel in "Operator Fusion in XLA: Analysis and Evaluation".
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from hlo_opt.analysis.properties import is_boundary_fusion
from hlo_opt.fusion.decision import FusionDecision
from hlo_opt.ir import Instruction
from hlo_opt.ir.walk import executed_computations
from hlo_opt.ops import OpKind, find
from hlo_opt.passes import ExplainReport
from hlo_opt.report.page import Page, Word, counted, most_first
from hlo_opt.report.stats import label
from hlo_opt.text.frames import source_location

PLACES_SHOWN = 3
"""Lines of the program that the text names for each finding."""

_RANDOM_TARGET = re.compile(r"threefry|philox|curand|rocrand|hiprand|prng|rng|random", re.IGNORECASE)


@dataclass
class Place:
    """Where a finding is: the line of the program (empty when the dump does not say), what is first found there, and its refused edges."""

    source: str
    what: str
    edges: int = 0


@dataclass
class Finding:
    """One cause: how many refused edges it has a part in, their codes, and the places in the program."""

    title: str
    hint: str
    edges: int = 0
    codes: Counter[str] = field(default_factory=Counter)
    _places: dict[str, Place] = field(default_factory=dict)

    def add(self, decision: FusionDecision, places: list[tuple[str, str]]) -> None:
        """Count an edge, at each of the places (source line, what is there) once."""
        self.edges += 1
        self.codes.update({r.code for r in decision.reasons})
        for key, source, what in {s or w: (s or w, s, w) for s, w in reversed(places)}.values():
            self._places.setdefault(key, Place(source, what)).edges += 1

    @property
    def places(self) -> list[Place]:
        """Those with most edges first."""
        return sorted(self._places.values(), key=lambda place: -place.edges)


@dataclass(frozen=True)
class _Part:
    """What a kernel of the result holds of interest. `readers`: instructions that read one of its results."""

    concatenates: tuple[Instruction, ...]
    random: tuple[Instruction, ...]
    readers: int


def findings(report: ExplainReport) -> list[Finding]:
    """The causes that have a part in refused edges, in a fixed order."""
    joined = Finding(
        "concatenate with several users",
        "each user would compute the whole concatenate again, choosing the piece for every element; separate arrays instead of one need no concatenate",
    )
    drawn = Finding(
        "random numbers",
        "a generator is a kernel or a library call of its own; numbers drawn before, or a generator written as arithmetic, leave nothing in between",
    )
    tuples = Finding(
        "tuples",
        "a producer with several results is no single value that a kernel could compute in place of reading it",
    )
    loops = Finding(
        "loop boundary",
        "each round launches its kernels again; unrolling puts several rounds within reach of one kernel",
    )
    parts, module = _parts(report), report.outcome.module
    for decision in report.refused:
        ends = [parts[k] for k in dict.fromkeys((decision.producer_kernel, decision.consumer_kernel)) if k in parts]
        above = parts.get(decision.producer_kernel)
        codes = {r.code for r in decision.reasons}
        if above is not None and above.concatenates and above.readers > 1:
            read = f"{above.readers} instructions read its kernel"
            joins = [(c, f"joins {counted(len(c.operands), 'array')}; {read}") for c in above.concatenates]
            joined.add(decision, [(source_location(module, c), f"`{c.name}` {what}") for c, what in joins])
        random = [i for part in ends for i in part.random]
        if random:
            drawn.add(decision, [(source_location(module, i), f"`{i.name}` ({label(i)})") for i in random])
        if codes & {"FUS105", "FUS134"}:
            tuples.add(
                decision, [(decision.producer_source, f"`{decision.producer_kernel}`, read by `{decision.consumer}`")]
            )
        if "FUS111" in codes:
            loops.add(decision, [(decision.producer_source, f"`{decision.producer}`, read by `{decision.consumer}`")])
    return [f for f in (joined, drawn, tuples, loops) if f.edges]


def _parts(report: ExplainReport) -> dict[str, _Part]:
    """What the kernels of refused edges hold, by name."""
    wanted = {k for d in report.refused for k in (d.producer_kernel, d.consumer_kernel)}
    found: dict[str, _Part] = {}
    for computation in executed_computations(report.outcome.module):
        for kernel in computation.instructions:
            if kernel.name in wanted:
                members = list(_members(kernel))
                concatenates = tuple(m for m in members if m.opcode == "concatenate")
                random = tuple(m for m in members if _is_random(m))
                found[kernel.name] = _Part(concatenates, random, _readers(kernel) if concatenates else 0)
    return found


def _members(kernel: Instruction) -> Iterator[Instruction]:
    if kernel.opcode == "fusion" and not is_boundary_fusion(kernel):
        yield from kernel.called_by("calls").instructions
    else:
        yield kernel


def _readers(kernel: Instruction) -> int:
    """How many instructions read the kernel's results, elements and bitcasts looked through."""
    readers: dict[Instruction, None] = {}
    todo = list(kernel.users)
    while todo:
        user = todo.pop()
        if user.opcode in ("get-tuple-element", "bitcast") and user.users:
            todo.extend(user.users)
        else:
            readers[user] = None
    return len(readers)


def _is_random(member: Instruction) -> bool:
    spec = find(member.opcode)
    is_drawn = spec is not None and spec.kind is OpKind.RANDOM
    return is_drawn or _RANDOM_TARGET.search(member.word("custom_call_target")) is not None


def as_page(found: list[Finding]) -> Page:
    """The findings for people; empty when there are none."""
    page = Page()
    if not found:
        return page
    page.add(Word("what stands in the way", "bold"))
    for finding in found:
        codes = ", ".join(most_first(finding.codes))
        page.add("  ", Word(finding.title, "yellow"), f": {counted(finding.edges, 'edge')} ({codes})")
        places = finding.places
        page.table(
            [[p.source or "(no source line)", counted(p.edges, "edge"), p.what] for p in places[:PLACES_SHOWN]],
            indent=4,
        )
        if len(places) > PLACES_SHOWN:
            page.add(f"    and {counted(len(places) - PLACES_SHOWN, 'more place')}")
        page.add(f"    hint: {finding.hint}")
    return page


def as_json(found: list[Finding]) -> list[dict[str, Any]]:
    """The findings for programs."""
    return [
        {
            "title": f.title,
            "edges": f.edges,
            "codes": dict(sorted(f.codes.items())),
            "places": [{"source": p.source, "what": p.what, "edges": p.edges} for p in f.places],
            "hint": f.hint,
        }
        for f in found
    ]
