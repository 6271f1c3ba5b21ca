"""Loops, branches, calls, tuples, asynchronous pairs and markers."""

from __future__ import annotations

import numpy as np
import pytest

from hlo_opt import EvaluationError, VerifyError, evaluate, parse, verify
from hlo_opt.ir import Module
from hlo_opt.ops import ShapeError, find, spec_of

COUNT = """
below {
  s = (s32[], f32[2]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(5)
  ROOT c = pred[] compare(i, n), direction=LT
}

step {
  s = (s32[], f32[2]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[2] get-tuple-element(s), index=1
  one = s32[] constant(1)
  next = s32[] add(i, one)
  twice = f32[2] add(x, x)
  ROOT t = (s32[], f32[2]) tuple(next, twice)
}

always {
  s = (s32[], f32[2]) parameter(0)
  ROOT c = pred[] constant(true)
}

same {
  s = (s32[], f32[2]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[2] get-tuple-element(s), index=1
  ROOT t = (s32[], f32[2]) tuple(i, x)
}

up {
  x = f32[2] parameter(0)
  ROOT y = f32[2] add(x, x)
}

down {
  x = f32[2] parameter(0)
  ROOT y = f32[2] negate(x)
}
"""


def program(body: str, parameters: str = "x = f32[2] parameter(0)") -> Module:
    """A module with these lines in its entry."""
    return parse(f"HloModule m\n{COUNT}\nENTRY e {{\n  {parameters}\n  {body}\n}}\n")


def infer(module: Module) -> object:
    """The inferred shape of the entry's root."""
    face = spec_of(module.entry.root).infer
    assert face is not None
    return face(module.entry.root)


def test_a_loop_runs_until_its_condition_fails() -> None:
    module = program(
        "zero = s32[] constant(0)\n  t = (s32[], f32[2]) tuple(zero, x)\n"
        "  ROOT w = (s32[], f32[2]) while(t), condition=below, body=step"
    )
    count, value = evaluate(module, [[1.0, -1.0]])
    assert count == 5 and value.tolist() == [32.0, -32.0]
    assert infer(module) == module.entry.root.shape.without_layout()


def test_a_loop_that_changes_nothing_goes_on() -> None:
    module = program(
        "zero = s32[] constant(0)\n  t = (s32[], f32[2]) tuple(zero, x)\n"
        "  ROOT w = (s32[], f32[2]) while(t), condition=always, body=same"
    )
    with pytest.raises(EvaluationError, match="goes on after 50 iterations"):
        evaluate(module, [[1.0, 2.0]], max_steps=50)


@pytest.mark.parametrize(("selector", "sign"), [(0, 2), (1, -1), (2, -1), (-1, -1)])
def test_a_branch_index_out_of_range_takes_the_last_branch(selector: int, sign: int) -> None:
    module = program(
        "ROOT c = f32[2] conditional(i, x, x), branch_computations={up, down}",
        "i = s32[] parameter(0)\n  x = f32[2] parameter(1)",
    )
    assert evaluate(module, [selector, [1.0, 2.0]])[0].tolist() == [1.0 * sign, 2.0 * sign]


@pytest.mark.parametrize(("selector", "sign"), [(True, 2), (False, -1)])
def test_true_takes_the_first_branch(selector: bool, sign: int) -> None:
    module = program(
        "ROOT c = f32[2] conditional(i, x, x), true_computation=up, false_computation=down",
        "i = pred[] parameter(0)\n  x = f32[2] parameter(1)",
    )
    assert evaluate(module, [selector, [1.0, 2.0]])[0].tolist() == [1.0 * sign, 2.0 * sign]


@pytest.mark.parametrize(
    "body",
    [
        "ROOT r = f32[2] call(x), to_apply=up",
        "ROOT r = f32[2] fusion(x), kind=kLoop, calls=up",
        "s = ((f32[2]), f32[2], u32[]) async-start(x), calls=up\n  u = ((f32[2]), f32[2], u32[]) async-update(s)\n"
        "  ROOT r = f32[2] async-done(u)",
        "s = ((f32[2]), f32[2], u32[]) call-start(x), to_apply=up\n  ROOT r = f32[2] call-done(s)",
        "a = token[] after-all()\n  y = f32[2] add-dependency(x, a)\n  z = f32[2] opt-barrier(y)\n  ROOT r = f32[2] "
        "add(z, z)",
        "t = (f32[2], (f32[2])) tuple(x, n)\n  y = (f32[2]) get-tuple-element(t), index=1\n"
        "  z = f32[2] get-tuple-element(y), index=0\n  ROOT r = f32[2] call(z), to_apply=up".replace(
            "t =", "n = (f32[2]) tuple(x)\n  t =", 1
        ),
        "c = f32[2] constant({1, 2})\n  p = u32[] partition-id()\n  q = u32[] replica-id()\n  e = pred[] compare(p, "
        "q), direction=EQ\n"
        "  b = pred[2] broadcast(e), dimensions={}\n  y = f32[2] select(b, x, c)\n  ROOT r = f32[2] add(x, y)",
    ],
)
def test_these_double(body: str) -> None:
    assert evaluate(program(body), [[1.0, 2.0]])[0].tolist() == [2.0, 4.0]


def test_tuple_constants() -> None:
    module = program("c = (f32[2], s32[]) constant(({1, 2}, 3))\n  ROOT g = s32[] get-tuple-element(c), index=1")
    assert evaluate(module, [np.zeros(2, np.float32)])[0] == 3


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("t = (f32[2]) tuple(x)\n  ROOT g = f32[2] get-tuple-element(t), index=1", "index=1 of a tuple of 1"),
        ("ROOT g = f32[2] get-tuple-element(x), index=0", "not a tuple"),
        ("ROOT c = f32[2] conditional(x, x, x), branch_computations={up, down}", "branch index"),
        ("ROOT a = ((s32[]), f32[2]) async-start(x), calls=up", "first element"),
    ],
)
def test_refused(body: str, message: str) -> None:
    module = program(body)
    with pytest.raises(ShapeError, match=message):
        infer(module)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("ROOT w = f32[2] while(x), condition=below, body=step", "parameter 0 of below"),
        (
            "i = s32[] constant(0)\n  ROOT c = f32[2] conditional(i, x), branch_computations={up, down}",
            "2 branches and 1",
        ),
        ("i = s32[] constant(0)\n  ROOT c = f32[2] call(i), to_apply=up", "parameter 0 of up"),
        ("ROOT c = f32[2] fusion(x, x), kind=kLoop, calls=up", "up has 1 parameters"),
    ],
)
def test_what_is_called_takes_what_it_is_given(body: str, message: str) -> None:
    with pytest.raises(VerifyError, match=message):
        verify(program(body))


def test_what_is_free_launches_nothing() -> None:
    """The list that XLA's own tools count by: everything else is a launch."""
    free = [
        "parameter",
        "constant",
        "tuple",
        "get-tuple-element",
        "bitcast",
        "after-all",
        "while",
        "conditional",
        "call",
        "opt-barrier",
        "domain",
        "partition-id",
        "replica-id",
        "get-dimension-size",
        "async-update",
        "async-done",
        "add-dependency",
    ]
    for opcode in free:
        spec = find(opcode)
        assert spec is not None and spec.is_free, opcode
    for opcode in ("fusion", "add", "copy-start", "reduce", "async-start", "dot"):
        spec = find(opcode)
        assert spec is not None and not spec.is_free, opcode
