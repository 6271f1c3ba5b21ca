"""What differs between matched modules, instruction by instruction: what was added, lost, moved, and which attribute,
shape, type, layout, constant or operand changed from what to what.

A difference is reported where it begins. An instruction that reads something that was added is not reported again; a
constant is reported with its readers.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from hlo_opt.analysis.graph.compare.flat import Flat, FlatSite, Scope
from hlo_opt.analysis.graph.compare.matching import Matched, is_run
from hlo_opt.analysis.graph.digest import HEADER, header
from hlo_opt.analysis.graph.loops import trip_count
from hlo_opt.analysis.graph.spelling import config, plain_attributes, sharding
from hlo_opt.ir import Instruction, Module, Shape
from hlo_opt.ops.sets import launches, looped
from hlo_opt.report.diff.donated import donated_by_one, inputs_donated_by_one
from hlo_opt.report.diff.repeats import repeats
from hlo_opt.text.aliases import ALIASES
from hlo_opt.text.frames import source_location

LONGEST = 60
"""The most characters that are shown of a constant, an attribute or an expression."""

TYPE = "type"
"""What a detail about the element type is called."""

OPCODE = "opcode"
"""What a detail about the opcode is called."""

DONATED = "input_output_alias (donated inputs)"
"""What a detail about the inputs that a module gives away is called."""

ROUNDS = "rounds"
"""What a detail about how often a loop runs is called."""

FORMS = frozenset({TYPE, "shape", "layout"})
"""Details about the value itself, which whoever reads it sees."""

DEEPEST = 6
"""The deepest nesting of operations in a reducer or a comparator that is shown as an expression."""


@dataclass(frozen=True)
class Detail:
    """A property that changed: `layout`, `{1,0}`, `{0,1}`. A side without the property is empty. `is_of_results`: it is
    about what a computation returns, and not about the operation that it is reported with."""

    what: str
    old: str
    new: str
    is_of_results: bool = False


@dataclass(eq=False)
class Change:
    """An instruction that is not what it was. `kind` is changed, added, lost, moved, or module for what the header
    says. `places` counts the calls in which it is, and the copies of a constant for its readers."""

    kind: str
    old: FlatSite | None = None
    new: FlatSite | None = None
    details: tuple[Detail, ...] = ()
    places: int = 1
    old_source: str = ""
    new_source: str = ""
    holds: int = 0
    """Instructions of the computations that it calls, where it is added or lost."""
    again: FlatSite | None = None
    """Where it is added or lost: what computes the same in its module all the same."""
    order: float = 0.0
    """Where it stands among the others: what is needed comes first."""
    repeated: list[FlatSite] = field(default_factory=list)
    """Its sites in further calls of the computation that it is in; of what the header says of inputs, these."""

    @property
    def sites(self) -> list[FlatSite]:
        return [s for s in (self.old, self.new) if s is not None]

    @property
    def source(self) -> str:
        """The Python line: of the new dump, else of the old one."""
        return self.new_source or self.old_source

    @property
    def name(self) -> str:
        """What it is called: in the new dump, else in the old one."""
        site = self.new or self.old
        return "module" if site is None else site.instruction.name


@dataclass(frozen=True)
class Counts:
    """Operations of both modules, by what became of them."""

    alike: int
    changed: int
    added: int
    lost: int
    moved: int


@dataclass(eq=False)
class _Finding:
    seen: dict[Hashable, Change] = field(default_factory=dict)

    def add(self, change: Change) -> None:
        """Count a change that several calls of one computation show once."""
        key = (change.kind, change.details, *[s and s.instruction for s in (change.old, change.new)])
        known = self.seen.setdefault(key, change)
        if known is not change:
            known.places += 1
            known.repeated.extend(change.sites)


def changes(matched: Matched) -> tuple[list[Change], Counts]:
    """All changes, each after those that it may come from."""
    rows = _Finding()
    printed = _printed_attributes(matched.old.module) & _printed_attributes(matched.new.module)
    for detail in _header(matched):
        rows.add(Change("module", details=(detail,)))
    alike = changed = 0
    applied = {s for flat in (matched.old, matched.new) for s in flat.scopes.values() if is_small(s) and not is_run(s)}
    starts, span = _starts(matched.new)
    lost = list(_unmatched(matched.old, dict.fromkeys(matched.scopes), matched, applied))
    added = list(_unmatched(matched.new, dict.fromkeys(matched.scopes.values()), matched, applied))
    context = _Context(matched, frozenset((*lost, *added)), printed, _forwards(matched))
    for one, other in matched.scopes.items():
        if one in applied:
            continue
        renumbered = _renumbered(one)
        for site in one.sites:
            twin = site.partner
            if twin is None:
                continue
            details = _details(context, site, twin)
            if site in renumbered:
                before, now = (str(s.instruction.parameter_number) for s in (site, twin))
                details = (Detail("number", before, now), *details)
            moved = twin.scope is not other
            if moved:
                details = (Detail("computation", one.computation.name, twin.scope.computation.name), *details)
            if not details:
                alike += 1
                continue
            changed += not moved
            order = starts[twin.scope] + twin.index
            rows.add(Change("moved" if moved else "changed", site, twin, details, order=order))
    known = frozenset(s for c in rows.seen.values() for s in (*c.sites, *c.repeated))
    for one, other in matched.scopes.items():
        for old, new, detail in _results(context, one, other, known) if one not in applied else ():
            rows.add(Change("changed", old, new, (detail,), order=starts[other] + len(other.sites)))
    again, repeated = repeats(matched.old, lost), repeats(matched.new, added)
    for site in lost:
        stood = _stood(site, starts, span)
        rows.add(Change("lost", site, holds=_holds(site), again=again.get(site), order=stood))
    for site in added:
        place = starts[site.scope] + site.index
        rows.add(Change("added", None, site, holds=_holds(site), again=repeated.get(site), order=place))
    for change in rows.seen.values():
        change.old_source, change.new_source = (
            "" if site is None else _line(module, site)
            for site, module in ((change.old, matched.old.module), (change.new, matched.new.module))
        )
    for change in rows.seen.values():
        if change.details[:1] and change.details[0].what == DONATED:
            change.repeated.extend(inputs_donated_by_one(matched))
    listed = sorted(rows.seen.values(), key=lambda c: c.order)
    return listed, Counts(alike, changed, len(added), len(lost), len(matched.moved))


def _line(module: Module, site: FlatSite) -> str:
    """The Python line of an operation: its own, that of a call that it stands in, or of the loop or branch. Of a
    constant or what is made of constants, where it has none, that of what reads it: JAX writes constants without."""
    line = _own_line(module, site)
    while not line and site.users and site.instruction.parameter_number is None:
        if any(s.instruction.literal is None for s, _ in site.inputs):
            break
        site = site.users[0][0]
        line = _own_line(module, site)
    return line


def _own_line(module: Module, site: FlatSite) -> str:
    places = (site.instruction, *reversed(site.callers))
    line = next((line for place in places if (line := source_location(module, place))), "")
    owner = site.scope.owner
    return line if line or owner is None or site.instruction.literal is not None else _own_line(module, owner)


def _starts(flat: Flat) -> tuple[dict[Scope, int], int]:
    """A place for each scope, so that those of a module follow one another; and the number of places."""
    starts, total = {}, 0
    for scope in flat.scopes.values():
        starts[scope] = total
        total += len(scope.sites) + 1
    return starts, total


def _stood(site: FlatSite, starts: dict[Scope, int], span: int) -> float:
    """Where in the new module something lost would stand: before what read it."""
    for user, _, _ in site.users:
        if user.partner is not None:
            return starts[user.partner.scope] + user.partner.index - 0.5
    for source, _ in site.inputs:
        if source.partner is not None:
            return starts[source.partner.scope] + source.partner.index + 0.5
    return span


def _renumbered(scope: Scope) -> set[FlatSite]:
    """Parameters in another order; a parameter that was inserted before them is reported by itself."""
    pairs = [
        (site.instruction.parameter_number, site.partner.instruction.parameter_number, site)
        for site in scope.sites
        if site.partner is not None and site.instruction.parameter_number is not None
    ]
    pairs.sort(key=lambda p: p[0])
    numbers = [n for _, n, _ in pairs if n is not None]
    return set() if numbers == sorted(numbers) else {site for a, b, site in pairs if a != b}


def is_small(body: Scope) -> bool:
    """Whether a computation is shown as an expression, not instruction by instruction."""
    return len(body.sites) <= 4 * DEEPEST


def _unmatched(flat: Flat, scopes: dict[Scope, None], matched: Matched, applied: set[Scope]) -> Iterator[FlatSite]:
    """What one module alone has, but for values that the other has too, however often, and for constants, which are
    reported with their readers."""
    is_old = flat is matched.old
    twins = matched.scopes if is_old else {new: old for old, new in matched.scopes.items()}
    for scope in flat.scopes.values():
        if scope not in scopes or scope in applied:
            continue
        known = {s.forward for s in twins[scope].sites}
        for site in scope.sites:
            if site.partner is None and site.forward not in known and (site.instruction.literal is None):
                yield site


def _holds(site: FlatSite) -> int:
    total, todo = 0, [body for _, body in site.bodies]
    seen: set[Scope] = set()
    while todo:
        scope = todo.pop()
        if scope not in seen:
            seen.add(scope)
            total += len(scope.sites)
            todo.extend(body for s in scope.sites for _, body in s.bodies)
    return total


def _header(matched: Matched) -> Iterator[Detail]:
    old, new = matched.old.module, matched.new.module
    for name in HEADER:
        texts = header(old, name), header(new, name)
        donated = donated_by_one(matched) if name == ALIASES and texts[0] != texts[1] else None
        if donated is not None:
            yield Detail(DONATED, *donated)
        else:
            yield from _text(name, *texts)


_SOMETIMES = frozenset({"sharding", "backend_config"})
"""What some ways to print a module leave out everywhere."""


def _printed_attributes(module: Module) -> frozenset[str]:
    """Which of these a text says anywhere."""
    return frozenset(n for c in module.computations for i in c.instructions for n in i.attributes if n in _SOMETIMES)


@dataclass(frozen=True)
class _Context:
    """What comparing a pair needs to know: which instructions were added or lost, which attributes both texts have, and
    what those instructions compute that others wait for (`_forwards`)."""

    matched: Matched
    fresh: frozenset[FlatSite]
    printed: frozenset[str]
    forwards: Mapping[Instruction, int]


def _details(context: _Context, one: FlatSite, other: FlatSite) -> tuple[Detail, ...]:
    a, b = one.instruction, other.instruction
    details: list[Detail] = []
    if looped(a) is not None and looped(b) is not None:
        details.extend(_rounds(a, b))
    if one.key != other.key:
        details.extend(_own(a, b))
    if a.shape is not b.shape:
        details.extend(_layout(a.shape, b.shape))
    if one.bodies or other.bodies:
        retyped = any(d.what == TYPE for d in details)  # a reducer of another type comes with that
        details.extend(d for d in _bodies(context, one, other) if not (retyped and d.what.endswith(f": {TYPE}")))
    details.extend(_inputs(context, one, other))
    if a.control_predecessors or b.control_predecessors:
        details.extend(_waits(context, a, b))
    for name, text in (("sharding", sharding), ("backend_config", config)):
        if name in context.printed and (name in a.attributes or name in b.attributes):
            details.extend(_text(name, text(a), text(b)))
    return tuple(details)


def _forwards(matched: Matched) -> dict[Instruction, int]:
    """What each instruction computes that another waits for by a control dependency, as a number that is equal for
    matched ones; without those that only one module has."""
    awaited = {
        p
        for flat in (matched.old, matched.new)
        for c in flat.module.computations
        for i in c.instructions
        for p in i.control_predecessors
    }
    if not awaited:
        return {}
    old = {s.instruction: s.partner.forward for s in matched.old.sites() if s.partner and s.instruction in awaited}
    new = {s.instruction: s.forward for s in matched.new.sites() if s.partner and s.instruction in awaited}
    return {**old, **new}


def _waits(context: _Context, a: Instruction, b: Instruction) -> list[Detail]:
    """Operations of both modules that only one of two instructions waits for."""
    known = [{p: context.forwards[p] for p in i.control_predecessors if p in context.forwards} for i in (a, b)]
    only = [
        ", ".join(p.name for p, forward in mine.items() if forward not in theirs.values())
        for mine, theirs in (known, known[::-1])
    ]
    return _text("control-predecessors", *only)


def _rounds(a: Instruction, b: Instruction) -> list[Detail]:
    """How often two loops run, where both are known to run in another number of rounds."""
    old, new = trip_count(a), trip_count(b)
    return [] if old is None or new is None or old == new else [Detail(ROUNDS, str(old), str(new))]


def _text(what: str, old: str, new: str) -> list[Detail]:
    return [] if old == new else [Detail(what, *_apart(old, new))]


def _own(a: Instruction, b: Instruction) -> Iterator[Detail]:
    if a.opcode != b.opcode:
        yield Detail(OPCODE, a.opcode, b.opcode)
    one, other = a.shape, b.shape
    if one.is_tuple or other.is_tuple:
        if one.without_layout() != other.without_layout():
            yield Detail("shape", *_apart(str(one), str(other)))
    else:
        if one.element_type != other.element_type:
            yield Detail(TYPE, str(one.element_type), str(other.element_type))
        if (one.dimensions, one.dynamic) != (other.dimensions, other.dynamic):
            yield Detail("shape", _dimensions(one), _dimensions(other))
    if a.literal is not None and b.literal is not None:
        yield from _text("value", _constant(a), _constant(b))
    mine, theirs = dict(plain_attributes(a)), dict(plain_attributes(b))
    for name in dict.fromkeys((*mine, *theirs)):
        yield from _text(name, mine.get(name, ""), theirs.get(name, ""))


def _dimensions(shape: Shape) -> str:
    text = str(shape.without_layout())
    return text[text.find("[") :] if "[" in text else text


def _layout(one: Shape, other: Shape) -> list[Detail]:
    """Layouts of the same arrays that differ."""
    if not one.same_values(other) or one.same_bytes(other):
        return []
    pairs = [
        (str(a.laid_out().layout or ""), str(b.laid_out().layout or ""))
        for a, b in zip(one.leaves(), other.leaves(), strict=True)
    ]
    if len(pairs) == 1:
        return [Detail("layout", *pairs[0])]
    return [Detail(f"layout of result {n}", a, b) for n, (a, b) in enumerate(pairs) if a != b]


def _inputs(context: _Context, one: FlatSite, other: FlatSite) -> Iterator[Detail]:
    matched = context.matched
    mine, theirs = one.inputs, other.inputs
    if len(mine) == len(theirs):
        agree = [matched.agree(x, y) for x, y in zip(mine, theirs, strict=True)]
        if all(agree):
            return
        swapped = len(mine) == 2 and matched.forms.commutes(one.opcode) and one.opcode == other.opcode
        if swapped and (agree := [matched.agree(x, y) for x, y in zip(mine, theirs[::-1], strict=True)]):
            straight = [matched.agree(x, y) for x, y in zip(mine, theirs, strict=True)]
            if all(agree):
                return
            if sum(agree) > sum(straight):
                theirs = theirs[::-1]
            else:
                agree = straight
        for place, (is_same, x, y) in enumerate(zip(agree, mine, theirs, strict=True)):
            if not is_same and x[0] not in context.fresh and y[0] not in context.fresh:
                yield Detail(f"operand {place}", *_told(x, y))
        return
    yield Detail("operands", *_gone(one, other))


def _gone(one: FlatSite, other: FlatSite) -> tuple[str, str]:
    """Two lists of operands of different lengths: how many, and which are on one side only."""
    mine, theirs = [s for s, _ in one.inputs], [s for s, _ in other.inputs]
    left = list(theirs)
    apart = []
    for site in mine:
        same = next((t for t in left if t is site.partner or t.forward == site.forward), None)
        if same is None:
            apart.append(_input((site, 0)))
        else:
            left.remove(same)
    more = [_input((t, 0)) for t in left]
    return tuple(
        _cut(f"{len(count)}" + (f", with {', '.join(names)}" if names else ""))
        for count, names in ((mine, apart), (theirs, more))
    )  # type: ignore[return-value]


def _input(leaf: SiteResult) -> str:
    site, result = leaf
    instruction = site.instruction
    if instruction.literal is not None:
        return f"constant {_cut(_constant(instruction))}"
    return instruction.name + (f", result {result}" if instruction.shape.is_tuple else "")


def _told(old: SiteResult, new: SiteResult) -> tuple[str, str]:
    """What was read and what is read now. Where another value has the old one's name, also what it was called."""
    texts = _input(old), _input(new)
    if texts[0] != texts[1] or new[0].partner is None:
        return texts
    before = _input((new[0].partner, new[1]))
    return texts[0], texts[1] if before == texts[1] else f"{texts[1]}, which was {before}"


