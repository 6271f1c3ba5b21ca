from __future__ import annotations

from dataclasses import replace

from hlo_opt.analysis.targets import DeviceTarget, InLanes
from hlo_opt.plans import Plan, plan, region_of
from hlo_opt.text import parse
from tests.small_modules import H100


def loop(dims: str, target: DeviceTarget = H100) -> Plan:
    module = parse(
        f"HloModule m\nENTRY e {{\n  p = f32[{dims}]{{0}} parameter(0)\n  ROOT r = f32[{dims}]{{0}} negate(p)\n}}\n"
    )
    found = plan(region_of(module, module.entry.root), target)
    assert isinstance(found, Plan)
    return found


SMALL = replace(H100, core_count=2, threads_per_core_limit=256)


def test_vector_width_follows_the_device() -> None:
    assert loop("270332").segments[0].vector == 1
    assert loop("270336").segments[0].vector == 4
    assert loop("270338").segments[0].vector == 4
    assert loop("512", SMALL).segments[0].vector == 4
    assert loop("508", SMALL).segments[0].vector == 1


def test_elements_that_share_bytes_are_written_by_whole_bytes() -> None:
    for name, count, vector in (("s4", 6, 2), ("s4", 5, 1), ("s2", 8, 4), ("s2", 6, 1)):
        text = f"HloModule m\nENTRY e {{\n  p = {name}[{count}]{{0}} parameter(0)\n  ROOT r = {name}[{count}]{{0}} negate(p)\n}}\n"
        module = parse(text)
        found = plan(region_of(module, module.entry.root), H100)
        assert isinstance(found, Plan) and found.segments[0].vector == vector


def test_a_rest_that_is_no_vector_has_threads_of_its_own() -> None:
    """Not so where threads are lanes of a processor, or where elements share bytes."""
    assert loop("270339").launch.grid * 128 >= 270336 // 4 + 3 > (loop("270339").launch.grid - 1) * 128
    assert loop("270339", InLanes.of(H100)).segments[0].vector == 1


def test_launch_covers_every_element() -> None:
    assert (loop("129").launch.grid, loop("129").launch.block) == (2, 128)
    assert (loop("5").launch.grid, loop("5").launch.block) == (1, 5)
    assert loop("270336").launch.grid == 270336 // 4 // 128


def test_threads_beside_each_other_read_windows_along_memory() -> None:
    """Not so where the window is along another dimension, or threads are lanes of a processor."""
    text = (
        "HloModule m\nf {{ a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT c = f32[] maximum(a, b) }}\n"
        "ENTRY e {{\n  p = f32[4096,4096] parameter(0)\n  i = f32[] constant(0)\n"
        "  ROOT r = f32[4096,4096] reduce-window(p, i), window={{size={} pad={}}}, to_apply=f\n}}\n"
    )
    for size, pad, vector in (("1x3", "0_0x1_1", 2), ("7x5", "3_3x2_2", 1), ("3x1", "1_1x0_0", 4)):
        module = parse(text.format(size, pad))
        for target, expected in ((H100, vector), (InLanes.of(H100), 4)):
            found = plan(region_of(module, module.entry.root), target)
            assert isinstance(found, Plan) and found.segments[0].vector == expected


def test_threads_beside_each_other_fold_short_rows() -> None:
    """Two threads share a row of 12: alone, each of its loads would touch 32 lines. Rows of two take no longer than
    their bytes, and folds of another dimension read neighbours anyway. The lanes of a processor have no lines."""
    text = """HloModule m

add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}

ENTRY e {
  x = f32[4194304,ROWS]{LAYOUT} parameter(0)
  zero = f32[] constant(0)
  ROOT sum = f32[4194304] reduce(x, zero), dimensions={1}, to_apply=add
}
"""

    def vector(columns: int, layout: str, target: DeviceTarget = H100) -> tuple[str, int]:
        module = parse(text.replace("ROWS", str(columns)).replace("LAYOUT", layout))
        made = plan(region_of(module, module.entry.root), target)
        assert isinstance(made, Plan)
        return made.kind, made.segments[0].vector

    assert [vector(columns, "1,0") for columns in (12, 3, 2)] == [("row-reduction", 4), ("loop", 2), ("loop", 4)]
    assert vector(3, "0,1") == ("loop", 4)
    assert vector(12, "1,0", InLanes.of(H100)) == ("loop", 4)
