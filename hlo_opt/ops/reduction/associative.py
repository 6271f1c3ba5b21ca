"""Proves that a combination of two elements is associative, and finds its neutral element.

An element is a tuple of numbers. f(f(x, y), z) and f(x, f(y, z)) are expanded, each component to a normal form: the
largest, the smallest, or the logarithm of the sum of exponentials, of polynomials in the components. Where both are
equal the combination is associative: in real numbers, so for floats up to rounding, as for `reduce`; for integers,
whose sums and products wrap, exactly. Predicates have no normal form: all their values are tried. A combination that
this file cannot expand is not said to be associative.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TypeAlias

from hlo_opt.ir import ElementType, Instruction
from hlo_opt.ops.reduction.reducers import MONOIDS, identity
from hlo_opt.ops.reduction.scan_tree import Combination, Leaf, number_of

Monomial: TypeAlias = tuple[tuple[int, int], ...]
"""Atoms of a product, sorted. An atom is an element (0, 1, 2) and a component."""
Polynomial: TypeAlias = frozenset[tuple[Monomial, Fraction]]
_MOST_TERMS = 200
_MOST_PREDICATES = 9
_MOST_TRIED = 1024  # candidates for a neutral element


class UnknownError(Exception):
    """A value has no normal form here."""


@dataclass(frozen=True)
class Number:
    """`fold` ("maximum", "minimum", "log-sum", or "" for a single one) of polynomials; each of a log-sum as often as it
    is said. Without polynomials it is the neutral element of the fold, an infinity."""

    fold: str
    of: tuple[Polynomial, ...]

    @classmethod
    def folded(cls, fold: str, of: Sequence[Polynomial]) -> Number:
        """The normal form."""
        counts = Counter(of) if fold == "log-sum" else Counter(set(of))
        if counts.total() > _MOST_TERMS or any(len(p) > _MOST_TERMS for p in counts):
            raise UnknownError
        listed = sorted(counts.elements(), key=lambda p: sorted(p))
        return cls(fold if len(listed) != 1 else "", tuple(listed))

    @property
    def single(self) -> Polynomial:
        """The polynomial. Raises UnknownError where there is none or several."""
        if self.fold:
            raise UnknownError
        return self.of[0]


Value: TypeAlias = Number | bool


def _polynomial(terms: Mapping[Monomial, Fraction]) -> Polynomial:
    return frozenset((m, c) for m, c in terms.items() if c)


def _number(value: Fraction) -> Number:
    return Number("", (_polynomial({(): value}),))


def _atom(element: int, component: int) -> Number:
    return Number("", (_polynomial({((element, component),): Fraction(1)}),))


def _sum(p: Polynomial, q: Polynomial) -> Polynomial:
    terms = dict(p)
    for monomial, factor in q:
        terms[monomial] = terms.get(monomial, Fraction(0)) + factor
    return _polynomial(terms)


def _product(p: Polynomial, q: Polynomial) -> Polynomial:
    if len(p) * len(q) > _MOST_TERMS:
        raise UnknownError
    terms: dict[Monomial, Fraction] = {}
    for (m, a), (n, b) in itertools.product(p, q):
        monomial = tuple(sorted(m + n))
        terms[monomial] = terms.get(monomial, Fraction(0)) + a * b
    return _polynomial(terms)


@dataclass
class _Expansion:
    """Expands values; `wraps` says that sums and products of their numbers are modulo a power of two. `lost` are the
    atoms that only disappear because they are multiplied by zero, or added to an infinity."""

    wraps: bool
    lost: set[tuple[int, int]] = field(default_factory=set)

    def add(self, a: Number, b: Number) -> Number:
        fold = self._common(a, b)
        if fold and self.wraps:
            raise UnknownError  # a sum that wraps is not monotonous
        if not a.of or not b.of:
            self._lose(a if b.of == () else b)
        return Number.folded(fold, [_sum(p, q) for p, q in itertools.product(a.of, b.of)])

    def multiply(self, a: Number, b: Number) -> Number:
        p, q = a.single, b.single
        if not p or not q:
            self._lose(b if not p else a)
        return Number.folded("", [_product(p, q)])

    def negate(self, a: Number) -> Number:
        return Number.folded("", [_product(a.single, _number(Fraction(-1)).single)])

    def fold(self, kind: str, a: Number, b: Number) -> Number:
        if {a.fold, b.fold} - {"", kind}:
            raise UnknownError
        return Number.folded(kind, [*a.of, *b.of])

    def _common(self, a: Number, b: Number) -> str:
        kinds = {a.fold, b.fold} - {""}
        if len(kinds) > 1:
            raise UnknownError
        return next(iter(kinds), "")

    def _lose(self, a: Number) -> None:
        self.lost |= {atom for p in a.of for monomial, _ in p for atom in monomial}

    def value(self, combination: Combination, left: Sequence[Value], right: Sequence[Value]) -> Value:
        """A component of the combination of two elements. Raises UnknownError."""
        values: dict[Instruction, Value] = {}
        todo = [combination.root]
        while todo:
            i = todo[-1]
            inner = [] if i in combination.leaves else _operands(i)
            missing = [o for o in inner if o not in values]
            if missing:
                todo += missing
                continue
            todo.pop()
            leaf = combination.leaves.get(i)
            if leaf is not None:
                values[i] = (right if leaf.is_right else left)[leaf.component]
            else:
                values[i] = self._of(i, [values[o] for o in inner])
        return values[combination.root]

    def _of(self, i: Instruction, operands: list[Value]) -> Value:
        if not operands:
            return _constant(i)
        terms = _log_sum_terms(i)
        if terms is not None:
            a, b = operands
            return self.fold("log-sum", _numeric(a), _numeric(b))
        if i.opcode == "select":
            where, value, instead = operands
            if not isinstance(where, bool):
                raise UnknownError
            return value if where else instead
        if all(isinstance(o, bool) for o in operands) and i.opcode in _LOGIC:
            return _LOGIC[i.opcode](*(bool(o) for o in operands))
        numbers = [_numeric(o) for o in operands]
        match i.opcode:
            case "add":
                return self.add(*numbers)
            case "subtract":
                return self.add(numbers[0], self.negate(numbers[1]))
            case "multiply":
                return self.multiply(*numbers)
            case "negate":
                return self.negate(numbers[0])
            case "maximum" | "minimum":
                return self.fold(i.opcode, *numbers)
            case "copy":
                return numbers[0]
        raise UnknownError


_LOGIC: dict[str, Callable[..., bool]] = {
    "and": lambda a, b: a and b,
    "or": lambda a, b: a or b,
    "xor": lambda a, b: a != b,
    "not": lambda a: not a,
    "maximum": lambda a, b: a or b,
    "minimum": lambda a, b: a and b,
    "copy": lambda a: a,
}


def _numeric(value: Value) -> Number:
    if isinstance(value, bool):
        raise UnknownError
    return value


def _operands(i: Instruction) -> list[Instruction]:
    """What a value is computed of: of log(exp(a) + exp(b)), a and b."""
    if i.opcode == "broadcast" or i.literal is not None:
        return []
    terms = _log_sum_terms(i)
    return list(terms) if terms is not None else list(i.operands)


def _constant(i: Instruction) -> Value:
    value = number_of(i)
    if isinstance(value, bool):
        return value
    if isinstance(value, int | float) and not isinstance(value, complex):
        if math.isinf(value):
            return Number("maximum" if value < 0 else "minimum", ())
        if math.isfinite(value):
            return _number(Fraction(value))
    raise UnknownError


def _log_sum_terms(i: Instruction) -> tuple[Instruction, Instruction] | None:
    """The two terms of `jnp.logaddexp`: a and b of max(a, b) + log1p(exp(-|a - b|)), or a + b where a - b is no
    number. None for any other value."""
    if i.opcode != "select" or i.operands[0].opcode != "compare" or i.operands[0].word("direction") != "NE":
        return None
    test, instead, value = i.operands
    apart = test.operands[0]
    if test.operands[1] is not apart or apart.opcode != "subtract" or value.opcode != "add":
        return None
    a, b = apart.operands
    high, rest = value.operands
    chain: list[str] = []
    while len(chain) < 4 and rest.operands and rest is not apart:
        chain.append(rest.opcode)
        rest = rest.operands[0]
    if chain != ["log-plus-one", "exponential", "negate", "abs"] or rest is not apart:
        return None
    fits = high.opcode == "maximum" and instead.opcode == "add"
    return (a, b) if fits and all(set(x.operands) == {a, b} for x in (high, instead)) else None


@dataclass(frozen=True)
class Neutral:
    """A neutral element e of a combination: f(e, x) = f(x, e) = x. `lost` are the components of x that a component of
    f(e, x) or f(x, e) multiplies by zero, by that component: if one is not finite, floats give no number there."""

    values: tuple[float | bool, ...]
    lost: Mapping[int, frozenset[int]]


def is_associative(combinations: Sequence[Combination]) -> bool:
    """Whether the combination of elements, one function for each component, is proved to be associative."""
    if all(map(_is_monoid, combinations)):
        return True
    try:
        for x, y, z in _elements(combinations, 3):
            first, second = (_Expansion(_wraps(combinations)) for _ in range(2))
            xy = [first.value(c, x, y) for c in combinations]
            yz = [second.value(c, y, z) for c in combinations]
            if any(first.value(c, xy, z) != second.value(c, x, yz) for c in combinations):
                return False
    except UnknownError:
        return False
    return True


def _is_monoid(combination: Combination) -> bool:
    """Whether a component of the combination is one operation of `MONOIDS` on both components of this number."""
    leaves = [combination.leaves.get(o) for o in combination.root.operands]
    own = {None if leaf is None else leaf.component for leaf in leaves}
    sides = {leaf.is_right for leaf in leaves if leaf is not None}
    return combination.root.opcode in MONOIDS and len(leaves) == len(sides) == 2 and len(own) == 1


def neutral(combinations: Sequence[Combination]) -> Neutral | None:
    """The neutral element; None where none of 0, 1 and the infinities is one."""
    if all(map(_is_monoid, combinations)):
        values = tuple(identity(c.root.opcode, c.root.shape.type) for c in combinations)
        return Neutral(values, dict.fromkeys(range(len(values)), frozenset()))
    choices = [_candidates(c.root.shape.type) for c in combinations]
    if math.prod(map(len, choices)) > _MOST_TRIED:
        return None
    for chosen in itertools.product(*choices):
        lost = _lost(combinations, chosen)
        if lost is not None:
            return Neutral(chosen, lost)
    return None


def _lost(combinations: Sequence[Combination], chosen: Sequence[float | bool]) -> dict[int, frozenset[int]] | None:
    """What is lost of elements that are combined with this one; None where it is not neutral."""
    lost: dict[int, frozenset[int]] = {}
    try:
        e = [_chosen(c, value) for c, value in zip(combinations, chosen, strict=True)]
        for (x,) in _elements(combinations, 1):
            for number, combination in enumerate(combinations):
                expansion = _Expansion(_wraps(combinations))
                for sides in ((e, x), (x, e)):
                    if expansion.value(combination, *sides) != x[number]:
                        return None
                found = frozenset(component for _, component in expansion.lost)
                lost[number] = lost.get(number, frozenset()) | found
    except UnknownError:
        return None
    return lost


def _chosen(combination: Combination, value: float | bool) -> Value:
    if isinstance(value, bool):
        return value
    if not math.isinf(value):
        return _number(Fraction(value))
    return Number("minimum" if value > 0 else _lowest_of(combination), ())


def _lowest_of(combination: Combination) -> str:
    """Whether minus infinity is the neutral element of a maximum here, or of a sum of exponentials."""
    todo, seen = [combination.root], set[Instruction]()
    while todo:
        i = todo.pop()
        if i in seen or i in combination.leaves:
            continue
        seen.add(i)
        if _log_sum_terms(i) is not None:
            return "log-sum"
        todo += _operands(i)
    return "maximum"


def _candidates(element_type: ElementType) -> tuple[float | bool, ...]:
    if element_type.kind == "pred":
        return (False, True)
    return (0, 1, -math.inf, math.inf) if element_type.is_float else (0, 1)


def _wraps(combinations: Sequence[Combination]) -> bool:
    return any(c.root.shape.type.is_integer for c in combinations)


def _elements(combinations: Sequence[Combination], count: int) -> Iterator[list[list[Value]]]:
    """So many elements; of predicates all values. Raises UnknownError for too many."""
    predicates = [n for n, c in enumerate(combinations) if c.root.shape.type.kind == "pred"]
    if len(predicates) * count > _MOST_PREDICATES:
        raise UnknownError
    for bits in itertools.product((False, True), repeat=len(predicates) * count):
        known = iter(bits)
        yield [
            [next(known) if n in predicates else _atom(element, n) for n in range(len(combinations))]
            for element in range(count)
        ]


def reads_left(combination: Combination, component: int) -> bool:
    """Whether a component of the combination needs a component of the left element."""
    return Leaf(component, False) in combination.leaves.values()
