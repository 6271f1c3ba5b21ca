"""The printer of kernels as CUDA."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from hlo_opt.codegen import device_code
from hlo_opt.codegen.angles import paired
from hlo_opt.codegen.index_text import render
from hlo_opt.codegen.kernel import KEPT, KernelTree, kept_places
from hlo_opt.codegen.tree import (
    Aligned,
    Assign,
    AtomicChange,
    Barrier,
    Block,
    BlockRange,
    Break,
    ClusterBarrier,
    ConstantTable,
    DeclaredArray,
    Do,
    Fence,
    For,
    GridBarrier,
    Kept,
    Leave,
    Let,
    Neighbours,
    Network,
    Note,
    Peeled,
    Statement,
    StrideLoop,
    ThreadChain,
    codes_of,
    functions_in,
    kinds_in,
    names_in,
)
from hlo_opt.codegen.turns import stored_late
from hlo_opt.ir.index_map import Expression
from hlo_opt.ir.size import NAME as SIZE
from hlo_opt.ir.size import unsigned
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

_INDENT = "  "
_SHUFFLES = {"sync": "", "down": "_down", "up": "_up", "bits": "_xor"}
"""What CUDA calls the kinds of `Shuffle`."""


def expression_text(expression: Code) -> str:
    """An expression as CUDA."""
    return printed(expression, _piece)


def _piece(piece: Special) -> str:
    match piece:
        case Function(text):
            return text
        case Address(element):
            return f"&{_piece(element)}"
        case FirstRound(step, stride, counter):
            return f"{step.text} < {stride}" if counter is None else f"{counter.text} == 0"
        case Name(text):
            return text
        case Cell(array, index):
            return f"{array.text}[{expression_text(index)}]"
        case PackedElement(bits, array, _, Code() as first, Code() as number):
            return f"hlo_get<{bits}>({array.text}, {expression_text(first)}, {expression_text(number)})"
        case PackedElement(bits, array, position):
            return f"hlo_get<{bits}>({array.text}, {expression_text(position)})"
        case Shuffle(kind, register, lane, cast):
            inner = f"__shfl{_SHUFFLES[kind]}_sync(0xffffffffu, {'(int)' if cast else ''}{register.text}"
            return f"{f'({cast})' if cast else ''}{inner}, {expression_text(lane)})"


def statement_lines(
    statements: Sequence[Statement], margin: str = _INDENT, text: Callable[[Code], str] = expression_text
) -> Iterator[str]:
    """Statements as lines of CUDA; `text` prints their expressions."""
    for statement in statements:
        match statement:
            case Let(kind, name, value, constant):
                yield f"{margin}{'const ' * constant}{kind} {name.text} = {text(value)};"
            case Assign(target, value):
                yield f"{margin}{text(target)} = {text(value)};"
            case DeclaredArray(kind, name, size, shared, alignment):
                place = f"__shared__ {f'__align__({alignment}) ' if alignment else ''}" if shared else ""
                yield f"{margin}{place}{kind} {name.text}[{size}];"
            case Do(call):
                yield f"{margin}{text(call)};"
            case Barrier(warp):
                yield f"{margin}{'__syncwarp' if warp else '__syncthreads'}();"
            case GridBarrier() | ClusterBarrier() | Fence():
                yield from (f"{margin}{text(meeting)};" for meeting in codes_of(statement))
            case Leave(condition):
                yield f"{margin}if ({text(condition)}) return;"
            case Break(condition):
                yield f"{margin}if ({text(condition)}) break;"
            case Aligned(name, kind, count):
                yield f"{margin}{name.text} = ({kind})__builtin_assume_aligned({name.text}, {count});"
            case Note(words):
                yield f"{margin}// {words}"
            case Block():
                yield from _block(statement, margin, text)
            case Neighbours():
                yield from statement_lines(apart(statement), margin, text)
            case BlockRange(first, last, body):
                yield f"{margin}if (blockIdx.x >= {unsigned(first)} && blockIdx.x < {unsigned(last)}) {{"
                yield from statement_lines(body, margin + _INDENT, text)
                yield f"{margin}}}"
            case Network(steps) | ThreadChain(steps) | Peeled(steps) | AtomicChange(steps):
                yield from statement_lines(steps, margin, text)
            case StrideLoop():
                once, late = walked_once(statement), stored_late(statement, _start_of(statement))
                plain = [walked(statement)] if once is None else [once]
                yield from statement_lines(plain if late is None else late, margin, text)
            case For(kind, counter, start, test, step, advice, body):
                if advice:
                    yield f"{margin}#pragma {advice}"
                head = "" if counter is None else f"{kind} {counter.text} = {text(start)}"
                rest = [f" {part}" if part else "" for part in map(text, (test, step))]
                yield f"{margin}for ({head};{';'.join(rest)}) {{"
                yield from statement_lines(body, margin + _INDENT, text)
                yield f"{margin}}}"


def _block(block: Block, margin: str, text: Callable[[Code], str]) -> Iterator[str]:
    yield f"{margin}if ({text(block.condition)}) {{" if block.condition else f"{margin}{{"
    yield from statement_lines(block.body, margin + _INDENT, text)
    yield f"{margin}}}"
    if block.otherwise:
        yield f"{margin}else {{"
        yield from statement_lines(block.otherwise, margin + _INDENT, text)
        yield f"{margin}}}"


def helpers(tree: KernelTree) -> str:
    """The CUDA text of the helpers (`hlo_opt/codegen/device`) that a kernel calls, directly or through another."""
    kinds = kinds_in(tree.body) | {t.kind for t in (*tree.tables, *tree.parameters)}
    return device_code.helpers(functions_in(tree.body).union(*(code(kind).functions() for kind in kinds)))


def kernel_text(tree: KernelTree, bounds: str) -> tuple[str, str]:
    """A kernel with its helpers, as the text before and after its symbol. `bounds` are the arguments of
    `__launch_bounds__`: threads per block, and blocks per multiprocessor."""
    parameters = [f"{'const ' * p.constant}{p.kind}*{' __restrict__' * p.alone} {p.name.text}" for p in tree.parameters]
    tables = [t for t in tree.tables if isinstance(t, ConstantTable)]
    places = kept_places(tree)
    if places:
        parameters.append(f"unsigned char* __restrict__ {KEPT}")
    if tree.size:
        parameters.append(f"const int {SIZE}")
    body = "\n".join([*(kept_text(table, first) for table, first in places), *statement_lines(paired(tree.body))])
    before = helpers(tree) + "".join(map(table_text, tables))
    clusters = f"__cluster_dims__({tree.launch.cluster}, 1, 1) " if tree.launch.cluster > 1 else ""
    before += f'extern "C" __global__ void {clusters}__launch_bounds__({bounds}) '
    return before, "(\n    " + ",\n    ".join(parameters) + f") {{\n{body}\n}}\n"


def table_text(table: ConstantTable) -> str:
    """The declaration of a constant table."""
    rows = [", ".join(table.elements[k : k + 12]) for k in range(0, len(table.elements), 12)]
    body = ",\n  ".join(rows or ["0"])
    return f"static __device__ const {table.kind} {table.name.text}[] = {{\n  {body}}};\n"


def kept_text(table: Kept, first: int) -> str:
    """The declaration of an array in the launch's memory, from byte `first` on."""
    kind = f"{'volatile ' * table.volatile}{table.kind}*"
    return f"  {kind} const {table.name.text} = ({kind})({KEPT} + {first});"


