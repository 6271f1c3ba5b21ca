"""The interpreter: calls and elementwise application of scalar computations."""

from __future__ import annotations

import numpy as np
import pytest

from hlo_opt import parse
from hlo_opt.evaluate import Interpreter
from hlo_opt.ir import Computation

TEXT = """HloModule m

plain {
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  two = f32[] constant(2)
  z = f32[] multiply(x, two)
  ROOT r = f32[] add(z, y)
}

nested {
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  a = f32[] call(x, y), to_apply=plain
  b = f32[] reshape(a)
  c = pred[] compare(b, x), direction=GT
  ROOT r = (f32[], pred[]) tuple(b, c)
}

fixed {
  x = f32[] parameter(0)
  ROOT r = f32[] constant(3)
}

up {
  x = f32[] parameter(0)
  ROOT r = f32[] add(x, x)
}

branchy {
  x = f32[] parameter(0)
  zero = f32[] constant(0)
  p = pred[] compare(x, zero), direction=LT
  ROOT r = f32[] conditional(p, x, x), branch_computations={fixed, up}
}

ENTRY e {
  ROOT x = f32[] parameter(0)
}
"""
MODULE = parse(TEXT)
X = np.array([[1, -2, 3], [0, 5, -6]], np.float32)
Y = np.array([[1, 1, 1], [2, 2, 2]], np.float32)


def named(name: str) -> Computation:
    return next(c for c in MODULE.computations if c.name == name)


def test_call() -> None:
    assert Interpreter().call(named("plain"), [np.float32(3), np.float32(4)]) == 10


def test_scalar_computations_take_arrays() -> None:
    (got,) = Interpreter().map_elements(named("plain"), [X, Y])
    assert got.dtype == np.float32 and np.array_equal(got, 2 * X + Y)


def test_through_calls_and_tuples() -> None:
    value, more = Interpreter().map_elements(named("nested"), [X, Y])
    assert np.array_equal(value, 2 * X + Y) and np.array_equal(more, 2 * X + Y > X)


def test_a_constant_result_still_fills_the_shape() -> None:
    (got,) = Interpreter().map_elements(named("fixed"), [X])
    assert got.shape == X.shape and (got == 3).all()


def test_what_cannot_take_arrays_runs_element_by_element() -> None:
    (got,) = Interpreter().map_elements(named("branchy"), [X])
    assert np.array_equal(got, np.where(X < 0, 3, 2 * X))


def test_programs_are_made_once() -> None:
    interpreter = Interpreter()
    for _ in range(3):
        interpreter.call(named("plain"), [np.float32(1), np.float32(1)])
    assert interpreter.calls == 3 and len(interpreter._programs) == 1


def test_the_number_of_arguments_is_checked() -> None:
    from hlo_opt import EvaluationError

    with pytest.raises(EvaluationError, match="takes 2 parameters, 1 values"):
        Interpreter().call(named("plain"), [np.float32(1)])


def test_what_has_no_meaning_is_shown_in_the_text() -> None:
    from hlo_opt import EvaluationError, evaluate, parse

    text = 'HloModule m\n\nENTRY e {\n  p = f32[4]{0} parameter(0)\n  ROOT c = f32[4]{0} custom-call(p), custom_call_target="nope"\n}\n'
    for options in ({}, {"watch": lambda event: None}):
        with pytest.raises(EvaluationError, match="HLO404") as caught:
            evaluate(parse(text, filename="m.hlo"), [np.zeros(4, np.float32)], **options)
        assert (caught.value.filename, caught.value.line, caught.value.column) == ("m.hlo", 5, 3)
