"""The cupy backend over the stand-in: what it does with CuPy, without a GPU. With a GPU, the last test runs the real
one."""

import sys
import types
from pathlib import Path

import numpy as np
import pytest

import hlo_opt
from hlo_opt.diag import BackendError
from hlo_opt.evaluate import module_inputs
from hlo_opt.runtime.cupy import device as cupy_device
from tests.codegen.test_registers import softmax

DUMPS = Path(__file__).parents[2] / "testdata" / "dumps"


NOTES = {
    "attention_bf16": {"dot": "cublasGemmStridedBatchedEx"},
    "embed_gradient": {"scatter": "cupy.add.at"},
    "mlp_forward": {"__cublas$lt$matmul": "cublasLtMatmul", "dot": "cublasGemmStridedBatchedEx"},
    "write_rows": {"scatter": "assignment by index"},
}


@pytest.mark.parametrize("name", [*NOTES, "nested", "shuffle"])
def test_dumps_agree_with_the_host_backend(name: str, fake: types.ModuleType) -> None:
    module, _ = hlo_opt.fuse(hlo_opt.parse((DUMPS / f"{name}.hlo").read_text()))
    inputs = module_inputs(module, 2)
    host, gpu = (hlo_opt.compile(module, backend) for backend in ("host", "cupy"))
    expected, got = host(*inputs), gpu(*inputs)
    for a, b in zip(got, expected, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        assert np.allclose(
            a.astype(np.float64),
            b.astype(np.float64),
            rtol=2e-2 if a.dtype.kind == "V" else 1e-3,
            atol=1e-2 if name == "attention_bf16" else 1e-4,  # weights in one kernel are not rounded
        )
    report = gpu.report()
    assert (
        len(fake.launched) == report["launches"] <= host.report()["launches"]
    )  # predicates of counted loops are not read
    if report["library"]:
        assert report["notes"] == (NOTES.get(name, {}))


def test_blocks_that_wait_for_each_other_are_launched_together(fake: types.ModuleType) -> None:
    """The stand-in refuses another launch of such a kernel."""
    text = (DUMPS.parent / "kernels" / "grid_loop_1.hlo").read_text()
    module = hlo_opt.parse(text)
    inputs = module_inputs(module, 2)
    executable, expected = hlo_opt.compile(module, "cupy"), hlo_opt.compile(module, "host", form="plain")(*inputs)
    for _ in range(2):  # the second finds what the first has left where they meet
        for got, want in zip(executable(*inputs), expected, strict=True):
            assert got.tobytes() == want.tobytes()
    assert len(fake.launched) == 2


MEETING = """HloModule m
add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }
ENTRY e {
  x = f32[300000]{0} parameter(0)
  y = f32[300000]{0} parameter(1)
  z = f32[] constant(0)
  r = f32[] reduce(x, z), dimensions={0}, to_apply=add
  s = f32[] reduce(y, z), dimensions={0}, to_apply=add
  ROOT t = (f32[], f32[]) tuple(r, s)
}
"""


def test_launches_that_may_overlap_meet_in_memory_of_their_own(fake: types.ModuleType) -> None:
    module = hlo_opt.parse(MEETING)
    executable = hlo_opt.compile(module, "cupy")
    inputs = module_inputs(module, 0)
    want = executable(*inputs)
    (symbol,) = set(fake.launched)
    kept = executable._executor.device._kept
    assert [name for name, _ in kept] == [symbol]
    with fake.cuda.Stream():
        assert all(np.array_equal(a, b) for a, b in zip(executable(*inputs), want, strict=True))
    here, other = kept.values()
    assert here is not other and here.size == other.size > 0


def test_kernels_are_compiled_once_per_text_device_and_nvrtc(
    fake: types.ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = hlo_opt.parse((DUMPS / "softmax.hlo").read_text())
    first = hlo_opt.compile(module, "cupy")
    symbols = sorted(f"{k['symbol']}.cu" for k in first.report()["kernels"])
    assert sorted(fake.compilations) == symbols
    hlo_opt.compile(module, "cupy")
    monkeypatch.setattr(cupy_device, "_COMPILED", {})  # as in a new process
    again = hlo_opt.compile(module, "cupy")
    assert sorted(fake.compilations) == symbols
    inputs = module_inputs(module, 0)
    assert all(np.array_equal(a, b) for a, b in zip(again(*inputs), first(*inputs), strict=True))
    monkeypatch.setattr(cupy_device, "_COMPILED", {})
    fake.cuda.nvrtc.getVersion = lambda: (13, 1)
    hlo_opt.compile(module, "cupy")
    assert len(fake.compilations) == 2 * len(symbols)


F8 = (
    "HloModule m\nENTRY e {\n  a = f32[2]{0} parameter(0)\n  ROOT b = f32[2]{0} custom-call(a), "
    'custom_call_target="unheard"\n}\n'
)


def test_what_cupy_lacks_is_an_error_with_its_line_and_auto_goes_on_to_the_host(fake: types.ModuleType) -> None:
    module = hlo_opt.parse(F8, filename="m.hlo")
    with pytest.raises(BackendError, match=r"m.hlo:4:.*HLO523.*custom-call b \(unheard\)") as caught:
        hlo_opt.compile(module, "cupy")
    assert caught.value.line == 4 and caught.value.hint is not None
    executable = hlo_opt.compile(module, "auto")
    assert executable.backend in ("host", "numpy")
    assert executable.why.startswith("there is a GPU, but neither a kernel nor CuPy computes custom-call b")


def test_a_grid_that_no_gpu_takes_is_refused_before_anything_runs(
    fake: types.ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = hlo_opt.parse((DUMPS / "softmax.hlo").read_text())
    monkeypatch.setattr(cupy_device, "MOST_BLOCKS", 0)
    with pytest.raises(BackendError, match=r"HLO525 .* blocks, and a GPU takes 0"):
        hlo_opt.compile(module, "cupy")
    assert not fake.compilations


def test_faults_of_cuda_name_the_instruction(fake: types.ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    module = hlo_opt.parse((DUMPS / "softmax.hlo").read_text(), filename="softmax.hlo")
    executable = hlo_opt.compile(module, "cupy")
    inputs = module_inputs(module, 0)

    def broken(self: object, *_: object) -> None:
        raise fake.cuda.runtime.CUDARuntimeError("cudaErrorIllegalAddress: an illegal memory access\nmore")

    monkeypatch.setattr(fake._Function, "__call__", broken)
    with pytest.raises(
        BackendError, match=r"softmax.hlo:\d+:\d+: HLO526 .*launching at \w+.*illegal memory access"
    ) as caught:
        executable(*inputs)
    assert caught.value.line is not None

    def full(*_: object) -> None:
        raise fake.cuda.memory.OutOfMemoryError("Out of memory allocating 9 bytes")

    monkeypatch.setattr(fake, "asarray", lambda array: array.view(fake.Array))
    monkeypatch.setattr(fake, "empty", full)
    with pytest.raises(BackendError, match=r"HLO527 .*allocating: .*Out of memory"):
        executable(*inputs)


def test_no_gpu_and_no_cupy_are_told_apart(fake: types.ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    module = hlo_opt.parse((DUMPS / "softmax.hlo").read_text())
    assert cupy_device.has_gpu()
    fake.import_as_cupy(devices=0)
    monkeypatch.setitem(sys.modules, "cupy", fake)
    with pytest.raises(BackendError, match=r"HLO521.*no GPU") as caught:
        hlo_opt.compile(module, "cupy")
    assert caught.value.hint is not None and not cupy_device.has_gpu()
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(BackendError, match=r"HLO520.*cannot be imported"):
        hlo_opt.compile(module, "cupy")


def test_a_kernel_that_nvrtc_refuses_is_one_error(fake: types.ModuleType) -> None:
    def refuse(program: object, options: object) -> None:
        raise fake.cuda.nvrtc.NVRTCError("NVRTC_ERROR_COMPILATION")

    fake.cuda.nvrtc.compileProgram = refuse
    with pytest.raises(BackendError, match=r"HLO522 NVRTC refuses kernel \w+: \w+.cu\(1\): error: no$"):
        hlo_opt.compile(hlo_opt.parse((DUMPS / "softmax.hlo").read_text()), "cupy")


def test_a_device_older_than_nvrtc_is_told(fake: types.ModuleType) -> None:
    fake.cuda.nvrtc.getSupportedArchs = lambda: [100]
    with pytest.raises(BackendError, match=r"HLO524 .*compute capability 90"):
        hlo_opt.compile(hlo_opt.parse((DUMPS / "softmax.hlo").read_text()), "cupy")


def test_a_device_newer_than_nvrtc_gets_ptx(fake: types.ModuleType) -> None:
    module = hlo_opt.parse("HloModule m\nENTRY e {\n  a = f32[4]{0} parameter(0)\n  ROOT r = f32[4]{0} negate(a)\n}\n")
    fake.cuda.nvrtc.getSupportedArchs = lambda: [75, 80, 90]
    fake.cuda.Device = lambda *_: types.SimpleNamespace(compute_capability="120")
    fake.cuda.nvrtc.getCUBIN = None  # machine code of another major version would not load
    a = np.arange(4, dtype=np.float32)
    (got,) = hlo_opt.compile(module, "cupy")(a)
    assert np.array_equal(got, -a)


@pytest.mark.skipif(not cupy_device.has_gpu(), reason="needs an NVIDIA GPU and CuPy")
@pytest.mark.parametrize("name", ["attention_bf16", "cartpole_scan", "mlp_train_step", "nested", "shuffle"])
def test_dumps_agree_on_a_gpu(name: str) -> None:
    from hlo_opt.runtime.check.compare import check

    module = hlo_opt.parse((DUMPS / f"{name}.hlo").read_text())
    result = check(module, module, backend="cupy")
    assert result.ok, str(result)


def test_clusters_of_blocks_need_nothing_of_a_launch(fake: types.ModuleType) -> None:
    module = hlo_opt.parse(softmax(2, 16_400))
    x = np.random.default_rng(0).standard_normal((2, 16_400)).astype(np.float32)
    (got,) = hlo_opt.compile(hlo_opt.fuse(module)[0], "cupy")(x)
    assert np.allclose(got, hlo_opt.evaluate(module, [x])[0], rtol=1e-5)


def test_what_is_to_be_precise_is_compiled_again(fake: types.ModuleType) -> None:
    module = hlo_opt.parse((DUMPS / "softmax.hlo").read_text())
    plain, precise = (hlo_opt.compile(module, "cupy", precise=p) for p in (False, True))
    assert not plain.precise and precise.precise and hlo_opt.compile(module, "host").precise
    assert len(fake.compilations) == 2 * len(precise.report()["kernels"])
    hlo_opt.compile(module, "cupy", precise=True)
    assert len(fake.compilations) == 2 * len(precise.report()["kernels"])
