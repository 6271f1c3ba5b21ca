"""What loops do not need: what goes, what stays, and that the values stay."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

import hlo_opt
from hlo_opt.evaluate.inputs import module_inputs
from tests.loops import loop
from tests.random_loops import random_loop

PASSES = "while-loop-simplifier,dce"


def simpler(text: str, passes: str = PASSES) -> hlo_opt.Module:
    """The module after the pass, with the same values as before. The pass finds nothing more to do."""
    module = hlo_opt.parse(text)
    made, _ = hlo_opt.fuse(module, passes=passes)
    hlo_opt.verify(made)
    given = [np.rint(a * 4).astype(a.dtype) for a in module_inputs(module, seed=3)]
    for got, want in zip(hlo_opt.evaluate(made, given), hlo_opt.evaluate(module, given), strict=True):
        np.testing.assert_array_equal(got, want)
    again, _ = hlo_opt.fuse(made, passes=passes)
    assert [len(i.shape.elements or ()) for i in whiles(again)] == [len(i.shape.elements or ()) for i in whiles(made)]
    return made


def whiles(module: hlo_opt.Module) -> list[hlo_opt.ir.Instruction]:
    return [i for c in module.computations for i in c.instructions if i.opcode == "while"]


def carried(module: hlo_opt.Module) -> list[str]:
    """The shapes that the one loop carries."""
    (found,) = whiles(module)
    return [str(shape.without_layout()) for shape in found.shape.elements or ()]


HALVED = ["h = f32[] constant(0.5)", "hs = f32[64] broadcast(h), dimensions={}", "y = f32[64] multiply(x1, hs)"]


def test_what_nobody_reads_goes() -> None:
    text = loop(["f32[64]", "f32[8]", "f32[9]"], [*HALVED, "z = f32[8] add(x2, x2)"], ["y", "z", "x3"], read=(1,))
    assert carried(simpler(text)) == ["s32[]", "f32[64]"]


def test_what_is_read_by_what_is_read_stays() -> None:
    text = loop(["f32[64]", "f32[64]"], ["z = f32[64] add(x2, x2)", "y = f32[64] add(x1, x2)"], ["y", "z"], read=(1,))
    assert carried(simpler(text)) == ["s32[]", "f32[64]", "f32[64]"]


def test_what_reads_only_itself_and_what_is_dead_goes() -> None:
    ends = ["a = f32[8] add(x2, x3)", "b = f32[8] multiply(x3, x2)"]
    text = loop(["f32[64]", "f32[8]", "f32[8]"], [*HALVED, *ends], ["y", "a", "b"], read=(1,))
    assert carried(simpler(text)) == ["s32[]", "f32[64]"]


def test_what_no_round_changes_is_read_beside_the_loop() -> None:
    text = loop(["f32[64]", "f32[64]"], ["y = f32[64] add(x1, x2)"], ["y", "x2"], read=(1, 2))
    made = simpler(text)
    assert carried(made) == ["s32[]", "f32[64]", "f32[64]"]
    assert made.entry.root.operands[1].opcode == "parameter"


def test_numbers_that_no_round_changes_are_written_in_the_rounds() -> None:
    lines = ["hs = f32[64] broadcast(x2), dimensions={}", "y = f32[64] multiply(x1, hs)"]
    text = loop(["f32[64]", "f32[]"], lines, ["y", "x2"], given=["g2 = f32[] constant(0.5)"], read=(1,))
    assert carried(simpler(text)) == ["s32[]", "f32[64]"]


def test_copies_of_a_value_are_one() -> None:
    lines = ["y = f32[64] sine(x1)", "z = f32[64] sine(x2)", "v = f32[64] add(y, z)", "u = f32[64] add(x3, v)"]
    text = loop(["f32[64]", "f32[64]", "f32[64]"], lines, ["y", "z", "u"]).replace("p2, p3)", "p1, p3)")
    assert "tuple(z, p1, p1, p3)" in text
    assert carried(simpler(text)) == ["s32[]", "f32[64]", "f32[64]"]


def test_values_that_start_alike_only_are_two() -> None:
    text = loop(["f32[64]", "f32[64]"], ["y = f32[64] sine(x1)", "z = f32[64] cosine(x2)"], ["y", "z"])
    text = text.replace("tuple(z, p1, p2)", "tuple(z, p1, p1)")
    assert carried(simpler(text)) == ["s32[]", "f32[64]", "f32[64]"]


@pytest.mark.parametrize("rounds", [0, 1])
def test_loops_of_no_round_or_one_are_none(rounds: int) -> None:
    made = simpler(loop(["f32[64]", "f32[8]"], [*HALVED, "z = f32[8] add(x2, x2)"], ["y", "z"], rounds=rounds))
    assert whiles(made) == []
    assert [i.opcode for i in made.entry.instructions].count("multiply") == rounds


NESTED = """HloModule m

