"""Lanes along memory: sums over rows, one for each lane, as in a product of a matrix and a vector (a vector of lanes
would gather from one row per lane; a vector of terms reads a single row), and what else lanes read of rows."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence, Set

from hlo_opt.codegen.lanes_text import digits_in, variables_in
from hlo_opt.codegen.tree import Assign, For, Let, Note, Statement, codes_of, walk
from hlo_opt.ir.index_map import Constant, Expression, constant, substitute, variables_of
from hlo_opt.ops.code import Cell, Code, Function, Name

LEAST = 16
"""The fewest terms for which it pays."""
FAR, MANY = 16, 64
"""Elements from lane to lane that are far, and how many mentions of those are many."""
_ADDED = frozenset({"float", "double", "int", "unsigned int", "long long", "unsigned long long"})
"""Types whose sums compilers take in any order."""
ROUNDS = 16
"""Rounds of a loop over rows that is worth a loop over lanes in each."""


def sums_along(
    loop: For, values: Mapping[str, Expression], lane: str, lanes: int, types: Mapping[str, str]
) -> list[Name]:
    """The sums of a loop that reads rows, where it does nothing else; `values` are what index variables stand for,
    `types` those of other variables. No sums where there are others, or of another type than `_ADDED`."""
    steps = [s for s in loop.body if isinstance(s, Let | Assign)]
    if loop.name is None or len(steps) < len(loop.body) or any(isinstance(s, Let) and not s.constant for s in steps):
        return []
    sums = [s.target.name for s in steps if isinstance(s, Assign)]
    if len(set(sums)) < len(sums) or not all(total is not None and types.get(total.text) in _ADDED for total in sums):
        return []
    declared = {s.name: s.value for s in steps if isinstance(s, Let)}
    codes = [code for s in steps for code in ([s.value] if isinstance(s, Assign) else codes_of(s))]
    for step in steps:
        if isinstance(step, Assign):
            total = step.target.name
            value = declared.get(step.value.name, step.value) if step.value.name else step.value
            uses = sum(name == total for code in codes for name in code.names())
            if total is None or uses != 1 or not _adds(value, total):
                return []
    places = [p.index.place for code in codes for p in code.parts() if isinstance(p, Cell)]
    known = [substitute(place, values) for place in places if place is not None]
    along = [stride(place, loop.name.text) for place in known]
    if len(known) < len(places) or not all(s in (0, 1) for s in along) or terms(known, loop.name.text) < LEAST:
        return []
    apart = [s == 1 and stride(place, lane) not in (0, 1) for s, place in zip(along, known, strict=True)]
    return [total for total in sums if total is not None] if any(apart) or lanes == 1 else []


def _adds(value: Code, total: Name) -> bool:
    """Whether something is added to a sum."""
    match value.pieces:
        case (Name() as left, " + ", Name() as right):
            return (left == total) != (right == total)
        case (Function("fmaf"), "(", _, ", ", _, ", ", Name() as last, ")"):
            return last == total
    return False


def terms(places: Sequence[Expression], term: str) -> int:
    """How many terms there are."""
    return max((v.high - v.low + 1 for place in places for v in variables_in(place) if v.name == term), default=0)


def stride(place: Expression, name: str) -> int | None:
    """The step of a place for a step of a variable; None where the place depends on digits of the variable."""
    if any(name in variables_of(digit) for digit in digits_in(place)):
        return None
    at = dict.fromkeys(variables_of(place), constant(0))
    zero, one = substitute(place, at), substitute(place, {**at, name: constant(1)})
    assert isinstance(zero, Constant) and isinstance(one, Constant)  # a sum of products
    return one.value - zero.value


def row_read(item: Statement, values: Mapping[str, Expression], lane: str, constants: Set[str]) -> Name | None:
    """The array of constants of which a statement reads an element, and does nothing else, where lanes read in steps
    that compilers do not know to permute (they know powers of two, and three); None for any other statement."""
    if not isinstance(item, Let) or not item.constant or len(item.value.pieces) != 1:
        return None
    (element,) = item.value.pieces
    if not isinstance(element, Cell) or element.array.text not in constants:
        return None
    place = place_of(element, values)
    if place is None or not {name.text for name in element.index.names()} <= values.keys():
        return None
    step = stride(substitute(place, values), lane)
    return element.array if step is not None and step > 3 and step & (step - 1) else None


def place_of(element: Cell, known: Mapping[str, Expression]) -> Expression | None:
    """The place of an element as an expression, where it is known; `known` are those of index variables."""
    index = element.index
    return index.place if index.name is None or index.place is not None else known.get(index.name.text)


def loop_fills(loop: For) -> bool:
    """Whether rounds of a loop only write elements, and keep nothing."""
    inside = list(walk(loop.body))
    kept = any(not isinstance(s, Let | Assign | Note) or (isinstance(s, Let) and not s.constant) for s in inside)
    return not kept and all(s.target.name is None for s in inside if isinstance(s, Assign))


def has_own_elements(loop: For, arrays: Collection[str]) -> bool:
    """Whether each round has its own element of an array that a lane has for itself, and does nothing but to compute
    and to keep it: lanes side by side then have these beside each other."""
    if not all(isinstance(s, Let | Assign | Note) for s in loop.body):
        return False
    cells = (p for s in loop.body for c in codes_of(s) for p in c.parts() if isinstance(p, Cell))
    own = [cell for cell in cells if cell.array.text in arrays]
    return bool(own) and all(cell.index.name == loop.name for cell in own)


def is_stream(loop: For, values: Mapping[str, Expression], lane_names: Collection[str], lanes: int) -> bool:
    """Whether each round reads elements that lanes have beside each other, and the next one those of another row.
    `values` has the expressions of index variables; one of `lane_names` is the place of each of `lanes` lanes."""
    assert loop.name is not None
    if not all(isinstance(s, Let | Assign | Note) for s in loop.body):
        return False
    known = dict(values)
    for item in loop.body:
        if isinstance(item, Let) and item.is_index and item.constant and item.expression is not None:
            known[item.name.text] = substitute(item.expression, known)
    cells = (p for s in loop.body for c in codes_of(s) for p in c.parts() if isinstance(p, Cell))
    places = [substitute(p, known) for cell in cells if (p := place_of(cell, known)) is not None]
    return any(_are_rows(place, loop.name.text, lane_names, lanes) for place in places)


def _are_rows(place: Expression, round_: str, lane_names: Collection[str], lanes: int) -> bool:
    """Whether a place moves by one from lane to lane, and from round to round by all lanes at least; many rounds."""
    beside = any(stride(place, lane) == 1 for lane in lane_names)
    along = stride(place, round_)
    return beside and along is not None and along >= lanes and terms([place], round_) >= ROUNDS


def goes_in_turn(items: Sequence[Statement], values: Mapping[str, Expression], lane_names: Collection[str]) -> bool:
    """Whether lanes go better one after another, in statements that are all they do: these mention many elements that
    lie far apart from lane to lane, and call no functions. A vector is put together of each, in code of which compilers
    make little in long time. (Before and behind a loop it pays: the rounds are worth vectors.)"""
    every = list(walk(items))
    if any(True for s in every for c in codes_of(s) for _ in c.functions()):
        return False
    cells = {p for s in every for c in codes_of(s) for p in c.parts() if isinstance(p, Cell)}
    places = [substitute(p, values) for cell in cells if (p := place_of(cell, values)) is not None]
    strides = [stride(place, lane) for place in places for lane in lane_names]
    return sum(s is not None and abs(s) >= FAR for s in strides) >= MANY
