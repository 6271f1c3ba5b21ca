"""Loops, and other control flow, that nobody reads anything of: dead code, which does not run, whether it ends or not. The interpreter leaves it out too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import replace

from hlo_opt.ops import OpKind, find
from hlo_opt.runtime.donation import callees_first
from hlo_opt.runtime.steps import BranchStep, LibraryStep, Routine, RoutineKey, Step, WhileStep, callees, last_uses


def without_dead_loops(routines: Mapping[RoutineKey, Routine]) -> dict[RoutineKey, Routine]:
    """The routines without control flow of which nothing is read and which does nothing that others see, in the same order."""
    effects = _with_effects(routines, callees_first(routines))
    return {key: _alive(routine, effects) for key, routine in routines.items()}


def _alive(routine: Routine, effects: Set[Step]) -> Routine:
    kept: list[Step] = []
    needed = set(routine.results)
    for step in reversed(routine.steps):
        if isinstance(step, WhileStep | BranchStep) and step not in effects and needed.isdisjoint(step.outputs):
            continue
        kept.append(step)
        needed.update(step.inputs)
    if len(kept) == len(routine.steps):
        return routine
    steps = tuple(reversed(kept))
    return replace(routine, steps=steps, frees=last_uses(steps, routine.results))


def _with_effects(routines: Mapping[RoutineKey, Routine], order: Sequence[RoutineKey]) -> Set[Step]:
    """The steps that somebody outside sees: library calls with side effects, and control flow that runs some."""
    found: set[Step] = set()
    telling: set[RoutineKey] = set()
    for key in order:
        for step in routines[key].steps:
            spec = find(step.instruction.opcode) if isinstance(step, LibraryStep) else None
            told = spec is not None and spec.side_effects and spec.kind is not OpKind.COLLECTIVE  # nobody else is there
            if told or any(k in telling for k in callees(step)):
                found.add(step)
                telling.add(key)
    return found
