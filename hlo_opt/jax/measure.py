"""Both forms of a region, XLA's and ours, timed on drawn data in this process: what a CPU gains is measured, not estimated.

XLA compiles a program that does nothing, and the hook gives it the region in its stead: so it is compiled in the form that it has in the user's module.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Protocol

import jax
from jaxlib import _hlo, xla_client

from hlo_opt.diag import BackendError
from hlo_opt.evaluate.inputs import module_inputs
from hlo_opt.ir import Module, Shape
from hlo_opt.ir.values import Array
from hlo_opt.jax.handler import TARGET
from hlo_opt.jax.wire import ModuleBytes, Node, Replacement

NAME = "hlo_opt_timed"
"""The module that XLA compiles for timing; the hook knows it by its name."""

ENOUGH, LEAST = 300, 3
SECONDS = 0.3
"""How many pairs of runs are timed, at most and at least, and how long one may begin."""
FIRST_RUNS = 5
"""Runs of ours in which its kernels find out whether they are spread over processors."""

_MLIR = {
    "pred": "i1",
    "bf16": "bf16",
    "f16": "f16",
    "f32": "f32",
    "f64": "f64",
    "c64": "complex<f32>",
    "c128": "complex<f64>",
    **{f"s{bits}": f"i{bits}" for bits in (8, 16, 32, 64)},
    **{f"u{bits}": f"ui{bits}" for bits in (8, 16, 32, 64)},
}
"""Element types that are handed over."""

_one_at_a_time = threading.Lock()
_wanted: list[bytes] = []
"""What XLA is to compile, while it is asked to: it calls the hook from threads of its own."""


def wanted() -> bytes | None:
    """What the hook gives XLA for the module `NAME`; it asks once."""
    return _wanted.pop() if _wanted else None


def can_hand_over(shapes: Sequence[Shape]) -> bool:
    """Whether arrays of such shapes can be given to a region and taken from it."""
    return all(s.is_array and s.type.name in _MLIR for s in shapes)


def call_text(inputs: Sequence[Shape], outputs: Sequence[Shape], key: str) -> str:
    """The module of `Replacement.text`."""
    lines = [f"  p{n} = {shape} parameter({n})" for n, shape in enumerate(inputs)]
    result = str(outputs[0]) if len(outputs) == 1 else f"({', '.join(map(str, outputs))})"
    given = ", ".join(f"p{n}" for n in range(len(inputs)))
    lines.append(
        f'  c = {result} custom-call({given}), custom_call_target="{TARGET}", api_version=API_VERSION_TYPED_FFI, backend_config={{key = "{key}"}}'
    )
    if len(outputs) > 1:
        lines += [f"  e{n} = {shape} get-tuple-element(c), index={n}" for n, shape in enumerate(outputs)]
        lines.append(f"  r = {result} tuple({', '.join(f'e{n}' for n in range(len(outputs)))})")
    lines[-1] = "  ROOT" + lines[-1][1:]
    return "HloModule call\n\nENTRY entry {\n" + "\n".join(lines) + "\n}\n"


def call_nodes(change: Replacement) -> list[Node]:
    """The call and what takes its elements."""
    message = _hlo.hlo_module_from_text(change.text).as_serialized_hlo_module_proto()
    (body,) = ModuleBytes(message).bodies
    by_name = {node.name.partition(".")[0]: node for node in body.nodes}
    count = len(change.outputs)
    return [by_name["c"], *(by_name[f"e{n}"] for n in range(count) if count > 1)]


class _Executable(Protocol):
    def execute(self, arguments: Sequence[jax.Array]) -> list[jax.Array]: ...


def _tensor(shape: Shape) -> str:
    return f"tensor<{''.join(f'{d}x' for d in shape.dimensions)}{_MLIR[shape.type.name]}>"


def _compiled(message: bytes, inputs: Sequence[Shape], outputs: Sequence[Shape]) -> _Executable:
    """XLA's executable of a module. Raises what XLA raises, and BackendError (HLO529) where no hook is installed any more: it is what hands XLA the module."""
    given = ", ".join(f"%a{n}: {_tensor(s)}" for n, s in enumerate(inputs))
    results = ", ".join(map(_tensor, outputs))
    lines, zeros = [], []
    for n, shape in enumerate(outputs):
        kind = _MLIR[shape.type.name]
        zero = (
            "(0.0, 0.0)" if kind.startswith("complex<") else "false" if kind == "i1" else "0" if "i" in kind else "0.0"
        )
        lines.append(f"    %r{n} = stablehlo.constant dense<{zero}> : {_tensor(shape)}")
        zeros.append(f"%r{n}")
    text = (
        f"module @{NAME} {{\n  func.func public @main({given}) -> ({results}) {{\n" + "\n".join(lines)
        + f"\n    return {', '.join(zeros)} : {results}\n  }}\n}}\n"
    )  # fmt: skip
    device = jax.local_devices(backend="cpu")[0]
    devices = xla_client.DeviceList((device,))
    _wanted.append(message)
    try:
        found: _Executable = device.client.compile_and_load(text.encode(), devices, xla_client.CompileOptions())
        if _wanted:
            raise BackendError("the hook was taken back while a region was timed", code="HLO529")
        return found
    finally:
        _wanted.clear()


def times(module: Module, call: str, key: str, inputs: Sequence[Array]) -> tuple[float, float]:
    """As `compared`, of a region: a `regions.module_of`; `call` is a `call_text` with its shapes."""
    given = [p.shape for p in module.entry.parameters]
    theirs, ours = (_hlo.hlo_module_from_text(t).as_serialized_hlo_module_proto() for t in (str(module), call))
    return compared(ours, theirs, given, list(module.entry.root.shape.leaves()), inputs)


def compared(
    our_module: bytes, their_module: bytes, given: Sequence[Shape], outputs: Sequence[Shape], inputs: Sequence[Array]
) -> tuple[float, float]:
    """Microseconds of a run of two modules that take and give the same arrays: the quickest of runs in turn, for whatever else the machine does only makes them slower. Raises what XLA
    raises."""
    with _one_at_a_time, jax.enable_x64(True):
        ours, theirs = (_compiled(message, given, outputs) for message in (our_module, their_module))
        arrays = [jax.device_put(a, jax.local_devices(backend="cpu")[0]) for a in inputs]
        jax.block_until_ready(arrays)
        begun = time.perf_counter()
        for _ in range(FIRST_RUNS):
            _timed(ours, arrays)
            if time.perf_counter() - begun > SECONDS:
                break
        _timed(theirs, arrays)
        pairs: list[tuple[float, float]] = []
        end = time.perf_counter() + SECONDS
        while len(pairs) < ENOUGH and (len(pairs) < LEAST or time.perf_counter() < end):
            first, second = (ours, theirs) if len(pairs) % 2 else (theirs, ours)
            a, b = _timed(first, arrays), _timed(second, arrays)
            pairs.append((a, b) if first is ours else (b, a))
    ours_us, theirs_us = (min(column) * 1e6 for column in zip(*pairs, strict=True))
    return ours_us, theirs_us


def _timed(executable: _Executable, arrays: Sequence[jax.Array]) -> float:
    start = time.perf_counter()
    jax.block_until_ready(executable.execute(arrays))
    return time.perf_counter() - start


def drawn(module: Module) -> list[Array]:
    """Data for a region."""
    return module_inputs(module)
