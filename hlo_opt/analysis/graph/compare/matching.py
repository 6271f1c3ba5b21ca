"""Which site of one module is which of another: first those that compute the same from the parameters on, then those of which the same becomes down to the
root, then neighbours of what is matched, then what is similar. Names are never looked at.

Every step looks at each site and each edge a bounded number of times, so the whole takes about as long as reading the text.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from typing import TypeVar

from hlo_opt.analysis.graph.compare.flat import Flat, Forms, Scope, Site, flatten, grows_too_much
from hlo_opt.analysis.graph.compare.similarity import Similar
from hlo_opt.ir import Module
from hlo_opt.ir.walk import CONTROL_FLOW

K = TypeVar("K", bound=Hashable)

FAN = 64
"""Users of one value that are looked at as neighbours, one by one. Values with more are matched by what they are alone."""


@dataclass(eq=False)
class Matched:
    """Two flattened modules whose sites know their partners. `moved`: pairs that stand in scopes that are none of each other."""

    old: Flat
    new: Flat
    forms: Forms
    scopes: dict[Scope, Scope] = field(default_factory=dict)
    """Scopes of the old module with theirs of the new one."""
    moved: list[tuple[Site, Site]] = field(default_factory=list)
    _results: dict[Site, dict[int, int]] = field(default_factory=dict)
    """Which result of a site is which of its partner, where both have several and not as many."""

    def agree(self, one: tuple[Site, int], other: tuple[Site, int]) -> bool:
        """Whether an array of the old module is one of the new: of the same site, or the same value."""
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
    found = Matched(first, second, forms)
    similar = Similar(found.old.module, found.new.module)
    todo = [(found.old.entry, found.new.entry)]
    while todo:
        one, other = todo.pop()
        if one in found.scopes:
            continue
        found.scopes[one] = other
        _Pairing(one, other, forms, similar).run()
        for site in one.sites:
            if site.bodies and site.partner is not None:
                todo.extend(_bodies(site, site.partner))
    found.moved = _moved(found, similar)
    return found


def _count(site: Site) -> int:
    elements = site.instruction.shape.elements
    return 1 if elements is None else len(elements)


def _places(site: Site, twin: Site) -> dict[int, int]:
    """Where results of a site are among those of its partner: where most of those that read them read them there. A loop that carries one array more has all others at other places."""
    votes: dict[int, Counter[int]] = defaultdict(Counter)
    for user, place, result in site.users:
        other = user.partner
        if other is not None and len(other.inputs) == len(user.inputs) and other.inputs[place][0] is twin:
            votes[result][other.inputs[place][1]] += 1
    return {result: found.most_common(1)[0][0] for result, found in votes.items()}


def _bodies(one: Site, other: Site) -> Iterable[tuple[Scope, Scope]]:
    """The computations that two sites call, by the names of their attributes."""
    named = dict(other.bodies)
    return [(body, named[name]) for name, body in one.bodies if name in named]


def _value(site: Site) -> int | None:
    """What a site computes; None for a parameter, whose number says little where one was put before it."""
    return None if site.instruction.parameter_number is not None else site.forward


def _left(sites: Iterable[Site]) -> list[Site]:
    return [s for s in sites if s.partner is None]


def _by(sites: Iterable[Site], key: Callable[[Site], K]) -> dict[K, list[Site]]:
    found: dict[K, list[Site]] = defaultdict(list)
    for site in sites:
        found[key(site)].append(site)
    return found


class _Pairing:
    """The matching of two scopes."""

    def __init__(self, old: Scope, new: Scope, forms: Forms, similar: Similar) -> None:
        self.old, self.new, self.forms, self.similar = old, new, forms, similar
        self._fresh: list[Site] = []
        """Sites whose neighbours have not been looked at since they were matched."""

    def run(self) -> None:
        if _signature(self.old) == _signature(self.new):
            self._unique(lambda s: s.instruction.parameter_number)
        self._exact(lambda s: (s.forward, s.backward))
        self._unique(_value)
        self._unique(lambda s: s.backward)
        self._spread()
        # what is left of a class of equals: by where it comes from, then in order
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

    def _pair(self, one: Site, other: Site) -> None:
        one.partner, other.partner = other, one
        self._fresh.append(one)

    def _exact(self, key: Callable[[Site], K]) -> None:
        """Match classes of equals, each with the one at its place, as far as both have one. Those of None are no class."""
        there = _by(_left(self.new.sites), key)
        for value, mine in _by(_left(self.old.sites), key).items():
            if value is None:
                continue
            for one, other in zip(mine, there.get(value, ()), strict=False):
                self._pair(one, other)

    def _unique(self, key: Callable[[Site], K]) -> None:
        """Match what is the only one of its class on both sides."""
        there = _by(_left(self.new.sites), key)
        for value, mine in _by(_left(self.old.sites), key).items():
            others = there.get(value, ())
            if value is not None and len(mine) == len(others) == 1:
                self._pair(mine[0], others[0])

    def _sources(self, site: Site) -> Hashable:
        """What a site reads, as the sites of the old module that it is known to be."""
        scope = self.old
        known = []
        for source, result in site.inputs:
            twin = source if source.scope is scope else source.partner
            known.append((-1 if twin is None or twin.partner is None else twin.index, result))
        return tuple(known) if any(index >= 0 for index, _ in known) else site.forward

    def _spread(self) -> None:
        """From what is matched to its neighbours, as long as these are what they are but for where they come from."""
        while self._fresh:
            one = self._fresh.pop()
            other = one.partner
            assert other is not None
            self._inputs(one, other)
            if len(one.users) <= FAN and len(other.users) <= FAN:
                self._users(one, other)

    def _inputs(self, one: Site, other: Site) -> None:
        mine, theirs = ([s for s, _ in site.inputs if s.partner is None] for site in (one, other))
        if not mine or not theirs:
            return
        if len(one.inputs) == len(other.inputs) and not self.forms.commutes(one.opcode):
            for (a, _), (b, _) in zip(one.inputs, other.inputs, strict=True):
                if a.partner is None and b.partner is None and a.key == b.key:
                    self._pair(a, b)
        else:
            self._only(mine, theirs, lambda s: s.key)

    def _users(self, one: Site, other: Site) -> None:
        mine, theirs = ([(u, p, r) for u, p, r in site.users if u.partner is None] for site in (one, other))
        if not mine or not theirs:
            return
        there: dict[tuple[int, int, int], list[Site]] = defaultdict(list)
        for user, place, result in theirs:
            there[user.key, 0 if self.forms.commutes(user.opcode) else place, result].append(user)
        here: dict[tuple[int, int, int], list[Site]] = defaultdict(list)
        for user, place, result in mine:
            here[user.key, 0 if self.forms.commutes(user.opcode) else place, result].append(user)
        for value, users in here.items():
            others = there.get(value, [])
            if len(set(users)) == len(set(others)) == 1 and users[0].partner is None and others[0].partner is None:
                self._pair(users[0], others[0])

    def _only(self, mine: list[Site], theirs: list[Site], key: Callable[[Site], K]) -> None:
        there = _by(dict.fromkeys(theirs), key)
        for value, sites in _by(dict.fromkeys(mine), key).items():
            others = there.get(value, ())
            if len(sites) == len(others) == 1:
                self._pair(sites[0], others[0])

    def _alike(self) -> None:
        """Match what is similar and stands between the same, the most similar first."""
        todo = _left(self.old.sites)
        while todo:
            best = self.similar.best(todo, self.new, FAN)
            taken = []
            for _, one, other in best:
                if one.partner is None and other.partner is None:
                    self._pair(one, other)
                    taken.append(one)
            if not taken:
                return
            self._spread()
            near = {n: None for t in taken for n in _near(t)}
            todo = [s for s in near if s.partner is None and s.scope is self.old]

    def _exact_in_line(self) -> None:
        """What is left and differs in its operands only: each with the one at its place, where both sides have as many."""
        there = _by(_left(self.new.sites), lambda s: (s.key, self.similar.place(s)))
        for value, mine in _by(_left(self.old.sites), lambda s: (s.key, self.similar.place(s))).items():
            others = there.get(value, ())
            if len(mine) == len(others):
                for one, other in zip(mine, others, strict=True):
                    self._pair(one, other)
        self._fresh.clear()


def _signature(scope: Scope) -> list[tuple[int | None, int]]:
    """What a scope takes: its parameters by their numbers."""
    return sorted(
        (s.instruction.parameter_number, s.key) for s in scope.sites if s.instruction.parameter_number is not None
    )


def _near(site: Site) -> list[Site]:
    users = [u for u, _, _ in site.users] if len(site.users) <= FAN else []
    return [*(s for s, _ in site.inputs), *users]


def _moved(found: Matched, similar: Similar) -> list[tuple[Site, Site]]:
    """Pairs of what is left in scopes that are none of each other: the only ones on both sides that are what they are, or that are it and come from one line."""
    twins = {new: old for old, new in found.scopes.items()}

    def left(flat: Flat) -> list[Site]:
        return [s for scope in flat.scopes.values() if is_run(scope) for s in scope.sites if s.partner is None]

    pairs = []
    for key in (lambda s: (s.key, similar.place(s)), lambda s: (s.key, ())):
        there = _by(left(found.new), key)
        for value, mine in _by(left(found.old), key).items():
            others = there.get(value, ())
            if len(mine) != 1 or len(others) != 1 or not mine[0].inputs:
                continue
            one, other = mine[0], others[0]
            is_matched = one.scope in found.scopes or other.scope in twins
            if is_matched and found.scopes.get(one.scope) is not other.scope:
                one.partner, other.partner = other, one
                pairs.append((one, other))
    return pairs


def is_run(scope: Scope) -> bool:
    """Whether control flow runs a scope, so that its operations are launched: it is no reducer, comparator or the like."""
    return scope.owner is None or scope.owner.opcode in CONTROL_FLOW
