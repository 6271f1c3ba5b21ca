"""What computes the library calls of the host backend is told by name."""

from __future__ import annotations

import pytest

import hlo_opt
from hlo_opt.runtime.host.library import has_compiler
from hlo_opt.runtime.host.words import blas

TEXT = """HloModule m
ENTRY e {
  p = f32[200,200] parameter(0)
  q = f32[4,20,3] parameter(1)
  u = f32[3,20,4] parameter(3)
  i = s64[9,9] parameter(2)
  d = f32[200,200] dot(p, p), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  g = f32[20,20] dot(q, u), lhs_contracting_dims={0,2}, rhs_contracting_dims={2,0}
  h = s64[9,9] dot(i, i), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  f = c64[200,101] fft(p), fft_type=RFFT, fft_length={200}
  n = f32[200,200] negate(d)
  ROOT r = (f32[200,200], f32[20,20], s64[9,9], c64[200,101]) tuple(n, g, h, f)
}
"""


@pytest.mark.skipif(not has_compiler(), reason="needs a C++ compiler")
def test_each_call_has_a_routine() -> None:
    report = hlo_opt.compile(hlo_opt.parse(TEXT), "host").report()
    assert report["library"] == {"dot": 3, "fft": 1} and not report["fallbacks"]
    assert report["routines"] == {
        "dot": sorted(["a product of the host's own (host_product.h)", "numpy.matmul", f"numpy.matmul ({blas()})"]),
        "fft": ["a transform of the host's own (host_transform.h)"],
    }
    assert blas()
