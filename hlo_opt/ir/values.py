"""The types of what programs compute with. NumPy is imported by those who need it: naming a type loads nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import numpy

Array: TypeAlias = "numpy.ndarray[Any, numpy.dtype[Any]]"
"""An array of NumPy; where code is written over an array module `xp`, one of CuPy too, which does all that such code asks for."""

DType: TypeAlias = "numpy.dtype[Any]"
"""How NumPy stores elements."""
