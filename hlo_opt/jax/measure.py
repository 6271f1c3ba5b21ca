"""Times XLA's and our form of a region on drawn data, in this process: gains on a CPU are measured, not estimated.

To compile a region in the form that it has in the user's module, XLA is asked to compile a placeholder program, and the
hook replaces that by the region.
"""

from __future__ import annotations

import re
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, cached_property
from typing import NamedTuple, Protocol

import jax
import numpy as np
from jaxlib import _hlo, _jax, xla_client

from hlo_opt.diag import BackendError
from hlo_opt.diag.time_limit import check_time
from hlo_opt.evaluate.inputs import module_inputs
from hlo_opt.ir import Module, Shape
from hlo_opt.ir.values import Array
from hlo_opt.jax import placeholder
from hlo_opt.runtime.host.crashes import STATUS, crash, crashes_told
from hlo_opt.text import parse

ENOUGH, LEAST = 150, 3
"""The largest and the least number of pairs of runs in a series."""
SECONDS = 0.15
"""The time after which a series starts no more pairs."""
BUSY_SECONDS = 0.6
"""The same while no other run confirms the quickest one: other programs keep the machine busy."""
NEARLY = 1.05
"""A run that takes at most this multiple of the quickest run's time confirms it."""
MIDDLE = 1.05
"""The limit of the median ratio of ours to theirs, relative to the ratio of the quickest runs."""
SERIES = 2
"""The number of series that a region must win."""
FIRST_RUNS = 5
"""Runs of ours before the timing, in which kernels decide whether to use several processors."""
FEW_PAIRS = 15
"""The number of pairs after which a series ends if it is clear."""
LOST, WON = 1.25, 0.5
"""A series is clear if ours take this multiple of theirs, by the quickest runs and by the median of the pairs."""

BUSY = 1.3
"""The machine is busy where half of the runs of a form take more than this multiple of its quickest."""


class Times(NamedTuple):
    """Microseconds of a run of ours and of XLA's form. `low_us` and `high_us`: on a busy machine, those of ours by the
    quartiles of the pairs, between which chance decides; else zeros."""

    ours_us: float
    xla_us: float
    low_us: float = 0.0
    high_us: float = 0.0

    @property
    def possible_us(self) -> tuple[float, ...]:
        """The time of ours, and those that other series may find."""
        return (self.ours_us, self.low_us, self.high_us) if self.high_us else (self.ours_us,)


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
"""The MLIR names of the element types that a region may have as inputs and outputs."""

_one_at_a_time = threading.Lock()


def can_hand_over(shapes: Sequence[Shape]) -> bool:
    """Whether a region may have inputs and outputs of these shapes."""
    return all(s.is_array and s.type.name in _MLIR for s in shapes)


@cache
def _device() -> jax.Device:
    """The device of a client of our own. A client compiles in threads of its own, eight at least, and a call of the
    hook holds one: if the user's program holds all, a region in the same client would wait for ever."""
    client = _jax.get_tfrt_cpu_client(
        asynchronous=jax.config.read("jax_cpu_enable_async_dispatch"), distributed_client=None, num_devices=1
    )
    (device,) = client.local_devices()
    return device


class _Executable(Protocol):
    def execute(self, arguments: Sequence[jax.Array]) -> list[jax.Array]: ...


def _tensor(shape: Shape) -> str:
    return f"tensor<{''.join(f'{d}x' for d in shape.dimensions)}{_MLIR[shape.type.name]}>"


def _compiled(message: bytes, inputs: Sequence[Shape], outputs: Sequence[Shape]) -> _Executable:
    """XLA's executable of a module. Raises what XLA raises, and BackendError (HLO529) if the hook was removed in the
    meantime."""
    parameters = ", ".join(f"%a{n}: {_tensor(s)}" for n, s in enumerate(inputs))
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
        f"module @{placeholder.NAME} {{\n  func.func public @main({parameters}) -> ({results}) {{\n" + "\n".join(lines)
        + f"\n    return {', '.join(zeros)} : {results}\n  }}\n}}\n"
    )  # fmt: skip
    device = _device()
    devices = xla_client.DeviceList((device,))
    placeholder.wanted_modules.append(message)
    try:
        executable: _Executable = device.client.compile_and_load(text.encode(), devices, xla_client.CompileOptions())
        if placeholder.wanted_modules:
            raise BackendError("the hook was taken back while a region was timed", code="HLO529")
        return executable
    finally:
        placeholder.wanted_modules.clear()


