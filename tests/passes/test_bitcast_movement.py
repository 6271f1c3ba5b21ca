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
