"""Fusions and calls put back into the computation that holds them."""

from __future__ import annotations

import numpy as np
import pytest

import hlo_opt
from hlo_opt.evaluate import dissolve
from hlo_opt.evaluate.dissolve import dissolved
from hlo_opt.evaluate.interpreter import Interpreter

TEXT = """HloModule m

inner {
  a = f32[4] parameter(0)
  ROOT n = f32[4] negate(a)
}

both {
  x = f32[4] parameter(0)
  y = f32[4] parameter(1)
  c = f32[4] call(x), to_apply=inner
  s = f32[4] add(c, y)
  d = f32[4] sine(s)
  ROOT t = (f32[4], f32[4], f32[4]) tuple(s, d, y)
}

again {
  x = f32[4] parameter(0)
  k = f32[] constant(2)
  b = f32[4] broadcast(k), dimensions={}
  n = f32[4] negate(x)
  ROOT m = f32[4] multiply(n, b)
}

ENTRY e {
  p = f32[4] parameter(0)
  q = f32[4] parameter(1)
  unused = f32[4] parameter(2)
  f = (f32[4], f32[4], f32[4]) fusion(p, q), kind=kLoop, calls=both
  s = f32[4] get-tuple-element(f), index=0
  y = f32[4] get-tuple-element(f), index=2
  g = f32[4] fusion(p), kind=kLoop, calls=again
  k = f32[] constant(2)
  low = f32[] constant(0)
  r = f32[4] rng(low, k), distribution=rng_uniform
  u = f32[4] rng(low, k), distribution=rng_uniform
  v = f32[4] subtract(r, u)
  z = f32[4] multiply(s, y)
  w = f32[4] add(z, g)
  ROOT o = (f32[4], f32[4]) tuple(w, v)
}
"""


def opcodes(computation: hlo_opt.ir.Computation) -> list[str]:
    return sorted(i.opcode for i in computation.instructions)


def test_values_are_there_once_and_only_those_that_are_needed():
    entry = hlo_opt.parse(TEXT).entry
    made = dissolved(entry)
    assert opcodes(made) == sorted(
        ["parameter"] * 3 + ["constant"] * 2 + ["negate", "add", "broadcast", "multiply", "multiply", "add", "tuple"] + ["rng"] * 2 + ["subtract"]
    )  # fmt: skip
    assert [p.parameter_number for p in made.parameters] == [0, 1, 2]
    assert all(o.parent is made for i in made.instructions for o in i.operands)
    (add,) = (i for i in made.instructions if i.opcode == "add" and i.operands[0].opcode == "negate")
    assert [u.opcode for u in add.users] == ["multiply"]


def test_the_values_stay():
    entry = hlo_opt.parse(TEXT.replace("rng(low, k), distribution=rng_uniform", "broadcast(low), dimensions={}")).entry
    inputs = [np.float32([1, 2, 3, 4]), np.float32([5, 6, 7, 9]), np.zeros(4, np.float32)]
    want, got = Interpreter().call(entry, inputs), Interpreter().call(dissolved(entry), inputs)
    np.testing.assert_array_equal(got, want)


def test_the_original_is_left_alone():
    module = hlo_opt.parse(TEXT)
    text = str(module)
    dissolved(module.entry)
    assert str(module) == text


def test_there_is_a_limit(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(dissolve, "GROWTH_LIMIT", 6)
    assert "fusion" in opcodes(dissolved(hlo_opt.parse(TEXT).entry))


def test_an_error_still_names_its_place():
    module = hlo_opt.parse(TEXT)
    made = dissolved(module.entry)
    (add,) = (i for i in made.instructions if i.opcode == "add" and i.operands[0].opcode == "negate")
    span = module.span(add)
    assert made.module is module and span is not None
