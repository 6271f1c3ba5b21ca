"""How a thread's statements are printed where threads run side by side as the lanes of a CPU's vectors."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from dataclasses import replace

from hlo_opt.codegen.cuda import statement_lines, walked
from hlo_opt.codegen.index_text import digit_text, render
from hlo_opt.codegen.statements import THREAD
from hlo_opt.codegen.tree import (
    Assign,
    AtomicChange,
    Block,
    BlockRange,
    DeclaredArray,
    For,
    Let,
    Neighbours,
    Peeled,
    Statement,
    StrideLoop,
    walk,
)
from hlo_opt.ir.index_map import (
    Condition,
    Expression,
    Product,
    Quotient,
    Remainder,
    Sum,
    Variable,
    add,
    constant,
    multiply,
    substitute,
    variables_of,
)
from hlo_opt.ops.code import (
    Address,
    Cell,
    Code,
    FirstRound,
    Function,
    Name,
    PackedElement,
    Shuffle,
    Special,
    code,
    printed,
)

_OF_HOST = (
    "hlo_maximum",
    "hlo_minimum",
    "hlo_load_f16",
    "hlo_store_f16",
    "hlo_round_f16",
    "hlo_round_bf16",
    "hlo_store_bf16",
    "hlo_add_bf16",
    "hlo_subtract_bf16",
    "hlo_multiply_bf16",
    "hlo_float_to_integer",
    "hlo_complex_divide",
    "hlo_divide",
    "hlo_remainder",
)
_FUNCTIONS = {"hlo_near_vector": "hlo::near_element", **{name: f"hlo::{name[4:]}" for name in _OF_HOST}}
"""Helpers of a GPU that a CPU replaces by its own: those that use the neighbours of an element in a vector, as a lane
computes one element at a time, and those that branch."""

WIDER = {"bool": "int"}
"""The types of lanes' variables, where they differ from a GPU's. Truth values of one byte beside floats of four would
need vectors of their own."""


def inlined(expression: Expression) -> Code:
    """An index expression in one piece: its quotients and remainders are not variables of their own. They are computed
    in 32 bits where they fit and the divisor is no power of two, since vector units cannot divide 64 bits."""

    def digit(part: Expression) -> Code:
        left, divisor = part.left, part.divisor  # type: ignore[attr-defined]  # a quotient or a remainder
        is_narrow = divisor & (divisor - 1) and left.low >= 0 and left.high < 1 << 31
        inner = code("(unsigned int)({})" if is_narrow else "({})", render(left, digit))
        return code("(long long)({})" if is_narrow else "({})", digit_text(part, inner))

    return render(expression, digit)


class ThreadText:
    """Prints a thread's statements. `values` replaces index variables that have another value than on a GPU,
    `functions` the names of functions."""

    def __init__(self, values: Mapping[str, Expression] | None = None, functions: Mapping[str, str] | None = None):
        self.values = dict(values or {})
        self.functions = {**_FUNCTIONS, **(functions or {})}
        self.scalars: dict[Name, str] = {}
        """Arrays of neighbouring elements that are a variable here, of these types, one element being taken at a
        time."""

    # ---- expressions

    def text(self, expression: Code) -> str:
        """An expression."""
        return printed(expression, self.piece)

    def piece(self, piece: Special) -> str:
        """A piece of an expression that is a value, such as a name or a cell, and not text."""
        match piece:
            case Name(text):
                return self.name(text)
            case Function(text):
                return self.functions.get(text, text)
            case Cell(array, index):
                return self.cell(array, index)
            case Address(element):
                return f"&{self.piece(element)}"
            case PackedElement(bits, array, position):
                return f"hlo_get<{bits}>({self.name(array.text)}, {self.text(position)})"
            case FirstRound(step, stride):
                return self.first_round(step, stride)
            case Shuffle():
                return self.shuffle(piece)

    def name(self, text: str) -> str:
        """A variable, an array or a pointer."""
        return text

    def cell(self, array: Name, index: Code) -> str:
        """An element of an array."""
        return array.text if array in self.scalars else f"{self.name(array.text)}[{self.text(index)}]"

    def first_round(self, step: Name, stride: int) -> str:
        """The condition that a thread is at its first step."""
        return f"{self.name(step.text)} < {stride}"

    def shuffle(self, shuffle: Shuffle) -> str:
        """The text of a shuffle, which reads a register of another thread. Printers of threads that communicate
        override this."""
        raise AssertionError("threads that do not meet read no registers of each other")

    # ---- statements

    def lines(self, statements: Sequence[Statement]) -> Iterator[str]:
        """Statements, a line each."""
        for statement in statements:
            yield from self.statement(statement)

    def unpeeled(self, statements: Sequence[Statement]) -> Iterator[Statement]:
        """The statements, with rows walked from end to end: a CPU's vectors may begin anywhere."""
        for statement in statements:
            yield from statement.walking if isinstance(statement, Peeled) else (statement,)

    def statement(self, statement: Statement) -> Iterator[str]:
        """One statement."""
        match statement:
            case Let():
                yield self.let(statement)
            case Assign(Code(pieces=(Cell(array, _),)), value) if array in self.scalars:
                yield f"const {self.scalars[array]} {array.text} = {self.text(value)};"
            case Assign(target, value):
                yield f"{self.text(target)} = {self.text(value)};"
            case Block(condition, body, otherwise):
                yield f"{f'if ({self.text(condition)}) ' if condition else ''}{{"
                yield from self.lines(body)
                yield "}"
                if otherwise:
                    yield "else {"
                    yield from self.lines(otherwise)
                    yield "}"
            case For(kind, name, first, test, step, _, body):
                head = "" if name is None else f"{kind} {self.name(name.text)} = {self.text(first)}"
                yield f"for ({head}; {self.text(test)}; {self.text(step)}) {{"
                yield from self.lines(body)
                yield "}"
            case StrideLoop():
                yield from self.statement(walked(statement))
            case BlockRange(body=body) | Peeled(walking=body) | AtomicChange(walking=body):
                yield from self.lines(body)
            case Neighbours():
                yield from self.arrays(statement.bits)
                number = statement.number.text
                yield f"for (int {number} = 0; {number} < {statement.size}; ++{number}) {{"
                yield from self.lines(self.merged(statement))
                yield "}"
                yield from self.lines(filled(statement))
            case _:
                yield from self.other(statement)

    def other(self, statement: Statement) -> Iterator[str]:
        """A statement that has no statements inside: as on a GPU, but for its expressions."""
        match statement:
            case DeclaredArray():
                yield from self.arrays([statement])
            case _:
                yield from statement_lines([statement], "", self.text)

    def arrays(self, arrays: Sequence[DeclaredArray]) -> Iterator[str]:
        """A thread's own arrays."""
        for array in arrays:
            yield f"{array.kind} {self.name(array.name.text)}[{array.size}];"

    def let(self, let: Let) -> str:
        """A declaration, or what stands for it."""
        return f"{'const ' * let.constant}{let.kind} {self.name(let.name.text)} = {self.value(let)};"

    def value(self, let: Let) -> str:
        """What a variable is declared as."""
        if let.expression is not None and variables_of(let.expression) & self.values.keys():
            return self.text(inlined(substitute(let.expression, self.values)))
        return self.text(let.value)

    # ---- neighbouring elements

    def merged(self, group: Neighbours) -> list[Statement]:
        """The statements that read, compute and write one element. A GPU's thread keeps several in arrays; a CPU's
        vectors hold elements of neighbouring threads, so arrays would be in the way."""
        self.scalars.update((array.name, array.kind) for array in group.arrays)
        writing: list[Statement] = list(group.writing)
        if group.guard and writing:
            writing = [Block(group.guard, writing)]
        return [*group.reading, *group.making, *writing]


