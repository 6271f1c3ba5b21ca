"""What was decided about every edge, for people and for programs; and what stands behind many refusals at once, with
the lines of the program.

The JSON form is versioned: `{"schema": 1, ...}`. Fields are only added within a version. Concatenates that several
read, random numbers, tuples and the edges of loops are the four things that kept a reinforcement-learning environment
from being one kernel in "Operator Fusion in XLA: Analysis and Evaluation"."""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from hlo_opt.analysis.properties import inside
from hlo_opt.diag import CheckError, UsageError, did_you_mean, no_reason, reason_spec
from hlo_opt.diag.reason import ReasonSpec, declared
from hlo_opt.fusion.decision import CostEstimate, FusionDecision
from hlo_opt.ir import Instruction
from hlo_opt.ir.walk import executed_computations
from hlo_opt.ops import OpKind, find
from hlo_opt.ops.sets import joins_arrays, launches
from hlo_opt.passes import ExplainReport
from hlo_opt.report import summary
from hlo_opt.report.gone import where_it_went
from hlo_opt.report.holding import members_of_kernels
from hlo_opt.report.page import LEAST, Page, Word, count, counted, microseconds, most_first, size
from hlo_opt.report.sentences import SOURCE_HINT, EdgePrices, advice, sentence
from hlo_opt.report.summary import decided_again_json, label, prices_json, summary_json, summary_page
from hlo_opt.text.frames import has_source_lines, source_location

PLACES_SHOWN = 3
"""Lines of the program that the text names for each finding."""

_RANDOM_TARGET = re.compile(r"threefry|philox|curand|rocrand|hiprand|prng|rng|random", re.IGNORECASE)


@dataclass
class Location:
    """Where a finding is: the line of the program (empty when the dump does not say), what is first found there, and
    its refused edges."""

    source: str
    what: str
    edges: int = 0


@dataclass
class SharedCause:
    """One cause: how many refused edges it has a part in, their codes, and the places in the program."""

    title: str
    hint: str
    edges: int = 0
    codes: Counter[str] = field(default_factory=Counter)
    _places: dict[str, Location] = field(default_factory=dict)

    def add(self, decision: FusionDecision, places: list[tuple[str, str]]) -> None:
        """Count an edge, at each of the places (source line, what is there) once."""
        self.edges += 1
        self.codes.update({r.code for r in decision.reasons})
        for key, source, what in {s or w: (s or w, s, w) for s, w in reversed(places)}.values():
            self._places.setdefault(key, Location(source, what)).edges += 1

    @property
    def places(self) -> list[Location]:
        """Those with most edges first."""
        return sorted(self._places.values(), key=lambda place: -place.edges)


@dataclass(frozen=True)
class _Part:
    """What a kernel of the result holds of interest. `readers`: instructions that read one of its results."""

    concatenates: tuple[Instruction, ...]
    random: tuple[Instruction, ...]
    readers: int


