"""Whose memory each buffer is, and how long it is needed."""

import hlo_opt
from hlo_opt.runtime.schedule import build_schedule
from hlo_opt.runtime.schedule.lifetimes import Lifetimes, lifetimes
from hlo_opt.runtime.schedule.ops import Free, Loop, Routine, made_by


def entry_of(text: str) -> tuple[Routine, Lifetimes]:
    entry = build_schedule(hlo_opt.parse(text)).entry
    return entry, lifetimes(entry.ops, entry.shapes)


def names(routine: Routine) -> dict[str, int]:
    return {op.instruction.name: b for op in routine.ops for b in made_by(op)}


VIEWS = """HloModule m
ENTRY e {
  p = f32[6]{0} parameter(0)
  a = f32[6]{0} negate(p)
  v = f32[2,3]{1,0} bitcast(a)
  w = f32[3,2]{1,0} bitcast(v)
  b = f32[6]{0} abs(a)
  x = f32[2,3]{1,0} bitcast(p)
  c = f32[3,2]{1,0} negate(w)
  d = f32[2,3]{1,0} negate(x)
  ROOT r = (f32[6]{0}, f32[3,2]{1,0}, f32[2,3]{1,0}) tuple(b, c, d)
}
"""


def test_a_memory_is_needed_under_any_of_its_names() -> None:
    entry, found = entry_of(VIEWS)
    b = names(entry)
    assert [found.root[b[n]] for n in "avwbx"] == [b["a"], b["a"], b["a"], b["b"], entry.inputs[0]]
    assert [buffer for made in found.made for buffer in made] == [b["a"], b["b"], b["c"], b["d"]]
    (last,) = [position for position, dead in enumerate(found.dead) if dead]
    assert found.dead[last] == (b["a"],), "the parameter is the caller's, and results stay"
    assert isinstance(entry.ops[last], Free) and entry.ops[last].instruction.name == "c"


LOOP = """HloModule m
body {
  s = (s32[], f32[9]{0}, f32[9]{0}) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  v = f32[9]{0} get-tuple-element(s), index=1
  w = f32[9]{0} get-tuple-element(s), index=2
  one = s32[] constant(1)
  j = s32[] add(i, one)
  x = f32[9]{0} add(v, w)
  ROOT t = (s32[], f32[9]{0}, f32[9]{0}) tuple(j, x, w)
}
condition {
  s = (s32[], f32[9]{0}, f32[9]{0}) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(4)
  ROOT l = pred[] compare(i, n), direction=LT
}
ENTRY e {
  p = f32[9]{0} parameter(0)
  z = s32[] constant(0)
  q = f32[9]{0} negate(p)
  t = (s32[], f32[9]{0}, f32[9]{0}) tuple(z, q, p)
  ROOT r = (s32[], f32[9]{0}, f32[9]{0}) while(t), condition=condition, body=body
}
"""


def test_a_loop_shares_what_it_owns_and_what_it_leaves_alone() -> None:
    entry, found = entry_of(LOOP)
    (loop,) = [op for op in entry.ops if isinstance(op, Loop)]
    assert (loop.unchanged, loop.owned, loop.updated, loop.copied) == ((2,), (1,), (), ())
    assert [found.root[b] for b in loop.outputs] == [loop.outputs[0], loop.inputs[1], loop.inputs[2]]
    apart = lifetimes(entry.ops, entry.shapes, shares_unchanged=False)
    assert [apart.root[b] for b in loop.outputs] == [loop.outputs[0], loop.inputs[1], loop.outputs[2]]
    assert apart.made[entry.ops.index(loop)] == (loop.outputs[0], loop.outputs[2])
