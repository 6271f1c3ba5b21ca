"""Cuts that put one operation in place of several."""

import numpy as np
import pytest

import hlo_opt
from hlo_opt.cutting import stand_ins
from hlo_opt.cutting.parts import size, tidied

TEXT = """HloModule m
sum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}
ENTRY e {
  p = f32[3,4,5] parameter(0)
  z = f32[] constant(0)
  r = f32[4] reduce(p, z), dimensions={0,2}, to_apply=sum
  ROOT w = f32[3,4,5] broadcast(r), dimensions={1}
}
"""
VALUES = np.arange(60, dtype=np.float32).reshape(3, 4, 5)


def changed(name, source=None):
    """A valid smaller module, with what stands in for an instruction."""
    module = hlo_opt.parse(TEXT)
    for computation in module.computations:
        computation.index_users()
    before = size(module)
    i = next(i for i in module.entry.instructions if i.name == name)
    (change,) = stand_ins.stand_ins(i, source)
    change(i)
    after = hlo_opt.parse(str(tidied(module)))
    hlo_opt.verify(after)
    assert size(after) < before
    return after


def test_a_sum_becomes_the_product_of_its_operand_with_itself():
    want = np.broadcast_to((VALUES**2).sum((0, 2))[None, :, None], (3, 4, 5))
    np.testing.assert_allclose(hlo_opt.evaluate(changed("r"), [VALUES])[0], want)


def test_what_is_computed_from_an_array_of_its_shape_becomes_that_array_turned():
    np.testing.assert_array_equal(hlo_opt.evaluate(changed("w", 0), [VALUES])[0], VALUES[:, :, ::-1])


@pytest.mark.parametrize(
    ("old", "new"),
    [("f32", "s32"), ("f32[4] reduce(p, z), dimensions={0,2}", "f32[3,4,5] reduce(p, z), dimensions={}")],
)
def test_nothing_stands_in_for_a_sum_of_integers_or_of_nothing(old, new):
    reduce = list(hlo_opt.parse(TEXT.replace(old, new)).entry.instructions)[2]
    assert list(stand_ins.stand_ins(reduce, None)) == []


PRODUCT = """HloModule m
turn {
  p = f32[3,4] parameter(0)
  q = f32[4,2] parameter(1)
  v = f32[4] parameter(2)
  d = f32[3] dot(p, v), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  e = f32[3,2] dot(p, q), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT r = (f32[3], f32[3,2]) tuple(d, e)
}
ENTRY e {
  p = f32[3,4] parameter(0)
  q = f32[4,2] parameter(1)
  v = f32[4] parameter(2)
  ROOT c = (f32[3], f32[3,2]) call(p, q, v), to_apply=turn
}
"""


def test_a_product_becomes_that_of_one_operand_with_itself_where_the_result_has_no_dimension_of_the_other():
    tried = []
    for name, number in (("d", 0), ("d", 1), ("e", 0), ("e", 1)):
        module = hlo_opt.parse(PRODUCT)
        product = next(i for c in module.computations for i in c.instructions if i.name == name)
        try:
            stand_ins.own_square_sum(product, number)
        except ValueError:
            continue
        tried.append((name, number))
        after = hlo_opt.parse(str(tidied(module)))
        hlo_opt.verify(after)
        values = [np.arange(n, dtype=np.float32).reshape(s) for n, s in ((12, (3, 4)), (8, (4, 2)), (4, (4,)))]
        np.testing.assert_allclose(hlo_opt.evaluate(after, values)[0], (values[0] ** 2).sum(1))
    assert tried == [("d", 0)]
