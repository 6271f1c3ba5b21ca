"""Invariants of loops: which are made before the loop, and that the values stay."""

from __future__ import annotations

import numpy as np
import pytest

import hlo_opt
from hlo_opt.evaluate.inputs import module_inputs
from hlo_opt.fusion.proof import prove_same_graph
from hlo_opt.ir import Module
from hlo_opt.ops.sets import looped

PASSES = "while-loop-invariant-code-motion,dce"
GRAM = "g = f32[128,128] dot(w, v), lhs_contracting_dims={1}, rhs_contracting_dims={1}"
ROWS = ("m = f32[128] reduce(w, zero), dimensions={1}, to_apply=add", "h = f32[128,128] broadcast(m), dimensions={0}")
SCALED = "g = f32[128,128] multiply(x, h)"
Y = "y = f32[128,128] add(g, x)"
STATE = "(s32[], f32[128,128], f32[128,128], f32[128,128])"
TAKEN = f"""  s = {STATE} parameter(0)
  n = s32[] get-tuple-element(s), index=0
  x = f32[128,128] get-tuple-element(s), index=1
  w = f32[128,128] get-tuple-element(s), index=2
  v = f32[128,128] get-tuple-element(s), index=3
  one = s32[] constant(1)"""
X = "ROOT o = f32[128,128] get-tuple-element(l), index=1"


def product(name: str) -> str:
    """`y` of `x` and another value."""
    return f"y = f32[128,128] dot(x, {name}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}"


def loop(*lines: str, rounds: int = 3, end: str = X, v: str = "v") -> str:
    """A loop whose rounds replace `x` by `y`, which `lines` make, and keep `w`; and `v`, unless another value is
    given."""
    body = "\n".join(lines)
    return f"""HloModule m
add {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}}
body {{
{TAKEN}
  zero = f32[] constant(0)
  next = s32[] add(n, one)
  {body}
  ROOT r = {STATE} tuple(next, y, w, {v})
}}
condition {{
  s = {STATE} parameter(0)
  n = s32[] get-tuple-element(s), index=0
  limit = s32[] constant({rounds})
  ROOT c = pred[] compare(n, limit), direction=LT
}}
ENTRY e {{
  x = f32[128,128] parameter(0)
  w = f32[128,128] parameter(1)
  v = f32[128,128] parameter(2)
  zero = s32[] constant(0)
  t = {STATE} tuple(zero, x, w, v)
  l = {STATE} while(t), condition=condition, body=body
  {end}
}}
"""


def moved(text: str) -> tuple[Module, list[str]]:
    """The result, and the opcodes of what was made before the loop."""
    made, _ = hlo_opt.fuse(hlo_opt.parse(text), passes=PASSES, simplify="never")
    hlo_opt.verify(made)
    before = [i.opcode for i in made.entry.instructions if i.parameter_number is None and i.literal is None]
    return made, before[: before.index("tuple")]


TRANSPOSED = ("h = f32[128,128] transpose(w), dimensions={1,0}", product("h"))
WHOLE = f"ROOT o = ({STATE}, f32[128,128]) tuple(l, x)"


@pytest.mark.parametrize(
    ("text", "before"),
    [
        (loop(*TRANSPOSED), ["transpose"]),
        (loop(*TRANSPOSED, end=WHOLE), ["transpose"]),
        (loop(GRAM, "h = f32[128,128] negate(g)", product("h")), ["dot", "negate"]),
        (loop(GRAM, product("g"), v="y"), []),  # v changes
        (loop(*ROWS, product("h")), ["reduce", "broadcast"]),
        (loop(*ROWS, SCALED, product("g")), ["reduce"]),
        (loop("h = f32[128,128] negate(x)", product("h")), []),
        (loop("h = f32[128,128] negate(w)", "y = f32[128,128] multiply(x, h)"), []),  # may be one kernel
        (loop("h = f32[128,128] exponential(w)", "y = f32[128,128] multiply(x, h)"), ["exponential"]),
        (loop("e = f32[128,128] exponential(w)", "h = f32[128,128] negate(e)", SCALED, Y), ["exponential", "negate"]),
        (loop(*ROWS, SCALED, Y), ["reduce"]),  # a broadcast is made where it is read
        (loop("h = f32[128,128] exponential(w)", SCALED, Y, rounds=1), []),
        (loop("h = f32[128,128] exponential(x)", SCALED, Y), []),
        (loop("h = f32[128,128] negate(w)", SCALED, product("g")), []),  # costs nothing where it is read
        (loop("h = f32[128,128] multiply(w, v)", SCALED, product("g")), ["multiply"]),  # half as much is read
        (loop(*TRANSPOSED, rounds=1), []),
        (loop(*TRANSPOSED, rounds=0), []),
    ],
)
def test_what_is_taken_out(text: str, before: list[str]):
    module = hlo_opt.parse(text)
    made, taken = moved(text)
    assert taken == before
    (again,) = [i for i in made.entry.instructions if looped(i) is not None]
    assert len(again.shape.elements or ()) == 4 + bool(before)
    inputs = module_inputs(module, 1)
    for got, want in zip(hlo_opt.evaluate(made, inputs), hlo_opt.evaluate(module, inputs), strict=True):
        np.testing.assert_array_equal(got, want)


def test_a_loop_that_is_the_result():
    text = loop(*TRANSPOSED, end="").replace("  l = ", "  ROOT l = ")
    made, before = moved(text)
    assert before == ["transpose"]
    assert made.entry.root.shape == hlo_opt.parse(text).entry.root.shape


def test_what_leaves_an_inner_loop_leaves_the_outer_one():
    inner = loop(*TRANSPOSED)
    bodies, entry = inner[: inner.index("ENTRY")], inner[inner.index("ENTRY") :]
    middle = f"""
outer {{
{TAKEN}
  start = s32[] constant(0)
  next = s32[] add(n, one)
  t = {STATE} tuple(start, x, w, v)
  l = {STATE} while(t), condition=condition, body=body
  y = f32[128,128] get-tuple-element(l), index=1
  ROOT r = {STATE} tuple(next, y, w, v)
}}
outer_condition {{
  s = {STATE} parameter(0)
  n = s32[] get-tuple-element(s), index=0
  limit = s32[] constant(2)
  ROOT c = pred[] compare(n, limit), direction=LT
}}
"""
    outer = bodies + middle + entry.replace("condition=condition, body=body", "condition=outer_condition, body=outer")
    made, before = moved(outer)
    assert before == ["transpose"]
    module = hlo_opt.parse(outer)
    inputs = module_inputs(module, 1)
    np.testing.assert_array_equal(hlo_opt.evaluate(made, inputs)[0], hlo_opt.evaluate(module, inputs)[0])


def test_the_default_preset_takes_them_out():
    text = loop(*TRANSPOSED)
    before, _ = hlo_opt.fuse(hlo_opt.parse(text))
    (body,) = [b for c in before.computations for i in c.instructions if (b := looped(i)) is not None]
    assert not any(i.opcode == "transpose" for i in body.instructions)


def test_without_simplifying_they_stay():
    text = loop("h = f32[128,128] exponential(w)", SCALED, Y)
    module = hlo_opt.parse(text)
    made, _ = hlo_opt.fuse(module, simplify="never")
    prove_same_graph(module, made)
