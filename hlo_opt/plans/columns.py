"""How our column-reduction kernels divide columns among blocks and threads.

Source of the vector rule: xla/backends/gpu/codegen/emitters/reduction.cc (GetVectorSizeForMlir). Unlike there, short
columns get smaller blocks. Where there are too few tiles to fill the device, blocks share columns; where they cannot,
tiles are made narrower, down to one memory transaction.
"""

from __future__ import annotations

from dataclasses import dataclass

WARP = 32
MOST_THREADS = 1024
SMALL_BLOCK = 128
SHARED_BYTES = 48 * 1024
"""Shared memory of a block that needs no special launch."""
PER_THREAD = 16
"""Elements of a column that one thread folds, before the column gets more threads."""
WIDEST_BITS = 128
"""What a thread reads at once at most."""
SECTOR_BITS = 256
"""What one memory transaction brings: a narrower tile would waste part of it."""
PART = 32 * 1024
"""Elements of long columns that lie side by side, or of a long row, that one block folds at least before several blocks
share the work."""
LANES_BLOCKS = 16
"""Where a processor plays threads as lanes: blocks to share out among a few processors."""
FEWEST_LANES = 128
"""There: threads of a block, which make a loop of their own in each round."""
_LONG = 512  # elements of a column that are worth narrower tiles
_ACCUMULATOR_BYTES = 32  # of a thread: with more, each thread gets fewer columns, and a block fewer threads


@dataclass(frozen=True, slots=True)
class ColumnTile:
    """A block's part of the work.

    vector  neighbouring columns of a thread
    lanes   threads side by side, each with its own columns
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

    bits: of the narrowest element that is read; accumulator_bytes: of all results of a column together.
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


def wide_tile(
    sizes: tuple[int, int, int], bits: int, accumulator_bytes: int, shared_bytes: int = SHARED_BYTES
) -> ColumnTile | None:
    """A tile as wide as a warp with 16 bytes per lane, or as far as columns allow: for columns that blocks share, which
    fill the device however few tiles there are."""
    minor = sizes[2]
    vector = max(1, WIDEST_BITS // bits)
    while vector > 1 and (
        minor % vector
        or minor < vector * WARP
        or vector * accumulator_bytes > _ACCUMULATOR_BYTES
        or vector * WARP * accumulator_bytes > shared_bytes
    ):
        vector //= 2
    lanes = min(WARP, minor // vector)
    return _tile(sizes, (vector, lanes), accumulator_bytes, PER_THREAD, shared_bytes)


def column_parts(tile: ColumnTile, reduced: int, cores: int) -> int:
    """Blocks that fold the same columns together: as many as fill the device, if each has enough to do."""
    return max(1, min(2 * cores // tile.blocks, reduced * tile.lanes * tile.vector // PART, reduced // tile.ways))


def lanes_tile(
    sizes: tuple[int, int, int], accumulator_bytes: int, *, may_share: bool, shared_bytes: int = SHARED_BYTES
) -> ColumnTile:
    """The tile where a processor plays threads as lanes of vectors: a lane for each column, as many columns as there
    are, and other threads only below few columns."""
    major, reduced, minor = sizes
    tiles = -(-minor // MOST_THREADS)
    if not may_share:  # what cannot be shared along columns is shared across them
        tiles = max(tiles, min(LANES_BLOCKS // major, minor // FEWEST_LANES))
    lanes = -(-minor // max(1, tiles))
    ways = _power_below(max(1, min(FEWEST_LANES // lanes, reduced)))
    while ways > 1 and ways * lanes * accumulator_bytes > shared_bytes:
        ways //= 2
    return ColumnTile(1, lanes, ways, major * _tiles(minor, 1, lanes))


def lanes_parts(tile: ColumnTile, reduced: int) -> int:
    """Blocks that fold the same columns together there."""
    most = LANES_BLOCKS // tile.blocks, reduced * tile.lanes // PART, reduced // tile.ways
    return max(1, min(most))


def _tile(
    sizes: tuple[int, int, int], across: tuple[int, int], accumulator_bytes: int, per_thread: int, shared_bytes: int
) -> ColumnTile | None:
    """The tile with so many columns per thread and lanes, and as many ways as threads have so many elements each; None
    where shared memory has no room."""
    (major, reduced, minor), (vector, lanes) = sizes, across
    # from three results of a column on, and two columns of a thread, ptxas spills to keep two blocks of 1,024 (seen for
    # sm_100)
    is_heavy = accumulator_bytes > _ACCUMULATOR_BYTES or (accumulator_bytes > 8 and vector * accumulator_bytes > 16)
    most = MOST_THREADS // 2 if is_heavy else MOST_THREADS
    wanted = max(reduced // per_thread, SMALL_BLOCK // lanes, 1)
    ways = _power_below(min(wanted, most // lanes, reduced))
    while ways > 1 and ways * lanes * vector * accumulator_bytes > shared_bytes:
        ways //= 2
    if ways * lanes * vector * accumulator_bytes > shared_bytes:
        return None
    return ColumnTile(vector, lanes, ways, major * _tiles(minor, vector, lanes))


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
