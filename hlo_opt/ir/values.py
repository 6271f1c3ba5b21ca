"""The types of values at run time. Naming a type imports nothing: NumPy is loaded where it is used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import numpy

Array: TypeAlias = "numpy.ndarray[Any, numpy.dtype[Any]]"
"""A NumPy array, or a CuPy array in code written over an array module `xp`."""

DType: TypeAlias = "numpy.dtype[Any]"
"""A NumPy dtype."""
