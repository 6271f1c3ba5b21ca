"""Matching of occurrences, on graphs of a few values, against trying every matching."""

from __future__ import annotations

import itertools
import random

import pytest

from hlo_opt.analysis.graph.occurrences import BUDGET, Matching, RootGraph, VisitBudget, match


class Toy:
    """Values by what they are and take; `o` begins what is an occurrence, `+` commutes, `?` waits for all but its first
    operand."""

    def __init__(self) -> None:
        self.heads: list[str] = []
        self.operands: list[tuple[int, ...]] = []
        self.waits: dict[int, tuple[int, ...]] = {}
        self.numbers: dict[tuple[str, tuple[int, ...]], int] = {}

    def add(self, head: str, *operands: int, waits: tuple[int, ...] = ()) -> int:
        """The number of a value: a new one for an occurrence, and for what was not there yet."""
        known = self.numbers.get((head, operands))
        if known is not None and not head.startswith("o"):
            return known
        made = self.numbers[head, operands] = len(self.heads)
        self.heads.append(head)
        self.operands.append(operands)
        if waits:
            self.waits[made] = waits
        return made

    def head(self, number: int) -> int:
        return sum(ord(c) * 31**k for k, c in enumerate(self.heads[number]))

    def commutes(self, number: int) -> bool:
        return self.heads[number] == "+"

    def part(self, lines: str) -> RootGraph:
        """Lines `name = head operands [waits names]`; the last is the root. `p` is a value that both parts share."""
        if not self.heads:
            self.add("p")
        known, occurrences = {"p": 0}, []
        for line in filter(None, map(str.strip, lines.split(";"))):
            name, _, rest = line.partition(" = ")
            taken, _, waits = rest.partition(" waits ")
            head, *operands = taken.split()
            number = known[name] = self.add(
                head, *[known[o] for o in operands], waits=tuple(known[w] for w in waits.split())
            )
            if head.startswith("o"):
                occurrences.append(number)
        return RootGraph(number, occurrences)


def matched(one: str, other: str, budget: int = BUDGET) -> tuple[Matching, int]:
    """What came of it, and the values that were looked at."""
    toy = Toy()
    left, right = toy.part(one), toy.part(other)
    spare = VisitBudget(budget)
    found = match(toy, left, right, spare)
    if found.pairs is not None:
        assert holds(toy, left, right, found.pairs)
    return found, budget - spare.left


def holds(toy: Toy, one: RootGraph, other: RootGraph, pairs: dict[int, int]) -> bool:
    """Whether the parts are the same with each occurrence of one in the place of that of the other."""
    numbers: dict[object, int] = {}

    def all_of(part: RootGraph, names: dict[int, int]) -> dict[int, int]:
        found: dict[int, int] = {}
        for number in range(max(part.root, *part.occurrences) + 1):
            operands = [found[o] for o in toy.operands[number]]
            what = (toy.heads[number], tuple(sorted(operands) if toy.commutes(number) else operands))
            waits = tuple(sorted(found[w] for w in toy.waits.get(number, ())))
            found[number] = numbers.setdefault((*what, waits, names.get(number)), len(numbers))
        return found

    left = all_of(one, {a: k for k, a in enumerate(pairs)})
    right = all_of(other, {b: k for k, b in enumerate(pairs.values())})
    return left[one.root] == right[other.root] and all(left[a] == right[b] for a, b in pairs.items())


def tried(toy: Toy, one: RootGraph, other: RootGraph) -> bool:
    """Whether any matching holds."""
    if len(one.occurrences) != len(other.occurrences):
        return False
    orders = itertools.permutations(other.occurrences)
    return any(holds(toy, one, other, dict(zip(one.occurrences, order, strict=True))) for order in orders)


