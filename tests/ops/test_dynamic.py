"""Operations on dynamic dimensions mean what they mean on arrays of the sizes in use."""

from __future__ import annotations

import numpy as np
import pytest

from hlo_opt import EvaluationError, evaluate, parse

ADD = "add {\n  a = s32[] parameter(0)\n  b = s32[] parameter(1)\n  ROOT c = s32[] add(a, b)\n}\n"
VALUE = np.arange(1, 13, dtype=np.int32).reshape(3, 4)


def run(body: str, *inputs: object) -> list[np.ndarray]:
    text = f"HloModule m\n{ADD}\nENTRY e {{\n  p = s32[3,4] parameter(0)\n  n = s32[] parameter(1)\n"
    text += "  z = s32[] constant(0)\n  d = s32[<=3,4] set-dimension-size(p, n), dimensions={0}\n"
    return evaluate(parse(f"{text}  {body}\n}}\n"), list(inputs))


@pytest.mark.parametrize("size", [0, 1, 2, 3])
@pytest.mark.parametrize(
    ("body", "same"),
    [
        ("ROOT r = s32[4] reduce(d, z), dimensions={0}, to_apply=add", lambda v: v.sum(0)),
        (
            "a = s32[<=3,4] add(d, p)\n  ROOT r = s32[4] reduce(a, z), dimensions={0}, to_apply=add",
            lambda v: 2 * v.sum(0),
        ),
        (
            "t = s32[4,<=3] transpose(d), dimensions={1,0}\n  ROOT r = s32[4] reduce(t, z), dimensions={1}, "
            "to_apply=add",
            lambda v: v.sum(0),
        ),
        ("f = s32[<=12] reshape(d)\n  ROOT r = s32[] reduce(f, z), dimensions={0}, to_apply=add", lambda v: v.sum()),
        ("ROOT r = s32[] get-dimension-size(d), dimensions={0}", len),
        (
            "k = s32[] constant(5)\n  q = s32[<=5,4] pad(d, k), padding=1_1x0_0\n"
            "  ROOT r = s32[4] reduce(q, z), dimensions={0}, to_apply=add",
            lambda v: v.sum(0) + 10,
        ),
        (
            "c = s32[<=6,4] concatenate(d, p), dimensions={0}\n  ROOT r = s32[] get-dimension-size(c), dimensions={0}",
            lambda v: len(v) + 3,
        ),
        (
            "o = s32[] constant(1)\n  b = s32[<=3,4] broadcast(o), dimensions={}\n  m = s32[<=3,4] multiply(d, b)\n"
            "  ROOT r = s32[4] reduce(m, z), dimensions={0}, to_apply=add",
            lambda v: v.sum(0),
        ),
        (
            "b = s32[<=3,4,2] broadcast(d), dimensions={0,1}\n  ROOT r = s32[] reduce(b, z), dimensions={0,1,2}, "
            "to_apply=add",
            lambda v: 2 * v.sum(),
        ),
        (
            "s = s32[<=3,2] slice(d), slice={[0:3], [1:3]}\n  ROOT r = s32[2] reduce(s, z), dimensions={0}, "
            "to_apply=add",
            lambda v: v[:, 1:3].sum(0),
        ),
    ],
)
def test_what_is_in_use_counts(body: str, same: object, size: int) -> None:
    (got,) = run(body, VALUE, size)
    assert callable(same) and np.array_equal(got, same(VALUE[:size]))


def test_a_result_comes_in_the_buffer_of_its_bound() -> None:
    (got,) = run("t = s32[4,<=3] transpose(d), dimensions={1,0}\n  ROOT r = s32[4,<=3] copy(t)", VALUE, 2)
    assert got.tolist() == [[1, 5, 2], [6, 3, 7], [4, 8, 0], [0, 0, 0]]


def test_sizes_can_grow_again() -> None:
    body = "g = s32[] constant(3)\n  ROOT r = s32[<=3,4] set-dimension-size(d, g), dimensions={0}"
    assert np.array_equal(run(body, VALUE, 1)[0], VALUE)


def test_dynamic_reshape() -> None:
    body = "two = s32[] constant(2)\n  ROOT r = s32[<=4,4] dynamic-reshape(d, two, f)"
    (got,) = run(f"f = s32[] constant(4)\n  {body}", VALUE, 2)
    assert got.reshape(-1)[:8].tolist() == list(range(1, 9))
    with pytest.raises(EvaluationError, match="4 elements in use do not fill 2x4"):
        run(f"f = s32[] constant(4)\n  {body}", VALUE, 1)


def test_inputs_may_be_smaller_than_their_bound() -> None:
    module = parse(
        f"HloModule m\n{ADD}\nENTRY e {{\n  p = s32[<=5] parameter(0)\n  z = s32[] constant(0)\n"
        "  ROOT r = s32[] reduce(p, z), dimensions={0}, to_apply=add\n}\n"
    )
    assert evaluate(module, [np.array([3, 4], np.int32)])[0] == 7
    with pytest.raises(EvaluationError, match="in0 is"):
        evaluate(module, [np.zeros(6, np.int32)])


def test_values_go_through_control_flow() -> None:
    text = """HloModule m
step {
  s = (s32[<=3], s32[]) parameter(0)
  v = s32[<=3] get-tuple-element(s), index=0
  i = s32[] get-tuple-element(s), index=1
  w = s32[<=3] add(v, v)
  one = s32[] constant(1)
  j = s32[] add(i, one)
  ROOT t = (s32[<=3], s32[]) tuple(w, j)
}
more {
  s = (s32[<=3], s32[]) parameter(0)
  i = s32[] get-tuple-element(s), index=1
  two = s32[] constant(2)
  ROOT l = pred[] compare(i, two), direction=LT
}
ENTRY e {
  p = s32[3] parameter(0)
  n = s32[] parameter(1)
  z = s32[] constant(0)
  d = s32[<=3] set-dimension-size(p, n), dimensions={0}
  t = (s32[<=3], s32[]) tuple(d, z)
  w = (s32[<=3], s32[]) while(t), condition=more, body=step
  ROOT r = s32[<=3] get-tuple-element(w), index=0
}
"""
    assert evaluate(parse(text), [np.array([1, 2, 3], np.int32), 2])[0].tolist() == [4, 8, 0]
