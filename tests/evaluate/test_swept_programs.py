"""Programs by number against XLA:CPU and through every preset. `python -m scripts.random_modules` does the same with
thousands."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np
import pytest

import hlo_opt
from hlo_opt.ir import Module
from hlo_opt.passes import preset_names
from hlo_opt.text import print_module
from scripts import drawn_effects, minimise, swept
from scripts.swept import Counts, drawn, fuses, judged, text_for_xla
from scripts.xla_judge import Judge

NUMBERS = range(12)


def test_a_number_gives_one_program() -> None:
    texts = [print_module(drawn(1, number)[0].module) for number in NUMBERS]
    assert texts == [print_module(drawn(1, number)[0].module) for number in NUMBERS]
    assert len(set(texts)) == len(texts)


def test_programs_hold_what_their_kind_says() -> None:
    counts = Counts()
    for number in range(120):
        program, kind = drawn(3, number)
        counts.kinds[kind] += 1
        if kind == "effects":
            assert drawn_effects.has_effects(program.module)
        swept.count_held(program, counts)
    assert counts.kinds["effects"] + counts.kinds["devices"] == counts.kinds["control flow"] == 40
    assert sum(counts.devices.values()) >= 20
    assert counts.effects["two effects that look alike"] and counts.effects["effect whose value is dead"]


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    pytest.importorskip("jaxlib")
    made = Judge()
    yield made
    made.stop()


def test_they_agree_with_xla_and_in_every_preset(judge: Judge) -> None:
    counts = Counts()
    for number in NUMBERS:
        program, kind = drawn(1, number)
        why = judged(program, preset_names(), judge, counts) if kind != "effects" else None
        assert why is None, f"{number}: {why}\n{print_module(program.module)}"
    assert counts.outcomes["compared with XLA:CPU"] >= 6


OF_CONSTANTS = """HloModule m

ENTRY e {
  k = f32[] constant(2.702694)
  x = f32[5,5,5] broadcast(k), dimensions={}
  center = f32[5] broadcast(k), dimensions={}
  one = f32[] constant(1)
  ones = f32[5] broadcast(one), dimensions={}
  all = f32[5,5,5] broadcast(one), dimensions={}
  norm = (f32[5,5,5], f32[5], f32[5]) batch-norm-training(x, ones, center), epsilon=0.5, feature_index=2
  near = f32[5,5,5] get-tuple-element(norm), index=0
  part = f32[1,1,5] slice(near), slice={[0:1], [0:1], [0:5]}
  mean = f32[5] reshape(part)
  grad = (f32[5,5,5], f32[5], f32[5]) batch-norm-grad(x, center, mean, ones, all), epsilon=0.5, feature_index=2
  ROOT scale = f32[5] get-tuple-element(grad), index=1
}
"""


@dataclasses.dataclass
class Closed:
    """A program without parameters."""

    module: Module

    def inputs(self, device: int = 0) -> list[np.ndarray]:
        return []


def test_what_hangs_on_the_rounding_of_constants_is_no_difference(judge: Judge) -> None:
    """The mean's last place is all that is left: no input can be moved to see that it does not matter."""
    assert judged(Closed(hlo_opt.parse(OF_CONSTANTS)), [], judge, Counts()) is None


TWO = """HloModule m, replica_count=2, num_partitions=2
add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}
ENTRY e {
  p = f32[4] parameter(0)
  q = u32[] partition-id()
  r = f32[4] all-reduce(p), replica_groups={{0,3},{1,2}}, channel_id=1, use_global_device_ids=true, to_apply=add
  s = f32[8] all-gather(p), replica_groups={{1,0}}, dimensions={0}
  t = f32[4] collective-permute(p), source_target_pairs={{0,1}}, channel_id=2
  ROOT o = (u32[], f32[4], f32[8], f32[4]) tuple(q, r, s, t)
}
"""


def test_xla_runs_several_devices(judge: Judge) -> None:
    module = hlo_opt.parse(TWO)
    inputs = [[np.arange(4, dtype=np.float32) + 10 * device] for device in range(4)]
    got = judge(text_for_xla(module), inputs)
    assert isinstance(got, list), got
    assert drawn_effects.same_bits(got, drawn_effects.run(module, inputs).outputs) is None
    assert [int(got[4 * device]) for device in range(4)] == [0, 1, 0, 1]


def test_a_fusion_that_was_there_does_not_count() -> None:
    text = """HloModule m
f {
  a = f32[4] parameter(0)
  b = f32[4] negate(a)
  ROOT c = f32[4] sine(b)
}
ENTRY e {
  p = f32[4] parameter(0)
  ROOT r = f32[4] fusion(p), kind=kLoop, calls=f
}
"""
    module = hlo_opt.parse(text)
    assert not fuses(module, module)
    plain = hlo_opt.parse(text.replace("fusion(p), kind=kLoop, calls=f", "call(p), to_apply=f"))
    assert fuses(plain, module) and not fuses(module, plain)


def test_what_fails_is_made_small() -> None:
    def fails(program: object) -> bool:
        module: Module = program.module  # type: ignore[attr-defined]
        hlo_opt.verify(hlo_opt.parse(print_module(module)))
        return any(o.opcode == "dynamic-update-slice" for o in module.entry.root.operands)

    program = next(
        p for p, _ in (drawn(5, number) for number in range(300)) if fails(p) and len(p.module.entry.instructions) > 30
    )
    small = minimise.smallest(program, fails, 5.0)
    sizes = [sum(len(c.instructions) for c in p.module.computations) for p in (small, program)]
    assert fails(small) and sizes[0] <= 15
    hlo_opt.evaluate(small.module, small.inputs())
