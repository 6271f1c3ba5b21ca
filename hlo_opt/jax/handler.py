"""The typed FFI handler for the CPU, built with the headers of the installed jaxlib and registered once per process,
and the regions that it runs."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from functools import cache
from typing import ClassVar

import numpy as np

from hlo_opt.evaluate.threads import processors
from hlo_opt.jax.region_handler import POINTER, WORD, RegionHandler
from hlo_opt.runtime.host.compiler import kept_library
from hlo_opt.runtime.host.frozen import FRAME_WORDS, Frozen
from hlo_opt.runtime.host.own_routines import routine, runner


class _Array(ctypes.Structure):
    _fields_: ClassVar = [("slot", WORD), ("bytes", WORD)]


class _Routine(ctypes.Structure):
    _fields_: ClassVar = [("words", POINTER), ("buffers", WORD), ("slots", WORD)]


class _Region(ctypes.Structure):
    """`Region` of `handler.cpp`."""

    _fields_: ClassVar = [
        ("routines", POINTER),
        ("functions", POINTER),
        ("timings", POINTER),
        ("constants", POINTER),
        *((name, WORD) for name in ("processors", "memory", "slots", "frame_words", "pointers")),
        ("input_count", WORD),
        ("inputs", POINTER),
        ("output_count", WORD),
        ("outputs", POINTER),
        ("held_in", POINTER),
    ]


class _Loaded:
    """A region in this process. It owns the memory that the handler points to."""

    def __init__(self, frozen: Frozen) -> None:
        """Raises OSError if the library of its kernels is missing or damaged, and BackendError as `routine`."""
        self.words = [np.ascontiguousarray(w, np.int64) for w in frozen.words]
        # four more bytes, because kernels read whole words
        self.constants = [
            np.concatenate([a.view(np.uint8).reshape(-1), np.zeros(4, np.uint8)])
            for a in map(np.ascontiguousarray, frozen.constants)
        ]
        library = ctypes.CDLL(str(kept_library(frozen.library) or frozen.library)) if frozen.library else None
        try:
            launchers = [library[name] for name in frozen.launchers] if library else []
        except AttributeError as fault:
            raise OSError(str(fault)) from fault
        addresses = [ctypes.cast(launcher, POINTER).value or 0 for launcher in launchers]
        self.functions = np.array([*addresses, *map(routine, frozen.own)] or [0], np.uint64)
        self.timings = np.zeros((max(1, len(addresses)), 2), np.int64)
        self.addresses = np.array([a.ctypes.data for a in self.constants] or [0], np.uint64)
        pairs = zip(self.words, frozen.routines, strict=True)
        self.routines = (_Routine * len(self.words))(*(_Routine(w.ctypes.data, r.buffers, r.slots) for w, r in pairs))
        self.inputs = (_Array * max(1, len(frozen.inputs)))(*(_Array(*pair) for pair in frozen.inputs))
        self.outputs = (_Array * max(1, len(frozen.outputs)))(*(_Array(*pair) for pair in frozen.outputs))
        held = dict(frozen.donated)
        self.held_in = np.array([held.get(k, -1) for k in range(len(frozen.inputs))] or [-1], np.int64)
        self.region = _Region(
            ctypes.addressof(self.routines),
            self.functions.ctypes.data,
            self.timings.ctypes.data,
            self.addresses.ctypes.data,
            processors(),
            frozen.memory,
            frozen.slots,
            frozen.frames * FRAME_WORDS,
            frozen.pointers,
            len(frozen.inputs),
            ctypes.addressof(self.inputs),
            len(frozen.outputs),
            ctypes.addressof(self.outputs),
            self.held_in.ctypes.data,
        )


class Handler(RegionHandler[Frozen, _Loaded]):
    """The FFI handler for the CPU."""

    platform = "cpu"
    state = "hlo_opt.State"
    stages: ClassVar = {"instantiate": "HloOptInstantiate", "execute": "HloOptExecute"}

    def __init__(self, find: Callable[[str], Frozen | None]) -> None:
        """Builds, loads and registers the handler. Raises as `RegionHandler`."""
        import jax

        super().__init__(find, _Loaded, "regions.h", "thread_memory.h", "handler.cpp")
        self.start()
        jax.local_devices(backend="cpu")  # starts JAX's backend
        self.register()

    def start(self) -> None:
        """Gives the handler what runs regions."""
        self.library.hlo_opt_start(ctypes.cast(runner(), POINTER))


def has_platform(name: str) -> bool:
    """Whether JAX has a backend of a name; `JAX_PLATFORMS` may leave out that for the CPU. Starts JAX's backends."""
    import jax

    try:
        jax.local_devices(backend=name)
    except RuntimeError:
        return False
    return True


_ONE = threading.Lock()


def handler() -> Handler:
    """The handler of this process. Raises BackendError as `Handler`."""
    with _ONE:
        return _handler()


@cache
def _handler() -> Handler:
    from hlo_opt.jax.records import frozen_of

    return Handler(frozen_of)
