"""The statements of a kernel: what emitters build and printers print."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from hlo_opt.ir.index_map import Expression, variables_of
from hlo_opt.ops.code import NOTHING, Code, Name, address, call, code, of


@dataclass(slots=True)
class Let:
    """`const kind name = value;`, or a variable where it is not constant."""

    kind: str
    name: Name
    value: Code
    constant: bool = True
    is_index: bool = False
    """Whether it is made of indices alone as far as the names in it are."""
    expression: Expression | None = None
    """Its value, where that is known as an expression of variables."""
    alike: bool = False
    """Whether a variable is the same in all threads at all times."""


@dataclass(slots=True)
class Assign:
    """`target = value;`"""

    target: Code
    value: Code


@dataclass(slots=True)
class Array:
    """An array of a thread, or of a block where it is `shared`; aligned to so many bytes where that is not 0."""

    kind: str
    name: Name
    size: int
    shared: bool = False
    alignment: int = 0


@dataclass(slots=True)
class Do:
    """A call for what it does."""

    call: Code


@dataclass(slots=True)
class Barrier:
    """The threads of a block wait for each other, or those of a warp (`warp`)."""

    warp: bool = False


@dataclass(slots=True)
class GridBarrier:
    """All threads of a launch wait for each other, and see what the others wrote before. `arrived` is where blocks count themselves."""

    arrived: Name


@dataclass(slots=True)
class Fence:
    """What was written before is seen by other blocks before what is written after."""


@dataclass(slots=True)
class Leave:
    """`if (condition) return;`"""

    condition: Code


@dataclass(slots=True)
class Break:
    """`if (condition) break;`"""

    condition: Code


@dataclass(slots=True)
class Aligned:
    """A promise that a pointer to elements of a kind is a multiple of so many bytes."""

    name: Name
    kind: str
    bytes: int


@dataclass(slots=True)
class Note:
    """A comment of ours."""

    text: str


@dataclass(slots=True)
class Block:
    """Statements between braces; where there is a condition, they run where it holds, else `otherwise`."""

    condition: Code = NOTHING
    body: list[Statement] = field(default_factory=list)
    otherwise: list[Statement] = field(default_factory=list)


@dataclass(slots=True)
class For:
    """`for (kind name = first; test; step)`; without a name, for ever. `advice` is a pragma for the compiler. `carries`: its rounds hand on variables of the thread, and it is the bulk of
    what the thread does. `tree`: it folds so many lanes at a time into the first so many of them, and nobody reads what the others have afterwards."""

    kind: str
    name: Name | None
    first: Code
    test: Code
    step: Code
    advice: str = ""
    body: list[Statement] = field(default_factory=list)
    carries: bool = False
    tree: tuple[int, int] | None = None


@dataclass(slots=True)
class Segment:
    """What the blocks from `first` up to `last` do."""

    first: int
    last: int
    body: list[Statement] = field(default_factory=list)


@dataclass(slots=True)
class Walk:
    """A loop of a thread over `start`, `start + stride`, ... below `end`, `start` being its place among as many threads as the stride; `rounds` of them at most. With a `counter` the rounds
    are numbered, and a compiler can unroll them."""

    kind: str
    name: Name
    start: Expression
    end: int
    stride: int
    counter: Name | None = None
    body: list[Statement] = field(default_factory=list)

    @property
    def rounds(self) -> int:
        """Steps of the thread that has most."""
        return -(-self.end // self.stride)


@dataclass(slots=True)
class Neighbours:
    """`size` elements one after another that a thread takes: all are read, then computed, then written, so that a compiler joins the accesses to memory.

    `arrays` hold what is read ahead and what is made, by element; `bits` hold what fills bytes. `number` is the variable of an element's number among them, and that of its place
    is declared first in each of `reading`, `making` and `writing`, which run for each element. `writing`, and after it `filling`, happen only where the condition `guard` holds. All may be
    in `making`, where a compiler joins the accesses anyway. No two of these declare the same name: printed as one loop they stand side by side.
    """

    size: int
    number: Name
    arrays: list[Array] = field(default_factory=list)
    bits: list[Array] = field(default_factory=list)
    reading: list[Statement] = field(default_factory=list)
    making: list[Statement] = field(default_factory=list)
    writing: list[Statement] = field(default_factory=list)
    filling: list[Statement] = field(default_factory=list)
    guard: Code = NOTHING


@dataclass(slots=True)
class Merge:
    """What orders the lines of a block when one processor does a line after the other.

    A line has `length` elements; `lines` of them are in a block, the one with the number `line` where the condition `live` holds. An element is what `tables` hold at `cell`, which is
    computed from its `place` by `placing`. Of two elements `one` and `two`, the second comes first where `less` holds after `comparing`; elements are then structs with a member called
    like each table. `in_shared`: the tables are a block's own memory.
    """

    length: int
    lines: int
    line: Name
    live: Code
    place: Name
    placing: list[Statement]
    cell: Code
    tables: list[tuple[str, Name]]
    one: Name
    two: Name
    comparing: list[Statement]
    less: Code
    in_shared: bool


@dataclass(slots=True)
class Network:
    """Brings the elements of a block's lines into order: the steps of a sorting network, and what a single processor does instead. Both order equal elements by their places, and so give the
    same result where the comparator is an order."""

    steps: list[Statement]
    merge: Merge


@dataclass(slots=True)
class Chain:
    """Each thread takes what the threads before it have, and hands on what it has: the steps in which the threads of a block do so together, and what a single processor does instead, thread
    after thread. `handed` are the arrays in which it then keeps what is handed on. Of each `abreast` threads none takes anything from another."""

    steps: list[Statement] = field(default_factory=list)
    handed: list[Array] = field(default_factory=list)
    walking: list[Statement] = field(default_factory=list)
    abreast: int = 1


@dataclass(slots=True)
class Peeled:
    """A thread's elements of a row that begins anywhere in memory: `steps` take vectors between the places where such may begin, and the elements before and behind these one by one; `walking` takes
    all elements one by one, for processors whose vectors may begin anywhere."""

    steps: list[Statement] = field(default_factory=list)
    walking: list[Statement] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Table:
    """Constants in memory, as texts."""

    kind: str
    name: Name
    elements: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Kept:
    """Memory in which the blocks of a launch meet: zero before the first launch, and left by each as the next can take it; `volatile`: past the caches of one multiprocessor, which do not see what others write."""

    kind: str
    name: Name
    size: int
    volatile: bool = False


Statement = (
    Let
    | Assign
    | Array
    | Do
    | Barrier
    | GridBarrier
    | Fence
    | Leave
    | Break
    | Aligned
    | Note
    | Block
    | For
    | Segment
    | Walk
    | Neighbours
    | Network
    | Chain
    | Peeled
)


def walk(statements: Sequence[Statement]) -> Iterator[Statement]:
    """All statements, those inside others after them."""
    todo = list(reversed(statements))
    while todo:
        statement = todo.pop()
        yield statement
        match statement:
            case Block(_, body, otherwise):
                todo += [*reversed(otherwise), *reversed(body)]
            case For(body=body) | Walk(body=body) | Segment(body=body):
                todo += reversed(body)
            case Network(steps) | Chain(steps):
                todo += reversed(steps)
            case Peeled():
                todo += reversed([*statement.steps, *statement.walking])
            case Neighbours():
                todo += reversed([*statement.reading, *statement.making, *statement.writing, *statement.filling])


def codes_of(statement: Statement) -> Iterator[Code]:
    """The expressions of a statement itself."""
    match statement:
        case Let(value=value):
            yield value
        case Assign(target, value):
            yield target
            yield value
        case Do(what):
            yield what
        case GridBarrier(arrived):
            yield call("hlo_meet_grid", address(arrived, code("0")))
        case Leave(condition) | Break(condition) | Neighbours(guard=condition):
            yield condition
        case Block(condition=condition):
            yield condition
        case Walk(start=start):
            for name in variables_of(start):
                yield of(Name(name))
        case For(first=first, test=test, step=step):
            yield first
            yield test
            yield step


def kinds_in(statements: Sequence[Statement]) -> set[str]:
    """The C++ types of what is declared."""
    found = set()
    for statement in walk(statements):
        if isinstance(statement, Let | Array):
            found.add(statement.kind)
        elif isinstance(statement, Neighbours):
            found |= {array.kind for array in (*statement.arrays, *statement.bits)}
    return found


def names_in(statements: Sequence[Statement]) -> set[Name]:
    """What the expressions of statements mention."""
    return {name for s in walk(statements) for expression in codes_of(s) for name in expression.names()}


def functions_in(statements: Sequence[Statement]) -> set[str]:
    """What the statements call."""
    return {f for s in walk(statements) for expression in codes_of(s) for f in expression.functions()}
