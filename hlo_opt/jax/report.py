"""The report of the hook: lines with a code, the module and the region."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from hlo_opt.diag.errors import printable
from hlo_opt.diag.python_files import below, current_folder

CODES = {
    "JAX001": "kernels of ours: {ours_us:.1f} us instead of {xla_us:.1f} us",
    "JAX101": "not changed: it donates inputs, and JAX loses donations of a module that a hook changes",
    "JAX102": "not changed: XLA's kernels take {xla_us:.1f} us, a call of ours takes {ours_us:.1f} us at least",
    "JAX103": "not changed: kernels of ours make no part of it faster",
    "JAX104": "not changed: {megabytes:.0f} MB are too much to read while a program waits",
    "JAX105": "not changed: it was compiled while a callback of the report ran",
    "JAX201": "no kernels: {why}",
    "JAX202": "not changed: kernels of ours take {ours_us:.1f} us, XLA's {xla_us:.1f} us; {rule}",
    "JAX203": "not changed: the trip counts of its loops are unknown or too large to time",
    "JAX204": "not changed: the value of a constant is elided",
    "JAX205": "not changed: {size} operations are too many to fuse while a program waits",
    "JAX206": "not changed: the time limit is reached",
    "JAX207": "not changed: the type or layout of an input or output is not supported",
    "JAX208": "not changed: with kernels of ours the whole module takes {ours_us:.1f} us, XLA's {xla_us:.1f} us",
    "JAX209": "not changed: it reads or writes donated memory that XLA reads or writes, too",
    "JAX210": "not changed: too few launches are left for a CUDA graph; the replaced parts are estimated to take "
    "{ours_us:.1f} us with what these cost outside one, XLA's {xla_us:.1f} us",
    "JAX211": "not changed: XLA's loop ends by what is compared here, which must be rounded as XLA rounds it",
    "JAX212": "not changed: kernels of ours are wrong, please report it: {why}",
    "JAX213": "not changed: kernels of ours differ from XLA's, and bounds of rounding take too long: {why}",
    "JAX214": "not changed: kernels of ours crash, please report it: {why}",
    "JAX301": "XLA's code runs for now; kernels of ours are built in the background for the next compilation",
    "JAX302": "interrupted",
    "JAX303": "failed: {why}",
    "JAX304": "the time limit was reached before, or the machine was too busy to tell; the rest is decided in the "
    "background for the next compilation",
    "JAX305": "the machine is too busy to tell: kernels of ours took {low_us:.1f} to {high_us:.1f} us, XLA's "
    "{xla_us:.1f} us; both are timed again at the next compilation",
    "JAX401": "kernels of ours were found in the cache",
    "JAX402": "kernels of ours were compiled",
}
"""The text of each code."""

REPLACED = "JAX001"
"""The code of a region that our kernels compute."""
LEFT = {
    "kernels of ours are no faster": ("JAX102", "JAX202", "JAX208", "JAX210"),
    "no kernels": ("JAX201",),
    "kernels of ours give other results": ("JAX212", "JAX213"),
    "kernels of ours crash": ("JAX214",),
    "they cannot be timed": ("JAX203", "JAX204"),
    "too large, or of a form that is not supported": ("JAX205", "JAX207", "JAX209", "JAX211"),
    "slower together than alone": ("JAX401", "JAX402"),
    "no time, or a machine too busy to tell": ("JAX206", "JAX305"),
}
"""Why regions are left, in the words of the summary: the codes of each. What has kernels and is not replaced lost when
the module was timed as a whole."""

WHOLE = "all"
"""The region of lines about all regions of a module together."""

_DECIDES = {REPLACED: "", **{code: why for why, codes in LEFT.items() for code in codes}}
"""The codes of lines that decide about a region."""


@dataclass(frozen=True)
class Line:
    """A line of the report. `region` is empty in a line about a whole module; `written` is the number of bytes that
    XLA's kernels for the region write in a run; `source` is `file:line` of its Python code, empty if unknown; `ours_us`
    and `xla_us` are what our kernels and XLA's take, 0 where the line does not compare them."""

    code: str
    module: str
    region: str
    message: str
    written: int = 0
    source: str = ""
    ours_us: float = 0.0
    xla_us: float = 0.0

    def __str__(self) -> str:
        place = f"{self.module}: {self.region}" if self.region else self.module
        source = f" ({below(current_folder(), self.source)})" if self.source else ""
        return f"{self.code} {printable(place + source)}: {self.message}"


