"""Straight lines of a routine: kernels one after another, with no decision and no library call between them, and a place for everything that they make.

What nothing reads afterwards lies in one block, where values that are not alive together share places; what somebody reads gets memory of its own. A line thus needs the
same few addresses each time it runs, however many kernels it has.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, Protocol

from hlo_opt.codegen.kernel import Kernel
from hlo_opt.ir import Shape
from hlo_opt.runtime.arena import Arena
from hlo_opt.runtime.executor import Device
from hlo_opt.runtime.host_words import buffer_bytes
from hlo_opt.runtime.steps import Buffers, ConstantStep, KernelStep, Routine, ViewStep

ALIGNMENT = 256
"""Bytes that a place in the block is a multiple of: what cudaMalloc gives at least (CUDA C++ Programming Guide, "Device Memory Accesses")."""

Launch = tuple[Kernel | None, list[Any], list[Any]]
"""A kernel with its inputs and outputs, or (None) a copy of one buffer to another."""


class PlacingDevice(Device, Protocol):
    """A device that puts buffers into blocks of memory."""

    def block(self, size: int) -> Any:
        """Memory of so many bytes."""
        ...

    def part(self, block: Any, offset: int, shape: Shape) -> Any:
        """The buffer at an offset of a block, in bytes."""
        ...

    def copy_to(self, target: Any, source: Any) -> None:
        """Start a copy of a buffer to another one of the same size."""
        ...

    def replay(self, graph: Any) -> None:
        """Start a captured graph."""
        ...


@dataclass(frozen=True)
class Work:
    """One launch, by buffers of the routine: a kernel, or (None) a copy of an array."""

    kernel: Kernel | None
    inputs: Buffers
    outputs: Buffers


@dataclass(frozen=True, eq=False)
class StraightLine:
    """The steps of a routine from `first` up to `last`.

    work       copies and launches, in order
    of         for each buffer that the line makes, the one whose memory it is: itself, or what it is a view of or is made in
    taken      buffers whose memory the line finds, reads and perhaps updates; constants among them
    kept       buffers of its own whose memory somebody reads afterwards
    seen       buffers that somebody reads afterwards, views included
    offsets    where the other buffers of its own lie in the block
    bytes      of that block
    constants  the steps on its way that put constants into buffers
    """

    routine: Routine
    first: int
    last: int
    work: tuple[Work, ...]
    of: Mapping[int, int]
    taken: Buffers
    kept: Buffers
    seen: Buffers
    offsets: Mapping[int, int]
    bytes: int
    constants: tuple[ConstantStep, ...]

    @property
    def launches(self) -> int:
        """How many kernels it launches."""
        return sum(w.kernel is not None for w in self.work)

    @property
    def held(self) -> int:
        """Bytes that it allocates before it starts."""
        return self.bytes + sum(buffer_bytes(self.routine.shapes[b]) for b in self.kept)

    def root(self, buffer: int) -> int:
        """The buffer whose memory a buffer is."""
        return self.of.get(buffer, buffer)

    def found(self, device: PlacingDevice, memory: Sequence[Any], buffer: int) -> Any:
        """A buffer that the line makes, once it is known where those lie whose memory it is."""
        root = self.root(buffer)
        return memory[root] if root == buffer else device.view(memory[root], self.routine.shapes[buffer])

    def bound(self, device: PlacingDevice, given: Sequence[Any], block: Any) -> list[Launch]:
        """The launches on memory: `given` has `taken` and `kept`, and `block` the rest. Copies of memory to itself are left out."""
        memory = list(given)
        for b, offset in self.offsets.items():
            memory[b] = device.part(block, offset, self.routine.shapes[b])
        for b in self.of:
            memory[b] = self.found(device, memory, b)
        made: list[Launch] = []
        for w in self.work:
            inputs, outputs = [memory[b] for b in w.inputs], [memory[b] for b in w.outputs]
            if w.kernel is not None or span_of(inputs[0]) != span_of(outputs[0]):
                made.append((w.kernel, inputs, outputs))
        return made


def span_of(memory: Any) -> tuple[int, int]:
    """The first byte of a buffer of a GPU and the one behind its last."""
    first = int(memory.data.ptr)
    return first, first + int(memory.nbytes)


def is_straight(routine: Routine, first: int = 0, last: int | None = None) -> bool:
    """Whether these steps (all where none are named) only launch kernels."""
    return all(isinstance(step, KernelStep | ViewStep | ConstantStep) for step in routine.steps[first:last])


def straight_lines(routine: Routine, least: int, most: int) -> Iterator[StraightLine]:
    """The straight lines of a routine that launch at least so many kernels; longer ones than `most` are divided."""
    start, kernels = -1, 0
    for position, step in enumerate((*routine.steps, None)):
        is_kernel = isinstance(step, KernelStep)
        if start < 0 and is_kernel:
            start, kernels = position, 0
        if start >= 0 and (kernels >= most or not isinstance(step, KernelStep | ViewStep | ConstantStep)):
            if kernels >= least:
                yield straight_line(routine, start, position)
            start, kernels = (position, 0) if is_kernel else (-1, 0)
        kernels += is_kernel


def straight_line(routine: Routine, first: int, last: int, needed: Set[int] | None = None) -> StraightLine:
    """The line of these steps, which must be straight. `needed` are buffers that somebody reads afterwards; by default what later steps read, and the results."""
    if needed is None:
        needed = {b for step in routine.steps[last:] for b in step.inputs} | set(routine.results)
    of: dict[int, int] = {}
    work: list[Work] = []
    constants: list[ConstantStep] = []
    for step in routine.steps[first:last]:
        match step:
            case KernelStep():
                taken = step.in_place
                for b in step.outputs:
                    of[b] = of.get(taken[b], taken[b]) if b in taken else b
                work += [Work(None, (source,), (b,)) for b, source in step.copies]
                work.append(Work(step.kernel, step.inputs, step.outputs))
            case ViewStep():
                source = step.inputs[0]
                of[step.outputs[0]] = of.get(source, source)
            case ConstantStep():
                constants.append(step)
            case _:
                raise AssertionError(type(step).__name__)
    made = {b for b, root in of.items() if b == root}
    seen = tuple(sorted(b for b in of if b in needed))
    kept = {of[b] for b in seen} & made
    touched = [{of.get(b, b) for b in (*w.inputs, *w.outputs)} for w in work]
    found = {root for roots in touched for root in roots} | {of[b] for b in seen}
    offsets, size = _placed(touched, made - kept, routine.shapes)
    return StraightLine(
        routine,
        first,
        last,
        tuple(work),
        of,
        tuple(sorted(found - made)),
        tuple(sorted(kept)),
        seen,
        offsets,
        size,
        tuple(constants),
    )


def _placed(touched: Sequence[Set[int]], own: Set[int], shapes: Sequence[Shape]) -> tuple[dict[int, int], int]:
    """Offsets of buffers in a block, and its size. What a launch touches lies apart; a place is free for the next launch."""
    last = {b: position for position, roots in enumerate(touched) for b in roots if b in own}
    arena = Arena()
    offsets: dict[int, int] = {}
    for position, roots in enumerate(touched):
        for b in sorted(roots & own):
            if b not in offsets:
                offsets[b] = arena.take(-(-max(buffer_bytes(shapes[b]), 1) // ALIGNMENT) * ALIGNMENT)
        for b in sorted(roots & own):
            if last[b] == position:
                arena.give_back(offsets[b])
    return offsets, arena.size
