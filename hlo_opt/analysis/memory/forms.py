"""The memory layout of reductions and transposes, as XLA's emitters see it: which emitter takes a reduction, and which
transposes are tiled.

Launch rules use `LaunchDimensions` and element widths.
Source: xla/service/gpu/reduction_utils.cc, xla/service/gpu/ir_emission_utils.cc
(GetDescriptionForTiledTransposeEmitter), xla/permutation_util.cc.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable
from dataclasses import dataclass

from hlo_opt.ir import Instruction, Shape
from hlo_opt.ops.emission import HEROES, MOVERS, ORDERS, XlaEmitter
from hlo_opt.ops.sets import is_view


@dataclass(frozen=True, slots=True)
class LaunchDimensions:
    """Blocks in the grid and threads in a block."""

    blocks: int
    threads: int


def bits_of(shape: Shape) -> int:
    """Bits of an element in memory; a pred takes a byte."""
    return 8 if shape.type.name == "pred" else shape.type.bits


def smallest_bits(shapes: Iterable[Shape]) -> int | None:
    """Bits per element of the narrowest array; None without arrays."""
    return min((bits_of(s) for s in shapes if s.is_array), default=None)


def round_up(value: int, step: int) -> int:
    return -(-value // step) * step


WARP = 32
ROW_RACE_FREE_MINOR = 1024 * 16
ROW_RACE_FREE_MAJOR = 8
COLUMN_RACE_FREE = 32 * 128


@dataclass(frozen=True, slots=True)
class ReductionForm:
    """A normalized reduction. Row: sizes are [reduced, kept, reduced]; column: [kept, reduced, kept]; major dimensions
    first."""

    is_row: bool
    sizes: tuple[int, int, int]

    @property
    def is_race_free(self) -> bool:
        """Whether one block can compute a result completely, so that an epilogue may be fused."""
        if self.is_row:
            return self.sizes[2] <= ROW_RACE_FREE_MINOR and self.sizes[0] <= ROW_RACE_FREE_MAJOR
        return self.sizes[1] <= COLUMN_RACE_FREE

    @property
    def is_fast(self) -> bool:
        """Whether a reduction emitter beats one thread per result (IsUnnestedReductionFasterThanElemental)."""
        _, middle, minor = self.sizes
        if self.is_row:
            return minor >= WARP or (minor > 0 and WARP % minor == 0)
        small = (
            middle < WARP
            or (middle < 2 * WARP and minor < WARP)
            or (middle < 4 * WARP and minor < 8)
            or (middle < 8 * WARP and minor < 3)
        )
        return not small


def reduction_form(reduce: Instruction) -> ReductionForm | None:
    """The normalized form of a reduce's first operand; None where neither kept nor reduced dimensions are
    contiguous."""
    shape = reduce.operands[0].shape
    return _form(shape.dimensions, shape.minor_to_major, reduce.ints("dimensions"))


@functools.lru_cache(maxsize=4096)
def _form(
    dimensions: tuple[int, ...], minor_to_major: tuple[int, ...], reduced: tuple[int, ...]
) -> ReductionForm | None:
    """Cached: legality rules ask about the same reductions repeatedly."""
    groups: list[tuple[bool, int]] = []
    for dimension in reversed(minor_to_major):
        size = dimensions[dimension]
        if size == 1:
            continue
        is_reduced = dimension in reduced
        if groups and groups[-1][0] == is_reduced:
            groups[-1] = (is_reduced, groups[-1][1] * size)
        else:
            groups.append((is_reduced, size))
    sizes = [size for _, size in groups]
    match [is_reduced for is_reduced, _ in groups]:
        case []:
            return ReductionForm(True, (1, 1, 1))
        case [True]:
            return ReductionForm(True, (1, 1, sizes[0]))
        case [False]:
            return ReductionForm(True, (1, sizes[0], 1))
        case [False, True]:
            return ReductionForm(True, (1, sizes[0], sizes[1]))
        case [True, False]:
            return ReductionForm(False, (1, sizes[0], sizes[1]))
        case [True, False, True]:
            return ReductionForm(True, (sizes[0], sizes[1], sizes[2]))
        case [False, True, False]:
            return ReductionForm(False, (sizes[0], sizes[1], sizes[2]))
        case _:
            return None


def fast_form(instruction: Instruction) -> ReductionForm | None:
    """The normalized form of a reduce that a reduction emitter takes; None for others."""
    if HEROES.get(instruction.opcode) is not XlaEmitter.REDUCTION or not instruction.operands[0].shape.element_count:
        return None
    form = reduction_form(instruction)
    return form if form is not None and form.is_fast else None


MINIMUM = 16
SMALL_MINIMUM = 8
SMALL_PRODUCT = 8192
TILE = 32
BANK_BITS = 32
XLA_WIDEST_KEPT, WIDEST_KEPT, WIDEST_ODD = 64, 224, 368
"""Bits of neighbours that stay neighbours in a tiled transpose, at the most: for XLA's emitter, for our kernels, and
for these where neighbours are no whole words, as far as a tile fits into shared memory. A loop reads whole sectors of
256 bits in any order, but by words; it also reads them whole where one of the sides is short."""


@dataclass(frozen=True, slots=True)
class TiledTranspose:
    """A tiled transpose: normalized sizes of the result, the permutation, and shared memory per tile in bytes.

    Elements narrower than 32 bits may be packed: then `packed_sizes` are the result's sizes with the dimensions of the
    packed emitter, and `packed_tile` is the part of each that a block writes.
    """

    sizes: tuple[int, ...]
    permutation: tuple[int, ...]
    shared_bytes: int
    packed_sizes: tuple[int, ...] = ()
    packed_tile: tuple[int, ...] | None = None

    @property
    def operand_sizes(self) -> tuple[int, ...]:
        """The normalized sizes of the operand."""
        return tuple(self.sizes[self.permutation.index(d)] for d in range(len(self.sizes)))


def normalized(sizes: tuple[int, ...], permutation: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Output sizes and permutation after merging neighbours that move together and dropping dimensions of size 1."""
    kept = [p for p in permutation if sizes[p] > 1]
    groups: list[list[int]] = []
    rank = {p: n for n, p in enumerate(sorted(kept))}
    for p in kept:
        if groups and rank[p] == rank[groups[-1][-1]] + 1:
            groups[-1].append(p)
        else:
            groups.append([p])
    order = {g[0]: n for n, g in enumerate(sorted(groups))}
    return tuple(math.prod(sizes[p] for p in g) for g in groups), tuple(order[g[0]] for g in groups)


