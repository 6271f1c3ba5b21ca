"""Tables of NVIDIA Nsight Systems: `nsys stats --report cuda_gpu_kern_sum --format csv` (or `cuda_gpu_trace`), in which
a kernel goes by its symbol.

Source of the columns: Nsight Systems User Guide, "Report Scripts". The unit stands in the titles, `Total Time (ns)`.
Lines before the titles, as `nsys stats` prints them, are passed over.
"""

from __future__ import annotations

import csv
import io
import re

from hlo_opt.report.measured.events import Profile

_UNITS = {"ns": 1e-3, "us": 1.0, "μs": 1.0, "ms": 1e3, "s": 1e6, "sec": 1e6}
_TITLE = re.compile(r"(total time|duration) *\(?([a-zμ]+)?\)?", re.IGNORECASE)
_NAMES = ("name", "kernel name")
_COUNTS = ("instances", "count")
_TRANSFER = re.compile(r"\[CUDA (memcpy|memset)", re.IGNORECASE)


def read(text: str) -> Profile:
    """The kernels of a table; copies between memories are left out. Raises ValueError where the text has no row of
    titles with a time and a name."""
    rows = csv.reader(io.StringIO(text))
    profile = Profile()
    for titles in rows:
        columns = _columns(titles)
        if columns is None:
            continue
        name, time, factor, count = columns
        for row in rows:
            if len(row) <= max(name, time) or _TRANSFER.search(row[name]):
                continue
            microseconds = _number(row[time])
            times = 1.0 if count is None or count >= len(row) else _number(row[count])
            if microseconds is not None and row[name] and times:
                profile.add(row[name], microseconds * factor, count=int(times))
        return profile
    raise ValueError("it has no row of titles with a time (`Total Time (ns)` or `Duration (ns)`) and a `Name`")


def _columns(titles: list[str]) -> tuple[int, int, float, int | None] | None:
    """Where name, time and count are, and what makes microseconds of a time; None for a row that is no titles."""
    lowered = [title.strip().lower() for title in titles]
    name = next((n for n, title in enumerate(lowered) if title in _NAMES), None)
    times = [(n, match) for n, title in enumerate(lowered) if (match := _TITLE.fullmatch(title))]
    if name is None or not times:
        return None
    time, match = times[0]
    count = next((n for n, title in enumerate(lowered) if title in _COUNTS), None)
    return name, time, _UNITS.get(match[2] or "ns", 1e-3), count


def _number(text: str) -> float | None:
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return None
