"""Elements that all lanes under a condition read alike: the first one of a row, where lanes read their neighbour around
a ring. Compilers have no vector code for a read under a mask whose address is the same for all lanes, and then make
none for the whole loop. Such an element is read once, before the loop, where a lane needs it at all. And values that
all lanes find alike: the sine of a loop's counter, which one lane adds to its element. Vector code finds them for each
lane, and then leaves most of them out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from hlo_opt.codegen.tree import Block, Let, Statement
from hlo_opt.ir.index_map import Condition, Expression, constant, substitute, variables_of
from hlo_opt.ops.code import Cell, Code

_TYPES = frozenset({"float", "double", "bool", "int", "unsigned int", "long long", "unsigned long long"})


def taken_out(
    block: Block,
    values: Mapping[str, Expression],
    lane: str,
    lanes: range,
    is_alike: Callable[[Cell], bool],
) -> tuple[Block, list[tuple[int, Let]]]:
    """The block without reads of elements that are the same for all its lanes, and these reads, each with the number of
    the first lane that needs it. `values` are what index variables stand for, `is_alike` says whether an element is the
    same for all lanes and stays as it is."""
    parts, once = list[list[Statement]](), list[tuple[int, Let]]()
    for part, first in zip((block.body, block.otherwise), _firsts(block.condition, values, lane, lanes), strict=True):
        found = [] if first is None else list(_reads(part, is_alike))
        once += [(first or 0, read) for read in found]
        parts.append([s for s in part if s not in found])
    return Block(block.condition, *parts), once


def without_values(block: Block, take: Callable[[Let], bool]) -> Block:
    """The block without declarations that `take` took, of those that read no memory, in it and in blocks in it."""

    def left(items: Sequence[Statement]) -> Iterator[Statement]:
        for item in items:
            if isinstance(item, Block):
                yield without_values(item, take)
            elif not (isinstance(item, Let) and _is_plain(item) and take(item)):
                yield item

    return Block(block.condition, list(left(block.body)), list(left(block.otherwise)))


def _is_plain(item: Let) -> bool:
    return item.kind in _TYPES and not item.is_index and not any(isinstance(p, Cell) for p in item.value.parts())


def _firsts(
    condition: Code, values: Mapping[str, Expression], lane: str, lanes: range
) -> tuple[int | None, int | None]:
    """The first lane for which a condition on indices holds, and the first for which it does not; None without one, or
    where other things than the lane decide."""
    conditions = [Condition(substitute(c.expression, values), c.low, c.high) for c in condition.says]
    if not conditions or any(not c.always and variables_of(c.expression) != {lane} for c in conditions):
        return None, None
    firsts: dict[bool, int] = {}
    for number in lanes:
        here = [Condition(substitute(c.expression, {lane: constant(number)}), c.low, c.high) for c in conditions]
        firsts.setdefault(all(c.always for c in here), number)
    return firsts.get(True), firsts.get(False)


def _reads(items: Sequence[Statement], is_alike: Callable[[Cell], bool]) -> Iterator[Let]:
    for item in items:
        match item:
            case Let(kind, _, Code(pieces=(Cell() as cell,)), True) if kind in _TYPES and is_alike(cell):
                yield item
