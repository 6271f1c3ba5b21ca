"""From a walk to the elements that it reads: what is wanted is followed by index maps down to the operands of the kernel. And how such an access lies in memory."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from hlo_opt.ir import Instruction, Shape
from hlo_opt.ir import index_map as maps
from hlo_opt.ir.index_map import Expression, linearize, variable, variables_of
from hlo_opt.ops.lowering import Elementwise, Index
from hlo_opt.ops.spec import find
from hlo_opt.plans.walks import AHEAD, ITEM, ROUND, THREAD, Walk

SECTOR, LINE = 32, 128
"""Bytes that caches and memory hand over together, and bytes of a cache line (CUDA C++ Best Practices Guide, "Coalesced Access to Global Memory")."""
WIDEST_BITS = 128
_MOST_STEPS = 20_000  # of the walk from what is wanted to operands
_SAMPLED = (1024, 16, 32)  # threads of a block, rounds, and steps of inner loops that are looked at

Key = tuple[Instruction, Index]
Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Access:
    """An element of an array that is read, or written (`operand` is None), for each item.

    share     of all cases, in which it is
    may_miss  that depends on a condition
    again     a walk before has read it
    tries     atomic operations that change it; 0 where it is written
    """

    shape: Shape
    index: Index
    operand: Instruction | None = None
    share: float = 1.0
    may_miss: bool = False
    again: bool = False
    tries: float = 0.0

    @property
    def bits(self) -> int:
        """Of an element in memory."""
        return 8 * self.shape.type.bytes // self.shape.type.per_byte

    @property
    def size(self) -> float:
        """Bytes of the array."""
        return self.shape.element_count * self.bits / 8


@dataclass
class Trace:
    """What a walk needs.

    values  what is computed, where, and in how much of all cases
    folds   what folds elements in an inner loop, where, and how many
    loops   sizes of inner loops, by the variable of each
    drawn   variables for indices that data give: where these are read, and how large they get
    """

    walk: Walk
    reads: list[Access] = field(default_factory=list)
    writes: list[Access] = field(default_factory=list)
    values: list[tuple[Instruction, Index, float]] = field(default_factory=list)
    folds: list[tuple[Instruction, Index, int]] = field(default_factory=list)
    loops: dict[str, int] = field(default_factory=dict)
    drawn: dict[str, tuple[Index, int]] = field(default_factory=dict)

    def varies_with(self, index: Sequence[Expression]) -> frozenset[str]:
        """The loops of a thread, inner ones included, in which an index changes."""
        found: set[str] = set()
        for name in frozenset[str]().union(*map(variables_of, index)):
            if name in self.walk.places:
                found |= variables_of(self.walk.places[name])
            elif name in self.drawn:
                found |= self.varies_with(self.drawn[name][0])
            else:
                found.add(name)
        return frozenset(found)

    def times(self, index: Sequence[Expression]) -> int:
        """How often a thread has something of an index: once for each value that the index takes on its way."""
        sizes = {ITEM: self.walk.items, ROUND: self.walk.rounds}
        return math.prod(sizes.get(name, 1) for name in self.varies_with(index)) * self.inner(index)

    def inner(self, index: Sequence[Expression]) -> int:
        """Steps of the inner loops in which an index changes."""
        return math.prod(self.loops[name] for name in self.varies_with(index) if name in self.loops)

    @property
    def waits(self) -> int:
        """How often a thread waits for what it reads."""
        inner = max((self.inner(read.index) for read in self.reads), default=1)
        return math.ceil(self.walk.rounds / self.walk.ahead) * math.ceil(inner / AHEAD)

    @property
    def ahead(self) -> float:
        """Bytes that a thread asks for before it needs the first of them."""
        return sum(read.share * self.times(read.index) * read.bits / 8 for read in self.reads) / self.waits


def traced(walk: Walk, before: set[Key]) -> Trace:
    """Follow what a walk wants down to operands. `before` is what the segment's walks before have needed, and takes in what this one does."""
    found = Trace(walk)
    found.writes += [Access(shape, index) for shape, index in walk.written]
    found.writes += [Access(shape, index, tries=tries) for shape, index, tries in walk.changed]
    seen = set(before) if walk.keeps else set()
    stack = [(instruction, index, 1.0, False) for instruction, index in walk.wanted]
    for _ in range(_MOST_STEPS):
        if not stack:
            break
        instruction, index, share, may_miss = stack.pop()
        if instruction in walk.known or instruction.literal is not None or (instruction, index) in seen:
            continue
        seen.add((instruction, index))
        if instruction.parameter_number is not None:
            again = (instruction, index) in before
            found.reads.append(Access(instruction.shape, index, instruction, share, may_miss, again))
            continue
        found.values.append((instruction, index, share))
        for number, operand in enumerate(instruction.operands):
            below, part, is_conditional = _below(found, instruction, number, index)
            if part > 0:
                stack.append((operand, below, share * part, may_miss or is_conditional))
    before |= seen
    return found


