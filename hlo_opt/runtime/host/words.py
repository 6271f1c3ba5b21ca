"""A schedule as the words that `host_runtime.cpp` runs, with a place for every buffer.

Every routine gets a table of slots (one pointer per buffer, then scratch pointers of its loops, then the places that
its caller wants the results in) and a piece of memory in which the buffers of its own lie; a callee's piece lies in its
caller's. A routine writes its results where the caller wants them, unless a result is no value of its own (a parameter,
a constant, the same value twice): then it is copied.

Loops: a leaf of the state that the body hands on unchanged stays where it is. One that a kernel of the body updates in
place is copied once, before the loop. Any other goes back and forth between two places. Both lie where the loop got
them, if nothing else needs that memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cache
from typing import Any

from hlo_opt.codegen.lanes import may_spread
from hlo_opt.ir import Literal, Shape
from hlo_opt.ops import find
from hlo_opt.ops.contraction.table import MATMUL, convolution_dimensions
from hlo_opt.runtime.host.own_calls import (
    joined,
    phases_of,
    selection_of,
    sort_of,
    substitution_of,
    transform_of,
)
from hlo_opt.runtime.host.own_factorizations import factorization_of
from hlo_opt.runtime.host.own_routines import (
    CONVERSION,
    CONVOLUTION,
    SELECTION,
    SORT,
    Number,
    factorization_name,
    product_name,
    substitution_name,
    transform_name,
)
from hlo_opt.runtime.schedule import Schedule
from hlo_opt.runtime.schedule.lifetimes import ALIGNMENT, Arena, buffer_bytes, callees_first, lifetimes
from hlo_opt.runtime.schedule.ops import (
    AliasOp,
    Allocate,
    BranchOp,
    CallOp,
    ConstantOp,
    Copy,
    Free,
    LaunchOp,
    LoopOp,
    Op,
    Relayout,
    Routine,
    RoutineKey,
    callees,
)

_PAGE, _APART = 4096, 5 * ALIGNMENT
"""Bytes of a page, and of what stands between two buffers of whole pages."""


def _held_apart(size: int) -> int:
    """The bytes that a buffer takes. Processors tell a load from an earlier store by their places in a page: where
    buffers lie whole pages apart, the elements that a loop reads wait for those of another buffer that it has just
    written (4-KByte aliasing in Intel's optimization reference manual)."""
    return size + _APART if size and size % _PAGE == 0 else size


class Operation(IntEnum):
    """What a word asks for; `host_runtime.cpp` has the same."""

    KERNEL = 0
    VIEW = 1
    COPY = 2
    LIBRARY = 3
    WHILE = 4
    BRANCH = 5
    RETURN = 6
    OWN = 7


class Width(IntEnum):
    """Numbers in a type of another width; `host_widths.h` has the same."""

    BF16_TO_F32 = 0
    S8_TO_S32 = 1
    U8_TO_S32 = 2
    S16_TO_S32 = 3
    U16_TO_S32 = 4
    F32_TO_BF16 = 5
    S32_TO_8 = 6
    S32_TO_16 = 7
    F16_TO_F32 = 8
    F32_TO_F16 = 9


_NUMBERS = {**{number.name.lower(): number for number in Number}, "u32": Number.S32}
_NARROW = {
    "bf16": (Number.F32, Width.BF16_TO_F32, Width.F32_TO_BF16),
    "f16": (Number.F32, Width.F16_TO_F32, Width.F32_TO_F16),
    "s8": (Number.S32, Width.S8_TO_S32, Width.S32_TO_8),
    "u8": (Number.S32, Width.U8_TO_S32, Width.S32_TO_8),
    "s16": (Number.S32, Width.S16_TO_S32, Width.S32_TO_16),
    "u16": (Number.S32, Width.U16_TO_S32, Width.S32_TO_16),
}
"""What arrays of a type are computed with, and how they get there and back."""


def number_of(shapes: Sequence[Shape]) -> Number | None:
    """What a product or a convolution of arrays of these shapes, the last being the result, computes with; None where
    the host has no such routine of its own."""
    numbers = {
        _NARROW[s.type.name][0] if s.type.name in _NARROW else _NUMBERS.get(s.type.name) if s.is_array else None
        for s in shapes
    }
    plain = all(s.is_array and s.element_count and not any(s.dynamic) for s in shapes)
    return numbers.pop() if plain and len(numbers) == 1 else None


class Mode(IntEnum):
    """Where a loop keeps a leaf of its state."""

    SWAP = 0
    SAME = 1
    IN_PLACE = 2


@dataclass(frozen=True)
class RoutineWords:
    """A routine, ready to run.

    buffers  slots of buffers and scratch pointers; the destinations of results lie behind them
    slots    all slots of a frame
    deepest  slots of this frame and of all that it calls
    depth    frames, itself included
    bytes    the memory of its own buffers and of what it calls
    """

    words: tuple[int, ...]
    buffers: int
    slots: int
    deepest: int
    depth: int
    bytes: int


HostCall = tuple[CallOp | Relayout, Sequence[Shape]]
"""What Python does for a routine, whose shapes these are: a library call, or elements moved to another layout. Buffers
are slots."""


@dataclass
class ProgramWords:
    """A whole schedule; `routines[0]` is the entry. `loops` are the steps that `at_instruction` counts; `pointers` the
    most that a kernel takes. `spread`: several processors may run blocks of a launch. `own` are the routines of the
    host's own that it calls; their numbers follow those of the kernels."""

    routines: list[RoutineWords] = field(default_factory=list)
    calls: list[HostCall] = field(default_factory=list)
    constants: list[tuple[ConstantOp, Literal, Shape]] = field(default_factory=list)
    loops: list[LoopOp] = field(default_factory=list)
    pointers: int = 1
    spread: bool = True
    own: list[str] = field(default_factory=list)


def words_of(schedule: Schedule, *, spread: bool = True) -> ProgramWords:
    """The words of a schedule. `spread`: several processors may run blocks of a launch."""
    order = callees_first(schedule.routines)
    entry = next(iter(schedule.routines))
    numbers = {key: len(order) - 1 - position for position, key in enumerate(order)}
    assert numbers[entry] == 0
    program = ProgramWords(spread=spread)
    launchers = {kernel.symbol: number for number, kernel in enumerate(schedule.kernels)}
    done: dict[RoutineKey, RoutineWords] = {}
    for key in order:
        done[key] = _Writer(schedule.routines[key], program, launchers, numbers, done).write()
    program.routines = [done[key] for key in reversed(order)]
    return program


def product_of(op: CallOp, shapes: Sequence[Shape]) -> tuple[int, ...] | None:
    """What products of two matrices compute with, rows, columns, terms, and strides in elements: left by row and by
    term, right by term and by column, result by row and by column; then the number of dimensions that several products
    have, and for each its size, and how far apart left, right and result are. Rows or columns that do not lie as one
    dimension are several products. None for other steps, and where terms do not lie as one."""
    i = op.instruction
    left_terms, right_terms = i.ints("lhs_contracting_dims"), i.ints("rhs_contracting_dims")
    if not left_terms or len(op.inputs) != 2 or len(op.outputs) != 1:
        return None
    left, right, result = (shapes[b] for b in (*op.inputs, *op.outputs))
    number = number_of((left, right, result))
    if number is None:
        return None
    left_batch, right_batch = i.ints("lhs_batch_dims"), i.ints("rhs_batch_dims")
    left_rows = [d for d in range(left.rank) if d not in (*left_batch, *left_terms)]
    right_columns = [d for d in range(right.rank) if d not in (*right_batch, *right_terms)]
    dimensions = list(range(result.rank))
    batch, rest = dimensions[: len(left_batch)], dimensions[len(left_batch) :]
    rows, columns = rest[: len(left_rows)], rest[len(left_rows) :]
    terms = joined((left, left_terms), (right, right_terms))
    if len(terms) > 1:
        return None
    (count, *of_terms) = terms[0]
    batches = joined((left, left_batch), (right, right_batch), (result, batch))
    of_rows, several_rows = _longest(joined((left, left_rows), (result, rows)))
    of_columns, several_columns = _longest(joined((right, right_columns), (result, columns)))
    batches += [(size, at, 0, to) for size, at, to in several_rows]
    batches += [(size, 0, at, to) for size, at, to in several_columns]
    across = (of_rows[1], *of_terms, of_columns[1], of_rows[2], of_columns[2])
    several = [batch for batch in batches if batch[0] != 1]
    return (number, of_rows[0], of_columns[0], count, *across, len(several), *(w for words in several for w in words))


def _longest(dimensions: Sequence[tuple[int, ...]]) -> tuple[tuple[int, ...], list[tuple[int, ...]]]:
    """The longest dimension, and the others."""
    place = max(range(len(dimensions)), key=lambda k: dimensions[k][0])
    return dimensions[place], [d for k, d in enumerate(dimensions) if k != place]


MOST_SPATIAL = 3
"""Spatial dimensions of a convolution of the host's own; `host_convolution.h` has the same."""


def convolution_of(op: CallOp, shapes: Sequence[Shape]) -> tuple[int, ...] | None:
    """The words of a convolution of f32, f16 or bf16 arrays: batch, features, output features, each of one group;
    strides in elements (image by batch and feature, weights by feature and output feature, result by batch and output
    feature); the number of groups, and how far apart they are in image, weights and result; the number of spatial
    dimensions, and for each what `host_convolution.h` says. None for other steps."""
    i = op.instruction
    if i.opcode != "convolution" or op.call != "convolution" or len(op.inputs) != 2 or len(op.outputs) != 1:
        return None
    image, weights, result = every = [shapes[b] for b in (*op.inputs, *op.outputs)]
    if number_of(every) is not Number.F32:
        return None
    positions, window, groups = convolution_dimensions(i).described
    (batch, feature, spatial), (column, inner, window_at), (result_batch, result_column, places) = positions
    if len(spatial) > MOST_SPATIAL:
        return None
    sizes = (image.dimensions[batch] // groups[1], weights.dimensions[inner], weights.dimensions[column] // max(groups))
    words = list(sizes)
    words += [image.strides[batch], image.strides[feature], weights.strides[inner], weights.strides[column]]
    words += [result.strides[result_batch], result.strides[result_column]]
    apart = sizes[1] * image.strides[feature] if groups[0] > 1 else sizes[0] * image.strides[batch]
    words += [max(groups), apart, sizes[2] * weights.strides[column], sizes[2] * result.strides[result_column]]
    words.append(len(spatial))
    for at, weight, to, (size, stride, low, _, spread, dilation, turned) in zip(
        spatial, window_at, places, window, strict=True
    ):
        words += [result.dimensions[to], size, stride, low, spread, dilation, int(turned), image.dimensions[at]]
        words += [image.strides[at], weights.strides[weight], result.strides[to]]
    return tuple(words)


class _Writer:
    """Writes one routine."""

    def __init__(
        self,
        routine: Routine,
        program: ProgramWords,
        launchers: Mapping[str, int],
        numbers: Mapping[RoutineKey, int],
        done: Mapping[RoutineKey, RoutineWords],
    ) -> None:
        self.routine, self.program, self.shapes = routine, program, routine.shapes
        self.launchers, self.numbers, self.done = launchers, numbers, done
        self.lives = lifetimes(routine.ops, routine.shapes)
        self.arena = Arena()
        self.places: dict[int, int] = {}
        """Offsets, by slot, of what lies in this routine's memory."""
        self.slots = len(self.shapes)
        self.known: list[tuple[int, int]] = []
        self.targets: dict[int, int] = {}
        self.words: list[int] = []
        self.borrowed: list[int] = []
        """Offsets of the current operation, freed after it."""
        self.deepest = self.depth = 0

    # ---- slots and places

    def slot(self) -> int:
        self.slots += 1
        return self.slots - 1

    def scratch(self, count: int) -> int:
        """An offset for the length of one operation."""
        offset = self.arena.take(_held_apart(count))
        self.borrowed.append(offset)
        return offset

    def place(self, buffer: int) -> None:
        """Give a buffer that gets memory its place: the caller's where it is a result, else in this routine's
        memory."""
        if buffer not in self.targets and self.shapes[buffer].is_array:
            offset = self.places[buffer] = self.arena.take(_held_apart(buffer_bytes(self.shapes[buffer])))
            self.known.append((buffer, offset))

    # ---- the routine

    def write(self) -> RoutineWords:
        routine = self.routine
        own = {b for born in self.lives.born for b in born}
        for k, b in enumerate(routine.results):
            root = self.lives.root[b]
            if root in own and root not in self.targets and buffer_bytes(self.shapes[root]):
                self.targets[root] = k
        constants: list[tuple[int, int]] = []
        for op, born, dead in zip(routine.ops, self.lives.born, self.lives.dead, strict=True):
            self.borrowed = []
            if isinstance(op, ConstantOp):
                for b, literal in zip(op.outputs, op.literals, strict=True):
                    constants.append((b, len(self.program.constants)))
                    self.program.constants.append((op, literal, self.shapes[b]))
            for b in born:
                self.place(b)
            self.write_op(op)
            for offset in self.borrowed:
                self.arena.give_back(offset)
            for b in dead:
                if b in self.places:
                    self.arena.give_back(self.places[b])
        self.results()
        head = [len(self.known), *(w for pair in self.known for w in pair)]
        head += [len(constants), *(w for pair in constants for w in pair)]
        head += [len(self.targets), *(w for pair in self.targets.items() for w in pair)]
        total = self.slots + len(routine.results)
        words = (*head, *self.words)
        return RoutineWords(words, self.slots, total, total + self.deepest, 1 + self.depth, self.arena.size)

    def results(self) -> None:
        copies = []
        donated = {result for _, result in self.routine.donated}
        for k, b in enumerate(self.routine.results):
            size = buffer_bytes(self.shapes[b])
            if self.targets.get(self.lives.root[b]) != k and k not in donated and size:
                copies += [k, b, size]
        self.words += [Operation.RETURN, len(copies) // 3, *copies]

    def write_op(self, op: Op) -> None:
        match op:
            case AliasOp():
                self.words += [Operation.VIEW, op.outputs[0], op.inputs[0]]
            case Copy():
                self.words += [Operation.COPY, *op.outputs, *op.inputs, buffer_bytes(self.shapes[op.outputs[0]])]
            case LaunchOp():
                self.launch(op)
            case Relayout():
                self.call(op)
            case CallOp():
                buffers = (*op.inputs, *op.outputs)
                if (product := product_of(op, self.shapes)) is not None:
                    number, *numbers = product
                    self.computed(product_name(Number(number)), op, [numbers])
                elif (convolution := convolution_of(op, self.shapes)) is not None:
                    self.computed(CONVOLUTION, op, phases_of(convolution))
                elif (selection := selection_of(op, self.shapes)) is not None:
                    self.own(SELECTION, *buffers, *selection)
                elif (sort := sort_of(op, self.shapes)) is not None:
                    self.own(SORT, *sort)
                elif (substitution := substitution_of(op, self.shapes)) is not None:
                    *numbers, number = substitution
                    self.own(substitution_name(Number(number)), *buffers, *numbers)
                elif (factorization := factorization_of(op, self.shapes)) is not None:
                    number, *numbers = factorization
                    self.own(factorization_name(Number(number)), *numbers)
                elif (transform := transform_of(op, self.shapes)) is not None:
                    direction, number, *numbers = transform
                    self.own(transform_name(Number(number)), *buffers, direction, *numbers)
                elif op.kind != "empty":
                    self.call(op)
            case LoopOp():
                self.loop(op)
            case BranchOp():
                self.branch(op)
            case Allocate() | ConstantOp() | Free():
                pass  # places are known before anything runs
            case _:
                raise AssertionError(type(op).__name__)

    def launch(self, op: LaunchOp) -> None:
        kernel = op.kernel
        if not kernel.launch.grid:
            return
        pointers = (*op.inputs, *op.outputs)
        self.program.pointers = max(self.program.pointers, len(pointers))
        touched = sum(buffer_bytes(self.shapes[b]) for b in pointers)
        spread = int(self.program.spread and may_spread(kernel))
        self.words += [Operation.KERNEL, self.launchers[kernel.symbol], kernel.launch.grid, touched, spread]
        self.words += [len(pointers), *pointers]

    def own(self, name: str, *words: int) -> None:
        """A call of a routine of the host's own."""
        known = self.program.own
        if name not in known:
            known.append(name)
        self.words += [Operation.OWN, len(self.launchers) + known.index(name), len(words), *words]

    def computed(self, name: str, op: CallOp, described: Sequence[Sequence[int]]) -> None:
        """A product, or the parts of a convolution. Arrays of narrow types are widened before it, the result is
        narrowed after it."""
        buffers = (*op.inputs, *op.outputs)
        places, after = list(buffers), list[tuple[int, ...]]()
        for k, b in enumerate(buffers):
            shape = self.shapes[b]
            if shape.type.name not in _NARROW:
                continue
            _, widened, narrowed = _NARROW[shape.type.name]
            places[k] = self.slot()
            self.known.append((places[k], self.scratch(4 * shape.element_count)))
            if k < len(op.inputs):
                self.own(CONVERSION, b, places[k], shape.element_count, widened)
            else:
                after.append((places[k], b, shape.element_count, narrowed))
        for part in described:
            self.own(name, *places, *part)
        for words in after:
            self.own(CONVERSION, *words)

    def call(self, op: CallOp | Relayout) -> None:
        self.words += [Operation.LIBRARY, len(self.program.calls)]
        self.program.calls.append((op, self.shapes))

    def callees_base(self, op: Op) -> int:
        routines = [self.done[k] for k in callees(op)]
        self.deepest = max(self.deepest, *(r.deepest for r in routines))
        self.depth = max(self.depth, *(r.depth for r in routines))
        return self.scratch(max(r.bytes for r in routines))

    def loop(self, op: LoopOp) -> None:
        base = self.callees_base(op)
        predicate = self.slot()
        self.known.append((predicate, self.scratch(1)))
        words = [self.numbers[op.condition], self.numbers[op.body], predicate, base, len(self.program.loops)]
        words.append(len(op.inputs))
        self.program.loops.append(op)
        for k in op.owned:
            self.words += [Operation.VIEW, op.outputs[k], op.inputs[k]]
        for k, (source, target) in enumerate(zip(op.inputs, op.outputs, strict=True)):
            size = buffer_bytes(self.shapes[target])
            mode = Mode.SAME if k in op.unchanged else (Mode.IN_PLACE if k in op.updated else Mode.SWAP)
            spare = target
            if mode is Mode.SWAP and size:
                spare = self.slot()
                self.known.append((spare, self.scratch(size)))
            words += [source, target, spare, self.slot(), mode, size]
        self.words += [Operation.WHILE, *words]

    def branch(self, op: BranchOp) -> None:
        base = self.callees_base(op)
        for number, b in op.held:
            self.words += [Operation.VIEW, op.outputs[number], b]
        width, signed = 0, 0
        if op.selector is not None:
            selector = self.shapes[op.selector].type
            width = 0 if selector.kind == "pred" else selector.dtype.itemsize
            signed = int(selector.kind == "signed")
        tail: list[int] = [len(op.branches)]
        for key, arguments in zip(op.branches, op.arguments, strict=True):
            tail += [self.numbers[key], len(arguments), *arguments]
        head = [-1 if op.selector is None else op.selector, width, signed, base]
        length = len(head) + 2 + len(op.outputs) + len(tail)
        self.words += [Operation.BRANCH, *head, length, len(op.outputs), *op.outputs, *tail]


def host_routines(schedule: Schedule) -> dict[str, list[str]]:
    """The routines that compute what a schedule leaves to libraries and to the interpreter, by what is called, each
    once."""
    routines_of: dict[str, set[str]] = {}
    for routine, op in schedule.ops():
        if isinstance(op, CallOp) and op.kind != "empty":
            routines_of.setdefault(op.call, set()).add(_routine(op, routine.shapes))
    return {call: sorted(routines) for call, routines in sorted(routines_of.items())}


def _routine(op: CallOp, shapes: Any) -> str:
    if product_of(op, shapes) is not None:
        return "a product of the host's own (host_product.h)"
    if convolution_of(op, shapes) is not None:
        return "a convolution of the host's own (host_convolution.h)"
    if selection_of(op, shapes) is not None:
        return "a selection of the host's own (host_selection.h)"
    if sort_of(op, shapes) is not None:
        return "a sort of the host's own (host_sort.h)"
    if substitution_of(op, shapes) is not None:
        return "a substitution of the host's own (host_substitution.h)"
    if factorization_of(op, shapes) is not None:
        return "a factorization of the host's own (host_factorization.h)"
    if transform_of(op, shapes) is not None:
        return "a transform of the host's own (host_transform.h)"
    spec = find(op.call)
    routine = "" if spec is None else spec.routine
    result = shapes[op.outputs[0]].type if op.outputs else None
    if routine == MATMUL and result is not None and (result.is_float or result.is_complex):
        return f"{routine} ({blas()})"
    return routine or "NumPy"


@cache
def blas() -> str:
    """The library that NumPy multiplies matrices with, as it is loaded here."""
    import numpy as np
    from threadpoolctl import threadpool_info

    np.matmul(np.ones((2, 2), np.float32), np.ones((2, 2), np.float32))
    names = {"openblas": "OpenBLAS", "mkl": "MKL", "blis": "BLIS"}
    libraries = [i for i in threadpool_info() if i.get("user_api") == "blas"]
    if not libraries:
        return "NumPy's own"
    first = libraries[0]
    return f"{names.get(first['internal_api'], first['internal_api'])} {first.get('version') or ''}".strip()
