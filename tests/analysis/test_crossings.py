import pytest

import hlo_opt
from hlo_opt.analysis.graph.crossings import Crossings

LOOP = """HloModule m

body {
  s = (s32[], f32[8]{0}, f32[8]{0}) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  v = f32[8]{0} get-tuple-element(s), index=1
  w = f32[8]{0} get-tuple-element(s), index=2
  h = f32[8]{0} add(v, w)
  ROOT t = (s32[], f32[8]{0}, f32[8]{0}) tuple(i, h, w)
}

condition {
  s = (s32[], f32[8]{0}, f32[8]{0}) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  limit = s32[] constant(10)
  ROOT c = pred[] compare(i, limit), direction=LT
}

ENTRY e {
  p = f32[8]{0} parameter(0)
  n = f32[8]{0} negate(p)
  a = f32[8]{0} abs(p)
  zero = s32[] constant(0)
  t = (s32[], f32[8]{0}, f32[8]{0}) tuple(zero, n, a)
  l = (s32[], f32[8]{0}, f32[8]{0}) while(t), condition=condition, body=body
  one = f32[8]{0} get-tuple-element(l), index=1
  two = f32[8]{0} get-tuple-element(l), index=2
  ROOT r = f32[8]{0} subtract(one, two)
}
"""


def crossings(text, computation, name):
    module = hlo_opt.parse(text)
    instructions = {i.name: i for c in module.computations if c.name == computation for i in c.instructions}
    return [(c.producer.name, c.control.name, c.way) for c in Crossings(module).of(instructions[name])]


@pytest.mark.parametrize(
    ("computation", "value", "expected"),
    [
        ("body", "v", [("h", "l", "from one iteration to the next"), ("n", "l", "into the first iteration")]),
        ("body", "w", [("a", "l", "into the first iteration")]),  # no round changes it
        ("body", "i", []),
        ("condition", "i", []),
        ("e", "one", [("h", "l", "out of the last iteration")]),
        ("e", "two", [("a", "l", "out of the last iteration")]),
        ("e", "n", []),  # a kernel of this side
    ],
)
def test_what_a_loop_carries(computation, value, expected):
    assert crossings(LOOP, computation, value) == expected


BRANCHES = """HloModule m

above {
  x = f32[8]{0} parameter(0)
  ROOT t = f32[8]{0} tanh(x)
}

below {
  y = f32[8]{0} parameter(0)
  ROOT s = f32[8]{0} sine(y)
}

ENTRY e {
  p = f32[8]{0} parameter(0)
  q = s32[] parameter(1)
  n = f32[8]{0} negate(p)
  a = f32[8]{0} abs(p)
  c = f32[8]{0} conditional(q, n, a), branch_computations={above, below}
  k = f32[8]{0} call(c), to_apply=above
  ROOT r = f32[8]{0} negate(k)
}
"""


@pytest.mark.parametrize(
    ("computation", "value", "expected"),
    [
        ("below", "y", [("a", "c", "")]),
        ("e", "c", [("s", "c", ""), ("t", "c", "")]),
        ("e", "k", [("t", "k", "")]),
    ],
)
def test_branches_and_calls(computation, value, expected):
    assert crossings(BRANCHES, computation, value) == expected


def test_a_computation_that_is_called_twice_has_both_arguments():
    assert crossings(BRANCHES, "above", "x") == [("s", "k", ""), ("t", "k", ""), ("n", "c", "")]


def test_the_element_that_goes_across_has_its_shape():
    module = hlo_opt.parse(LOOP)
    (value,) = (i for c in module.computations for i in c.instructions if i.name == "two")
    (crossing,) = Crossings(module).of(value)
    assert crossing.shape.byte_size == 32
