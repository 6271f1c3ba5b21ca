"""What comparisons are tested with: modules, and reports of outputs."""

from __future__ import annotations

from typing import Any

from hlo_opt.runtime.differences import OutputReport


def output_report(number: int = 0, **changes: Any) -> OutputReport:
    """The report of an output f32[4] that is equal on both sides, but for `changes`."""
    equal: dict[str, Any] = {
        "output": number,
        "type": "float32",
        "dimensions": (4,),
        "max_ulp": 0.0,
        "max_error": 0.0,
        "max_relative": 0.0,
        "share": 0.0,
        "rounded": 0,
        "differing": 0,
        "set_aside": 0,
        "loose": 0.0,
        "weak": None,
        "first": None,
    }
    return OutputReport(**equal | changes)


LOOP = """HloModule m

round {
  s = (s32[], f32[8]{0}) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  one = s32[] constant(1)
  j = s32[] add(i, one)
  x = f32[8]{0} get-tuple-element(s), index=1
  y = f32[8]{0} tanh(x)
  ROOT t = (s32[], f32[8]{0}) tuple(j, y)
}

going {
  s = (s32[], f32[8]{0}) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(9)
  ROOT l = pred[] compare(i, n), direction=LT
}

ENTRY e {
  p = f32[8]{0} parameter(0)
  z = s32[] constant(0)
  v = f32[8]{0} exponential(p)
  s = (s32[], f32[8]{0}) tuple(z, v)
  w = (s32[], f32[8]{0}) while(s), condition=going, body=round
  ROOT r = f32[8]{0} get-tuple-element(w), index=1
}
"""
