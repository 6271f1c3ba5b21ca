import numpy as np

import hlo_opt
from hlo_opt.ir import Module
from hlo_opt.runtime.schedule import build_schedule

LESS = """less {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  m = s32[] parameter(2)
  n = s32[] parameter(3)
  ROOT c = pred[] compare(a, b), direction=LT
}

"""
BODY = """\
  p = f32[4,16]{1,0} parameter(0)
  i = s32[4,16]{1,0} iota(), iota_dimension=1
  ROOT s = (f32[4,16]{1,0}, s32[4,16]{1,0}) sort(p, i), dimensions={1}, is_stable=true, to_apply=less"""


def fuse(body: str, passes: str = "sort-iota-fusion") -> Module:
    text = f"HloModule m\n\n{LESS}ENTRY e {{\n{body}\n}}\n"
    fused = hlo_opt.fuse(hlo_opt.parse(text), passes=passes, simplify="never")[0]
    x = np.random.default_rng(1).normal(size=fused.entry.parameters[0].shape.dimensions).astype(np.float32)
    for found, want in zip(hlo_opt.evaluate(fused, [x]), hlo_opt.evaluate(hlo_opt.parse(text), [x]), strict=True):
        np.testing.assert_array_equal(found, want)
    return fused


def test_a_sort_takes_its_iota_in():
    fused = fuse(BODY)
    root = fused.entry.root
    assert root.opcode == "fusion" and root.word("kind") == "kCustom"
    assert [i.opcode for i in fused.entry.instructions] == ["parameter", "fusion"]
    assert [i.opcode for i in root.called_by("calls").instructions] == ["parameter", "iota", "sort"]


def test_it_is_a_boundary_for_other_passes():
    body = BODY.replace("sort(p, i)", "sort(n, i)").replace("  i =", "  n = f32[4,16]{1,0} negate(p)\n  i =")
    fused = fuse(body, "sort-iota-fusion,priority-fusion")
    assert [i.opcode for i in fused.entry.instructions] == ["parameter", "negate", "fusion"]


def test_an_iota_that_counts_another_way_stays():
    fused = fuse(BODY.replace("iota_dimension=1", "iota_dimension=0"))
    assert fused.entry.root.opcode == "sort"


def test_an_iota_that_others_use_stays_for_them():
    body = BODY.replace("ROOT s", "s") + (
        "\n  x = f32[4,16]{1,0} get-tuple-element(s), index=0\n  ROOT t = (f32[4,16]{1,0}, s32[4,16]{1,0}) tuple(x, i)"
    )
    opcodes = [i.opcode for i in fuse(body).entry.instructions]
    assert "iota" in opcodes and "fusion" in opcodes and "sort" not in opcodes


def test_it_runs_as_the_kernel_that_the_sort_was():
    schedule = build_schedule(fuse(BODY))
    assert [k.kind for k in schedule.kernels] == ["sort"]
    assert not schedule.library_calls("library") and not schedule.library_calls("fallback")


def test_lines_too_long_for_a_block_are_a_librarys():
    schedule = build_schedule(fuse(BODY.replace("[4,16]", "[4,5000]")))
    assert schedule.library_calls("library") == {"sort": 1}
    assert not schedule.library_calls("fallback")
