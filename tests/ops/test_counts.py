"""Values that count along a dimension."""

from __future__ import annotations

import pytest

from hlo_opt.ops.counts import counted_along
from tests.small_modules import module_of, named

IOTA = "i = s32[4] iota(), iota_dimension=0"
LATER = ["n = s32[] constant(4)", "ns = s32[4] broadcast(n), dimensions={}", "l = s32[4] add(i, ns)"]
ZERO = ["z = s32[] constant(0)", "zs = s32[4] broadcast(z), dimensions={}"]


@pytest.mark.parametrize(
    ("lines", "along"),
    [
        (["r = s32[3,4] iota(), iota_dimension=1"], 1),
        ([IOTA, "r = s32[4,2] broadcast(i), dimensions={0}"], 0),
        ([IOTA, "r = s32[1,4,1] reshape(i)"], 1),
        ([IOTA, "r = s32[2,2] reshape(i)"], None),
        (["i = s32[1] iota(), iota_dimension=0", "r = s32[1,1] reshape(i)"], None),
        ([IOTA, *LATER, *ZERO, "c = pred[4] compare(i, zs), direction=LT", "r = s32[4] select(c, l, i)"], 0),
        ([IOTA, *LATER, *ZERO, "c = pred[4] compare(i, zs), direction=LE", "r = s32[4] select(c, l, i)"], None),
        ([IOTA, *LATER, *ZERO, "c = pred[4] compare(i, ns), direction=LT", "r = s32[4] select(c, l, i)"], None),
        ([IOTA, "r = s32[4] negate(i)"], None),
        (["r = f32[4] iota(), iota_dimension=0"], None),
        (["r = s8[200] iota(), iota_dimension=0"], None),
    ],
)
def test_along(lines: list[str], along: int | None) -> None:
    assert counted_along(named(module_of(*lines), "r")) == along
