"""Memory in which a kernel cannot leave its arrays unseen.

Each array lies between stretches of memory that nobody may touch, so that an access far beyond its ends is a crash. The
few bytes to these hold a pattern that must still be there afterwards. Inputs cannot be written. What holds no value yet
is filled with NaN and such, never with zeros, as new memory from the system is: a result that nothing was written to is
seen.
"""

from __future__ import annotations

import ctypes
import mmap
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from hlo_opt.ir import Shape
from hlo_opt.ir.values import Array
from hlo_opt.runtime.numpy import WORD, held_dtype

FENCE = 1 << 20
"""Bytes of the stretch on either side. They take addresses, and no memory."""
ALIGNED, OF_BLOCK = 16, 64
"""At which multiples arrays start, and a block of many."""
MOST = 1 << 26
"""Bytes of a value that is not copied here any more."""
PATTERN, NOT_A_NUMBER, UNLIKELY = 0x5A, 0xFF, 0xA5


@dataclass(frozen=True)
class _Field:
    """An array's memory: the pages that may be touched, and where in these it lies."""

    name: str
    pages: Array
    start: int
    end: int
    is_read_only: bool


class Fences:
    """The memory of a run."""

    def __init__(self) -> None:
        self._fields: list[_Field] = []

    def block(self, size: int, name: str) -> Array:
        """Bytes that hold no number yet."""
        return self._new(size, OF_BLOCK, name, NOT_A_NUMBER)

    def empty(self, shape: Shape, name: str) -> Array:
        """A buffer that holds no number yet, or an unlikely one."""
        size = shape.stored_bytes
        is_float = shape.type.is_float or shape.type.is_complex
        new = self._new(-(-size // WORD) * WORD, ALIGNED, name, NOT_A_NUMBER if is_float else UNLIKELY)
        return new[:size].view(held_dtype(shape))

    def copy(self, array: Array, name: str, *, is_read_only: bool) -> Array:
        """A copy of an array in one piece, or a large one itself."""
        if array.nbytes > MOST:
            return array
        new = self._new(-(-array.nbytes // WORD) * WORD, ALIGNED, name, 0)[: array.nbytes]
        new[:] = array.reshape(-1).view(np.uint8)
        if is_read_only:
            field = self._fields[-1]
            self._fields[-1] = _Field(name, field.pages, field.start, field.end, True)
            _protect(field.pages.ctypes.data, field.pages.nbytes, mmap.PROT_READ)
        return new.view(array.dtype).reshape(array.shape)

    def _new(self, size: int, alignment: int, name: str, fill: int) -> Array:
        room = -(-max(size, 1) // alignment) * alignment
        inner = -(-room // mmap.PAGESIZE) * mmap.PAGESIZE
        held = mmap.mmap(-1, inner + 2 * FENCE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        every = np.frombuffer(held, np.uint8)
        _protect(every.ctypes.data, FENCE, 0)
        _protect(every.ctypes.data + FENCE + inner, FENCE, 0)
        pages = every[FENCE : FENCE + inner]
        start = inner - room
        self._fields.append(_Field(name, pages, start, start + size, False))
        pages[:] = PATTERN
        pages[start : start + size] = fill
        return pages[start : start + size]

    def damage(self) -> str:
        """What was written outside of arrays, in words; empty where nothing was."""
        for field in self._fields:
            if field.is_read_only:
                continue
            before = np.flatnonzero(field.pages[: field.start] != PATTERN)
            behind = np.flatnonzero(field.pages[field.end :] != PATTERN)
            if behind.size:
                return f"{behind[-1] + 1} bytes behind the end of {field.name}"
            if before.size:
                return f"{field.start - before[0]} bytes before {field.name}"
        return ""

    def place(self, address: int) -> str:
        """What an address is to these arrays, in words; empty for one that is far from all."""
        for field in self._fields:
            at = address - field.pages.ctypes.data
            if field.start <= at < field.end:
                return f"in {field.name}" + ", which is not its to write" * field.is_read_only
            if field.end <= at < field.pages.nbytes + FENCE:
                return f"{at - field.end} bytes behind the end of {field.name}"
            if -FENCE <= at < field.start:
                return f"{field.start - at} bytes before {field.name}"
        return ""


@cache
def _mprotect() -> Any:
    function = ctypes.CDLL(None).mprotect
    function.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return function


def _protect(address: int, size: int, allowed: int) -> None:
    """Where the system has no such addresses left, memory is as it was."""
    _mprotect()(address, size, allowed)
