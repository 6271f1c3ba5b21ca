"""Stretches of a routine: consecutive kernels, and library calls that write where they are asked to, without control
flow or other calls between them, and their memory.

Temporaries lie in one block, where values with disjoint lifetimes share space; what is read afterwards gets memory of
its own. A stretch thus needs the same few addresses each time it runs, however many kernels it has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, TypeAlias, cast

from hlo_opt.codegen.kernel import Kernel
from hlo_opt.ir import Shape
from hlo_opt.ir.values import Array
from hlo_opt.runtime.schedule.lifetimes import Arena, Lifetimes, buffer_bytes, lifetimes
from hlo_opt.runtime.schedule.ops import (
    AliasOp,
    Allocate,
    Buffers,
    CallOp,
    ConstantOp,
    Copy,
    Free,
    LaunchOp,
    Op,
    Routine,
    outputs_of,
)

Memory: TypeAlias = Array
"""A buffer as a device holds it; None for a token."""

NOTHING: Memory = cast("Memory", None)
"""The memory of a token, and of a freed buffer."""


class BackendDevice(Protocol):
    """How a backend allocates and launches. Buffers are flat, in the order of their shape's layout."""

    def upload(self, array: Array, shape: Shape) -> Memory:
        """A buffer with the elements of a logical array."""

    def download(self, memory: Memory, shape: Shape) -> Array:
        """A new logical array with the elements of a buffer."""

    def allocate(self, shape: Shape) -> Memory:
        """An uninitialised buffer."""

    def copy(self, memory: Memory) -> Memory:
        """Another buffer with the same elements."""

    def view(self, memory: Memory, shape: Shape) -> Memory:
        """The same memory as a buffer of another shape of the same size."""

    def relayout(self, memory: Memory, shape: Shape, target: Shape) -> Memory:
        """A buffer with the elements in the target's layout."""

    def launch(self, kernel: Kernel, inputs: Sequence[Memory], outputs: Sequence[Memory]) -> None:
        """Start a kernel. Everything started later sees its results."""

    def call(self, op: CallOp, inputs: Sequence[Memory], shapes: Sequence[Shape]) -> list[Memory]:
        """The outputs of a library call or a fallback."""


ALIGNMENT = 256
"""Offsets in the block are multiples of this, in bytes: the least alignment of cudaMalloc (CUDA C++ Programming Guide,
"Device Memory Accesses")."""

BoundLaunch = tuple[Kernel | CallOp | None, list[Array], list[Array]]
"""A kernel or a library call with its inputs and outputs, or (None) a copy of one buffer to another."""

Start = Callable[[], None]
"""Starts a bound launch on the stream that is current at the time."""


class PlacingDevice(BackendDevice, Protocol):
    """A device that places buffers in blocks of memory."""

    def places(self, op: CallOp) -> bool:
        """Whether a library call writes into memory that it gets, and neither allocates nor waits."""

    def start_of(self, launch: BoundLaunch, kept: Memory = NOTHING) -> Start:
        """A launch with all its arguments; kernels get kept memory that no concurrent launch uses, or without it the
        current stream's."""

    def start_at(self, kernel: Kernel, values: Array) -> Start:
        """A launch with parameters of 8 bytes each, which it reads when it starts: addresses, and perhaps a size."""

    def kept_by(self, kernel: Kernel) -> Memory:
        """The kept memory of a kernel on the current stream."""

    def start_all(self, starts: Sequence[Start], launches: Sequence[BoundLaunch]) -> None:
        """Start launches in order. Raises BackendError that names the kernel or call that fails."""

    def reserve(self, stream: int) -> None:
        """Allocate what calls on a stream need, by its number for CUDA, before it is captured."""

    def zeros(self, size: int) -> Memory:
        """`size` zero bytes; NOTHING for none."""

    def block(self, size: int) -> Array:
        """A block of `size` bytes."""

    def part(self, block: Array, offset: int, shape: Shape) -> Array:
        """The buffer at an offset of a block, in bytes."""

    def replay(self, graph: Any) -> None:
        """Start a captured graph."""


