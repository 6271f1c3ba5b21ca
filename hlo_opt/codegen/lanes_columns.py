"""Short rows, of which each lane folds one element by element: an argmax over ten classes, products of many small
matrices with vectors. Elements of neighbouring lanes then lie a row apart, and processors gather them one by one. Here
a chunk's rows are first copied so that those of neighbouring lanes lie beside each other."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from typing import Protocol

from hlo_opt.codegen.lanes_apart import Place
from hlo_opt.codegen.lanes_folds import place_of
from hlo_opt.codegen.lanes_parts import BYTES, WORD
from hlo_opt.codegen.lanes_text import variables_in
from hlo_opt.codegen.tree import Assign, For, Let, Note, codes_of, functions_in
from hlo_opt.ir.index_map import Expression, Variable, add, constant, substitute, variables_of
from hlo_opt.ops.code import Cell, Name, printed

SHORTEST, LONGEST, _LONG_SUM = 4, 64, 32
"""Elements of the rows that are copied, and the most where sums may go along rows. Compilers know how to permute
shorter ones; of longer ones, lanes that follow each other read whole vectors."""
_MOST_BYTES, _MOST_OF_LONG, _WIDEST = 40 << 10, 12 << 10, 8
"""Bytes of the copies of a chunk, which the first cache holds, of one of more than `_MANY` lanes, and of the widest
element. Long chunks are rows of an array (distances of all pairs), each of which reads the same once more."""
_BYTES = {**BYTES, **dict.fromkeys(("float", "int", "unsigned int"), WORD)}
_LEAST_LANES, _MANY = 8, 256
_UNROLLED = 16
"""Terms of a loop that GCC 12 unrolls: at -O3 up to so many rounds (param max-completely-peel-times)."""
_IN_REGISTERS = frozenset({"fabs", "fabsf", "fma", "fmaf", "hlo_load_bf16"})
"""Functions of an operation or two."""
_LONG, _BETWEEN = 64, 16
"""Lanes of a long chunk, and elements between the columns of one: elements a power of two apart get in each other's
way in the first cache."""


class Writer(Protocol):
    """What is asked of who writes the lanes: their number, what index variables stand for, what is the same for all
    lanes, arrays that nobody changes, the C++ types of elements, arrays that are only written, in memory that nothing
    else reaches, arrays that are single elements, where elements are read from copies, and the copies of rows."""

    lanes: int
    full: dict[str, Expression]
    uniform: set[str]
    constants: set[str]
    kinds: Mapping[str, str]
    alone: Set[Name]
    copied: dict[Cell, str]
    columns: dict[object, str]

    @property
    def scalars(self) -> Mapping[Name, str]: ...
    def index_text(self, full: Expression) -> str: ...


@dataclass
class _Rows:
    """Reads of neighbouring lanes' rows: the place of the first element, the terms of a row, how far apart rows are."""

    first: Expression
    terms: int
    step: int
    reads: list[Cell] = field(default_factory=list)


@dataclass(frozen=True)
class Copies:
    """The lines before a loop that copy rows, none where these have been copied before, those behind it that copy the
    rows which it makes, and whether the loop had better go around the one over lanes: GCC 12 unrolls a short loop in
    each lane, and keeps what it folds in registers, but makes no vectors of a longer one, nor of extrema and
    functions."""

    lines: list[str]
    behind: list[str]
    is_outside: bool


