"""The statement types of a kernel: emitters build them, printers print them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from hlo_opt.ir.index_map import Expression, variables_of
from hlo_opt.ops.code import NOTHING, Code, Name, address, call, code, of


@dataclass(slots=True)
class Let:
    """`const kind name = value;`, or a variable unless `constant`."""

    kind: str
    name: Name
    value: Code
    constant: bool = True
    is_index: bool = False
    """Whether the value depends on indices alone, if the names in it do."""
    expression: Expression | None = None
    """The value as an expression of variables, if known."""
    alike: bool = False
    """Whether a variable is always the same in all threads."""


@dataclass(slots=True)
class Assign:
    """`target = value;`"""

    target: Code
    value: Code


@dataclass(slots=True)
class DeclaredArray:
    """An array of a thread, or of a block if `shared`; `alignment` is in bytes, 0 for the type's own."""

    kind: str
    name: Name
    size: int
    shared: bool = False
    alignment: int = 0


@dataclass(slots=True)
class Do:
    """A call for its side effect."""

    call: Code


@dataclass(slots=True)
class Barrier:
    """The threads of a block (or of a warp, if `warp`) wait for each other."""

    warp: bool = False


@dataclass(slots=True)
class GridBarrier:
    """All threads of a launch wait for each other, and then see each other's earlier writes. Blocks count themselves in
    `arrived`."""

    arrived: Name


@dataclass(slots=True)
class ClusterBarrier:
    """A step by which the threads of a cluster of blocks wait for each other.

    `step`: "show" and later "wait", after which all blocks run; "take", after which a block sees what others wrote to
    its shared memory. That has come when `arrived` has counted all its bytes.
    """

    step: str
    arrived: Code | None = None


@dataclass(slots=True)
class Fence:
    """A memory fence: other blocks see earlier writes before later ones."""


@dataclass(slots=True)
class Leave:
    """`if (condition) return;`"""

    condition: Code


@dataclass(slots=True)
class Break:
    """`if (condition) break;`. `stays`: another round would leave all variables of the thread as they are."""

    condition: Code
    stays: bool = False


@dataclass(slots=True)
class Aligned:
    """A promise that a pointer to elements of type `kind` is a multiple of `bytes`."""

    name: Name
    kind: str
    bytes: int


@dataclass(slots=True)
class Note:
    """A comment."""

    text: str


@dataclass(slots=True)
class Block:
    """Statements between braces. With a condition: an `if`, and `otherwise` is its `else`."""

    condition: Code = NOTHING
    body: list[Statement] = field(default_factory=list)
    otherwise: list[Statement] = field(default_factory=list)


@dataclass(slots=True)
class For:
    """`for (kind name = first; test; step)`; without a name, an endless loop.

    `advice` is a pragma for the compiler. `carries`: the iterations hand on variables of the thread, and the loop is
    the bulk of the thread's work. `tree` is `(lanes, first, last)`: the loop folds that many lanes, in its first
    iteration those `first` lanes apart and in its last those `last` apart; nothing reads the other lanes afterwards.
    `team`: the number of threads whose warps the following statements (up to the next such loop and with it) combine in
    the same way, in the first lane of each warp.
    """

    kind: str
    name: Name | None
    first: Code
    test: Code
    step: Code
    advice: str = ""
    body: list[Statement] = field(default_factory=list)
    carries: bool = False
    tree: tuple[int, int, int] | None = None
    team: int = 0


@dataclass(slots=True)
class BlockRange:
    """The statements of the blocks from `first` up to, but not including, `last`."""

    first: int
    last: int
    body: list[Statement] = field(default_factory=list)


