"""The `KernelBuilder`: writes the C++ statements that compute values of a region at given indices."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

from hlo_opt.codegen.index_text import digit_text, index_type, integer_text, render
from hlo_opt.codegen.names import Names, identifier
from hlo_opt.codegen.scalars import bits_table, from_table, literal, loaded, register_type, rounded, stored, zero
from hlo_opt.codegen.tree import Array, Assign, Block, Do, For, Kept, Let, Segment, Statement, Table, Walk
from hlo_opt.diag import BackendError
from hlo_opt.ir import Computation, ElementType, Instruction, Shape
from hlo_opt.ir.index_map import (
    Constant,
    Expression,
    Product,
    Quotient,
    Remainder,
    Sum,
    Variable,
    add,
    constant,
    multiply,
    variable,
)
from hlo_opt.ops.accumulation import widened
from hlo_opt.ops.code import NOTHING, Cell, Code, Name, Part, call, code, of
from hlo_opt.ops.lowering import Elementwise, Index, width_text
from hlo_opt.ops.spec import find
from hlo_opt.plans.limits import DEEPEST, HEAVIEST, weight

MOST_UNROLLED = 16
"""Rounds of a loop that NVRTC may unroll as it likes. It would unroll hundreds, and spill what it has loaded ahead."""

THREAD, BLOCK = Name("threadIdx.x"), Name("blockIdx.x")
"""The number of a thread in its block, and that of the block. Both are unsigned in CUDA."""

Key = tuple[Instruction, int | None, Index]


class _Scope:
    """What has been computed between one pair of braces."""

    __slots__ = ("digits", "heavy", "hides", "likely", "likely_hides", "loads", "values")

    def __init__(self) -> None:
        self.values: dict[Key, Code] = {}
        self.digits: dict[Expression, Code] = {}
        self.heavy: dict[Expression, Expression] = {}
        self.loads: list[tuple[Instruction, Index]] = []
        self.likely: list[tuple[Instruction, Index]] = []
        # whether memory is read that `loads` does not tell of: in tables, and between braces inside
        self.hides = self.likely_hides = False

    def copy(self) -> _Scope:
        made = _Scope()
        made.values, made.digits, made.heavy = dict(self.values), dict(self.digits), dict(self.heavy)
        made.loads, made.likely = list(self.loads), list(self.likely)
        made.hides, made.likely_hides = self.hides, self.likely_hides
        return made


@dataclass(frozen=True)
class _Pair:
    """A position that is `first * size + number`, `first` being the same for all numbers below the size."""

    first: Code
    size: int
    number: Code


class Builder:
    """See `hlo_opt.ops.lowering.KernelBuilder` for the part that lowerings use.

    Values are computed operands first with an explicit stack, so that a chain of thousands of operations needs no recursion; only an operation that asks for
    operands under a condition or in a loop recurses, at most `DEEPEST` times.
    """

    def __init__(
        self, numbers: dict[Instruction, int], pointers: dict[Instruction, Name], taken: Sequence[Name] = ()
    ) -> None:
        """`numbers` gives instructions the number in their variables' names, `pointers` the parameters' C++ names; `taken` are further names."""
        self.names = Names()
        self.body: list[Statement] = []
        self.tables: list[Table | Kept] = []
        self._at = self.body
        self._numbers = dict(numbers)
        self._pointers = pointers
        self._tables: dict[Instruction, Name] = {}
        self._widened: dict[Computation, Computation] = {}
        self._scopes = [_Scope()]
        self._pairs: dict[Code, _Pair] = {}
        self._advice = ""
        self._naming = "value"
        self._depth = 0
        self._has_likely = False
        for name in (THREAD, BLOCK, *pointers.values(), *taken):
            self.names.fresh(name.text)

    def trial(self) -> Builder:
        """A builder in the same state. What it writes, and the names that it takes, leave this one as it is."""
        made = copy.copy(self)
        made.names, made.body, made.tables = self.names.copy(), [], []
        made._at = made.body
        made._numbers, made._tables, made._pairs = dict(self._numbers), dict(self._tables), dict(self._pairs)
        made._scopes = [scope.copy() for scope in self._scopes]
        return made

    # ---- names

    def fresh(self, stem: str) -> Name:
        """A name that nothing else has: the stem, or the stem and a number."""
        return Name(self.names.fresh(stem))

    def numbered(self, stem: str) -> Name:
        """As `fresh`, with a number from the first on."""
        return Name(self.names.numbered(stem))

    # ---- statements

    def add(self, statement: Statement) -> None:
        """Add one statement."""
        self._at.append(statement)

    @property
    def statements(self) -> list[Statement]:
        """What stands between the innermost braces so far."""
        return self._at

    def do(self, expression: Code) -> None:
        """Add a call as a statement."""
        self.add(Do(expression))

    def let(self, kind: str, stem: str, value: Code) -> Name:
        """Declare a constant of a C++ type under a new name."""
        name = self.fresh(stem)
        self.add(Let(kind, name, value))
        return name

    def array(self, kind: str, name: Name, size: int, *, shared: bool = False, alignment: int = 0) -> Name:
        """Declare an array, of each thread or of a block."""
        self.add(Array(kind, name, size, shared, alignment))
        return name

    def advise(self, text: str) -> None:
        """Advice to the compiler about the loop that follows."""
        self._advice = text

    def stem_of(self, instruction: Instruction) -> str:
        """What variables that hold the instruction's values are called, before a number that sets them apart."""
        if instruction.parameter_number is not None:
            return f"x{instruction.parameter_number}"
        return f"{identifier(instruction.opcode)}_{self._number(instruction)}"

    def name_after(self, instruction: Instruction) -> None:
        """Call the variables that follow after an instruction."""
        self._naming = self.stem_of(instruction)

    @contextmanager
    def inside(self, statements: list[Statement]) -> Iterator[None]:
        """What follows goes to these statements. Values computed inside are forgotten after it."""
        outer, self._at = self._at, statements
        self._scopes.append(_Scope())
        try:
            yield
        finally:
            inside = self._scopes.pop()
            self._scopes[-1].hides |= inside.hides or bool(inside.loads)
            self._at = outer

    @contextmanager
    def block(self) -> Iterator[None]:
        """Statements between braces."""
        made, self._advice = Block(), ""
        self.add(made)
        with self.inside(made.body):
            yield

    @contextmanager
    def own_blocks(self, first: int, blocks: int) -> Iterator[None]:
        """The statements of a segment, which so many blocks do."""
        made = Segment(first, first + blocks)
        self.add(made)
        with self.inside(made.body):
            yield

    @contextmanager
    def loop_while(self, kind: str, name: Name | None, first: Code, test: Code, step: Code) -> Iterator[None]:
        """A loop; for ever where there is no name. Values computed inside are forgotten after it."""
        made, self._advice = For(kind, name, first, test, step, self._advice), ""
        self.add(made)
        with self.inside(made.body):
            yield

    def for_ever(self) -> AbstractContextManager[None]:
        """A loop that only a `Break` ends."""
        return self.loop_while("", None, NOTHING, NOTHING, NOTHING)

    @contextmanager
    def walk(
        self, kind: str, step: Variable, start: Expression, end: int, stride: int, counter: Name | None = None
    ) -> Iterator[Variable]:
        """See `Walk`. `start` must be a variable, or a constant."""
        made = Walk(kind, Name(step.name), start, end, stride, counter)
        self.add(made)
        with self.inside(made.body):
            yield step

    @contextmanager
    def loop(self, extent: int) -> Iterator[Expression]:
        name = self.numbered("s")
        counter = variable(name.text, extent)
        if isinstance(counter, Constant) and extent == 1:
            with self.block():
                yield counter
            return
        kind = index_type(Variable(0, extent, name.text))
        if extent > MOST_UNROLLED and "unroll" not in self._advice:
            self.advise("unroll 4")
        with self.loop_while(kind, name, code("0"), code("{} < {}", name, extent), code("++{}", name)):
            yield counter

    @contextmanager
    def branch(self, condition: Code) -> Iterator[None]:
        """Statements that run where the condition holds; always where there is none."""
        if not condition:
            yield
            return
        made = Block(condition)
        self.add(made)
        with self.inside(made.body):
            yield

    @contextmanager
    def likely(self, condition: Code) -> Iterator[Code]:
        if self._has_likely:
            yield condition
            return
        outside, hid = self._scopes[-1], self._scopes[-1].hides
        with self.branch(condition):
            yield NOTHING
            inside = self._scopes[-1]
        outside.hides = hid
        outside.likely += [*inside.loads, *inside.likely]
        outside.likely_hides |= inside.hides or inside.likely_hides

    @contextmanager
    def having_likely(self) -> Iterator[None]:
        """What `likely` conditions ask for has been read: the statements under them run without asking."""
        before, self._has_likely = self._has_likely, True
        try:
            yield
        finally:
            self._has_likely = before

    @contextmanager
    def otherwise(self) -> Iterator[None]:
        last = self._at[-1]
        assert isinstance(last, Block) and last.condition
        with self.inside(last.otherwise):
            yield

    def bind(self, element_type: ElementType, value: Code) -> Code:
        return self.bind_exact(element_type, rounded(element_type, value))

    def bind_exact(self, element_type: ElementType, value: Code) -> Code:
        """As `bind`, for a value that is of the element type already."""
        return of(self.let(register_type(element_type), self._naming, value))

    def variable(self, element_type: ElementType, value: Code) -> Code:
        name = self.fresh(self._naming)
        self.add(Let(register_type(element_type), name, value, constant=False))
        return of(name)

    def assign(self, target: Code, value: Code) -> None:
        self.add(Assign(target, value))

    # ---- index arithmetic

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

    def _digit_of_pair(self, expression: Quotient | Remainder, pair: _Pair) -> Code:
        """A digit of a thread's element by that of its vector: the compiler then sees that the elements of a vector are neighbours here too."""
        operator = "/" if isinstance(expression, Quotient) else "%"
        first = code(f"{{}} {operator} {{}}", pair.first, expression.divisor // pair.size)
        if isinstance(expression, Quotient):
            return self._digit_name(expression, first)
        name = self._digit_name(expression, code("{} * {} + {}", first, pair.size, pair.number))
        self._pairs[name] = _Pair(first, pair.size, pair.number)
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
                    self._pairs[of(name)] = _Pair(of(first), size, of(number))
        return Variable(expression.low, expression.high, name.text)

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
        return self._plain(self.place(shape, index))

    def place(self, shape: Shape, index: Index) -> Expression:
        """The position of an element in memory: the layout's strides applied to the index."""
        position: Expression = constant(0)
        order = sorted(range(len(index)), key=lambda d: -shape.strides[d])
        for d in order:  # major to minor, so that digits of one number join again
            position = add(position, multiply(self._settled(index[d]), shape.strides[d]))
        return position

    # ---- values

    def value(self, instruction: Instruction, index: Index) -> Code:
        return self._value(self._key(instruction, None, index))

    def element(self, instruction: Instruction, number: int, index: Index) -> Code:
        return self._value(self._key(instruction, number, index))

    def provide(self, instruction: Instruction, number: int | None, index: Index, name: Code) -> None:
        """Let a value that the kernel's frame has computed be found in this scope and those inside it."""
        self._scopes[-1].values[self._key(instruction, number, index)] = name

    def known(self) -> dict[Key, Code]:
        """The values that were computed, or provided, since the innermost brace."""
        return dict(self._scopes[-1].values)

    def loads(self) -> list[tuple[Instruction, Index]]:
        """The elements of parameters that were read since the innermost brace."""
        return list(self._scopes[-1].loads)

    def likely_loads(self) -> tuple[list[tuple[Instruction, Index]], bool]:
        """Those that were read under `likely` conditions since then, and whether these are all that is read there: nothing more under conditions inside or in loops."""
        return list(self._scopes[-1].likely), not self._scopes[-1].likely_hides

    def apply(
        self,
        computation: Computation,
        arguments: Sequence[Code],
        only: int | None = None,
        index: Index = (),
        *,
        wide: bool = False,
    ) -> list[Code]:
        """See `KernelBuilder`. `only` asks for one element of the root's tuple, which may leave arguments unread. `index` is where the arguments are in arrays, for a computation on
        arrays that needs them nowhere else."""
        if wide:
            if computation not in self._widened:
                self._widened[computation] = widened(computation)
            computation = self._widened[computation]
        scope = _Scope()
        for parameter, argument in zip(computation.parameters, arguments, strict=True):
            scope.values[self._key(parameter, None, index)] = argument
        self._scopes.append(scope)
        try:
            root = computation.root
            count = None if root.shape.elements is None else len(root.shape.elements)
            if count is None:
                return [self.value(root, index)]
            return [self.element(root, number, index) for number in (range(count) if only is None else (only,))]
        finally:
            self._scopes.pop()

    def store(self, pointer: Name, shape: Shape, index: Index, value: Code) -> None:
        """Write one element of an output."""
        self.put(pointer, shape, index, stored(shape.type, value))

    def put(self, pointer: Name, shape: Shape, index: Index, value: Code) -> None:
        """Write one element of an output, given as it lies in memory. Where it shares its byte with others, it may be another thread that writes those at the same time."""
        at = self.address(shape, index)
        if shape.type.per_byte == 1:
            self.assign(Code((Cell(pointer, at),)), value)
        else:
            self.do(call(f"hlo_put_{shape.type.bits}", pointer, at, value, *last_argument(shape)))

    def held(
        self, pointer: Name, shape: Shape, index: Index, first: Index | None = None, number: Code = NOTHING
    ) -> Code:
        """An element of an array as it lies in memory. Where several share a byte, `first` may be the index of the first of a vector, which begins a byte, and `number` the element's
        number in it."""
        at = self.address(shape, index)
        if shape.type.per_byte == 1:
            return Code((Cell(pointer, at),))
        if first is None:
            return Code((Part(shape.type.bits, pointer, at),))
        return Code((Part(shape.type.bits, pointer, at, self.address(shape, first), number),))

    def first_of(self, position: Expression, size: int) -> Expression | None:
        """The position of the first element of a vector of that size, given that of any; None where it is not known."""
        pair = self._pairs.get(of(position)) if isinstance(position, Variable) else None
        if pair is None or pair.size != size or pair.first.name is None:
            return None
        return multiply(Variable(0, position.high // size, pair.first.name.text), size)

    def _key(self, instruction: Instruction, number: int | None, index: Index) -> Key:
        """The instruction that makes the value, looking through tuples and their elements."""
        path = [] if number is None else [number]
        while True:
            if instruction.opcode == "get-tuple-element" and not instruction.shape.is_tuple:
                path.append(instruction.attribute("index", int))
                instruction = instruction.operands[0]
            elif instruction.opcode == "tuple" and path:
                instruction = instruction.operands[path.pop()]
            else:
                break
        settled = tuple([self._settled(e) for e in index])
        return instruction, path[0] if path else None, settled

    def _find(self, key: Key) -> Code | None:
        for scope in reversed(self._scopes):
            found = scope.values.get(key)
            if found is not None:
                return found
        return None

    def _value(self, key: Key) -> Code:
        found = self._find(key)
        if found is not None:
            return found
        if self._depth > DEEPEST + 1:  # the outermost value itself, and what it calls
            raise BackendError(f"operations that read under conditions nest deeper than {DEEPEST}", code="HLO502")
        self._depth += 1
        naming = self._naming
        stack: list[tuple[Key, bool]] = [(key, False)]
        while stack:
            top, ready = stack.pop()
            if self._find(top) is not None:
                continue
            if not ready:
                needed = [k for k in self._needs(top) if self._find(k) is None]
                if needed:
                    stack.append((top, True))
                    stack.extend((k, False) for k in reversed(needed))
                    continue
            self._compute(top)
        self._depth -= 1
        self._naming = naming
        found = self._find(key)
        assert found is not None
        return found

    def _needs(self, key: Key) -> list[Key]:
        """Operand values that are surely read at an index known already: those can be computed first."""
        instruction, _, index = key
        operands = instruction.operands
        if not operands:
            return []
        spec = find(instruction.opcode)
        if spec is None:
            return []
        needs = []
        for number, operand in enumerate(operands):
            if isinstance(spec.cuda, Elementwise):
                needs.append(self._key(operand, None, index if operand.shape.rank else ()))
                continue
            if not operand.shape.is_array:
                continue
            if not operand.shape.rank:
                needs.append(self._key(operand, None, ()))
                continue
            found = None if spec.index is None else spec.index(instruction, number)
            if found is None or found.symbols or found.runtime or found.conditions_at(index):
                continue
            needs.append(self._key(operand, None, found.apply(index)))
        return needs

    def _compute(self, key: Key) -> None:
        instruction, number, index = key
        self.name_after(instruction)
        if instruction.parameter_number is not None:
            made: Code | Sequence[Code] = self._load(instruction, index)
        elif instruction.literal is not None:
            made = self._constant(instruction, index)
        else:
            made = self._lowered(instruction, index)
        values = self._scopes[-1].values
        if isinstance(made, Code):
            values[instruction, number, index] = made
        else:
            values.update(((instruction, k, index), text) for k, text in enumerate(made))

    def _lowered(self, instruction: Instruction, index: Index) -> Code | Sequence[Code]:
        spec = find(instruction.opcode)
        lowering = None if spec is None else spec.cuda
        if isinstance(lowering, Elementwise):
            template = lowering.text_for(instruction)
            if template is not None:
                operands = [self.value(o, index if o.shape.rank else ()) for o in instruction.operands]
                return self.bind(instruction.shape.type, _filled(template, instruction.shape.type, operands))
        elif lowering is not None:
            naming = self._naming
            made = lowering(self, instruction, index)
            self._naming = naming
            if not isinstance(made, Code) or made.is_atom:
                return made
            return self.bind(instruction.shape.type, made)
        if instruction.opcode in ("fusion", "call") and not any(o.shape.rank for o in instruction.operands):
            inner = instruction.called_by("calls" if instruction.opcode == "fusion" else "to_apply")  # inside a reducer
            made = self.apply(inner, [self.value(o, ()) for o in instruction.operands])
            return made[0] if instruction.shape.is_array else made
        raise BackendError(f"no CUDA lowering for {instruction.shape} {instruction.opcode}", code="HLO503")

    def _number(self, instruction: Instruction) -> int:
        return self._numbers.setdefault(instruction, len(self._numbers))

    def _load(self, parameter: Instruction, index: Index) -> Code:
        shape = parameter.shape
        if not shape.element_count:  # a gather of no rows: every place would lie outside
            return zero(shape.type)
        self._scopes[-1].loads.append((parameter, index))
        return self.bind_exact(shape.type, loaded(shape.type, self.where(parameter, index)))

    def where(self, parameter: Instruction, index: Index, first: Index | None = None, number: Code = NOTHING) -> Code:
        """An element of a parameter as it lies in memory; `first` and `number` as for `held`."""
        return self.held(self._pointers[parameter], parameter.shape, index, first, number)

    def _constant(self, instruction: Instruction, index: Index) -> Code:
        import numpy as np

        assert instruction.literal is not None
        element_type = instruction.shape.type
        value = np.asarray(instruction.literal.value)
        first = value.reshape(-1)[:1]
        if value.size and (value.size == 1 or (value.tobytes() == first.tobytes() * value.size)):
            return literal(element_type, first[0])
        if instruction not in self._tables:
            name = self.numbered("table")
            kind, elements = bits_table(element_type, value)
            self.tables.append(Table(kind, name, tuple(elements)))
            self._tables[instruction] = name
        self._scopes[-1].hides = True
        row_major = Shape(element_type, instruction.shape.dimensions)
        held = Code((Cell(self._tables[instruction], self.address(row_major, index)),))
        return self.bind_exact(element_type, from_table(element_type, held))


def last_argument(shape: Shape) -> tuple[int, ...]:
    """A last argument for what writes elements that share bytes: how many there are, where the last byte is not full; what is behind them then stays 0."""
    return (shape.element_count,) if shape.element_count % shape.type.per_byte else ()


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


def _filled(template: str, element_type: ElementType, operands: Sequence[Code]) -> Code:
    text = template.format(
        *[f"{{{number}}}" for number in range(len(operands))],
        T=register_type(element_type),
        W=width_text(element_type),
        F="" if element_type.name == "f64" else "f",
        bits=element_type.bits,
        P=f"hlo_{element_type.name}",
    )
    return code(text, *operands)


def thread_of(threads: int) -> Variable:
    """The number of a thread among so many of its block."""
    return Variable(0, threads - 1, THREAD.text)


def block_of(first: int, blocks: int) -> Expression:
    """The number of a block among so many from the first of its segment on."""
    return add(Variable(first, first + blocks - 1, BLOCK.text), constant(-first))


def named(builder: Builder, expression: Expression) -> Expression:
    """A quotient or a remainder as the variable that holds it; anything else as it is."""
    if not isinstance(expression, Quotient | Remainder):
        return expression
    name = builder.text(expression).name
    assert name is not None
    return Variable(expression.low, expression.high, name.text)
