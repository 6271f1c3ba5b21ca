"""Places that depend on data and take long to find, such as those of an image's colours in a table: they are found for
all lanes first, in vectors. What is there is then copied lane after lane, as no vectors of most types can do."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from hlo_opt.codegen.tree import Assign, Let, Statement, codes_of, functions_in, names_in
from hlo_opt.ops.code import Cell, Name, cell, of

PLACES = "hlo_places"
"""Arrays with a place of each lane."""


@dataclass(frozen=True)
class Found:
    """The statements that find places, with the arrays for them, and those that go there."""

    arrays: tuple[str, ...]
    finding: list[Statement]
    copying: list[Statement]


def found_first(items: Sequence[Statement], lane: Name, constants: Collection[str]) -> Found | None:
    """The two halves of what a lane does; None where its places come from memory as they are, or from what the kernel
    may write. `constants` are arrays into which nobody writes."""
    places = [s for s in items if isinstance(s, Let) and s.is_index and s.expression is None and s.constant]
    finding = _needed(items, places)
    used = names_in([s for s in items if not any(s is one for one in finding)])
    wanted = [place for place in places if place.name in used]
    if not wanted or any(place.kind != "int" for place in wanted) or not functions_in(finding):
        return None
    known = {*constants, *(s.name.text for s in finding)}  # what is read ahead for each element is a variable here
    if any(c.array.text not in known for c in _cells(finding)):
        return None
    finding = [_of_variable(s, known - set(constants)) for s in finding]
    where = {place.name: cell(Name(f"{PLACES}{k}"), of(lane)) for k, place in enumerate(wanted)}
    stored = [Assign(where[place.name], of(place.name)) for place in wanted]
    read = [replace(s, value=where[s.name]) if isinstance(s, Let) and s.name in where else s for s in items]
    ends = [s for s in read if not isinstance(s, Let) or not s.constant]
    kept = _needed(read, ends)
    copying = [s for s in read if any(s is one for one in (*ends, *kept))]
    return Found(tuple(f"{PLACES}{k}" for k in range(len(wanted))), [*finding, *stored], copying)


def _needed(items: Sequence[Statement], ends: Sequence[Statement]) -> list[Let]:
    """The declarations that some statements need, they among them."""
    needed, names = list[Let](), names_in(ends) | {end.name for end in ends if isinstance(end, Let)}
    for s in reversed(items):
        if isinstance(s, Let) and s.name in names and s.constant:
            needed.append(s)
            names |= names_in([s])
    return needed[::-1]


def _of_variable(let: Let, variables: Collection[str]) -> Let:
    """A declaration by what is read ahead, without the number of the element, which differs within a run."""
    match let.value.pieces:
        case (Cell(array, _),) if array.text in variables:
            return replace(let, value=of(array))
    return let


def _cells(items: Sequence[Statement]) -> Iterator[Cell]:
    return (p for s in items for c in codes_of(s) for p in c.parts() if isinstance(p, Cell))
