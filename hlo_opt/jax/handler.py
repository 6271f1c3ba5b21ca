"""The typed FFI handler for the CPU, built with the headers of the installed jaxlib and registered once per process,
and the regions that it runs."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from functools import cache
from importlib.metadata import version
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from hlo_opt.evaluate.threads import processors
from hlo_opt.jax.native import native_text
from hlo_opt.runtime.host.compiler import kept_library, load
from hlo_opt.runtime.host.frozen import FRAME_WORDS, Frozen
from hlo_opt.runtime.host.own_routines import routine, runner

if TYPE_CHECKING:
    from typing_extensions import CapsuleType

TARGET = "hlo_opt.run"
"""The custom call target of regions with our kernels."""

_POINTER, _WORD = ctypes.c_void_p, ctypes.c_longlong
_LOADER = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p)


def capsule(address: int) -> CapsuleType:
    """An address as a capsule, for JAX."""
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, [_POINTER, ctypes.c_char_p, _POINTER]
    result: CapsuleType = new(address, None, None)
    return result


class _Array(ctypes.Structure):
    _fields_: ClassVar = [("slot", _WORD), ("bytes", _WORD)]


class _Routine(ctypes.Structure):
    _fields_: ClassVar = [("words", _POINTER), ("buffers", _WORD), ("slots", _WORD)]


class _Region(ctypes.Structure):
    """`Region` of `handler.cpp`."""

    _fields_: ClassVar = [
        ("routines", _POINTER),
        ("functions", _POINTER),
        ("timings", _POINTER),
        ("constants", _POINTER),
        *((name, _WORD) for name in ("processors", "memory", "slots", "frame_words", "pointers")),
        ("input_count", _WORD),
        ("inputs", _POINTER),
        ("output_count", _WORD),
        ("outputs", _POINTER),
        ("held_in", _POINTER),
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
        addresses = [ctypes.cast(launcher, _POINTER).value or 0 for launcher in launchers]
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


class Handler:
    """The FFI handler for the CPU. `find` returns the program of a key that this process has not loaded: an executable
    may come from JAX's persistent cache."""

    def __init__(self, find: Callable[[str], Frozen | None]) -> None:
        """Builds, loads and registers the handler. Raises BackendError without a C++ compiler, or if it fails."""
        import jax

        self._find = find
        self._loaded: dict[str, _Loaded] = {}
        self._lock = threading.Lock()
        text = native_text("handler.cpp")
        self._library = load([f"// jaxlib {version('jaxlib')}\n{text}"], (f"-I{jax.ffi.include_dir()}", "-pthread"))
        self._loader = _LOADER(self._load)
        self._library.hlo_opt_start.argtypes = [_POINTER, _LOADER]
        self._library.hlo_opt_add.argtypes = [ctypes.c_char_p, _POINTER]
        self._library.hlo_opt_calls.restype = _WORD
        self.start()
        for function in ("hlo_opt_type_id", "hlo_opt_type_info"):
            getattr(self._library, function).restype = _POINTER
        self._register()

    def start(self) -> None:
        """Gives the handler what runs regions."""
        self._library.hlo_opt_start(ctypes.cast(runner(), _POINTER), self._loader)

    def _register(self) -> None:
        import jax

        jax.local_devices(backend="cpu")  # JAX would otherwise register the target before its type
        own = self._library
        types = {"type_id": capsule(own.hlo_opt_type_id()), "type_info": capsule(own.hlo_opt_type_info())}
        jax.ffi.register_ffi_type("hlo_opt.State", types, platform="cpu")  # type: ignore[arg-type]
        stages = {
            "instantiate": jax.ffi.pycapsule(own.HloOptInstantiate),
            "execute": jax.ffi.pycapsule(own.HloOptExecute),
        }
        jax.ffi.register_ffi_target(TARGET, stages, platform="cpu")

    @property
    def calls(self) -> int:
        """The number of runs of regions."""
        return int(self._library.hlo_opt_calls())

    def add(self, key: str, frozen: Frozen) -> None:
        """Loads a region. Raises as `_Loaded`."""
        with self._lock:
            if key not in self._loaded:
                loaded = self._loaded[key] = _Loaded(frozen)
                self._library.hlo_opt_add(key.encode(), ctypes.byref(loaded.region))

    def has(self, key: str) -> bool:
        """Whether there is a region for a key; loads it from the cache if needed."""
        return key in self._loaded or bool(self._load(key.encode()))

    def _load(self, key: bytes) -> int:
        """Called by the C++ handler for an unknown key. Returns 1 if the region is loaded now, else 0."""
        try:
            name = key.decode()
            frozen = self._find(name)
            if frozen is None:
                return 0
            self.add(name, frozen)
        except Exception:  # called by C++, which then reports missing kernels, so that JAX compiles again
            return 0
        return 1


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
