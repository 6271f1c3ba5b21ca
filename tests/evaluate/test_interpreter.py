"""The interpreter: calls and elementwise application of scalar computations."""

from __future__ import annotations

import importlib
import inspect

import numpy as np
import pytest

import hlo_opt
from hlo_opt import EvaluationError, evaluate, parse
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
    assert len(interpreter._programs) == 1


def test_the_number_of_arguments_is_checked() -> None:
    from hlo_opt import EvaluationError

    with pytest.raises(EvaluationError, match="takes 2 parameters, 1 values"):
        Interpreter().call(named("plain"), [np.float32(1)])


def test_what_has_no_meaning_is_shown_in_the_text() -> None:
    from hlo_opt import EvaluationError, evaluate, parse

    text = (
        "HloModule m\n\nENTRY e {\n  p = f32[4]{0} parameter(0)\n  ROOT c = f32[4]{0} custom-call(p), "
        'custom_call_target="nope"\n}\n'
    )
    for options in ({}, {"watch": lambda event: None}):
        with pytest.raises(EvaluationError, match="HLO404") as caught:
            evaluate(parse(text, filename="m.hlo"), [np.zeros(4, np.float32)], **options)
        assert (caught.value.filename, caught.value.line, caught.value.column) == ("m.hlo", 5, 3)


ADD = "HloModule m\n\nENTRY e {\n  x = f32[2] parameter(0)\n  y = f32[2] parameter(1)\n  ROOT z = f32[2] add(x, y)\n}\n"


def test_the_public_name_is_callable_whoever_imports_the_room_first() -> None:
    importlib.import_module("hlo_opt.evaluate.inputs")
    assert hlo_opt.evaluate(parse(ADD), [[1.0, 2.0], [3.0, 4.0]])[0].tolist() == [4.0, 6.0]
    assert "memory_limit" in inspect.signature(evaluate.evaluate if inspect.ismodule(evaluate) else evaluate).parameters


def test_tuples_are_flattened_on_both_sides() -> None:
    text = """HloModule m

ENTRY e {
  p = (f32[], (s32[2], pred[])) parameter(0)
  q = f32[] parameter(1)
  a = f32[] get-tuple-element(p), index=0
  b = (s32[2], pred[]) get-tuple-element(p), index=1
  c = f32[] add(a, q)
  t = token[] after-all()
  ROOT r = (((s32[2], pred[]), token[]), f32[]) tuple(u, c)
}
""".replace("  ROOT", "  u = ((s32[2], pred[]), token[]) tuple(b, t)\n  ROOT")
    outputs = evaluate(parse(text), [1.5, [1, 2], True, 2.0])
    assert [o.tolist() for o in outputs] == [[1, 2], True, 3.5]
    assert [o.dtype.name for o in outputs] == ["int32", "bool", "float32"]


def test_outputs_are_the_callers_own() -> None:
    x = np.ones(2, np.float32)
    module = parse("HloModule m\n\nENTRY e {\n  ROOT x = f32[2] parameter(0)\n}\n")
    (got,) = evaluate(module, [x])
    got[0] = 5
    assert x.tolist() == [1, 1]
    wide = parse(
        "HloModule m\n\nENTRY e {\n  x = f32[] parameter(0)\n  ROOT y = f32[3] broadcast(x), dimensions={}\n}\n"
    )
    (spread,) = evaluate(wide, [1.0])
    spread[0] = 5
    assert spread.tolist() == [5, 1, 1]


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ([], "takes 2 inputs, but 0 are given"),
        ([np.zeros(2, np.float32), np.zeros(2)], r"in1 is float64\[2\], expected f32\[2\]"),
        ([np.zeros(3, np.float32), np.zeros(2, np.float32)], r"in0 is float32\[3\], expected f32\[2\]"),
        ([["a", "b"], [1, 2]], "in0 is not an array of f32"),
    ],
)
def test_inputs_that_do_not_fit(inputs: list[object], message: str) -> None:
    with pytest.raises(EvaluationError, match=message) as caught:
        evaluate(parse(ADD), inputs)
    assert caught.value.code == "HLO401"