def _below(found: Trace, instruction: Instruction, number: int, index: Index) -> tuple[Index, float, bool]:
    """Where an operand is read, in how much of all cases, and whether only under a condition."""
    spec, sizes = find(instruction.opcode), next(instruction.operands[number].shape.leaves()).dimensions
    if spec is not None and isinstance(spec.cuda, Elementwise):
        return (index if sizes else ()), 1.0, False
    read = None if spec is None or spec.index is None else spec.index(instruction, number)
    if read is None:  # anywhere, as data says
        return tuple(_drawn(found, index, size) for size in sizes), 1.0, False
    if read.symbols and number == 0:
        found.folds.append((instruction, index, math.prod(read.symbols)))
    symbols = []
    for size in read.symbols:
        symbols.append(variable(f"loop{len(found.loops)}", size))
        found.loops[f"loop{len(found.loops)}"] = size
    runtime = []
    for at in read.runtime:
        how = spec.index(instruction, at) if spec is not None and spec.index is not None else None
        runtime.append(_drawn(found, index if how is None else how.apply(index), max(sizes, default=1)))
    share, conditions = 1.0, read.conditions_at(index, symbols)
    for c in conditions:
        low, high = c.expression.low, c.expression.high
        share *= max(0, min(c.high, high) - max(c.low, low) + 1) / (high - low + 1)
    return read.apply(index, symbols, runtime), share, bool(conditions)


def _drawn(found: Trace, at: Index, size: int) -> Expression:
    name = f"drawn{len(found.drawn)}"
    found.drawn[name] = (at, size)
    return variable(name, size)


def address_of(shape: Shape, index: Index) -> Expression:
    """The place in memory of the element at an index."""
    order = shape.minor_to_major[::-1]
    return linearize([index[d] for d in order], [shape.dimensions[d] for d in order])


def value_of(expression: Expression, env: Mapping[str, Numbers]) -> Numbers:
    """The values of an expression where its variables have these."""
    match expression:
        case maps.Variable(name=name) if name in env:
            return env[name]
        case maps.Sum(left=left, right=right):
            return value_of(left, env) + value_of(right, env)
        case maps.Product(left=left, factor=factor):
            return value_of(left, env) * factor
        case maps.Quotient(left=left, divisor=divisor):
            return value_of(left, env) // divisor
        case maps.Remainder(left=left, divisor=divisor):
            return value_of(left, env) % divisor
    return np.asarray(expression.low)


@dataclass(frozen=True)
class Lay:
    """How an access lies in memory.

    bits     that one instruction moves
    count    instructions of a thread
    useful   bytes that all threads together ask for; those that a block asks for twice count once
    fetched  bytes of the sectors that hold these
    run      bytes that follow each other in what a block asks for at a time
    lines    cache lines that an instruction of a warp touches
    advance  bytes between what a thread reads in one step of its loop and in the next; 0 where it has none
    """

    access: Access
    bits: int
    count: float
    useful: float
    fetched: float
    run: float
    lines: int
    advance: int


