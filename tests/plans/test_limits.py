"""How heavy an index is, and how deep code nests."""

from __future__ import annotations

import pytest

import hlo_opt
from hlo_opt.ir.index_map import Expression, add, constant, multiply, variable
from hlo_opt.plans.limits import DEEPEST, LARGEST, is_small, nesting, values_computed, weight
from hlo_opt.plans.plan import Region


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


@pytest.mark.parametrize(("doublings", "small"), [(12, True), (15, False)])
def test_a_region_of_few_ways_is_small_without_a_closer_look(doublings: int, small: bool) -> None:
    lines = [
        f"  r{k} = f32[8] reverse(v{k}), dimensions={{0}}\n  v{k + 1} = f32[8] add(v{k}, r{k})"
        for k in range(doublings)
    ]
    text = (
        "HloModule m\nENTRY e {\n  v0 = f32[8] parameter(0)\n"
        + "\n".join(lines)
        + f"\n  ROOT n = f32[8] negate(v{doublings})\n}}\n"
    )
    region = region_of_entry(text)
    assert is_small(region) == small
    if small:
        assert nesting(region.computation) <= DEEPEST and values_computed(region) <= LARGEST


def test_a_region_of_many_operations_is_looked_at_closely() -> None:
    lines = [f"  v{k + 1} = f32[8] negate(v{k})" for k in range(DEEPEST)]
    text = (
        "HloModule m\nENTRY e {\n  v0 = f32[8] parameter(0)\n"
        + "\n".join(lines)
        + f"\n  ROOT n = f32[8] tanh(v{DEEPEST})\n}}\n"
    )
    assert not is_small(region_of_entry(text))


def region_of_entry(text: str) -> Region:
    computation = hlo_opt.parse(text).entry
    return Region(computation.root, computation, tuple(computation.parameters), (computation.root,))
