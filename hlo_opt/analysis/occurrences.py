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
from dataclasses import dataclass, field
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


Colours = dict[int, int]
"""The colours of values that hang on occurrences. Any other is coloured by its number."""


@dataclass
class Matching:
    """What came of matching two parts. `one` and `other` have colours that say what a value is made of: the same in both, as far as anybody could tell."""

    pairs: dict[int, int] | None
    """For each occurrence of the first part that of the other; None when there is no such matching, or none was found."""
    one: Colours = field(default_factory=dict)
    other: Colours = field(default_factory=dict)
    is_open: bool = False
    """Whether the budget ended before the search did."""


class Budget:
    """How many values may still be looked at."""

    def __init__(self) -> None:
        self.left = BUDGET


def match(graph: Graph, one: Part, other: Part, budget: Budget) -> Matching:
    """A matching of the occurrences of two parts of a graph. Takes two looks at each value that hangs on an occurrence where equal occurrences keep their order."""
    search = _Search(graph, _View(graph, one), _View(graph, other), budget)
    seeds: tuple[Colours, Colours] = (dict.fromkeys(one.occurrences, 0), dict.fromkeys(other.occurrences, 0))
    colours = search.down(seeds)
    if not _alike(colours, one, other):
        return Matching(None, *colours)
    pairs = search.in_order(colours) or search.tried(seeds)
    return Matching(pairs, *colours, is_open=pairs is None and budget.left <= 0)


def _alike(colours: tuple[Colours, Colours], one: Part, other: Part) -> bool:
    """Whether both have as many occurrences of each colour, and roots of the same."""
    left, right = colours
    if left.get(one.root, ~one.root) != right.get(other.root, ~other.root):
        return False
    return Counter([left[o] for o in one.occurrences]) == Counter([right[o] for o in other.occurrences])


class _View:
    """The values of a part that hang on its occurrences, operands first, and who uses them."""

    def __init__(self, graph: Graph, part: Part) -> None:
        self.part = part
        first = min(part.occurrences, default=part.root + 1)
        seen: set[int] = set()
        stack = [part.root, *part.occurrences]
        while stack:
            number = stack.pop()
            if number < first or number in seen:
                continue
            seen.add(number)
            stack.extend(graph.operands[number])
            stack.extend(graph.waits.get(number, ()))
        hanging: set[int] = set(part.occurrences)
        self.values: list[int] = []
        self.users: dict[int, list[tuple[int, int]]] = {}
        """Each user with the place that it takes the value at: -1 where places do not count, -2 where it waits."""
        for number in sorted(seen):
            operands, waits = graph.operands[number], graph.waits.get(number, ())
            if number not in hanging and hanging.isdisjoint(operands):
                continue
            hanging.add(number)
            self.values.append(number)
            commutes = graph.commutes(number)
            for place, operand in enumerate(operands):
                if operand in hanging:
                    self.users.setdefault(operand, []).append((number, -1 if commutes else place))
            for needed in waits:
                if needed in hanging:
                    self.users.setdefault(needed, []).append((number, -2))


