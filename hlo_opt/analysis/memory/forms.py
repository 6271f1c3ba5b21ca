"""How reductions and transposes lie in memory: which emitter XLA would give a reduction, which transposes go through shared memory, and which move the fastest dimension.

`LaunchDimensions` and widths of elements are what all launch rules speak of.
Source: xla/service/gpu/reduction_utils.cc, xla/service/gpu/ir_emission_utils.cc (GetDescriptionForTiledTransposeEmitter), xla/permutation_util.cc."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable
from dataclasses import dataclass

from hlo_opt.ir import Instruction, Shape
from hlo_opt.ops.emission import HEROES, ORDERS, Emitter


@dataclass(frozen=True, slots=True)
class LaunchDimensions:
    """Blocks in the grid and threads in a block."""

    blocks: int
    threads: int


def bits_of(shape: Shape) -> int:
    """Bits of an element in memory; a pred takes a byte."""
    return 8 if shape.type.name == "pred" else shape.type.bits


def smallest_bits(shapes: Iterable[Shape]) -> int | None:
    """Bits of the narrowest array; None where there is none."""
    return min((bits_of(s) for s in shapes if s.is_array), default=None)


def round_up(value: int, step: int) -> int:
    return -(-value // step) * step


WARP = 32
ROW_RACE_FREE_MINOR = 1024 * 16
ROW_RACE_FREE_MAJOR = 8
COLUMN_RACE_FREE = 32 * 128


@dataclass(frozen=True, slots=True)
class ReductionForm:
    """The normal form. Row: [reduced, kept, reduced]; column: [kept, reduced, kept]; sizes from the slowest dimension on."""

    is_row: bool
    sizes: tuple[int, int, int]

    @property
    def is_race_free(self) -> bool:
        """Whether one block can finish a result, so that an epilogue may follow in the same kernel."""
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
    """The normal form of a reduce's first operand, or None where neither the kept nor the reduced dimensions lie together."""
    shape = reduce.operands[0].shape
    return _form(shape.dimensions, shape.minor_to_major, reduce.ints("dimensions"))


@functools.lru_cache(maxsize=4096)
def _form(
    dimensions: tuple[int, ...], minor_to_major: tuple[int, ...], reduced: tuple[int, ...]
) -> ReductionForm | None:
    """Remembered, for rules ask about the same reductions again and again."""
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
    """The normal form when the instruction is a reduce that a reduction emitter would take, else None."""
    if HEROES.get(instruction.opcode) is not Emitter.REDUCTION or not instruction.operands[0].shape.element_count:
        return None
    form = reduction_form(instruction)
    return form if form is not None and form.is_fast else None


MINIMUM = 16
SMALL_MINIMUM = 8
SMALL_PRODUCT = 8192
TILE = 32
BANK_BITS = 32


@dataclass(frozen=True, slots=True)
class TiledTranspose:
    """A transpose that is emitted tile by tile: normalised sizes of the result and permutation, and the shared memory of a tile in bytes.

    Elements narrower than 32 bits may be moved packed: then `packed_sizes` are the result's sizes with the dimensions that the packed emitter
    wants, and `packed_tile` what a block writes of each.
    """

    sizes: tuple[int, ...]
    permutation: tuple[int, ...]
    shared_bytes: int
    packed_sizes: tuple[int, ...] = ()
    packed_tile: tuple[int, ...] | None = None

    @property
    def operand_sizes(self) -> tuple[int, ...]:
        """The normalised sizes of the operand."""
        return tuple(self.sizes[self.permutation.index(d)] for d in range(len(self.sizes)))


