"""ThreeFry and Philox written as elementwise HLO: what random generators mean, to the interpreter and to kernels alike.

Sources: xla/hlo/builder/lib/prng.cc (ThreeFry2x32, Philox4x32) and xla/hlo/transforms/expanders/rng_bit_generator_expander.cc;
J. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
All counters of a result lie in one vector; two words of a counter are joined to a u64 and split again by a bitcast-convert, so that an element costs
one block of the cipher at most and neighbours in one thread share it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from hlo_opt.ir import (
    ELEMENT_TYPES,
    Attribute,
    Computation,
    ElementType,
    Instruction,
    Literal,
    Shape,
    SliceDimension,
    array,
    edit,
)
from hlo_opt.ir.attribute import Value

U32, U64 = ELEMENT_TYPES["u32"], ELEMENT_TYPES["u64"]

ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
PARITY = 0x1BD11BDA
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)


class Writer:
    """Appends integer operations to a computation of its own, which is in no module. Operands of one operation have the same dimensions; scalars are spread."""

    def __init__(self, name: str) -> None:
        self.computation = Computation(name)
        self._count = 0
        self._spread: dict[tuple[Instruction, tuple[int, ...]], Instruction] = {}
        self._constants: dict[tuple[ElementType, int], Instruction] = {}

    def emit(self, opcode: str, shape: Shape, *operands: Instruction, **attributes: Value) -> Instruction:
        """Append an operation."""
        made = {name: Attribute.of(value) for name, value in attributes.items()}
        self._count += 1
        return edit.create(self.computation, f"{opcode}.{self._count}", opcode, shape, operands, made)

    def parameter(self, number: int, shape: Shape) -> Instruction:
        """Append a parameter."""
        return edit.create(self.computation, f"p{number}", "parameter", shape, parameter_number=number)

    def constant(self, element_type: ElementType, value: int) -> Instruction:
        """A scalar constant; each value once."""
        key = (element_type, value)
        if key not in self._constants:
            import numpy as np

            shape = array(element_type)
            literal = Literal(shape, value=np.array(value, element_type.dtype))
            self._count += 1
            name = f"constant.{self._count}"
            self._constants[key] = edit.create(self.computation, name, "constant", shape, literal=literal)
        return self._constants[key]

    def spread(self, value: Instruction, dimensions: tuple[int, ...]) -> Instruction:
        """A scalar broadcast to the dimensions; an array of these dimensions as it is."""
        if value.shape.dimensions == dimensions:
            return value
        key = (value, dimensions)
        if key not in self._spread:
            shape = array(value.shape.type, *dimensions)
            self._spread[key] = self.emit("broadcast", shape, value, dimensions=())
        return self._spread[key]

    def binary(self, opcode: str, left: Instruction, right: Instruction | int) -> Instruction:
        """left op right; numbers are constants of the left operand's type."""
        if isinstance(right, int):
            right = self.constant(left.shape.type, right)
        dimensions = left.shape.dimensions or right.shape.dimensions
        shape = array(left.shape.type, *dimensions)
        return self.emit(opcode, shape, self.spread(left, dimensions), self.spread(right, dimensions))

    def convert(self, value: Instruction, element_type: ElementType) -> Instruction:
        """The value in another integer type."""
        if value.shape.type == element_type:
            return value
        return self.emit("convert", array(element_type, *value.shape.dimensions), value)

    def low(self, value: Instruction) -> Instruction:
        """The low word of a u64."""
        return self.convert(value, U32)

    def high(self, value: Instruction) -> Instruction:
        """The high word of a u64."""
        return self.convert(self.binary("shift-right-logical", value, 32), U32)

    def join(self, low: Instruction, high: Instruction) -> Instruction:
        """A u64 from its words."""
        shifted = self.binary("shift-left", self.convert(high, U64), 32)
        return self.binary("or", self.convert(low, U64), shifted)

    def reshape(self, value: Instruction, *dimensions: int) -> Instruction:
        """The same elements, row-major, in other dimensions."""
        if value.shape.dimensions == dimensions:
            return value
        return self.emit("reshape", array(value.shape.type, *dimensions), value)

    def element(self, vector: Instruction, position: int) -> Instruction:
        """One element of a vector, as a scalar."""
        piece = array(vector.shape.type, 1)
        return self.reshape(self.emit("slice", piece, vector, slice=(SliceDimension(position, position + 1),)))

    def iota(self, count: int) -> Instruction:
        """u64 numbers from 0 up to the count."""
        return self.emit("iota", array(U64, count), iota_dimension=0)

    def finish(self, roots: Sequence[Instruction], shapes: Sequence[Shape]) -> Computation:
        """Make the tuple of the roots (one root: itself) the computation's, each in the shape (and layout) that is wanted."""
        placed = []
        for root, shape in zip(roots, shapes, strict=True):
            as_it_is = root.shape.same_values(shape) and shape.is_row_major
            placed.append(root if as_it_is else self.emit("copy", shape, root))
        whole = Shape.tuple_of(*(root.shape for root in placed))
        root = placed[0] if len(placed) == 1 else self.emit("tuple", whole, *placed)
        edit.set_root(self.computation, root)
        return self.computation


