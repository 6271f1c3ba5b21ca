"""Sines, cosines and tangents of all lanes at a time.

Most angles are small, and take a fraction of the time that any float may. Which way is right is asked for many lanes at
once, so these functions have a loop of their own (`hlo::turn` of `host_math.h`) between the loops over lanes: within
one of these a compiler would take both ways for every lane.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from hlo_opt.ops.code import Name

FUNCTIONS = ("sinf", "cosf", "tanf")
"""What `hlo::turn` gives, in its order."""


@dataclass(eq=False)
class Turns:
    """The functions of an angle, which each lane has in an array: by function, the arrays of what they give."""

    angle: str
    results: dict[str, Name] = field(default_factory=dict)

    def line(self, array: Callable[[str], str], lanes: str) -> str:
        """The call. `array` is where a variable of all lanes lies."""
        asked = ", ".join(str(f in self.results).lower() for f in FUNCTIONS)
        places = ", ".join(array(self.results[f].text) if f in self.results else "nullptr" for f in FUNCTIONS)
        return f"hlo::turn<{asked}>({array(self.angle)}, {places}, {lanes});"
