"""A stand-in for CuPy where there is no GPU: arrays are NumPy arrays, and a CUDA text is built for the CPU by the host backend.

It has what emitted drivers and `hlo_opt.runtime.cupy_device` use, nothing more. `import_as_cupy` makes it importable as `cupy`.
"""

import re
import sys
import types
from typing import Any

import numpy

from hlo_opt.codegen.kernel import Kernel
from hlo_opt.ir import ELEMENT_TYPES, Shape
from hlo_opt.plans.plan import Launch
from hlo_opt.runtime.host import HostLibrary

_TYPES = {
    "unsigned char": "u8",
    "signed char": "s8",
    "unsigned short": "u16",
    "short": "s16",
    "unsigned int": "u32",
    "int": "s32",
    "unsigned long long": "u64",
    "long long": "s64",
    "float": "f32",
    "double": "f64",
}
_SIGNATURE = re.compile(r'extern "C" __global__ void (?:__launch_bounds__\((\d+)\) )?(\w+)\(([^)]*)\)')

launched: list[str] = []
"""The symbols of all launches, in order."""


def __getattr__(name: str) -> Any:
    """The rest of the array interface is NumPy's."""
    return getattr(numpy, name)


def asnumpy(array: numpy.ndarray) -> numpy.ndarray:
    return array.copy()


def empty(count: int, dtype: str) -> numpy.ndarray:
    """Memory that nobody has written yet: full of a pattern that is wrong in every type."""
    return numpy.frombuffer(b"\xa5" * (count * numpy.dtype(dtype).itemsize), dtype).copy()


class RawModule:
    def __init__(self, code: str, options: tuple[str, ...] = ()) -> None:
        assert options == ("-fmad=false", "--std=c++17")
        self.code = code

    def get_function(self, symbol: str) -> "_Function":
        return _Function(self.code, symbol)


class _Function:
    def __init__(self, code: str, symbol: str) -> None:
        self.code = code
        found = [m for m in _SIGNATURE.finditer(code) if m[2] == symbol]
        assert len(found) == 1, f"{len(found)} definitions of {symbol}"
        self.bound = int(found[0][1] or 1024)
        self.symbol = symbol
        self.parameters = [p.replace("__restrict__", "").strip() for p in found[0][3].split(",")]

    def __call__(self, grid: tuple[int], block: tuple[int], buffers: tuple[numpy.ndarray, ...]) -> None:
        assert len(buffers) == len(self.parameters) and block[0] <= self.bound
        shapes = []
        for parameter, buffer in zip(self.parameters, buffers, strict=True):
            name = re.sub(r"^const ", "", parameter.rpartition("*")[0]).strip()
            element_type = ELEMENT_TYPES[_TYPES[name]]
            assert buffer.dtype.itemsize == element_type.bytes, (parameter, buffer.dtype)
            shapes.append(Shape(element_type, (buffer.size,)))
        inputs = sum(p.startswith("const ") for p in self.parameters)
        kernel = Kernel(
            self.symbol, self.code, Launch(grid[0], block[0]), tuple(shapes[:inputs]), tuple(shapes[inputs:]), "loop"
        )
        library = _LIBRARIES.setdefault(self.symbol, HostLibrary([kernel]))
        library.launch(kernel, buffers[:inputs], buffers[inputs:])
        launched.append(self.symbol)


_LIBRARIES: dict[str, HostLibrary] = {}


class _RuntimeError(RuntimeError):
    """CuPy's CUDARuntimeError."""


def import_as_cupy(devices: int = 1) -> types.ModuleType:
    """This module under the name `cupy`, with `devices` GPUs."""
    module = sys.modules[__name__]
    runtime = types.SimpleNamespace(getDeviceCount=lambda: devices, CUDARuntimeError=_RuntimeError)
    compiler = types.SimpleNamespace(CompileException=_RuntimeError)
    module.cuda = types.SimpleNamespace(runtime=runtime, compiler=compiler)  # type: ignore[attr-defined]
    sys.modules["cupy"] = module
    return module
