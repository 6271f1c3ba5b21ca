"""The cupy backend over the stand-in: what it does with CuPy, without a GPU. With a GPU, the last test runs the real one."""

import importlib.util
import sys
import types
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import hlo_opt
from hlo_opt.diag import BackendError
from hlo_opt.evaluate import module_inputs
from hlo_opt.runtime import cupy_device

DUMPS = Path(__file__).parents[2] / "testdata" / "dumps"


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    spec = importlib.util.spec_from_file_location("fake_cupy_here", Path(__file__).with_name("fake_cupy.py"))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "fake_cupy_here", module)
    monkeypatch.setitem(sys.modules, "cupy", module)
    spec.loader.exec_module(module)
    module.import_as_cupy()
    monkeypatch.setattr(cupy_device, "_COMPILED", {})
    return module


NOTES = {
    "attention_bf16": {"dot": "cupy.matmul"},
    "embed_gradient": {"scatter": "cupy.add.at"},
    "mlp_train_step": {"dot": "cupy.matmul"},
    "write_rows": {"scatter": "assignment by index"},
}


@pytest.mark.parametrize("name", [*NOTES, "nested", "shuffle"])
def test_dumps_agree_with_the_host_backend(name: str, fake: types.ModuleType) -> None:
    module = hlo_opt.parse((DUMPS / f"{name}.hlo").read_text())
    inputs = module_inputs(module, 2)
    host, gpu = (hlo_opt.compile(module, backend) for backend in ("host", "cupy"))
    expected, got = host(*inputs), gpu(*inputs)
    for a, b in zip(got, expected, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        assert np.allclose(
            a.astype(np.float64), b.astype(np.float64), rtol=2e-2 if a.dtype.kind == "V" else 1e-3, atol=1e-4
        )
    report = gpu.report()
    assert len(fake.launched) == report["launches"] == host.report()["launches"]
    assert report["notes"] == (NOTES.get(name, {}))


def test_kernels_are_compiled_once_per_process(fake: types.ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[str] = []
    get_function = fake.RawModule.get_function

    def counted(self: object, symbol: str) -> object:
        built.append(symbol)
        return get_function(self, symbol)

    monkeypatch.setattr(fake.RawModule, "get_function", counted)
    module = hlo_opt.parse((DUMPS / "softmax.hlo").read_text())
    first = hlo_opt.compile(module, "cupy")
    assert sorted(built) == sorted(k["symbol"] for k in first.report()["kernels"])
    hlo_opt.compile(module, "cupy")
    assert len(built) == len(first.report()["kernels"])


def test_what_has_no_kernel_goes_through_numpy_and_says_so(fake: types.ModuleType) -> None:
    module = hlo_opt.parse(
        "HloModule m\nENTRY e {\n  a = f8e5m2[2]{0} parameter(0)\n  ROOT b = f8e5m2[2]{0} multiply(a, a)\n}\n"
    )
    executable = hlo_opt.compile(module, "cupy")
    a = np.array([1.5, 3], ml_dtypes.float8_e5m2)
    assert np.array_equal(executable(a)[0], a * a)
    assert executable.report()["fallbacks"] == {"multiply": 1}
    assert "NumPy" in executable.report()["notes"]["multiply"]


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


def test_a_kernel_that_nvrtc_refuses_is_one_error(fake: types.ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: object, symbol: str) -> object:
        raise fake.cuda.compiler.CompileException("kernel.cu(1): error: no\nmore")

    monkeypatch.setattr(fake.RawModule, "get_function", refuse)
    with pytest.raises(BackendError, match=r"HLO522 NVRTC refuses kernel \w+: kernel.cu\(1\): error: no$"):
        hlo_opt.compile(hlo_opt.parse((DUMPS / "softmax.hlo").read_text()), "cupy")


@pytest.mark.skipif(not cupy_device.has_gpu(), reason="needs an NVIDIA GPU and CuPy")
@pytest.mark.parametrize("name", ["attention_bf16", "cartpole_scan", "mlp_train_step", "nested", "shuffle"])
def test_dumps_agree_on_a_gpu(name: str) -> None:
    from hlo_opt.runtime.compare import check

    module = hlo_opt.parse((DUMPS / f"{name}.hlo").read_text())
    result = check(module, module, backend="cupy")
    assert result.ok, str(result)
