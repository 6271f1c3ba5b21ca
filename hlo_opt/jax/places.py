"""The Python lines of a module's instructions, from its bytes: a process that finds its kernels in the cache parses no
text.

Field numbers are those of StackFrameIndexProto in xla/service/hlo.proto and of OpMetadata in xla/xla_data.proto. Ids
count from 1; 0 is none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property

from hlo_opt.diag.python_files import is_library
from hlo_opt.forms.wire import fields
from hlo_opt.jax.wire import ModuleBytes

FILES, LOCATIONS, FRAMES = 1, 3, 4  # of the tables
FILE, LINE = 1, 3  # of a location
LOCATION, PARENT = 1, 2  # of a frame
SOURCE_FILE, SOURCE_LINE, FRAME = 3, 4, 15  # of the metadata of an instruction


class Places:
    """The Python lines of a module. Nothing is parsed before the first question."""

    def __init__(self, module: ModuleBytes) -> None:
        self._module = module
        self._metadata: dict[str, dict[str, bytes]] = {}
        """The metadata of the instructions of computations, by name."""

    def of(self, computation: str, names: Iterable[str]) -> str:
        """`file:line` of the first of these instructions of a computation that has a Python line; "" if none has, or
        the message is damaged."""
        try:
            return next(filter(None, (self._place(computation, name) for name in names)), "")
        except ValueError:
            return ""

    def _place(self, computation: str, name: str) -> str:
        """`file:line` of the innermost frame outside libraries."""
        if computation not in self._metadata:
            bodies = (body for body in self._module.bodies if body.name == computation)
            self._metadata[computation] = {node.name: node.metadata for body in bodies for node in body.nodes}
        file, line, frame = "", 0, 0
        for field in fields(self._metadata[computation].get(name, b"")):
            for f in fields(field.data):
                if f.number == SOURCE_FILE:
                    file = f.data.decode(errors="replace")
                elif f.number == SOURCE_LINE:
                    line = f.value
                elif f.number == FRAME:
                    frame = f.value
        known = [(file, line)] if file else list(self._frames.callers(frame))
        own = next((each for each in known if not is_library(each[0])), known[0] if known else None)
        return "" if own is None else f"{own[0]}:{own[1]}"

    @cached_property
    def _frames(self) -> StackFrames:
        return StackFrames(self._module.stack_frames)


class StackFrames:
    """The tables of files, of places in them and of who called whom."""

    def __init__(self, message: bytes) -> None:
        """Raises ValueError if the message is damaged."""
        self._files: dict[int, str] = {}
        self._locations: dict[int, dict[int, int]] = {}
        self._frames: dict[int, dict[int, int]] = {}
        for f in fields(message):
            if f.number == FILES:
                self._files[len(self._files) + 1] = f.data.decode(errors="replace")
            elif f.number in (LOCATIONS, FRAMES):
                rows = self._locations if f.number == LOCATIONS else self._frames
                rows[len(rows) + 1] = {each.number: each.value for each in fields(f.data)}

    def callers(self, frame: int) -> Iterator[tuple[str, int]]:
        """The file and line of a frame, then those of its callers."""
        seen: set[int] = set()
        while frame in self._frames and frame not in seen:
            seen.add(frame)
            location = self._locations.get(self._frames[frame].get(LOCATION, 0), {})
            file = self._files.get(location.get(FILE, 0), "")
            if file:
                yield file, location.get(LINE, 0)
            frame = self._frames[frame].get(PARENT, 0)
