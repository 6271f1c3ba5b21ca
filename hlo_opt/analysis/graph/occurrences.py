"""Whether two graphs of values are the same up to which of their occurrences stands for which.

An occurrence is a value of its own: a side effect each time that it happens, and what waits for a control dependency. No two have the same number,
so values that hang on occurrences have other numbers in each graph. Two graphs are the same when their occurrences can be matched one to one such
that every occurrence does the same to matched operands, waits for matched values, and the roots match.

That is an isomorphism of small graphs. Colours are refined from both ends: by what a value is made of and waits for, and by who uses it. Occurrences
that stay tied are matched in their order; where that fails, a tied one is singled out and tried against each of its colour
(B. McKay and A. Piperno, Practical graph isomorphism II, 2014), up to a budget. What is not matched then counts as different.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

BUDGET = 5_000_000
"""Values that all matchings of one table may look at."""


class Graph(Protocol):
    """Values by number. Operands, and what is waited for, have smaller numbers."""

    operands: list[tuple[int, ...]]
    waits: dict[int, tuple[int, ...]]
    """What an occurrence waits for besides its operands."""

    def head(self, number: int) -> int:
        """What a value is but for its operands: the same number for the same."""

    def commutes(self, number: int) -> bool:
        """Whether the order of the value's operands does not count."""


@dataclass(frozen=True)
class Part:
    """A value with all that it is made of, and all that happens besides: occurrences in the order in which they stand in the text."""

    root: int
    occurrences: Sequence[int]


@dataclass
class Budget:
    """How many values may still be looked at."""

    left: int = BUDGET

    @property
    def is_over(self) -> bool:
        return self.left <= 0


@dataclass
class Matching:
    """What came of matching two parts. `one` and `other` have the colours of values that hang on occurrences, which say what these are made of: the same in
    both, as far as anybody could tell. Any other value is coloured by its number. Empty where a matching was found."""

    pairs: dict[int, int] | None
    """For each occurrence of the first part that of the other; None when there is no such matching, or none was found."""
    one: dict[int, int]
    other: dict[int, int]
    is_open: bool
    """Whether the budget ended before the search did."""


def match(graph: Graph, one: Part, other: Part, budget: Budget) -> Matching:
    """A matching of the occurrences of two parts of a graph. Takes two looks at each value that hangs on an occurrence where equal occurrences keep their order."""
    search = _Search(graph, _View(graph, one), _View(graph, other), budget)
    seeds = dict.fromkeys(one.occurrences, 0), dict.fromkeys(other.occurrences, 0)
    pairs = search.tried(seeds)
    return Matching(pairs, *search.down(seeds), budget.is_over) if pairs is None else Matching(pairs, {}, {}, False)


class _View:
    """The values of a part that hang on its occurrences, operands first, and who uses them."""

    def __init__(self, graph: Graph, part: Part) -> None:
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
        hanging = set(part.occurrences)
        self.values: list[int] = []
        self.users: dict[int, list[tuple[int, int]]] = {}
        """Each user with the place that it takes the value at: the first where places do not count, one behind the last where it waits."""
        for number in sorted(reached):
            operands = graph.operands[number]
            if number not in hanging and hanging.isdisjoint(operands):
                continue
            hanging.add(number)
            self.values.append(number)
            commutes = graph.commutes(number)
            for place, operand in enumerate(operands):
                self.users.setdefault(operand, []).append((number, 0 if commutes else place))
            for needed in graph.waits.get(number, ()):
                self.users.setdefault(needed, []).append((number, len(operands)))


Seeds = tuple[dict[int, int], dict[int, int]]
"""What tells the occurrences of each of the two parts apart so far."""


class _Search:
    """The colouring of two parts with one set of colours."""

    def __init__(self, graph: Graph, one: _View, other: _View, budget: Budget) -> None:
        self.graph = graph
        self.views = one, other
        self.budget = budget
        self.colours: dict[tuple[object, ...], int] = {}

    def colour(self, what: tuple[object, ...]) -> int:
        return self.colours.setdefault(what, len(self.colours))

    def down(self, seeds: Seeds) -> Seeds:
        """Each value by what it is made of and waits for, an occurrence by its seed, too."""
        return self._down(self.views[0], seeds[0]), self._down(self.views[1], seeds[1])

    def _down(self, view: _View, seeds: dict[int, int]) -> dict[int, int]:
        graph = self.graph
        found: dict[int, int] = {}
        self.budget.left -= len(view.values)
        for number in view.values:
            operands = [found.get(o, ~o) for o in graph.operands[number]]
            if graph.commutes(number):
                operands.sort()
            waits = sorted([found.get(w, ~w) for w in graph.waits.get(number, ())])
            found[number] = self.colour((graph.head(number), seeds.get(number), tuple(operands), tuple(waits)))
        return found

    def _up(self, view: _View, down: dict[int, int]) -> dict[int, int]:
        """Each value by who uses it."""
        found: dict[int, int] = {}
        self.budget.left -= len(view.values)
        for number in reversed(view.values):
            users = sorted([(found[user], place) for user, place in view.users.get(number, ())])
            found[number] = self.colour((down[number], *users))
        return found

    def alike(self, colours: Seeds) -> bool:
        """Whether both parts have as many occurrences of each colour, and roots of the same."""
        roots = [c.get(view.part.root, ~view.part.root) for c, view in zip(colours, self.views, strict=True)]
        counts = [Counter([c[o] for o in view.part.occurrences]) for c, view in zip(colours, self.views, strict=True)]
        return roots[0] == roots[1] and counts[0] == counts[1]

    def refined(self, seeds: Seeds) -> Seeds | None:
        """Seeds that tell apart what two looks at all values tell apart; None when the parts turn out to differ."""
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
        """The matching of equally coloured occurrences in their order, if it is one."""
        waiting: dict[int, list[int]] = {}
        for occurrence in reversed(self.views[1].part.occurrences):
            waiting.setdefault(colours[1][occurrence], []).append(occurrence)
        pairs = {o: waiting[colours[0][o]].pop() for o in self.views[0].part.occurrences}
        return pairs if self._holds(pairs) else None

    def _holds(self, pairs: dict[int, int]) -> bool:
        """Whether the graphs are the same under a matching: with a seed of its own for each pair, colours are numbers of values."""
        ours = {one: k for k, one in enumerate(pairs)}
        theirs = {other: k for k, other in enumerate(pairs.values())}
        return self.alike(self.down((ours, theirs)))

    def tried(self, seeds: Seeds) -> dict[int, int] | None:
        """Search for a matching: in order, and then with tied occurrences singled out."""
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
        """All occurrences of a colour in their order, which is quick where they are alike; then the first against each of the other part."""
        ours, theirs = ([o for o, colour in part.items() if colour == tied] for part in seeds)
        first, *_ = ours
        singles = [~k for k in range(len(ours))]  # no colour is below zero
        yield seeds[0] | dict(zip(ours, singles, strict=True)), seeds[1] | dict(zip(theirs, singles, strict=True))
        for candidate in theirs:
            yield {**seeds[0], first: singles[0]}, {**seeds[1], candidate: singles[0]}


def _kinds(seeds: Seeds) -> int:
    """How many kinds the occurrences are told apart into; as many in both parts."""
    return len(set(seeds[0].values()))


def _first_tie(colours: dict[int, int]) -> int:
    """A colour that several occurrences share. There is one: where none did, their matching in order would be the only one, and have been found."""
    return next(colour for colour, count in Counter(colours.values()).items() if count > 1)