def threefry(
    writer: Writer, keys: tuple[Instruction, Instruction], counts: tuple[Instruction, Instruction]
) -> tuple[Instruction, Instruction]:
    """ThreeFry-2x32, 20 rounds, of u32 keys (arrays or scalars) and counts."""
    schedule = [*keys, writer.binary("xor", writer.binary("xor", keys[0], keys[1]), PARITY)]
    x0, x1 = writer.binary("add", counts[0], keys[0]), writer.binary("add", counts[1], keys[1])
    for group in range(5):
        for rotation in ROTATIONS[group % 2]:
            x0 = writer.binary("add", x0, x1)
            left, right = (
                writer.binary("shift-left", x1, rotation),
                writer.binary("shift-right-logical", x1, 32 - rotation),
            )
            x1 = writer.binary("xor", x0, writer.binary("or", left, right))
        x0 = writer.binary("add", x0, schedule[(group + 1) % 3])
        x1 = writer.binary("add", x1, writer.binary("add", schedule[(group + 2) % 3], group + 1))
    return x0, x1


def philox(
    writer: Writer, keys: tuple[Instruction, Instruction], counts: Sequence[Instruction]
) -> tuple[Instruction, Instruction, Instruction, Instruction]:
    """Philox-4x32, 10 rounds, of u32 keys (scalars) and counts, the lowest word first."""
    k0, k1 = keys
    c0, c1, c2, c3 = counts
    for number in range(10):
        if number:
            k0, k1 = writer.binary("add", k0, _KEY_STEPS[0]), writer.binary("add", k1, _KEY_STEPS[1])
        product0 = writer.binary("multiply", writer.convert(c0, U64), _MULTIPLIERS[0])
        product1 = writer.binary("multiply", writer.convert(c2, U64), _MULTIPLIERS[1])
        c0, c2 = (
            writer.binary("xor", writer.binary("xor", writer.high(product1), c1), k0),
            writer.binary("xor", writer.binary("xor", writer.high(product0), c3), k1),
        )
        c1, c3 = writer.low(product1), writer.low(product0)
    return c0, c1, c2, c3


def threefry_bits(writer: Writer, state: Instruction, shape: Shape) -> tuple[Instruction, Instruction]:
    """(new state, unsigned bits in the shape's dimensions) of rng_three_fry; the state is u64[2], key and counter."""
    word = writer.element(state, 0)
    keys, counter = (writer.low(word), writer.high(word)), writer.element(state, 1)
    dimensions = shape.dimensions
    halved, split = (dimensions, -1) if shape.type.bits == 64 else halves(dimensions)
    count = math.prod(halved)
    counts = writer.binary("add", writer.iota(count), counter)
    joined = writer.join(*threefry(writer, keys, (writer.low(counts), writer.high(counts))))
    new_state = [word, writer.binary("add", counter, count)]
    if shape.type.bits == 64:
        bits = writer.reshape(joined, *dimensions)
    elif not dimensions:
        bits = writer.reshape(writer.low(joined))
    else:
        pairs = writer.emit("bitcast-convert", array(U32, count, 2), joined)
        bits = interleaved(writer, pairs, halved, split, dimensions)
    return _vector(writer, new_state), bits


