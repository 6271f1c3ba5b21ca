"""Questions about operations that several rooms ask, answered in one place."""

from __future__ import annotations

from hlo_opt.ir import Computation, Instruction

_BODIES = {"fusion": "calls", "call": "to_apply"}
APPLIED = frozenset(_BODIES)
"""Operations that run one computation once, on all their operands, and give what it gives."""

EXTREMES = frozenset({"maximum", "minimum"})
IDEMPOTENT = EXTREMES | {"and", "or"}
"""Reducers for which it does not count how often a value comes in, and that round nothing."""


def body_of(instruction: Instruction) -> Computation | None:
    """The computation that a fusion or a call runs; None for any other operation."""
    name = _BODIES.get(instruction.opcode)
    return None if name is None else instruction.called_by(name)


def results_of(computation: Computation) -> list[Instruction]:
    """The values that a computation gives: what its root's tuple holds, or its root."""
    root = computation.root
    return list(root.operands) if root.opcode == "tuple" else [root]
