"""What the host makes of kernels whose threads do not meet."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hlo_opt.codegen.host_source import is_ordered, lanes_unit
from hlo_opt.codegen.kernel import Kernel
from hlo_opt.ir import ELEMENT_TYPES, array
from hlo_opt.plans.plan import Launch
from hlo_opt.runtime.host.library import HostLibrary, has_compiler

SEGMENTS = """  if (blockIdx.x >= 0u && blockIdx.x < 2u) {
    const int i = blockIdx.x * 64 + threadIdx.x;
    if (i >= 100) return;
    out0[i] = in0[i] + 1.0f;
  }
  if (blockIdx.x >= 2u && blockIdx.x < 4u) {
    const int j = (blockIdx.x - 2) * 64 + threadIdx.x;
    if (j >= 70) return;
    out0[100 + j] = in0[100 + j] * 2.0f;
  }"""


def kernel(symbol: str, body: str, blocks: int = 4) -> Kernel:
    shape = array(ELEMENT_TYPES["f32"], 170)
    source = f'extern "C" __global__ void __launch_bounds__(64) {symbol}(\n    const float* __restrict__ in0,\n    float* __restrict__ out0) {{\n{body}\n}}\n'
    return Kernel(symbol, source, Launch(blocks, 64), (shape,), (shape,), "loop")


def run(made: Kernel) -> np.ndarray[Any, Any]:
    data, out = np.arange(170, dtype=np.float32), np.full(170, -1, np.float32)
    HostLibrary([made]).launch(made, [data], [out])
    return out


@pytest.mark.skipif(not has_compiler(), reason="no C++ compiler")
@pytest.mark.parametrize("tail", ["", "\n  (void)in0;"], ids=["cut", "whole"])
def test_segments_are_functions_of_their_own(tail: str) -> None:
    made = kernel("segments" if not tail else "one_piece", SEGMENTS + tail)
    assert ("segments_thread_1(" in lanes_unit([made])) == (not tail)
    want = np.arange(170, dtype=np.float32)
    np.testing.assert_array_equal(run(made), np.where(want < 100, want + 1, want * 2))


@pytest.mark.skipif(not has_compiler(), reason="no C++ compiler")
def test_atomic_updates_of_one_place_are_all_done() -> None:
    body = "  atomicAdd(out0, in0[blockIdx.x * 64 + threadIdx.x]);"
    made = kernel("sum", body, 2)
    assert is_ordered(made) and "omp simd" not in lanes_unit([made]).split("namespace kernel_0")[1]
    assert run(made)[0] == np.arange(128).sum() - 1
