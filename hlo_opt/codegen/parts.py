"""Results that several blocks fold together: each leaves its part in global memory, and the block that comes last brings the parts together.

Blocks count themselves with an atomic operation, but the parts are folded in their own order, so that the result does not depend on which block comes last. The last one sets
the count back to zero for the next launch; two launches of a kernel must not overlap.
Source of the idea: J. Cheng et al., the threadFenceReduction sample of CUDA.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hlo_opt.codegen.builder import Builder
from hlo_opt.codegen.folds import Fold
from hlo_opt.codegen.scalars import register_type
from hlo_opt.ir import ElementType
from hlo_opt.ops.complex_cuda import part_type

KEPT = "static __device__ volatile"
"""How memory is declared that the blocks of a launch share: past the caches of one multiprocessor, which do not see what others write."""


@dataclass(frozen=True)
class Meeting:
    """Where the blocks of a launch meet: a table of parts for each accumulator, how many parts a result has, and how many results there are."""

    tables: tuple[tuple[str, ...], ...]
    arrived: str
    parts: int


def meeting(builder: Builder, folds: Sequence[Fold], groups: int, results: int, parts: int) -> Meeting:
    """Declare the memory for so many results, whose blocks meet in so many groups."""
    tables = []
    for fold in folds:
        names = []
        for element_type in fold.types:
            names.append(builder.names.numbered("part"))
            kind, numbers = register_type(element_type), results * parts
            if element_type.is_complex:
                kind, numbers = part_type(element_type), 2 * numbers
            builder.tables.append(f"{KEPT} {kind} {names[-1]}[{numbers}];\n")
        tables.append(tuple(names))
    arrived = builder.names.numbered("arrived")
    builder.tables.append(f"static __device__ unsigned int {arrived}[{groups}];\n")
    return Meeting(tuple(tables), arrived, parts)


def leave(builder: Builder, meeting: Meeting, folds: Sequence[Sequence[Fold]], places: Sequence[str]) -> None:
    """Put the results of this part where the last block finds them. `folds` are per result, `places` their first element in the tables with this part's number added."""
    for of_result, place in zip(folds, places, strict=True):
        for fold, names in zip(of_result, meeting.tables, strict=True):
            for element_type, table, name in zip(fold.types, names, fold.accumulators, strict=True):
                for element, member in _elements(element_type, table, place):
                    builder.assign(element, f"{name}{member}")
    builder.line("__threadfence();")


def part_at(element_type: ElementType, table: str, place: str) -> str:
    """The part at a place of a table."""
    elements = [element for element, _ in _elements(element_type, table, place)]
    return elements[0] if len(elements) == 1 else f"{register_type(element_type)}({', '.join(elements)})"


def _elements(element_type: ElementType, table: str, place: str) -> list[tuple[str, str]]:
    """The numbers that a part consists of, and what they are called in its register. C++ copies no volatile object of a class, so complex numbers lie
    there as two."""
    if not element_type.is_complex:
        return [(f"{table}[{place}]", "")]
    return [(f"{table}[2 * ({place}) + {k}]", member) for k, member in enumerate((".re", ".im"))]


def last_only(builder: Builder, meeting: Meeting, group: str) -> None:
    """What follows runs in the block that comes last of its group. All threads of the block must come here."""
    seen = builder.names.numbered("seen")
    builder.line(f"__shared__ unsigned int {seen}[1];")
    builder.line("__syncthreads();")
    with builder.branch("threadIdx.x == 0"):
        builder.assign(f"{seen}[0]", f"atomicAdd(&{meeting.arrived}[{group}], 1u)")
    builder.line("__syncthreads();")
    builder.line(f"if ({seen}[0] != {meeting.parts - 1}u) return;")
    builder.line("__threadfence();")


def reset(builder: Builder, meeting: Meeting, group: str) -> None:
    """Make ready for the next launch."""
    with builder.branch("threadIdx.x == 0"):
        builder.assign(f"{meeting.arrived}[{group}]", "0u")