def filled(group: Neighbours) -> list[Statement]:
    """The statements after the elements of a vector: stores of bytes that hold several elements."""
    return [Block(group.guard, list(group.filling))] if group.guard and group.filling else list(group.filling)


def index_names(statement: Let, replaced: Collection[str] = ()) -> set[str]:
    """The names in the printed text of a declaration: those of its index expression where one of the variables
    `replaced` is in it, else those of its value."""
    if statement.expression is not None:
        names = variables_of(statement.expression)
        if not names.isdisjoint(replaced):
            return set(names)
    return {name.text for name in statement.value.names()}


def places_of(group: Neighbours, step: Name) -> list[Let]:
    """The declarations of the place of a vector's element, where that is the number of the vector (`step`) times its
    size plus the number of the element; none where it is not."""
    places = []
    for body in (group.reading, group.making, group.writing):
        if not body:
            continue
        first = body[0]
        if not isinstance(first, Let) or first.expression is None:
            return []
        of_both = variables_of(first.expression) == {step.text, group.number.text}
        if not of_both or digits_in(first.expression):
            return []
        for vector, number, place in (
            (0, 0, 0),
            (1, 0, group.size),
            (0, 1, 1),
        ):  # three points determine a linear expression
            values = {step.text: constant(vector), group.number.text: constant(number)}
            if substitute(first.expression, values) != constant(place):
                return []
        places.append(first)
    return places


def variables_in(expression: Expression | None) -> list[Variable]:
    """The variables of an expression, with their ranges."""
    todo, variables = [expression], list[Variable]()
    while todo:
        match todo.pop():
            case Variable() as one:
                variables.append(one)
            case Sum(left=left, right=right):
                todo += [left, right]
            case Product(left=left) | Quotient(left=left) | Remainder(left=left):
                todo.append(left)
    return variables