def _constant(instruction: Instruction) -> str:
    literal = instruction.literal
    assert literal is not None
    text = literal.text if literal.text is not None else str(literal.value)
    return "".join(text.split()) if len(text) > LONGEST else text


def _results(
    context: _Context, one: Scope, other: Scope, known: frozenset[FlatSite]
) -> Iterator[tuple[FlatSite | None, FlatSite | None, Detail]]:
    """Differences in the results of a computation, with the operations they are reported with, where nothing `known`
    about these says it already."""
    if len(one.results) != len(other.results):
        fewer, more = _results_of_one(one.results, other.results), _results_of_one(other.results, one.results)
        first = next((s for s, _ in (*more, *fewer)), None)
        old, new = (_last(one), _last(other)) if first is None else (first.partner, first)
        if first is not None and first.scope is one:
            old, new = first, first.partner
        counted = _counted(one.results, fewer), _counted(other.results, more)
        yield old, new, Detail(_of(other, "results"), *counted, is_of_results=True)
        return
    for place, (x, y) in enumerate(zip(one.results, other.results, strict=True)):
        if (
            not context.matched.agree(x, y)
            and known.isdisjoint((x[0], y[0]))
            and context.fresh.isdisjoint((x[0], y[0]))
        ):
            what = f"result {place}" if len(one.results) > 1 else "result"
            yield x[0], y[0], Detail(_of(other, what), *_told(x, y), is_of_results=True)


