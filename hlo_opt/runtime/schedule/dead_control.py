"""Loops, and other control flow, that nobody reads anything of: dead code, which does not run, whether it ends or not. The interpreter leaves it out too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import replace

from hlo_opt.ops import OpKind, find
from hlo_opt.runtime.schedule.lifetimes import callees_first
from hlo_opt.runtime.schedule.ops import Branch, Call, Loop, Op, Routine, RoutineKey, callees


def without_dead_control(routines: Mapping[RoutineKey, Routine]) -> dict[RoutineKey, Routine]:
    """The routines without control flow of which nothing is read and which does nothing that others see, in the same order."""
    effects = _with_effects(routines, callees_first(routines))
    return {key: _alive(routine, effects) for key, routine in routines.items()}


def _alive(routine: Routine, effects: Set[Op]) -> Routine:
    kept: list[Op] = []
    needed = set(routine.results)
    for op in reversed(routine.ops):
        if isinstance(op, Loop | Branch) and op not in effects and needed.isdisjoint(op.outputs):
            continue
        kept.append(op)
        needed.update(op.inputs)
    return replace(routine, ops=tuple(reversed(kept)))


def _with_effects(routines: Mapping[RoutineKey, Routine], order: Sequence[RoutineKey]) -> Set[Op]:
    """The operations that somebody outside sees: library calls with side effects, and control flow that runs some."""
    found: set[Op] = set()
    telling: set[RoutineKey] = set()
    for key in order:
        for op in routines[key].ops:
            spec = find(op.instruction.opcode) if isinstance(op, Call) else None
            told = spec is not None and spec.side_effects and spec.kind is not OpKind.COLLECTIVE  # nobody else is there
            if told or any(k in telling for k in callees(op)):
                found.add(op)
                telling.add(key)
    return found
