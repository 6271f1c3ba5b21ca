"""Integer expressions with known ranges, and maps from an output index to the operand index it reads.

Legality, cost and code generation all read these maps. Expressions are affine terms with division and remainder by
positive constants. Each knows the range of its values, so `(i * 4 + j) / 4` with `0 <= j < 4` becomes `i`.
Source of the idea: xla/hlo/analysis/indexing_map.h.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

KEPT = 4096
"""Size of the caches of constants and variables: index maps ask for the same few again and again."""


@dataclass(slots=True)
class Expression:
    """An integer expression. `low` and `high` are inclusive bounds of its value. Expressions do not change: they are
    not declared frozen because that makes them three times as slow to create, and plans create many."""

    low: int
    high: int
    _hash: int | None = field(default=None, init=False, repr=False, compare=False)
    """Cached, because expressions are often keys."""


@dataclass(slots=True)
class Constant(Expression):
    value: int

    def __hash__(self) -> int:
        return hash(self.value)

    def __str__(self) -> str:
        return str(self.value)


@dataclass(slots=True)
class Variable(Expression):
    """A named value: an output dimension `d0`, a reduced dimension `s0`, a value read at run time `r0`, or a variable
    of a kernel."""

    name: str

    def __hash__(self) -> int:
        value = self._hash
        if value is None:
            value = self._hash = hash((self.name, self.high))
        return value

    def __str__(self) -> str:
        return self.name


@dataclass(slots=True)
class Sum(Expression):
    """left + right"""

    left: Expression
    right: Expression

    def __hash__(self) -> int:
        value = self._hash
        if value is None:
            value = self._hash = hash((self.left, self.right))
        return value

    def __str__(self) -> str:
        return f"({self.left} + {self.right})"


@dataclass(slots=True)
class Product(Expression):
    """left * factor"""

    left: Expression
    factor: int

    def __hash__(self) -> int:
        value = self._hash
        if value is None:
            value = self._hash = hash((self.left, "*", self.factor))
        return value

    def __str__(self) -> str:
        return f"({self.left} * {self.factor})"


@dataclass(slots=True)
class Quotient(Expression):
    """left / divisor, rounded down; the divisor is positive."""

    left: Expression
    divisor: int

    def __hash__(self) -> int:
        value = self._hash
        if value is None:
            value = self._hash = hash((self.left, "/", self.divisor))
        return value

    def __str__(self) -> str:
        return f"({self.left} / {self.divisor})"


@dataclass(slots=True)
class Remainder(Expression):
    """left modulo divisor, never negative; the divisor is positive."""

    left: Expression
    divisor: int

    def __hash__(self) -> int:
        value = self._hash
        if value is None:
            value = self._hash = hash((self.left, "%", self.divisor))
        return value

    def __str__(self) -> str:
        return f"({self.left} % {self.divisor})"


@functools.lru_cache(KEPT)
def constant(value: int) -> Constant:
    return Constant(value, value, value)


@functools.lru_cache(KEPT)
def variable(name: str, size: int) -> Expression:
    """A variable with 0 <= value < size; the constant 0 when only that is possible."""
    return constant(0) if size == 1 else Variable(0, max(size - 1, 0), name)


def add(left: Expression, right: Expression) -> Expression:
    """left + right. A constant moves to the right; nested sums become left-associative."""
    if isinstance(left, Constant):
        left, right = right, left
    if isinstance(right, Constant):
        if right.value == 0:
            return left
        if isinstance(left, Constant):
            return constant(left.value + right.value)
        if isinstance(left, Sum) and isinstance(left.right, Constant):
            return add(left.left, constant(left.right.value + right.value))
    elif isinstance(right, Sum):
        return add(add(left, right.left), right.right)
    elif isinstance(left, Sum) and isinstance(left.right, Constant):
        return add(add(left.left, right), left.right)
    if isinstance(right, (Product, Quotient, Remainder, Variable)):
        joined = _join_digits(left, right)
        if joined is not None:
            return joined
    return Sum(left.low + right.low, left.high + right.high, left, right)


def _digit(term: Expression) -> tuple[Expression, int, int | None, int]:
    """Split a term into `((base / step) % modulus) * scale`; `modulus` is None where there is no remainder."""
    base = term
    scale, step, modulus = 1, 1, None
    if isinstance(base, Product):
        scale, base = base.factor, base.left
    if isinstance(base, Remainder):
        modulus, base = base.divisor, base.left
    if isinstance(base, Quotient):
        step, base = base.divisor, base.left
    return base, step, modulus, scale


def _join_digits(left: Expression, right: Expression) -> Expression | None:
    """left + right, where a term of `left` and `right` are adjacent digits of one number: `(i / 4) * 4 + i % 4` is `i`.

    None where they are not.
    """
    base, step, modulus, scale = _digit(right)
    rest: list[Expression] = []
    while True:
        term = left.right if isinstance(left, Sum) else left
        other, other_step, other_modulus, other_scale = _digit(term)
        if other == base and (modulus is not None or other_modulus is not None):
            low = high = None
            if modulus is not None and other_step == step * modulus and other_scale == scale * modulus:
                low, high = (step, modulus, scale), other_modulus
            elif (
                other_modulus is not None
                and step == other_step * other_modulus
                and scale == other_scale * other_modulus
            ):
                low, high = (other_step, other_modulus, other_scale), modulus
            if low is not None:
                number = divide(base, low[0])
                if high is not None:
                    number = modulo(number, low[1] * high)
                joined = multiply(number, low[2])
                result = left.left if isinstance(left, Sum) else constant(0)
                for kept in (joined, *reversed(rest)):
                    result = add(result, kept)
                return result
        if not isinstance(left, Sum):
            return None
        rest.append(term)
        left = left.left


def split_constant(expression: Expression) -> tuple[Expression, int]:
    """The expression as a sum of one without a constant term and a constant."""
    match expression:
        case Constant(value=value):
            return constant(0), value
        case Sum(left=left, right=Constant(value=value)):
            return left, value
    return expression, 0


def is_even(expression: Expression) -> bool:
    """Whether the form of an expression says that its value is even."""
    match expression:
        case Constant(value=value):
            return value % 2 == 0
        case Product(left=left, factor=factor):
            return factor % 2 == 0 or is_even(left)
        case Sum(left=left, right=right):
            return is_even(left) and is_even(right)
    return False


def multiply(left: Expression, factor: int) -> Expression:
    """left * factor, distributed over sums."""
    if factor == 0:
        return constant(0)
    if factor == 1:
        return left
    if isinstance(left, Constant):
        return constant(left.value * factor)
    if isinstance(left, Product):
        return multiply(left.left, left.factor * factor)
    if isinstance(left, Sum):
        return add(multiply(left.left, factor), multiply(left.right, factor))
    bounds = (left.low * factor, left.high * factor)
    return Product(min(bounds), max(bounds), left, factor)


def _terms(expression: Expression) -> list[Expression]:
    if isinstance(expression, Sum):
        return [*_terms(expression.left), *_terms(expression.right)]
    return [expression]


def _split(expression: Expression, divisor: int) -> tuple[Expression, Expression]:
    """Split `expression` into `(whole, rest)` with expression = whole * divisor + rest; `whole` has the divisible
    terms."""
    whole: Expression = constant(0)
    rest: Expression = constant(0)
    for term in _terms(expression):
        if isinstance(term, Constant):
            whole = add(whole, constant(term.value // divisor))
            rest = add(rest, constant(term.value % divisor))
        elif isinstance(term, Product) and term.factor % divisor == 0:
            whole = add(whole, multiply(term.left, term.factor // divisor))
        else:
            rest = add(rest, term)
    return whole, rest


def _coarser(expression: Expression, divisor: int) -> tuple[Expression, Expression, int] | None:
    """Split `expression` into `(coarse, fine, step)` with expression = coarse * step + fine and 0 <= fine < step.

    `step` is above 1 and divides `divisor`, so a quotient of the expression is one of `coarse`, and a remainder is one
    of `coarse` plus `fine`. None where there is no such step.
    """
    terms = _terms(expression)
    factors = {t.value if isinstance(t, Constant) else t.factor for t in terms if isinstance(t, Constant | Product)} - {
        1
    }
    for step in sorted({math.gcd(f, divisor) for f in factors} - {1, divisor}, reverse=True):
        coarse, fine = _split(expression, step)
        if fine.low >= 0 and fine.high < step:
            return coarse, fine, step
    return None


def divide(left: Expression, divisor: int) -> Expression:
    """left / divisor rounded down, for divisor > 0."""
    assert divisor > 0
    if divisor == 1:
        return left
    if left.low // divisor == left.high // divisor:
        return constant(left.low // divisor)
    if isinstance(left, Constant):
        return constant(left.value // divisor)
    if isinstance(left, Quotient):
        return divide(left.left, left.divisor * divisor)
    if isinstance(left, Remainder) and left.divisor % divisor == 0:  # a digit, which joins its neighbours in a sum
        return modulo(divide(left.left, divisor), left.divisor // divisor)
    whole, rest = _split(left, divisor)
    if rest.low >= 0 and rest.high < divisor:
        return whole
    if whole != constant(0):
        return add(whole, divide(rest, divisor))
    coarse = _coarser(rest, divisor)
    if coarse is not None:
        return divide(coarse[0], divisor // coarse[2])
    return Quotient(left.low // divisor, left.high // divisor, left, divisor)


def modulo(left: Expression, divisor: int) -> Expression:
    """left modulo divisor, for divisor > 0."""
    assert divisor > 0
    if divisor == 1:
        return constant(0)
    if left.low // divisor == left.high // divisor:
        return add(left, constant(-(left.low // divisor) * divisor))
    _, rest = _split(left, divisor)
    if rest.low >= 0 and rest.high < divisor:
        return rest
    if isinstance(rest, Remainder) and rest.divisor % divisor == 0:
        return modulo(rest.left, divisor)
    coarse = _coarser(rest, divisor)
    if coarse is not None:
        return add(multiply(modulo(coarse[0], divisor // coarse[2]), coarse[2]), coarse[1])
    return Remainder(0, divisor - 1, rest, divisor)


def substitute(expression: Expression, values: Mapping[str, Expression]) -> Expression:
    """The expression with variables replaced, simplified."""
    kind = type(expression)
    if kind is Variable:
        return values.get(expression.name, expression)  # type: ignore[attr-defined]
    if kind is Constant:
        return expression
    match expression:
        case Sum():
            return add(substitute(expression.left, values), substitute(expression.right, values))
        case Product():
            return multiply(substitute(expression.left, values), expression.factor)
        case Quotient():
            return divide(substitute(expression.left, values), expression.divisor)
        case Remainder():
            return modulo(substitute(expression.left, values), expression.divisor)
        case _:
            return expression


def variables_of(expression: Expression) -> frozenset[str]:
    """The names of the variables in the expression."""
    match expression:
        case Variable():
            return frozenset({expression.name})
        case Sum():
            return variables_of(expression.left) | variables_of(expression.right)
        case Product() | Quotient() | Remainder():
            return variables_of(expression.left)
        case _:
            return frozenset()


def distinct_places(index: Sequence[Expression], sizes: Mapping[str, int]) -> int:
    """A lower bound of the number of different values of an index, while the variables in `sizes` have all their values
    and the others are fixed.

    A coordinate whose terms are digits that do not overlap, such as `i * 4 + j % 4`, determines each of them. If all
    digits of a variable are determined, the index has at least as many values as the variable.
    """
    digits_of: dict[str, dict[int, int]] = {}
    for coordinate in index:
        terms = [t for t in _terms(coordinate) if not isinstance(t, Constant)]
        digits = sorted(((_digit(t), t.high - t.low) for t in terms), key=lambda d: abs(d[0][3]))
        below = 0
        for (base, _, _, scale), span in digits:
            if not isinstance(base, Variable) or abs(scale) <= below:
                break
            below += span
        else:
            for (base, step, _, scale), span in digits:
                values = digits_of.setdefault(base.name, {})  # type: ignore[attr-defined]  # a Variable, see above
                values[step] = max(values.get(step, 1), span // abs(scale) + 1)
    count = 1
    for name, values in digits_of.items():
        step = 1
        while step in values and values[step] > 1:
            step *= values[step]
        size = sizes.get(name, 1)
        count *= size if step >= size else min(size, max(values.values()))
    return count


def linearize(index: Sequence[Expression], sizes: Sequence[int]) -> Expression:
    """The row-major position of an index."""
    position: Expression = constant(0)
    for i, size in zip(index, sizes, strict=True):
        position = add(multiply(position, size), i)
    return position


def delinearize(position: Expression, sizes: Sequence[int]) -> tuple[Expression, ...]:
    """The index at a row-major position, which must be below the product of the sizes. An empty array has no
    positions."""
    index: list[Expression] = []
    step = 1
    for number, size in reversed(list(enumerate(sizes))):
        here = divide(position, step)
        index.append(here if number == 0 else modulo(here, max(1, size)))
        step *= max(1, size)
    return tuple(reversed(index))


@dataclass(slots=True, unsafe_hash=True)
class Condition:
    """`low <= expression <= high`. It does not change, as an `Expression` does not."""

    expression: Expression
    low: int
    high: int

    @property
    def always(self) -> bool:
        """Whether the range of the expression alone makes it true."""
        return self.low <= self.expression.low and self.expression.high <= self.high

    @property
    def never(self) -> bool:
        """Whether the range of the expression alone makes it false."""
        return self.expression.high < self.low or self.high < self.expression.low


@dataclass(slots=True, unsafe_hash=True)
class IndexMap:
    """Which elements of an operand an output element reads. It does not change, as an `Expression` does not.

    `results` has one expression per operand dimension, over `d0..` (output dimensions), `s0..` (loop variables with the
    sizes in `symbols`: reduced dimensions, windows) and `r0..` (scalars read at run time, from the operands in
    `runtime`). An output element reads nothing where a condition fails.
    """

    results: tuple[Expression, ...]
    symbols: tuple[int, ...] = ()
    conditions: tuple[Condition, ...] = ()
    runtime: tuple[int, ...] = ()
    _picks: tuple[int, ...] | None = field(default=None, init=False, repr=False, compare=False)
    """Which coordinates of the output index the results are, -1 for a constant; empty where one is something else.
    None until first asked for."""

    def apply(
        self, index: Sequence[Expression], symbols: Sequence[Expression] = (), runtime: Sequence[Expression] = ()
    ) -> tuple[Expression, ...]:
        """The operand index at an output index."""
        picks = self._picks
        if picks is None:
            picks = _picks_of(self.results)
            self._picks = picks
        if picks and max(picks) < len(index):  # most maps only pick coordinates
            return tuple([index[k] if k >= 0 else e for k, e in zip(picks, self.results)])  # noqa: B905
        values = bindings(index, symbols, runtime)
        return tuple([substitute(e, values) for e in self.results])

    def conditions_at(self, index: Sequence[Expression], symbols: Sequence[Expression] = ()) -> tuple[Condition, ...]:
        """The conditions at an output index, except those that always hold there."""
        if not self.conditions:
            return ()
        values = bindings(index, symbols, ())
        conditions = (Condition(substitute(c.expression, values), c.low, c.high) for c in self.conditions)
        return tuple(c for c in conditions if not c.always)

    @property
    def is_identity(self) -> bool:
        """Whether every output element reads exactly the element at the same index."""
        return not (self.symbols or self.conditions or self.runtime) and all(
            isinstance(e, Constant) or (isinstance(e, Variable) and e.name == f"d{k}")
            for k, e in enumerate(self.results)
        )


def _picks_of(results: tuple[Expression, ...]) -> tuple[int, ...]:
    """Which dimensions of an output results are, -1 for a constant; nothing where one is something else."""
    picks = []
    for expression in results:
        if isinstance(expression, Constant):
            picks.append(-1)
        elif isinstance(expression, Variable) and expression.name in _NUMBERS:
            picks.append(_NUMBERS[expression.name])
        else:
            return ()
    return tuple(picks)


_NAMED = 32
_VARIABLES = {letter: tuple([f"{letter}{k}" for k in range(_NAMED)]) for letter in "dsr"}
"""The names of the first variables of an index map."""
_NUMBERS = {name: number for number, name in enumerate(_VARIABLES["d"])}


def bindings(
    index: Sequence[Expression], symbols: Sequence[Expression], runtime: Sequence[Expression]
) -> dict[str, Expression]:
    """The values of an index map's variables, by name."""
    values: dict[str, Expression] = {}
    for letter, replacements in (("d", index), ("s", symbols), ("r", runtime)):
        if replacements:
            values.update(zip(_VARIABLES[letter], replacements))  # noqa: B905  # fewer values than names
            values.update((f"{letter}{k}", replacements[k]) for k in range(_NAMED, len(replacements)))
    return values


