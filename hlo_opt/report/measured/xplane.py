"""Profiles of XLA's own profiler (`jax.profiler.trace`): `*.xplane.pb`, read field by field without the protobuf
library.

Source of the numbers of fields: tsl/profiler/protobuf/xplane.proto. An event of the thunks on a CPU, and of the kernels
on a GPU, says in the statistics `hlo_op` and `hlo_module` which instruction of which module it is of, in `run_id` of
which execution.
"""

from __future__ import annotations

from hlo_opt.forms.wire import fields
from hlo_opt.report.measured.events import Profile

_PLANE = 1
_PLANE_NAME, _PLANE_LINES, _EVENT_NAMES, _STAT_NAMES = 2, 3, 4, 5
_LINE_NAME, _LINE_EVENTS = 2, 4
_EVENT_NAME, _EVENT_PICOSECONDS, _EVENT_STATS, _EVENT_COUNT = 1, 3, 4, 5
_STAT_NAME, _STAT_UINT, _STAT_INT, _STAT_TEXT, _STAT_REFERENCE = 1, 3, 4, 5, 7
_KEY, _VALUE, _NAME = 1, 2, 2

OPERATIONS = "XLA Ops"
"""The line of a device's plane that holds its instructions, where there is one: the streams beside it hold the same
time again."""


def read(data: bytes) -> Profile:
    """The events that name an instruction. Raises ValueError for what is no such file."""
    profile = Profile()
    planes = [field.payload() for field in fields(data) if field.number == _PLANE]
    if not planes:
        raise ValueError("it holds no plane")
    for plane in planes:
        _read_plane(plane, profile)
    return profile


def _read_plane(plane: bytes, profile: Profile) -> None:
    names: dict[int, str] = {}
    statistics: dict[int, str] = {}
    lines: list[bytes] = []
    for field in fields(plane):
        if field.number == _PLANE_LINES:
            lines.append(field.payload())
        elif field.number in (_EVENT_NAMES, _STAT_NAMES):
            key, name = _entry(field.payload())
            (names if field.number == _EVENT_NAMES else statistics)[key] = name
    if "hlo_op" not in statistics.values():
        return
    titled = [(_text(line, _LINE_NAME), line) for line in lines]
    if any(title == OPERATIONS for title, _ in titled):
        titled = [(title, line) for title, line in titled if title == OPERATIONS]
    for _, line in titled:
        for field in fields(line):
            if field.number == _LINE_EVENTS:
                _read_event(field.payload(), names, statistics, profile)


def _entry(data: bytes) -> tuple[int, str]:
    """Key and name of an entry of the tables of names."""
    key, name = 0, ""
    for field in fields(data):
        if field.number == _KEY:
            key = field.counted()
        elif field.number == _VALUE:
            name = _text(field.payload(), _NAME)
    return key, name


def _text(data: bytes, wanted: int) -> str:
    for field in fields(data):
        if field.number == wanted:
            return field.payload().decode("utf-8", "replace")
    return ""


def _read_event(event: bytes, names: dict[int, str], statistics: dict[int, str], profile: Profile) -> None:
    name, picoseconds, count = "", 0, 1
    values: dict[str, str | int] = {}
    for field in fields(event):
        if field.number == _EVENT_NAME:
            name = names.get(field.counted(), "")
        elif field.number == _EVENT_PICOSECONDS:
            picoseconds = field.counted()
        elif field.number == _EVENT_COUNT:
            count = field.counted()
        elif field.number == _EVENT_STATS:
            key, value = _statistic(field.payload(), statistics)
            values[key] = value
    operation, run = values.get("hlo_op"), values.get("run_id")
    if operation is not None:
        module = str(values.get("hlo_module", ""))
        run_number = run if isinstance(run, int) else None
        profile.add(str(operation) or name, picoseconds / 1e6, module=module, run=run_number, count=count)


def _statistic(data: bytes, statistics: dict[int, str]) -> tuple[str, str | int]:
    key, text = "", ""
    number: int | None = None
    for field in fields(data):
        if field.number == _STAT_NAME:
            key = statistics.get(field.counted(), "")
        elif field.number == _STAT_TEXT:
            text = field.payload().decode("utf-8", "replace")
        elif field.number == _STAT_REFERENCE:
            text = statistics.get(field.counted(), "")
        elif field.number in (_STAT_UINT, _STAT_INT):
            number = field.counted()
    return key, (text if number is None else number)
