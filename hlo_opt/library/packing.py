"""Elements of less than a byte as they lie in a device's memory: as many as a byte holds, the first in its lowest bits; arrays of NumPy and CuPy have one to a byte.

Source: xla/util.h, PackIntN and UnpackIntN. What is behind the last element in its byte is 0. The functions work on an array module `xp`, NumPy or CuPy; their text
is also what an emitted driver contains, so they use nothing but their arguments.
"""

from __future__ import annotations

from types import ModuleType

from hlo_opt.ir.values import Array


def packed(xp: ModuleType, values: Array, bits: int) -> Array:
    """The bytes that hold elements of so many bits, given in a flat array, one to a byte."""
    per_byte = 8 // bits
    elements = values.view(xp.uint8) & xp.uint8((1 << bits) - 1)
    if elements.size % per_byte:
        elements = xp.concatenate([elements, xp.zeros(per_byte - elements.size % per_byte, xp.uint8)])
    words = elements.view(f"uint{8 * per_byte}")  # little-endian: the first element is in the lowest byte
    made = words.copy()
    for k in range(1, per_byte):
        made |= words >> words.dtype.type((8 - bits) * k)
    return made.astype(xp.uint8)


def unpacked(xp: ModuleType, memory: Array, bits: int, count: int) -> Array:
    """So many elements of the bytes that hold them, in a flat array, one to a byte."""
    per_byte = 8 // bits
    words = memory.astype(f"uint{8 * per_byte}")
    made = words.copy()
    for k in range(1, per_byte):
        made |= words << words.dtype.type((8 - bits) * k)
    elements = made.view(xp.uint8)[:count]
    elements &= xp.uint8((1 << bits) - 1)
    return elements