def dimensions(sizes: Sequence[int]) -> tuple[Expression, ...]:
    """The variables `d0..` of an output of these sizes."""
    return _dimensions(tuple(sizes))


@functools.lru_cache(KEPT)
def _dimensions(sizes: tuple[int, ...]) -> tuple[Expression, ...]:
    return tuple([variable(f"d{k}", size) for k, size in enumerate(sizes)])


def identity(sizes: Sequence[int]) -> IndexMap:
    """The map of an elementwise operation: each output index reads the same operand index."""
    return _identity(tuple(sizes))


@functools.lru_cache(KEPT)
def _identity(sizes: tuple[int, ...]) -> IndexMap:
    return IndexMap(_dimensions(sizes))


def groups(left: Sequence[int], right: Sequence[int]) -> list[tuple[int, int, int, int]]:
    """The finest common grouping of two lists of sizes with the same product, which must not be 0.

    Returns (left from, left to, right from, right to) per group. A dimension of size 1 joins the group to its left.
    Source of the idea: xla/util.cc, CommonFactors.
    """
    spans = []
    i = j = 0
    while i < len(left) or j < len(right):
        start_i, start_j = i, j
        product_left = product_right = 1
        if i < len(left):
            product_left, i = left[i], i + 1
        if j < len(right):
            product_right, j = right[j], j + 1
        while product_left != product_right:
            if product_left < product_right:
                product_left, i = product_left * left[i], i + 1
            else:
                product_right, j = product_right * right[j], j + 1
        spans.append((start_i, i, start_j, j))
    return spans


def regroup(index: Sequence[Expression], sizes: Sequence[int], others: Sequence[int]) -> tuple[Expression, ...]:
    """The index into an array of sizes `others` with the same row-major position as `index` into one of `sizes`.

    Works group by group (see `groups`), so that no division spans dimensions that do not mix.
    """
    if math.prod(sizes) == 0:
        return tuple(constant(0) for _ in others)
    kept = [(i, size) for i, size in zip(index, sizes, strict=True) if size != 1]
    wide = [size for size in others if size != 1]
    wide_index: list[Expression] = []
    for from_, to, other_from, other_to in groups([size for _, size in kept], wide):
        part = kept[from_:to]
        position = linearize([i for i, _ in part], [size for _, size in part])
        wide_index.extend(delinearize(position, wide[other_from:other_to]))
    remaining = iter(wide_index)
    return tuple(constant(0) if size == 1 else next(remaining) for size in others)
