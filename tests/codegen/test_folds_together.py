"""Folds that take several elements of a thread at once: a maximum with the sum of exponentials below it takes one
exponential for each, in rows and in columns, with all that is not finite."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hlo_opt
from hlo_opt.ops.reduction.online import is_online, together
from hlo_opt.plans.instructions import of_fold

BOTH = """both {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  c = f32[] parameter(2)
  d = f32[] parameter(3)
  apart = f32[] subtract(a, c)
  size = f32[] abs(apart)
  down = f32[] negate(size)
  e = f32[] exponential(down)
  one = f32[] constant(1)
  same = pred[] compare(a, c), direction=EQ
  less = f32[] select(same, one, e)
  first = pred[] compare(a, c), direction=GE
  own = f32[] select(first, one, less)
  other = f32[] select(first, less, one)
  m1 = f32[] multiply(b, own)
  m2 = f32[] multiply(d, other)
  m = f32[] maximum(a, c)
  s = f32[] add(m1, m2)
  ROOT t = (f32[], f32[]) tuple(m, s)
}"""


def module(sizes: tuple[int, ...], dimension: int, kind: str = "f32", beside: bool = False, one: float = 1) -> str:
    """The logarithm of a sum of exponentials; with `beside` also the greatest of each line and of what it adds."""
    whole = ",".join(map(str, sizes))
    kept = ",".join(str(n) for d, n in enumerate(sizes) if d != dimension)
    also = f"most = f32[{kept}] reduce(x, low), dimensions={{{dimension}}}, to_apply=greatest" if beside else ""
    results = f"t = (f32[{kept}], f32[{kept}]) tuple(r, most)" if beside else f"t = (f32[{kept}]) tuple(r)"
    return f"""HloModule m

greatest {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] maximum(a, b)
}}

{BOTH}

ENTRY e {{
  given = {kind}[{whole}] parameter(0)
  x = f32[{whole}] convert(given)
  one = f32[] constant({one})
  ones = f32[{whole}] broadcast(one), dimensions={{}}
  low = f32[] constant(-inf)
  zero = f32[] constant(0)
  f = (f32[{kept}], f32[{kept}]) reduce(x, ones, low, zero), dimensions={{{dimension}}}, to_apply=both
  {also}
  m = f32[{kept}] get-tuple-element(f), index=0
  s = f32[{kept}] get-tuple-element(f), index=1
  finite = pred[{kept}] is-finite(m)
  power = f32[{kept}] exponential(m)
  sum = f32[{kept}] select(finite, s, power)
  log = f32[{kept}] log(sum)
  zeros = f32[{kept}] broadcast(zero), dimensions={{}}
  top = f32[{kept}] select(finite, m, zeros)
  r = f32[{kept}] add(log, top)
  ROOT {results}
}}
"""


def lines(sizes: tuple[int, ...], dimension: int, kind: str) -> Any:
    """Elements of which some lines begin with -inf, have nothing else, or hold an infinity or a NaN."""
    x = np.random.default_rng(5).standard_normal(sizes) * 20
    along = np.moveaxis(x, dimension, -1)
    along = along.reshape(-1, sizes[dimension]) if along.flags.c_contiguous else along[0] if along.ndim > 2 else along
    along[0, : sizes[dimension] * 2 // 3] = -np.inf
    along[1] = -np.inf
    along[2, sizes[dimension] // 2] = np.inf
    along[3, -1] = np.nan
    along[4] = -1000
    along[5] = np.linspace(-90, 90, sizes[dimension])
    return x.astype(hlo_opt.parse(module(sizes, dimension, kind)).entry.parameters[0].shape.type.dtype)


@pytest.mark.parametrize(
    ("sizes", "dimension", "kind", "beside"),
    [
        ((6, 4096), 1, "f32", False),
        ((7, 4099), 1, "bf16", True),
        ((6, 20_001), 1, "f16", False),
        ((300, 64), 1, "f32", True),
        ((4096, 64), 0, "f32", False),
        ((1027, 333), 0, "bf16", True),
        ((4099, 1000), 0, "f16", False),
        ((3, 513, 128), 1, "f32", False),
    ],
)
def test_lines_of_all_kinds(tool: Any, sizes: tuple[int, ...], dimension: int, kind: str, beside: bool) -> None:
    text, x = module(sizes, dimension, kind, beside), lines(sizes, dimension, kind)
    assert "together0" in tool.kernel(text).source
    got = tool.run(text, [x])
    wide = x.astype(np.float64)
    with np.errstate(all="ignore"):
        most = wide.max(dimension, keepdims=True)
        base = np.where(np.isfinite(most), most, 0)
        want = np.log(np.exp(wide - base).sum(dimension)) + base.squeeze(dimension)
    want[most.squeeze(dimension) == np.inf] = np.inf
    np.testing.assert_allclose(got[0].astype(np.float64), want, rtol=1e-5, atol=1e-5)
    if beside:
        np.testing.assert_array_equal(got[1], wide.max(dimension).astype(np.float32))


def test_other_folds_take_one_after_another(planner: Any) -> None:
    """Elements that count twice, and a reducer that only looks like it."""
    text = module((6, 4096), 1)
    for changed in (module((6, 4096), 1, one=2), text.replace("direction=GE", "direction=GT"),
                  text.replace("negate(size)", "abs(size)")):  # fmt: skip
        assert "together0" not in planner.kernel(changed).source
    assert "together0" in planner.kernel(text).source


def test_several_at_once_are_less_work() -> None:
    fold = next(i for i in hlo_opt.parse(module((6, 4096), 1)).entry.instructions if i.opcode == "reduce")
    assert together(fold) is not None and is_online(fold.called_by("to_apply"))
    one, four, eight = (of_fold(fold, count).slots for count in (1, 4, 8))
    assert one > four > eight > 8
