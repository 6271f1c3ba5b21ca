"""How alike two sites of two modules are: what they are, which line they come from, and whether they stand between the same."""

from __future__ import annotations

from collections.abc import Iterable

from hlo_opt.analysis.graph.compare.flat import Scope, Site
from hlo_opt.analysis.graph.spelling import plain_attributes
from hlo_opt.ir import Module
from hlo_opt.text.frames import source_location

LEAST = 5.0
"""Points that two sites of one opcode need to count as one that changed."""

LEAST_RENAMED = 5.5
"""The same for sites of two opcodes: these have to stand between the same, too."""

Place = tuple[str, ...]


class Similar:
    """Compares sites of two modules."""

    def __init__(self, old: Module, new: Module) -> None:
        self._modules = (old, new)
        self._places: dict[int, Place] = {}
        self._names = {id(c) for c in old.computations}

    def place(self, site: Site) -> Place:
        """What the program calls an operation, and its line; empty where the dump says neither."""
        found = self._places.get(id(site))
        if found is None:
            instruction = site.instruction
            module = self._modules[0 if id(site.scope.computation) in self._names else 1]
            name, line = instruction.metadata.op_name, source_location(module, instruction)
            found = self._places[id(site)] = (name, line) if name or line else ()
        return found

    def best(self, sites: Iterable[Site], scope: Scope, most: int) -> list[tuple[float, Site, Site]]:
        """The pairs that are alike enough, the most alike first, of these sites of the old module and what stands where they stood in a scope of the new one."""
        found = []
        for one in sites:
            for other in _candidates(one, scope, most):
                points = self._points(one, other)
                if points >= (LEAST if one.opcode == other.opcode else LEAST_RENAMED):
                    found.append((points, one, other))
        found.sort(key=lambda pair: (-pair[0], pair[1].index, pair[2].index))
        return found

    def _points(self, one: Site, other: Site) -> float:
        a, b = one.instruction, other.instruction
        above, below = _shared(one, other)
        points = 2.5 * above + 2.5 * below
        if a.opcode == b.opcode:
            points += 3
        elif min(above, below) <= 0:
            return 0.0
        if (a.parameter_number is None) != (b.parameter_number is None):
            return 0.0
        if not a.shape.is_tuple and not b.shape.is_tuple:
            points += 0.75 * (a.shape.dimensions == b.shape.dimensions) + 0.5 * (
                a.shape.element_type == b.shape.element_type
            )
        else:
            points += 1.25 * (a.shape.without_layout() == b.shape.without_layout())
        points += 0.5 * (plain_attributes(a) == plain_attributes(b))
        mine, theirs = self.place(one), self.place(other)
        if mine and theirs:
            points += sum(0.75 for x, y in zip(mine, theirs, strict=True) if x and x == y)
        return points


THROUGH = 0.8
"""What a neighbour counts that is reached through something that is not matched: a conversion that was put between, for instance."""


def _shared(one: Site, other: Site) -> tuple[float, float]:
    """Which share of what two sites read, and of what reads them, is matched with each other."""
    mine, theirs = _above(one), _above(other)
    above = _overlap(mine, theirs) if mine or theirs else 0.5  # nothing speaks against it
    readers, others = _below(one), _below(other)
    below = _overlap(readers, others)
    if one.roots and one.roots == other.roots and not readers and not others:
        below = 1.0
    return above, below


def _overlap(mine: dict[Site, float], theirs: dict[Site, float]) -> float:
    there = {s.partner: weight for s, weight in theirs.items()}
    common = sum(min(weight, there[s]) for s, weight in mine.items() if s in there)
    return common / max(len(mine), len(theirs), 1)


def _above(site: Site) -> dict[Site, float]:
    """What a site reads, what is not matched and reads one array itself looked through."""
    found: dict[Site, float] = {}
    for source, _ in site.inputs:
        if source.partner is None and len(source.inputs) == 1:
            found.setdefault(source.inputs[0][0], THROUGH)
        else:
            found[source] = 1.0
    return found


def _below(site: Site) -> dict[Site, float]:
    """What reads a site, the same looked through."""
    found: dict[Site, float] = {}
    for user, _, _ in site.users:
        if user.partner is None and len(user.inputs) == 1 and user.users:
            for further, _, _ in user.users[:MOST]:
                found.setdefault(further, THROUGH)
        else:
            found[user] = 1.0
    return found


MOST = 64
"""Neighbours of one value that are looked at."""


def _candidates(one: Site, scope: Scope, most: int) -> list[Site]:
    """What is not matched and stands next to what the site's neighbours are, or one further."""
    found: dict[Site, None] = {}
    for number in one.roots[:most]:
        if number < len(scope.results) and scope.results[number][0].partner is None:
            found[scope.results[number][0]] = None
    for source in _above(one):
        twin = source.partner
        if twin is not None and len(twin.users) <= most:
            for user, _, _ in twin.users:
                if user.partner is None:
                    found[user] = None
                    if len(user.inputs) == 1:
                        found.update((u, None) for u, _, _ in user.users[:most] if u.partner is None)
    if len(one.users) <= most:
        for user in _below(one):
            twin = user.partner
            if twin is None:
                continue
            for source, _ in twin.inputs[:most]:
                if source.partner is None:
                    found[source] = None
                    if len(source.inputs) == 1 and source.inputs[0][0].partner is None:
                        found[source.inputs[0][0]] = None
    return list(found)
