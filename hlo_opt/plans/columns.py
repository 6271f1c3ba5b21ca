"""The division of columns among blocks and threads in column-reduction kernels.

Source of the vector rule: xla/backends/gpu/codegen/emitters/reduction.cc (GetVectorSizeForMlir). Unlike there, short
columns get smaller blocks. Where there are too few tiles to fill the device, blocks share columns; where they cannot,
tiles are made narrower, down to one memory transaction.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

WARP = 32
MOST_THREADS = 1024
SMALL_BLOCK = 128
SHARED_BYTES = 48 * 1024
"""Shared memory of a block that needs no special launch."""
PER_THREAD = 16
"""Elements of a column that one thread folds, before the column gets more threads."""
WIDEST_BITS = 128
"""The widest access of a thread."""
WORD = 32
"""Bits of a register, and of what a compare-and-swap works on."""
MOST_ABREAST = 512
"""Limit of the lanes of a tile of narrow elements."""
JUMP = 10
"""The cost of a jump to another address, in bytes of a copy: columns in rows of 32 bytes reach 75 to 85 % of a copy,
tiles in rows of 128 bytes nearly all of it."""
SECTOR_BITS = 256
"""Bits of a memory transaction: a narrower tile would waste part of it."""
MOST_RESIDENT = 4
"""The most blocks of a multiprocessor that share columns: each of them leaves partial results in memory."""
FEW = 8
"""The fraction of the blocks that share columns, up to which some are left out, is one in this many."""
PART = 32 * 1024
"""The least number of elements that one block folds, of adjacent long columns or of a long row, before several blocks
share the work."""
LANES_BLOCKS = 16
"""On a CPU, where threads are lanes: the number of blocks to divide among a few processors."""
FEWEST_LANES = 128
"""On a CPU: the least number of threads per block, which are the iterations of a loop."""
_LONG = 512  # elements of a column that are worth narrower tiles
_ACCUMULATOR_BYTES = 32  # of a thread: with more, each thread gets fewer columns, and a block fewer threads


@dataclass(frozen=True, slots=True)
class ColumnTile:
    """The tile of a block.

    vector  neighbouring columns of a thread
    lanes   threads with different columns
    ways    threads that fold one column together: a power of two
    """

    vector: int
    lanes: int
    ways: int
    blocks: int

    @property
    def threads(self) -> int:
        return self.lanes * self.ways


def column_tile(
    sizes: tuple[int, int, int], bits: int, accumulator_bytes: int, cores: int, shared_bytes: int = SHARED_BYTES
) -> ColumnTile | None:
    """The tile for [kept, reduced, kept] sizes; None when the accumulators do not fit into shared memory.

    `bits` are those of the narrowest element that is read; `accumulator_bytes` those of all results of a column.
    """
    major, reduced, minor = sizes
    vector = _vector(minor, bits)
    while vector > 1 and (
        major * _tiles(minor, vector, WARP) < cores
        or vector * accumulator_bytes > _ACCUMULATOR_BYTES
        or vector * WARP * accumulator_bytes > shared_bytes
    ):
        vector //= 2
    lanes = min(WARP, minor // vector)
    while (
        reduced >= _LONG
        and major * _tiles(minor, vector, lanes) < cores
        and lanes % 2 == 0
        and lanes * vector * bits > SECTOR_BITS
    ):
        lanes //= 2
    per_thread = 2 if major * _tiles(minor, vector, lanes) < cores else PER_THREAD
    return _tile(sizes, (vector, lanes), accumulator_bytes, per_thread, shared_bytes)


def keeping_tile(
    tile: ColumnTile,
    sizes: tuple[int, int, int],
    accumulator_bytes: int,
    most: int,
    cores: int,
    shared_bytes: int = SHARED_BYTES,
) -> ColumnTile | None:
    """The tile with so many ways that a thread has at most `most` elements, all columns together: it can keep them from
    pass to pass. Threads that are enough for the device have whole columns, where these are that short, and wait for no
    other. None if a block has too few threads, or too little shared memory."""
    major, reduced, minor = sizes
    if reduced * tile.vector <= most and major * minor // tile.vector >= cores * MOST_THREADS:
        lanes = min(SMALL_BLOCK, -(-minor // tile.vector // WARP) * WARP)
        return ColumnTile(tile.vector, lanes, 1, major * _tiles(minor, tile.vector, lanes))
    ways, threads = tile.ways, _most_threads(tile.vector, accumulator_bytes)
    while -(-reduced // ways) * tile.vector > most:
        ways *= 2
        if ways * tile.lanes > threads or ways * tile.lanes * tile.vector * accumulator_bytes > shared_bytes:
            return None
    return replace(tile, ways=ways)


def wide_tile(
    sizes: tuple[int, int, int], bits: int, accumulator_bytes: int, shared_bytes: int = SHARED_BYTES
) -> ColumnTile | None:
    """A tile as wide as a warp with 16 bytes per lane, or as the columns allow: for columns that blocks share, where
    few tiles are enough to fill the device. Where there are few columns it has whole rows, which are adjacent in
    memory; then 4 bytes per lane are enough (f32 on an H200: 16 take longer, because too many threads share a column).
    """
    minor = sizes[2]
    vector = max(1, WIDEST_BITS // bits)
    while vector > 1 and (
        minor % vector
        or (minor < vector * WARP and vector * bits > 32)
        or vector * accumulator_bytes > _ACCUMULATOR_BYTES
        or vector * WARP * accumulator_bytes > shared_bytes
    ):
        vector //= 2
    lanes = min(WARP, minor // vector) if vector * bits >= WORD else _narrow_lanes(minor, bits)
    return _tile(sizes, (vector, lanes), accumulator_bytes, PER_THREAD, shared_bytes)


def abreast_tile(
    sizes: tuple[int, int, int], accumulator_bytes: int, shared_bytes: int = SHARED_BYTES
) -> ColumnTile | None:
    """The tile of a block whose threads have all columns of a row each; None where these are too many results."""
    minor = sizes[2]
    if minor * accumulator_bytes > _ACCUMULATOR_BYTES:
        return None
    return _tile(sizes, (minor, 1), accumulator_bytes, PER_THREAD, shared_bytes)


def _narrow_lanes(minor: int, bits: int) -> int:
    """Lanes of less than a word each, where rows are not aligned to more: several warps or a whole row abreast, for
    which the fewest bytes of rows, surplus lanes and jumps to the next row are spent."""
    whole = (minor,) if minor <= MOST_ABREAST else ()

    def spent(lanes: int) -> tuple[int, int]:
        jumps = 0 if lanes == minor else 8 * JUMP
        return _tiles(minor, 1, lanes) * (lanes * bits + jumps), -lanes

    return min((*whole, *range(WARP, MOST_ABREAST // 2 + 1, WARP)), key=spent) if minor > WARP else minor


def column_parts(tile: ColumnTile, reduced: int, cores: int) -> int:
    """The number of blocks that share columns: as many as fill the device, if each has enough work. The last block
    reads their parts with `ways` threads per column: a few parts more than a multiple of that would cost a round."""
    resident = cores * min(MOST_RESIDENT, 2 * MOST_THREADS // tile.threads)
    parts = max(1, min(resident // tile.blocks, reduced * tile.lanes * tile.vector // PART, reduced // tile.ways))
    beyond = parts % tile.ways
    return parts - beyond if parts > beyond and beyond * FEW <= parts else parts


def lanes_tile(
    sizes: tuple[int, int, int], accumulator_bytes: int, *, may_share: bool, shared_bytes: int = SHARED_BYTES
) -> ColumnTile:
    """The tile for a CPU, where threads are lanes of vectors: a lane for each column, and several threads per column
    only if there are few columns."""
    major, reduced, minor = sizes
    tiles = -(-minor // MOST_THREADS)
    if not may_share:  # blocks cannot share columns, so each has some of them
        tiles = max(tiles, min(LANES_BLOCKS // major, minor // FEWEST_LANES))
    lanes = -(-minor // max(1, tiles))
    ways = _power_below(max(1, min(FEWEST_LANES // lanes, reduced)))
    while ways > 1 and ways * lanes * accumulator_bytes > shared_bytes:
        ways //= 2
    return ColumnTile(1, lanes, ways, major * _tiles(minor, 1, lanes))


def lanes_parts(tile: ColumnTile, reduced: int) -> int:
    """The number of blocks that share columns on a CPU."""
    most = LANES_BLOCKS // tile.blocks, reduced * tile.lanes // PART, reduced // tile.ways
    return max(1, min(most))


def _tile(
    sizes: tuple[int, int, int], across: tuple[int, int], accumulator_bytes: int, per_thread: int, shared_bytes: int
) -> ColumnTile | None:
    """The tile with (columns per thread, lanes) `across`, and enough ways for `per_thread` elements per thread; None if
    shared memory does not suffice."""
    (major, reduced, minor), (vector, lanes) = sizes, across
    most = _most_threads(vector, accumulator_bytes)
    wanted = max(reduced // per_thread, SMALL_BLOCK // lanes, 1)
    ways = _power_below(min(wanted, most // lanes, reduced))
    while ways > 1 and ways * lanes * vector * accumulator_bytes > shared_bytes:
        ways //= 2
    if ways * lanes * vector * accumulator_bytes > shared_bytes:
        return None
    return ColumnTile(vector, lanes, ways, major * _tiles(minor, vector, lanes))


def _most_threads(vector: int, accumulator_bytes: int) -> int:
    """The most threads of a block: with three results per column and two columns per thread, ptxas spills to keep two
    blocks of 1,024 (seen for sm_100)."""
    is_heavy = accumulator_bytes > _ACCUMULATOR_BYTES or (accumulator_bytes > 8 and vector * accumulator_bytes > 16)
    return MOST_THREADS // 2 if is_heavy else MOST_THREADS


def _vector(minor: int, bits: int) -> int:
    if minor % 2 or minor < 2 * WARP or bits >= 64:
        return 1
    if bits >= 32 or minor < 4 * WARP:
        return 2
    return 4 if minor % 4 == 0 else 2


def _tiles(minor: int, vector: int, lanes: int) -> int:
    return -(-minor // (vector * lanes))


def _power_below(value: int) -> int:
    """The largest power of two up to a positive value."""
    return 1 << (value.bit_length() - 1)