def _of(scope: Scope, what: str) -> str:
    """Results of a computation as they are told: not those of an operation."""
    if scope.owner is None:
        return f"{what} of the module"
    name = next((name for name, body in scope.owner.bodies if body is scope), "computation")
    return f"{what} of {scope.owner.instruction.name}'s {name}"


SiteResult = tuple[FlatSite, int]


def _results_of_one(mine: Sequence[SiteResult], theirs: Sequence[SiteResult]) -> list[SiteResult]:
    """Results that another computation does not give."""
    known = {(s.partner, r) for s, r in theirs} | {(s.forward, r) for s, r in theirs}
    return [(s, r) for s, r in mine if (s, r) not in known and (s.forward, r) not in known]


def _counted(results: Sequence[SiteResult], only: Sequence[SiteResult]) -> str:
    return f"{len(results)}" + (f", with {_cut(', '.join(map(_input, only)))}" if only else "")


def _last(scope: Scope) -> FlatSite | None:
    """The operation that stands for the results of a computation in a list of changes; None without results."""
    return scope.results[0][0] if scope.results else None


def _bodies(context: _Context, one: FlatSite, other: FlatSite) -> Iterator[Detail]:
    """Called computations, reported with their callers."""
    mine, theirs = dict(one.bodies), dict(other.bodies)
    for name in dict.fromkeys((*mine, *theirs)):
        x, y = mine.get(name), theirs.get(name)
        if x is not None and y is not None:
            if x.number == y.number or is_run(x) or not (is_small(x) and is_small(y)):
                continue
            inner = _inside(context, x, y)
            if inner:
                yield from (Detail(f"{name}: {d.what}", d.old, d.new) for d in inner)
                continue
        yield Detail(name, *_apart(*("" if s is None else expression(s) for s in (x, y))))


