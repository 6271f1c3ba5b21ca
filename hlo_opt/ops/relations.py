"""What the directions of `compare` ask of two values."""

from __future__ import annotations

import operator
from collections.abc import Callable

RELATIONS: dict[str, Callable[..., object]] = {
    "LT": operator.lt,
    "LE": operator.le,
    "GT": operator.gt,
    "GE": operator.ge,
    "EQ": operator.eq,
    "NE": operator.ne,
}
"""For each direction the relation of two numbers, or of two arrays element by element. NaN is unordered, as in XLA's
order of floats that is not total."""
