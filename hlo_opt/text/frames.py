"""The Python code an instruction comes from: its metadata, or the stack-frame tables of newer dumps.

Source: xla/hlo/ir/hlo_module.cc, get_stack_frame; xla/hlo/parser/hlo_parser.cc, ParseStackFrames. Ids count from 1. In
the text `parent_frame_id` is the parent's id plus one, and 1 where there is no parent.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass

from hlo_opt.diag import ParseError
from hlo_opt.diag.python_files import is_library
from hlo_opt.ir import Instruction, Module
from hlo_opt.text.attributes import unquote
from hlo_opt.text.expressions import compiled
from hlo_opt.text.grammar import grammar


@dataclass(frozen=True, slots=True)
class StackFrame:
    """One frame. Lines and columns are 1-based, 0 where unknown; `parent` is the caller's id, 0 for none."""

    file: str
    function: str
    line: int
    column: int
    parent: int

    @property
    def is_library(self) -> bool:
        """Whether the frame belongs to JAX or another installed package rather than to the user's program."""
        return is_library(self.file)


def stack_frames(module: Module) -> Mapping[int, StackFrame]:
    """The frames of the module's tables by id; empty without tables. Raises ParseError when they are malformed."""
    return _decode(module.tables) if module.tables else {}


def stack(module: Module, frame_id: int) -> list[StackFrame]:
    """A frame and its callers, innermost first. Empty for an unknown id."""
    frames = stack_frames(module)
    result: list[StackFrame] = []
    seen: set[int] = set()
    while frame_id in frames and frame_id not in seen:
        seen.add(frame_id)
        result.append(frames[frame_id])
        frame_id = frames[frame_id].parent
    return result


def source_location(module: Module, instruction: Instruction) -> str:
    """`file:line` of the innermost frame outside libraries, for an instruction; "" when unknown."""
    try:
        metadata = instruction.metadata
        known = _places(module.tables) if module.tables else {}
    except ParseError:
        return ""
    if metadata.source_file:
        return f"{metadata.source_file}:{metadata.source_line}" if metadata.source_line else metadata.source_file
    frame_id = metadata.stack_frame_id
    if frame_id not in known:
        known[frame_id] = _place(stack(module, frame_id))
    return known[frame_id]


def source_function(module: Module, instruction: Instruction) -> str:
    """The Python function an instruction comes from, with its file: that of the innermost frame outside libraries.

    Without frames, the scope in `op_name`. "" when unknown.
    """
    try:
        metadata = instruction.metadata
        frames = stack(module, metadata.stack_frame_id) if module.tables else []
    except ParseError:
        return ""
    if frames:
        frame = next((f for f in frames if not f.is_library), frames[0])
        return f"{frame.function} ({frame.file})" if frame.function else frame.file
    return metadata.op_name.rpartition("/")[0]


def has_source_lines(module: Module) -> bool:
    """Whether any instruction has a Python line."""
    return any(source_location(module, i) for c in module.computations for i in c.instructions)


def _place(frames: list[StackFrame]) -> str:
    """`file:line` of the innermost frame outside libraries; "" without frames."""
    if not frames:
        return ""
    frame = next((f for f in frames if not f.is_library), frames[0])
    return f"{frame.file}:{frame.line}"


@functools.lru_cache(maxsize=8)
def _places(tables: str) -> dict[int, str]:
    """The locations found so far for these tables, by frame id. Raises ParseError when the tables are malformed."""
    _decode(tables)
    return {}


FrameRows = dict[str, dict[int, list[str]]]
"""The cells of each row, by the kind of row and its number."""

_SECTIONS = {
    "FileNames": "file_name", "FunctionNames": "function_name",
    "FileLocations": "file_location", "StackFrames": "stack_frame",
}  # fmt: skip
_ROW = compiled(
    r"\s*+(?:([0-9]++)\s*+(?:(\"[^\"\\]*+(?:\\[\s\S][^\"\\]*+)*+\")|\{((?:\s*+[a-z_]++=[0-9]++\s*+,?)*+)\s*+\})"
    r"|([A-Za-z]++)|\Z)"
)
_CELL = re.compile(r"([a-z_]+)=[0-9]+")
_CELLS = {
    "file_location": {"file_name_id", "function_name_id", "line", "end_line", "column", "end_column"},
    "stack_frame": {"file_location_id", "parent_frame_id"},
}


def _rows(tables: str) -> FrameRows | None:
    """The rows, without an LALR parser, which takes a tenth of a second to build; None where something is unusual."""
    rows: FrameRows = {kind: {} for kind in _SECTIONS.values()}
    left, kind, position = list(_SECTIONS), "", 0
    while position < len(tables):
        row = _ROW.match(tables, position)
        if row is None:
            return None
        number, text, cells, section = row.groups()
        if section is not None:
            if not left or left.pop(0) != section:
                return None
            kind = _SECTIONS[section]
        elif number is not None:
            if kind not in rows or (text is None) != (kind in _CELLS):
                return None
            fields = [text] if cells is None else [cell[0] for cell in _CELL.finditer(cells)]
            if cells is not None and not _CELLS[kind].issuperset(cell.partition("=")[0] for cell in fields):
                return None
            rows[kind][int(number)] = fields
        position = row.end()
    return None if left else rows


def _parsed(tables: str) -> FrameRows:
    """The rows by the grammar. Raises ParseError when they are malformed."""
    rows: FrameRows = {kind: {} for kind in _SECTIONS.values()}
    for row in grammar().parse("tables", tables).children:
        number, *cells = [str(token) for token in row.children]  # type: ignore[union-attr]
        rows[str(row.data)][int(number)] = cells  # type: ignore[union-attr]
    return rows


@functools.lru_cache(maxsize=8)
def _decode(tables: str) -> Mapping[int, StackFrame]:
    rows = _rows(tables) or _parsed(tables)
    files = {i: unquote(cells[0]) for i, cells in rows["file_name"].items()}
    functions = {i: unquote(cells[0]) for i, cells in rows["function_name"].items()}
    locations = {i: _numbers(cells) for i, cells in rows["file_location"].items()}
    frames = {}
    for i, cells in rows["stack_frame"].items():
        ids = _numbers(cells)
        place = locations.get(ids.get("file_location_id", 0), {})
        frames[i] = StackFrame(
            files.get(place.get("file_name_id", 0), ""),
            functions.get(place.get("function_name_id", 0), ""),
            place.get("line", 0),
            place.get("column", 0),
            ids.get("parent_frame_id", 1) - 1,
        )
    return frames


def _numbers(cells: list[str]) -> dict[str, int]:
    result = {}
    for cell in cells:
        key, _, value = cell.partition("=")
        result[key] = int(value)
    return result
