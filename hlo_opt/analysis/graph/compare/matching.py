"""Match the sites of two modules: equal computation from the parameters, then equal uses down to the root, then
neighbours of matched sites, then similar ones.

Names are ignored. Each step visits each site and edge a bounded number of times, so matching costs about as much as
parsing.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

from hlo_opt.analysis.graph.compare.flat import Flat, FlatSite, Forms, Scope, flatten, grows_too_much
from hlo_opt.analysis.graph.compare.similarity import Similar
from hlo_opt.ir import Module
from hlo_opt.ir.walk import CONTROL_FLOW

K = TypeVar("K", bound=Hashable)

FAN = 64
"""Neighbours are matched through values with at most this many users; other values are matched on their own."""


@dataclass(eq=False)
class Matched:
    """Two flattened modules with matched sites. `moved`: pairs in scopes that do not match each other."""

    old: Flat
    new: Flat
    forms: Forms
    scopes: dict[Scope, Scope] = field(default_factory=dict)
    """Old scopes to new scopes."""
    moved: list[tuple[FlatSite, FlatSite]] = field(default_factory=list)
    _results: dict[FlatSite, dict[int, int]] = field(default_factory=dict)
    """The partner's result number for each result of a site, if their numbers of results differ."""

    def agree(self, one: tuple[FlatSite, int], other: tuple[FlatSite, int]) -> bool:
        """Whether an array of the old module is one of the new: of matched sites, or of equal value."""
        (site, result), (twin, place) = one, other
        if site.partner is twin and _count(site) != _count(twin):
            if site not in self._results:
                self._results[site] = _places(site, twin)
            return self._results[site].get(result, result) == place
        if result != place:
            return False
        return site.partner is twin or (site.forward == twin.forward and site.instruction.parameter_number is None)


def match(old: Module, new: Module) -> Matched:
    """Match two modules."""
    forms = Forms()
    opens = not (grows_too_much(old) or grows_too_much(new))
    first, second = (flatten(m, forms, opens_calls=opens) for m in (old, new))
    matched = Matched(first, second, forms)
    similar = Similar(matched.old.module, matched.new.module)
    todo = [(matched.old.entry, matched.new.entry)]
    while todo:
        one, other = todo.pop()
        if one in matched.scopes:
            continue
        matched.scopes[one] = other
        _Pairing(one, other, forms, similar).run()
        for site in one.sites:
            if site.bodies and site.partner is not None:
                todo.extend(_bodies(site, site.partner))
    matched.moved = _moved(matched, similar)
    return matched


def _count(site: FlatSite) -> int:
    elements = site.instruction.shape.elements
    return 1 if elements is None else len(elements)


def _places(site: FlatSite, twin: FlatSite) -> dict[int, int]:
    """The partner's result number for each result of a site, by majority among the matched readers.

    An additional carried array of a loop shifts all others.
    """
    votes: dict[int, Counter[int]] = defaultdict(Counter)
    for user, place, result in site.users:
        other = user.partner
        if other is not None and len(other.inputs) == len(user.inputs) and other.inputs[place][0] is twin:
            votes[result][other.inputs[place][1]] += 1
    return {result: counter.most_common(1)[0][0] for result, counter in votes.items()}


def _bodies(one: FlatSite, other: FlatSite) -> Iterable[tuple[Scope, Scope]]:
    """The computations that two sites call, paired by attribute name."""
    named = dict(other.bodies)
    return [(body, named[name]) for name, body in one.bodies if name in named]


def _value(site: FlatSite) -> int | None:
    """The forward number of a site; None for a parameter, as parameters may be renumbered."""
    return None if site.instruction.parameter_number is not None else site.forward


def _left(sites: Iterable[FlatSite]) -> list[FlatSite]:
    return [s for s in sites if s.partner is None]


def _by(sites: Iterable[FlatSite], key: Callable[[FlatSite], K]) -> dict[K, list[FlatSite]]:
    groups: dict[K, list[FlatSite]] = defaultdict(list)
    for site in sites:
        groups[key(site)].append(site)
    return groups