body {
  s = (s32[], (f32[8], (f32[4], f32[])), f32[8]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  one = s32[] constant(1)
  n = s32[] add(i, one)
  pair = (f32[8], (f32[4], f32[])) get-tuple-element(s), index=1
  x = f32[8] get-tuple-element(pair), index=0
  rest = (f32[4], f32[]) get-tuple-element(pair), index=1
  a = f32[] get-tuple-element(rest), index=1
  b = f32[8] broadcast(a), dimensions={}
  y = f32[8] add(x, b)
  ends = (f32[8], (f32[4], f32[])) tuple(y, rest)
  k = f32[8] get-tuple-element(s), index=2
  ROOT t = (s32[], (f32[8], (f32[4], f32[])), f32[8]) tuple(n, ends, k)
}

condition {
  s = (s32[], (f32[8], (f32[4], f32[])), f32[8]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  limit = s32[] constant(3)
  ROOT c = pred[] compare(i, limit), direction=LT
}

ENTRY e {
  p = f32[8] parameter(0)
  q = f32[4] parameter(1)
  a = f32[] parameter(2)
  zero = s32[] constant(0)
  rest = (f32[4], f32[]) tuple(q, a)
  pair = (f32[8], (f32[4], f32[])) tuple(p, rest)
  start = (s32[], (f32[8], (f32[4], f32[])), f32[8]) tuple(zero, pair, p)
  w = (s32[], (f32[8], (f32[4], f32[])), f32[8]) while(start), condition=condition, body=body
  READ
}
"""
READ = {
    "an array": "v = (f32[8], (f32[4], f32[])) get-tuple-element(w), index=1\n  ROOT r = f32[8] get-tuple-element(v), "
    "index=0",
    "a tuple": "ROOT v = (f32[8], (f32[4], f32[])) get-tuple-element(w), index=1",
    "all": "u = s32[] get-tuple-element(w), index=0\n  ROOT v = (s32[], (s32[], (f32[8], (f32[4], f32[])), f32[8])) "
    "tuple(u, w)",
}


@pytest.mark.parametrize("name", READ)
def test_tuples_within_tuples_are_arrays(name: str) -> None:
    assert carried(simpler(NESTED.replace("READ", READ[name]))) == ["s32[]", "f32[8]", "f32[]"]


def test_a_tuple_that_is_a_parameter_is_taken_apart() -> None:
    text = NESTED.replace("READ", READ["an array"]).replace(
        "rest = (f32[4], f32[]) tuple(q, a)", "rest = (f32[4], f32[]) parameter(3)"
    )
    assert carried(simpler(text)) == ["s32[]", "f32[8]", "f32[]"]


def test_a_stated_count_stays_and_stated_numbers_of_elements_go() -> None:
    config = 'backend_config={"known_trip_count":{"n":"3"},"known_induction_variable":{"tuple_index":"0"}}'
    text = NESTED.replace("READ", READ["an array"]).replace("body=body", f"body=body, {config}")
    (found,) = whiles(simpler(text))
    assert found.attributes["backend_config"].text == '{"known_trip_count":{"n":"3"}}'


LEFT = {
    "nothing to do": loop(["f32[64]"], HALVED, ["y"]),
    "side effects": loop(
        ["f32[64]", "f32[8]"],
        [*HALVED, 'z = f32[8] custom-call(x2), custom_call_target="f", custom_call_has_side_effect=true'],
        ["y", "z"],
        read=(1,),
    ),
    "what waits": loop(["f32[64]", "f32[8]"], [*HALVED, "z = f32[8] add(x2, x2), "
                                                        "control-predecessors={y}"], ["y", "z"], read=(1,)),
}  # fmt: skip


@pytest.mark.parametrize("name", LEFT)
def test_what_stays_as_it_is(name: str) -> None:
    made = [hlo_opt.fuse(hlo_opt.parse(LEFT[name]), passes=p, simplify="never")[0] for p in ("cse", f"cse,{PASSES}")]
    assert carried(made[0]) == carried(made[1])
    assert [i.opcode for i in made[0].entry.instructions] == [i.opcode for i in made[1].entry.instructions]


@pytest.mark.parametrize("seed", range(40))
def test_random_loops_keep_their_values(seed: int) -> None:
    draw = Random(seed)
    text = random_loop(draw)
    root = text.rindex("ROOT r = (")
    shapes = text[root:].split("(")[1].split(") tuple")[0].removesuffix("]").split("], ")
    names = text[root:].split("tuple(")[1].split(")")[0].split(", ")
    kept = sorted(draw.sample(range(len(names)), k=draw.randint(1, len(names))))
    whole = ", ".join(f"{shapes[k]}]" for k in kept)
    ends = f"ROOT r = ({whole}) tuple({', '.join(names[k] for k in kept)})\n}}\n"
    simpler(text[:root] + ends)