def test_an_operation_without_meaning_names_its_line() -> None:
    text = ADD.replace("add(x, y)", "frobnicate(x, y)")
    with pytest.raises(EvaluationError, match="frobnicate z") as caught:
        evaluate(parse(text), [[1, 2], [3, 4]])
    assert caught.value.line == 6


def test_what_the_result_does_not_need_is_not_evaluated() -> None:
    text = ADD.replace("  ROOT", "  w = f32[2] frobnicate(x)\n  ROOT")
    assert evaluate(parse(text), [[1, 2], [3, 4]])[0].tolist() == [4, 6]


def test_malformed_operands_give_an_error_not_a_crash() -> None:
    text = ADD.replace("y = f32[2]", "y = f32[3]")
    with pytest.raises(EvaluationError, match="add z"):
        evaluate(parse(text), [[1, 2], [3, 4, 5]])


def test_a_watcher_sees_every_value_in_order() -> None:
    seen: list[tuple[str, object]] = []
    evaluate(parse(ADD), [[1, 2], [3, 4]], watch=lambda e: seen.append((e.instruction.name, e.value.tolist())))
    assert seen == [("x", [1.0, 2.0]), ("y", [3.0, 4.0]), ("z", [4.0, 6.0])]


FOREVER = """HloModule m

c {
  i = s32[] parameter(0)
  ROOT t = pred[] constant(true)
}

b {
  i = s32[] parameter(0)
  one = s32[] constant(1)
  ROOT n = s32[] add(i, one)
}

ENTRY e {
  z = s32[] constant(0)
  ROOT w = s32[] while(z), condition=c, body=b
}
"""


def test_limits() -> None:
    with pytest.raises(EvaluationError, match="goes on after 1000 iterations") as caught:
        evaluate(parse(FOREVER), max_steps=1000)
    assert caught.value.code == "HLO402"
    big = "HloModule m\n\nENTRY e {\n  x = f32[] parameter(0)\n  y = f32[1000000]{0} broadcast(x), dimensions={}\n"
    big += "  ROOT z = f32[1000000]{0} negate(y)\n}\n"
    with pytest.raises(EvaluationError, match=r"8000004 bytes\) here, 4 bytes of them inputs") as caught:
        evaluate(parse(big), [1.0], memory_limit=1_000_000)
    assert caught.value.code == "HLO402"
    assert len(evaluate(parse(big), [1.0], memory_limit=10_000_000)[0]) == 1_000_000
    with pytest.raises(EvaluationError, match="takes 40000000000000 bytes") as caught:
        evaluate(parse(big.replace("1000000", "10000000000000")), [1.0])
    assert caught.value.code == "HLO402"


def test_calls_that_nest_too_deep_are_refused() -> None:
    functions = ["f0 {\n  x = f32[] parameter(0)\n  ROOT y = f32[] negate(x)\n}\n"]
    functions += [
        f"f{k} {{\n  x = f32[] parameter(0)\n  ROOT y = f32[] call(x), to_apply=f{k - 1}\n}}\n" for k in range(1, 300)
    ]
    entry = "ENTRY e {\n  x = f32[] parameter(0)\n  ROOT y = f32[] call(x), to_apply=f299\n}\n"
    module = parse("HloModule m\n\n" + "\n".join(functions) + "\n" + entry)
    with pytest.raises(EvaluationError, match="deep"):
        evaluate(module, [1.0])


def test_a_long_chain_needs_no_recursion() -> None:
    lines = ["  v0 = f32[] parameter(0)"] + [f"  v{k} = f32[] negate(v{k - 1})" for k in range(1, 20001)]
    text = "HloModule m\n\nENTRY e {\n" + "\n".join(lines) + "\n  ROOT r = f32[] copy(v20000)\n}\n"
    assert evaluate(parse(text), [1.0])[0] == 1.0
