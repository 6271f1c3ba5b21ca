"""Whether two graphs of values are equal up to a matching of their occurrences.

An occurrence is a value of its own: a side effect, each time it happens, or a value with a control dependency. Values
that depend on occurrences have different numbers in each graph. Two graphs are equal when their occurrences can be
matched one to one, such that each has matching operands, control predecessors and effect, and the roots match.

This is an isomorphism of small graphs. Colours are refined from both ends: by operands and predecessors, and by users.
Occurrences that remain tied are matched in order. Where that fails, a tied one is individualised and tried against each
of its colour (B. McKay and A. Piperno, Practical graph isomorphism II, 2014), within a budget. Beyond it the graphs
count as different.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

BUDGET = 5_000_000
"""The most values that all matchings of one table may visit."""


class ValueGraph(Protocol):
    """Values by number. Operands and control predecessors have smaller numbers."""

    operands: list[tuple[int, ...]]
    waits: dict[int, tuple[int, ...]]
    """Control predecessors of an occurrence besides its operands."""

    def head(self, number: int) -> int:
        """The number of a value's key without operands: equal for equal keys."""

    def commutes(self, number: int) -> bool:
        """Whether the order of the value's operands is irrelevant."""


@dataclass(frozen=True)
class RootGraph:
    """A root value and the occurrences of its graph, in text order."""

    root: int
    occurrences: Sequence[int]


@dataclass
class VisitBudget:
    """The number of values that may still be visited."""

    left: int = BUDGET

    @property
    def is_over(self) -> bool:
        return self.left <= 0


@dataclass
class Matching:
    """The result of matching two parts.

    `one` and `other` are the colours of values that depend on occurrences: equal colours were not told apart. Other
    values are coloured by their number. Both are empty when a matching was found.
    """

    pairs: dict[int, int] | None
    """The first part's occurrences to the second's; None when there is no matching, or none was found."""
    one: dict[int, int]
    other: dict[int, int]
    is_open: bool
    """Whether the budget ran out during the search."""


def match(graph: ValueGraph, one: RootGraph, other: RootGraph, budget: VisitBudget) -> Matching:
    """Match the occurrences of two parts. Visits each dependent value twice where equal occurrences keep their
    order."""
    search = _Search(graph, _View(graph, one), _View(graph, other), budget)
    seeds = dict.fromkeys(one.occurrences, 0), dict.fromkeys(other.occurrences, 0)
    pairs = search.matching(seeds)
    return Matching(pairs, *search.down(seeds), budget.is_over) if pairs is None else Matching(pairs, {}, {}, False)


class _View:
    """The values of a part that depend on its occurrences, operands first, and their users."""

    def __init__(self, graph: ValueGraph, part: RootGraph) -> None:
        self.part = part
        reached: set[int] = set()
        stack = [part.root, *part.occurrences]
        first = min(stack)
        while stack:
            number = stack.pop()
            if number >= first and number not in reached:
                reached.add(number)
                stack.extend(graph.operands[number])
                stack.extend(graph.waits.get(number, ()))
        dependent = set(part.occurrences)
        self.values: list[int] = []
        self.users: dict[int, list[tuple[int, int]]] = {}
        """(user, operand position) pairs: position 0 where order is irrelevant, one past the last for control
        predecessors."""
        for number in sorted(reached):
            operands = graph.operands[number]
            if number not in dependent and dependent.isdisjoint(operands):
                continue
            dependent.add(number)
            self.values.append(number)
            commutes = graph.commutes(number)
            for place, operand in enumerate(operands):
                self.users.setdefault(operand, []).append((number, 0 if commutes else place))
            for needed in graph.waits.get(number, ()):
                self.users.setdefault(needed, []).append((number, len(operands)))


Seeds = tuple[dict[int, int], dict[int, int]]
"""The colours that distinguish the occurrences of each part so far."""


