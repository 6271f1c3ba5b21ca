"""The plain form of kernels: the text is what is emitted, and what CUDA does not allow is a finding."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import hlo_opt
from hlo_opt.codegen.host_plain import plain_unit, watched_unit
from hlo_opt.codegen.kernel import Kernel
from hlo_opt.diag import BackendError, CheckError
from hlo_opt.ir import ELEMENT_TYPES, array
from hlo_opt.plans.plan import Launch, Plan
from hlo_opt.runtime.check.compare import check
from hlo_opt.runtime.host.library import HostLibrary, has_compiler
from hlo_opt.runtime.schedule import lowering
from tests.written_kernels import of_text

pytestmark = pytest.mark.skipif(not has_compiler(), reason="no C++ compiler")

F32 = ELEMENT_TYPES["f32"]
HERE = "const int i = blockIdx.x * blockDim.x + threadIdx.x;"

SORTED = """HloModule m

before { a = s32[] parameter(0)
  b = s32[] parameter(1)
  ROOT c = pred[] compare(a, b), direction=LT }

ENTRY e {
  x = s32[8,40] parameter(0)
  ROOT sorted = s32[8,40] sort(x), dimensions={1}, to_apply=before
}
"""

PADDED = """HloModule m

ENTRY e {
  p = f32[1024,500] parameter(0)
  z = f32[] constant(-3)
  ROOT d = f32[1024,512] pad(p, z), padding=0_0x4_8
}
"""


def changed(monkeypatch: pytest.MonkeyPatch, change: Callable[[str], str]) -> None:
    """Kernels get another text under the same symbol."""
    emit = lowering.emit_kernel

    def emitted(plan: Plan) -> Kernel:
        made = emit(plan)
        source = change(made.source)
        assert source != made.source
        return replace(made, source=source)

    monkeypatch.setattr(lowering, "emit_kernel", emitted)


@pytest.mark.parametrize(
    ("text", "old", "new"),
    [
        (SORTED, "swap ? taken_2 : taken;", "swap ? taken : taken_2;"),
        (PADDED, "return (first < 0 ?", "return (T)0; return (first < 0 ?"),
    ],
)
def test_check_sees_what_only_a_gpu_would_compute(
    text: str, old: str, new: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = hlo_opt.parse(text)
    assert check(module, module, backend="host").ok
    changed(monkeypatch, lambda source: source.replace(old, new))
    assert not check(module, module, backend="host").ok


@pytest.mark.parametrize("unit", [plain_unit, watched_unit])
def test_the_text_is_unchanged(unit: Any, planner: Any) -> None:
    for text in (SORTED, PADDED):
        kernel = planner.kernel(text)
        assert kernel.source in unit([kernel])


def kernel(symbol: str, body: str, block: int = 64, grid: int = 1, before: str = "") -> Kernel:
    shape = array(F32, grid * block)
    source = (
        f'{before}extern "C" __global__ void {symbol}(const float* __restrict__ in0, float* __restrict__ out0) '
        f"{{\n{body}\n}}\n"
    )
    return of_text(symbol, source, Launch(grid, block), [shape], [shape])


def run(made: Kernel) -> np.ndarray[Any, Any]:
    data = np.arange(made.inputs[0].element_count, dtype=np.float32)
    out = np.zeros_like(data)
    HostLibrary([made], form="plain").launch(made, [data], [out])
    return out


@pytest.mark.parametrize(
    ("symbol", "body", "found"),
    [
        ("two_places", "if (threadIdx.x < 32)\n __syncthreads();\nelse\n "
                       "__syncthreads();", r"wait at different places \(__syncthreads\)"),
        ("some_lanes", "if (threadIdx.x % 2) __shfl_sync(0xffffffffu, 1, "
                       "0);\n__syncthreads();", r"wait at different places \(a warp\)"),
        ("not_in_mask", "__shfl_down_sync(1u, 1, 1);", r"thread 1 is not in the mask that it gives"),
        ("misaligned", "atomicAdd((unsigned int*)((char*)out0 + 1), 1u);", "an atomic operation on 4 bytes"),
    ],
)  # fmt: skip
def test_findings(symbol: str, body: str, found: str) -> None:
    with pytest.raises(CheckError, match=rf"the kernel {symbol}: .*{found}") as caught:
        run(kernel(symbol, body))
    assert caught.value.code == "HLO721"


def test_nothing_comes_from_lanes_that_are_not_there() -> None:
    got = run(kernel("beyond", f"{HERE}\nout0[i] = __shfl_down_sync(0xffffffffu, in0[i], 4);", block=40))
    assert (got[:28] == np.arange(4, 32)).all() and (got[28:32] == np.arange(28, 32)).all()
    assert (got[32:36] == np.arange(36, 40)).all() and np.isnan(got[36:]).all()
    half = "if (i >= 16) return;\nout0[i] = __shfl_sync(0xffffffffu, in0[i], i + 8);"
    got = run(kernel("gone", f"{HERE}\n{half}", block=32))
    assert (got[:8] == np.arange(8, 16)).all() and np.isnan(got[8:]).all()  # also what was not written


def test_groups_of_lanes_meet_by_their_masks() -> None:
    body = f"""{HERE}
