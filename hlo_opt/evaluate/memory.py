"""How many bytes a run will hold at once, told before it starts."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

from hlo_opt.evaluate.program import Program, error, own_bytes
from hlo_opt.ir import Computation, Instruction

SHARE = 0.8
"""The part of the machine's memory that a run may take by default."""


@dataclass(frozen=True, slots=True)
class Peak:
    """The most bytes that are alive at once, and at which instruction; None where nothing is made."""

    bytes: int
    at: Instruction | None


def default_limit() -> int | None:
    """80 % of the machine's memory in bytes; None where the system does not tell."""
    try:
        return int(SHARE * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, OSError, ValueError):
        return None


def check_memory(computation: Computation, program_of: Callable[[Computation], Program], limit: int) -> None:
    """Raises EvaluationError (HLO402) where a run of the computation would hold more bytes than the limit, the values of its parameters included.

    What a called computation holds comes on top of what its caller does; operations that NumPy does as views take nothing.
    """
    given = sum(leaf.byte_size for p in computation.parameters for leaf in p.shape.leaves() if leaf.is_array)
    peaks: dict[Computation, Peak] = {}
    for called in _callees_first(computation):
        peaks[called] = _peak(program_of(called), peaks)
    found = peaks[computation]
    if found.at is not None and given + found.bytes > limit:
        raise error(found.at, f"{given + found.bytes} bytes would be alive, the limit is {limit}", code="HLO402")


def _callees_first(computation: Computation) -> list[Computation]:
    """The computation and all that it calls, in any depth, each after what it calls itself."""
    order: list[Computation] = []
    seen = {computation}
    todo = [(computation, False)]
    while todo:
        top, is_done = todo.pop()
        if is_done:
            order.append(top)
            continue
        todo.append((top, True))
        for instruction in top.instructions:
            for called in instruction.called():
                if called not in seen:
                    seen.add(called)
                    todo.append((called, False))
    return order


def _peak(program: Program, peaks: dict[Computation, Peak]) -> Peak:
    alive, best = 0, Peak(0, None)
    sizes: dict[int, int] = {}
    for step in program.steps:
        size = own_bytes(step.instruction)
        inner = max((peaks[c] for c in step.instruction.called() if c in peaks), key=lambda p: p.bytes, default=None)
        total = alive + size + (0 if inner is None else inner.bytes)
        if total > best.bytes:
            deeper = inner is not None and inner.bytes > size and inner.at is not None
            best = Peak(total, inner.at if deeper and inner is not None else step.instruction)
        alive += size
        sizes[step.slot] = size
        for slot in step.frees:
            alive -= sizes.pop(slot, 0)
    return best