class _Search:
    """The search for a matching, with one set of colours for both parts."""

    def __init__(self, graph: ValueGraph, one: _View, other: _View, budget: VisitBudget) -> None:
        self.graph = graph
        self.views = one, other
        self.budget = budget
        self.colours: dict[tuple[object, ...], int] = {}

    def colour(self, what: tuple[object, ...]) -> int:
        return self.colours.setdefault(what, len(self.colours))

    def down(self, seeds: Seeds) -> Seeds:
        """Colour values by operands and control predecessors; occurrences also by seed."""
        return self._down(self.views[0], seeds[0]), self._down(self.views[1], seeds[1])

    def _down(self, view: _View, seeds: dict[int, int]) -> dict[int, int]:
        graph = self.graph
        colours: dict[int, int] = {}
        self.budget.left -= len(view.values)
        for number in view.values:
            operands = [colours.get(o, ~o) for o in graph.operands[number]]
            if graph.commutes(number):
                operands.sort()
            waits = sorted([colours.get(w, ~w) for w in graph.waits.get(number, ())])
            colours[number] = self.colour((graph.head(number), seeds.get(number), tuple(operands), tuple(waits)))
        return colours

    def _up(self, view: _View, down: dict[int, int]) -> dict[int, int]:
        """Colour values by users."""
        colours: dict[int, int] = {}
        self.budget.left -= len(view.values)
        for number in reversed(view.values):
            users = sorted([(colours[user], place) for user, place in view.users.get(number, ())])
            colours[number] = self.colour((down[number], *users))
        return colours

    def alike(self, colours: Seeds) -> bool:
        """Whether both parts have equally many occurrences of each colour, and equally coloured roots."""
        roots = [c.get(view.part.root, ~view.part.root) for c, view in zip(colours, self.views, strict=True)]
        counts = [Counter([c[o] for o in view.part.occurrences]) for c, view in zip(colours, self.views, strict=True)]
        return roots[0] == roots[1] and counts[0] == counts[1]

    def refined(self, seeds: Seeds) -> Seeds | None:
        """Refine seeds from both ends until stable; None when the parts turn out to differ."""
        while True:
            downs = self.down(seeds)
            ups = [self._up(view, down) for view, down in zip(self.views, downs, strict=True)]
            one, other = ({o: up[o] for o in view.part.occurrences} for view, up in zip(self.views, ups, strict=True))
            if Counter(one.values()) != Counter(other.values()):
                return None
            known, seeds = _kinds(seeds), (one, other)
            if _kinds(seeds) == known:
                return seeds

    def in_order(self, colours: Seeds) -> dict[int, int] | None:
        """The matching of equally coloured occurrences in order, if it is valid."""
        waiting: dict[int, list[int]] = {}
        for occurrence in reversed(self.views[1].part.occurrences):
            waiting.setdefault(colours[1][occurrence], []).append(occurrence)
        pairs = {o: waiting[colours[0][o]].pop() for o in self.views[0].part.occurrences}
        return pairs if self._holds(pairs) else None

    def _holds(self, pairs: dict[int, int]) -> bool:
        """Whether a matching is valid: with unique seeds per pair, colours are value numbers."""
        ours = {one: k for k, one in enumerate(pairs)}
        theirs = {other: k for k, other in enumerate(pairs.values())}
        return self.alike(self.down((ours, theirs)))

    def matching(self, seeds: Seeds) -> dict[int, int] | None:
        """Search for a matching: in order, then with tied occurrences individualised."""
        stack: list[Iterator[Seeds]] = [iter([seeds])]
        while stack and not self.budget.is_over:
            state = next(stack[-1], None)
            if state is None:
                stack.pop()
                continue
            colours = self.down(state)
            if not self.alike(colours):
                continue
            pairs = self.in_order(colours)
            if pairs is not None:
                return pairs
            refined = self.refined(state)
            if refined is None:
                continue
            if _kinds(refined) > _kinds(state):
                stack.append(iter([refined]))
                continue
            stack.append(self._singled_out(refined, _first_tie(refined[0])))
        return None

    def _singled_out(self, seeds: Seeds, tied: int) -> Iterator[Seeds]:
        """All occurrences of a colour in order, which is fast where they are alike; then the first against each of the
        other part."""
        ours, theirs = ([o for o, colour in part.items() if colour == tied] for part in seeds)
        first, *_ = ours
        singles = [~k for k in range(len(ours))]  # ordinary colours are non-negative
        yield seeds[0] | dict(zip(ours, singles, strict=True)), seeds[1] | dict(zip(theirs, singles, strict=True))
        for candidate in theirs:
            yield {**seeds[0], first: singles[0]}, {**seeds[1], candidate: singles[0]}


def _kinds(seeds: Seeds) -> int:
    """The number of distinct colours of the occurrences, equal in both parts."""
    return len(set(seeds[0].values()))


def _first_tie(colours: dict[int, int]) -> int:
    """A colour that several occurrences share. It exists: otherwise matching in order would have been the only one, and
    failed."""
    return next(colour for colour, count in Counter(colours.values()).items() if count > 1)
