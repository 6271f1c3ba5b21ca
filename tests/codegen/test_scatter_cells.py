"""A scatter in the rounds of a loop that one block owns: threads make the updates by atomic operations, or one thread
makes all of them where their order would show."""

from __future__ import annotations

import pytest

import hlo_opt
from hlo_opt.passes import run
from hlo_opt.runtime.check.compare import check
from hlo_opt.runtime.schedule import build_schedule

LOOP = """HloModule m

combine {{
  old = {type}[] parameter(0)
  new = {type}[] parameter(1)
  {combined}
}}

body {{
  state = (s32[], {type}[{size}]) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  one = s32[] constant(1)
  next = s32[] add(i, one)
  x = {type}[{size}] get-tuple-element(state), index=1
  back = {type}[{size}] reverse(x), dimensions={{0}}
  both = {type}[{size}] add(x, back)
  k = s32[{count}] iota(), iota_dimension=0
  step = s32[{count}] broadcast(next), dimensions={{}}
  square = s32[{count}] multiply(k, k)
  moved = s32[{count}] add(square, step)
  size = s32[] constant({wrap})
  sizes = s32[{count}] broadcast(size), dimensions={{}}
  place = s32[{count}] remainder(moved, sizes)
  at = s32[{count},1] reshape(place)
  value = {type}[{count}] convert(moved)
  made = {type}[{size}] scatter(both, at, value), update_window_dims={{}}, inserted_window_dims={{0}},
    scatter_dims_to_operand_dims={{0}}, index_vector_dim=1, to_apply=combine
  ROOT out = (s32[], {type}[{size}]) tuple(next, made)
}}

condition {{
  state = (s32[], {type}[{size}]) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  bound = s32[] constant(7)
  ROOT less = pred[] compare(i, bound), direction=LT
}}

ENTRY e {{
  zero = s32[] constant(0)
  x = {type}[{size}] parameter(0)
  start = (s32[], {type}[{size}]) tuple(zero, x)
  loop = (s32[], {type}[{size}]) while(start), condition=condition, body=body
  ROOT r = {type}[{size}] get-tuple-element(loop), index=1
}}
"""
SUM = "ROOT s = {type}[] add(old, new)"
LAST = "ROOT s = {type}[] parameter(1)"


def text_of(type_: str, combined: str, size: int, count: int, wrap: int) -> str:
    text = LOOP.format(type=type_, combined=combined.format(type=type_), size=size, count=count, wrap=wrap)
    return text.replace(f"  new = {type_}[] parameter(1)\n", "") if "ROOT s = " + type_ + "[] param" in text else text


@pytest.mark.parametrize("wrap", [0, 9], ids=["inside", "some outside"])
@pytest.mark.parametrize(
    ("type_", "combined", "size", "count"),
    [
        *[("s32", SUM, *sizes) for sizes in ((96, 700), (700, 96), (33, 1))],
        ("u32", "ROOT s = {type}[] maximum(old, new)", 96, 700),
        ("f32", SUM, 96, 700),
        ("f32", LAST, 700, 96),
    ],
)
def test_a_scatter_is_a_cell_of_a_block(type_: str, combined: str, size: int, count: int, wrap: int) -> None:
    module = hlo_opt.parse(text_of(type_, combined, size, count, size + wrap))
    fused, _ = hlo_opt.fuse(module)
    assert [kernel.kind for kernel in build_schedule(fused).kernels] == ["block-loop"]
    report = check(module, fused, backend="host")
    assert not report.wrong, str(report)


def test_a_scatter_of_no_update_is_its_operand() -> None:
    text = text_of("u8", LAST, 96, 0, 96).replace("bound = s32[] constant(7)", "bound = s32[] constant(200)")
    module = hlo_opt.parse(text)
    fused = run(module, "default", simplify="never").module
    assert [kernel.kind for kernel in build_schedule(fused).kernels] == ["block-loop"]
    assert not check(module, fused, backend="host").wrong


def test_many_updates_in_order_stay_launches() -> None:
    """One thread makes them one after another; a kernel of its own finds the last of each element side by side."""
    module = hlo_opt.parse(text_of("f32", LAST, 96, 700, 96))
    fused, _ = hlo_opt.fuse(module)
    assert any("scatter" in kernel.kind for kernel in build_schedule(fused).kernels)
    assert not check(module, fused, backend="host").wrong


@pytest.mark.parametrize(
    ("type_", "combined", "size", "count"), [("s32", SUM, 96, 700), ("f32", SUM, 96, 700), ("f32", LAST, 700, 96)]
)
def test_threads_make_updates_without_a_race(type_: str, combined: str, size: int, count: int) -> None:
    module = hlo_opt.parse(text_of(type_, combined, size, count, size + 9))
    fused, _ = hlo_opt.fuse(module)
    assert not check(module, fused, backend="host", sanitize=True).wrong
