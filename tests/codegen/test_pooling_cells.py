"""A `select-and-scatter`, the gradient of max pooling, in the rounds of a loop that one block or all blocks own."""

from __future__ import annotations

import pytest

import hlo_opt
from hlo_opt.runtime.check.compare import check
from hlo_opt.runtime.schedule import build_schedule

LOOP = """HloModule pooled

first {{
  a = {type}[] parameter(0)
  b = {type}[] parameter(1)
  ROOT first = pred[] compare(a, b), direction=GE
}}

sum {{
  a = {type}[] parameter(0)
  b = {type}[] parameter(1)
  ROOT sum = {type}[] add(a, b)
}}

more {{
  state = (s32[], {type}[{rows},{columns}]) parameter(0)
  n = s32[] get-tuple-element(state), index=0
  four = s32[] constant(4)
  ROOT less = pred[] compare(n, four), direction=LT
}}

round {{
  state = (s32[], {type}[{rows},{columns}]) parameter(0)
  n = s32[] get-tuple-element(state), index=0
  x = {type}[{rows},{columns}] get-tuple-element(state), index=1
  one = s32[] constant(1)
  next = s32[] add(n, one)
  three = {type}[] constant(3)
  threes = {type}[{over},{along}] broadcast(three), dimensions={{}}
  zero = {type}[] constant(0)
  spread = {type}[{rows},{columns}] select-and-scatter(x, threes, zero), window={{size={size}x{size} stride={stride}x{stride}}}, select=first, scatter=sum
  y = {type}[{rows},{columns}] subtract(x, spread)
  ROOT out = (s32[], {type}[{rows},{columns}]) tuple(next, y)
}}

ENTRY e {{
  x = {type}[{rows},{columns}] parameter(0)
  zero = s32[] constant(0)
  start = (s32[], {type}[{rows},{columns}]) tuple(zero, x)
  loop = (s32[], {type}[{rows},{columns}]) while(start), condition=more, body=round
  ROOT y = {type}[{rows},{columns}] get-tuple-element(loop), index=1
}}
"""


def module_of(type_: str, rows: int, columns: int, size: int, stride: int) -> hlo_opt.Module:
    over, along = ((n - size) // stride + 1 for n in (rows, columns))
    return hlo_opt.parse(
        LOOP.format(type=type_, rows=rows, columns=columns, over=over, along=along, size=size, stride=stride)
    )


@pytest.mark.parametrize(
    ("kind", "type_", "rows", "columns", "size", "stride"),
    [
        ("block-loop", "f32", 24, 20, 3, 1),
        ("block-loop", "f32", 24, 20, 2, 2),
        ("block-loop", "bf16", 24, 20, 3, 2),
        ("block-loop", "s32", 6, 5, 2, 2),
        ("grid-loop", "f32", 600, 512, 2, 2),
    ],
)
def test_the_gradient_of_pooling_is_a_cell(
    kind: str, type_: str, rows: int, columns: int, size: int, stride: int
) -> None:
    module = module_of(type_, rows, columns, size, stride)
    fused, _ = hlo_opt.fuse(module)
    assert [kernel.kind for kernel in build_schedule(fused).kernels] == [kind]
    report = check(module, fused, backend="host")
    assert not report.wrong, str(report)


def test_threads_compute_its_elements_without_a_race() -> None:
    module = module_of("f32", 12, 10, 3, 1)
    fused, _ = hlo_opt.fuse(module)
    assert not check(module, fused, backend="host", sanitize=True).wrong
