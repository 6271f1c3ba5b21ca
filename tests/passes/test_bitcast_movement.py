"""What moves no byte: which reshapes, transposes and copies are bitcasts, and that values stay."""

from __future__ import annotations

import numpy as np
import pytest

import hlo_opt


def made(operand: str, result: str, operation: str) -> tuple[hlo_opt.Module, hlo_opt.Module]:
    text = f"HloModule m\n\nENTRY e {{\n  p = {operand} parameter(0)\n  x = {operand} negate(p)\n  y = {result} {operation}\n  ROOT z = {result} abs(y)\n}}\n"
    module = hlo_opt.parse(text)
    hlo_opt.verify(module)
    found, _ = hlo_opt.fuse(module, passes="bitcast-movement", simplify="never")
    hlo_opt.verify(found)
    return module, found


@pytest.mark.parametrize(
    ("operand", "result", "operation", "moves"),
    [
        ("f32[4,3]{1,0}", "f32[12]{0}", "reshape(x)", False),
        ("f32[4,3]{0,1}", "f32[12]{0}", "reshape(x)", True),
        ("f32[4,3]{0,1}", "f32[4,1,3]{0,2,1}", "reshape(x)", False),
        ("f32[4,3]{0,1}", "f32[4,1,3]{2,1,0}", "reshape(x)", True),
        ("f32[4,3]{1,0}", "f32[3,4]{0,1}", "transpose(x), dimensions={1,0}", False),
        ("f32[4,3]{1,0}", "f32[3,4]{1,0}", "transpose(x), dimensions={1,0}", True),
        ("f32[4,3]{0,1}", "f32[3,4]{1,0}", "transpose(x), dimensions={1,0}", False),
        ("f32[2,3,4]{2,1,0}", "f32[4,2,3]{0,2,1}", "transpose(x), dimensions={2,0,1}", False),
        ("f32[2,3,4]{2,1,0}", "f32[4,2,3]{2,1,0}", "transpose(x), dimensions={2,0,1}", True),
        ("f32[4,1]{1,0}", "f32[1,4]{1,0}", "transpose(x), dimensions={1,0}", False),
        ("f32[4,3]{1,0}", "f32[4,3]{1,0}", "copy(x)", False),
        ("f32[4,3]{1,0}", "f32[4,3]{0,1}", "copy(x)", True),
        ("f32[4,3]{1,0:S(5)}", "f32[12]{0}", "reshape(x)", True),
    ],
)
def test_what_moves_no_byte_is_a_bitcast(operand: str, result: str, operation: str, moves: bool) -> None:
    module, found = made(operand, result, operation)
    assert any(i.opcode == "bitcast" for i in found.entry.instructions) != moves
    sizes = module.entry.parameters[0].shape.dimensions
    given = np.arange(np.prod(sizes), dtype=np.float32).reshape(sizes)
    (want,), (got,) = hlo_opt.evaluate(module, [given]), hlo_opt.evaluate(found, [given])
    assert want.tobytes() == got.tobytes()


def handed_on(user: str) -> bool:
    """Whether a reshaped weight is a bitcast after the simplify stage's pass."""
    text = f"""HloModule m

ENTRY e {{
  x = f32[8,64] parameter(0)
  w = f32[1,64,64] parameter(1)
  v = f32[64,64] reshape(w)
  {user}
}}
"""
    module = hlo_opt.parse(text)
    made, _ = hlo_opt.fuse(module, passes="bitcast-movement{reshapes=false}", simplify="never")
    hlo_opt.verify(made)
    draw = np.random.default_rng(4)
    given = [draw.normal(size=p.shape.dimensions).astype(np.float32) for p in module.entry.parameters]
    (want,), (got,) = hlo_opt.evaluate(module, given), hlo_opt.evaluate(made, given)
    assert want.tobytes() == got.tobytes()
    return any(i.opcode == "bitcast" for i in made.entry.instructions)


