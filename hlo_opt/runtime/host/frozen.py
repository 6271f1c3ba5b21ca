"""A program of the host as plain data: it runs in another process without the module, and without Python.

The words know no addresses; kernels are symbols of a shared library in the cache, which is named by its content.
"""

from __future__ import annotations

import io
import json
import zipfile
from dataclasses import asdict, dataclass

import numpy as np

from hlo_opt.ir.values import Array

FRAME_WORDS = 8
"""64-bit words that `host_runtime.cpp` keeps for each routine that has begun."""


@dataclass(frozen=True)
class FrozenRoutine:
    """As `RoutineWords`: slots of its buffers, and all of its slots."""

    buffers: int
    slots: int


@dataclass(frozen=True)
class Frozen:
    """What `hlo_run` needs.

    library    the file in the cache that holds the kernels; empty without any
    launchers  symbols there, by the numbers that the words have for them
    routines   the entry first; the words of each are in `words`
    constants  as they lie in memory
    inputs     slot and bytes of each input of a run
    outputs    slot and bytes of each that it makes
    donated    inputs that it overwrites with an output, and that output, both by number
    memory     bytes of all its intermediate values, from a multiple of 64 on
    slots      pointers of all frames at once
    frames     routines that are under way at once
    pointers   that a kernel takes at most
    own        routines of the host's own that it calls; their numbers follow those of the launchers
    """

    library: str
    launchers: tuple[str, ...]
    routines: tuple[FrozenRoutine, ...]
    words: tuple[Array, ...]
    constants: tuple[Array, ...]
    inputs: tuple[tuple[int, int], ...]
    outputs: tuple[tuple[int, int], ...]
    donated: tuple[tuple[int, int], ...]
    memory: int
    slots: int
    frames: int
    pointers: int
    own: tuple[str, ...]

    def packed(self) -> bytes:
        """As bytes, for a file."""
        head = {name: value for name, value in asdict(self).items() if name not in ("words", "constants")}
        arrays = {f"words{k}": a for k, a in enumerate(self.words)}
        arrays |= {f"held{k}": np.frombuffer(a.tobytes(), np.uint8) for k, a in enumerate(self.constants)}
        file = io.BytesIO()
        np.savez(file, allow_pickle=False, head=np.frombuffer(json.dumps(head).encode(), np.uint8), **arrays)
        return file.getvalue()

    @classmethod
    def unpacked(cls, data: bytes) -> Frozen:
        """The opposite of `packed`. Raises ValueError for other bytes."""
        try:
            with np.load(io.BytesIO(data), allow_pickle=False) as stored:
                arrays = {name: stored[name] for name in stored.files}
            head = json.loads(arrays["head"].tobytes())
            count = sum(name.startswith("held") for name in arrays)
            return cls(
                library=str(head["library"]),
                launchers=tuple(map(str, head["launchers"])),
                routines=tuple(FrozenRoutine(int(r["buffers"]), int(r["slots"])) for r in head["routines"]),
                words=tuple(arrays[f"words{k}"] for k in range(len(head["routines"]))),
                constants=tuple(arrays[f"held{k}"] for k in range(count)),
                inputs=tuple((int(slot), int(size)) for slot, size in head["inputs"]),
                outputs=tuple((int(slot), int(size)) for slot, size in head["outputs"]),
                donated=tuple((int(parameter), int(result)) for parameter, result in head["donated"]),
                **{name: int(head[name]) for name in ("memory", "slots", "frames", "pointers")},
                own=tuple(map(str, head["own"])),
            )
        except (KeyError, TypeError, ValueError, EOFError, zipfile.BadZipFile) as fault:
            raise ValueError(f"no frozen program: {fault}") from fault
