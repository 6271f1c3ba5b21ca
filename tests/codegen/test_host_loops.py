"""Kernels whose threads meet: as loops they give what fibres give, and what loops cannot follow is left to fibres."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hlo_opt.codegen import host_source
from hlo_opt.codegen.host_source import as_loops
from hlo_opt.codegen.kernel import Kernel
from hlo_opt.ir import ELEMENT_TYPES, array
from hlo_opt.plans.plan import Launch
from hlo_opt.runtime.host.library import HostLibrary, has_compiler

F32 = ELEMENT_TYPES["f32"]


def kernel(symbol: str, body: str, block: int = 64, size: int = 256) -> Kernel:
    shape = array(F32, size)
    source = f'extern "C" __global__ void {symbol}(\n    const float* __restrict__ in0,\n    float* __restrict__ out0) {{\n{body}\n}}\n'
    return Kernel(symbol, source, Launch(size // block, block), (shape,), (shape,), "test")


HERE = "const int i = blockIdx.x * blockDim.x + threadIdx.x;\n"

BODIES = {
    "fold": HERE
    + """float total = in0[i];
for (int distance = 16; distance > 0; distance /= 2) {
  const float other = __shfl_down_sync(0xffffffffu, total, distance);
  total = total + other;
}
__shared__ float partial[2];
if (threadIdx.x % 32 == 0) {
  partial[threadIdx.x / 32] = total;
}
__syncthreads();
out0[i] = partial[0] - partial[1];""",
    "strided": """const int lane = threadIdx.x % 32;
float total = 0.0f;
for (int column = lane; column < 77; column += 32) {
  const float x = in0[blockIdx.x * 64 + column];
  total = total + x;
}
const float shown = __shfl_xor_sync(0xffffffffu, total, 5);
out0[blockIdx.x * 64 + threadIdx.x] = shown;""",
    "leaves": HERE
    + """if (threadIdx.x >= 40) return;
__shared__ float box[64];
box[threadIdx.x] = in0[i];
__syncthreads();
out0[i] = box[39 - threadIdx.x];""",
    "votes": HERE
    + """const bool mine = in0[i] > 0.5f;
const unsigned int found = __ballot_sync(0xffffffffu, mine);
const int some = __any_sync(0xffffffffu, in0[i] > 2.0f);
const int every = __all_sync(0x0000000fu, mine);
out0[i] = (float)(found & 0xffffffu) + (float)some * 0.5f + (float)every * 0.25f;""",
    "uniform": """if (blockIdx.x < 2u) {
  const int j = blockIdx.x * 64 + threadIdx.x;
  __shared__ float first[64];
  first[threadIdx.x] = in0[j];
  __syncthreads();
  out0[j] = first[63 - threadIdx.x];
}
if (blockIdx.x >= 2u) {
  const int k = blockIdx.x * 64 + threadIdx.x;
  out0[k] = in0[k] * 2.0f;
}""",
    "partial_warp": """const int i = blockIdx.x * 50 + threadIdx.x;
__shared__ float box[50];
box[threadIdx.x] = in0[i];
__syncthreads();
out0[i] = box[(threadIdx.x + 7) % 50];""",
}


def run(made: Kernel) -> np.ndarray[Any, Any]:
    size = made.inputs[0].element_count
    data = np.random.default_rng(0).random(size + 64).astype(np.float32)
    out = np.full(size, -1, np.float32)
    HostLibrary([made]).launch(made, [data], [out])
    return out


@pytest.mark.skipif(not has_compiler(), reason="no C++ compiler")
@pytest.mark.parametrize("name", list(BODIES))
def test_loops_give_what_fibres_give(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = kernel(name, BODIES[name], *((50, 250) if name == "partial_warp" else ()))
    assert as_loops(made) is not None
    loops = run(made)
    monkeypatch.setattr(host_source, "loops_of", lambda *arguments: None)
    np.testing.assert_array_equal(loops, run(made))


@pytest.mark.parametrize(
    "body",
    [
        # a loop that is another for each thread, with a meeting
        "for (int k = 0; k < threadIdx.x; k += 1) {\n  __syncwarp();\n}\nout0[0] = 1;",
        # a meeting under a thread's own condition
        "float x = in0[0];\nif (x > 0.5f) {\n  x = __shfl_sync(0xffffffffu, x, 0);\n}\nout0[0] = x;",
        # two names that are alike
        "float x = in0[0];\n__syncthreads();\nif (blockIdx.x < 1u) {\n  float x = 2;\n  __syncthreads();\n  out0[0] = x;\n}",
        # several statements on a line
        "{ float x = in0[0]; __syncthreads(); out0[0] = x; }",
        # a return out of nested statements
        "__syncthreads();\nif (in0[0] > 0) {\n  out0[0] = 1;\n  return;\n}\nout0[1] = 2;",
        # two shuffles in a statement
        "float x = in0[0];\nx = __shfl_sync(~0u, x, 0) + __shfl_sync(~0u, x, 1);\nout0[0] = x;",
        # memory of a size that only the launch knows
        "extern __shared__ float box[];\nbox[threadIdx.x] = in0[0];\n__syncthreads();\nout0[0] = box[0];",
    ],
)
def test_what_loops_cannot_follow_is_left_to_fibres(body: str) -> None:
    assert as_loops(kernel("left", body)) is None


def test_threads_that_do_not_meet_need_no_loops() -> None:
    assert as_loops(kernel("plain", f"{HERE}out0[i] = in0[i];")) is None


def test_neighbours_stay_neighbours() -> None:
    """A strided loop runs around the threads, whose index is taken apart at whole warps, so that vectors load from one place."""
    text = as_loops(kernel("strided", BODIES["strided"]))
    assert text is not None
    assert "const long long column = lane + hlo_base0;" in text
    assert "for (long long hlo_base0 = 0; hlo_base0 < 64; hlo_base0 += 32)" in text
    assert "(hlo_first % 32 + hlo_lane)" in text