def digits_in(expression: Expression) -> list[Quotient | Remainder]:
    """The quotients and remainders in an expression."""
    match expression:
        case Quotient() | Remainder():
            return [expression, *digits_in(expression.left)]
        case Sum():
            return [*digits_in(expression.left), *digits_in(expression.right)]
        case Product():
            return digits_in(expression.left)
    return []


def declared_in(items: Sequence[Statement]) -> set[str]:
    """The names of variables that statements declare, without those of nested statements."""
    return {item.name.text for item in items if isinstance(item, Let)}


def has_conditions(items: Sequence[Statement]) -> bool:
    """Whether some of what threads do depends on a condition."""
    return any(isinstance(s, Block) and s.condition.pieces for s in walk(items))


def divisors(expression: Expression) -> set[int]:
    """The divisors of the thread's number in an expression."""
    return {d.divisor for d in digits_in(expression) if isinstance(d.left, Variable) and d.left.name == THREAD.text}


def variable_of(let: Let) -> Variable:
    """The variable that a declaration of an index makes."""
    assert let.expression is not None
    return Variable(let.expression.low, let.expression.high, let.name.text)


def first_threads(beyond: Code) -> int:
    """Where a condition holds for all threads of a block but the first ones: how many these are; else 0."""
    bounds = [c for c in beyond.says if isinstance(c.expression, Variable) and c.expression.name == THREAD.text]
    return bounds[0].low if len(bounds) == len(beyond.says) == 1 and bounds[0].high >= bounds[0].expression.high else 0


def first_lanes(
    items: Sequence[Statement], full: Mapping[str, Expression], values: Mapping[str, Expression], lane: Variable
) -> int:
    """How many of lanes side by side, the first ones, do something in these statements: declarations, and a condition
    that an index is 0 or below a number. `full` are the indices as expressions, in which `values` stand for variables;
    the index is the lane and perhaps more. 0 where any of them may."""
    *before, block = items
    if not isinstance(block, Block) or block.otherwise or any(not isinstance(s, Let) or not s.constant for s in before):
        return 0
    pieces = [piece for piece in block.condition.pieces if not (isinstance(piece, str) and not piece.strip("("))]
    if len(pieces) < 2 or not isinstance(pieces[0], Name) or pieces[0].text not in full:
        return 0
    test = "".join(piece for piece in pieces[1:] if isinstance(piece, str))
    if not isinstance(pieces[1], str) or "||" in test:
        return 0
    tests = {" == 0": 1, **{f" < {count}": count for count in range(1, lane.high + 1)}}
    count = max(
        (n for t, n in tests.items() if test.startswith(t) and test[len(t) : len(t) + 1] in ("", ")", " ")), default=0
    )
    value = substitute(full[pieces[0].text], values)
    rest = substitute(value, {lane.name: constant(0)})
    return count if rest.low >= 0 and value == add(rest, lane) else 0


STEPS = (1, 2, 4)
"""By how many elements lanes side by side may lie apart where they end at an edge: see `lanes_inside`."""


def lanes_inside(
    items: Sequence[Statement],
    full: Mapping[str, Expression],
    values: Mapping[str, Expression],
    lane: Variable,
    uniform: Set[str],
) -> tuple[list[Condition], list[tuple[Expression, int]]] | None:
    """Where these statements are declarations and a condition that holds for the first lanes alone, as at the edge of a
    tile: what of it is the same for all lanes, and of each bound the place of the first lane beyond it, as the elements
    up to there and how many of these lie between lanes. `full` are the indices as expressions, in which `values` stand
    for variables. None where the condition is another one."""
    *before, block = items
    if not isinstance(block, Block) or block.otherwise or any(not isinstance(s, Let) or not s.constant for s in before):
        return None
    same: list[Condition] = []
    bounds: list[tuple[Expression, int]] = []
    for condition in block.condition.says:
        place = substitute(substitute(condition.expression, full), values)
        first = substitute(place, {lane.name: constant(0)})
        step = next((s for s in STEPS if place == add(first, multiply(lane, s))), 0)
        if not variables_of(first) <= uniform:
            return None
        if lane.name not in variables_of(place):
            same.append(replace(condition, expression=place))
        elif step and condition.low <= place.low:
            bounds.append((add(constant(condition.high + 1), multiply(first, -1)), step))
        else:
            return None
    return (same, bounds) if same or bounds else None


NARROW = 1 << 31


def is_narrow(value: Expression) -> bool:
    """Whether an index fits into 32 bits."""
    return value.low >= -NARROW and value.high < NARROW


def clean(name: str) -> str:
    """The name of an index as that of a variable."""
    return name.replace(".", "_")
