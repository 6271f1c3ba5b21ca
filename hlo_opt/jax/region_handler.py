"""What the typed FFI handlers for CPUs and GPUs have in common: a library that is built with the headers of the
installed jaxlib, and the regions that it runs, by their keys. Their C++ side is `regions.h`."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from importlib.metadata import version
from typing import TYPE_CHECKING, ClassVar, Generic, Protocol, TypeVar

from hlo_opt.jax.native import native_text
from hlo_opt.runtime.host.compiler import load

if TYPE_CHECKING:
    from typing_extensions import CapsuleType

TARGET = "hlo_opt.run"
"""The custom call target of regions with our kernels."""

POINTER, WORD = ctypes.c_void_p, ctypes.c_longlong
_LOADER = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p)


def capsule(address: int) -> CapsuleType:
    """An address as a capsule, for JAX."""
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, [POINTER, ctypes.c_char_p, POINTER]
    result: CapsuleType = new(address, None, None)
    return result


class LoadedRegion(Protocol):
    """A region in this process: the C++ `Region`, and the memory that it points to."""

    region: ctypes.Structure


P = TypeVar("P")
L = TypeVar("L", bound=LoadedRegion)


class RegionHandler(Generic[P, L]):
    """An FFI handler: programs of type `P` become loaded regions of type `L`.

    platform  JAX's name of the platform
    state     the name of the type of a call's state
    stages    stage -> the exported function
    """

    platform: ClassVar[str]
    state: ClassVar[str]
    stages: ClassVar[dict[str, str]]

    def __init__(self, find: Callable[[str], P | None], load_region: Callable[[P], L], *texts: str) -> None:
        """Builds and loads the handler from files of C++. `find` returns the program of a key that this process has not
        loaded: an executable may come from JAX's persistent cache. Raises BackendError without a C++ compiler, or if it
        fails."""
        import jax

        self._find = find
        self._load_region = load_region
        self._loaded: dict[str, L] = {}
        self._lock = threading.Lock()
        text = f"// jaxlib {version('jaxlib')}\n{native_text(*texts)}"
        self.library = load([text], (f"-I{jax.ffi.include_dir()}", "-pthread", "-ldl"))
        self._loader = _LOADER(self._load)
        self.library.hlo_opt_load_by.argtypes = [_LOADER]
        self.library.hlo_opt_add.argtypes = [ctypes.c_char_p, POINTER]
        self.library.hlo_opt_calls.restype = WORD
        self.library.hlo_opt_load_by(self._loader)
        for function in ("hlo_opt_type_id", "hlo_opt_type_info"):
            getattr(self.library, function).restype = POINTER

    def register(self) -> None:
        """Registers the handler with XLA. XLA's backend for the platform must exist: JAX would otherwise register the
        target before its type."""
        import jax

        own = self.library
        types = {"type_id": capsule(own.hlo_opt_type_id()), "type_info": capsule(own.hlo_opt_type_info())}
        jax.ffi.register_ffi_type(self.state, types, platform=self.platform)  # type: ignore[arg-type]
        stages = {stage: jax.ffi.pycapsule(getattr(own, name)) for stage, name in self.stages.items()}
        jax.ffi.register_ffi_target(TARGET, stages, platform=self.platform)

    @property
    def calls(self) -> int:
        """The number of runs of regions; on a GPU, of times that they were enqueued: a captured call counts once."""
        return int(self.library.hlo_opt_calls())

    def add(self, key: str, program: P) -> None:
        """Loads a region. Raises as the class of loaded regions."""
        with self._lock:
            if key not in self._loaded:
                loaded = self._loaded[key] = self._load_region(program)
                self.library.hlo_opt_add(key.encode(), ctypes.byref(loaded.region))

    def has(self, key: str) -> bool:
        """Whether there is a region for a key; loads it from the cache if needed."""
        return key in self._loaded or bool(self._load(key.encode()))

    def loaded(self, key: str) -> L:
        """A region that was loaded. Raises KeyError for another key."""
        return self._loaded[key]

    def _load(self, key: bytes) -> int:
        """Called by the C++ handler for an unknown key. Returns 1 if the region is loaded now, else 0."""
        try:
            name = key.decode()
            program = self._find(name)
            if program is None:
                return 0
            self.add(name, program)
        except Exception:  # called by C++, which then reports missing kernels, so that JAX compiles again
            return 0
        return 1
