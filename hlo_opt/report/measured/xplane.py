"""Profiles of XLA's own profiler (`jax.profiler.trace`): `*.xplane.pb`, read field by field without the protobuf library.

Source of the numbers of fields: tsl/profiler/protobuf/xplane.proto. An event of the thunks on a CPU, and of the kernels on a GPU, says in the statistics `hlo_op` and `hlo_module` which
instruction of which module it is of, in `run_id` of which execution.
"""

from __future__ import annotations

from collections.abc import Iterator

from hlo_opt.report.measured.events import Profile

_PLANE = 1
_PLANE_NAME, _PLANE_LINES, _EVENT_NAMES, _STAT_NAMES = 2, 3, 4, 5
_LINE_NAME, _LINE_EVENTS = 2, 4
_EVENT_NAME, _EVENT_PICOSECONDS, _EVENT_STATS, _EVENT_COUNT = 1, 3, 4, 5
_STAT_NAME, _STAT_UINT, _STAT_INT, _STAT_TEXT, _STAT_REFERENCE = 1, 3, 4, 5, 7
_KEY, _VALUE, _NAME = 1, 2, 2

OPERATIONS = "XLA Ops"
"""The line of a device's plane that holds its instructions, where there is one: the streams beside it hold the same time again."""

Field = tuple[int, int | bytes]


def read(data: bytes) -> Profile:
    """The events that name an instruction. Raises ValueError for what is no such file."""
    found = Profile()
    planes = [bytes_of(value) for number, value in fields(data) if number == _PLANE]
    if not planes:
        raise ValueError("it holds no plane")
    for plane in planes:
        _read_plane(plane, found)
    return found


def fields(data: bytes) -> Iterator[Field]:
    """Number and value of each field of a message: whole numbers, or the bytes of texts and messages. Raises ValueError where the bytes are no message."""
    place, end = 0, len(data)
    while place < end:
        key, place = _varint(data, place)
        number, kind = key >> 3, key & 7
        if kind == 0:
            value, place = _varint(data, place)
            yield number, value
            continue
        if kind == 2:
            size, place = _varint(data, place)
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
        else:
            raise ValueError(f"a field of wire type {kind}")
        if place + size > end or number == 0:
            raise ValueError("a field is cut off")
        piece = data[place : place + size]
        place += size
        yield number, (piece if kind == 2 else int.from_bytes(piece, "little"))


def _varint(data: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while place < len(data) and shift < 70:
        byte = data[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place
        shift += 7
    raise ValueError("a number is cut off")


def bytes_of(value: int | bytes) -> bytes:
    """The bytes of a text or a message. Raises ValueError for a number."""
    if isinstance(value, int):
        raise ValueError("a number where a message should be")
    return value


def _number(value: int | bytes) -> int:
    if isinstance(value, bytes):
        raise ValueError("a message where a number should be")
    return value


def _read_plane(plane: bytes, found: Profile) -> None:
    names: dict[int, str] = {}
    statistics: dict[int, str] = {}
    lines: list[bytes] = []
    for number, value in fields(plane):
        if number == _PLANE_LINES:
            lines.append(bytes_of(value))
        elif number in (_EVENT_NAMES, _STAT_NAMES):
            key, name = _entry(bytes_of(value))
            (names if number == _EVENT_NAMES else statistics)[key] = name
    if "hlo_op" not in statistics.values():
        return
    titled = [(_text(line, _LINE_NAME), line) for line in lines]
    if any(title == OPERATIONS for title, _ in titled):
        titled = [(title, line) for title, line in titled if title == OPERATIONS]
    for _, line in titled:
        for number, value in fields(line):
            if number == _LINE_EVENTS:
                _read_event(bytes_of(value), names, statistics, found)


def _entry(data: bytes) -> tuple[int, str]:
    """Key and name of an entry of the tables of names."""
    key, name = 0, ""
    for number, value in fields(data):
        if number == _KEY:
            key = _number(value)
        elif number == _VALUE:
            name = _text(bytes_of(value), _NAME)
    return key, name


def _text(data: bytes, wanted: int) -> str:
    for number, value in fields(data):
        if number == wanted:
            return bytes_of(value).decode("utf-8", "replace")
    return ""


def _read_event(event: bytes, names: dict[int, str], statistics: dict[int, str], found: Profile) -> None:
    name, picoseconds, count = "", 0, 1
    told: dict[str, str | int] = {}
    for number, value in fields(event):
        if number == _EVENT_NAME:
            name = names.get(_number(value), "")
        elif number == _EVENT_PICOSECONDS:
            picoseconds = _number(value)
        elif number == _EVENT_COUNT:
            count = _number(value)
        elif number == _EVENT_STATS:
            key, given = _statistic(bytes_of(value), statistics)
            told[key] = given
    operation, run = told.get("hlo_op"), told.get("run_id")
    if operation is not None:
        module = str(told.get("hlo_module", ""))
        run_number = run if isinstance(run, int) else None
        found.add(str(operation) or name, picoseconds / 1e6, module=module, run=run_number, count=count)


def _statistic(data: bytes, statistics: dict[int, str]) -> tuple[str, str | int]:
    key, given = "", ""
    number_given: int | None = None
    for number, value in fields(data):
        if number == _STAT_NAME:
            key = statistics.get(_number(value), "")
        elif number == _STAT_TEXT:
            given = bytes_of(value).decode("utf-8", "replace")
        elif number == _STAT_REFERENCE:
            given = statistics.get(_number(value), "")
        elif number in (_STAT_UINT, _STAT_INT):
            number_given = _number(value)
    return key, (given if number_given is None else number_given)
