"""Stack frame tables of an HLO dump: read them, keep the frames of our own programs, or write them into the metadata.

JAX records how it came to each operation, frame by frame, up to the command that was started. The outer frames belong
to whatever runs the dump and would make its text depend on it, so only frames below `scripts/programs` are kept.

XLA prints the frame's parent as its number plus one: a frame with `parent_frame_id=1` has no parent, one with
`parent_frame_id=3` was called from frame 2.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

TABLES = re.compile(
    r'\n\nFileNames\n(?P<files>(?:\d+ "[^\n]*"\n)+)'
    r'\nFunctionNames\n(?P<functions>(?:\d+ "[^\n]*"\n)+)'
    r"\nFileLocations\n(?P<locations>(?:\d+ \{[^\n]*\}\n)+)"
    r"\nStackFrames\n(?P<frames>(?:\d+ \{[^\n]*\}\n)+)"
)
ID = re.compile(r" ?stack_frame_id=(\d+)")
NUMBER = re.compile(r"(\w+)=(\d+)")


@dataclass(frozen=True)
class Location:
    """A place in a source file, inside a function."""

    file: str
    function: str
    line: int
    end_line: int
    column: int
    end_column: int


@dataclass(frozen=True)
class Frame:
    """A location and the frame that called it."""

    location: Location
    parent: Frame | None


def names(table: str) -> list[str]:
    """The strings of a table of names, in order."""
    return [line.split(" ", 1)[1][1:-1] for line in table.splitlines()]


def rows(table: str) -> list[dict[str, int]]:
    """The rows of a table of numbers, in order."""
    return [{key: int(value) for key, value in NUMBER.findall(line)} for line in table.splitlines()]


def read(text: str) -> dict[int, Frame]:
    """The frames of a dump by number; empty when it has no tables."""
    tables = TABLES.search(text)
    if tables is None:
        return {}
    files, functions = names(tables["files"]), names(tables["functions"])
    locations = [
        Location(
            files[row["file_name_id"] - 1],
            functions[row["function_name_id"] - 1],
            row["line"],
            row["end_line"],
            row["column"],
            row["end_column"],
        )
        for row in rows(tables["locations"])
    ]
    frames: dict[int, Frame] = {}
    for number, row in enumerate(rows(tables["frames"]), 1):
        parent = frames[row["parent_frame_id"] - 1] if row["parent_frame_id"] > 1 else None
        frames[number] = Frame(locations[row["file_location_id"] - 1], parent)
    return frames


def kept(frame: Frame | None, keep: Callable[[str], bool]) -> Frame | None:
    """The frame without those callers whose file is not kept."""
    if frame is None:
        return None
    parent = kept(frame.parent, keep)
    return Frame(frame.location, parent) if keep(frame.location.file) else parent


def without_tables(text: str) -> str:
    """The dump with no stack frame tables."""
    return TABLES.sub("", text, count=1)


def with_lines(text: str, keep: Callable[[str], bool]) -> str:
    """The dump with the innermost kept file and line of each instruction in its metadata, and no tables."""
    frames = read(text)

    def line(match: re.Match[str]) -> str:
        frame = kept(frames[int(match[1])], keep)
        if frame is None:
            return ""
        return f' source_file="{frame.location.file}" source_line={frame.location.line}'

    return ID.sub(line, without_tables(text))


def with_kept_frames(text: str, keep: Callable[[str], bool]) -> str:
    """The dump with tables that hold only the kept frames."""
    frames = read(text)
    numbers: dict[Frame, int] = {}

    def number(frame: Frame) -> int:
        if frame not in numbers:
            if frame.parent is not None:
                number(frame.parent)
            numbers[frame] = len(numbers) + 1
        return numbers[frame]

    def renumber(match: re.Match[str]) -> str:
        frame = kept(frames[int(match[1])], keep)
        return "" if frame is None else f" stack_frame_id={number(frame)}"

    body = ID.sub(renumber, without_tables(text))
    header, _, rest = body.partition("\n")
    return header + "\n\n" + print_tables(list(numbers)) + rest if numbers else body


def print_tables(frames: list[Frame]) -> str:
    """The four tables, as XLA prints them; each frame comes after its parent."""
    files: dict[str, int] = {}
    functions: dict[str, int] = {}
    locations: dict[Location, int] = {}
    numbers = {frame: number for number, frame in enumerate(frames, 1)}
    for frame in frames:
        location = frame.location
        files.setdefault(location.file, len(files) + 1)
        functions.setdefault(location.function, len(functions) + 1)
        locations.setdefault(location, len(locations) + 1)
    lines = ["FileNames", *(f'{number} "{name}"' for name, number in files.items()), ""]
    lines += ["FunctionNames", *(f'{number} "{name}"' for name, number in functions.items()), ""]
    lines.append("FileLocations")
    for at, number in locations.items():
        lines.append(
            f"{number} {{file_name_id={files[at.file]} function_name_id={functions[at.function]} line={at.line} "
            f"end_line={at.end_line} column={at.column} end_column={at.end_column}}}"
        )
    lines += ["", "StackFrames"]
    for frame, number in numbers.items():
        parent = numbers[frame.parent] + 1 if frame.parent is not None else 1
        lines.append(f"{number} {{file_location_id={locations[frame.location]} parent_frame_id={parent}}}")
    return "\n".join([*lines, "", ""])