def test_weights_that_no_kernel_reads_are_bitcasts() -> None:
    product = "dot(x, v), lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    assert handed_on(f"ROOT d = f32[8,64] {product}")
    assert not handed_on("ROOT d = f32[64,64] negate(v)")
    assert not handed_on("o = f32[64,64] negate(v)\n  ROOT d = (f32[64,64]) tuple(o)")
    terms = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    assert not handed_on(
        f"o = f32[64,64] negate(v)\n  d = f32[8,64] {product}\n  ROOT t = f32[8,64] dot(d, o), {terms}"
    )
    assert not handed_on("ROOT d = (f32[64,64]) tuple(v)")  # results have memory of their own


TWO_PRODUCTS = """HloModule m

ENTRY e {{
  x = f32[4,8,32] parameter(0)
  w = f32[32,32] parameter(1)
  q = f32[4,2,8,16] parameter(2)
  d = f32[4,8,32] dot(x, w), lhs_contracting_dims={{2}}, rhs_contracting_dims={{0}}
  r = f32[4,8,2,16] reshape(d)
  s = f32[4,2,8,8] dot(q, r), {how}
  {rest}
}}
"""
BATCHED = "lhs_batch_dims={0,1}, lhs_contracting_dims={3}, rhs_batch_dims={0,2}, rhs_contracting_dims={3}"
READ_TWICE = "n = f32[4,8,2,16] sine(r)\n  ROOT t = (f32[4,2,8,8], f32[4,8,2,16]) tuple(s, n)"


@pytest.mark.parametrize("rest", ["ROOT t = (f32[4,2,8,8]) tuple(s)", READ_TWICE])
def test_between_two_products_nothing_is_launched_for_a_reshape(rest: str) -> None:
    """Whether or not a kernel reads it, too."""
    module = hlo_opt.parse(TWO_PRODUCTS.format(how=BATCHED, rest=rest))
    fused, _ = hlo_opt.fuse(module)
    draw = np.random.default_rng(4)
    given = [draw.normal(size=p.shape.dimensions).astype(np.float32) for p in module.entry.parameters]
    for want, got in zip(hlo_opt.evaluate(module, given), hlo_opt.evaluate(fused, given), strict=True):
        np.testing.assert_array_equal(got, want)
    for i in fused.entry.instructions:
        assert i.opcode != "reshape"
        inside = {o.opcode for c in i.called() for o in c.instructions}
        assert not inside or inside & {"sine", "dot"}


STAGE = """HloModule m

k {
  x = f32[8,4] parameter(0)
  y = f32[8,4] parameter(1)
  a = f32[8,2,2] reshape(x)
  b = f32[8,2,2] reverse(a), dimensions={2}
  c = f32[8,4] reshape(b)
  d = f32[32] reshape(y)
  e = f32[8,4] reshape(d)
  f = f32[8,4] maximum(x, c)
  ROOT r = f32[8,4] add(f, e)
}

ENTRY e {
  p = f32[8,4] parameter(0)
  q = f32[8,4] parameter(1)
  ROOT s = f32[8,4] fusion(p, q), kind=kLoop, calls=k
}
"""


def test_in_a_kernel_what_is_read_in_another_way_too_is_a_bitcast() -> None:
    module = hlo_opt.parse(STAGE)
    found, _ = hlo_opt.fuse(module, passes="bitcast-movement{kernels=true}", simplify="never")
    hlo_opt.verify(found)
    (body,) = (c for c in found.computations if c is not found.entry)
    # `a` reads what `f` reads; `d` is the only reader of its operand
    assert [i.opcode for i in body.instructions if i.opcode in ("bitcast", "reshape")].count("bitcast") == 1
    given = [np.random.default_rng(2).normal(size=(8, 4)).astype(np.float32) for _ in range(2)]
    (want,), (got,) = hlo_opt.evaluate(module, given), hlo_opt.evaluate(found, given)
    assert want.tobytes() == got.tobytes()
    whole, _ = hlo_opt.fuse(hlo_opt.parse(STAGE))
    assert sum(i.opcode == "bitcast" for c in whole.computations for i in c.instructions) == 1