TWO = "a = o p; b = o p; "
MANY = TWO + "c = o p; d = o p; "
SAME = [
    (TWO + "r = - a b", TWO + "r = - a b"),
    (TWO + "r = - a b", TWO + "r = - b a"),
    (TWO + "r = + a b", TWO + "r = + b a"),
    (TWO + "x = n a; r = - x b", TWO + "x = n b; r = - x a"),
    ("a = o p; b = o a; r = n b", "a = o p; b = o a; r = n b"),
    ("a = o p; b = q p; r = - a b", "b = q p; a = o p; r = - a b"),
    (TWO + "c = o p waits a; r = t c b", TWO + "c = o p waits b; r = t c a"),
    (TWO + "c = o p waits a b; r = n c", TWO + "c = o p waits b a; r = n c"),
    (TWO + "c = oo a; d = oo b; r = n c", TWO + "c = oo b; d = oo a; r = n c"),
    (TWO + "c = oo a; d = oo b; r = n c", TWO + "c = oo a; d = oo b; r = n d"),
    ("a = o p; r = n a", "a = o p; r = n a"),
    ("a = o p; r = n p", "a = o p; r = n p"),
    ("a = o p; x = n a; c = o p waits x; r = m c", "a = o p; x = n a; c = o p waits x; r = m c"),
    (TWO + "x = n a; c = oo p waits x; r = m c", TWO + "x = n b; c = oo p waits x; r = m c"),
]
DIFFERENT = [
    (TWO + "r = - a b", TWO + "r = - a a"),
    (TWO + "r = - a b", "a = o p; r = - a a"),
    (TWO + "r = n a", "a = o p; r = n a"),
    (TWO + "r = - a b", TWO + "r = + a b"),
    ("a = o p; r = n a", "a = oo p; r = n a"),
    ("a = o p; b = o a; r = n b", "a = o p; b = o p; r = n b"),
    (TWO + "c = o p waits a; r = t c b", TWO + "c = o p waits a; r = t c a"),
    (TWO + "c = o p waits a b; r = n c", TWO + "c = o p waits b; r = n c"),
    (TWO + "c = o p waits a; r = n c", TWO + "c = o a; r = n c"),
    (TWO + "c = oo a; d = oo b; r = n c", TWO + "c = oo a; d = oo a; r = n c"),
    (TWO + "x = n a; y = m b; r = - x y", TWO + "x = n a; y = m a; r = - x y"),
    ("a = o p; r = n p", "a = o p; r = m p"),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_what_is_the_same(one: str, other: str):
    for found in (matched(one, other)[0], matched(other, one)[0]):
        assert found.pairs is not None and not found.is_open
        assert not found.one and not found.other


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_what_is_not(one: str, other: str):
    for found in (matched(one, other)[0], matched(other, one)[0]):
        assert found.pairs is None and not found.is_open


def text(edges: list[tuple[int, int]], count: int, head: str, last: str) -> str:
    draws = "".join(f"d{k} = o p; " for k in range(count))
    return draws + "".join(f"m{k} = {head} d{a} d{b}; e{k} = ou m{k}; " for k, (a, b) in enumerate(edges)) + last


@pytest.mark.parametrize("seed", range(40))
def test_random_graphs_against_trying_all(seed: int):
    """Draws that meet in pairs, renamed and put in another order, and with one meeting changed."""
    choice = random.Random(seed)
    count = choice.randint(2, 5)
    edges = [(choice.randrange(count), choice.randrange(count)) for _ in range(choice.randint(1, 5))]
    head = choice.choice("+-")
    last = f"r = n {choice.choice(['p', 'd0', 'm0'])}"
    names = choice.sample(range(count), count)
    mapped = [(names[a], names[b]) for a, b in edges]
    order = [mapped[0], *choice.sample(mapped[1:], len(mapped) - 1)]
    assert (
        matched(text(edges, count, head, last), text(order, count, head, last.replace("d0", f"d{names[0]}")))[0].pairs
        is not None
    )
    changed = list(order)
    changed[-1] = (choice.randrange(count), choice.randrange(count))
    toy = Toy()
    one, other = toy.part(text(edges, count, head, last)), toy.part(text(changed, count, head, last))
    if len(one.occurrences) < 8:
        assert (match(toy, one, other, VisitBudget()).pairs is not None) == tried(toy, one, other)


RING = text([(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 0)], 6, "+", "r = n p")
SHUFFLED = text([(4, 2), (3, 1), (0, 5), (1, 4), (5, 3), (0, 2)], 6, "+", "r = n p")
TRIANGLES = text([(0, 1), (1, 2), (2, 0), (3, 4), (4, 5), (5, 3)], 6, "+", "r = n p")
CHAIN = "a = o p; " + "".join(f"x{k} = - {'a a' if not k else f'x{k - 1} x{k - 1}'}; " for k in range(60)) + "r = n x59"


@pytest.mark.parametrize(
    ("one", "other", "looks"),
    [
        (TWO + "r = - a b", TWO + "r = - a b", 12),
        (TWO + "r = - a b", TWO + "r = - b a", 48),
        (TWO + "r = - a b", TWO + "r = - a a", 30),
        ("a = o p; b = oo p; r = - a b", "b = oo p; a = o p; r = - a b", 12),
        (
            TWO + "c = o p waits a; d = o p waits a; r = t c b d",
            TWO + "c = o p waits b; d = o p waits b; r = t c a d",
            80,
        ),
        (TWO + "c = oo p waits a; r = n c", TWO + "c = oo p waits b; r = n c", 64),
        (MANY + "x = - a b; y = - c d; r = t x y", MANY + "x = - a c; y = - b d; r = t x y", 112),
        (MANY + "x = - a b; y = - c d; r = + x y", MANY + "x = - b a; y = - d c; r = + x y", 112),
        (MANY + "x = + a b; y = + c d; r = t x y", MANY + "x = + d b; y = + c a; r = t x y", 112),
        ("x = n p; y = n x; a = o y; r = n a", "x = n p; y = n x; a = o y; r = n a", 8),
        (CHAIN, CHAIN, 248),
        (RING, RING, 72),
        (RING, SHUFFLED, 1188),
        (RING, TRIANGLES, 1728),
        (TRIANGLES, RING, 1728),
    ],
)
def test_it_looks_no_more_often_than_it_must(one: str, other: str, looks: int):
    assert matched(one, other)[1] == looks


def test_the_budget_ends_the_search():
    found, spent = matched(RING, TRIANGLES)
    assert found.pairs is None and not found.is_open
    assert matched(RING, TRIANGLES, budget=spent)[0].is_open
    short, used = matched(RING, TRIANGLES, budget=1)
    assert short.pairs is None and short.is_open
    assert used < spent
    assert not matched(RING, TRIANGLES, budget=spent + 1)[0].is_open
    assert matched(RING, SHUFFLED, budget=1)[0].is_open


def test_colours_say_what_values_are_made_of():
    toy = Toy()
    one, other = toy.part(TWO + "r = - a b"), toy.part(TWO + "r = - a a")
    found = match(toy, one, other, VisitBudget())
    assert found.one[one.root] == found.other[other.root]
    assert {found.one[o] for o in one.occurrences} == {found.other[o] for o in other.occurrences}
    assert 0 not in found.one and 0 not in found.other


def test_a_part_without_occurrences_hangs_on_none():
    toy = Toy()
    one, other = toy.part("r = n p"), toy.part("a = o p; r = n a")
    found = match(toy, one, other, VisitBudget())
    assert found.pairs is None and not found.one and set(found.other) == {*other.occurrences, other.root}
