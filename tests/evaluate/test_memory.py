"""What a run will hold is known before it starts."""

from __future__ import annotations

import numpy as np
import pytest

from hlo_opt import EvaluationError, evaluate, evaluate_devices, parse
from hlo_opt.evaluate.memory import check_memory, default_limit, sized
from hlo_opt.ir import Module

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
    with pytest.raises(
        EvaluationError, match=r"iota big: the run would hold .* MiB .*; the limit is 977 KiB"
    ) as caught:
        evaluate(parse(LOOP), [[0.0] * 1000], memory_limit=1_000_000, watch=lambda event: seen.append("ran"))
    assert caught.value.code == "HLO402" and not seen
    assert evaluate(parse(LOOP), [[0.0] * 1000], memory_limit=20_000_000)[0][2] == 6.0


def test_the_default_is_a_part_of_the_machine() -> None:
    limit = default_limit()
    assert limit is None or limit > 1 << 28


def broadcasting(size: int, header: str = "") -> Module:
    text = f"HloModule m{header}\n\nENTRY e {{\n  x = f32[{size}]{{0}} parameter(0)\n"
    return parse(f"{text}  y = f32[{size}]{{0}} negate(x)\n  ROOT z = f32[1]{{0}} slice(y), slice={{[0:1]}}\n}}\n")


def test_devices_multiply_what_a_run_holds() -> None:
    module = broadcasting(1000, ", replica_count=3")
    inputs = [[np.zeros(1000, np.float32)]]
    with pytest.raises(
        EvaluationError, match=r"slice z: the run would hold 15.6 KiB \(16012 bytes\) on 3 devices"
    ) as caught:
        evaluate_devices(module, inputs, memory_limit=16_011)  # one input for all
    assert caught.value.line == 6
    with pytest.raises(EvaluationError, match=r"\(24012 bytes\) on 3 devices"):
        evaluate_devices(module, inputs * 3, memory_limit=24_011)
    assert len(evaluate_devices(module, inputs * 3, memory_limit=24_012)) == 3


def test_what_is_far_too_large_is_refused_at_once() -> None:
    module = broadcasting(1 << 50)
    with pytest.raises(EvaluationError, match=r"hold 8 PiB .* here, 4 PiB .* of them inputs; the limit is"):
        check_memory(module, 1 << 40)
    check_memory(module, None)


def test_drawing_inputs_takes_more_than_they_do() -> None:
    module = broadcasting(1000)
    check_memory(module, 12_000)
    with pytest.raises(EvaluationError, match=r"parameter x: drawing the inputs would take 19.5 KiB \(20000 bytes\)"):
        check_memory(module, 12_000, drawn=True)
    check_memory(module, 20_000, drawn=True)


def test_sizes_for_people() -> None:
    assert sized(1000) == "1000 bytes"
    assert sized(3 << 30) == "3 GiB (3221225472 bytes)"
