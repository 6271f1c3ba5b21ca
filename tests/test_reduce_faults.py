"""A few planted faults: `bisect` finds the step, `reduce` a small module (scripts/reduce_faults.py)."""

import pytest

import hlo_opt
from hlo_opt.runtime.schedule import build_schedule
from scripts import reduce_faults
from scripts.kernel_faults import sites

TEXT = """HloModule m
ENTRY e {
  p = f32[64]{0} parameter(0)
  n = f32[64]{0} negate(p)
  ROOT r = f32[64]{0} sine(n)
}
"""


@pytest.mark.parametrize("seed", [0, 3])
def test_an_operation_that_is_another_from_some_pass_on(seed):
    result = reduce_faults.in_a_series(seed, jobs=2)
    assert result.is_right and result.instructions <= 3


def test_a_mistake_in_kernels_is_found_and_made_small(tmp_path):
    file = tmp_path / "m.hlo"
    file.write_text(TEXT)
    (kernel,) = build_schedule(hlo_opt.fuse(hlo_opt.parse(TEXT))[0]).kernels
    lines = kernel.source.split("\n")
    stores = [n for n, line in enumerate(lines) if "out0[" in line and " = " in line]
    place = next(s for s in sites(lines, stores) if s.kind == "statement")
    at = list(sites(lines, [place.line])).index(place)
    fault = reduce_faults.InKernels(reduce_faults.of_any_value(lines[place.line]), "statement", at, 0)
    assert fault.planted(kernel.source) != kernel.source
    result = reduce_faults._measured("kernels", "a lost store", reduce_faults.ROOT, [str(file)], 2, fault, {})
    assert result is not None and result.is_good, result


COUNTED = """HloModule m

body {
  t = (s32[], f32[64]{0}) parameter(0)
  i = s32[] get-tuple-element(t), index=0
  u = f32[64]{0} get-tuple-element(t), index=1
  one = s32[] constant(1)
  n = s32[] add(i, one)
  r = f32[64]{0} reverse(u), dimensions={0}
  ROOT next = (s32[], f32[64]{0}) tuple(n, r)
}

condition {
  t = (s32[], f32[64]{0}) parameter(0)
  i = s32[] get-tuple-element(t), index=0
  n = s32[] constant(5)
  ROOT c = pred[] compare(i, n), direction=LT
}

ENTRY e {
  u = f32[64]{0} parameter(0)
  z = s32[] constant(0)
  t = (s32[], f32[64]{0}) tuple(z, u)
  ROOT w = (s32[], f32[64]{0}) while(t), condition=condition, body=body
}
"""

BARE = """HloModule m

body {
  u = f32[64]{0} parameter(0)
  ROOT r = f32[64]{0} exponential(u)
}

condition {
  u = f32[64]{0} parameter(0)
  s = f32[] dot(u, u), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  ROOT c = pred[] is-finite(s)
}

ENTRY e {
  u = f32[64]{0} parameter(0)
  ROOT w = f32[64]{0} while(u), condition=condition, body=body
}
"""


ATTENTION = """HloModule m

most {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT m = f32[] maximum(a, b)
}

sum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}

ENTRY e {
  q = f32[256,256]{1,0} parameter(0)
  d = f32[256,256]{1,0} dot(q, q), lhs_contracting_dims={1}, rhs_contracting_dims={1}
  low = f32[] constant(-inf)
  t = f32[256]{0} reduce(d, low), dimensions={1}, to_apply=most
  tops = f32[256,256]{1,0} broadcast(t), dimensions={0}
  less = f32[256,256]{1,0} subtract(d, tops)
  p = f32[256,256]{1,0} exponential(less)
  zero = f32[] constant(0)
  total = f32[256]{0} reduce(p, zero), dimensions={1}, to_apply=sum
  totals = f32[256,256]{1,0} broadcast(total), dimensions={0}
  w = f32[256,256]{1,0} divide(p, totals)
  ROOT r = f32[256,256]{1,0} dot(w, q), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""


def kinds_of(text: str) -> list[str]:
    fused, _ = hlo_opt.fuse(hlo_opt.parse(text))
    return [kernel.symbol.partition("_while_")[0] for kernel in build_schedule(fused).kernels]


def test_the_least_loops_are_kernels_of_their_rungs():
    for text, least, is_counted in ((COUNTED, reduce_faults.LEAST_COUNTED, True), (BARE, 7, False)):
        assert sum(len(c.instructions) for c in hlo_opt.parse(text).computations) == least
        assert reduce_faults.counts(text) == is_counted and kinds_of(text) == ["block_loop"]


def test_the_least_attention_is_a_kernel_of_its_kind():
    instructions = sum(len(c.instructions) for c in hlo_opt.parse(ATTENTION).computations)
    assert instructions == reduce_faults.LEAST_ATTENTION and reduce_faults.attends(ATTENTION)
    fused, _ = hlo_opt.fuse(hlo_opt.parse(ATTENTION))
    assert ["attention" in kernel.symbol for kernel in build_schedule(fused).kernels] == [True]


@pytest.mark.parametrize(
    ("instructions", "text", "is_least"),
    [(15, COUNTED, True), (16, COUNTED, False), (15, BARE, False), (18, ATTENTION, True), (18, COUNTED, False)],
)
def test_more_than_ten_instructions_are_small_for_a_loop_that_counts_and_for_attention_only(
    instructions, text, is_least
):
    found = reduce_faults.Result("kernels", "", "", 0, True, instructions, text=text)
    assert found.is_least == found.is_small == is_least


def test_a_mistake_of_an_emitter_is_in_the_line_of_every_operation():
    assert reduce_faults.of_any_value("  float dot_28 = 0.0f;") == reduce_faults.of_any_value(
        "  float reduce_5_2 = 0.0f;"
    )
    assert reduce_faults.of_any_value("  place_2 = 0;") != reduce_faults.of_any_value("  dot_2 = 0;")
