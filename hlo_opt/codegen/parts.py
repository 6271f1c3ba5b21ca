"""Results that several blocks fold together: each leaves its part in global memory, and the block that comes last brings the parts together.

Blocks count themselves with an atomic operation, but the parts are folded in their own order, so that the result does not depend on which block comes last. The last one sets
the count back to zero for the next launch. Two launches of a kernel may overlap where each is given memory of its own.
Source of the idea: J. Cheng et al., the threadFenceReduction sample of CUDA.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hlo_opt.codegen.builder import Builder
from hlo_opt.codegen.folds import Fold
from hlo_opt.codegen.scalars import register_type
from hlo_opt.codegen.statements import THREAD
from hlo_opt.codegen.tree import Barrier, Fence, Kept, Leave
from hlo_opt.ir import ElementType
from hlo_opt.ops.code import Code, Name, address, call, cell, code
from hlo_opt.ops.lowering import part_type


@dataclass(frozen=True)
class Meeting:
    """Where the blocks of a launch meet: a table of parts for each accumulator, how many parts a result has, and how many results there are."""

    tables: tuple[tuple[Name, ...], ...]
    arrived: Name
    parts: int


def meeting(builder: Builder, folds: Sequence[Fold], groups: int, results: int, parts: int) -> Meeting:
    """Declare the memory for so many results, whose blocks meet in so many groups."""
    tables = []
    for fold in folds:
        names = []
        for element_type in fold.types:
            names.append(builder.numbered("part"))
            kind, numbers = register_type(element_type), results * parts
            if element_type.is_complex:
                kind, numbers = part_type(element_type), 2 * numbers
            builder.tables.append(Kept(kind, names[-1], numbers, volatile=True))
        tables.append(tuple(names))
    arrived = builder.numbered("arrived")
    builder.tables.append(Kept("unsigned int", arrived, groups))
    return Meeting(tuple(tables), arrived, parts)


def leave(builder: Builder, meeting: Meeting, folds: Sequence[Sequence[Fold]], places: Sequence[Code]) -> None:
    """Put the results of this part where the last block finds them. `folds` are per result, `places` their first element in the tables with this part's number added."""
    for of_result, place in zip(folds, places, strict=True):
        for fold, names in zip(of_result, meeting.tables, strict=True):
            for element_type, table, name in zip(fold.types, names, fold.accumulators, strict=True):
                for element, member in _elements(element_type, table, place):
                    builder.assign(element, code(f"{{}}{member}", name))
    builder.add(Fence())


def part_at(element_type: ElementType, table: Name, place: Code) -> Code:
    """The part at a place of a table."""
    elements = [element for element, _ in _elements(element_type, table, place)]
    return elements[0] if len(elements) == 1 else code(f"{register_type(element_type)}({{}}, {{}})", *elements)


def _elements(element_type: ElementType, table: Name, place: Code) -> list[tuple[Code, str]]:
    """The numbers that a part consists of, and what they are called in its register. C++ copies no volatile object of a class, so complex numbers lie
    there as two."""
    if not element_type.is_complex:
        return [(cell(table, place), "")]
    return [(cell(table, code(f"2 * ({{}}) + {k}", place)), member) for k, member in enumerate((".re", ".im"))]


def last_only(builder: Builder, meeting: Meeting, group: Code) -> None:
    """What follows runs in the block that comes last of its group. All threads of the block must come here."""
    seen = builder.array("unsigned int", builder.numbered("seen"), 1, shared=True)
    builder.add(Barrier())
    with builder.branch(code("{} == 0", THREAD)):
        builder.assign(cell(seen, 0), call("atomicAdd", address(meeting.arrived, group), "1u"))
    builder.add(Barrier())
    builder.add(Leave(code(f"{{}} != {meeting.parts - 1}u", cell(seen, 0))))
    builder.add(Fence())


def reset(builder: Builder, meeting: Meeting, group: Code) -> None:
    """Make ready for the next launch."""
    with builder.branch(code("{} == 0", THREAD)):
        builder.assign(cell(meeting.arrived, group), code("0u"))
