from __future__ import annotations

import numpy as np
import pytest

import hlo_opt
from hlo_opt.runtime.excess_precision import with_excess_precision
from hlo_opt.runtime.host import has_compiler

TEXT = """HloModule m

add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b)
}

sums {
  d = bf16[64,80]{1,0} parameter(0)
  t = bf16[80,64]{1,0} transpose(d), dimensions={1,0}
  c = f32[80,64]{1,0} convert(t)
  z = f32[] constant(0)
  ROOT r = f32[80]{0} reduce(c, z), dimensions={1}, to_apply=add
}

ENTRY e {
  p = bf16[64,16]{1,0} parameter(0)
  q = bf16[16,80]{1,0} parameter(1)
  d = bf16[64,80]{1,0} dot(p, q), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  r = f32[80]{0} fusion(d), kind=kLoop, calls=sums
  ROOT t = (f32[80]{0}) tuple(r)
}
"""


def test_a_product_that_is_summed_is_not_rounded_before() -> None:
    original = hlo_opt.parse(TEXT)
    widened = with_excess_precision(original)
    hlo_opt.verify(widened)
    given = [np.random.default_rng(k).normal(size=s).astype("bfloat16") for k, s in enumerate(((64, 16), (16, 80)))]
    rounded, ours, exact = (
        hlo_opt.evaluate(original, given, as_xla_cpu=False)[0],
        hlo_opt.evaluate(widened, given, as_xla_cpu=False)[0],
        (given[0].astype(np.float64) @ given[1].astype(np.float64)).sum(axis=0),
    )
    assert np.abs(ours - exact).max() < 1e-4 < np.abs(rounded - exact).max()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("(f32[80]{0}) tuple(r)", "(f32[80]{0}, bf16[64,80]{1,0}) tuple(r, d)"),
        ("f32[80,64]{1,0} convert(t)\n", "f32[80,64]{1,0} convert(t)\n  n = bf16[80,64]{1,0} negate(t)\n"),
        ("dimensions={1}, to_apply=add", "dimensions={1}, to_apply=most"),
    ],
)
def test_one_that_is_read_otherwise_stays_as_it_is(before: str, after: str) -> None:
    most = "most {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT r = f32[] maximum(a, b)\n}\n\nsums {"
    original = hlo_opt.parse(TEXT.replace("sums {", most).replace(before, after))
    assert with_excess_precision(original) is original


@pytest.mark.skipif(not has_compiler(), reason="needs a C++ compiler")
def test_kernels_have_it_where_they_do_as_xla_cpu() -> None:
    original = hlo_opt.parse(TEXT)
    given = [np.random.default_rng(k).normal(size=s).astype("bfloat16") for k, s in enumerate(((64, 16), (16, 80)))]
    np.testing.assert_allclose(
        hlo_opt.compile(original, "host")(*given)[0], hlo_opt.evaluate(original, given)[0], rtol=1e-4, atol=1e-4
    )
