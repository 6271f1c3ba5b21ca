"""What a run will hold is known before it starts."""

from __future__ import annotations

import pytest

from hlo_opt import EvaluationError, evaluate, parse
from hlo_opt.evaluate.memory import default_limit

LOOP = """HloModule m
body {
  s = (s32[], f32[1000]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  v = f32[1000] get-tuple-element(s), index=1
  big = f32[1000000] iota(), iota_dimension=0
  part = f32[1000] slice(big), slice={[0:1000]}
  w = f32[1000] add(v, part)
  one = s32[] constant(1)
  j = s32[] add(i, one)
  ROOT t = (s32[], f32[1000]) tuple(j, w)
}
condition {
  s = (s32[], f32[1000]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  three = s32[] constant(3)
  ROOT l = pred[] compare(i, three), direction=LT
}
ENTRY e {
  v = f32[1000] parameter(0)
  z = s32[] constant(0)
  t = (s32[], f32[1000]) tuple(z, v)
  w = (s32[], f32[1000]) while(t), condition=condition, body=body
  ROOT r = f32[1000] get-tuple-element(w), index=1
}
"""


def test_a_loop_body_counts_before_the_loop_runs() -> None:
    seen: list[str] = []
    with pytest.raises(EvaluationError, match=r"iota big: .* bytes would be alive, the limit is 1000000") as caught:
        evaluate(
            parse(LOOP), [[0.0] * 1000], memory_limit=1_000_000, observe=lambda instruction, value: seen.append("ran")
        )
    assert caught.value.code == "HLO402" and not seen
    assert evaluate(parse(LOOP), [[0.0] * 1000], memory_limit=5_000_000)[0][2] == 6.0


def test_the_default_is_a_part_of_the_machine() -> None:
    limit = default_limit()
    assert limit is None or limit > 1 << 28
