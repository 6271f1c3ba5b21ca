"""Layouts of loops and branches: what does not fit is copied, and fusing can be proved."""

from __future__ import annotations

import numpy as np
import pytest

import hlo_opt

LOOP = """HloModule m

body {
  s = (s32[], f32[3,3]{1,0}) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[3,3]{1,0} get-tuple-element(s), index=1
  one = s32[] constant(1)
  next = s32[] add(i, one)
  t = f32[3,3]{LAYOUT} transpose(x), dimensions={1,0}
  n = f32[3,3]{LAYOUT} add(t, t)
  ROOT r = (s32[], f32[3,3]{LAYOUT}) tuple(next, n)
}

condition {
  s = (s32[], f32[3,3]{1,0}) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  three = s32[] constant(3)
  ROOT c = pred[] compare(i, three), direction=LT
}

ENTRY e {
  x = f32[3,3]{1,0} parameter(0)
  zero = s32[] constant(0)
  start = (s32[], f32[3,3]{1,0}) tuple(zero, x)
  loop = (s32[], f32[3,3]{1,0}) while(start), condition=condition, body=body
  ROOT r = f32[3,3]{1,0} get-tuple-element(loop), index=1
}
"""


@pytest.mark.parametrize(("layout", "copies"), [("1,0", 0), ("0,1", 1)])
def test_a_round_gives_what_it_takes(layout: str, copies: int) -> None:
    module = hlo_opt.parse(LOOP.replace("LAYOUT", layout))
    found, _ = hlo_opt.fuse(module, passes="layout-fitting", simplify="never")
    hlo_opt.verify(found)
    assert sum(i.opcode == "copy" for c in found.computations for i in c.instructions) == copies
    given = np.arange(9, dtype=np.float32).reshape(3, 3)
    fused, _ = hlo_opt.fuse(module)
    for made in (found, fused):
        assert np.array_equal(hlo_opt.evaluate(made, [given])[0], given.T * 8)


COUPLED = """HloModule m

body {
  s = (s32[], f32[100,3,3]{2,1,0}, f32[100,3,3]{2,1,0}) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[100,3,3]{2,1,0} get-tuple-element(s), index=1
  y = f32[100,3,3]{2,1,0} get-tuple-element(s), index=2
  one = s32[] constant(1)
  next = s32[] add(i, one)
  back = f32[100,3,3]{2,1,0} reverse(x), dimensions={0}
  n = f32[100,3,3]{2,1,0} add(back, y)
  ROOT r = (s32[], f32[100,3,3]{2,1,0}, f32[100,3,3]{2,1,0}) tuple(next, n, y)
}

condition {
  s = (s32[], f32[100,3,3]{2,1,0}, f32[100,3,3]{2,1,0}) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  three = s32[] constant(3)
  ROOT c = pred[] compare(i, three), direction=LT
}

ENTRY e {
  x = f32[100,3,3]{2,1,0} parameter(0)
  t = f32[100,3,3]{1,2,0} transpose(x), dimensions={0,2,1}
  zero = s32[] constant(0)
  start = (s32[], f32[100,3,3]{1,2,0}, f32[100,3,3]{2,1,0}) tuple(zero, t, x)
  loop = (s32[], f32[100,3,3]{1,2,0}, f32[100,3,3]{2,1,0}) while(start), condition=condition, body=body
  ROOT r = f32[100,3,3]{1,2,0} get-tuple-element(loop), index=1
}
"""


@pytest.mark.parametrize(("text", "inside"), [(COUPLED, 0), (COUPLED.replace("reverse(x)", "copy(x)").replace(
    ", dimensions={0}\n  n", "\n  n"), 1)])  # fmt: skip
def test_a_loop_hands_on_what_rounds_work_on(text: str, inside: int) -> None:
    """A layout that only the loop's operand has is copied once, before the loop, not in each round; where rounds keep
    the array in registers nothing lies anywhere."""
    module = hlo_opt.parse(text)
    found, _ = hlo_opt.fuse(module, passes="layout-fitting", simplify="never")
    hlo_opt.verify(found)
    (loop,) = [i for i in found.entry.instructions if i.opcode == "while"]
    assert loop.shape.same_bytes(loop.called_by("body").parameters[0].shape) == (not inside)
    assert sum(i.opcode == "copy" and i.name != "back" for i in loop.called_by("body").instructions) == inside
    given = np.arange(100 * 9, dtype=np.float32).reshape(100, 3, 3)
    (wanted,) = hlo_opt.evaluate(module, [given])
    fused, _ = hlo_opt.fuse(module)
    for made in (found, fused):
        assert np.array_equal(hlo_opt.evaluate(made, [given])[0], wanted)
    assert np.array_equal(hlo_opt.compile(fused, backend="host")(given)[0], wanted)


