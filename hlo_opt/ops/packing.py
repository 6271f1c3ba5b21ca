"""Elements of less than a byte as they lie in a device's memory: as many as a byte holds, the first in its lowest bits; arrays of NumPy and CuPy have one to a byte.

Source: xla/util.h, PackIntN and UnpackIntN. What is behind the last element in its byte is 0. The functions work on an array module `xp`, NumPy or CuPy; their text
is also what an emitted driver contains, so they use nothing but their arguments.
"""

from __future__ import annotations

from typing import Any


def packed(xp: Any, values: Any, bits: int) -> Any:
    """The bytes that hold elements of so many bits, given in a flat array, one to a byte."""
    per_byte = 8 // bits
    lanes = xp.zeros((-(-values.size // per_byte), per_byte), xp.uint8)
    lanes.reshape(-1)[: values.size] = values.view(xp.uint8) & xp.uint8((1 << bits) - 1)
    made = lanes[:, 0].copy()
    for k in range(1, per_byte):
        made |= lanes[:, k] << xp.uint8(bits * k)
    return made


def unpacked(xp: Any, memory: Any, bits: int, count: int) -> Any:
    """So many elements of the bytes that hold them, in a flat array, one to a byte."""
    per_byte = 8 // bits
    lanes = xp.empty((memory.size, per_byte), xp.uint8)
    for k in range(per_byte):
        lanes[:, k] = (memory >> xp.uint8(bits * k)) & xp.uint8((1 << bits) - 1)
    return lanes.reshape(-1)[:count]