def copies_of(loop: For, writer: Writer, lane: str, inside: str, begins: str, *, adds: bool) -> Copies | None:
    """The copies of rows which a loop over terms goes through, of which its reads then take their elements, and of
    those that it makes; None where it has none. `lane` and `inside` are a lane's number and its place in a row,
    `begins` the place of the first lane. `adds`: a loop that only adds may go along rows in vectors of terms."""
    found, made = _rows_of(loop, writer, (lane, inside))
    if adds:  # of narrow numbers each vector of terms would be made wider first
        found = {k: v for k, v in found.items() if v.terms <= _LONG_SUM or writer.kinds.get(k[0].text) in BYTES}
    width = writer.lanes + (_BETWEEN if writer.lanes >= _LONG else 0)
    every = [*found.items(), *made.items()]
    sizes = [rows.terms * _BYTES.get(writer.kinds.get(array.text, ""), _WIDEST) for (array, _), rows in every]
    if not every or sum(sizes) * width > (_MOST_BYTES if writer.lanes <= _MANY else _MOST_OF_LONG):
        return None
    assert loop.name is not None
    lines, behind = list[str](), list[str]()
    for (array, first), rows in every:
        at = f"{array.text} + ({writer.index_text(_of_first_lane(first, lane, inside, begins))})"
        known = (array, first, rows.terms, rows.step)
        if known not in writer.columns:
            name = writer.columns[known] = f"hlo_columns{len(writer.copied)}"
            lines.append(f"decltype(hlo::own({array.text}[0])) {name}[{rows.terms * width}];")
            if (array, first) in found:
                lines.append(f"hlo::columns<{rows.terms}, {width}>({name}, {at}, {rows.step}, hlo_live);")
        if (array, first) in made:
            behind.append(f"hlo::rows<{rows.terms}, {width}>({at}, {writer.columns[known]}, {rows.step}, hlo_live);")
        for read in rows.reads:
            writer.copied[read] = f"{writer.columns[known]}[{loop.name.text} * {width} + {lane}]"
    is_long = bool(made) or any(rows.terms > _UNROLLED for rows in found.values())
    return Copies(lines, behind, is_long or not functions_in(loop.body) <= _IN_REGISTERS)


_Found = dict[tuple[Name, Expression], _Rows]


def _rows_of(loop: For, writer: Writer, names: tuple[str, str]) -> tuple[_Found, _Found]:
    """The rows that a loop reads, and those that it writes and nobody reads."""
    if loop.name is None or loop.carries or writer.lanes < _LEAST_LANES:
        return {}, {}
    if not all(isinstance(s, Let | Assign | Note) for s in loop.body):
        return {}, {}
    known = dict(writer.full)
    for item in loop.body:
        if isinstance(item, Let) and item.is_index and item.constant and item.expression is not None:
            known[item.name.text] = substitute(item.expression, known)
    found, made = _Found(), _Found()
    targets = [p for s in loop.body if isinstance(s, Assign) for p in s.target.pieces if isinstance(p, Cell)]
    read = [p for s in loop.body for c in codes_of(s) for p in c.parts() if isinstance(p, Cell) and p not in targets]
    for cell in dict.fromkeys([*read, *targets]):
        is_made = cell in targets
        if (cell.array.text in writer.constants) == is_made or cell.array in writer.scalars:
            continue
        if is_made and (cell.array not in writer.alone or sum(t.array == cell.array for t in targets) > 1):
            continue
        place = place_of(cell, known)
        rows = None if place is None else _rows_at(substitute(place, known), loop, names, writer.uniform)
        if rows is not None:
            (made if is_made else found).setdefault((cell.array, rows.first), rows).reads.append(cell)
    return found, made


def _rows_at(place: Expression, loop: For, names: tuple[str, str], uniform: Set[str]) -> _Rows | None:
    """The rows of which a loop reads an element at a place, without reads."""
    assert loop.name is not None
    term = loop.name.text
    own = next((v for v in variables_in(place) if v.name == term), None)
    if own is None or not _goes_through(loop, own) or not variables_of(place) <= {*names, *uniform, term}:
        return None
    along = Place.of(place, term)
    apart = [p.step for name in names if name in variables_of(place) and (p := Place.of(place, name)) is not None]
    terms = own.high + 1
    if along is None or along.step != 1 or len(apart) != 1 or not SHORTEST <= terms <= min(LONGEST, apart[0]):
        return None
    return _Rows(substitute(place, {term: constant(0)}), terms, apart[0])


def _goes_through(loop: For, term: Variable) -> bool:
    """Whether a loop goes through all values of its variable, one by one."""
    assert loop.name is not None
    parts = (loop.first, loop.test, loop.step)
    head = (printed(part, lambda p: p.text if isinstance(p, Name) else "") for part in parts)
    return term.low == 0 and [*head] == ["0", f"{term.name} < {term.high + 1}", f"++{term.name}"]


def _of_first_lane(place: Expression, lane: str, inside: str, begins: str) -> Expression:
    own = next((v for v in variables_in(place) if v.name == inside), None)
    known: dict[str, Expression] = {lane: constant(0)}
    if own is not None:
        known[inside] = add(Variable(own.low, own.high, begins), constant(0))
    return substitute(place, known)