def memory_order(instruction: Instruction) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """The normalized result sizes and permutation, in memory order, of a transpose or copy; None for others."""
    order = ORDERS.get(instruction.opcode)
    if order is None or not instruction.shape.is_array:
        return None
    return relative_order(instruction.operands[0].shape, order(instruction), instruction.shape)


@functools.lru_cache(maxsize=4096)
def relative_order(operand: Shape, logical: tuple[int, ...], result: Shape) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The normalized sizes of `result`, and the permutation, in memory order; its dimension d is dimension `logical[d]`
    of `operand`."""
    from_major = list(reversed(operand.minor_to_major))
    position = {d: n for n, d in enumerate(from_major)}
    sizes = tuple(operand.dimensions[d] for d in from_major)
    return normalized(sizes, tuple(position[logical[d]] for d in reversed(result.minor_to_major)))


def moves_data(instruction: Instruction) -> bool:
    """Whether a transpose (or a copy to another layout) changes the order in memory."""
    order = memory_order(instruction)
    return order is not None and _moves(order[1])


def _moves(permutation: tuple[int, ...]) -> bool:
    return permutation != tuple(range(len(permutation)))


def moves_minor(instruction: Instruction) -> bool:
    """Whether the minor dimension changes, so that reads along the output are strided in the operand."""
    order = memory_order(instruction)
    return order is not None and bool(order[1]) and order[1][-1] != len(order[1]) - 1


def _transposes(instruction: Instruction) -> bool:
    return HEROES.get(instruction.opcode) is XlaEmitter.TRANSPOSE


def only_renames(instruction: Instruction) -> bool:
    """Whether an instruction is a transpose that is only a change of layout."""
    return _transposes(instruction) and not moves_data(instruction)


def turns_view(instruction: Instruction) -> bool:
    """Whether an instruction is a bitcast from or to a layout that is not in the order of dimensions: the elements of
    a result that is may then be those of a transpose, as simplification leaves of one that only changes the layout."""
    if not is_view(instruction.opcode) or not instruction.shape.is_array:
        return False
    return not (_is_straight(instruction.operands[0].shape) and _is_straight(instruction.shape))


def tiled_transpose(instruction: Instruction) -> TiledTranspose | None:
    """The description of a transpose for the transpose emitter; None where a loop is better."""
    order = memory_order(instruction) if _transposes(instruction) else None
    return None if order is None else _described(order, bits_of(instruction.shape), packs=True)


def move_of(instruction: Instruction) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """The order of memory (see `memory_order`) of what moves elements in our kernels: transposes, copies, and reshapes
    of arrays that do not lie as their dimensions say, as JAX writes a transpose between two reshapes."""
    if instruction.opcode in ORDERS or instruction.opcode not in MOVERS:
        return memory_order(instruction)
    given, made = instruction.operands[0].shape, instruction.shape
    if _is_straight(given) == _is_straight(made):
        return None
    turned = given if _is_straight(made) else made
    straight = Shape(turned.type, turned.dimensions)
    from_to = (turned, straight) if turned is given else (straight, turned)
    return relative_order(from_to[0], tuple(range(turned.rank)), from_to[1])


def _is_straight(shape: Shape) -> bool:
    """Whether memory is in the order of dimensions."""
    return shape.minor_to_major == tuple(reversed(range(shape.rank)))


def tiled_move(instruction: Instruction) -> TiledTranspose | None:
    """The description of a move (see `move_of`) that our kernels tile, without packing; None where a loop is better."""
    order = move_of(instruction)
    return None if order is None else _described(order, bits_of(instruction.shape), packs=False)


def tiled_read(operand: Shape, logical: tuple[int, ...], result: Shape) -> TiledTranspose | None:
    """The description of reading `operand` in the order of `result` (see `relative_order`), as `tiled_move`."""
    return _described(relative_order(operand, logical, result), bits_of(operand), packs=False)


def _described(order: tuple[tuple[int, ...], tuple[int, ...]], bits: int, *, packs: bool) -> TiledTranspose | None:
    sizes, permutation = order
    if not _moves(permutation):
        return None
    packed = _packed(sizes, permutation, bits) if packs else None
    if packed is not None:
        return TiledTranspose(sizes, permutation, BANK_BITS // 8 * TILE * TILE * (BANK_BITS // bits), *packed)
    ours = WIDEST_ODD if bits * sizes[-1] % BANK_BITS else WIDEST_KEPT
    shared_bytes = _tile_bytes(sizes, permutation, bits, XLA_WIDEST_KEPT if packs else ours)
    return None if shared_bytes is None else TiledTranspose(sizes, permutation, shared_bytes)


def _tile_bytes(sizes: tuple[int, ...], permutation: tuple[int, ...], bits: int, widest: int) -> int | None:
    """Shared memory of a tile moved element by element; None where tiling does not pay. `widest`: bits of neighbours
    that stay neighbours, at the most."""
    rank, minor = len(permutation), sizes[-1]
    if permutation[-1] == rank - 1:
        second_out = sizes[-2]
        second_in = sizes[permutation.index(rank - 2)]
        if bits * minor > widest:
            return None
        least = MINIMUM if bits * minor > XLA_WIDEST_KEPT else 128 / (bits * minor)
        if min(second_out, second_in) >= least:
            return TILE * (TILE + 1) * bits * minor // 8
        return None
    if bits == 4:
        return None
    other = sizes[permutation.index(rank - 1)]
    if min(minor, other) >= MINIMUM or (min(minor, other) >= SMALL_MINIMUM and minor * other >= SMALL_PRODUCT):
        return TILE * (TILE + 1) * bits // 8
    return None


def tile_counts(sizes: tuple[int, ...], permutation: tuple[int, ...], vector: int = 1) -> tuple[int, ...]:
    """The number of tiles along each operand dimension: 32 times `vector` elements of the minor moved dimension and its
    counterpart."""
    stays = permutation[-1] == len(sizes) - 1
    near = len(sizes) - 1 - stays
    whole = {near: TILE * vector, permutation[near]: TILE * vector}
    if stays:
        whole[len(sizes) - 1] = sizes[-1]
    return tuple(-(-size // whole.get(d, 1)) for d, size in enumerate(sizes))


def packing(
    sizes: tuple[int, ...], permutation: tuple[int, ...], bits: int, count: int, cores: int, shared_bytes: int
) -> int:
    """The number of neighbouring elements that a thread of our kernels moves at once, for `count` transposes of up to
    `bits` bits.

    As many as a shared memory bank holds, if they divide rows on both sides, and the larger tiles fill the device and
    fit.
    """
    near = len(sizes) - 1
    if permutation[-1] == near:
        return 1
    far = permutation[near]
    vector = max(1, BANK_BITS // max(8, bits))
    while vector > 1:
        side = TILE * vector
        fits = count * side * (side + 1) * max(8, bits) // 8 <= shared_bytes
        even = not sizes[near] % vector and not sizes[far] % vector and min(sizes[near], sizes[far]) >= side
        if fits and even and math.prod(tile_counts(sizes, permutation, vector)) >= cores:
            break
        vector //= 2
    return vector


def _packed(
    sizes: tuple[int, ...], permutation: tuple[int, ...], bits: int
) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Sizes and tile of the result for the packed emitter (GetPackedTransposeTileSizes); None where it does not apply.

    The dimensions become [..., T2, A, T1, B]: T1 and T2 are exchanged, A is between them, B stays minor.
    """
    if bits >= BANK_BITS:
        return None
    vector = BANK_BITS // bits
    merged, order = list(sizes), list(permutation)
    if order[-1] != len(merged) - 1:
        order.append(len(merged))
        merged.append(1)
    rank = len(merged)
    if rank < 3 or order[rank - 3] != rank - 3:
        merged.insert(rank - 2, 1)
        order = [p + 1 if p > rank - 3 else p for p in order]
        order.insert(rank - 2, rank - 2)
        rank += 1
    packed_sizes = [merged[order.index(d)] for d in range(rank)]
    first_out = order.index(rank - 2)
    first, between, second, kept = (
        packed_sizes[rank - 2],
        packed_sizes[rank - 3],
        packed_sizes[order[rank - 2]],
        packed_sizes[-1],
    )
    side = TILE * vector
    tile_first = min(first, side)
    tile_between = min(between, side // tile_first)
    tile_second = min(second, side)
    columns = tile_between * tile_first
    if min(columns, tile_second) < 10 * vector:
        return None
    if kept != 1 or tile_second % vector or columns % vector or second % tile_second % vector:
        return None
    tile = [1] * rank
    tile[first_out], tile[rank - 2], tile[rank - 3] = tile_first, tile_second, tile_between
    return tuple(merged), tuple(tile)