class _Pairing:
    """Matches two scopes."""

    def __init__(self, old: Scope, new: Scope, forms: Forms, similar: Similar) -> None:
        self.old, self.new, self.forms, self.similar = old, new, forms, similar
        self._fresh: list[FlatSite] = []
        """Matched sites whose neighbours have not been visited."""
        self._doubtful: deque[tuple[FlatSite, FlatSite]] = deque()
        """Neighbours that each have another line, which the other module has, too."""

    def run(self) -> None:
        if _signature(self.old) == _signature(self.new):
            self._unique(lambda s: s.instruction.parameter_number)
        self._exact(lambda s: (s.forward, s.backward))
        self._unique(_value)
        self._unique(lambda s: s.backward)
        self._spread()
        # the rest of each class of equal sites: by source line, then in order
        self._exact(lambda s: None if _value(s) is None else (s.forward, self.similar.place(s)))
        self._exact(_value)
        self._spread()
        self._unique(lambda s: (s.key, self._sources(s)))
        self._spread()
        self._alike()
        self._unique(lambda s: s.instruction.parameter_number)
        self._spread()
        self._alike()
        self._unique(lambda s: (s.key, self.similar.place(s)) if self.similar.place(s) else None)
        self._spread()
        self._alike()
        self._exact_in_line()

    def _pair(self, one: FlatSite, other: FlatSite) -> None:
        one.partner, other.partner = other, one
        self._fresh.append(one)

    def _pair_near(self, one: FlatSite, other: FlatSite) -> None:
        """Match neighbours of matched sites; later, where the other module has the line of one, and that is not the
        line of its neighbour."""
        mine, its = ((site.key, self.similar.place(site)) for site in (one, other))
        if mine == its or not (mine in self._lines[1] or its in self._lines[0]):
            self._pair(one, other)
        else:
            self._doubtful.append((one, other))

    @cached_property
    def _lines(self) -> tuple[set[Hashable], ...]:
        """The operations with their source lines, of both scopes."""
        return tuple(
            {(s.key, place) for s in scope.sites if (place := self.similar.place(s))} for scope in (self.old, self.new)
        )

    def _exact(self, key: Callable[[FlatSite], K]) -> None:
        """Match sites with equal keys in order, as far as both sides have one. None is not a key."""
        there = _by(_left(self.new.sites), key)
        for value, mine in _by(_left(self.old.sites), key).items():
            if value is None:
                continue
            for one, other in zip(mine, there.get(value, ()), strict=False):
                self._pair(one, other)

    def _unique(self, key: Callable[[FlatSite], K]) -> None:
        """Match sites whose key is unique on both sides."""
        there = _by(_left(self.new.sites), key)
        for value, mine in _by(_left(self.old.sites), key).items():
            others = there.get(value, ())
            if value is not None and len(mine) == len(others) == 1:
                self._pair(mine[0], others[0])

    def _sources(self, site: FlatSite) -> Hashable:
        """A site's inputs, as matched sites of the old module."""
        scope = self.old
        known = []
        for source, result in site.inputs:
            twin = source if source.scope is scope else source.partner
            known.append((-1 if twin is None or twin.partner is None else twin.index, result))
        return tuple(known) if any(index >= 0 for index, _ in known) else site.forward

    def _spread(self) -> None:
        """Match neighbours of matched sites that are equal apart from their operands, as far as possible. Those of
        different lines come last: where an operation is lost, its operands get its readers, and one of these may be an
        operation like it."""
        while self._fresh or self._doubtful:
            if not self._fresh:
                first, second = self._doubtful.popleft()
                if first.partner is None and second.partner is None:
                    self._pair(first, second)
                continue
            one = self._fresh.pop()
            other = one.partner
            assert other is not None
            self._inputs(one, other)
            if len(one.users) <= FAN and len(other.users) <= FAN:
                self._users(one, other)

    def _inputs(self, one: FlatSite, other: FlatSite) -> None:
        mine, theirs = ([s for s, _ in site.inputs if s.partner is None] for site in (one, other))
        if not mine or not theirs:
            return
        if len(one.inputs) == len(other.inputs) and not self.forms.commutes(one.opcode):
            for (a, _), (b, _) in zip(one.inputs, other.inputs, strict=True):
                if a.partner is None and b.partner is None and a.key == b.key:
                    self._pair_near(a, b)
        else:
            self._only(mine, theirs, lambda s: s.key)

    def _users(self, one: FlatSite, other: FlatSite) -> None:
        mine, theirs = ([(u, p, r) for u, p, r in site.users if u.partner is None] for site in (one, other))
        if not mine or not theirs:
            return
        there: dict[tuple[int, int, int], list[FlatSite]] = defaultdict(list)
        for user, place, result in theirs:
            there[user.key, 0 if self.forms.commutes(user.opcode) else place, result].append(user)
        here: dict[tuple[int, int, int], list[FlatSite]] = defaultdict(list)
        for user, place, result in mine:
            here[user.key, 0 if self.forms.commutes(user.opcode) else place, result].append(user)
        for value, users in here.items():
            others = there.get(value, [])
            if len(set(users)) == len(set(others)) == 1 and users[0].partner is None and others[0].partner is None:
                self._pair_near(users[0], others[0])

    def _only(self, mine: list[FlatSite], theirs: list[FlatSite], key: Callable[[FlatSite], K]) -> None:
        there = _by(dict.fromkeys(theirs), key)
        for value, sites in _by(dict.fromkeys(mine), key).items():
            others = there.get(value, ())
            if len(sites) == len(others) == 1:
                self._pair_near(sites[0], others[0])

    def _alike(self) -> None:
        """Match similar sites between matched ones, most similar first."""
        todo = _left(self.old.sites)
        while todo:
            best = self.similar.best(todo, self.new, FAN)
            paired = []
            for _, one, other in best:
                if one.partner is None and other.partner is None:
                    self._pair(one, other)
                    paired.append(one)
                    self._spread()  # before the next: of equal chains, the links of one go with those of one
            if not paired:
                return
            near = {n: None for t in paired for n in _near(t)}
            todo = [s for s in near if s.partner is None and s.scope is self.old]

    def _exact_in_line(self) -> None:
        """Match the remaining sites that differ only in operands, in order, where both sides have equally many."""
        there = _by(_left(self.new.sites), lambda s: (s.key, self.similar.place(s)))
        for value, mine in _by(_left(self.old.sites), lambda s: (s.key, self.similar.place(s))).items():
            others = there.get(value, ())
            if len(mine) == len(others):
                for one, other in zip(mine, others, strict=True):
                    self._pair(one, other)
        self._fresh.clear()


