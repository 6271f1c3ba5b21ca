"""Computations made ready to run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hlo_opt import EvaluationError, evaluate, evaluate_devices, parse
from hlo_opt.evaluate import Interpreter, Occurrence
from hlo_opt.evaluate.inputs import draw
from hlo_opt.evaluate.program import compile_computation, direct, is_answered
from hlo_opt.ir import ELEMENT_TYPES, Attribute, Computation, Instruction, array
from hlo_opt.ops import spec_of

OPCODES = ("add", "subtract", "multiply", "and", "or", "xor", "maximum", "minimum")
DIRECTIONS = ("EQ", "NE", "LT", "LE", "GT", "GE")


def made(opcode: str, name: str, attributes: dict[str, Any] | None = None) -> Instruction:
    """An operation on two arrays of a type."""
    shape = array(ELEMENT_TYPES[name], 64)
    result = array(ELEMENT_TYPES["pred"], 64) if opcode == "compare" else shape
    operands = [Instruction(n, "parameter", shape) for n in "xy"]
    return Instruction("r", opcode, result, operands, attributes)


def agree(instruction: Instruction) -> None:
    quick, face = direct(instruction), spec_of(instruction).evaluate
    assert quick is not None and face is not None
    shape = instruction.operands[0].shape
    generator = np.random.default_rng(0)
    values = [draw(generator, shape), draw(generator, shape)]
    info = np.iinfo(shape.type.dtype) if shape.type.is_integer else None
    values[0][:3] = [info.max, info.min, 0] if info else [np.nan, np.inf, 0] if shape.type.is_float else [1, 0, 1]
    with np.errstate(all="ignore"):
        got, want = quick(Interpreter(), instruction, values), face(Interpreter(), instruction, values)
    assert got.dtype == want.dtype and np.array_equal(got, want, equal_nan=got.dtype.kind == "f")


@pytest.mark.parametrize("opcode", OPCODES)
@pytest.mark.parametrize("name", ["f32", "f64", "s8", "s32", "u32", "s64", "pred"])
def test_arithmetic(opcode: str, name: str) -> None:
    instruction = made(opcode, name)
    bitwise = opcode in ("and", "or", "xor")
    if (bitwise and name in ("f32", "f64")) or (not bitwise and name == "pred"):
        assert direct(instruction) is None
    else:
        agree(instruction)


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("name", ["f32", "u8", "s64"])
def test_comparisons(direction: str, name: str) -> None:
    agree(made("compare", name, {"direction": Attribute.of(direction)}))


def test_what_needs_more_is_left_to_the_table() -> None:
    assert direct(made("add", "bf16")) is None
    assert direct(made("add", "s4")) is None
    assert direct(made("divide", "f32")) is None
    attributes = {"direction": Attribute.of("LT"), "type": Attribute.of("TOTALORDER")}
    assert direct(made("compare", "f32", attributes)) is None


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
    text = (
        f"HloModule m\n{add if 'to_apply' in call else ''}ENTRY e "
        f"{{\n  p = f32[] parameter(0)\n  ROOT r = f32[] {call}\n}}\n"
    )
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
            "HloModule m\n\nENTRY e {\n  x = f32[] parameter(0)\n  unused = f32[] parameter(1)\n  dead = f32[] "
            "sine(x)\n"
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
