"""Results folded by several blocks: each leaves its part in global memory, and the last block to arrive combines the
parts.

Blocks count arrivals atomically, but parts are folded in a fixed order, so the result does not depend on which block is
last. The last one resets the counter for the next launch. Overlapping launches of a kernel need separate memory.
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
from hlo_opt.ir.size import unsigned
from hlo_opt.ops.code import Code, Name, address, call, cell, code
from hlo_opt.ops.lowering import part_type


@dataclass(frozen=True)
class Meeting:
    """Where the blocks of a launch meet: tables of parts per accumulator, the arrival counters, and the parts per
    result."""

    tables: tuple[tuple[Name, ...], ...]
    arrived: Name
    parts: int


def meeting(builder: Builder, folds: Sequence[Fold], groups: int, results: int, parts: int) -> Meeting:
    """Declare the memory for `results` results, whose blocks meet in `groups` groups."""
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
    """Store this block's part. `folds` are per result; `places` are their positions in the tables, including the part
    number."""
    for of_result, place in zip(folds, places, strict=True):
        for fold, names in zip(of_result, meeting.tables, strict=True):
            for element_type, table, name in zip(fold.types, names, fold.accumulators, strict=True):
                for element, member in _elements(element_type, table, place):
                    builder.assign(element, code(f"{{}}{member}", name))


def part_at(element_type: ElementType, table: Name, place: Code) -> Code:
    """The part at a position of a table."""
    elements = [element for element, _ in _elements(element_type, table, place)]
    return elements[0] if len(elements) == 1 else code(f"{register_type(element_type)}({{}}, {{}})", *elements)


def _elements(element_type: ElementType, table: Name, place: Code) -> list[tuple[Code, str]]:
    """The numbers of a part in memory, and their member names in a register. Complex parts are stored as two numbers,
    as C++ does not copy volatile class objects."""
    if not element_type.is_complex:
        return [(cell(table, place), "")]
    return [(cell(table, code(f"2 * ({{}}) + {k}", place)), member) for k, member in enumerate((".re", ".im"))]


def last_only(builder: Builder, meeting: Meeting, group: Code) -> None:
    """The code that follows runs only in the last block of its group to arrive. All threads of the block must reach
    this.

    The fences of the thread that counts the block order what its threads have written before a barrier, and what they
    read behind one (as `hlo_meet_grid`): a fence of each thread takes all of them longer."""
    seen = builder.array("unsigned int", builder.numbered("seen"), 1, shared=True)
    builder.add(Barrier())
    with builder.branch(code("{} == 0", THREAD)):
        builder.add(Fence())
        builder.assign(cell(seen, 0), call("atomicAdd", address(meeting.arrived, group), "1u"))
        builder.add(Fence())
    builder.add(Barrier())
    builder.add(Leave(code(f"{{}} != {unsigned(meeting.parts - 1)}", cell(seen, 0))))


def reset(builder: Builder, meeting: Meeting, group: Code) -> None:
    """Reset the counter for the next launch."""
    with builder.branch(code("{} == 0", THREAD)):
        builder.assign(cell(meeting.arrived, group), code("0u"))
