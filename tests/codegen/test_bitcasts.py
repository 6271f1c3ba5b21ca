"""Kernels with bitcasts to types of another width, or of the same width that means something else: as evaluation says,
and compiled by NVRTC."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hlo_opt
from hlo_opt.runtime.host.library import has_compiler

BODIES = {
    "complex to floats": """  p = c64[4,8] parameter(0)
  n = c64[4,8] negate(p)
  b = f32[8,8] bitcast(n)
  ROOT r = f32[8,8] abs(b)
""",
    "floats to complex, column by column": """  p = f32[8,8]{0,1} parameter(0)
  n = f32[8,8]{0,1} negate(p)
  b = c64[32] bitcast(n)
  ROOT r = c64[32] add(b, b)
""",
    "complex to integers": """  p = c64[32] parameter(0)
  n = c64[32] negate(p)
  b = u64[32] bitcast(n)
  ROOT r = u64[32] not(b)
""",
    "half bytes to words": """  p = s4[16] parameter(0)
  n = s4[16] negate(p)
  b = s16[4] bitcast(n)
  ROOT r = s16[4] not(b)
""",
    "words to half bytes": """  p = s16[4,4]{0,1} parameter(0)
  n = s16[4,4]{0,1} not(p)
  b = s4[64] bitcast(n)
  ROOT r = s4[64] negate(b)
""",
    "halves joined across dimensions": """  p = bf16[4,6]{0,1} parameter(0)
  n = bf16[4,6]{0,1} negate(p)
  b = f32[3,4]{0,1} bitcast(n)
  ROOT r = f32[3,4]{0,1} abs(b)
""",
    "bytes to floats and back": """  p = s8[16,4] parameter(0)
  q = s8[16,4] not(p)
  b = f32[16] bitcast(q)
  n = f32[16] abs(b)
  c = u8[16,4] bitcast(n)
  ROOT r = u8[16,4] add(c, c)
""",
    "an update in memory of another type": """  p = s32[64,8] parameter(0)
  u = f32[2,8] parameter(1)
  k = s32[] parameter(2)
  z = s32[] constant(0)
  b = f32[64,8] bitcast(p)
  n = f32[2,8] negate(u)
  ROOT r = f32[64,8] dynamic-update-slice(b, n, k, z)
""",
    "an update that leaves as another type": """  p = s32[64,8] parameter(0)
  u = f32[2,8] parameter(1)
  k = s32[] parameter(2)
  z = s32[] constant(0)
  b = f32[64,8] bitcast(p)
  n = f32[2,8] negate(u)
  d = f32[64,8] dynamic-update-slice(b, n, k, z)
  ROOT r = s32[512] bitcast(d)
""",
}


def module(name: str) -> str:
    return f"HloModule m\n\nENTRY e {{\n{BODIES[name]}}}\n"


def test_kernels_agree_with_evaluation(tool: Any) -> None:
    tool.all_agree([module(name) for name in BODIES])


SCATTERED = """HloModule m

add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b)
}

ENTRY e {
  p = s32[40] parameter(0)
  i = s32[7,1] parameter(1)
  u = f32[7] parameter(2)
  b = f32[40] bitcast(p)
  ROOT r = f32[40] scatter(b, i, u), update_window_dims={}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=add
}
"""


@pytest.mark.skipif(not has_compiler(), reason="needs a C++ compiler")
def test_a_scatter_into_memory_of_another_type(planner: Any) -> None:
    scattered = hlo_opt.parse(SCATTERED)
    inputs = [
        np.arange(40, dtype=np.float32).view(np.int32),
        np.array([[3], [8], [3], [0], [39], [3], [12]], np.int32),
        np.linspace(-1, 1, 7, dtype=np.float32),
    ]
    fused, _ = hlo_opt.fuse(scattered)
    (got,) = hlo_opt.compile(fused, "host")(*inputs)
    np.testing.assert_allclose(got, hlo_opt.evaluate(scattered, inputs)[0], rtol=1e-6)


BITS_OF_NANS = """HloModule m

ENTRY e {
  h = bf16[8] parameter(0)
  x = u16[8] parameter(1)
  w = u32[4] parameter(2)
  pairs = bf16[4,2] reshape(h)
  a = u16[8] bitcast-convert(h)
  b = bf16[8] bitcast-convert(x)
  c = bf16[4,2] bitcast-convert(w)
  d = u32[4] bitcast-convert(pairs)
  ROOT r = (u16[8], bf16[8], bf16[4,2], u32[4]) tuple(a, b, c, d)
}
"""


@pytest.mark.skipif(not has_compiler(), reason="needs a C++ compiler")
@pytest.mark.parametrize("form", ["lanes", "plain"])
def test_a_bf16_that_is_read_as_an_integer_keeps_the_bits_of_a_nan(form: Any) -> None:
    import ml_dtypes

    bits = np.array([0x7FC0, 0xFFC0, 0x7F81, 0xFF81, 0, 0x8000, 0x7FFF, 0x3F80], np.uint16)
    fused, _ = hlo_opt.fuse(BITS_OF_NANS)
    got = hlo_opt.compile(fused, "host", form=form)(bits.view(ml_dtypes.bfloat16), bits, bits.view(np.uint32))
    assert [array.tobytes() for array in got] == [bits.tobytes()] * 4
