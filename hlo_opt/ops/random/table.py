"""Random numbers: rng-bit-generator, a function of its state, and two opcodes with a hidden state.

Semantics: xla/hlo/transforms/expanders/rng_bit_generator_expander.cc. `rng` and `rng-get-and-update-state` draw from a
state outside the module. XLA returns other numbers in every process, so evaluating them is an error.

ThreeFry and Philox are written as elementwise HLO, for the interpreter and for kernels. Sources:
xla/hlo/builder/lib/prng.cc (ThreeFry2x32, Philox4x32); J. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3",
SC 2011. All counters of a result form one vector. Two words of a block are joined to a u64 and split again by a
bitcast-convert, so that an element costs at most one block of the cipher, and neighbours in one thread share it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

from hlo_opt.diag import EvaluationError
from hlo_opt.ir import Computation, Instruction, Module, Shape, SliceDimension, array
from hlo_opt.ir.element_type import PRED, U32, U64
from hlo_opt.ops import faces
from hlo_opt.ops.faces import lazy
from hlo_opt.ops.spec import Arity, Evaluator, OpKind, ShapeError, declare
from hlo_opt.ops.writer import Writer

ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
PARITY = 0x1BD11BDA
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)


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
    """(new state, unsigned bits of the shape's dimensions) for rng_three_fry; the state is u64[2]: key, counter."""
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
    """The dimensions with one halved (rounding up), and its number: the first even one, else the first of the
    largest."""
    if not dimensions:
        return (1,), 0
    even = [k for k, size in enumerate(dimensions) if size % 2 == 0]
    split = even[0] if even else dimensions.index(max(dimensions))
    return tuple((size + 1) // 2 if k == split else size for k, size in enumerate(dimensions)), split


def interleaved(
    writer: Writer, pairs: Instruction, halved: tuple[int, ...], split: int, dimensions: tuple[int, ...]
) -> Instruction:
    """[count, 2] words in the result's dimensions: the two words of a counter are neighbours along `split`."""
    rank = len(dimensions)
    words = writer.reshape(pairs, *halved, 2)
    if split != rank - 1:
        order = (*range(split + 1), rank, *range(split + 1, rank))
        sizes = tuple(words.shape.dimensions[k] for k in order)
        words = writer.emit("transpose", array(U32, *sizes), words, dimensions=order)
    whole = tuple(2 * size if k == split else size for k, size in enumerate(halved))
    return _cut(writer, writer.reshape(words, *whole), dimensions)


def philox_bits(writer: Writer, state: Instruction, shape: Shape) -> tuple[Instruction, Instruction]:
    """(new state, unsigned bits of the shape's dimensions) for rng_philox; the state is u64[3] (key, 128-bit counter)
    or u64[2]."""
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
    is_first = writer.emit("compare", array(PRED, *pair), lane, zero, direction="EQ")
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
    shape = array(PRED, *dimensions)
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


ALGORITHMS = {"rng_default": "philox", "rng_philox": "philox", "rng_three_fry": "threefry"}
"""rng_default is Philox on XLA:CPU and XLA:GPU."""


_BITS = tuple(f"{sign}{bits}" for bits in (8, 16, 32, 64) for sign in "su")
"""Types of random bits (rng_bit_generator_expander.cc)."""


def _bits_shape(instruction: Instruction) -> Shape:
    """The shape of the random bits: the second element of a pair, or the whole result in the form without new state."""
    shape = instruction.shape
    return shape if shape.elements is None else shape.elements[-1]


def _infer_bit_generator(instruction: Instruction) -> Shape:
    state, shape = instruction.operands[0].shape, instruction.shape
    algorithm = instruction.word("algorithm")
    if algorithm not in ALGORITHMS:
        raise ShapeError(f"rng-bit-generator has no algorithm {algorithm!r}; there are {', '.join(ALGORITHMS)}")
    if not state.is_array:
        raise ShapeError(f"the state of rng-bit-generator must be an array, not {state}")
    if shape.elements is not None and (len(shape.elements) != 2 or not shape.elements[0].same_values(state)):
        raise ShapeError(
            f"rng-bit-generator returns its new state, {state.without_layout()}, and the bits, not {shape}"
        )
    if not _bits_shape(instruction).is_array:
        raise ShapeError(f"rng-bit-generator returns an array of bits, not {_bits_shape(instruction)}")
    return shape.without_layout()


def _can_expand(instruction: Instruction) -> bool:
    state = instruction.operands[0].shape
    sizes = {"threefry": ((2,),), "philox": ((2,), (3,))}[ALGORITHMS.get(instruction.word("algorithm"), "philox")]
    return state.element_type == U64 and state.dimensions in sizes and _bits_shape(instruction).type.name in _BITS


def _bit_generator(algorithm: str, state: Shape, result: Shape) -> Computation:
    writer = Writer(algorithm)
    bits_shape = result if result.elements is None else result.elements[1]
    element_type = bits_shape.type
    make = threefry_bits if algorithm == "threefry" else philox_bits
    new_state, bits = make(writer, writer.parameter(0, state), bits_shape)
    assert bits.shape.type is U32 or bits.shape.type.bits == 64
    bits = writer.convert(bits, element_type)
    if result.elements is None:
        return writer.finish([bits], [result])
    return writer.finish([new_state, bits], result.elements)


_known_bit_generator = functools.lru_cache(maxsize=256)(_bit_generator)


def expand_bit_generator(module: Module | None, instruction: Instruction) -> Computation:
    """The generator as elementwise operations, outside any module: parameter state, root (new state, bits).

    Raises ValueError for a state or type that XLA's expander refuses.
    """
    return _checked(_bit_generator, instruction)


def _checked(build: Callable[[str, Shape, Shape], Computation], instruction: Instruction) -> Computation:
    if not _can_expand(instruction):
        raise ValueError(
            f"{instruction.word('algorithm')} makes no {_bits_shape(instruction)} of {instruction.operands[0].shape}"
        )
    algorithm = ALGORITHMS[instruction.word("algorithm")]
    return build(algorithm, instruction.operands[0].shape, instruction.shape)


def _evaluate_bit_generator(evaluator: Evaluator, instruction: Instruction, values: list[Any]) -> Any:
    # cached per shape, so that the interpreter reuses the compiled form across loop iterations
    return evaluator.call(_checked(_known_bit_generator, instruction), values)


def _element_flops(instruction: Instruction) -> float:
    # twenty rounds of ThreeFry take about as many operations as ten of Philox
    return 100.0 * _bits_shape(instruction).element_count


declare(
    "rng-bit-generator",
    OpKind.RANDOM,
    Arity(1, 1),
    {"algorithm": True},
    _BITS,
    infer=_infer_bit_generator,
    evaluate=_evaluate_bit_generator,
    expand=expand_bit_generator,
    expands=_can_expand,
    flops=_element_flops,
    tolerance=faces.bit_exact,
    expensive=faces.always,
    is_slow=True,
    omitted=None,
    scratch=lazy("scratch", "random"),
)


def _hidden_state(evaluator: Evaluator, instruction: Instruction, values: list[Any]) -> Any:
    raise EvaluationError(
        f"{instruction.name}: {instruction.opcode} draws from a state outside the module, so it has no value "
        "to compare",
        code="HLO405",
        hint="use rng-bit-generator, or pass the random numbers as a parameter",
    )


def _infer_rng(instruction: Instruction) -> Shape:
    if instruction.word("distribution") not in ("rng_uniform", "rng_normal"):
        raise ShapeError(
            f"rng has no distribution {instruction.word('distribution')!r}; there are rng_uniform, rng_normal"
        )
    if not instruction.shape.is_array:
        raise ShapeError(f"rng returns an array, not {instruction.shape}")
    for number, operand in enumerate(instruction.operands):
        if not operand.shape.is_array or operand.shape.rank:
            raise ShapeError(f"operand {number} of rng must be a scalar, not {operand.shape}")
        if operand.shape.type != instruction.shape.type:
            raise ShapeError(f"operand {number} of rng is {operand.shape}, its result {instruction.shape}")
    if instruction.word("distribution") == "rng_normal" and not instruction.shape.type.is_float:
        raise ShapeError(f"rng draws floats from rng_normal, not {instruction.shape.type}")
    return instruction.shape.without_layout()


declare(
    "rng",
    OpKind.RANDOM,
    Arity(2, 2),
    {"distribution": True},
    ("pred", "signed", "unsigned", "float"),
    infer=_infer_rng,
    evaluate=_hidden_state,
    hides_state=True,
    flops=_element_flops,
    side_effects=True,
    expensive=faces.always,
    omitted=None,
    aligned=faces.always,
)


def _infer_state(instruction: Instruction) -> Shape:
    shape = instruction.shape
    if shape.element_type != U64 or shape.rank != 1:
        raise ShapeError(f"rng-get-and-update-state returns a vector of u64, not {shape}")
    return shape.without_layout()


declare(
    "rng-get-and-update-state",
    OpKind.RANDOM,
    Arity(0, 0),
    {"delta": True},
    ("u64",),
    infer=_infer_state,
    evaluate=_hidden_state,
    hides_state=True,
    side_effects=True,
    expensive=faces.always,
    omitted=None,
)