def runnable(module: Module, *, is_whole: bool) -> Runnable:
    """XLA's form of a region, from `regions.module_of`. `is_whole`: it is all of a program. If not, the program decides
    on which thread both forms run, so they get the same one here."""
    message = _message(str(module), is_whole=is_whole)
    return Runnable(message, [p.shape for p in module.entry.parameters], list(module.entry.root.shape.leaves()))


def of_call(call: str, theirs: Runnable, *, is_whole: bool) -> Runnable:
    """Our form of a region: `theirs` from `runnable`, `call` from `call_text`."""
    return Runnable(_message(call, is_whole=is_whole), theirs.inputs, theirs.outputs)


def times(ours: Runnable, theirs: Runnable, inputs: Sequence[Array]) -> Times:
    """The result of `compared` for a region: `ours` from `of_call`, `theirs` from `runnable`."""
    return compared(ours, theirs, inputs)


def _message(text: str, *, is_whole: bool) -> bytes:
    text = text if is_whole else on_another_thread(text)
    return _hlo.hlo_module_from_text(text).as_serialized_hlo_module_proto()


def on_another_thread(text: str) -> str:
    """A module's text with 1,024 flops more, before its root. XLA's CPU client runs a module of less than 1,000 flops
    on the caller's thread, others on another one, which takes 10 us longer. A call of ours counts as none."""
    before, entry = text.split("\nENTRY ", 1)
    lines = entry.split("\n")
    (root,) = (number for number, one in enumerate(lines) if one.startswith("  ROOT "))
    work = [
        "  hlo_opt_numbers = f32[1024]{0} constant({...})",
        "  hlo_opt_work = f32[1024]{0} negate(hlo_opt_numbers)",
    ]
    after = f"{lines[root]}, control-predecessors={{hlo_opt_work}}"
    return f"{before}\nENTRY " + "\n".join([*lines[:root], *work, after, *lines[root + 1 :]])


@dataclass(frozen=True)
class Runnable:
    """A module that XLA compiles once, with the shapes of its inputs and outputs."""

    message: bytes
    inputs: Sequence[Shape]
    outputs: Sequence[Shape]

    @cached_property
    def executable(self) -> _Executable:
        """Raises what XLA raises, and BackendError as `_compiled`."""
        return _compiled(self.message, self.inputs, self.outputs)

    def __call__(self, inputs: Sequence[Array]) -> list[Array]:
        """The results for inputs. Raises what XLA raises, and BackendError as `_compiled` and `crashes_named`."""
        with _one_at_a_time, jax.enable_x64(True), crashes_named():
            return [np.asarray(a) for a in self.executable.execute(_on_device(inputs))]


def compared(ours: Runnable, theirs: Runnable, inputs: Sequence[Array]) -> Times:
    """Microseconds of a run of our form and of theirs, which have the same inputs and outputs, by `least_won`. Each
    series has arrays of its own, because their addresses affect the time. Raises what XLA raises, and BackendError as
    `crashes_named`."""
    with _one_at_a_time, jax.enable_x64(True), crashes_named():

        def runs() -> tuple[TimedRun, TimedRun]:
            arrays = _on_device(inputs)
            return _run_of(ours.executable, arrays), _run_of(theirs.executable, arrays)

        return least_won(runs)


def bound(theirs: Runnable, inputs: Sequence[Array], *, is_whole: bool) -> Times:
    """Microseconds that kernels of ours take at least, however quick they are, and that XLA's form takes: a series of a
    module without work and of XLA's. Raises what XLA raises."""
    with _one_at_a_time, jax.enable_x64(True):
        nothing = _run_of(_nothing(is_whole).executable, [])
        return series(nothing, _run_of(theirs.executable, _on_device(inputs)), time.perf_counter)


@cache
def _nothing(is_whole: bool) -> Runnable:
    return runnable(parse("HloModule m\n\nENTRY e {\n  ROOT zero = f32[1]{0} constant({0})\n}\n"), is_whole=is_whole)


