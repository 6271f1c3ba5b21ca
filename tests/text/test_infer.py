from __future__ import annotations

import itertools
import re

import pytest
from opcode_samples import SAMPLES, Sample

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


NOT_IMPLIED = {"broadcast", "constant", "parameter"}
"""Whose shape XLA guesses (a broadcast without a shape is empty), or takes as it is written."""
TAILS = ("", ":S(5)", ":E(4)", ":T(8,128)S(1)")


def lying(shape: str, order: int, tail: str) -> str:
    """The text of a shape with every array's layout written: the last dimension first, or the first."""

    def written(found: re.Match[str]) -> str:
        name, sizes = found[1], [size for size in found[2].split(",") if size]
        if not sizes or name == "token":
            return found[0]
        numbers = range(len(sizes)) if order else range(len(sizes) - 1, -1, -1)
        return f"{name}[{found[2]}]{{{','.join(map(str, numbers))}{tail}}}"

    return re.sub(r"(\w+)\[([^\]]*)\]", written, shape)


@pytest.mark.parametrize("opcode", sorted(SAMPLES.keys() - NOT_IMPLIED))
def test_the_layout_of_every_opcode_is_that_which_xla_infers(opcode: str):
    """Each operand in two orders, and one after the other with something behind the order."""
    hlo = pytest.importorskip("jaxlib._hlo")
    sample = SAMPLES[opcode]
    count = len(sample.operands)
    ways = [[(order, "")] * count for order in (0, 1)]
    ways += [[(n % 2, "") for n in range(count)], [(1 - n % 2, "") for n in range(count)]]
    ways += [
        [(0, tail if n == k else "") for n in range(count)] for k, tail in itertools.product(range(count), TAILS[1:])
    ]
    ways += [[(1, tail)] * count for tail in TAILS]
    if all(shape.startswith("s32") for shape in sample.operands):
        sample = Sample(opcode, tuple(s.replace("s32", "s4") for s in sample.operands), "", sample.attributes)
    for way in ways:
        given = [lying(shape, *how) for shape, how in zip(sample.operands, way, strict=True)]
        text = Sample(opcode, tuple(given), "", sample.attributes).module()
        try:
            expected = hlo.hlo_module_from_text(text).to_string(hlo.HloPrintOptions())
        except Exception:  # XLA does not infer it, or not for such operands
            continue
        found = hlo.hlo_module_from_text(str(hlo_opt.parse(text))).to_string(hlo.HloPrintOptions())
        assert found.splitlines()[-3:] == expected.splitlines()[-3:], text


@pytest.mark.parametrize("choice", ["pred[8]{0}", "pred[8]{0:S(5)}", "pred[8]{0:E(8)}", "pred[]"])
@pytest.mark.parametrize("tail", TAILS[:3])
@pytest.mark.parametrize(
    "opcode", ["select(p0, p1, p2)", "compare(p1, p2), direction=EQ", "add(p1, p2)", "negate(p1)", "clamp(p2, p1, p2)"]
)
def test_packed_elements_stay_packed(choice: str, tail: str, opcode: str):
    hlo = pytest.importorskip("jaxlib._hlo")
    operands = (choice, f"s4[8]{{0{tail}}}", "s4[8]{0}")
    parameters = "".join(f"  p{k} = {shape} parameter({k})\n" for k, shape in enumerate(operands))
    text = f"HloModule m\n\nENTRY e {{\n{parameters}  ROOT r = {opcode}\n}}\n"
    expected = hlo.hlo_module_from_text(text).to_string(hlo.HloPrintOptions())
    assert hlo.hlo_module_from_text(str(hlo_opt.parse(text))).to_string(hlo.HloPrintOptions()) == expected
