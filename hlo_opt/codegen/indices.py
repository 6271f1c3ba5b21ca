"""Index arithmetic of a kernel while it is written: digits and heavy expressions get variables, each once in its scope."""

from __future__ import annotations

from collections.abc import Sequence

from hlo_opt.codegen.index_text import digit_text, index_type, integer_text, render
from hlo_opt.codegen.statements import BLOCK, THREAD, Pair, Statements
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
    """Gives index expressions as C++."""

    def text(self, expression: Expression) -> Code:
        made = self._plain(expression)
        if isinstance(expression, Constant | Variable | Quotient | Remainder):
            negative = isinstance(expression, Constant) and expression.value < 0
            return code("({})", made) if negative else made
        return self._digit_name(expression, made)

    def _plain(self, expression: Expression) -> Code:
        """It may be a sum, not in parentheses."""
        return render(self._settled(expression), self._digit)

    def _found_digit(self, expression: Expression) -> Code | None:
        for scope in reversed(self._scopes):
            found = scope.digits.get(expression)
            if found is not None:
                return found
        return None

    def _digit(self, expression: Expression) -> Code:
        assert isinstance(expression, Quotient | Remainder)
        found = self._found_digit(expression)
        if found is not None:
            return found
        inner = render(expression.left, self._digit)
        pair = self._pairs.get(inner)
        if pair is not None and expression.divisor > pair.size and expression.divisor % pair.size == 0:
            return self._digit_of_pair(expression, pair)
        if not inner.is_atom:
            inner = code("({})", inner)
        return self._digit_name(expression, digit_text(expression, inner))

    def _digit_of_pair(self, expression: Quotient | Remainder, pair: Pair) -> Code:
        """A digit of a thread's element by that of its vector: the compiler then sees that the elements of a vector are neighbours here too."""
        operator = "/" if isinstance(expression, Quotient) else "%"
        first = code(f"{{}} {operator} {{}}", pair.first, expression.divisor // pair.size)
        if isinstance(expression, Quotient):
            return self._digit_name(expression, first)
        name = self._digit_name(expression, code("{} * {} + {}", first, pair.size, pair.number))
        self._pairs[name] = Pair(first, pair.size, pair.number)
        return name

    def _digit_name(self, expression: Expression, value: Code) -> Code:
        found = self._found_digit(expression)
        if found is not None:
            return found
        name = of(self._index(self.numbered("i"), expression, value, expression))
        self._scopes[-1].digits[expression] = name
        return name

    def _index(self, name: Name, like: Expression, value: Code, expression: Expression | None = None) -> Name:
        """Declare an index variable with the range of an expression."""
        self.add(Let(index_type(like), name, value, is_index=True, expression=expression))
        return name

    def _settled(self, expression: Expression) -> Expression:
        """The expression, or a variable with its value when it has grown heavy."""
        if isinstance(expression, Constant | Variable) or weight(expression, HEAVIEST) < HEAVIEST:
            return expression
        for scope in reversed(self._scopes):
            found = scope.heavy.get(expression)
            if found is not None:
                return found
        name = self._digit_name(expression, render(expression, self._digit)).name
        assert name is not None
        made = Variable(expression.low, expression.high, name.text)
        self._scopes[-1].heavy[expression] = made
        return made

    def declare_index(self, stem: str, expression: Expression) -> Expression:
        """A new variable with the expression's value and range, under a name of its own."""
        if isinstance(expression, Constant):
            return expression
        return self.declare(stem, expression)

    def declare(self, stem: str, expression: Expression) -> Variable:
        """As `declare_index`, a variable also for what has only one value."""
        name = self.fresh(stem)
        match expression:
            case Quotient() | Remainder() if self._found_digit(expression) is None:
                inner = render(expression.left, self._digit)
                value = digit_text(expression, inner if inner.is_atom else code("({})", inner))
            case _:
                value = self._plain(expression)
        self._index(name, expression, value, expression)
        match expression:
            case Sum(left=Product(left=Variable() as first, factor=size), right=Variable() as number):
                if first.low >= 0 and (number.low, number.high) == (0, size - 1):
                    self._pairs[of(name)] = Pair(of(first), size, of(number))
        return Variable(expression.low, expression.high, name.text)

    def bounded(self, stem: str, value: Code, low: int, high: int) -> Variable:
        """A new variable with a value that surely lies between these."""
        made = Variable(low, high, self.names.fresh(stem))
        self._index(Name(made.name), made, value)
        return made

    def column_at(self, place: Expression, row: Expression, columns: int) -> Variable:
        """A new variable: the column of the element that lies at a place in memory, where rows lie one after another. An access to that row and column is one to the place, so that a
        compiler sees whether it is aligned."""
        first = multiply(row, columns)
        made = self.bounded("column", self._plain(add(place, multiply(first, -1))), 0, columns - 1)
        self._places[add(first, made)] = place
        return made

    def index_let(self, stem: str, value: Code) -> Name:
        """Declare an index of 32 bits that is made of indices."""
        name = self.fresh(stem)
        self.add(Let("int", name, value, is_index=True))
        return name

    def clamped(self, stem: str, condition: Code, expression: Variable, most: int) -> Variable:
        """A new variable with the expression's value where the condition holds, else the greatest that is allowed."""
        made = Variable(expression.low, most, self.names.fresh(stem))
        value = code("{} ? {} : {}", condition, expression, integer_text(most))
        self._index(Name(made.name), made, value)
        return made

    def index(self, value: Code, low: int, high: int) -> Expression:
        if low >= high:
            return constant(low)
        wide = self.unclamped_index(value)
        made = Variable(low, high, self.names.numbered("i"))
        kind = index_type(made)
        chosen = code(f"({kind})({{0}} < {low} ? {low} : ({{0}} > {high} ? {high} : {{0}}))", wide)
        self._index(Name(made.name), made, chosen)
        return made

    def nearest(self, shape: Shape, index: Index, position: Variable, vector: int, number: Expression) -> Index:
        """The index where it lies inside the shape, else one inside it; `position` is that of an element with a number in a vector of so many. Vectors that lie inside or
        outside as a whole stay together."""
        found: list[Expression] = []
        for expression, size in zip(index, shape.dimensions, strict=True):
            if expression.low >= 0 and expression.high < size:
                found.append(expression)
                continue
            value, last = self.text(expression), size - 1
            made = Variable(max(0, expression.low), min(last, expression.high), self.names.numbered("i"))
            if moves_in_vectors(expression, position, vector, size):
                first = Variable(0, size - vector, made.name)
                near = call("hlo_near_vector", value, self.text(number), vector, size)
                self._index(Name(first.name), expression, near)
                found.append(add(first, number))
                continue
            inside = code(f"{{0}} > {last} ? {last} : {{0}}", value) if expression.high > last else value
            if expression.low < 0:
                inner = code("({})", inside) if expression.high > last else inside
                inside = code("{} < 0 ? 0 : {}", value, inner)
            self._index(Name(made.name), expression, inside)
            found.append(made)
        return tuple(found)

    def narrowed(self, wide: Code, most: int) -> Variable:
        """An index variable from one of 64 bits that lies between 0 and `most`."""
        made = Variable(0, most, self.names.numbered("i"))
        self._index(Name(made.name), made, code(f"({index_type(made)}){{}}", wide))
        return made

    def unclamped_index(self, value: Code) -> Code:
        name = self.numbered("r")
        self.add(Let("long long", name, code("(long long)({})", value), is_index=True))
        return of(name)

    def address(self, shape: Shape, index: Index) -> Code:
        """The position of an element in memory."""
        place = self.place(shape, index)
        place = self._places.get(place, place)
        made = self._plain(place)
        return Code(made.pieces, made.is_atom, place=place)

    def place(self, shape: Shape, index: Index) -> Expression:
        """The position of an element in memory: the layout's strides applied to the index."""
        position: Expression = constant(0)
        order = sorted(range(len(index)), key=lambda d: -shape.strides[d])
        for d in order:  # major to minor, so that digits of one number join again
            position = add(position, multiply(self._settled(index[d]), shape.strides[d]))
        return position

    def first_of(self, position: Expression, size: int) -> Expression | None:
        """The position of the first element of a vector of that size, given that of any; None where it is not known."""
        pair = self._pairs.get(of(position)) if isinstance(position, Variable) else None
        if pair is None or pair.size != size or pair.first.name is None:
            return None
        return multiply(Variable(0, position.high // size, pair.first.name.text), size)


def moves_in_vectors(expression: Expression, position: Variable, vector: int, size: int) -> bool:
    """Whether an index into a dimension of a size surely goes up by one from element to element of a vector, all of whose elements lie inside the dimension or none,
    `position` being that of one."""
    inside, shift = expression, 0
    match expression:
        case Sum(left=left, right=Constant(value=value)):
            inside, shift = left, value
    match inside:
        case Remainder(left=left, divisor=divisor) if divisor % vector == 0:
            inside = left
    return vector & (vector - 1) == 0 and inside == position and shift % vector == 0 and size % vector == 0


def thread_of(threads: int) -> Variable:
    """The number of a thread among so many of its block."""
    return Variable(0, threads - 1, THREAD.text)


def only_first(builder: Indices, threads: int, block: int) -> None:
    """The threads of a block after so many leave: another segment needs them, and barriers do not wait for what has returned."""
    if threads < block:
        beyond = Condition(Variable(0, block - 1, THREAD.text), threads, block - 1)
        builder.add(Leave(Code(code("{} >= {}", THREAD, threads).pieces, says=(beyond,))))


def block_of(first: int, blocks: int) -> Expression:
    """The number of a block among so many from the first of its segment on."""
    return add(Variable(first, first + blocks - 1, BLOCK.text), constant(-first))


def named(builder: Indices, expression: Expression) -> Expression:
    """A quotient or a remainder as the variable that holds it; anything else as it is."""
    if not isinstance(expression, Quotient | Remainder):
        return expression
    name = builder.text(expression).name
    assert name is not None
    return Variable(expression.low, expression.high, name.text)


def tile_of(builder: Indices, first: int, blocks: int, tiles: Sequence[int]) -> list[Expression]:
    """Which tile a block's is along each dimension, for a block among so many from the first of its segment on."""
    block = builder.declare("block", block_of(first, blocks)) if blocks > 1 else constant(0)
    return [named(builder, digit) for digit in delinearize(block, tiles)]