def line(
    code: str, module: str, region: str = "", *, bytes_written: int = 0, source: str = "", **numbers: str | int | float
) -> Line:
    """The line for a code. Raises KeyError for an unknown code or a missing number."""
    ours_us, xla_us = (float(numbers.get(name, 0.0)) for name in ("ours_us", "xla_us"))
    return Line(code, module, region, CODES[code].format(**numbers), bytes_written, source, ours_us, xla_us)


def _decides(one: Line) -> bool:
    return one.region not in ("", WHOLE) and one.code in _DECIDES


PATIENCE = 0.2
"""Seconds that a compilation waits for callbacks that run: those that only print have returned by then."""


class Callbacks:
    """The callbacks of reports that run now, in all threads.

    A callback may compile, and a compilation that the hook works on calls the callback, without end. XLA compiles in
    threads of its own, so nothing says which compilation is a callback's: it is one that the callback waits for.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._running: dict[object, int] = {}
        """The thread of each."""

    @contextmanager
    def running(self) -> Iterator[None]:
        """Inside, a callback runs in this thread."""
        one = object()
        with self._changed:
            self._running[one] = threading.get_ident()
        try:
            yield
        finally:
            with self._changed:
                del self._running[one]
                self._changed.notify_all()

    def may_wait_for_us(self) -> bool:
        """Whether a callback may wait for what this thread compiles: it runs in this thread, or has not returned after
        `PATIENCE`."""
        with self._changed:
            if threading.get_ident() in self._running.values():
                return True
            asked = set(self._running)
            return not self._changed.wait_for(lambda: asked.isdisjoint(self._running), PATIENCE)


CALLBACKS = Callbacks()


class Report:
    """The lines of the hook so far, in order. `on_line` is called with each new line. What it compiles is left to XLA.

    added_ms      milliseconds that the hook added to compilations, in all threads
    added_cpu_ms  CPU time of these threads in milliseconds, without the compilers that they started
    """

    def __init__(self, on_line: Callable[[Line], None] | None = None) -> None:
        self.lines: list[Line] = []
        self.added_ms = self.added_cpu_ms = 0.0
        self._on_line = on_line
        self._lock = threading.Lock()

    def add(self, new: Line) -> None:
        self.note(new)
        if self._on_line is not None:
            with CALLBACKS.running():
                self._on_line(new)

    def note(self, new: Line) -> None:
        """As `add`, without a call of `on_line`."""
        with self._lock:
            self.lines.append(new)

    def took(self, seconds: float, cpu_seconds: float) -> None:
        """Adds the wall time and the CPU time of the hook in a compilation."""
        with self._lock:
            self.added_ms += seconds * 1e3
            self.added_cpu_ms += cpu_seconds * 1e3

    @property
    def replaced(self) -> list[Line]:
        """The lines of the regions that our kernels compute now."""
        return [each for each in self.lines if each.code == REPLACED]

    def count(self, code: str) -> int:
        """The number of lines with a code."""
        return sum(each.code == code for each in self.lines)

    @property
    def summary(self) -> str:
        """One line: how many regions our kernels compute, what these take, and why the others are left. A region that
        was decided more than once counts once, by its last line."""
        last = {(each.module, each.region): each for each in self.lines if _decides(each)}
        ours = [each for each in last.values() if each.code == REPLACED]
        left = Counter(_DECIDES[each.code] for each in last.values() if each.code != REPLACED)
        text = f"{len(ours)} of {len(last)} regions replaced"
        if ours:
            ours_us, xla_us = (sum(us) for us in zip(*((each.ours_us, each.xla_us) for each in ours), strict=True))
            text += f" ({ours_us:.1f} us instead of {xla_us:.1f} us)"
        return "; ".join([text, *(f"{count} left: {why}" for why, count in left.most_common())])

    def __str__(self) -> str:
        """The lines, and the summary of those about regions."""
        return "\n".join([*map(str, self.lines), *([self.summary] if any(map(_decides, self.lines)) else [])])
