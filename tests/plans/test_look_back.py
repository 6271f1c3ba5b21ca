"""Which cumulative windows are folded by blocks that look back, and how their lines are cut."""

from __future__ import annotations

import pytest

from hlo_opt.analysis.targets import InLanes
from hlo_opt.plans import Plan, look_back, plan
from hlo_opt.plans import cumulative as cumulative_parts
from hlo_opt.plans.look_back import LookBack
from hlo_opt.plans.price import price
from tests.codegen.conftest import region_of_text
from tests.codegen.test_cumulative import cumulative
from tests.small_modules import H100


def planned(text: str) -> Plan:
    found = plan(region_of_text(text), H100)
    assert isinstance(found, Plan)
    return found


@pytest.mark.parametrize(
    ("shape", "axis", "kind"),
    [
        ((1 << 24,), 0, "look-back"),
        ((16, 1 << 20), 1, "look-back"),
        ((200, 1 << 18), 1, "look-back"),
        ((300, 1 << 18), 1, "cumulative"),  # lines enough
        ((1, 4096), 1, "cumulative"),  # one block takes it at a time
        ((1, 8192), 1, "cumulative"),  # or in two steps, which wait for less
        ((1 << 20, 2), 0, "cumulative"),  # lines side by side
    ],
)
def test_which_look_back(shape: tuple[int, ...], axis: int, kind: str) -> None:
    assert planned(cumulative(shape, axis)).kind == kind


def test_a_processor_walks_lines_as_they_are() -> None:
    region = region_of_text(cumulative((1 << 24,), 0))
    assert look_back.match(region, [0], InLanes.of(H100), 1 << 15) == ([], [0])
    assert look_back.match(region, [0], H100, 260)[0] and not look_back.match(region, [0], H100, 259)[0]


@pytest.mark.parametrize(
    ("length", "kind", "wanted"),
    [
        (1 << 24, "f32", (4, 8, 2048, 32, 64)),
        ((1 << 24) + 1, "f32", (4, 8, 2049, 32, 65)),
        (1 << 24, "bf16", (8, 4, 2048, 32, 64)),
        (1 << 24, "f64", (2, 8, 4096, 64, 64)),
        (1 << 17, "f32", (4, 1, 128, 32, 4)),  # more blocks, with fewer elements each
        (1 << 19, "f32", (4, 1, 512, 32, 16)),
        (1 << 20, "f32", (4, 2, 512, 32, 16)),
        (1 << 29, "f32", (4, 8, 65536, 256, 256)),
    ],
)
def test_tiles_and_groups(length: int, kind: str, wanted: tuple[int, ...]) -> None:
    """Groups are as many as tiles of a group: a block looks at two times the root of the number of tiles."""
    (segment,) = planned(cumulative((length,), 0, kind)).segments
    part = segment.part
    assert isinstance(part, LookBack)
    assert (part.vector, part.rounds, part.tiles, part.group, part.groups) == wanted
    assert segment.blocks == part.tiles and part.tiles * part.threads * part.rounds * part.vector >= length


@pytest.mark.parametrize("shape", [(1 << 24,), (16, 1 << 20), ((1 << 24) + 3,)])
def test_the_price_is_that_of_one_reading(shape: tuple[int, ...]) -> None:
    made = price(planned(cumulative(shape, len(shape) - 1)), H100)
    assert made.bytes < 1.01 * made.least and made.us < 1.1 * made.memory


@pytest.mark.parametrize("shape", [(4097,), (4098,), (4099,), (1, 8193), (2, 4098), (3, 4098), (2, 4097), (9, 4099)])
def test_a_line_has_the_accesses_that_its_elements_lie_in(shape: tuple[int, ...]) -> None:
    """No more: one more begins another tile at some lengths."""
    (part,) = cumulative_parts.match(region_of_text(cumulative(shape, len(shape) - 1)), [0], H100, 48 << 10)[0]
    lines, length = part.lines.count, part.lines.length
    ends = [(line * length // 4, ((line + 1) * length - 1) // 4) for line in range(lines)]
    assert part.is_peeled and part.steps == max(last - first + 1 for first, last in ends)
