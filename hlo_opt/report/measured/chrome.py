"""Traces for Perfetto and Chrome: JSON, or JSON packed by gzip, with complete events (`"ph": "X"`) in microseconds.

What `jax.profiler.trace` writes beside its `*.xplane.pb` says in `args` of which instruction (`hlo_op`) and module an
event is. A trace whose events do not say so is taken by the events' names.
"""

from __future__ import annotations

import gzip
import io
import json
import zlib
from typing import TYPE_CHECKING

from hlo_opt.report.measured.events import Profile

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hlo_opt.analysis.graph.spelling import Json

LARGEST = 1 << 30
"""Bytes that a packed trace may unfold to."""


def unpacked(data: bytes) -> bytes:
    """What gzip packed. Raises ValueError."""
    try:
        with gzip.open(io.BytesIO(data)) as stream:
            content = stream.read(LARGEST + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"it is not packed by gzip: {error}") from None
    if len(content) > LARGEST:
        raise ValueError(f"unpacked it is larger than {LARGEST} bytes")
    return content


def read(data: bytes) -> Profile:
    """The events of a trace. Raises ValueError for data that is no trace."""
    try:
        tables: Json = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"it is not JSON: {error}") from None
    events = tables.get("traceEvents") if isinstance(tables, dict) else tables
    if not isinstance(events, list):
        raise ValueError("it has no list of events, `traceEvents`")
    complete = [e for e in events if isinstance(e, dict) and e.get("ph") == "X" and _is_number(e.get("dur"))]
    return _of([e for e in complete if "hlo_op" in _arguments(e)] or complete)


def _arguments(event: dict[str, Json]) -> dict[str, Json]:
    arguments = event.get("args")
    return arguments if isinstance(arguments, dict) else {}


def _is_number(value: Json) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _of(events: Iterable[dict[str, Json]]) -> Profile:
    profile = Profile()
    for event in events:
        arguments = _arguments(event)
        name, run = arguments.get("hlo_op", event.get("name")), arguments.get("run_id")
        is_run = isinstance(run, str) and run.removeprefix("-").isdecimal()
        profile.add(
            str(name),
            float(str(event["dur"])),
            module=str(arguments.get("hlo_module", "")),
            run=int(str(run)) if is_run or isinstance(run, int) else None,
        )
    return profile
