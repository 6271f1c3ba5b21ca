"""The stand-in for CuPy as a fixture."""

import importlib.util
import sys
import types
from collections.abc import Callable
from pathlib import Path

import pytest

from hlo_opt.runtime.cupy import cublaslt, cudnn, products
from hlo_opt.runtime.cupy import device as cupy_device


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> types.ModuleType:
    spec = importlib.util.spec_from_file_location("fake_cupy_here", Path(__file__).with_name("fake_cupy.py"))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "fake_cupy_here", module)
    monkeypatch.delitem(sys.modules, "fake_streams", raising=False)  # its streams and graphs are those of one test
    for name in ("cupy", "cupyx", "cupyx.scipy", "cupyx.scipy.linalg"):
        monkeypatch.setitem(sys.modules, name, module)
    spec.loader.exec_module(module)
    module.import_as_cupy()
    monkeypatch.setattr(cupy_device, "driver_of", module.Driver)
    monkeypatch.setattr(cupy_device, "_COMPILED", {})
    monkeypatch.setattr(cupy_device, "cache_directory", lambda: tmp_path)
    monkeypatch.setattr(products, "library_of", lambda _: module.Cublas())
    monkeypatch.setattr(cublaslt, "library_of", _no_library)
    monkeypatch.setattr(products, "_CHOSEN", {})
    monkeypatch.setattr(cudnn, "library_of", lambda: module.cudnn)
    monkeypatch.setattr(cudnn, "_CHOSEN", {})
    return module


def _no_library(_: object) -> None:
    raise OSError("there is no cuBLASLt")


@pytest.fixture
def lt(fake: types.ModuleType, monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """The stand-in with cuBLASLt, of whose algorithms the second one is the fastest."""
    monkeypatch.setattr(cublaslt, "library_of", lambda _: fake.cublaslt)

    def time_of(_: types.ModuleType, start: Callable[[], None]) -> float:
        before = len(fake.cublaslt.ran)
        start()
        return {1: 2.0, 2: 1.0}[fake.cublaslt.ran[-1][0]] if len(fake.cublaslt.ran) > before else 1.5

    monkeypatch.setattr(products, "milliseconds", time_of)
    return fake
