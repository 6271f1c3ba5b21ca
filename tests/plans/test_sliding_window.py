"""Which windows slide, what a block keeps of their lines, and what that costs."""

from __future__ import annotations

import math

import pytest

from hlo_opt.analysis.targets import DeviceTarget, InLanes
from hlo_opt.ir import Instruction
from hlo_opt.plans import Plan, plan, region_of
from hlo_opt.plans.columns import SHARED_BYTES
from hlo_opt.plans.price import price
from hlo_opt.plans.sliding_window import LONG, LONGEST_RUN, SHORTEST, Sliding, slide_of, slides
from hlo_opt.text import parse
from tests.small_modules import H100

TEXT = """HloModule m

f {
  x = KIND[] parameter(0)
  y = KIND[] parameter(1)
  ROOT z = KIND[] OPCODE(x, y)
}

ENTRY e {
  p = KIND[GIVEN] parameter(0)
  i = KIND[] parameter(1)
  ROOT s = KIND[RESULT] reduce-window(p, i), window={WINDOW}, to_apply=f
}
"""


def window(given: str, result: str, how: str, kind: str = "f32", opcode: str = "add") -> Instruction:
    text = TEXT.replace("KIND", kind).replace("OPCODE", opcode).replace("GIVEN", given).replace("RESULT", result)
    return parse(text.replace("WINDOW", how)).entry.root


def planned(root: Instruction, target: DeviceTarget = H100) -> Plan:
    module = root.computation.module
    assert module is not None
    made = plan(region_of(module, root), target)
    assert isinstance(made, Plan)
    return made


def part(given: str, result: str, how: str, kind: str = "f32") -> Sliding:
    (segment,) = planned(window(given, result, how, kind)).segments
    assert isinstance(segment.part, Sliding)
    return segment.part


def test_windows_that_slide() -> None:
    found = slide_of(window("3,90", "3,82", "size=1x20 pad=0_0x8_3"))
    assert (found.length, found.size, found.low) == (90, 20, 8)
    assert slides(window("90", "83", f"size={SHORTEST}"))
    assert slides(window("90", "71", "size=20", "bf16")) and slides(window("90", "71", "size=20", "bf16", "maximum"))
    assert slides(window("90", "71", "size=20", "c64")) and slides(window("90", "71", "size=20", "f8e5m2"))


@pytest.mark.parametrize(
    ("given", "result", "how", "kind", "opcode"),
    [
        ("90", "84", f"size={SHORTEST - 1}", "f32", "add"),
        ("90", "36", "size=20 stride=2", "f32", "add"),
        ("90", "52", "size=20 rhs_dilate=2", "f32", "add"),
        ("90", "160", "size=20 lhs_dilate=2", "f32", "add"),
        ("90,90", "81,81", "size=10x10", "f32", "add"),
        ("90", "90", "size=90 pad=89_0", "f32", "add"),
        ("0", "1", "size=20 pad=10_10", "f32", "add"),
        ("90", "71", "size=20", "f32", "subtract"),
        ("90", "71", "size=20", "f8e4m3fn", "maximum"),
        ("90", "71", "size=20", "u4", "add"),
    ],
)
def test_windows_that_do_not(given: str, result: str, how: str, kind: str, opcode: str) -> None:
    """Short, apart, in two dimensions, cumulative, of nothing; without an order that can be changed, or an identity in
    the type; and of elements that share bytes."""
    assert not slides(window(given, result, how, kind, opcode))


@pytest.mark.parametrize(
    ("rows", "columns", "size", "axis"),
    [(8192, 4096, 65, 1), (4096, 8192, 65, 0), (300, 20000, 1001, 1), (3, 70, 9, 1)],
)
def test_a_stretch_fits_and_covers_all(rows: int, columns: int, size: int, axis: int) -> None:
    whole, sizes = f"{rows},{columns}", f"1x{size}" if axis else f"{size}x1"
    pad = f"{size // 2}_{(size - 1) // 2}"
    made = part(whole, whole, f"size={sizes} pad={f'0_0x{pad}' if axis else f'{pad}x0_0'}")
    stretch, slide = made.stretch, slide_of(made.hero)
    sets, along, across = stretch.blocks
    assert made.shared_bytes(made.block) <= SHARED_BYTES
    assert stretch.run % 2 == 1 and stretch.run <= min(size, LONGEST_RUN)
    assert along * stretch.span >= (columns if axis else rows) > (along - 1) * stretch.span
    assert sets * stretch.majors * across * stretch.across >= (rows if axis else columns)
    assert stretch.again(made.windows) < 1.5 or math.prod(stretch.blocks) < H100.core_count
    assert (stretch.whole_runs(slide) > 0) == (size >= LONG * stretch.run)


@pytest.mark.parametrize("how", ["size=1x65 pad=0_0x32_32", "size=65x1 pad=32_32x0_0"])
def test_the_price_is_near_that_of_a_copy(how: str) -> None:
    made = planned(window("8192,4096", "8192,4096", how))
    least = 2 * 8192 * 4096 * 4
    paid = price(made, H100)
    assert made.kind == "sliding-window" and least <= paid.bytes < 1.3 * least
    assert least / H100.memory_bandwidth * 1e6 < paid.us < 1.7 * least / H100.memory_bandwidth * 1e6


def test_a_processor_folds_windows_side_by_side() -> None:
    """Vectors take neighbouring windows at once; only long windows are folded in runs."""
    short, long = window("9000", "8936", "size=65"), window("9000", "8001", "size=1000")
    assert [planned(root, InLanes.of(H100)).kind for root in (short, long)] == ["loop", "sliding-window"]
