"""Which windows are cumulative, and how the threads of a device divide their lines."""

from __future__ import annotations

import dataclasses

import pytest

from hlo_opt.ir import Instruction
from hlo_opt.plans import Plan, plan, region_of
from hlo_opt.plans.cumulative import MOST_IN_TURN, Prefixes, lines_of
from hlo_opt.plans.price import price
from hlo_opt.text import parse
from tests.small_modules import H100

TEXT = """HloModule m

f {
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT z = f32[] add(x, y)
}

ENTRY e {
  p = GIVEN parameter(0)
  i = f32[] constant(0)
  ROOT s = RESULT reduce-window(p, i), window={WINDOW}, to_apply=f
}
"""


def window(result: str, how: str, given: str = "") -> Instruction:
    text = TEXT.replace("RESULT", result).replace("WINDOW", how).replace("GIVEN", given or result)
    return parse(text).entry.root


def part(result: str, how: str) -> Prefixes:
    made = planned(window(result, how))
    found = made.segments[0].part
    assert isinstance(found, Prefixes) and made.launch.grid == made.segments[0].blocks
    return found


def planned(root: Instruction) -> Plan:
    module = root.computation.module
    assert module is not None
    found = plan(region_of(module, root), H100)
    assert isinstance(found, Plan)
    return found


@pytest.mark.parametrize(
    ("result", "how", "wanted"),
    [
        ("f32[3,9]{1,0}", "size=1x9 pad=0_0x8_0", (1, False, 9, 3, 1)),
        ("f32[3,9]{1,0}", "size=1x9 pad=0_0x0_8", (1, True, 9, 3, 1)),
        ("f32[3,9]{0,1}", "size=1x9 pad=0_0x8_0", (1, False, 9, 3, 3)),
        ("f32[3,9,5]{2,1,0}", "size=1x9x1 pad=0_0x8_0x0_0", (1, False, 9, 15, 5)),
    ],
)
def test_lines(result: str, how: str, wanted: tuple[int, bool, int, int, int]) -> None:
    lines = lines_of(window(result, how))
    assert lines is not None
    assert (lines.axis, lines.is_reversed, lines.length, lines.count, lines.minor) == wanted


@pytest.mark.parametrize(
    ("result", "how", "given"),
    [
        ("f32[3,9]{1,0}", "size=1x8 pad=0_0x7_0", ""),
        ("f32[3,9]{1,0}", "size=1x9 pad=0_0x4_4", ""),
        ("f32[3,9]{1,0}", "size=3x9 pad=2_0x8_0", ""),
        ("f32[3,3]{1,0}", "size=1x3 pad=0_0x2_0", ""),
        ("f32[3,9]{1,0}", "size=1x9 stride=1x2 pad=0_0x8_0", "f32[3,17]{1,0}"),
        ("f32[3,9]{1,0}", "size=1x9 pad=0_0x16_0 rhs_dilate=1x2", ""),
        ("f32[0,9]{1,0}", "size=1x9 pad=0_0x8_0", ""),
    ],
)
def test_other_windows(result: str, how: str, given: str) -> None:
    root = window(result, how, given)
    assert lines_of(root) is None
    assert lines_of(root.operands[0]) is None


def test_rows_have_part_of_a_warp_or_whole_ones() -> None:
    def of(rows: int, n: int) -> tuple[int, int, int, int, int]:
        found = part(f"f32[{rows},{n}]{{1,0}}", f"size=1x{n} pad=0_0x{n - 1}_0")
        return found.vector, found.threads, found.tiles, found.block, found.lines_per_block(found.block)

    assert of(1000, 4) == (4, 1, 1, 256, 256)
    assert of(1000, 24) == (4, 8, 1, 256, 32)
    assert of(1000, 33) == (1, 64, 1, 256, 4)
    assert of(1000, 1024) == (4, 256, 1, 256, 1)
    assert of(1000, 1028) == (4, 256, 2, 256, 1)
    assert of(3, 24) == (4, 8, 1, 32, 4)
    assert of(3, 1028) == (4, 288, 1, 288, 1)  # rows are few: the threads are not
    assert of(3, 8192) == (4, 1024, 2, 1024, 1)


def test_lines_across_memory_lie_side_by_side_in_a_warp() -> None:
    def of(n: int, lines: int) -> tuple[int, int, int, int, int]:
        found = part(f"f32[{n},{lines}]{{1,0}}", f"size={n}x1 pad={n - 1}_0x0_0")
        return found.vector, found.threads, found.tiles, found.block, found.abreast

    assert of(512, 100) == (MOST_IN_TURN, 32, 2, 1024, 32)
    assert of(7, 100) == (7, 1, 1, 32, 32)
    assert of(22, 3) == (2, 11, 1, 64, 4)


def test_what_a_thread_takes_is_16_bytes() -> None:
    made = part("f32[8,4096]{1,0}", "size=1x4096 pad=0_0x4095_0")
    narrow = TEXT.replace("f32", "bf16").replace("RESULT", "bf16[8,4096]{1,0}").replace("GIVEN", "bf16[8,4096]{1,0}")
    root = parse(narrow.replace("WINDOW", "size=1x4096 pad=0_0x4095_0")).entry.root
    (segment,) = planned(root).segments
    assert made.vector == 4 and segment.vector == 8


def test_a_result_that_is_needed_elsewhere_is_a_loop() -> None:
    text = (
        TEXT.replace("GIVEN", "f32[8]{0}")
        .replace("WINDOW", "size=8 pad=7_0")
        .replace("ROOT s = RESULT", "s = f32[8]{0}")
    )
    module = parse(text.replace("to_apply=f\n}", "to_apply=f\n  ROOT r = f32[8]{0} reverse(s), dimensions={0}\n}"))
    fusion = region_of(module, module.entry.root)
    whole = dataclasses.replace(
        fusion, computation=module.entry, parameters=tuple(module.entry.parameters), roots=(module.entry.root,)
    )
    found = plan(whole, H100)
    assert isinstance(found, Plan) and found.kind == "loop"


def test_shared_memory_that_is_not_there() -> None:
    """Where other parts of a launch take it all, the window is a loop."""
    from hlo_opt.plans import cumulative

    root = window("f32[512,100]{1,0}", "size=512x1 pad=511_0x0_0")
    module = root.computation.module
    assert module is not None
    region = region_of(module, root)
    assert len(cumulative.match(region, [0], H100, 4096)[0]) == 1
    assert cumulative.match(region, [0], H100, 4095) == ([], [0])


@pytest.mark.parametrize(
    ("result", "how"),
    [("f32[8192,4096]{1,0}", "size=1x4096 pad=0_0x4095_0"), ("f32[4096,8192]{1,0}", "size=4096x1 pad=4095_0x0_0")],
)
def test_the_price_is_that_of_one_reading(result: str, how: str) -> None:
    made = price(planned(window(result, how)), H100)
    assert made.least == 2 * 4 * 8192 * 4096 and made.bytes < 1.1 * made.least
    assert 1 < made.us / made.memory < 1.2


def test_a_long_line_by_itself_is_dear() -> None:
    """One block goes over it, tile by tile: that is why such windows are split."""
    made = price(planned(window("f32[2097152,2]{1,0}", "size=2097152x1 pad=2097151_0x0_0")), H100)
    assert made.way > 10 * made.memory and made.waves < 0.01
