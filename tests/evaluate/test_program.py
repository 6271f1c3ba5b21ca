"""Computations made ready to run."""

from __future__ import annotations

from hlo_opt import parse
from hlo_opt.evaluate.program import compile_computation
from hlo_opt.ir import Computation

LOOP = """HloModule m

c {
  s = (f32[2], f32[2], pred[]) parameter(0)
  ROOT p = pred[] get-tuple-element(s), index=2
}

b {
  s = (f32[2], f32[2], pred[]) parameter(0)
  x = f32[2] get-tuple-element(s), index=0
  y = f32[2] get-tuple-element(s), index=1
  p = pred[] get-tuple-element(s), index=2
  z = f32[2] add(x, y)
  ROOT t = (f32[2], f32[2], pred[]) tuple(z, y, p)
}

ENTRY e {
  x = f32[2] parameter(0)
  y = f32[2] parameter(1)
  p = pred[] parameter(2)
  t = (f32[2], f32[2], pred[]) tuple(x, y, p)
  w = (f32[2], f32[2], pred[]) while(t), condition=c, body=b
  u = (f32[2], f32[2], pred[]) while(w), condition=c, body=b
  ROOT r = f32[2] get-tuple-element(u), index=INDEX
}
"""


def entry(text: str) -> Computation:
    return parse(text).entry


def test_dead_values_are_left_out_and_used_ones_freed() -> None:
    program = compile_computation(
        entry(
            "HloModule m\n\nENTRY e {\n  x = f32[] parameter(0)\n  unused = f32[] parameter(1)\n  dead = f32[] sine(x)\n"
            "  a = f32[] cosine(x)\n  b = f32[] add(a, a)\n  ROOT c = f32[] add(b, x)\n}\n"
        )
    )
    assert [s.instruction.name for s in program.steps] == ["a", "b", "c"]
    x, a, b = program.parameters[0], program.steps[0].slot, program.steps[1].slot
    assert program.parameters[1] == -1
    assert [set(s.frees) for s in program.steps] == [set(), {a}, {b, x}]
    assert program.root == program.steps[-1].slot


def test_a_loop_runs_also_where_it_only_hands_on_what_is_used() -> None:
    for index in "01":
        steps = [s.instruction.name for s in compile_computation(entry(LOOP.replace("INDEX", index))).steps]
        assert steps == ["t", "w", "u", "r"]


def test_whole_programs_keep_what_could_be_looked_through() -> None:
    steps = [s.instruction.name for s in compile_computation(entry(LOOP.replace("INDEX", "1")), whole=True).steps]
    assert steps == ["t", "w", "u", "r"]
