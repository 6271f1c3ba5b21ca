"""Cuts of a loop to one array of its state."""

import numpy as np
import pytest
from cutting_modules import changed, loop_of

import hlo_opt
from hlo_opt.cutting import leaves
from hlo_opt.cutting.loops import loop_changes

COUNTED = """HloModule m

body {
  t = (s32[], f32[8,16]{1,0}, f32[16]{0}) parameter(0)
  i = s32[] get-tuple-element(t), index=0
  o = f32[8,16]{1,0} get-tuple-element(t), index=1
  u = f32[16]{0} get-tuple-element(t), index=2
  one = s32[] constant(1)
  n = s32[] add(i, one)
  v = f32[16]{0} multiply(u, u)
  row = f32[1,16]{1,0} reshape(v)
  no = f32[8,16]{1,0} dynamic-update-slice(o, row, i, one)
  ROOT next = (s32[], f32[8,16]{1,0}, f32[16]{0}) tuple(n, no, v)
}

condition {
  t = (s32[], f32[8,16]{1,0}, f32[16]{0}) parameter(0)
  i = s32[] get-tuple-element(t), index=0
  n = s32[] constant(5)
  ROOT c = pred[] compare(i, n), direction=LT
}

ENTRY e {
  o = f32[8,16]{1,0} parameter(0)
  u = f32[16]{0} parameter(1)
  z = s32[] constant(0)
  t = (s32[], f32[8,16]{1,0}, f32[16]{0}) tuple(z, o, u)
  w = (s32[], f32[8,16]{1,0}, f32[16]{0}) while(t), condition=condition, body=body
  i = s32[] get-tuple-element(w), index=0
  no = f32[8,16]{1,0} get-tuple-element(w), index=1
  v = f32[16]{0} get-tuple-element(w), index=2
  ROOT r = (s32[], f32[8,16]{1,0}, f32[16]{0}) tuple(i, no, v)
}
"""
BARE = """HloModule m

body {
  u = f32[8]{0} parameter(0)
  ROOT r = f32[8]{0} negate(u)
}

condition {
  u = f32[8]{0} parameter(0)
  z = f32[] constant(0)
  s = f32[] dot(u, u), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  ROOT c = pred[] compare(s, z), direction=LT
}

ENTRY e {
  u = f32[8]{0} parameter(0)
  ROOT w = f32[8]{0} while(u), condition=condition, body=body
}
"""


def opcodes(module, name):
    return [i.opcode for i in loop_of(module).called_by(name).instructions]


def test_a_loop_of_one_array_goes_on_as_long_as_its_sum_of_squares_is_finite():
    module = changed(leaves.one_leaf, COUNTED, number=2, is_made=False, grows=False)
    assert opcodes(module, "body") == ["parameter", "multiply"]
    assert opcodes(module, "condition") == ["parameter", "dot", "is-finite"]
    value = np.full(16, 2, np.float32)
    found = hlo_opt.evaluate(module, [np.zeros((8, 16), np.float32), value])
    np.testing.assert_array_equal(found[2], np.full(16, 2.0**64, np.float32))  # its square is the first without a sum
    assert found[0] == 0 and not found[1].any()  # the other elements as they start


def test_what_a_round_reads_of_other_elements_is_made_of_the_array():
    module = changed(leaves.one_leaf, COUNTED, number=1, is_made=True, grows=False)
    assert str(loop_of(module).shape) == "f32[8,16]{1,0}"
    made = opcodes(module, "body")
    assert made.count("dot") == 1 and "convert" in made and "broadcast" in made
    start = np.zeros((8, 16), np.float32)
    start[0, 0] = 2
    found = hlo_opt.evaluate(module, [start, np.zeros(16, np.float32)])[1]
    assert found.max() > 1e19  # the last sum that was written, squared, is not finite


def test_an_exponential_in_each_round_ends_a_loop_that_would_not_end():
    text = COUNTED.replace("multiply(u, u)", "reverse(u), dimensions={0}")
    module = changed(leaves.one_leaf, text, number=2, is_made=False, grows=True)
    assert opcodes(module, "body") == ["parameter", "reverse", "exponential"]
    found = hlo_opt.evaluate(module, [np.zeros((8, 16), np.float32), np.zeros(16, np.float32)])[2]
    assert found.min() > 1e6


def test_the_condition_of_an_array_becomes_whether_it_is_finite():
    module = changed(leaves.ask_state, BARE, grows=False)
    assert opcodes(module, "condition") == ["parameter", "dot", "is-finite"]
    module = hlo_opt.parse(str(module))
    module.entry.index_users()
    for computation in module.computations:
        computation.index_users()
    with pytest.raises(ValueError, match="as small"):
        leaves.ask_state(loop_of(module), grows=False)


@pytest.mark.parametrize("old", ["f32", "multiply"])
def test_only_arrays_of_floats_are_tried(old):
    text = COUNTED if old == "multiply" else COUNTED.replace("f32", "s32")
    found = [c for c in loop_changes(loop_of(hlo_opt.parse(text))) if getattr(c, "func", None) is leaves.one_leaf]
    assert {c.keywords["number"] for c in found} == (set() if old == "f32" else {1, 2})
