"""Index arithmetic of a kernel: quotients, remainders and heavy expressions get variables, one per scope."""

from __future__ import annotations

from collections.abc import Sequence

from hlo_opt.codegen.index_text import digit_text, index_type, integer_text, render
from hlo_opt.codegen.statements import BLOCK, THREAD, SplitPosition, Statements
from hlo_opt.codegen.tree import Leave, Let
from hlo_opt.ir import Shape
from hlo_opt.ir.index_map import (
    Condition,
    Constant,
    Expression,
    Product,
    Quotient,
    Remainder,
    Sum,
    Variable,
    add,
    constant,
    delinearize,
    multiply,
)
from hlo_opt.ops.code import Code, Name, call, code, of
from hlo_opt.ops.lowering import Index
from hlo_opt.plans.limits import HEAVIEST, weight


class Indices(Statements):
    """Turns index expressions into C++."""

    def text(self, expression: Expression) -> Code:
        plain = self._plain(expression)
        if isinstance(expression, Constant | Variable | Quotient | Remainder):
            negative = isinstance(expression, Constant) and expression.value < 0
            return code("({})", plain) if negative else plain
        return self._digit_name(expression, plain)

    def _plain(self, expression: Expression) -> Code:
        """The text, perhaps a sum without parentheses."""
        return render(self._settled(expression), self._digit)

    def _known_digit(self, expression: Expression) -> Code | None:
        for scope in reversed(self._scopes):
            name = scope.digits.get(expression)
            if name is not None:
                return name
        return None

    def _digit(self, expression: Expression) -> Code:
        assert isinstance(expression, Quotient | Remainder)
        name = self._known_digit(expression)
        if name is not None:
            return name
        inner = render(expression.left, self._digit)
        pair = self._pairs.get(inner)
        if pair is not None and expression.divisor > pair.size and expression.divisor % pair.size == 0:
            return self._digit_of_pair(expression, pair)
        if not inner.is_atom:
            inner = code("({})", inner)
        return self._digit_name(expression, digit_text(expression, inner))

    def _digit_of_pair(self, expression: Quotient | Remainder, pair: SplitPosition) -> Code:
        """A digit of an element computed from that of its vector, so that the compiler sees that a vector's elements
        are neighbours."""
        operator = "/" if isinstance(expression, Quotient) else "%"
        first = code(f"{{}} {operator} {{}}", pair.first, expression.divisor // pair.size)
        if isinstance(expression, Quotient):
            return self._digit_name(expression, first)
        name = self._digit_name(expression, code("{} * {} + {}", first, pair.size, pair.number))
        self._pairs[name] = SplitPosition(first, pair.size, pair.number)
        return name

    def _digit_name(self, expression: Expression, value: Code) -> Code:
        known = self._known_digit(expression)
        if known is not None:
            return known
        name = of(self._index(self.numbered("i"), expression, value, expression))
        self._scopes[-1].digits[expression] = name
        return name

    def _index(self, name: Name, like: Expression, value: Code, expression: Expression | None = None) -> Name:
        """Declare an index variable with the range of an expression."""
        self.add(Let(index_type(like), name, value, is_index=True, expression=expression))
        return name

    def _settled(self, expression: Expression) -> Expression:
        """The expression, or a variable holding it where it has become heavy."""
        if isinstance(expression, Constant | Variable) or weight(expression, HEAVIEST) < HEAVIEST:
            return expression
        for scope in reversed(self._scopes):
            known = scope.heavy.get(expression)
            if known is not None:
                return known
        name = self._digit_name(expression, render(expression, self._digit)).name
        assert name is not None
        settled = Variable(expression.low, expression.high, name.text)
        self._scopes[-1].heavy[expression] = settled
        return settled

    def declare_index(self, stem: str, expression: Expression) -> Expression:
        """A new variable with the expression's value and range; constants stay constants."""
        if isinstance(expression, Constant):
            return expression
        return self.declare(stem, expression)

    def declare(self, stem: str, expression: Expression) -> Variable:
        """As `declare_index`, but a variable also for constants."""
        name = self.fresh(stem)
        match expression:
            case Quotient() | Remainder() if self._known_digit(expression) is None:
                inner = render(expression.left, self._digit)
                value = digit_text(expression, inner if inner.is_atom else code("({})", inner))
            case _:
                value = self._plain(expression)
        self._index(name, expression, value, expression)
        match expression:
            case Sum(left=Product(left=Variable() as first, factor=size), right=Variable() as number):
                if first.low >= 0 and (number.low, number.high) == (0, size - 1):
                    self._pairs[of(name)] = SplitPosition(of(first), size, of(number))
        return Variable(expression.low, expression.high, name.text)

    def bounded(self, stem: str, value: Code, low: int, high: int) -> Variable:
        """A new variable for a value known to be in [low, high]."""
        result = Variable(low, high, self.names.fresh(stem))
        self._index(Name(result.name), result, value)
        return result

    def column_at(self, place: Expression, row: Expression, columns: int) -> Variable:
        """A new variable: the column of the element at `place` in row-major memory.

        Accesses at that row and column become accesses at `place`, so that the compiler sees their alignment.
        """
        first = multiply(row, columns)
        column = self.bounded("column", self._plain(add(place, multiply(first, -1))), 0, columns - 1)
        self._places[add(first, column)] = place
        return column

    def index_let(self, stem: str, value: Code) -> Name:
        """Declare a 32-bit index computed from indices."""
        name = self.fresh(stem)
        self.add(Let("int", name, value, is_index=True))
        return name

    def clamped(self, stem: str, condition: Code, expression: Variable, most: int) -> Variable:
        """A new variable: the expression where the condition holds, else `most`."""
        result = Variable(expression.low, most, self.names.fresh(stem))
        value = code("{} ? {} : {}", condition, expression, integer_text(most))
        self._index(Name(result.name), result, value)
        return result

    def index(self, value: Code, low: int, high: int, *, fits: bool = False) -> Expression:
        if low >= high:
            return constant(low)
        wide = self.unclamped_index(value, fits=fits)
        result = Variable(low, high, self.names.numbered("i"))
        kind = index_type(result)
        chosen = code(f"({kind})({{0}} < {low} ? {low} : ({{0}} > {high} ? {high} : {{0}}))", wide)
        self._index(Name(result.name), result, chosen)
        return result

    def nearest(self, shape: Shape, index: Index, position: Variable, vector: int, number: Expression) -> Index:
        """The index clamped into the shape. `position` is that of element `number` of a vector of `vector` elements.

        Vectors that are wholly in or out of bounds stay contiguous.
        """
        clamped_index: list[Expression] = []
        for expression, size in zip(index, shape.dimensions, strict=True):
            if expression.low >= 0 and expression.high < size:
                clamped_index.append(expression)
                continue
            value, last = self.text(expression), size - 1
            inner_index = Variable(max(0, expression.low), min(last, expression.high), self.names.numbered("i"))
            if moves_in_vectors(expression, position, vector, size):
                first = Variable(0, size - vector, inner_index.name)
                near = call("hlo_near_vector", value, self.text(number), vector, size)
                self._index(Name(first.name), expression, near)
                clamped_index.append(add(first, number))
                continue
            inside = code(f"{{0}} > {last} ? {last} : {{0}}", value) if expression.high > last else value
            if expression.low < 0:
                inner = code("({})", inside) if expression.high > last else inside
                inside = code("{} < 0 ? 0 : {}", value, inner)
            self._index(Name(inner_index.name), expression, inside)
            clamped_index.append(inner_index)
        return tuple(clamped_index)

    def narrowed(self, wide: Code, most: int) -> Variable:
        """An index variable from a 64-bit one that is in [0, most]."""
        result = Variable(0, most, self.names.numbered("i"))
        self._index(Name(result.name), result, code(f"({index_type(result)}){{}}", wide))
        return result

    def unclamped_index(self, value: Code, *, fits: bool = False) -> Code:
        name, kind = self.numbered("r"), "int" if fits else "long long"
        self.add(Let(kind, name, code(f"({kind})({{}})", value), is_index=True))
        return of(name)

    def address(self, shape: Shape, index: Index) -> Code:
        """The position of an element in memory, as C++."""
        place = self.place(shape, index)
        place = self._places.get(place, place)
        plain = self._plain(place)
        return Code(plain.pieces, plain.is_atom, place=place)

    def place(self, shape: Shape, index: Index) -> Expression:
        """The position of an element in memory: the index times the layout's strides."""
        position: Expression = constant(0)
        order = sorted(range(len(index)), key=lambda d: -shape.strides[d])
        for d in order:  # major to minor, so that digits of one number recombine
            position = add(position, multiply(self._settled(index[d]), shape.strides[d]))
        return position

    def first_of(self, position: Expression, size: int) -> Expression | None:
        """The position of the first element of a vector, given that of any; None where unknown."""
        pair = self._pairs.get(of(position)) if isinstance(position, Variable) else None
        if pair is None or pair.size != size or pair.first.name is None:
            return None
        return multiply(Variable(0, position.high // size, pair.first.name.text), size)


def moves_in_vectors(expression: Expression, position: Variable, vector: int, size: int) -> bool:
    """Whether an index increases by one across a vector, whose elements are all in or all out of bounds. `position` is
    that of one element."""
    inside, shift = expression, 0
    match expression:
        case Sum(left=left, right=Constant(value=value)):
            inside, shift = left, value
    match inside:
        case Remainder(left=left, divisor=divisor) if divisor % vector == 0:
            inside = left
    return vector & (vector - 1) == 0 and inside == position and shift % vector == 0 and size % vector == 0


def thread_of(threads: int) -> Variable:
    """The thread number, among `threads` of a block."""
    return Variable(0, threads - 1, THREAD.text)


def only_first(builder: Indices, threads: int, block: int) -> None:
    """Return from surplus threads of a block (needed by other segments): barriers do not wait for threads that
    returned."""
    if threads < block:
        beyond = Condition(Variable(0, block - 1, THREAD.text), threads, block - 1)
        builder.add(Leave(Code(code("{} >= {}", THREAD, threads).pieces, says=(beyond,))))


def block_of(first: int, blocks: int) -> Expression:
    """The block number within a segment of `blocks` that starts at block `first`."""
    return add(Variable(first, first + blocks - 1, BLOCK.text), constant(-first))


def named(builder: Indices, expression: Expression) -> Expression:
    """A quotient or remainder as the variable that holds it; anything else unchanged."""
    if not isinstance(expression, Quotient | Remainder):
        return expression
    name = builder.text(expression).name
    assert name is not None
    return Variable(expression.low, expression.high, name.text)


def tile_of(builder: Indices, first: int, blocks: int, tiles: Sequence[int]) -> list[Expression]:
    """The tile of a block along each dimension, for a segment of `blocks` that starts at block `first`."""
    block = builder.declare("block", block_of(first, blocks)) if blocks > 1 else constant(0)
    return [named(builder, digit) for digit in delinearize(block, tiles)]
