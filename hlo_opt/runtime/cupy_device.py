"""Buffers and kernels on an NVIDIA GPU through CuPy. CuPy is imported only here, and only when the backend is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hlo_opt.codegen.kernel import Kernel
from hlo_opt.diag import BackendError
from hlo_opt.ir import Shape
from hlo_opt.runtime import device_library
from hlo_opt.runtime.calls import call_of
from hlo_opt.runtime.memory import Array, logical, physical, raw_dtype
from hlo_opt.runtime.reference import Reference
from hlo_opt.runtime.steps import LibraryStep

if TYPE_CHECKING:
    from collections.abc import Callable

NVRTC_OPTIONS = ("-fmad=false", "--std=c++17")
"""No contraction into fused multiply-adds: a sum of a product rounds twice on every backend, as in XLA's evaluator."""

_COMPILED: dict[str, Any] = {}
"""Kernels of this process by source: equal texts compile once."""


def import_cupy() -> Any:
    """CuPy with a GPU behind it. Raises BackendError, saying which of the two is missing."""
    try:
        import cupy
    except ImportError as error:
        raise BackendError(
            f"backend cupy: CuPy cannot be imported ({error})",
            code="HLO520",
            hint="pip install 'hlo-opt[cuda13]' (or cuda12), or choose --backend host",
        ) from None
    try:
        count = int(cupy.cuda.runtime.getDeviceCount())
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise BackendError(
            f"backend cupy: there is no usable GPU ({error})", code="HLO521", hint="choose --backend host or numpy"
        ) from None
    if count == 0:
        raise BackendError("backend cupy: there is no GPU", code="HLO521", hint="choose --backend host or numpy")
    return cupy


def has_gpu() -> bool:
    """Whether CuPy is installed and sees a GPU."""
    try:
        import_cupy()
    except BackendError:
        return False
    return True


class CupyDevice:
    """Memory is a flat CuPy array; types that CuPy lacks are held as their raw bits."""

    def __init__(self, kernels: Sequence[Kernel], reference: Reference) -> None:
        self.cupy = import_cupy()
        self.reference = reference
        self.notes: dict[str, str] = {}
        self._functions = {k.symbol: self._compile(k) for k in kernels}

    def _compile(self, kernel: Kernel) -> Callable[..., None]:
        function = _COMPILED.get(kernel.source)
        if function is None:
            try:
                function = self.cupy.RawModule(code=kernel.source, options=NVRTC_OPTIONS).get_function(kernel.symbol)
            except self.cupy.cuda.compiler.CompileException as error:
                first = str(error).strip().splitlines()[0][:200]
                raise BackendError(f"NVRTC refuses kernel {kernel.symbol}: {first}", code="HLO522") from None
            _COMPILED[kernel.source] = function
        return function  # type: ignore[no-any-return]

    def upload(self, array: Array, shape: Shape) -> Any:
        flat = physical(array, shape)
        return self.cupy.asarray(flat.view(raw_dtype(flat.dtype)))

    def download(self, memory: Any, shape: Shape) -> Array:
        flat: Array = self.cupy.asnumpy(memory).view(shape.type.dtype)
        return np.array(logical(flat, shape), order="C")

    def allocate(self, shape: Shape) -> Any:
        return self.cupy.empty(shape.element_count, raw_dtype(shape.type.dtype))

    def view(self, memory: Any, shape: Shape) -> Any:
        return memory.view(raw_dtype(shape.type.dtype))

    def relayout(self, memory: Any, shape: Shape, target: Shape) -> Any:
        array = device_library.logical(memory, shape.dimensions, shape.minor_to_major)
        return device_library.flat(self.cupy, array, target.minor_to_major)

    def launch(self, kernel: Kernel, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        launch = kernel.launch
        if launch.grid:
            self._functions[kernel.symbol]((launch.grid,), (launch.block,), (*inputs, *outputs))

    def call(self, step: LibraryStep, inputs: Sequence[Any], shapes: Sequence[Shape]) -> list[Any]:
        call = call_of(step.instruction) if step.kind == "library" else None
        if call is not None:
            self.notes[step.call] = call.does
            return call.run(self.cupy, inputs)
        self.notes[step.call] = "NumPy on the host, copied there and back"
        arrays = [self.download(m, s) if s.is_array else None for m, s in zip(inputs, shapes, strict=True)]
        results = self.reference.leaves_of(step.instruction, arrays)
        leaves = step.instruction.shape.leaves()
        return [None if a is None else self.upload(a, s) for a, s in zip(results, leaves, strict=True)]
