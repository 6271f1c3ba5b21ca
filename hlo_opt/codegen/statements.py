"""The statements of a kernel under construction, with their names and scopes."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Self

from hlo_opt.codegen.index_text import index_type
from hlo_opt.codegen.names import Names, identifier
from hlo_opt.codegen.scalars import register_type, rounded
from hlo_opt.codegen.tree import (
    Assign,
    Block,
    BlockRange,
    ConstantTable,
    DeclaredArray,
    Do,
    For,
    Kept,
    Let,
    Statement,
    StrideLoop,
)
from hlo_opt.ir import Computation, ElementType, Instruction
from hlo_opt.ir.index_map import Constant, Expression, Variable, variable
from hlo_opt.ir.size import exactly
from hlo_opt.ops.code import NOTHING, Code, Name, code, of
from hlo_opt.ops.lowering import Index

MOST_UNROLLED = 16
"""Trip counts up to which NVRTC may unroll. It would unroll hundreds of iterations, and spill the hoisted loads."""

THREAD, BLOCK = Name("threadIdx.x"), Name("blockIdx.x")
"""Thread index in the block, and block index. Both are unsigned in CUDA."""

ElementKey = tuple[Instruction, int | None, Index]


class BraceScope:
    """What has been computed between one pair of braces."""

    __slots__ = ("changes", "digits", "heavy", "hides", "likely", "likely_hides", "loads", "starts")

    def __init__(self) -> None:
        self.changes: list[tuple[ElementKey, Code | None]] = []  # each key with its value before this scope
        self.digits: dict[Expression, Code] = {}
        self.heavy: dict[Expression, Expression] = {}
        self.starts: dict[tuple[ElementKey, int], Expression] = {}
        self.loads: list[tuple[Instruction, Index]] = []
        self.likely: list[tuple[Instruction, Index]] = []
        # whether memory is read that `loads` does not list: in tables, and in nested scopes
        self.hides = self.likely_hides = False

    def copy(self) -> BraceScope:
        clone = BraceScope()
        clone.changes, clone.digits, clone.heavy = list(self.changes), dict(self.digits), dict(self.heavy)
        clone.loads, clone.likely, clone.starts = list(self.loads), list(self.likely), dict(self.starts)
        clone.hides, clone.likely_hides = self.hides, self.likely_hides
        return clone


@dataclass(frozen=True)
class SplitPosition:
    """A position `first * size + number`, where `first` is the same for all numbers below `size`."""

    first: Code
    size: int
    number: Code


class Statements:
    """Writes statements one after another, some of them nested."""

    def __init__(
        self, numbers: dict[Instruction, int], pointers: dict[Instruction, Name], reserved: Sequence[Name] = ()
    ) -> None:
        """An empty kernel.

        numbers   the numbers of instructions in the names of their variables; others get the next ones
        pointers  the C++ names of the parameters
        reserved  further names that no variable may have
        """
        self.names = Names()
        self.body: list[Statement] = []
        self.tables: list[ConstantTable | Kept] = []
        self._at = self.body
        self._numbers = dict(numbers)
        self._pointers = pointers
        self._tables: dict[Instruction, Name] = {}
        self._widened: dict[Computation, Computation] = {}
        self._scopes = [BraceScope()]
        self._values: dict[ElementKey, Code] = {}
        """Values known in the open scopes."""
        self._pairs: dict[Code, SplitPosition] = {}
        self._accesses: dict[tuple[Name, Expression], set[int]] = {}
        """Distances between accessed elements of an array, by its name and the position that they are from."""
        self._unrolled: set[str] = set()
        """Counters of loops of which several rounds become one basic block."""
        self._places: dict[Expression, Expression] = {}
        """Variables for positions in memory."""
        self.asked: list[tuple[Instruction, Index, int]] = []
        """Starts of slices that no open scope had yet."""
        self._advice = ""
        self._naming = "value"
        self._depth = 0
        self._has_likely = False
        for name in (THREAD, BLOCK, *pointers.values(), *reserved):
            self.names.fresh(name.text)

    def trial(self) -> Self:
        """A builder in the same state. Its statements and names do not change this one."""
        clone = copy.copy(self)
        clone.names, clone.body, clone.tables = self.names.copy(), [], []
        clone._at = clone.body
        clone._numbers, clone._tables, clone._pairs = dict(self._numbers), dict(self._tables), dict(self._pairs)
        clone._places, clone.asked, clone._accesses = dict(self._places), [], {}
        clone._unrolled = set(self._unrolled)
        clone._scopes, clone._values = [scope.copy() for scope in self._scopes], dict(self._values)
        return clone

    # ---- names

    def fresh(self, stem: str) -> Name:
        """An unused name: the stem, or the stem and a number."""
        return Name(self.names.fresh(stem))

    def numbered(self, stem: str) -> Name:
        """As `fresh`, but always with a number."""
        return Name(self.names.numbered(stem))

    # ---- statements

    def add(self, statement: Statement) -> None:
        """Append one statement."""
        self._at.append(statement)

    @property
    def statements(self) -> list[Statement]:
        """The statements of the innermost braces so far."""
        return self._at

    def do(self, expression: Code) -> None:
        """Add a call as a statement."""
        self.add(Do(expression))

    def let(self, kind: str, stem: str, value: Code) -> Name:
        """Declare a constant of the C++ type `kind`. Returns its name, which is new."""
        name = self.fresh(stem)
        self.add(Let(kind, name, value))
        return name

    def array(self, kind: str, name: Name, size: int, *, shared: bool = False, alignment: int = 0) -> Name:
        """Declare an array: per thread, or per block if `shared`."""
        self.add(DeclaredArray(kind, name, exactly(size), shared, alignment))
        return name

    def advise(self, text: str) -> None:
        """Set the pragma of the next loop."""
        self._advice = text

    def stem_of(self, instruction: Instruction) -> str:
        """The stem of the variables that hold the instruction's values."""
        if instruction.parameter_number is not None:
            return f"x{instruction.parameter_number}"
        return f"{identifier(instruction.opcode)}_{self._number(instruction)}"

    def name_after(self, instruction: Instruction) -> None:
        """Name the next variables after an instruction."""
        self._naming = self.stem_of(instruction)

    @contextmanager
    def inside(self, statements: list[Statement]) -> Iterator[None]:
        """Direct what follows to these statements. Values computed inside are forgotten afterwards."""
        outer, self._at = self._at, statements
        with self.scope() as inside:
            yield
        self._scopes[-1].hides |= inside.hides or bool(inside.loads)
        self._at = outer

    @contextmanager
    def scope(self) -> Iterator[BraceScope]:
        """Values computed inside are forgotten afterwards."""
        opened = BraceScope()
        self._scopes.append(opened)
        yield opened
        self._scopes.pop()
        for key, before in reversed(opened.changes):
            if before is None:
                del self._values[key]
            else:
                self._values[key] = before

    def keep(self, key: ElementKey, value: Code) -> None:
        """Record a value for this scope and those inside it."""
        self._scopes[-1].changes.append((key, self._values.get(key)))
        self._values[key] = value

    @contextmanager
    def block(self) -> Iterator[None]:
        """Statements between braces."""
        braces, self._advice = Block(), ""
        self.add(braces)
        with self.inside(braces.body):
            yield

    @contextmanager
    def own_blocks(self, first: int, blocks: int) -> Iterator[None]:
        """The statements of a segment: of `blocks` blocks from `first` on."""
        segment = BlockRange(first, first + blocks)
        self.add(segment)
        with self.inside(segment.body):
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
        tree: tuple[int, int, int] | None = None,
        team: int = 0,
    ) -> Iterator[None]:
        """A C loop `for (kind name = first; test; step)`, or an endless one without a name; the body is emitted inside
        the `with`. Values that the body computes are not reused after it. `carries`, `tree` and `team` as in `For`."""
        loop, self._advice = For(kind, name, first, test, step, self._advice, carries=carries, tree=tree, team=team), ""
        self.add(loop)
        with self.inside(loop.body):
            yield

    def for_ever(self, *, carries: bool = False) -> AbstractContextManager[None]:
        """A loop that only a `Break` ends. `carries` as in `For`."""
        return self.loop_while("", None, NOTHING, NOTHING, NOTHING, carries=carries)

    @contextmanager
    def walk(
        self,
        kind: str,
        step: Variable,
        start: Expression,
        end: int,
        stride: int,
        counter: Name | None = None,
        unrolled: int = 0,
        late: bool = False,
    ) -> Iterator[Variable]:
        """See `StrideLoop`. `start` must be a variable or a constant."""
        walk = StrideLoop(kind, Name(step.name), start, end, stride, counter, unrolled=unrolled, late=late)
        self.add(walk)
        with self.inside(walk.body):
            yield step

    @contextmanager
    def loop(self, extent: int, *, carries: bool = False) -> Iterator[Expression]:
        """See `KernelBuilder`. `carries` as in `For`."""
        name = self.numbered("s")
        counter = variable(name.text, extent)
        if isinstance(counter, Constant) and extent == 1:
            with self.block():
                yield counter
            return
        kind = index_type(Variable(0, extent, name.text))
        if "unroll" not in self._advice:
            self.advise("unroll 1" if carries else "unroll 4" if extent > MOST_UNROLLED else "")
        if not carries:
            self._unrolled.add(name.text)
        test, step = code("{} < {}", name, extent), code("++{}", name)
        with self.loop_while(kind, name, code("0"), test, step, carries=carries):
            yield counter

    @contextmanager
    def branch(self, condition: Code) -> Iterator[None]:
        """Statements under a condition; unconditional if it is empty."""
        if not condition:
            yield
            return
        block = Block(condition)
        self.add(block)
        with self.inside(block.body):
            yield

    @contextmanager
    def likely(self, condition: Code) -> Iterator[Code]:
        """See `KernelBuilder`."""
        if self._has_likely or not condition:  # without a condition there is no scope of its own
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
        """The conditions of `likely` are satisfied by loads ahead: statements under them run unconditionally."""
        before, self._has_likely = self._has_likely, True
        try:
            yield
        finally:
            self._has_likely = before

    @contextmanager
    def otherwise(self) -> Iterator[None]:
        """See `KernelBuilder`."""
        last = self._at[-1]
        assert isinstance(last, Block) and last.condition
        with self.inside(last.otherwise):
            yield

    def bind(self, element_type: ElementType, value: Code) -> Code:
        """See `KernelBuilder`."""
        return self.bind_exact(element_type, rounded(element_type, value))

    def bind_exact(self, element_type: ElementType, value: Code) -> Code:
        """As `bind`, for a value that is already of the element type."""
        return of(self.let(register_type(element_type), self._naming, value))

    def variable(self, element_type: ElementType, value: Code, *, alike: bool = False) -> Code:
        """See `KernelBuilder`. `alike`: the variable is always the same in all threads."""
        name = self.fresh(self._naming)
        self.add(Let(register_type(element_type), name, value, constant=False, alike=alike))
        return of(name)

    def assign(self, target: Code, value: Code) -> None:
        """See `KernelBuilder`."""
        self.add(Assign(target, value))

    def _number(self, instruction: Instruction) -> int:
        return self._numbers.setdefault(instruction, len(self._numbers))
