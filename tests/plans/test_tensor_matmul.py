"""Tiles for tensor cores: which threads have which elements, which tile a product gets, and what it costs."""

from __future__ import annotations

import pytest

from hlo_opt.analysis.targets import target
from hlo_opt.ir.index_map import Constant, constant
from hlo_opt.plans.price import price
from hlo_opt.plans.tensor_matmul import TensorProducts, WarpTile
from tests.plans.test_matmul import dot
from tests.small_modules import H100, module_of, planned


@pytest.mark.parametrize("tile", [WarpTile(2, 4, 4, 64), WarpTile(8, 1, 1, 16), WarpTile(1, 1, 2, 32)])
def test_each_element_of_a_block_is_one_threads(tile: WarpTile) -> None:
    found = set()
    for warp in range(8):
        for lane in range(32):
            for piece in range(tile.pieces):
                for number in range(4):
                    numbers = (constant(n) for n in (warp, lane, piece, number // 2, number % 2))
                    row, column = tile.element(*numbers)
                    assert isinstance(row, Constant) and isinstance(column, Constant)
                    found.add((row.value, column.value))
    assert found == {(row, column) for row in range(tile.height) for column in range(tile.width)}


@pytest.mark.parametrize(
    ("size", "tile"),
    [
        ((4096, 4096, 4096), (128, 128)),
        ((256, 256, 4096), (64, 64)),
        ((64, 4096, 14336), (64, 128)),
        ((256, 256, 64), (32, 32)),
        ((16, 100_000, 64), (16, 128)),
    ],
)
def test_large_products_get_large_tiles_and_few_rows_low_ones(
    size: tuple[int, int, int], tile: tuple[int, int]
) -> None:
    part = dot(*size, kind="bf16").segments[0].part
    assert isinstance(part, TensorProducts)
    assert (part.tile.height, part.tile.width) == tile


def test_shared_memory_has_both_tiles_as_their_operands_lie() -> None:
    made = dot(256, 256, 256, kind="bf16")
    part = made.segments[0].part
    height, width, depth = part.tile.height, part.tile.width, part.tile.depth
    assert made.launch.shared_bytes == 2 * max(height * (depth + 8) + depth * (width + 8), height * (width + 8))
    turned = dot(256, 256, 256, kind="bf16", a="{0,1}", b="{0,1}").segments[0].part
    assert turned.shared_bytes(256) >= 2 * (depth * (height + 8) + width * (depth + 8))


def test_the_price_is_far_below_that_of_ordinary_cores_and_above_the_limit() -> None:
    made, wide = (dot(4096, 4096, 4096, kind=kind) for kind in ("bf16", "f32"))
    limit = 2 * 4096**3 / (4 * 1024 / 2 * H100.core_count * H100.clock_rate_ghz * 1e3)
    assert limit < price(made, H100).us < price(wide, H100).us / 3
    assert price(dot(4096, 4096, 4096, kind="bf16"), target("a100_sxm_80")).us > price(made, H100).us


def test_blocks_share_a_tile_where_tiles_do_not_fill_the_device() -> None:
    few, many = (dot(16, columns, 4096, kind="bf16") for columns in (11008, 1 << 20))
    (one, another) = (made.segments[0].part for made in (few, many))
    assert one.parts > 1 and few.launch.grid >= H100.core_count
    assert (4096 // one.tile.depth) % one.parts == 0
    assert another.parts == 1


@pytest.mark.parametrize(
    ("wide", "sizes", "resident"),
    [("bf16", (64, 1280, 2560), 2), ("f32", (64, 1280, 2560), 1), ("bf16", (4096, 77, 40), 1)],
)
def test_two_blocks_share_a_multiprocessor_where_the_next_tiles_leave_registers(
    wide: str, sizes: tuple[int, int, int], resident: int
) -> None:
    """With 128 registers a thread spilled 32 elements of f32, or as many of bf16 that it loads one by one."""
    rows, depth, columns = sizes
    made = planned(
        module_of(
            f"a = bf16[8,{rows},{depth}] parameter(0)",
            f"w = {wide}[8,{depth},{columns}] parameter(1)",
            f"c = bf16[8,{depth},{columns}] convert(w)",
            f"d = f32[8,{rows},{columns}] dot(a, c), lhs_batch_dims={{0}}, lhs_contracting_dims={{2}}, "
            "rhs_batch_dims={0}, rhs_contracting_dims={1}",
        )
    )
    (segment,) = made.segments
    assert isinstance(segment.part, TensorProducts) and segment.part.fetches_ahead
    assert segment.resident == resident
