"""f16 in memory that neighbouring lanes read or write side by side. Processors convert a vector of f16 in one
instruction, which GCC 12 does not use in the loops that it vectorizes. So loops of their own (`hlo::widen_f16` and
`hlo::narrow_f16` of `host_rounding.h`) convert to f32 before a loop over lanes, and back after it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from hlo_opt.codegen.lanes_text import variables_in
from hlo_opt.codegen.tree import Assign, Let, Statement, names_in
from hlo_opt.ir.index_map import Expression, add, constant, substitute
from hlo_opt.ops.code import Cell, Code, Function, Name, cell

_LOAD, _STORE, _ROUND = "hlo_load_f16", "hlo_store_f16", "hlo_round_f16"


@dataclass(eq=False)
class Halves:
    """The f16 of all lanes from `pointer` on, and the array of lanes that holds them as f32."""

    name: Name
    pointer: str
    widens: bool

    def line(self, array: Callable[[str], str], lanes: str) -> str:
        """The call. `array` is where a variable of all lanes lies."""
        if self.widens:
            return f"hlo::widen_f16({self.pointer}, {array(self.name.text)}, {lanes});"
        return f"hlo::narrow_f16({array(self.name.text)}, {self.pointer}, {lanes});"


def read_of(value: Code) -> Name | Cell | None:
    """The f16 of memory, a variable or an element, that an f32 is converted from; None for other values."""
    match value.pieces:
        case (Function(text), "(", (Name() | Cell()) as read, ")") if text == _LOAD:
            return read
    return None


def rounded_of(value: Code, items: Sequence[Statement]) -> Code | None:
    """What an f16 of memory is rounded from; `items` declare what it mentions. What has been rounded before is not
    rounded again."""
    match value.pieces:
        case (Function(text), "(", *inside, ")") if text == _STORE:
            rounded = Code(tuple(inside))
        case _:
            return None
    if rounded.name is None:
        return rounded
    before = next((s.value for s in items if isinstance(s, Let) and s.name == rounded.name and s.constant), rounded)
    match before.pieces:
        case (Function(text), "(", Name() as given, ")") if text == _ROUND:
            return Code((given,), True)
        case (Function(text), "(", *inside, ")") if text == _ROUND and _is_whole(inside):
            return Code(tuple(inside))
    return rounded


Elements = list[tuple[Name, Cell]]


def halved(
    items: Sequence[Statement],
    scalars: Collection[Name],
    constants: Collection[str],
    places: Mapping[str, Expression],
    lane: str,
) -> tuple[list[Statement], Elements, Elements]:
    """Statements of lanes with f32 from arrays of lanes instead of the f16 that they read beside each other, and f32
    into such arrays instead of those that they write there; then these arrays, each with the element of memory that
    belongs to it, of what is read and of what is written. `scalars`: arrays that are a variable of a lane; `constants`:
    pointers to what nobody writes meanwhile; `places`: index variables as expressions of the lane."""
    known, cells = dict(places), dict[Name, Cell]()
    statements, reads, writes = list[Statement](), Elements(), Elements()

    def is_beside(element: Cell) -> bool:
        place = known.get(element.index.name.text) if element.index.name is not None else element.index.place
        return place is not None and first_of(substitute(place, known), frozenset({lane})) is not None

    for item in items:
        match item:
            case Let(is_index=True, constant=True, expression=Expression() as expression, name=name):
                known.setdefault(name.text, substitute(expression, known))
            case Let(value=Code(pieces=(Cell() as read,)), name=name) if read.array.text in constants:
                cells[name] = read
            case Assign(Code(pieces=(Cell(array=name),)), Code(pieces=(Cell() as read,))) if (
                name in scalars and read.array.text in constants
            ):
                cells[name] = read
            case Let(constant=True) if (half := _read_by(item.value, cells, scalars)) and is_beside(half):
                wide = Name(f"{item.name.text}_wide")
                reads.append((wide, half))
                item = replace(item, value=cell(wide, Name(lane)))
            case Assign(Code(pieces=(Cell() as target,)), value) if (
                target.array not in scalars
                and is_beside(target)
                and not any(target.array in names_in([other]) for other in items if other is not item)
            ):
                rounded = rounded_of(_declared(value, items, scalars), items)
                if rounded is not None:
                    wide = Name(f"hlo_wide{len(writes)}")
                    writes.append((wide, target))
                    item = Assign(cell(wide, Name(lane)), rounded)
        statements.append(item)
    return statements, reads, writes


def _read_by(value: Code, cells: Mapping[Name, Cell], scalars: Collection[Name]) -> Cell | None:
    """The element of memory that an f32 is read from, where it is an f16."""
    match read_of(value):
        case Name() as name:
            return cells.get(name)
        case Cell(array=array) if array in scalars:
            return cells.get(array)
    return None


def _declared(value: Code, items: Sequence[Statement], scalars: Collection[Name]) -> Code:
    """What a lane's variable was made from, where that is all of an expression."""
    match value.pieces:
        case (Name() as name,):
            return next((s.value for s in items if isinstance(s, Let) and s.name == name and s.constant), value)
        case (Cell(array=name),) if name in scalars:
            values = (s.value for s in items if isinstance(s, Assign) and _array_of(s.target) == name)
            return next(values, value)
    return value


def _array_of(target: Code) -> Name | None:
    piece = target.pieces[0]
    return piece.array if isinstance(piece, Cell) else None


def _is_whole(pieces: Sequence[object]) -> bool:
    """Whether parentheses are closed in the order in which they are opened."""
    depth = 0
    for piece in pieces:
        for letter in piece if isinstance(piece, str) else "":
            depth += (letter == "(") - (letter == ")")
            if depth < 0:
                return False
    return depth == 0


def first_of(place: Expression, lanes: frozenset[str]) -> tuple[Expression, str] | None:
    """What a place is but for the lane, and the lane's variable, where lanes have places that follow each other; None
    for others."""
    by_name = {variable.name: variable for variable in variables_in(place) if variable.name in lanes}
    if len(by_name) != 1:
        return None
    ((name, lane),) = by_name.items()
    rest = substitute(place, {name: constant(0)})
    return (rest, name) if place == add(rest, lane) else None
