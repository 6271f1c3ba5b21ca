"""Independent launches side by side: the longest chain, unless what all launches share is busy for longer."""

from __future__ import annotations

from dataclasses import replace

import pytest

import hlo_opt
from hlo_opt.fusion.overlap import STREAMS, overlapped_us
from hlo_opt.fusion.summary import executions, module_summary
from hlo_opt.plans.price import FREE
from tests.small_modules import H100

TEXT = """HloModule m

body {
  s = (s32[], f32[8]{0}) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  one = s32[] constant(1)
  next = s32[] add(i, one)
  x = f32[8]{0} get-tuple-element(s), index=1
  y = f32[8]{0} negate(x)
  ROOT t = (s32[], f32[8]{0}) tuple(next, y)
}

condition {
  s = (s32[], f32[8]{0}) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(5)
  ROOT less = pred[] compare(i, n), direction=LT
}

ENTRY e {
  p = f32[8]{0} parameter(0)
  zero = s32[] constant(0)
  a = f32[8]{0} negate(p)
  b = f32[8]{0} tanh(a)
  c = f32[8]{0} exponential(p)
  start = (s32[], f32[8]{0}) tuple(zero, p)
  loop = (s32[], f32[8]{0}) while(start), condition=condition, body=body
  ROOT t = (f32[8]{0}, f32[8]{0}, (s32[], f32[8]{0})) tuple(b, c, loop)
}
"""
ALONE = {"a": 20.0, "b": 30.0, "c": 15.0, "next": 1.0, "y": 6.0, "less": 3.0}


@pytest.mark.parametrize(
    ("alone", "memory", "expected"),
    [
        (ALONE, 0.0, 50.0),  # a and b wait for each other; the loop takes 5 * (6 + 3)
        ({**ALONE, "y": 9.0}, 0.0, 60.0),  # now the loop takes longest
        (ALONE, 4.0, (3 + 5 * 3) * 4.0),  # memory is busy for all launches
        (dict.fromkeys(ALONE, 0.0) | {"c": 15.0}, 0.0, 15.0),
    ],
)
def test_the_longest_chain_or_what_is_shared(alone: dict[str, float], memory: float, expected: float) -> None:
    module = hlo_opt.parse(TEXT)
    launched = [i for c in module.computations for i in c.instructions if i.name in alone]
    prices = {i: replace(FREE, us=alone[i.name], memory=memory) for i in launched}
    times, _ = executions(module)
    assert overlapped_us(module, prices, times, lambda loop: 5) == expected


def test_more_launches_than_streams_wait() -> None:
    many = 3 * STREAMS
    lines = "".join(f"  a{n} = f32[8]{{0}} negate(p)\n" for n in range(many))
    result = ", ".join(f"a{n}" for n in range(many))
    shapes = ", ".join(["f32[8]{0}"] * many)
    entry = f"  p = f32[8]{{0}} parameter(0)\n{lines}  ROOT t = ({shapes}) tuple({result})\n"
    summary = module_summary(hlo_opt.parse(f"HloModule m\n\nENTRY e {{\n{entry}}}\n"), H100)
    assert summary.overlapped_us == pytest.approx(summary.est_us / STREAMS) and summary.overlaps