class _Search:
    """The colouring of two parts with one set of colours."""

    def __init__(self, graph: Graph, one: _View, other: _View, budget: Budget) -> None:
        self.graph = graph
        self.views = one, other
        self.budget = budget
        self.colours: dict[tuple[object, ...], int] = {}

    def colour(self, *what: object) -> int:
        return self.colours.setdefault(what, len(self.colours))

    def down(self, seeds: tuple[Colours, Colours]) -> tuple[Colours, Colours]:
        """Each value by what it is made of and waits for, an occurrence by its seed, too."""
        return self._down(self.views[0], seeds[0]), self._down(self.views[1], seeds[1])

    def _down(self, view: _View, seeds: Colours) -> Colours:
        graph, found = self.graph, Colours()
        self.budget.left -= len(view.values)
        for number in view.values:
            operands = [found.get(o, ~o) for o in graph.operands[number]]
            if graph.commutes(number):
                operands.sort()
            waits = sorted([found.get(w, ~w) for w in graph.waits.get(number, ())])
            found[number] = self.colour(graph.head(number), seeds.get(number), *operands, None, *waits)
        return found

    def _up(self, view: _View, down: Colours) -> Colours:
        """Each value by who uses it."""
        found: Colours = {}
        self.budget.left -= len(view.values)
        for number in reversed(view.values):
            users = sorted([(found[user], place) for user, place in view.users.get(number, ())])
            found[number] = self.colour("up", down[number], number == view.part.root, *users)
        return found

    def refined(self, seeds: tuple[Colours, Colours]) -> tuple[Colours, Colours] | None:
        """Seeds that tell apart what two looks at all values tell apart; None when the parts turn out to differ."""
        count = 0
        while self.budget.left > 0:
            downs = self.down(seeds)
            if not _alike(downs, self.views[0].part, self.views[1].part):
                return None
            ups = tuple([self._up(view, down) for view, down in zip(self.views, downs, strict=True)])
            made = [{o: up[o] for o in view.part.occurrences} for view, up in zip(self.views, ups, strict=True)]
            if Counter(made[0].values()) != Counter(made[1].values()):
                return None
            seeds = made[0], made[1]
            now = len(set(made[0].values()))
            if now == count:
                return seeds
            count = now
        return None

    def in_order(self, colours: tuple[Colours, Colours]) -> dict[int, int] | None:
        """The matching of equally coloured occurrences in their order, if it is one."""
        waiting: dict[int, list[int]] = {}
        for occurrence in reversed(self.views[1].part.occurrences):
            waiting.setdefault(colours[1][occurrence], []).append(occurrence)
        pairs = {o: waiting[colours[0][o]].pop() for o in self.views[0].part.occurrences}
        return pairs if self._holds(pairs) else None

    def _holds(self, pairs: dict[int, int]) -> bool:
        """Whether the graphs are the same under a matching: with a seed of its own for each pair, colours are numbers of values."""
        left = {one: -1 - k for k, one in enumerate(pairs)}
        right = {other: -1 - k for k, other in enumerate(pairs.values())}
        one, other = self.down((left, right))
        roots = [c.get(v.part.root, ~v.part.root) for c, v in zip((one, other), self.views, strict=True)]
        return roots[0] == roots[1] and all(one[a] == other[b] for a, b in pairs.items())

    def tried(self, seeds: tuple[Colours, Colours]) -> dict[int, int] | None:
        """Search for a matching, singling out tied occurrences."""
        stack: list[Iterator[tuple[Colours, Colours]]] = [iter([seeds])]
        while stack and self.budget.left > 0:
            state = next(stack[-1], None)
            if state is None:
                stack.pop()
                continue
            refined = self.refined(state)
            if refined is None:
                continue
            pairs = self.in_order(refined)
            if pairs is not None:
                return pairs
            tied = _smallest_tie(refined[0])
            if tied is not None:
                stack.append(self._singled_out(refined, tied))
        return None

    def _singled_out(self, seeds: tuple[Colours, Colours], tied: int) -> Iterator[tuple[Colours, Colours]]:
        """All occurrences of a colour in their order, which is quick where they are alike; then the first against each of the other part."""
        ours, theirs = ([o for o, colour in part.items() if colour == tied] for part in seeds)
        singles = [self.colour("single", tied, k) for k in range(len(ours))]
        yield seeds[0] | dict(zip(ours, singles, strict=True)), seeds[1] | dict(zip(theirs, singles, strict=True))
        for candidate in theirs:
            yield {**seeds[0], ours[0]: singles[0]}, {**seeds[1], candidate: singles[0]}


def _smallest_tie(colours: Colours) -> int | None:
    """The colour that the fewest occurrences share, the first of equals; None when none does."""
    counts = Counter(colours.values())
    return min((c for c in counts if counts[c] > 1), key=lambda c: (counts[c], c), default=None)