def _inside(context: _Context, one: Scope, other: Scope) -> list[Detail]:
    """What differs between two small computations of the same operations; nothing where they are not of the same."""
    if context.matched.scopes.get(one) is not other or any(s.partner is None for s in (*one.sites, *other.sites)):
        return []
    details = []
    for site in one.sites:
        twin = site.partner
        assert twin is not None
        names = " -> ".join(dict.fromkeys((site.instruction.name, twin.instruction.name)))
        details += [Detail(f"{names} ({twin.opcode}): {d.what}", d.old, d.new) for d in _details(context, site, twin)]
    return details


def expression(scope: Scope) -> str:
    """A computation as an expression of its parameters: `add(p0, p1)`."""
    return ", ".join(_term(site, DEEPEST) for site, _ in scope.results)


def _term(site: FlatSite, depth: int) -> str:
    instruction = site.instruction
    if instruction.parameter_number is not None:
        return f"p{instruction.parameter_number}"
    if instruction.literal is not None:
        return _cut(_constant(instruction))
    if depth == 0:
        return "..."
    attributes = [f"{name}={text}" for name, text in plain_attributes(instruction)]
    cast = f"{instruction.shape.element_type} " if launches(instruction) and len(site.inputs) == 1 else ""
    return f"{cast}{site.opcode}({', '.join([*(_term(s, depth - 1) for s, _ in site.inputs), *attributes])})"


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else text[: LONGEST - 4] + " ..."


def _apart(old: str, new: str) -> tuple[str, str]:
    """Two texts cut around the first place where they differ, where they are long."""
    if max(len(old), len(new)) <= LONGEST:
        return old, new
    first = next((n for n, (x, y) in enumerate(zip(old, new, strict=False)) if x != y), min(len(old), len(new)))
    start = max(0, first - LONGEST // 3)

    def part(text: str) -> str:
        return ("... " if start else "") + _cut(text[start:]) if len(text) > LONGEST else text

    return part(old), part(new)
