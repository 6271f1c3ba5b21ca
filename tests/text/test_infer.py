from __future__ import annotations

import pytest

import hlo_opt
from hlo_opt.diag import ParseError

HEAD = """HloModule m
id { a = f32[2,3]{0,1} parameter(0) ROOT s = f32[2,3]{0,1} negate(a) }
co { a = f32[2,3]{0,1} parameter(0) ROOT s = pred[] constant(true) }
ENTRY e {
  p = f32[2,3]{0,1} parameter(0)
  q = f32[2,3]{1,0} parameter(1)
  b = pred[2,3]{1,0} parameter(2)
  k = f32[] constant(0)
  t = pred[] constant(true)
"""
IMPLIED = [
    "negate(p)",
    "add(p, q)",
    "add(q, p)",
    "select(b, p, q)",
    "compare(p, p), direction=EQ",
    "clamp(p, q, p)",
    "clamp(k, p, k)",
    "tuple(p, q)",
    "transpose(p), dimensions={1,0}",
    "concatenate(p, p), dimensions={0}",
    "pad(p, k), padding=0_1x0_1",
    "reverse(p), dimensions={0}",
    "copy(p)",
    "call(p), to_apply=id",
    "while(p), body=id, condition=co",
    "conditional(t, p, p), true_computation=id, false_computation=id",
    "dot(p, p), lhs_contracting_dims={1}, rhs_contracting_dims={1}",
    "complex(p, p)",
    "is-finite(p)",
    "partition-id()",
    "after-all()",
]


@pytest.mark.parametrize("rest", IMPLIED)
def test_shapes_and_layouts_are_those_that_xla_infers(rest):
    hlo = pytest.importorskip("jaxlib._hlo")
    text = f"{HEAD}  ROOT r = {rest}\n}}\n"

    def canonical(t):
        return hlo.hlo_module_from_text(t).to_string(hlo.HloPrintOptions())

    assert canonical(str(hlo_opt.parse(text))) == canonical(text)


@pytest.mark.parametrize(
    "rest", ["convert(p)", "reshape(p)", "iota(), iota_dimension=0", "fusion(p), kind=kLoop, calls=id", "frobnicate(p)"]
)
def test_shapes_that_are_not_implied_must_be_written(rest):
    with pytest.raises(ParseError, match="write it before the opcode") as caught:
        hlo_opt.parse(f"{HEAD}  ROOT r = {rest}\n}}\n")
    assert (caught.value.line, caught.value.column) == (10, 12)


def test_send_and_recv_done_take_their_shape_from_the_operand():
    module = hlo_opt.parse(
        "HloModule m\nENTRY e { k = token[] after-all() r = (f32[4], u32[], token[]) recv(k), channel_id=1"
        " ROOT d = (f32[9], token[]) recv-done(r), channel_id=1 }"
    )
    assert str(module.entry.root.shape) == "(f32[4], token[])"
