"""Both forms of a region, XLA's and ours, timed on drawn data in this process: what a CPU gains is measured, not
estimated.

XLA compiles a program that does nothing, and the hook gives it the region in its stead: so it is compiled in the form
that it has in the user's module.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
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

ENOUGH, LEAST = 150, 3
"""How many pairs of runs make a series, at most and at least."""
SECONDS = 0.15
"""How long pairs of a series may begin."""
BUSY_SECONDS = 0.6
"""How long they may while no other run was nearly as quick as the quickest: something else keeps the machine busy."""
NEARLY = 1.05
"""Of the quickest run: who needs no more confirms it."""
MIDDLE = 1.05
"""How much slower than its quickest runs promise ours may be in the middle of all pairs."""
SERIES = 2
"""How many series a region must win."""
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


def call_text(inputs: Sequence[Shape], outputs: Sequence[Shape], key: str, memory: int = 0) -> str:
    """The module of `Replacement.text`; `memory` are bytes that the call has as one more result, which nobody reads."""
    lines = [f"  p{n} = {shape} parameter({n})" for n, shape in enumerate(inputs)]
    results = [*map(str, outputs), *([f"u8[{memory}]{{0}}"] if memory else [])]
    result = results[0] if len(results) == 1 else f"({', '.join(results)})"
    given = ", ".join(f"p{n}" for n in range(len(inputs)))
    lines.append(
        f'  c = {result} custom-call({given}), custom_call_target="{TARGET}", api_version=API_VERSION_TYPED_FFI, '
        f'backend_config={{key = "{key}"}}'
    )
    if len(results) > 1:
        lines += [f"  e{n} = {shape} get-tuple-element(c), index={n}" for n, shape in enumerate(results)]
        lines.append(f"  r = {result} tuple({', '.join(f'e{n}' for n in range(len(results)))})")
    lines[-1] = "  ROOT" + lines[-1][1:]
    return "HloModule call\n\nENTRY entry {\n" + "\n".join(lines) + "\n}\n"


def call_nodes(change: Replacement) -> list[Node]:
    """The call and what takes its elements."""
    message = _hlo.hlo_module_from_text(change.text).as_serialized_hlo_module_proto()
    (body,) = ModuleBytes(message).bodies
    by_name = {node.name.partition(".")[0]: node for node in body.nodes}
    return [by_name["c"], *(by_name[f"e{n}"] for n in range(len(change.outputs)) if "e0" in by_name)]


class _Executable(Protocol):
    def execute(self, arguments: Sequence[jax.Array]) -> list[jax.Array]: ...


def _tensor(shape: Shape) -> str:
    return f"tensor<{''.join(f'{d}x' for d in shape.dimensions)}{_MLIR[shape.type.name]}>"


def _compiled(message: bytes, inputs: Sequence[Shape], outputs: Sequence[Shape]) -> _Executable:
    """XLA's executable of a module. Raises what XLA raises, and BackendError (HLO529) where no hook is installed any
    more: it is what hands XLA the module."""
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
    return compared(ours, Runnable(theirs, given, list(module.entry.root.shape.leaves())), inputs)


@dataclass(frozen=True)
class Runnable:
    """A module that XLA compiles once, with the arrays that it takes and gives."""

    message: bytes
    given: Sequence[Shape]
    outputs: Sequence[Shape]

    @cached_property
    def executable(self) -> _Executable:
        """Raises what XLA raises, and BackendError as `_compiled`."""
        return _compiled(self.message, self.given, self.outputs)


def compared(our_module: bytes, theirs: Runnable, inputs: Sequence[Array]) -> tuple[float, float]:
    """Microseconds of a run of a module and of another that takes and gives the same arrays, as `least_won` has them;
    each series has arrays of its own, for where these lie matters, too.
    Raises what XLA raises."""
    with _one_at_a_time, jax.enable_x64(True):
        ours = _compiled(our_module, theirs.given, theirs.outputs)
        device = jax.local_devices(backend="cpu")[0]

        def runs() -> tuple[Run, Run]:
            arrays = [jax.device_put(a, device) for a in inputs]
            jax.block_until_ready(arrays)
            return run_of(ours, arrays), run_of(theirs.executable, arrays)

        def run_of(executable: _Executable, arrays: list[jax.Array]) -> Run:
            last: list[list[jax.Array]] = []

            def run() -> None:
                """The results of a run are held until the next one has its own: else it is chance which of the two
                forms finds their pages in the process and which has the system clear new ones."""
                found = jax.block_until_ready(executable.execute(arrays))
                last[:] = [found]

            return run

        return least_won(runs)


Run = Callable[[], object]


def least_won(
    runs: Callable[[], tuple[Run, Run]], clock: Callable[[], float] = time.perf_counter
) -> tuple[float, float]:
    """Microseconds of a run of ours and of theirs in the series that ours wins least. The first series that ours loses
    is the last. `clock` counts seconds."""
    found: list[tuple[float, float]] = []
    while len(found) < SERIES and all(ours <= theirs for ours, theirs in found):
        found.append(series(*runs(), clock))
    return max(found, key=lambda pair: pair[0] / pair[1] if pair[1] else 1.0)


def series(ours: Run, theirs: Run, clock: Callable[[], float]) -> tuple[float, float]:
    """Microseconds of a run of each: the quickest of runs in turn, for whatever else the machine does only makes them
    slower. But a form whose luck is rare does not win by it: where the middle of pairs is much less in favour of ours,
    it says what ours takes. Each goes first in every other pair: what runs before leaves its own caches and its own
    threads. Where the machine is so busy that a quickest run stands alone, the series goes on for a while."""

    def timed(run: Run) -> float:
        start = clock()
        run()
        return clock() - start

    begun = clock()
    for _ in range(FIRST_RUNS):
        ours()
        if clock() - begun > SECONDS:
            break
    theirs()
    pairs: list[tuple[float, float]] = []
    start = clock()
    while len(pairs) < ENOUGH and (
        len(pairs) < LEAST or clock() - start < (SECONDS if _is_confirmed(pairs) else BUSY_SECONDS)
    ):
        if len(pairs) % 2:
            a, b = timed(ours), timed(theirs)
        else:
            b, a = timed(theirs), timed(ours)
        pairs.append((a, b))
    ours_us, theirs_us = (min(column) * 1e6 for column in zip(*pairs, strict=True))
    middle = statistics.median(a / b if b else 1.0 for a, b in pairs)
    return max(ours_us, theirs_us * middle / MIDDLE), theirs_us


def _is_confirmed(pairs: Sequence[tuple[float, float]]) -> bool:
    """Whether of each form another run is nearly as quick as its quickest."""
    return all(second <= NEARLY * first for first, second, *_ in map(sorted, zip(*pairs, strict=True)))


def drawn(module: Module) -> list[Array]:
    """Data for a region."""
    return module_inputs(module)