def halves(dimensions: tuple[int, ...]) -> tuple[tuple[int, ...], int]:
    """The dimensions with one of them halved, and which: the first even one, else the first of the largest, rounded up."""
    if not dimensions:
        return (1,), 0
    even = [k for k, size in enumerate(dimensions) if size % 2 == 0]
    split = even[0] if even else dimensions.index(max(dimensions))
    return tuple((size + 1) // 2 if k == split else size for k, size in enumerate(dimensions)), split


def interleaved(
    writer: Writer, pairs: Instruction, halved: tuple[int, ...], split: int, dimensions: tuple[int, ...]
) -> Instruction:
    """[count, 2] words as the result's dimensions: both words of a counter stand next to each other along `split`."""
    rank = len(dimensions)
    words = writer.reshape(pairs, *halved, 2)
    if split != rank - 1:
        order = (*range(split + 1), rank, *range(split + 1, rank))
        sizes = tuple(words.shape.dimensions[k] for k in order)
        words = writer.emit("transpose", array(U32, *sizes), words, dimensions=order)
    whole = tuple(2 * size if k == split else size for k, size in enumerate(halved))
    return _cut(writer, writer.reshape(words, *whole), dimensions)


def philox_bits(writer: Writer, state: Instruction, shape: Shape) -> tuple[Instruction, Instruction]:
    """(new state, unsigned bits in the shape's dimensions) of rng_philox; the state is u64[3], key and 128-bit counter, or u64[2]."""
    word = writer.element(state, 0)
    keys, low = (writer.low(word), writer.high(word)), writer.element(state, 1)
    is_short = state.shape.dimensions == (2,)
    high = word if is_short else writer.element(state, 2)
    words = 2 if shape.type.bits == 64 else 1
    total = shape.element_count * words
    count = (total + 3) // 4
    numbers = writer.iota(count)
    lows, highs = _carried(writer, low, high, numbers)
    counts = (writer.low(lows), writer.high(lows), writer.low(highs), writer.high(highs))
    c0, c1, c2, c3 = philox(writer, keys, counts)
    pair = (count, 2)
    first, second = writer.join(c0, c1), writer.join(c2, c3)
    sides = [writer.emit("broadcast", array(U64, *pair), side, dimensions=(0,)) for side in (first, second)]
    lane = writer.emit("iota", array(U32, *pair), iota_dimension=1)
    zero = writer.spread(writer.constant(U32, 0), pair)
    is_first = writer.emit("compare", array(ELEMENT_TYPES["pred"], *pair), lane, zero, direction="EQ")
    blocks = writer.emit("select", array(U64, *pair), is_first, *sides)
    if words == 1:
        blocks = writer.emit("bitcast-convert", array(U32, *pair, 2), blocks)
    flat = writer.reshape(blocks, 4 * count // words)
    bits = writer.reshape(_cut(writer, flat, (shape.element_count,)), *shape.dimensions)
    new_low, new_high = _carried(writer, low, high, writer.constant(U64, count))
    return _vector(writer, [word, new_low] if is_short else [word, new_low, new_high]), bits


def _carried(
    writer: Writer, low: Instruction, high: Instruction, number: Instruction
) -> tuple[Instruction, Instruction]:
    """A 128-bit counter plus a number."""
    total = writer.binary("add", number, low)
    dimensions = total.shape.dimensions
    shape = array(ELEMENT_TYPES["pred"], *dimensions)
    carry = writer.emit("compare", shape, total, writer.spread(low, dimensions), direction="LT")
    return total, writer.binary("add", writer.convert(carry, U64), high)


def _cut(writer: Writer, value: Instruction, dimensions: tuple[int, ...]) -> Instruction:
    if value.shape.dimensions == dimensions:
        return value
    bounds = tuple(SliceDimension(0, size) for size in dimensions)
    return writer.emit("slice", array(value.shape.type, *dimensions), value, slice=bounds)


def _vector(writer: Writer, scalars: Sequence[Instruction]) -> Instruction:
    pieces = [writer.reshape(scalar, 1) for scalar in scalars]
    return writer.emit("concatenate", array(U64, len(pieces)), *pieces, dimensions=(0,))
