"""How the columns of a sum are divided among threads reaches the launch."""

from __future__ import annotations

import pytest

from hlo_opt.plans.column_reduction import Columns
from hlo_opt.plans.columns import column_parts, column_tile
from tests.small_modules import H100, module_of, planned


@pytest.mark.parametrize("sizes", [(1, 65536, 32), (1, 512, 64), (3, 4096, 33), (8, 640, 4096)])
def test_the_launch_has_the_tile_of_the_columns(sizes: tuple[int, int, int]) -> None:
    batch, rows, columns = sizes
    lines = (f"p = f32[{batch},{rows},{columns}]{{2,1,0}} parameter(0)", "z = f32[] constant(0)")
    module = module_of(*lines, f"r = f32[{batch},{columns}]{{1,0}} reduce(p, z), dimensions={{1}}, to_apply=sum")
    tile = column_tile(sizes, 32, 4, H100.core_count)
    (segment,) = planned(module).segments
    assert isinstance(segment.part, Columns) and segment.part.sizes == sizes and tile is not None
    assert segment.part.tile == tile and segment.vector == tile.vector
    assert segment.part.parts == column_parts(tile, rows, H100.core_count) >= (2 if rows > 60000 else 1)
    assert segment.blocks == tile.blocks * segment.part.parts and segment.part.levels == ((module.entry.root,),)


def test_what_needs_a_sum_is_summed_after_it() -> None:
    wide, row = "f32[4096,64]{1,0}", "f32[64]{0}"
    lines = [f"p = {wide} parameter(0)", "z = f32[] constant(0)"]
    for n, given in enumerate("pe"):
        lines.append(f"sum{n} = {row} reduce({given}, z), dimensions={{0}}, to_apply=sum")
        if not n:
            lines += [f"b = {wide} broadcast(sum0), dimensions={{1}}", f"e = {wide} subtract(p, b)"]
    (segment,) = planned(module_of(*lines, f"r = {row} negate(sum1)")).segments
    assert isinstance(segment.part, Columns)
    assert [[r.name for r in level] for level in segment.part.levels] == [
        ["sum0"],
        ["sum1"],
    ] and segment.hero.name == "sum0"
