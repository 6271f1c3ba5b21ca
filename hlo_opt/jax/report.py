"""What the hook did, in lines: each has a code, and names the module and the region that it is about."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

CODES = {
    "JAX001": "kernels of ours: {ours_us:.1f} us instead of {xla_us:.1f} us",
    "JAX101": "the module may write into its inputs, and JAX drops that for whatever a hook gives back: left as it is",
    "JAX102": "too little work to save anything",
    "JAX103": "nothing in it that kernels of ours compute",
    "JAX104": "{megabytes:.0f} MB of it are no text that is read while a program waits",
    "JAX201": "no kernels: {why}",
    "JAX202": "left as it is: kernels of ours take {ours_us:.1f} us, XLA's {xla_us:.1f} us",
    "JAX203": "left as it is: nobody knows how long its loops run",
    "JAX204": "left as it is: the text of a constant is left out",
    "JAX205": "left as it is: {size} operations are more than are fused while a program waits",
    "JAX206": "left as it is: the time that choosing may take was over",
    "JAX207": "left as it is: its arrays cannot be handed over",
    "JAX208": "left as it is after all: with kernels of ours the whole module takes {ours_us:.1f} us, XLA's "
    "{xla_us:.1f} us",
    "JAX301": "XLA's code runs for now; kernels of ours are made in the background for the next time that it is "
    "compiled",
    "JAX302": "choosing was interrupted",
    "JAX303": "choosing failed: {why}",
    "JAX401": "kernels of ours were found in the cache",
    "JAX402": "kernels of ours were compiled",
}
"""The text of each code."""


@dataclass(frozen=True)
class Line:
    """One thing that the hook did or left. `region` is empty where the line is about a whole module; `written` are
    bytes that XLA's form of the region writes in a run."""

    code: str
    module: str
    region: str
    message: str
    written: int = 0

    def __str__(self) -> str:
        place = f"{self.module}: {self.region}" if self.region else self.module
        return f"{self.code} {place}: {self.message}"


def line(code: str, module: str, region: str = "", *, bytes_written: int = 0, **numbers: str | int | float) -> Line:
    """A line of a code. Raises KeyError for an unknown code or a number that is missing."""
    return Line(code, module, region, CODES[code].format(**numbers), bytes_written)


class Report:
    """What the hook did so far, the oldest first; `told` is called with each line as it comes.

    added_ms      what the hook added to compilation, in milliseconds, in all threads
    added_cpu_ms  what of it these threads were computing, compilers that they started left aside
    """

    def __init__(self, told: Callable[[Line], None] | None = None) -> None:
        self.lines: list[Line] = []
        self.added_ms = self.added_cpu_ms = 0.0
        self._told = told
        self._lock = threading.Lock()

    def add(self, made: Line) -> None:
        with self._lock:
            self.lines.append(made)
        if self._told is not None:
            self._told(made)

    def took(self, seconds: float, cpu_seconds: float) -> None:
        """The hook held a compilation up for so long, and computed for so long."""
        with self._lock:
            self.added_ms += seconds * 1e3
            self.added_cpu_ms += cpu_seconds * 1e3

    @property
    def replaced(self) -> list[Line]:
        """The regions that kernels of ours compute now."""
        return [found for found in self.lines if found.code == "JAX001"]

    def count(self, code: str) -> int:
        """How many lines have a code."""
        return sum(found.code == code for found in self.lines)

    def __str__(self) -> str:
        return "\n".join(map(str, self.lines))
