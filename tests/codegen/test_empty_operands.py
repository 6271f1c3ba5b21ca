"""Operands without elements: nothing is read of them."""

from __future__ import annotations

from typing import Any

import numpy as np

ROWS = """HloModule m

ENTRY e {
  p = TYPE[0,2]{1,0} parameter(0)
  i = s32[3]{0} parameter(1)
  ROOT g = TYPE[3,2]{1,0} gather(p, i), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={0,2}
}
"""


def test_a_gather_of_no_rows_gives_zeros(tool: Any) -> None:
    for element_type in ("f32", "bf16", "c64", "pred", "s4"):
        text = ROWS.replace("TYPE", element_type)
        kernel = tool.kernel(text)
        assert "in0[" not in kernel.source
        shape = kernel.inputs[0]
        found = tool.run(text, [np.zeros((0, 2), shape.type.dtype), np.array([0, 1, 2], np.int32)])[0]
        assert not found.astype(np.complex128).any()


def test_a_gather_by_no_indices_gives_nothing(tool: Any) -> None:
    text = """HloModule m

ENTRY e {
  p = c64[10]{0} parameter(0)
  q = s32[1]{0} parameter(1)
  s = s32[0]{0} slice(q), slice={[0:0]}
  i = s32[0,0]{1,0} reshape(s)
  ROOT g = c64[1,0]{1,0} gather(p, i), offset_dims={0}, collapsed_slice_dims={}, start_index_map={}, index_vector_dim=0, slice_sizes={1}
}
"""
    assert tool.run(text, [np.zeros(10, np.complex64), np.zeros(1, np.int32)])[0].shape == (1, 0)