@dataclass(frozen=True, eq=False)
class Stretch:
    """The operations of a routine from `first` up to, but not including, `last`.

    work       copies, launches and library calls, in order
    defined    buffers that the stretch defines
    root       for each buffer of the routine, the buffer whose memory it uses, as far as the stretch shows
    existing   buffers from before it whose memory the stretch reads and perhaps updates, constants included
    kept       its own buffers whose memory is read afterwards
    seen       buffers that are read afterwards, views included
    offsets    of its other buffers in the block
    bytes      of that block
    constants  the operations among these that load constants
    """

    routine: Routine
    first: int
    last: int
    work: tuple[Copy | LaunchOp | CallOp, ...]
    defined: Buffers
    root: Sequence[int]
    existing: Buffers
    kept: Buffers
    seen: Buffers
    offsets: Mapping[int, int]
    bytes: int
    constants: tuple[ConstantOp, ...]

    @cached_property
    def launches(self) -> int:
        """How many kernels it launches."""
        return sum(isinstance(op, LaunchOp) for op in self.work)

    @property
    def allocated_bytes(self) -> int:
        """Bytes that it allocates before it starts."""
        return self.bytes + sum(buffer_bytes(self.routine.shapes[b]) for b in self.kept)

    def buffer_at(self, device: PlacingDevice, memory: Sequence[Array], buffer: int) -> Array:
        """A buffer that the stretch defines, given the memory of the roots."""
        root = self.root[buffer]
        return memory[root] if root == buffer else device.view(memory[root], self.routine.shapes[buffer])

    def bound(self, device: PlacingDevice, arrays: Sequence[Array], block: Array | None) -> list[BoundLaunch]:
        """The launches bound to memory: `arrays` has `existing` and `kept`, `block` has the rest. Copies of memory to
        itself are left out."""
        memory = list(arrays)
        for b, offset in self.offsets.items():
            assert block is not None
            memory[b] = device.part(block, offset, self.routine.shapes[b])
        for b in self.defined:
            memory[b] = self.buffer_at(device, memory, b)
        starts: list[BoundLaunch] = []
        for op in self.work:
            inputs, outputs = [memory[b] for b in op.inputs], [memory[b] for b in op.outputs]
            if isinstance(op, LaunchOp):
                starts.append((op.kernel, inputs, outputs))
            elif isinstance(op, CallOp):
                starts.append((op, inputs, outputs))
            elif span_of(inputs[0]) != span_of(outputs[0]):
                starts.append((None, inputs, outputs))
        return starts


def span_of(memory: Any) -> tuple[int, int]:
    """The address of the first byte of a GPU buffer, and the address behind its last byte."""
    first = int(memory.data.ptr)
    return first, first + int(memory.nbytes)


PlacedCheck = Callable[[CallOp], bool]
"""Whether a library call may be part of a stretch."""


def none_placed(_: CallOp) -> bool:
    """No library call is part of a stretch."""
    return False


def first_decision(routine: Routine, places: PlacedCheck = none_placed) -> Op | None:
    """The first operation that is not a launch, copy, constant, alias, allocation, free or placed call; None if the
    routine is one stretch."""
    return next((op for op in routine.ops if not _is_plain(op, places)), None)


_PLAIN = (Allocate, AliasOp, Copy, ConstantOp, LaunchOp, Free)


def _is_plain(op: Op | None, places: PlacedCheck) -> bool:
    return isinstance(op, _PLAIN) or (isinstance(op, CallOp) and places(op))


def stretches(routine: Routine, least: int, most: int, places: PlacedCheck = none_placed) -> Iterator[Stretch]:
    """The stretches of a routine with at least `least` kernels and calls; those with more than `most` are divided."""
    start, kernels = -1, 0
    for position, op in enumerate((*routine.ops, None)):
        is_plain = _is_plain(op, places)
        is_first = (
            isinstance(op, Allocate | Copy | LaunchOp)
            or (isinstance(op, AliasOp) and not op.is_view)
            or (isinstance(op, CallOp) and is_plain)
        )
        if start < 0 and is_first:
            start, kernels = position, 0
        if start >= 0 and (not is_plain or (kernels >= most and not isinstance(op, Free))):
            if kernels >= least:
                yield stretch_of(routine, start, position)
            start, kernels = (position, 0) if is_first else (-1, 0)
        kernels += is_plain and isinstance(op, LaunchOp | CallOp)


def stretch_of(routine: Routine, first: int, last: int) -> Stretch:
    """These operations, which only launch kernels and make placed calls, as a stretch."""
    ops = routine.ops[first:last]
    needed = {b for op in routine.ops[last:] if not isinstance(op, Free) for b in op.inputs} | set(routine.results)
    lives = lifetimes(ops, routine.shapes)
    root = lives.root
    work = tuple(op for op in ops if isinstance(op, Copy | LaunchOp | CallOp))
    named = [b for op in ops if not isinstance(op, ConstantOp) for b in outputs_of(op)]
    own = {b for born in lives.born for b in born}
    seen = tuple(sorted(b for b in named if b in needed))
    kept = {root[b] for b in seen} & own
    roots = {root[b] for op in work for b in (*op.inputs, *op.outputs)} | {root[b] for b in seen}
    offsets, size = _placed(lives, own - kept, routine.shapes)
    constants = tuple(op for op in ops if isinstance(op, ConstantOp))
    return Stretch(
        routine,
        first,
        last,
        work,
        tuple(named),
        root,
        tuple(sorted(roots - own)),
        tuple(sorted(kept)),
        seen,
        offsets,
        size,
        constants,
    )


def _placed(lives: Lifetimes, own: set[int], shapes: Sequence[Shape]) -> tuple[dict[int, int], int]:
    """Offsets of buffers in a block, and the block's size. Buffers of one launch do not overlap; dead ones are reused
    from the next launch on."""
    arena = Arena()
    offsets: dict[int, int] = {}
    for born, dead in zip(lives.born, lives.dead, strict=True):
        for b in born:
            if b in own:
                offsets[b] = arena.take(-(-max(buffer_bytes(shapes[b]), 1) // ALIGNMENT) * ALIGNMENT)
        for b in dead:
            if b in own:
                arena.give_back(offsets[b])
    return offsets, arena.size