@dataclass(slots=True)
class StrideLoop:
    """A loop of a thread over `start`, `start + stride`, ... below `end`.

    `start` is the thread's number among `stride` threads. A `counter` numbers the iterations, so that a compiler can
    unroll the loop: all of it, or `unrolled` iterations at a time. `late`: no iteration reads what others store, so
    that they may store after all have read.
    """

    kind: str
    name: Name
    start: Expression
    end: int
    stride: int
    counter: Name | None = None
    body: list[Statement] = field(default_factory=list)
    unrolled: int = 0
    late: bool = False

    @property
    def rounds(self) -> int:
        """The most iterations that any thread runs."""
        return -(-self.end // self.stride)


@dataclass(slots=True)
class Neighbours:
    """`size` consecutive elements of a thread: read all, compute all, then write all, so that accesses can be joined.

    `number` is an element's number among them. `reading`, `making` and `writing` run once per element, and each
    declares the variable of its position first. `arrays` hold what is read ahead and what is computed, by element;
    `bits` hold sub-byte elements that fill whole bytes. `writing`, and then `filling`, run only where `guard` holds.
    Everything may be in `making`, where a compiler joins the accesses anyway. The parts declare no name twice, because
    they may be printed as one loop.
    """

    size: int
    number: Name
    arrays: list[DeclaredArray] = field(default_factory=list)
    bits: list[DeclaredArray] = field(default_factory=list)
    reading: list[Statement] = field(default_factory=list)
    making: list[Statement] = field(default_factory=list)
    writing: list[Statement] = field(default_factory=list)
    filling: list[Statement] = field(default_factory=list)
    guard: Code = NOTHING


@dataclass(slots=True)
class Merge:
    """How one processor sorts the lines of a block, one after the other.

    There are `lines` lines of `length` elements; `line` is the variable of their number, and `live` the condition that
    a line exists. An element is what `tables` hold at `cell`, which `placing` computes from `place`. Element `two`
    comes before `one` where `less` holds after `comparing`; elements are structs with a member per table. `in_shared`:
    the tables are the block's shared memory. Only the first `kept` elements of a line are read afterwards.
    """

    length: int
    kept: int
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
    """Sorts a block's lines: the steps of a sorting network, and what a single processor does instead.

    Both order equal elements by position, so their results agree wherever the comparator is an order.
    """

    steps: list[Statement]
    merge: Merge


@dataclass(slots=True)
class ThreadChain:
    """A chain of threads, in which each continues from the results of the threads before it.

    `steps` do this for the threads of a block together, `walking` for a single processor, thread after thread; it keeps
    what is handed on in the arrays `handed`. Of every `abreast` threads, none takes anything from another.
    """

    steps: list[Statement] = field(default_factory=list)
    handed: list[DeclaredArray] = field(default_factory=list)
    walking: list[Statement] = field(default_factory=list)
    abreast: int = 1


@dataclass(slots=True)
class Peeled:
    """A thread's elements of a row that is not aligned.

    `steps` take vectors between aligned places, and single elements at both ends. `walking` takes all elements one by
    one, for processors whose vectors need no alignment.
    """

    steps: list[Statement] = field(default_factory=list)
    walking: list[Statement] = field(default_factory=list)


@dataclass(slots=True)
class AtomicChange:
    """A change of a thread's elements, which other threads may change at the same time.

    `steps` are atomic operations, or take vectors. `walking` reads, combines and writes elements one by one, for a
    single processor that runs thread after thread.
    """

    steps: list[Statement] = field(default_factory=list)
    walking: list[Statement] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class ConstantTable:
    """A table of constants, as C++ texts."""

    kind: str
    name: Name
    elements: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Kept:
    """Global memory through which the blocks of a launch communicate.

    It is zero before the first launch, and each launch leaves it ready for the next. `volatile`: accesses bypass the
    caches of a multiprocessor, which do not see the writes of others.
    """

    kind: str
    name: Name
    size: int
    volatile: bool = False


Statement = (
    Let
    | Assign
    | DeclaredArray
    | Do
    | Barrier
    | GridBarrier
    | ClusterBarrier
    | Fence
    | Leave
    | Break
    | Aligned
    | Note
    | Block
    | For
    | BlockRange
    | StrideLoop
    | Neighbours
    | Network
    | ThreadChain
    | Peeled
    | AtomicChange
)


def walk(statements: Sequence[Statement]) -> Iterator[Statement]:
    """All statements in order, nested ones after the statement that holds them."""
    todo = list(reversed(statements))
    while todo:
        statement = todo.pop()
        yield statement
        todo += reversed(inside(statement))


def inside(statement: Statement) -> Sequence[Statement]:
    """The statements that a statement holds, in order."""
    match statement:
        case Block(_, body, otherwise):
            return [*body, *otherwise]
        case For(body=body) | StrideLoop(body=body) | BlockRange(body=body):
            return body
        case Network(steps) | ThreadChain(steps):
            return steps
        case Peeled() | AtomicChange():
            return [*statement.steps, *statement.walking]
        case Neighbours():
            return [*statement.reading, *statement.making, *statement.writing, *statement.filling]
    return ()


def walked_changes(statements: Sequence[Statement]) -> list[Statement]:
    """The statements as a single processor runs them."""
    plain: list[Statement] = []
    for statement in statements:
        match statement:
            case AtomicChange(walking=walking):
                plain += walked_changes(walking)
            case Block(condition, body, otherwise):
                plain.append(Block(condition, walked_changes(body), walked_changes(otherwise)))
            case For(body=body):
                plain.append(replace(statement, body=walked_changes(body)))
            case Neighbours(making=making):
                plain.append(replace(statement, making=walked_changes(making)))
            case _:
                plain.append(statement)
    return plain


def codes_of(statement: Statement) -> Iterator[Code]:
    """The expressions of a statement itself, without nested statements."""
    match statement:
        case Let(value=value):
            yield value
        case Assign(target, value):
            yield target
            yield value
        case Do(what):
            yield what
        case Fence():
            yield call("hlo_fence")
        case GridBarrier(arrived):
            yield call("hlo_meet_grid", address(arrived, code("0")))
        case ClusterBarrier(cluster_step, counter):
            yield call(f"hlo_cluster_{cluster_step}", *([] if counter is None else [counter]))
        case Leave(condition) | Break(condition) | Neighbours(guard=condition):
            yield condition
        case Block(condition=condition):
            yield condition
        case StrideLoop(start=start):
            for name in variables_of(start):
                yield of(Name(name))
        case For(first=first, test=test, step=step):
            yield first
            yield test
            yield step


def kinds_in(statements: Sequence[Statement]) -> set[str]:
    """The C++ types of all declarations."""
    kinds = set()
    for statement in walk(statements):
        if isinstance(statement, Let | DeclaredArray):
            kinds.add(statement.kind)
        elif isinstance(statement, Neighbours):
            kinds |= {array.kind for array in (*statement.arrays, *statement.bits)}
    return kinds


def names_in(statements: Sequence[Statement]) -> set[Name]:
    """The names in the expressions of statements."""
    return {name for s in walk(statements) for expression in codes_of(s) for name in expression.names()}


def functions_in(statements: Sequence[Statement]) -> set[str]:
    """The functions that the statements call."""
    return {f for s in walk(statements) for expression in codes_of(s) for f in expression.functions()}