def normalized(sizes: tuple[int, ...], permutation: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The output sizes and permutation after merging neighbours that move together and dropping dimensions of size one."""
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
    """The result's sizes and the permutation as they lie in memory, normalised, for a transpose or a copy of an array; else None."""
    order = ORDERS.get(instruction.opcode)
    if order is None or not instruction.shape.is_array:
        return None
    return relative_order(instruction.operands[0].shape, order(instruction), instruction.shape)


@functools.lru_cache(maxsize=4096)
def relative_order(given: Shape, logical: tuple[int, ...], made: Shape) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Sizes of `made` and the permutation as they lie in memory, normalised, where each dimension of it is the one of `given` that `logical` says."""
    from_major = list(reversed(given.minor_to_major))
    position = {d: n for n, d in enumerate(from_major)}
    sizes = tuple(given.dimensions[d] for d in from_major)
    return normalized(sizes, tuple(position[logical[d]] for d in reversed(made.minor_to_major)))


def moves_data(instruction: Instruction) -> bool:
    """Whether it is a transpose (or a copy to another layout) that changes the order in memory."""
    found = memory_order(instruction)
    return found is not None and _moves(found[1])


def _moves(permutation: tuple[int, ...]) -> bool:
    return permutation != tuple(range(len(permutation)))


def moves_minor(instruction: Instruction) -> bool:
    """Whether the fastest varying dimension becomes another one, so that reading along the output jumps through the operand."""
    found = memory_order(instruction)
    return found is not None and bool(found[1]) and found[1][-1] != len(found[1]) - 1


def _transposes(instruction: Instruction) -> bool:
    return HEROES.get(instruction.opcode) is Emitter.TRANSPOSE


def only_renames(instruction: Instruction) -> bool:
    """Whether it is a transpose that leaves everything where it lies in memory: it touches nothing."""
    return _transposes(instruction) and not moves_data(instruction)


def tiled_transpose(instruction: Instruction) -> TiledTranspose | None:
    """The description of a transpose that the transpose emitter takes; None for one that a loop does better."""
    return _tiled(instruction, packs=True) if _transposes(instruction) else None


def tiled_move(instruction: Instruction) -> TiledTranspose | None:
    """The description of a transpose, or of a copy to another layout, that our kernels move tile by tile, element by element."""
    return _tiled(instruction, packs=False)


def tiled_read(given: Shape, logical: tuple[int, ...], made: Shape) -> TiledTranspose | None:
    """The description of an array that is read in the order of another one, whose dimensions are those of it that `logical` says, as `tiled_move` has it."""
    return _described(relative_order(given, logical, made), bits_of(given), packs=False)


def _tiled(instruction: Instruction, *, packs: bool) -> TiledTranspose | None:
    found = memory_order(instruction)
    return None if found is None else _described(found, bits_of(instruction.shape), packs=packs)


def _described(order: tuple[tuple[int, ...], tuple[int, ...]], bits: int, *, packs: bool) -> TiledTranspose | None:
    sizes, permutation = order
    if not _moves(permutation):
        return None
    packed = _packed(sizes, permutation, bits) if packs else None
    if packed is not None:
        return TiledTranspose(sizes, permutation, BANK_BITS // 8 * TILE * TILE * (BANK_BITS // bits), *packed)
    shared_bytes = _tile_bytes(sizes, permutation, bits)
    return None if shared_bytes is None else TiledTranspose(sizes, permutation, shared_bytes)


def _tile_bytes(sizes: tuple[int, ...], permutation: tuple[int, ...], bits: int) -> int | None:
    """Shared memory of a tile that is moved element by element; None where tiles do not pay."""
    rank, minor = len(permutation), sizes[-1]
    if permutation[-1] == rank - 1:
        second_out = sizes[-2]
        second_in = sizes[permutation.index(rank - 2)]
        if bits * minor <= 64 and bits * minor * min(second_out, second_in) >= 128:
            return TILE * (TILE + 1) * bits * minor // 8
        return None
    if bits == 4:
        return None
    other = sizes[permutation.index(rank - 1)]
    if min(minor, other) >= MINIMUM or (min(minor, other) >= SMALL_MINIMUM and minor * other >= SMALL_PRODUCT):
        return TILE * (TILE + 1) * bits // 8
    return None


def tile_counts(sizes: tuple[int, ...], permutation: tuple[int, ...], vector: int = 1) -> tuple[int, ...]:
    """Tiles along each dimension of an operand of these sizes: 32 times `vector` elements of the fastest dimension that moves and of the one that changes places with it."""
    stays = permutation[-1] == len(sizes) - 1
    near = len(sizes) - 1 - stays
    whole = {near: TILE * vector, permutation[near]: TILE * vector}
    if stays:
        whole[len(sizes) - 1] = sizes[-1]
    return tuple(-(-size // whole.get(d, 1)) for d, size in enumerate(sizes))


def packing(
    sizes: tuple[int, ...], permutation: tuple[int, ...], bits: int, count: int, cores: int, shared_bytes: int
) -> int:
    """Neighbouring elements that a thread of our kernels moves together, for so many transposes of elements of at most so many bits: a bank's, if rows on both sides divide
    into them, and the larger tiles fill the device and find room."""
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
    """Sizes and tile of the result for the packed emitter (GetPackedTransposeTileSizes); None where it cannot take the transpose.

    The dimensions are brought to [..., T2, A, T1, B]: T1 and T2 change places, A lies between them, B stays fastest.
    """
    if bits >= BANK_BITS:
        return None
    vector = BANK_BITS // bits
    made, order = list(sizes), list(permutation)
    if order[-1] != len(made) - 1:
        order.append(len(made))
        made.append(1)
    rank = len(made)
    if rank < 3 or order[rank - 3] != rank - 3:
        made.insert(rank - 2, 1)
        order = [p + 1 if p > rank - 3 else p for p in order]
        order.insert(rank - 2, rank - 2)
        rank += 1
    given = [made[order.index(d)] for d in range(rank)]
    first_out = order.index(rank - 2)
    first, between, second, kept = given[rank - 2], given[rank - 3], given[order[rank - 2]], given[-1]
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
    return tuple(made), tuple(tile)
