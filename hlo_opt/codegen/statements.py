"""The statements of a kernel while it is written, and the names and scopes that go with them."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Self

from hlo_opt.codegen.index_text import index_type
from hlo_opt.codegen.names import Names, identifier
from hlo_opt.codegen.scalars import register_type, rounded
from hlo_opt.codegen.tree import Array, Assign, Block, Do, For, Kept, Let, Segment, Statement, Table, Walk
from hlo_opt.ir import Computation, ElementType, Instruction
from hlo_opt.ir.index_map import Constant, Expression, Variable, variable
from hlo_opt.ops.code import NOTHING, Code, Name, code, of
from hlo_opt.ops.lowering import Index

MOST_UNROLLED = 16
"""Rounds of a loop that NVRTC may unroll as it likes. It would unroll hundreds, and spill what it has loaded ahead."""

THREAD, BLOCK = Name("threadIdx.x"), Name("blockIdx.x")
"""The number of a thread in its block, and that of the block. Both are unsigned in CUDA."""

Key = tuple[Instruction, int | None, Index]


class Scope:
    """What has been computed between one pair of braces."""

    __slots__ = ("digits", "heavy", "hides", "likely", "likely_hides", "loads", "made")

    def __init__(self) -> None:
        self.made: list[tuple[Key, Code | None]] = []  # with what each was before
        self.digits: dict[Expression, Code] = {}
        self.heavy: dict[Expression, Expression] = {}
        self.loads: list[tuple[Instruction, Index]] = []
        self.likely: list[tuple[Instruction, Index]] = []
        # whether memory is read that `loads` does not tell of: in tables, and between braces inside
        self.hides = self.likely_hides = False

    def copy(self) -> Scope:
        made = Scope()
        made.made, made.digits, made.heavy = list(self.made), dict(self.digits), dict(self.heavy)
        made.loads, made.likely = list(self.loads), list(self.likely)
        made.hides, made.likely_hides = self.hides, self.likely_hides
        return made


@dataclass(frozen=True)
class Pair:
    """A position that is `first * size + number`, `first` being the same for all numbers below the size."""

    first: Code
    size: int
    number: Code


class Statements:
    """Writes statements one after another, some of them inside others."""

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
        self._scopes = [Scope()]
        self._values: dict[Key, Code] = {}
        """What has been computed in all scopes."""
        self._pairs: dict[Code, Pair] = {}
        self._places: dict[Expression, Expression] = {}
        """What is known of positions in memory as a variable."""
        self._advice = ""
        self._naming = "value"
        self._depth = 0
        self._has_likely = False
        for name in (THREAD, BLOCK, *pointers.values(), *taken):
            self.names.fresh(name.text)

    def trial(self) -> Self:
        """A builder in the same state. What it writes, and the names that it takes, leave this one as it is."""
        made = copy.copy(self)
        made.names, made.body, made.tables = self.names.copy(), [], []
        made._at = made.body
        made._numbers, made._tables, made._pairs = dict(self._numbers), dict(self._tables), dict(self._pairs)
        made._places = dict(self._places)
        made._scopes, made._values = [scope.copy() for scope in self._scopes], dict(self._values)
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
        with self.scope() as inside:
            yield
        self._scopes[-1].hides |= inside.hides or bool(inside.loads)
        self._at = outer

    @contextmanager
    def scope(self) -> Iterator[Scope]:
        """Values computed inside are forgotten after it."""
        made = Scope()
        self._scopes.append(made)
        yield made
        self._scopes.pop()
        for key, before in reversed(made.made):
            if before is None:
                del self._values[key]
            else:
                self._values[key] = before

    def keep(self, key: Key, value: Code) -> None:
        """Let a value be found in this scope and those inside it."""
        self._scopes[-1].made.append((key, self._values.get(key)))
        self._values[key] = value

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
    def loop_while(
        self,
        kind: str,
        name: Name | None,
        first: Code,
        test: Code,
        step: Code,
        *,
        carries: bool = False,
        tree: tuple[int, int] | None = None,
    ) -> Iterator[None]:
        """A loop; for ever where there is no name. Values computed inside are forgotten after it. `carries` and `tree` as of `For`."""
        made, self._advice = For(kind, name, first, test, step, self._advice, carries=carries, tree=tree), ""
        self.add(made)
        with self.inside(made.body):
            yield

    def for_ever(self, *, carries: bool = False) -> AbstractContextManager[None]:
        """A loop that only a `Break` ends. `carries` as of `For`."""
        return self.loop_while("", None, NOTHING, NOTHING, NOTHING, carries=carries)

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
    def loop(self, extent: int, *, carries: bool = False) -> Iterator[Expression]:
        """See `KernelBuilder`. `carries` as of `For`."""
        name = self.numbered("s")
        counter = variable(name.text, extent)
        if isinstance(counter, Constant) and extent == 1:
            with self.block():
                yield counter
            return
        kind = index_type(Variable(0, extent, name.text))
        if "unroll" not in self._advice:
            self.advise("unroll 1" if carries else "unroll 4" if extent > MOST_UNROLLED else "")
        test, step = code("{} < {}", name, extent), code("++{}", name)
        with self.loop_while(kind, name, code("0"), test, step, carries=carries):
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

    def variable(self, element_type: ElementType, value: Code, *, alike: bool = False) -> Code:
        """See `KernelBuilder`. `alike`: it is the same in all threads at all times."""
        name = self.fresh(self._naming)
        self.add(Let(register_type(element_type), name, value, constant=False, alike=alike))
        return of(name)

    def assign(self, target: Code, value: Code) -> None:
        self.add(Assign(target, value))

    def _number(self, instruction: Instruction) -> int:
        return self._numbers.setdefault(instruction, len(self._numbers))