def _signature(scope: Scope) -> list[tuple[int | None, int]]:
    """A scope's parameters: (number, key), sorted."""
    return sorted(
        (s.instruction.parameter_number, s.key) for s in scope.sites if s.instruction.parameter_number is not None
    )


def _near(site: FlatSite) -> list[FlatSite]:
    users = [u for u, _, _ in site.users] if len(site.users) <= FAN else []
    return [*(s for s, _ in site.inputs), *users]


def _moved(matched: Matched, similar: Similar) -> list[tuple[FlatSite, FlatSite]]:
    """Match remaining sites across scopes that do not match: unique on both sides by key, or by key and source line."""
    twins = {new: old for old, new in matched.scopes.items()}

    def left(flat: Flat) -> list[FlatSite]:
        return [s for scope in flat.scopes.values() if is_run(scope) for s in scope.sites if s.partner is None]

    pairs = []
    for key in (lambda s: (s.key, similar.place(s)), lambda s: (s.key, ())):
        there = _by(left(matched.new), key)
        for value, mine in _by(left(matched.old), key).items():
            others = there.get(value, ())
            if len(mine) != 1 or len(others) != 1 or not mine[0].inputs:
                continue
            one, other = mine[0], others[0]
            is_matched = one.scope in matched.scopes or other.scope in twins
            if is_matched and matched.scopes.get(one.scope) is not other.scope:
                one.partner, other.partner = other, one
                pairs.append((one, other))
    return pairs


def is_run(scope: Scope) -> bool:
    """Whether control flow runs a scope, so that its operations are launched; not so for reducers, comparators, ..."""
    return scope.owner is None or scope.owner.opcode in CONTROL_FLOW
