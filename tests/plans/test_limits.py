"""How heavy an index is, and how deep code nests."""

from __future__ import annotations

import pytest

import hlo_opt
from hlo_opt.ir.index_map import Expression, add, constant, multiply, variable
from hlo_opt.plans.limits import nesting, weight


@pytest.mark.parametrize("most", [1, 2, 100])
def test_nodes_are_counted_up_to_a_number(most: int) -> None:
    place = variable("p", 100)
    assert weight(constant(3), most) == 1
    assert weight(place, most) == 1
    assert weight(multiply(place, 3), most) == min(most, 2)
    assert weight(add(multiply(place, 3), variable("q", 5)), most) == min(most, 4)


def test_a_long_sum_is_counted_no_further() -> None:
    deep: Expression = variable("p", 2)
    for number in range(500):
        deep = add(deep, variable(f"q{number}", 2))
    assert weight(deep, 24) == 24


@pytest.mark.parametrize("pads", [1, 3])
def test_every_pad_is_a_pair_of_braces_inside_the_last(pads: int) -> None:
    lines = [f"  v{n + 1} = f32[{5 + n}] pad(v{n}, z), padding=0_1" for n in range(pads)]
    module = hlo_opt.parse(
        "HloModule m\nENTRY e {\n  z = f32[] constant(0)\n  v0 = f32[4] parameter(0)\n"
        + "\n".join(lines)
        + f"\n  ROOT r = f32[{4 + pads}] negate(v{pads})\n}}\n"
    )
    assert nesting(module.entry) == pads
