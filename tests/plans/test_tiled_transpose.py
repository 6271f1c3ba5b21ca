"""Which arrays go through tiles."""

from __future__ import annotations

from hlo_opt.plans.tiled_transpose import Tiles
from tests.small_modules import module_of, planned

TURNED, STRAIGHT = "f32[64,96]{0,1}", "f32[64,96]{1,0}"


def test_arrays_go_through_tiles_in_the_order_of_parameters() -> None:
    for _ in range(20):  # each time objects lie elsewhere in memory, and so would their order in a set
        made = planned(
            module_of(
                *(f"p{number} = {TURNED} parameter({number})" for number in range(4)),
                f"a = {STRAIGHT} add(p1, p0)",
                f"b = {STRAIGHT} multiply(p3, p2)",
                f"r = {STRAIGHT} subtract(b, a)",
            )
        )
        (part,) = (segment.part for segment in made.segments)
        assert isinstance(part, Tiles)
        assert [i.parameter_number for i in part.tiled] == [0, 1, 2, 3]
