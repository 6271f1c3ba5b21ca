"""Reducers that call a fusion or another computation."""

from __future__ import annotations

from typing import Any

import pytest

TEXT = """HloModule m

inner {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  c = bf16[] convert(a)
  d = bf16[] convert(b)
  s = bf16[] add(c, d)
  ROOT r = f32[] convert(s)
}

outer {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] CALL
}

ENTRY e {
  p = f32[5,70]{1,0} parameter(0)
  z = f32[] constant(0)
  ROOT r = f32[5]{0} reduce(p, z), dimensions={1}, to_apply=outer
}
"""


@pytest.mark.parametrize("call", ["fusion(a, b), kind=kLoop, calls=inner", "call(a, b), to_apply=inner"])
def test_what_a_reducer_calls_is_part_of_it(tool: Any, call: str) -> None:
    tool.agrees(TEXT.replace("CALL", call), whole=True)
