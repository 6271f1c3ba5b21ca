"""Modules on XLA:CPU, as an outside judge: in a child process, since XLA may crash or hang, and how far its outputs and
others may lie apart."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
Outcome: TypeAlias = "list[Array] | str"

SECONDS = 60.0
NUDGES = 3
DEVICES = 4
"""That XLA:CPU plays in one process."""
TOLERANCE = {"float64": 1e-8, "complex128": 1e-8, "float32": 3e-4, "complex64": 3e-4, "float16": 6e-3, "bfloat16": 4e-2}
SHORTEST = 0.15
"""The tolerance of floats of 8 bits."""


def difference(got: Sequence[Array], want: Sequence[Array], share: float = 1.0) -> str | None:
    """Where the arrays differ by more than this share of the tolerance; None where they do not."""
    if len(got) != len(want):
        return f"{len(got)} outputs, expected {len(want)}"
    for index, (g, w) in enumerate(zip(got, want, strict=True)):
        why = _difference(np.asarray(g), w, share)
        if why is not None:
            return f"out{index}: {why}"
    return None


def _difference(got: Array, want: Array, share: float) -> str | None:
    if got.dtype != want.dtype or got.shape != want.shape:
        return f"{got.dtype}{list(got.shape)}, expected {want.dtype}{list(want.shape)}"
    if want.dtype.kind in "biu" or "int" in want.dtype.name:
        return None if np.array_equal(got, want) else f"{int(np.sum(got != want))} of {want.size} integers differ"
    tolerance = share * TOLERANCE.get(want.dtype.name, SHORTEST)
    if want.dtype.kind != "c":
        got, want = got.astype(np.float64), want.astype(np.float64)
        if not np.array_equal(np.where(np.isinf(got), got, 0), np.where(np.isinf(want), want, 0)):
            return "infinities differ"
    if not np.array_equal(np.isnan(got), np.isnan(want)):
        return "NaN in other places"
    finite = np.isfinite(want)
    if not finite.any():
        return None
    size, error = np.abs(want[finite]), np.abs(got[finite] - want[finite])
    bad = ~(error <= tolerance * np.maximum(size, np.median(size)) + tolerance * 1e-2)
    return f"{int(bad.sum())} of {want.size} differ, worst {float(error.max()):.3g}" if bad.any() else None


def nudged(array: Array, generator: np.random.Generator) -> Array:
    """The array with each float a unit in the last place up or down."""
    if array.dtype.kind in "biu" or "int" in array.dtype.name:
        return array
    import ml_dtypes

    step = float(ml_dtypes.finfo(array.dtype).eps) * generator.choice([-1.0, 1.0], array.shape)
    if array.dtype.kind == "c":
        return np.asarray(array * (1 + step)).astype(array.dtype)
    return np.asarray(array.astype(np.float64) * (1 + step)).astype(array.dtype)


def _serve(pipe: Connection) -> None:
    """Answers (text, inputs of each device, moved or not) with one list of outputs, or one for each of some moved
    inputs, or why there is none."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # XLA's warnings, and what it says when it crashes
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={DEVICES} {os.environ.get('XLA_FLAGS', '')}"
    from scripts.xla_cpu import Program

    while True:
        text, inputs, moved = pipe.recv()
        try:
            program = Program(text, optimized=False)
            if moved:
                generators = [np.random.default_rng(seed) for seed in range(NUDGES)]
                pipe.send([program.on_devices([[nudged(a, g) for a in own] for own in inputs]) for g in generators])
            else:
                pipe.send(program.on_devices(inputs))
        except Exception as error:
            pipe.send(str(error) or type(error).__name__)


class Judge:
    """XLA:CPU in a child process, which is started anew when it dies or takes too long."""

    def __init__(self) -> None:
        self._start()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs,), daemon=True)
        self.process.start()
        theirs.close()

    def stop(self) -> None:
        self.process.kill()
        self.process.join()
        self.pipe.close()

    def _ask(self, text: str, inputs: Sequence[Sequence[Array]], moved: bool) -> Any:
        try:
            self.pipe.send((text, [list(own) for own in inputs], moved))
            if self.pipe.poll(SECONDS):
                return self.pipe.recv()
            why = f"no result in {SECONDS:.0f} seconds"
        except (EOFError, OSError):
            why = "the process ended"
        self.stop()
        self._start()
        return why

    def __call__(self, text: str, inputs: Sequence[Sequence[Array]]) -> Outcome:
        """XLA's outputs on the inputs of each device, one device after the other, or why it gives none."""
        outcome: Outcome = self._ask(text, inputs, False)
        return outcome

    def is_unsteady(self, text: str, inputs: Sequence[Sequence[Array]], outputs: Sequence[Array]) -> bool:
        """Whether XLA's outputs move by a quarter of the tolerance when inputs move by a unit in the last place."""
        moved = self._ask(text, inputs, True)
        return isinstance(moved, str) or any(difference(m, outputs, 0.25) is not None for m in moved)