def lay_of(trace: Trace, access: Access, block: int) -> Lay:
    """How the elements of an access lie, seen on the threads of one block in the middle of the launch."""
    walk, bits = trace.walk, access.bits
    varies = trace.varies_with(access.index)
    loops = {name: size for name, size in trace.loops.items() if name in varies}
    threads = min(walk.threads, max(1, block), _SAMPLED[0])
    rounds = min(walk.rounds, _SAMPLED[1]) if ROUND in varies else 1
    taken: dict[str, int] = {}
    for name, size in reversed(loops.items()):  # the innermost first
        taken[name] = min(size, max(1, _SAMPLED[2] // math.prod(taken.values())))
    steps = math.prod(taken.values())
    env: dict[str, Numbers] = {
        THREAD: walk.threads // 2 // threads * threads + np.arange(threads).reshape(-1, 1, 1, 1),
        ROUND: (walk.rounds - rounds) // 2 + np.arange(rounds).reshape(-1, 1, 1),
        ITEM: np.arange(walk.items).reshape(-1, 1),
    }
    numbers = np.unravel_index(np.arange(steps), [taken[name] for name in loops]) if loops else ()
    env.update({n: (loops[n] - taken[n]) // 2 + number for n, number in zip(loops, numbers, strict=True)})
    env.update({name: value_of(place, env) for name, place in walk.places.items()})
    for name, (at, size) in trace.drawn.items():  # scattered, and the same wherever they are read at the same place
        env[name] = sum((value_of(e, env) for e in at), start=np.asarray(1)) * 40503 % max(1, size)
    address = value_of(address_of(access.shape, access.index), env)
    address = address.reshape((1,) * (4 - address.ndim) + address.shape)
    places = np.unique(address)
    sectors = len(np.unique(places * bits // 8 // SECTOR))
    scale = access.share * walk.threads / threads * math.prod(loops.values()) / steps
    scale *= walk.rounds / rounds if ROUND in varies else 1
    apart = access.may_miss and _misses_apart(access, env)
    moved = 1 if apart or address.shape[2] == 1 else _together(address, bits)
    shared = walk.items if address.shape[2] > 1 and bool((address == address[:, :, :1]).all()) else 1
    lanes = address[:32, 0, 0, 0] * bits // 8 // LINE
    return Lay(
        access,
        bits=moved * bits,
        count=access.share * trace.times(access.index) / moved / shared,
        useful=len(places) * bits / 8 * scale,
        fetched=sectors * SECTOR * scale,
        run=len(places) * bits / 8 / (1 + int(np.count_nonzero(np.diff(places) > 1))),
        lines=max(len(np.unique(lanes)), 32 * moved * bits // 8 // LINE if len(lanes) > 1 else 1),
        advance=_advance(address, bits),
    )


def _misses_apart(access: Access, env: Mapping[str, Numbers]) -> bool:
    """Whether some of the items that neighbours are may lie outside an array and others not."""
    for expression, size in zip(access.index, access.shape.dimensions, strict=True):
        if expression.low < 0 or expression.high >= size:
            at = value_of(expression, env)
            at = at.reshape((1,) * (4 - at.ndim) + at.shape)
            if bool((at != at[:, :, :1]).any()):
                return True
    return False


def _together(address: Numbers, bits: int) -> int:
    """Neighbouring items that one instruction moves."""
    items, moved = address.shape[2], 1
    if bool((np.diff(address, axis=2) == 1).all()):
        moved = min(items, max(1, WIDEST_BITS // bits))
        while moved > 1 and (items % moved or bool((address[:, :, 0] % moved).any())):
            moved //= 2
    return moved


def _advance(address: Numbers, bits: int) -> int:
    axis = 3 if address.shape[3] > 1 else 1
    return int(np.median(np.abs(np.diff(address, axis=axis)))) * bits // 8 if address.shape[axis] > 1 else 0
