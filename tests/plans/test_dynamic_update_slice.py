"""The plan of updates in place: what its threads read and write."""

from __future__ import annotations

from small_modules import H100, module_of, planned

from hlo_opt.plans.kinds import kind_of
from hlo_opt.plans.price import price


def test_a_window_that_starts_where_one_array_says() -> None:
    """As XLA wrote it once, and still reads it: a number for each dimension is read."""
    made = planned(
        module_of(
            "data = f32[16,128]{1,0} parameter(0)",
            "update = f32[1,64]{1,0} parameter(1)",
            "start = s32[2]{0} parameter(2)",
            "r = f32[16,128]{1,0} dynamic-update-slice(data, update, start)",
        )
    )
    (segment,) = made.segments
    (walk,) = kind_of(segment.part).walks(made.region, segment, made.launch)
    assert [[str(e) for e in index] for value, index in walk.wanted if value.name == "start"] == [["0"], ["1"]]
    assert price(made, H100).us > H100.kernel_launch_us