@pytest.mark.parametrize(("reader", "is_row_major"), [("add(w, t)", True), ("add(w, v)", False)])
def test_a_transposed_product_that_is_read_in_rows_is_written_in_rows(reader: str, is_row_major: bool) -> None:
    """Frameworks write the gradient of weights as a transposed product, in another layout than the weights have. A
    view of its bytes keeps them in their places."""
    module = hlo_opt.parse(f"""HloModule m
ENTRY e {{
  x = f32[5,4] parameter(0)
  y = f32[5,3] parameter(1)
  w = f32[3,4]{{1,0}} parameter(2)
  d = f32[4,3]{{1,0}} dot(x, y), lhs_contracting_dims={{0}}, rhs_contracting_dims={{0}}
  t = f32[3,4]{{0,1}} transpose(d), dimensions={{1,0}}
  b = f32[12] bitcast(t)
  v = f32[3,4]{{1,0}} bitcast(b)
  ROOT s = f32[3,4]{{1,0}} {reader}
}}
""")
    found, _ = hlo_opt.fuse(module, passes="dce,layout-fitting", simplify="never")
    hlo_opt.verify(found)
    assert next(i.shape.is_row_major for i in found.entry.instructions if i.opcode == "transpose") == is_row_major
    simple, _ = hlo_opt.fuse(module, passes="dce,layout-fitting,algebraic-simplifier", simplify="never")
    given = [np.arange(n, dtype=np.float32).reshape(s) for n, s in ((20, (5, 4)), (15, (5, 3)), (12, (3, 4)))]
    for made in (found, simple):
        assert np.array_equal(hlo_opt.evaluate(made, given)[0], hlo_opt.evaluate(module, given)[0])


@pytest.mark.parametrize(("second", "is_row_major"), [("q", True), ("u", False)])
def test_what_is_made_of_rows_and_others_is_in_rows(second: str, is_row_major: bool) -> None:
    """Two gradients of one array, of which one is a transposed product: their sum takes the layout of the first, and
    the product that reads the sum would have to copy it. A sum of two arrays in one layout keeps it."""
    module = hlo_opt.parse(f"""HloModule m
ENTRY e {{
  g = f32[2,3,4] parameter(0)
  s = f32[2,3,3] parameter(1)
  x = f32[2,3,5] parameter(2)
  q = f32[2,3,4] parameter(3)
  d = f32[2,4,3]{{2,1,0}} dot(g, s), lhs_batch_dims={{0}}, rhs_batch_dims={{0}}, lhs_contracting_dims={{1}}, rhs_contracting_dims={{1}}
  t = f32[2,3,4]{{1,2,0}} transpose(d), dimensions={{0,2,1}}
  u = f32[2,3,4]{{1,2,0}} negate(t)
  a = f32[2,3,4]{{1,2,0}} add(t, {second})
  n = f32[2,3,4]{{1,2,0}} negate(a)
  ROOT r = f32[5,4] dot(x, n), lhs_contracting_dims={{0,1}}, rhs_contracting_dims={{0,1}}
}}
""")
    found, _ = hlo_opt.fuse(module, passes="dce,layout-fitting", simplify="never")
    hlo_opt.verify(found)
    made = {i.name: i.shape.is_row_major for i in found.entry.instructions}
    assert (made["a"], made["n"]) == (is_row_major, is_row_major)
    assert made["t"] == is_row_major
    fused, _ = hlo_opt.fuse(module)
    given = [np.arange(n, dtype=np.float32).reshape(s) for n, s in ((24, (2, 3, 4)), (18, (2, 3, 3)), (30, (2, 3, 5)))]
    given.append(given[0] + 1)
    for other in (found, fused):
        assert np.array_equal(hlo_opt.evaluate(other, given)[0], hlo_opt.evaluate(module, given)[0])


def test_a_fusion_keeps_the_layout_that_its_computation_writes() -> None:
    module = hlo_opt.parse("""HloModule m
inside {
  p = f32[3,4]{0,1} parameter(0)
  q = f32[3,4]{1,0} parameter(1)
  ROOT a = f32[3,4]{0,1} add(p, q)
}

ENTRY e {
  p = f32[3,4]{0,1} parameter(0)
  q = f32[3,4]{1,0} parameter(1)
  f = f32[3,4]{0,1} fusion(p, q), kind=kLoop, calls=inside
  ROOT r = f32[3,4]{1,0} negate(f)
}
""")
    found, _ = hlo_opt.fuse(module, passes="layout-fitting", simplify="never")
    (fusion,) = [i for i in found.entry.instructions if list(i.called())]
    assert fusion.shape.same_bytes(fusion.called_by("calls").root.shape)
    given = [np.arange(12, dtype=np.float32).reshape(3, 4), np.ones((3, 4), np.float32)]
    assert np.array_equal(hlo_opt.evaluate(found, given)[0], -given[0] - 1)


def test_an_outer_product_lies_in_rows_whatever_its_transpose_did() -> None:
    """The gradient of each example: a transposed product at first, which frameworks write as a view of the product.
    Its weighted sum over examples is a fold then, in a kernel that computes the gradients again."""
    module = hlo_opt.parse("""HloModule m
add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}

ENTRY e {
  g = f32[32,256] parameter(0)
  x = f32[32,128] parameter(1)
  d = f32[32,256,128]{2,1,0} dot(g, x), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={}, rhs_contracting_dims={}
  t = f32[32,128,256]{1,2,0} transpose(d), dimensions={0,2,1}
  q = f32[32,128,256]{1,2,0} multiply(t, t)
  z = f32[] constant(0)
  n = f32[32] reduce(q, z), dimensions={1,2}, to_apply=add
  ROOT r = f32[128,256]{1,0} dot(n, t), lhs_contracting_dims={0}, rhs_contracting_dims={0}
}
""")
    found, _ = hlo_opt.fuse(module)
    hlo_opt.verify(found)
    assert all(i.shape.is_row_major for c in found.computations for i in c.instructions if i.shape.is_array)
    assert max(i.shape.element_count for i in found.entry.instructions if i.shape.is_array) == 128 * 256
    given = [np.linspace(-1, 1, n, dtype=np.float32).reshape(32, -1) for n in (32 * 256, 32 * 128)]
    (got,), (want,) = (hlo_opt.evaluate(m, given) for m in (found, module))
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-2)
