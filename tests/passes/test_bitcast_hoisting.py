"""Bitcasts of what kernels update in place: which move in front of the kernel, and that nothing else changes."""

from __future__ import annotations

import numpy as np
import pytest

import hlo_opt
from hlo_opt.ir import Module

TEXT = """HloModule m

updates {
  c = f32[32]{0} parameter(0)
  b = f32[8,4]{1,0} bitcast(c)
  row = f32[1,4]{1,0} parameter(1)
  i = s32[] parameter(2)
  z = s32[] constant(0)
  OTHERS
  ROOT u = UPDATE
}

ENTRY e {
  cache = f32[32]{0} parameter(0)
  new = f32[1,4]{1,0} parameter(1)
  at = s32[] parameter(2)
  ROOT x = RESULT fusion(cache, new, at), kind=kLoop, calls=updates
}
"""
PLAIN = "f32[8,4]{1,0} dynamic-update-slice(b, row, i, z)"
INPUTS = (np.arange(32, dtype=np.float32), np.full((1, 4), -1, np.float32), np.int32(3))


def module_of(update: str = PLAIN, others: str = "", result: str = "f32[8,4]{1,0}") -> Module:
    text = TEXT.replace("UPDATE", update).replace("OTHERS", others).replace("RESULT", result)
    module = hlo_opt.parse(text)
    hlo_opt.verify(module)
    return module


def hoisted(module: Module) -> tuple[Module, bool]:
    """The module, and whether its entry has a bitcast now."""
    made, _ = hlo_opt.fuse(module, passes="bitcast-hoisting", simplify="never")
    hlo_opt.verify(made)
    return made, any(i.opcode == "bitcast" for i in made.entry.instructions)


def test_the_kernel_updates_its_operand() -> None:
    module = module_of()
    made, moved = hoisted(module)
    assert moved
    body = made.entry.root.called_by("calls")
    assert body.root.operands[0] is body.parameters[0]
    (want,), (got,) = (hlo_opt.evaluate(m, INPUTS) for m in (module, made))
    assert want.tobytes() == got.tobytes()
    (host,) = hlo_opt.compile(made, backend="host")(*INPUTS)
    assert host.tobytes() == want.tobytes()


def test_a_result_under_another_shape_is_an_update_too() -> None:
    update = "f32[32]{0} bitcast(v)"
    assert hoisted(module_of(update, others=f"v = {PLAIN}", result="f32[32]{0}"))[1]


@pytest.mark.parametrize(
    ("update", "others"),
    [
        ("f32[8,4]{1,0} negate(v)", f"v = {PLAIN}"),  # what is updated does not leave the kernel
        ("f32[8,4]{1,0} dynamic-update-slice(n, row, i, z)", "n = f32[8,4]{1,0} negate(b)"),
        (
            "f32[8,4]{1,0} dynamic-update-slice(b, w, i, z)",
            "s = f32[4]{0} slice(c), slice={[0:4]}\n  w = f32[1,4]{1,0} bitcast(s)",
        ),
        (
            "s32[8,4]{1,0} dynamic-update-slice(k, w, i, z)",
            "k = s32[8,4]{1,0} bitcast(b)\n  w = s32[1,4]{1,0} convert(row)",
        ),
    ],
)
def test_other_bitcasts_stay(update: str, others: str) -> None:
    result = update.split()[0]
    assert not hoisted(module_of(update, others, result))[1]