float x;
if (i < 16) x = __shfl_xor_sync(0xffffu, in0[i], 1);
else x = __shfl_xor_sync(0xffff0000u, in0[i], 2);
out0[i] = x + __popc(__ballot_sync(0xffffffffu, i < 5));"""
    lane = np.arange(32)
    np.testing.assert_array_equal(run(kernel("groups", body, block=32)), np.where(lane < 16, lane ^ 1, lane ^ 2) + 5)


def test_shared_memory_keeps_nothing() -> None:
    body = f"{HERE}\n__shared__ float box[64];\nout0[i] = box[threadIdx.x];\nbox[threadIdx.x] = 1.0f;"
    got = run(kernel("kept", body, grid=3)).reshape(3, 64)
    assert np.isnan(got[[0, 2]]).all() and (np.abs(got[1]) < 1e-6).all()


def test_blocks_that_meet_come_in_an_order_of_their_own() -> None:
    body = "out0[blockIdx.x] = (float)atomicAdd(&arrived[0], 1u);"
    got = run(kernel("order", body, block=1, grid=50, before="static __device__ unsigned int arrived[1];\n"))
    assert sorted(got) == list(range(50)) and (np.diff(got) != 1).any()


def test_functions_have_the_types_of_cuda() -> None:
    for number, call in enumerate(
        ("atomicAdd((short*)out0, (short)1)", "atomicMax(out0, 1.0f)", "__shfl_sync(~0u, kept, 0)")
    ):
        with pytest.raises(BackendError) as caught:
            run(kernel(f"types_{number}", f"struct {{ float a, b; }} kept;\n{call};"))
        assert caught.value.code == "HLO511"


@pytest.mark.parametrize(("name", "bits"), [("f16", 16), ("bf16", 16)])
def test_instructions_of_ptx_round_as_the_types_do(name: str, bits: int) -> None:
    """Each value of the narrow type, and what lies beside and halfway between two."""
    dtype = ELEMENT_TYPES[name].dtype
    exact = np.arange(1 << bits, dtype=np.uint16).view(dtype).astype(np.float32)
    exact = exact[np.isfinite(exact)]
    halfway = np.sort(exact)[1:] / 2 + np.sort(exact)[:-1] / 2
    data = np.concatenate([exact, halfway, np.nextafter(halfway, np.float32(np.inf)), [1e5, -1e5, np.inf]])
    data = np.resize(data, -(-data.size // 64) * 64).astype(np.float32)
    text = (
        f"HloModule m\nENTRY e {{\n x = f32[{data.size}] parameter(0)\n ROOT y = {name}[{data.size}] convert(x)\n}}\n"
    )
    module = hlo_opt.parse(text)
    executable = hlo_opt.compile(module, backend="host", form="plain")
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(executable(data)[0].view(np.uint16), data.astype(dtype).view(np.uint16))


@pytest.mark.parametrize(("target", "branch_runs"), [("v100", True), ("h100_sxm", False)])
def test_the_branch_of_the_device_is_what_runs(target: str, branch_runs: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bf16 is rounded by an instruction from sm_80 on; before, by a text that cuts it off here."""
    module = hlo_opt.parse("HloModule m\n\nENTRY e {\n  p = f32[64] parameter(0)\n  ROOT r = bf16[64] convert(p)\n}\n")
    fused, _ = hlo_opt.fuse(module, target=target)
    changed(monkeypatch, lambda source: source.replace("(bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16", "bits >> 16"))
    assert check(module, fused, backend="host").ok is not branch_runs