_CRASH = re.compile(r"hlo_opt: a kernel crashed, (\d+)")
"""What the handler says."""


@contextmanager
def crashes_named() -> Iterator[None]:
    """While it is open, a kernel of ours that crashes raises BackendError (HLO532) instead of what XLA makes of it; it
    ends the run, not the user's process."""
    with crashes_told():
        try:
            yield
        except jax.errors.JaxRuntimeError as fault:
            found = _CRASH.search(str(fault))
            if found is None:
                raise
            raise crash(STATUS + int(found[1]), "a kernel") from fault


def _on_device(inputs: Sequence[Array]) -> list[jax.Array]:
    device = _device()
    return jax.block_until_ready([jax.device_put(a, device) for a in inputs])


def _run_of(executable: _Executable, arrays: list[jax.Array]) -> TimedRun:
    last: list[list[jax.Array]] = []

    def run() -> None:
        """Runs, and keeps the results until the next run. Otherwise it would be chance which of the two forms reuses
        their pages, and which gets new ones that the system must clear."""
        results = jax.block_until_ready(executable.execute(arrays))
        last[:] = [results]

    return run


TimedRun = Callable[[], object]


def least_won(runs: Callable[[], tuple[TimedRun, TimedRun]], clock: Callable[[], float] = time.perf_counter) -> Times:
    """Microseconds of a run of ours and of theirs in the worst series for ours. Stops at the first series that ours
    loses. `clock` returns seconds."""
    found: list[Times] = []
    while len(found) < SERIES and all(each.ours_us <= each.xla_us for each in found):
        found.append(series(*runs(), clock))
    return max(found, key=lambda each: _ratio(each.ours_us, each.xla_us))


def series(ours: TimedRun, theirs: TimedRun, clock: Callable[[], float]) -> Times:
    """Microseconds of a run of each form: the quickest of alternating runs, since other load only makes runs slower.
    Raises TimeUpError where the caller has no time left for another run.

    If the median of the pairs is much less in favour of ours, it determines the time of ours instead: rare quick runs
    do not win. The order changes from pair to pair, because a run leaves its data in caches and its threads awake. On a
    busy machine, where no other run confirms the quickest, the series takes longer. It ends early if it is clear.
    """

    begun = clock()
    for _ in range(FIRST_RUNS):
        check_time()
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
            a, b = _timed(ours, clock), _timed(theirs, clock)
        else:
            b, a = _timed(theirs, clock), _timed(ours, clock)
        pairs.append((a, b))
        if len(pairs) == FEW_PAIRS and _is_clear(pairs):
            break
    ours_us, theirs_us = (min(column) * 1e6 for column in zip(*pairs, strict=True))
    low, middle, high = statistics.quantiles((_ratio(a, b) for a, b in pairs), n=4, method="inclusive")
    ends = (theirs_us * low, theirs_us * high) if _is_busy(pairs) else ()
    return Times(max(ours_us, theirs_us * middle / MIDDLE), theirs_us, *ends)


def _ratio(ours: float, theirs: float) -> float:
    return ours / theirs if theirs else 1.0


def _is_busy(pairs: Sequence[tuple[float, float]]) -> bool:
    """Whether other programs take the processors away from half of the runs of a form."""
    return any(statistics.median(column) > BUSY * min(column) for column in zip(*pairs, strict=True))


def _timed(run: TimedRun, clock: Callable[[], float]) -> float:
    check_time()
    start = clock()
    run()
    return clock() - start


def _is_clear(pairs: Sequence[tuple[float, float]]) -> bool:
    """Whether ours lose or win by so much that further pairs can hardly change it."""
    ours, theirs = (min(column) for column in zip(*pairs, strict=True))
    ratios = (_ratio(ours, theirs), statistics.median(_ratio(a, b) for a, b in pairs))
    return min(ratios) > LOST or max(ratios) < WON


def _is_confirmed(pairs: Sequence[tuple[float, float]]) -> bool:
    """Whether each form has another run that is nearly as quick as its quickest."""
    return all(second <= NEARLY * first for first, second, *_ in map(sorted, zip(*pairs, strict=True)))


def drawn(module: Module) -> list[Array]:
    """Input data for a region."""
    return module_inputs(module)
