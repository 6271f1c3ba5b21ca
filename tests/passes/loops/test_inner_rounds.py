"""Loops in a round of a loop: which are unrolled, into what, and that the values stay."""

from __future__ import annotations

import numpy as np
import pytest

import hlo_opt
from hlo_opt.ops.sets import looped

PASSES = "while-loop-unroller{inner=true},cse,dce"
STATE = "(s32[], f32[64], f32[4,64], f32[4,64])"
CELL = """
  row = f32[1,64] dynamic-slice(xs, i, zero), dynamic_slice_sizes={1,64}
  x = f32[64] reshape(row)
  y = f32[64] add(c, x)
  new = f32[1,64] reshape(y)
  written = f32[4,64] dynamic-update-slice(ys, new, i, zero)
"""
MODULE = """HloModule m

less {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = pred[] compare(a, b), direction=LT
}

cell {
  s = %(state)s parameter(0)
  i = s32[] get-tuple-element(s), index=0
  c = f32[64] get-tuple-element(s), index=1
  ys = f32[4,64] get-tuple-element(s), index=2
  xs = f32[4,64] get-tuple-element(s), index=3
  zero = s32[] constant(0)
  one = s32[] constant(1)
  next = s32[] add(i, one)
%(cell)s
  ROOT t = %(state)s tuple(next, y, written, xs)
}

more {
  s = %(state)s parameter(0)
  i = s32[] get-tuple-element(s), index=0
  limit = s32[] constant(%(cells)d)
  ROOT c = pred[] compare(i, limit), direction=LT
}

round {
  s = (s32[], f32[4,64]) parameter(0)
  n = s32[] get-tuple-element(s), index=0
  x = f32[4,64] get-tuple-element(s), index=1
  zero = s32[] constant(0)
  one = s32[] constant(1)
  next = s32[] add(n, one)
  nothing = f32[] constant(0.5)
  first = f32[64] broadcast(nothing), dimensions={}
  t = %(state)s tuple(zero, first, x, x)
  w = %(state)s while(t), condition=more, body=cell
  y = f32[4,64] get-tuple-element(w), index=2
  half = f32[4,64] broadcast(nothing), dimensions={}
  z = f32[4,64] multiply(y, half)
  ROOT r = (s32[], f32[4,64]) tuple(next, z)
}

again {
  s = (s32[], f32[4,64]) parameter(0)
  n = s32[] get-tuple-element(s), index=0
  limit = s32[] constant(5)
  ROOT c = pred[] compare(n, limit), direction=LT
}

ENTRY e {
  p = f32[4,64] parameter(0)
  zero = s32[] constant(0)
  t = (s32[], f32[4,64]) tuple(zero, p)
  w = (s32[], f32[4,64]) while(t), condition=again, body=round
  ROOT x = f32[4,64] get-tuple-element(w), index=1
}
"""


def parsed(cell: str = CELL, cells: int = 4) -> hlo_opt.Module:
    return hlo_opt.parse(MODULE % {"state": STATE, "cell": cell, "cells": cells})


def inner(module: hlo_opt.Module) -> hlo_opt.Instruction | None:
    """The loop in the round of the outer loop."""
    (outer,) = (i for i in module.entry.instructions if looped(i) is not None)
    return next((i for i in outer.called_by("body").instructions if looped(i) is not None), None)


def opcodes(module: hlo_opt.Module) -> list[str]:
    (outer,) = (i for i in module.entry.instructions if looped(i) is not None)
    return [i.opcode for i in outer.called_by("body").instructions]


def same_values(module: hlo_opt.Module, other: hlo_opt.Module) -> None:
    x = np.linspace(-1, 1, 256, dtype=np.float32).reshape(4, 64)
    for want, got in zip(hlo_opt.evaluate(module, [x]), hlo_opt.evaluate(other, [x]), strict=True):
        np.testing.assert_array_equal(got, want)


def test_rounds_within_a_round_stand_one_after_another() -> None:
    module = parsed()
    unrolled, _ = hlo_opt.fuse(module, passes=PASSES, simplify="never")
    hlo_opt.verify(unrolled)
    found = opcodes(unrolled)
    assert inner(unrolled) is None and found.count("add") == 4 + 1 and found.count("slice") == 4
    assert found.count("concatenate") == 1 and not {"dynamic-slice", "dynamic-update-slice"} & set(found)
    same_values(module, unrolled)


def test_what_rounds_wrote_is_read_from_its_part() -> None:
    """Each cell reads what the one before wrote; the first reads what was there, as indices are clamped."""
    cell = CELL.replace("dynamic-slice(xs, i, zero)", "dynamic-slice(ys, before, zero)")
    module = parsed(f"  before = s32[] subtract(i, one)\n{cell}")
    unrolled, _ = hlo_opt.fuse(module, passes=PASSES, simplify="never")
    assert inner(unrolled) is None and opcodes(unrolled).count("slice") == 1
    same_values(module, unrolled)


def test_one_kernel_does_all_rounds() -> None:
    module = parsed()
    fused, _ = hlo_opt.fuse(module)
    assert [i.opcode for i in fused.entry.instructions] == ["parameter", "fusion"]
    x = np.linspace(-1, 1, 256, dtype=np.float32).reshape(4, 64)
    for backend in ("numpy", "host"):
        (want,), got = hlo_opt.evaluate(module, [x]), hlo_opt.compile(fused, backend=backend)(x)
        np.testing.assert_array_equal(got[0], want)


def test_the_innermost_rounds_come_first() -> None:
    """A cell has a loop of its own; then the loop over cells is written out."""
    deep = """
deeper {
  s = (s32[], f32[64]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  v = f32[64] get-tuple-element(s), index=1
  one = s32[] constant(1)
  next = s32[] add(i, one)
  a = f32[64] sine(v)
  ROOT t = (s32[], f32[64]) tuple(next, a)
}

short {
  s = (s32[], f32[64]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  limit = s32[] constant(3)
  ROOT c = pred[] compare(i, limit), direction=LT
}

cell {"""
    inside = "  t0 = (s32[], f32[64]) tuple(zero, x)\n  w0 = (s32[], f32[64]) while(t0), condition=short, body=deeper\n"
    inside += "  v = f32[64] get-tuple-element(w0), index=1\n  y = f32[64] add(c, v)"
    text = MODULE.replace("cell {", deep, 1) % {
        "state": STATE,
        "cell": CELL.replace("  y = f32[64] add(c, x)", inside),
        "cells": 4,
    }
    module = hlo_opt.parse(text)
    unrolled, _ = hlo_opt.fuse(module, passes=PASSES, simplify="never")
    assert inner(unrolled) is None and opcodes(unrolled).count("sine") == 12
    same_values(module, unrolled)


@pytest.mark.parametrize(
    ("cell", "cells"),
    [
        (CELL, 65),
        (CELL.replace("y = f32[64] add(c, x)", "y = f32[64] sort(x), dimensions={0}, to_apply=less"), 4),
    ],
    ids=["long", "sorted"],
)
def test_other_loops_stay(cell: str, cells: int) -> None:
    """Too many rounds, or a round that no kernel of all rounds could have."""
    module = parsed(cell, cells)
    unrolled, _ = hlo_opt.fuse(module, passes=PASSES, simplify="never")
    assert inner(unrolled) is not None