def walked(walk: StrideLoop) -> For:
    """The loop of a walk."""
    start, name = _start_of(walk), walk.name
    if walk.counter is None:
        test, step = code("{} < {}", name, walk.end), code("{} += {}", name, walk.stride)
        return For(walk.kind, name, start, test, step, body=walk.body)
    test, step = code("{} < {}", walk.counter, walk.rounds), code("++{}", walk.counter)
    place = Let(walk.kind, name, code("{} + {} * {}", start, walk.counter, walk.stride), is_index=True)
    is_whole = walk.end % walk.stride == 0
    body = walk.body if is_whole else [Block(code("{} < {}", name, walk.end), walk.body)]
    advice = f"unroll {walk.unrolled}" if walk.unrolled else "unroll"
    return For("int", walk.counter, code("0"), test, step, advice, [place, *body])


def walked_once(walk: StrideLoop) -> Block | None:
    """A walk of one round, without a loop: of a loop the compiler would not know that it ends after a round. None for a
    walk of several rounds."""
    if walk.rounds > 1 or walk.counter is not None:
        return None
    first = Let(walk.kind, walk.name, _start_of(walk), is_index=True)
    within = code("{} < {}", walk.name, walk.end)
    return Block(body=[first, *walk.body] if walk.end == walk.stride else [first, Block(within, walk.body)])


def _start_of(walk: StrideLoop) -> Code:
    return render(walk.start, _no_digit)


def _no_digit(expression: Expression) -> Code:
    raise AssertionError(f"a walk starts at {expression}, which is not a variable")


MOST_READ_AT_ONCE = 4
"""The most arrays that one loop reads ahead: NVRTC combines neighbouring loads only within about 64 instructions of a
basic block."""


def _few_at_once(reading: list[Statement]) -> list[list[Statement]]:
    """The reads ahead, split into one loop per array where they are many."""
    assigned = [statement for statement in reading if isinstance(statement, Assign)]
    declared = [statement for statement in reading if isinstance(statement, Let)]
    if len(assigned) <= MOST_READ_AT_ONCE or len(assigned) + len(declared) < len(reading):
        return [reading]
    loops = []
    for assign in assigned:
        needed, lets = names_in([assign]), list[Statement]()
        for let in reversed(declared):
            if let.name in needed:
                needed |= names_in([let])
                lets.insert(0, let)
        loops.append([*lets, assign])
    return loops


def apart(group: Neighbours) -> list[Statement]:
    """Vector accesses as consecutive loops over the elements."""

    def loop(body: list[Statement]) -> list[Statement]:
        test = code("{} < {}", group.number, group.size)
        return [For("int", group.number, code("0"), test, code("++{}", group.number), "unroll", body)] if body else []

    statements: list[Statement] = [*group.bits, *group.arrays]
    for reading in _few_at_once(group.reading):
        statements += loop(reading)
    statements += loop(group.making)
    last = [*loop(group.writing), *group.filling]
    return statements + ([Block(group.guard, last)] if group.guard and last else last)
