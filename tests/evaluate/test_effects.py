"""Somebody who answers for random draws, transfers and unknown custom calls is told of each occurrence, dead ones too."""

from __future__ import annotations

import numpy as np
import pytest

from hlo_opt import EvaluationError, evaluate, evaluate_devices, parse
from hlo_opt.evaluate import Occurrence
from hlo_opt.evaluate.effects import is_answered

TEXT = """HloModule m{header}
draw {{
  low = f32[] parameter(0)
  high = f32[] constant(1)
  ROOT r = f32[] rng(low, high), distribution=rng_uniform
}}
body {{
  s = (s32[], f32[]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  v = f32[] get-tuple-element(s), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  d = f32[] call(v), to_apply=draw
  again = f32[] call(v), to_apply=draw
  w = f32[] add(v, d)
  ROOT t = (s32[], f32[]) tuple(j, w)
}}
condition {{
  s = (s32[], f32[]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  two = s32[] constant(2)
  ROOT l = pred[] compare(i, two), direction=LT
}}
ENTRY e {{
  p = f32[] parameter(0)
  start = token[] after-all()
  in = (f32[], token[]) infeed(start)
  from = f32[] get-tuple-element(in), index=0
  then = token[] get-tuple-element(in), index=1
  out = token[] outfeed(p, then), outfeed_shape=f32[]
  known = f32[] custom-call(p), custom_call_target="Sharding"
  zero = s32[] constant(0)
  first = (s32[], f32[]) tuple(zero, known)
  loop = (s32[], f32[]) while(first), condition=condition, body=body
  ROOT result = f32[] get-tuple-element(loop), index=1
}}
"""


class World:
    """Answers 10, 20, .. to draws and remembers what it was told."""

    def __init__(self) -> None:
        self.told: list[Occurrence] = []

    def __call__(self, occurrence: Occurrence) -> object:
        self.told.append(occurrence)
        drawn = np.float32(10 * sum(o.instruction.opcode == "rng" for o in self.told))
        return {"rng": drawn, "infeed": (np.float32(5), ()), "outfeed": ()}[occurrence.instruction.opcode]


def test_each_occurrence_is_answered() -> None:
    world = World()
    assert evaluate(parse(TEXT.format(header="")), [np.float32(1)], effects=world) == [1 + 10 + 30]
    said = [
        (
            o.instruction.name,
            [c.name for c in o.callers],
            o.iterations,
            [float(v) for v in o.operands if not isinstance(v, tuple)],
        )
        for o in world.told
    ]
    assert said == [
        ("in", [], (), []),
        ("out", [], (), [1.0]),
        ("r", ["loop", "d"], (0,), [1.0, 1.0]),
        ("r", ["loop", "again"], (0,), [1.0, 1.0]),
        ("r", ["loop", "d"], (1,), [11.0, 1.0]),
        ("r", ["loop", "again"], (1,), [11.0, 1.0]),
    ]


def test_each_device_has_its_own() -> None:
    world = World()
    evaluate_devices(parse(TEXT.format(header=", replica_count=2")), [[np.float32(1)]], effects=world)
    assert [o.device for o in world.told] == [0] * 6 + [1] * 6


def test_nobody_answers() -> None:
    with pytest.raises(EvaluationError):
        evaluate(parse(TEXT.format(header="")), [np.float32(1)])


@pytest.mark.parametrize(
    ("call", "answered"),
    [
        ('custom-call(p), custom_call_target="nobody.knows"', True),
        ('custom-call(p), custom_call_target="Sharding", custom_call_has_side_effect=true', True),
        ('custom-call(p), custom_call_target="Sharding"', False),
        ("all-reduce(p), to_apply=add", False),
        ("negate(p)", False),
    ],
)
def test_who_is_answered(call: str, answered: bool) -> None:
    add = "add {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT c = f32[] add(a, b)\n}\n"
    text = f"HloModule m\n{add if 'to_apply' in call else ''}ENTRY e {{\n  p = f32[] parameter(0)\n  ROOT r = f32[] {call}\n}}\n"
    assert is_answered(parse(text).entry.root) is answered


def test_a_reducer_that_draws_runs_element_by_element() -> None:
    text = """HloModule m
draw {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] rng(a, b), distribution=rng_uniform
}
ENTRY e {
  p = f32[3] parameter(0)
  ROOT m = f32[3] map(p, p), dimensions={0}, to_apply=draw
}
"""
    world = World()
    assert evaluate(parse(text), [np.float32([1, 2, 3])], effects=world)[0].tolist() == [10, 20, 30]
    assert [float(o.operands[0]) for o in world.told] == [1, 2, 3]


def test_what_is_started_in_short_is_answered_too() -> None:
    module = parse("""HloModule m

ENTRY e {
  low = f32[] constant(0)
  high = f32[] constant(1)
  s = ((f32[], f32[]), f32[4]) rng-start(low, high), distribution=rng_uniform
  d = f32[4] rng-done(s)
  a = f32[] negate-start(high)
  ROOT r = f32[4] negate(d)
}
""")
    told: list[str] = []

    def world(occurrence: Occurrence) -> object:
        told.append(occurrence.instruction.name)
        return tuple(occurrence.operands), np.full(4, 3, np.float32)

    (out,) = evaluate(module, [], effects=world)
    assert told == ["s"] and out.tolist() == [-3] * 4
