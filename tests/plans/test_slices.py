"""Loops whose threads have the same elements of several slices."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hlo_opt.analysis.targets import DeviceTarget, InLanes
from hlo_opt.plans import Plan, plan
from hlo_opt.plans.in_place import sharing_of
from hlo_opt.plans.loop import Elements
from hlo_opt.plans.price import price
from hlo_opt.plans.slices import MOST_RESULTS
from hlo_opt.plans.slices import match as loop_parts
from tests.codegen.conftest import region_of_text
from tests.slice_modules import shared_by_slices
from tests.small_modules import H100

SMALL = replace(H100, core_count=1, threads_per_core_limit=256)


def planned(text: str, target: DeviceTarget = SMALL) -> Plan:
    found = plan(region_of_text(text), target)
    assert isinstance(found, Plan)
    return found


def slices(text: str, target: DeviceTarget = SMALL) -> int:
    (segment,) = planned(text, target).segments
    assert isinstance(segment.part, Elements)
    return segment.part.slices


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ("8,64,96", 4),
        ("6,64,96", 3),
        ("20,64,96", 4),
        ("11,64,96", 1),  # no divisor
        ("4,32,32", 2),  # more would leave too few threads
        ("1,8,64,96", 4),  # the major-most dimension has one element
    ],
)
def test_slices_divide_the_major_most_dimension_and_fill_the_device(sizes: str, expected: int) -> None:
    assert slices(shared_by_slices(sizes)) == expected


def test_a_thread_has_a_register_for_each_result() -> None:
    """16 bytes of f16 are eight results: four slices of what is only made, and read nowhere."""
    text = shared_by_slices("32,64,96", t="f16").replace(
        "ROOT r = f16[32,64,96] add(x, b)", "ROOT r = f16[32,64,96] negate(b)"
    )
    made = plan(region_of_text(text), SMALL)
    assert isinstance(made, Plan)
    (part,) = loop_parts(made.region, (0,), SMALL)
    assert part.slices * part.vector == MOST_RESULTS == 32


def test_what_is_cheap_or_not_shared_is_in_no_slices() -> None:
    assert slices(shared_by_slices("8,64,96", made="negate")) == 1
    assert slices(shared_by_slices("8,64,96", along=(0, 2))) == 1


def test_lanes_of_a_processor_have_no_slices() -> None:
    assert slices(shared_by_slices("8,64,96"), InLanes.of(SMALL)) == 1


def test_the_price_counts_what_is_shared_once() -> None:
    text = shared_by_slices("8,4096,1024")
    sliced = planned(text, H100)
    (segment,) = sliced.segments
    alone = replace(segment.part, slices=1)  # type: ignore[type-var]  # a part of a loop
    plain = Plan(
        sliced.region, replace(sliced.launch, grid=segment.part.slices * sliced.launch.grid), (alone.segment(128),)
    )
    assert price(sliced, H100).instructions < 0.5 * price(plain, H100).instructions
    assert price(sliced, H100).bytes == pytest.approx(price(plain, H100).bytes)


def test_a_donated_operand_is_updated_in_place() -> None:
    """A thread reads and writes the same elements of each slice."""
    assert (0, 0) in sharing_of(planned(shared_by_slices("8,64,96")))
