"""Loops that only hand on what is read of them, so that they need not run. XLA removes such a loop, whether it ends or not
(xla/service/while_loop_simplifier.cc)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import replace

from hlo_opt.ops import OpKind, find
from hlo_opt.runtime.donation import callees_first, origins, unchanged_leaves
from hlo_opt.runtime.steps import LibraryStep, Routine, RoutineKey, Step, WhileStep, callees


def with_idle_loops(routines: Mapping[RoutineKey, Routine]) -> dict[RoutineKey, Routine]:
    """The routines, the loops of which say whether they are idle, in the same order."""
    order = callees_first(routines)
    effects = _with_effects(routines, order)
    unchanged: dict[RoutineKey, tuple[int, ...]] = {}
    done: dict[RoutineKey, Routine] = {}
    for key in order:
        routine = routines[key]
        unchanged[key] = unchanged_leaves(routine, origins(routine, unchanged))
        idle = _idle_loops(routine, unchanged, effects)
        if idle:
            steps = (replace(s, is_idle=True) if isinstance(s, WhileStep) and s in idle else s for s in routine.steps)
            routine = replace(routine, steps=tuple(steps))
        done[key] = routine
    return {key: done[key] for key in routines}


def _idle_loops(routine: Routine, unchanged: Mapping[RoutineKey, Sequence[int]], effects: Set[Step]) -> Set[WhileStep]:
    idle: set[WhileStep] = set()
    needed = set(routine.results)
    for step in reversed(routine.steps):
        read = set(step.inputs)
        if isinstance(step, WhileStep) and step not in effects:
            same = unchanged[step.body]
            if not any(b in needed for k, b in enumerate(step.outputs) if k not in same):
                idle.add(step)
                read = {step.inputs[k] for k in same if step.outputs[k] in needed}
        needed |= read
    return idle


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
