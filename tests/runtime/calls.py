"""What tests of library calls have in common."""

import types
from typing import Any

import numpy as np

from hlo_opt.evaluate import evaluate, module_inputs
from hlo_opt.ir import Module
from hlo_opt.library.arrays import raw_dtype
from hlo_opt.library.functions import texts_of
from hlo_opt.ops.calls.call import DeviceCall
from hlo_opt.runtime.numpy import from_memory, held_dtype, logical, physical, to_memory


def close(got: np.ndarray, want: np.ndarray) -> bool:
    assert got.dtype == want.dtype and got.shape == want.shape
    if want.dtype.kind in "biu":
        return bool(np.array_equal(got, want))
    wide = np.complex128
    return bool(np.allclose(got.astype(wide), want.astype(wide), rtol=1e-2 if want.itemsize < 4 else 1e-4, atol=1e-4))


def gives_what_the_interpreter_gives(call: DeviceCall, module: Module, fake: types.ModuleType) -> None:
    """The call of the root over the stand-in for CuPy: once as the backend makes it, once as an emitted driver does,
    from its text alone."""
    inputs = module_inputs(module, 3)
    leaves = list(module.entry.root.shape.leaves())
    given = [(a, p.shape) for a, p in zip(inputs, module.entry.parameters, strict=True)]
    buffers = [fake.asarray(to_memory(a, s).view(raw_dtype(held_dtype(s)))) for a, s in given]
    elements = [fake.asarray(physical(a, s).view(raw_dtype(a.dtype))) for a, s in given]  # a driver unpacks them before
    expected = evaluate(module, inputs)
    space: dict[str, Any] = {}
    exec("from __future__ import annotations\n" + "\n\n".join(texts_of([call.function])), space)
    written = eval(repr((call.shapes, call.arguments)))
    for made, is_packed in (
        (call.run(fake, buffers), True),
        (space[call.function](fake, elements, written[0], *written[1]), False),
    ):
        assert len(made) == len(expected)
        for memory, leaf, want in zip(made, leaves, expected, strict=True):
            dtype = held_dtype(leaf) if is_packed else leaf.type.dtype
            assert memory.ndim == 1 and memory.dtype == raw_dtype(dtype)
            array = np.asarray(memory).view(dtype)
            assert close(from_memory(array, leaf) if is_packed else logical(array, leaf), want)
