"""Similarity of sites of two modules: opcode and shape, source line, and shared neighbours."""

from __future__ import annotations

from collections.abc import Iterable

from hlo_opt.analysis.graph.compare.flat import FlatSite, Scope
from hlo_opt.analysis.graph.spelling import plain_attributes
from hlo_opt.ir import Module
from hlo_opt.text.frames import source_location

LEAST = 5.0
"""The score from which two sites of one opcode count as the same site, changed."""

LEAST_RENAMED = 5.5
"""The score for sites of two opcodes; these must also share neighbours."""

Origin = tuple[str, ...]
"""The op_name and the source line of a site; empty where the dump has neither."""


class Similar:
    """Scores the similarity of sites of two modules."""

    def __init__(self, old: Module, new: Module) -> None:
        self._modules = (old, new)
        self._places: dict[int, Origin] = {}
        self._names = {id(c) for c in old.computations}

    def place(self, site: FlatSite) -> Origin:
        """The op_name and source line of a site; () where the dump has neither."""
        place = self._places.get(id(site))
        if place is None:
            instruction = site.instruction
            module = self._modules[0 if id(site.scope.computation) in self._names else 1]
            name, line = instruction.metadata.op_name, source_location(module, instruction)
            place = self._places[id(site)] = (name, line) if name or line else ()
        return place

    def best(self, sites: Iterable[FlatSite], scope: Scope, most: int) -> list[tuple[float, FlatSite, FlatSite]]:
        """Similar enough pairs, most similar first, of old sites and candidates in a new scope."""
        pairs = []
        for one in sites:
            for other in _candidates(one, scope, most):
                points = self._points(one, other)
                if points >= (LEAST if one.opcode == other.opcode else LEAST_RENAMED):
                    pairs.append((points, one, other))
        pairs.sort(key=lambda pair: (-pair[0], pair[1].index, pair[2].index))
        return pairs

    def _points(self, one: FlatSite, other: FlatSite) -> float:
        a, b = one.instruction, other.instruction
        above, below = _shared(one, other)
        points = 2.5 * above + 2.5 * below
        if a.opcode == b.opcode:
            points += 3
        elif min(above, below) <= 0:
            return 0.0
        if (a.parameter_number is None) != (b.parameter_number is None):
            return 0.0
        if not above and _are_of_others(one, other):
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
"""The weight of a neighbour reached through an unmatched site, such as an inserted conversion."""


def _shared(one: FlatSite, other: FlatSite) -> tuple[float, float]:
    """The matched share of what two sites read, and of what reads them."""
    mine, theirs = _above(one), _above(other)
    above = _overlap(mine, theirs) if mine or theirs else 0.5  # no evidence against it
    readers, others = _below(one), _below(other)
    below = _overlap(readers, others)
    if one.roots and one.roots == other.roots and not readers and not others:
        below = 1.0
    return above, below


def _are_of_others(one: FlatSite, other: FlatSite) -> bool:
    """Whether both read matched values alone, none in common, and have other dimensions: two values in one place, such
    as the operands of a product of which another one is converted now."""
    sources = [s for site in (one, other) for s, _ in site.inputs]
    shapes = [site.instruction.shape for site in (one, other)]
    is_matched = bool(one.inputs and other.inputs) and all(s.partner is not None for s in sources)
    return is_matched and all(s.is_array for s in shapes) and shapes[0].dimensions != shapes[1].dimensions


def _overlap(mine: dict[FlatSite, float], theirs: dict[FlatSite, float]) -> float:
    there = {s.partner: weight for s, weight in theirs.items()}
    common = sum(min(weight, there[s]) for s, weight in mine.items() if s in there)
    return common / max(len(mine), len(theirs), 1)


def _above(site: FlatSite) -> dict[FlatSite, float]:
    """The operands of a site, looking through unmatched sites with one input."""
    weights: dict[FlatSite, float] = {}
    for source, _ in site.inputs:
        if source.partner is None and len(source.inputs) == 1:
            weights.setdefault(source.inputs[0][0], THROUGH)
        else:
            weights[source] = 1.0
    return weights


def _below(site: FlatSite) -> dict[FlatSite, float]:
    """The users of a site, looking through unmatched sites with one input."""
    weights: dict[FlatSite, float] = {}
    for user, _, _ in site.users:
        if user.partner is None and len(user.inputs) == 1 and user.users:
            for further, _, _ in user.users[:MOST]:
                weights.setdefault(further, THROUGH)
        else:
            weights[user] = 1.0
    return weights


MOST = 64
"""The most neighbours of one value that are visited."""


def _candidates(one: FlatSite, scope: Scope, most: int) -> list[FlatSite]:
    """Unmatched sites next to the partners of the site's neighbours, or one step further."""
    candidates: dict[FlatSite, None] = {}
    for number in one.roots[:most]:
        if number < len(scope.results) and scope.results[number][0].partner is None:
            candidates[scope.results[number][0]] = None
    for source in _above(one):
        twin = source.partner
        if twin is not None and len(twin.users) <= most:
            for user, _, _ in twin.users:
                if user.partner is None:
                    candidates[user] = None
                    if len(user.inputs) == 1:
                        candidates.update((u, None) for u, _, _ in user.users[:most] if u.partner is None)
    if len(one.users) <= most:
        for user in _below(one):
            twin = user.partner
            if twin is None:
                continue
            for source, _ in twin.inputs[:most]:
                if source.partner is None:
                    candidates[source] = None
                    if len(source.inputs) == 1 and source.inputs[0][0].partner is None:
                        candidates[source.inputs[0][0]] = None
    return list(candidates)