def findings(report: ExplainReport) -> list[SharedCause]:
    """The causes that have a part in refused edges, in a fixed order."""
    joined = SharedCause(
        "concatenate with several users",
        "each user would compute the whole concatenate again, choosing the piece for every element; separate arrays "
        "instead of one need no concatenate",
    )
    drawn = SharedCause(
        "random numbers",
        "a generator is a kernel or a library call of its own; numbers drawn before, or a generator written as "
        "arithmetic, leave nothing in between",
    )
    tuples = SharedCause(
        "tuples",
        "a producer with several results is no single value that a kernel could compute in place of reading it",
    )
    loops = SharedCause(
        "loop boundary",
        "each iteration launches its kernels again; unrolling puts several iterations within reach of one kernel",
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
    parts: dict[str, _Part] = {}
    for computation in executed_computations(report.outcome.module):
        for kernel in computation.instructions:
            if kernel.name in wanted:
                members = list(_members(kernel))
                concatenates = tuple(m for m in members if joins_arrays(m))
                random = tuple(m for m in members if _is_random(m))
                parts[kernel.name] = _Part(concatenates, random, _readers(kernel) if concatenates else 0)
    return parts


def _members(kernel: Instruction) -> Iterator[Instruction]:
    body = inside(kernel)
    yield from (kernel,) if body is None else body.instructions


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


def findings_page(rows: list[SharedCause]) -> Page:
    """The findings for people; empty when there are none."""
    page = Page()
    if not rows:
        return page
    page.add(Word("what stands in the way", "bold"))
    for finding in rows:
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


def findings_json(rows: list[SharedCause]) -> list[dict[str, Any]]:
    """The findings for programs."""
    return [
        {
            "title": f.title,
            "edges": f.edges,
            "codes": dict(sorted(f.codes.items())),
            "places": [{"source": p.source, "what": p.what, "edges": p.edges} for p in f.places],
            "hint": f.hint,
        }
        for f in rows
    ]


SCHEMA = 1
WIDTH = 100
"""Columns that the page of a code is wrapped at."""

LONGEST_EXAMPLE = 40
"""Lines of an example that the page of a code shows whole."""

MOST_READERS = 8
"""Kernels that are named as readers of a parameter."""
EDGES_SHOWN = 10
"""Refused edges that the text shows when none is asked for."""

ENDS_SHOWN = 8
"""Lines at either end of a longer one that it shows."""


ASKED_FOR = "name an instruction or a kernel, PRODUCER:CONSUMER, a code such as FUS105, FILE.py or FILE.py:LINE"
EDGE_ASKED_FOR = "name two instructions or kernels, PRODUCER:CONSUMER, as explain prints them"


def select(report: ExplainReport, names: Sequence[str], hint: str = ASKED_FOR) -> list[FusionDecision]:
    """The refused edges; with names, every edge, fused ones too, that one of the instructions or kernels is an end of.

    A name PRODUCER:CONSUMER asks for the edges between these two, a code such as FUS105 for those that it refuses,
    FILE.py or FILE.py:LINE, with any part of the path before it, for those that begin or end in a file of the program
    or on a line of it. Raises UsageError, naming what is near or with this hint, for an instruction or an edge that
    does not exist.
    """
    if not names:
        return report.refused
    known = {i.name for c in report.outcome.original.computations for i in c.instructions}
    known.update(name for d in report.decisions for name in names_of(d))
    wanted: set[str] = set()
    shown: set[int] = set()
    for name in names:
        if name not in known and name.upper() in declared():
            code = name.upper()
            shown.update(n for n, d in enumerate(report.decisions) if any(r.code == code for r in d.reasons))
            continue
        if _LINE.search(name) and name.partition(":")[0] not in known:
            shown.update(_on_line(report, name))
            continue
        producer, colon, consumer = name.partition(":")
        ends = [end.lstrip("%") for end in ((producer, consumer) if colon else (name,))]
        for end in ends:
            if end not in known and _CODE.fullmatch(name):
                raise no_reason(name)
            if end not in known:
                near = did_you_mean(end, known | _files(report))
                source = report.outcome.original.source
                filename = None if source is None else source.filename
                raise UsageError(f"there is no instruction {end!r}", hint=near or hint, filename=filename)
        if colon:
            shown.update(_between(report, *ends))
        else:
            wanted.update(ends)
    return [d for n, d in enumerate(report.decisions) if n in shown or (wanted and not wanted.isdisjoint(names_of(d)))]


def without_edges(report: ExplainReport, names: Sequence[str]) -> Page:
    """What to say of names that exist, but have no edge: the kernel that holds the instruction, if one does."""
    origins, kernels = report.outcome.context.origins, dict[str, str]()
    for kernel, member in members_of_kernels(report.outcome.module):
        kernels.setdefault(origins.get(member, member.name), kernel.name)
    page = Page()
    bare = [name.lstrip("%") for name in names]
    gone = where_it_went(report, [n for n in bare if _is_gone(report, n, kernels)])
    for name in bare:
        if name in kernels:
            page.add(f"`{name}` is in kernel `{kernels[name]}`, and no edge of it is between kernels")
        elif name.upper() in declared():
            page.add(f"no edge is refused under {name.upper()}")
        elif (parameter := _parameter(report, name)) is not None:
            page.add(_read_by(parameter))
        else:
            page.add(gone[name])
    return page


def _is_gone(report: ExplainReport, name: str, kernels: Collection[str]) -> bool:
    """Whether a name is that of an instruction that no kernel holds."""
    return name not in kernels and name.upper() not in declared() and _parameter(report, name) is None


def _parameter(report: ExplainReport, name: str) -> Instruction | None:
    """The parameter of the result's entry with a name; None where there is none."""
    return next((p for p in report.outcome.module.entry.parameters if p.name == name), None)


def _read_by(parameter: Instruction) -> str:
    """A sentence with the kernels and calls that read a parameter, elements and views of it looked through."""
    readers: dict[Instruction, None] = {}
    todo, seen = [*parameter.users], set(parameter.users)
    while todo:
        user = todo.pop(0)
        if launches(user):
            readers[user] = None
            continue
        fresh = [u for u in user.users if u not in seen]
        seen.update(fresh)
        todo += fresh
    names = [f"`{reader.name}`" for reader in readers]
    more = f" and {count(len(names) - MOST_READERS)} more" if len(names) > MOST_READERS else ""
    read = f"read by {counted(len(names), 'kernel')} of the result: {', '.join(names[:MOST_READERS])}{more}"
    shown = f"`{parameter.name}` is parameter {parameter.parameter_number}, {size(parameter.shape.byte_size)}"
    return f"{shown}; {read if names else 'no kernel of the result reads it'}"


_LINE = re.compile(r"\.py(?::[0-9]+)?$")
_CODE = re.compile(r"FUS[0-9]+")


def _files(report: ExplainReport) -> set[str]:
    """The names of the program's files that edges begin or end in."""
    sources = {s for d in report.decisions for s in (d.producer_source, d.consumer_source) if s}
    return {_slashed(s).rpartition("/")[2].rpartition(":")[0] for s in sources}


def _slashed(path: str) -> str:
    return path.replace("\\", "/")


def _on_line(report: ExplainReport, name: str) -> list[int]:
    """The places, among the decisions, of the edges with an end in a file of the program, or on a line of it. Raises
    UsageError when there is none."""
    file, _, line = (name, "", "") if name.endswith(".py") else name.rpartition(":")
    asked = f"/{_slashed(file).removeprefix('/')}"
    places, lines = [], set[str]()
    for n, d in enumerate(report.decisions):
        for source in filter(None, (d.producer_source, d.consumer_source)):
            path, _, number = _slashed(source).rpartition(":")
            if f"/{path}".endswith(asked):
                lines.add(number)
                places += [n] if line in ("", number) else []
    if not places:
        what = f"on line {name}" if line else f"in {name}"
        known = {f"{file}:{number}" for number in lines} or _files(report)
        if lines and line.isdecimal() and all(map(str.isdecimal, lines)):  # not the line whose number is spelt alike
            known = {f"{file}:{min(lines, key=lambda n: (abs(int(n) - int(line)), int(n)))}"}
        near = did_you_mean(name if lines else _slashed(file).rpartition("/")[2], sorted(known))
        raise UsageError(f"no edge begins or ends {what}", hint=near or "--by line lists the lines that have some")
    return places


def _between(report: ExplainReport, producer: str, consumer: str) -> list[int]:
    """The places, among the decisions, of the edges from one instruction or kernel to another. Raises UsageError when
    there is none."""
    places = [
        n
        for n, d in enumerate(report.decisions)
        if producer in (d.producer, d.producer_kernel) and consumer in (d.consumer, d.consumer_kernel)
    ]
    if places:
        return places
    readers = [d.consumer for d in report.decisions if producer in (d.producer, d.producer_kernel)]
    raise UsageError(
        f"no kernel `{consumer}` reads a kernel `{producer}`",
        hint=f"`{producer}` is read by {', '.join(dict.fromkeys(readers[:8]))}" if readers else None,
    )


def names_of(decision: FusionDecision) -> tuple[str, ...]:
    """The instructions that an edge ends at, and the kernels that they ended in."""
    return (decision.producer, decision.consumer, decision.producer_kernel, decision.consumer_kernel)


def as_page(
    report: ExplainReport,
    shown: Sequence[FusionDecision],
    compared: summary.Changes | None = None,
    *,
    most: int | None = None,
    prices: EdgePrices | None = None,
) -> Page:
    """The long text form: the summary, what the changed rules change, the refused edges that cost most, what stands
    behind many of them, then the edges asked for, `most` of them where that is given."""
    dearest = _dearest(report)
    page = summary_page(report)
    if prices is not None:
        page.extend(prices.page())
    if not has_source_lines(report.outcome.original):
        page.add("  no instruction has a Python line: ", Word(SOURCE_HINT, "bold"))
    if compared is not None:
        page.add()
        page.extend(summary.changes_page(compared))
    if dearest:
        page.add()
        page.add(Word("refused edges whose fusion alone would save most", "bold"))
        rows: list[list[str | Word]] = []
        repeated = any(report.rounds.get(d.computation, 1) > 1 for d, _ in dearest)
        for decision, cost in dearest:
            codes = ", ".join(dict.fromkeys(f"{r.code} {r.slug}" for r in decision.reasons))
            rounds = report.rounds.get(decision.computation, 1)
            often = [f"{count(rounds)} x {microseconds(cost.us_saved)}" if rounds > 1 else ""] if repeated else []
            saved = microseconds(cost.us_saved * rounds)
            rows.append([saved, *often, decision.ends, Word(codes, "yellow"), decision.consumer_source])
        page.table(rows, right=frozenset({0, 1} if repeated else {0}), indent=2)
    causes = findings_page(findings(report))
    if causes.lines:
        page.add()
        page.extend(causes)
    if most is not None and len(shown) > most:
        first = {id(d) for d in report.dearest}
        shown = [*report.dearest, *(d for d in shown if id(d) not in first)]
    for decision in shown[:most]:
        page.add()
        page.extend(edge_page(decision, report.rounds.get(decision.computation, 1)))
    if most is not None and len(shown) > most:
        page.add()
        page.add(
            f"{counted(len(shown) - most, 'more edge')}: name instructions, PRODUCER:CONSUMER or codes to see theirs, "
            f"or say --all"
        )
    return page


def _dearest(report: ExplainReport) -> list[tuple[FusionDecision, CostEstimate]]:
    """The dearest refused edges whose fusion alone would save time."""
    rounds = report.rounds
    return [
        (d, d.cost)
        for d in report.dearest
        if d.cost is not None and d.cost.us_saved * rounds.get(d.computation, 1) >= LEAST
    ]


def edge_page(decision: FusionDecision, rounds: int = 1) -> Page:
    """One edge: its ends, their source lines, every reason with its hint, and what fusing would cost and save in each
    of the rounds of the loops around it."""
    page = Page()
    is_pair = decision.relation == "sibling"
    titles = ("first", "second") if is_pair else ("producer", "consumer")
    opcodes = f"{decision.producer_opcode} {'and' if is_pair else '->'} {decision.consumer_opcode}"
    verdict = Word("fused", "green") if decision.fused else Word("refused", "yellow")
    page.add(
        Word(decision.ends, "bold"),
        f"  ({opcodes}, in {decision.computation})  ",
        verdict,
        f" by {decision.rule}",
    )
    ends = (
        (decision.producer_source, decision.producer, decision.producer_kernel),
        (decision.consumer_source, decision.consumer, decision.consumer_kernel),
    )
    rows = [
        [title, source or "(no source line)", f"in {kernel}" if kernel not in ("", name) else ""]
        for title, (source, name, kernel) in zip(titles, ends, strict=True)
    ]
    page.table(rows, indent=2)
    for code in dict.fromkeys(r.code for r in decision.reasons):
        alike = [r for r in decision.reasons if r.code == code]  # one for each end, for instance
        for reason in alike:
            page.add("  ", Word(f"{code} {reason.slug}", "yellow"), f": {reason.message}")
        for hint in dict.fromkeys(r.hint for r in alike):
            page.add("    hint: ", hint)
    if decision.cost is not None:
        page.add("  " + cost_line(decision.cost), f" in each of {count(rounds)} iterations" if rounds > 1 else "")
    elif decision.unpriced is not None:
        page.add("  " + no_price(decision))
    return page


def no_price(decision: FusionDecision) -> str:
    """Why an edge has no price: the reason is one of those above."""
    assert decision.unpriced is not None
    return f"no price: there can be no one kernel ({decision.unpriced.code} {decision.unpriced.slug})"


def cost_line(cost: CostEstimate) -> str:
    """Time and bytes both ways."""
    apart = f"{microseconds(cost.us_unfused)}, {size(cost.bytes_unfused)}"
    together = f"{microseconds(cost.us_fused)}, {size(cost.bytes_fused)}"
    saved = "save" if cost.us_saved > 0 else "cost"
    gives = "save nothing" if abs(cost.us_saved) < LEAST else f"{saved} {microseconds(abs(cost.us_saved))}"
    form = "as one kernel, the producer also alone for others," if cost.kept else "as one kernel"
    return f"apart {apart}; {form} {together}: fusing alone would {gives}"


def as_json(
    report: ExplainReport,
    shown: Sequence[FusionDecision],
    compared: summary.Changes | None = None,
    exceeded: Sequence[CheckError] = (),
    more: Mapping[str, object] | None = None,
) -> dict[str, Any]:
    """The JSON form, ready for `json.dumps`, with `more` of what was asked for; explain.schema.json describes it."""
    dearest = _dearest(report)
    return {
        "schema": SCHEMA,
        "module": report.outcome.module.name,
        "target": report.outcome.target.name,
        "before": summary_json(report.before),
        "after": summary_json(report.after),
        **decided_again_json(report),
        "prices": prices_json(report.after),
        "fused": len(report.fused),
        "refused": report.refusals_by_code,
        "edges": [edge_json(d, report.rounds.get(d.computation, 1)) for d in shown],
        "dearest": [
            {
                "producer": d.producer,
                "consumer": d.consumer,
                "force": d.force,
                "us_saved": round(cost.us_saved, 3),
                "rounds": report.rounds.get(d.computation, 1),
                "relation": d.relation,
            }
            for d, cost in dearest
        ],
        "findings": findings_json(findings(report)),
        "exceeded": [{"code": e.code, "message": e.message} for e in exceeded],
        "what_if": None if compared is None else summary.changes_json(compared),
        **(more or {}),
    }


def edge_json(decision: FusionDecision, rounds: int = 1) -> dict[str, Any]:
    """One edge of the JSON form, with how often the computation that it is in runs."""
    return {
        "producer": decision.producer,
        "consumer": decision.consumer,
        "computation": decision.computation,
        "producer_opcode": decision.producer_opcode,
        "consumer_opcode": decision.consumer_opcode,
        "producer_kernel": decision.producer_kernel,
        "consumer_kernel": decision.consumer_kernel,
        "producer_source": decision.producer_source,
        "consumer_source": decision.consumer_source,
        "relation": decision.relation,
        "force": decision.force,
        "rule": decision.rule,
        "fused": decision.fused,
        "reasons": [
            {"code": r.code, "slug": r.slug, "message": r.message, "hint": r.hint, "numbers": dict(r.numbers)}
            for r in decision.reasons
        ],
        "cost": None if decision.cost is None else asdict(decision.cost),
        "no_price": None if decision.unpriced is None else decision.unpriced.code,
        "sentence": sentence(decision),
        "cause": [r.code for r in decision.cause],
        "change": advice(decision),
        "rounds": rounds,
    }


def code_page(code: str, columns: int = WIDTH) -> Page:
    """The page of a reason's code. Raises UsageError for an unknown one."""
    return spec_page(reason_spec(code), columns)


def spec_page(spec: ReasonSpec, columns: int = WIDTH) -> Page:
    """The page of a code that is declared: what it means, its message and hint, and an example. Its sentences fill
    lines of `columns` columns, at most `WIDTH`."""
    page, width = Page(), min(columns, WIDTH)
    page.add(Word(f"{spec.code} {spec.slug}", "bold"))
    page.add()
    for paragraph in spec.page.strip().split("\n\n"):
        for line in textwrap.wrap(paragraph, width):
            page.add(line)
        page.add()
    for title, text in (("message", spec.template), ("hint", spec.hint)):
        page.add(Word(title, "bold"))
        for line in textwrap.wrap(text, width - 2):
            page.add(f"  {line}")
    if spec.example:
        page.add()
        page.add(Word("example", "bold"))
        for line in _bounded(spec.example.strip("\n").splitlines()):
            page.add(f"  {line}")
    return page


def _bounded(lines: list[str]) -> list[str]:
    """An example that fits a screen: of a long one the middle, where lines repeat, is left out."""
    if len(lines) <= LONGEST_EXAMPLE:
        return lines
    left = f"  ... {len(lines) - 2 * ENDS_SHOWN} lines left out; --format json has them all"
    return [*lines[:ENDS_SHOWN], left, *lines[-ENDS_SHOWN:]]


def code_json(code: str) -> dict[str, Any]:
    """The page of a code for programs. Raises UsageError for an unknown one."""
    return {"schema": SCHEMA, **asdict(reason_spec(code))}
