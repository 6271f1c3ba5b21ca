"""A routine with its callees in line: calls, and loops whose trip count is known and small. What is left of such a
routine is often one stretch, so that a whole program is one CUDA graph, and nothing waits between two iterations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from hlo_opt.analysis.graph.loops import derived_trip_count
from hlo_opt.ir import Shape
from hlo_opt.runtime.schedule.lifetimes import with_frees
from hlo_opt.runtime.schedule.ops import (
    BranchOp,
    CallOp,
    ConstantOp,
    Copy,
    Free,
    LaunchOp,
    LoopOp,
    Op,
    Routine,
    RoutineKey,
    outputs_of,
)
from hlo_opt.runtime.schedule.stretch import PlacedCheck, first_decision

MOST_IN_LINE = 512
"""The most copies, launches and library calls of all iterations of the loops that a routine has in line."""


def in_line(routine: Routine, routines: Mapping[RoutineKey, Routine], places: PlacedCheck) -> Routine:
    """The routine with calls and small loops in line whose computations are stretches: see `first_decision`, which
    `places` goes to. It computes the same, with the same memory of inputs and results; itself where nothing changes.

    The trip counts are derived from the loops; what a config states is not believed.
    """
    return _Caller(routines, places).of(routine)


@dataclass
class _Caller:
    """`room` is how many operations of loops may still come in line."""

    routines: Mapping[RoutineKey, Routine]
    places: PlacedCheck
    room: int = field(default_factory=lambda: MOST_IN_LINE)
    _callees: dict[RoutineKey, Routine] = field(default_factory=dict)

    def of(self, routine: Routine) -> Routine:
        """As `in_line`."""
        if not any(self._callee(op) for op in routine.ops):
            return routine
        build = _Builder(list(routine.shapes))
        names = {b: b for b in range(len(routine.shapes))}
        for op in routine.ops:
            callee = self._callee(op)
            trips = derived_trip_count(op.instruction) if isinstance(op, LoopOp) else 1
            if callee is None or trips is None:
                build.add(op, names)
                continue
            work = trips * _work(callee) if isinstance(op, LoopOp) else 0
            if work > self.room:
                build.add(op, names)
                continue
            self.room -= work
            values = [names[b] for b in (op.arguments[0] if isinstance(op, BranchOp) else op.inputs)]
            for k in op.copied if isinstance(op, LoopOp) else ():
                values[k] = build.copied(op, values[k])
            for _ in range(trips):
                values = build.play(callee, values)
            names.update(zip(op.outputs, values, strict=True))
        results = tuple(names[b] for b in routine.results)
        ops = with_frees(build.ops, results)
        return replace(routine, shapes=tuple(build.shapes), results=results, ops=ops)

    def _callee(self, op: Op) -> Routine | None:
        """The routine that could come in line, with its own callees in line; None for other operations."""
        if isinstance(op, LoopOp):
            key = op.body if derived_trip_count(op.instruction) is not None else None
        else:
            key = op.branches[0] if isinstance(op, BranchOp) and op.selector is None else None
        if key is None:
            return None
        if key not in self._callees:
            self._callees[key] = _Caller(self.routines, self.places).of(self.routines[key])
        callee = self._callees[key]
        return callee if first_decision(callee, self.places) is None else None


def _work(routine: Routine) -> int:
    return sum(isinstance(op, Copy | LaunchOp | CallOp) for op in routine.ops)


@dataclass
class _Builder:
    """The operations of a routine under way, without `Free`."""

    shapes: list[Shape]
    ops: list[Op] = field(default_factory=list)
    _constants: dict[ConstantOp, tuple[int, ...]] = field(default_factory=dict)

    def add(self, op: Op, names: Mapping[int, int]) -> None:
        """An operation of the routine itself, whose outputs keep their numbers."""
        if not isinstance(op, Free):
            self.ops.append(_renamed(op, names))

    def copied(self, op: Op, source: int) -> int:
        """A copy of a buffer."""
        self.shapes.append(self.shapes[source])
        self.ops.append(Copy(op.instruction, (source,), (len(self.shapes) - 1,)))
        return len(self.shapes) - 1

    def play(self, routine: Routine, inputs: Sequence[int]) -> list[int]:
        """The operations of a routine once, on these buffers. Returns its results."""
        names = dict(zip(routine.inputs, inputs, strict=True))
        for op in routine.ops:
            if isinstance(op, Free):
                continue
            known = self._constants.get(op) if isinstance(op, ConstantOp) else None
            if known is not None:
                names.update(zip(op.outputs, known, strict=True))
                continue
            for b in outputs_of(op):
                names[b] = len(self.shapes)
                self.shapes.append(routine.shapes[b])
            self.ops.append(_renamed(op, names))
            if isinstance(op, ConstantOp):
                self._constants[op] = self.ops[-1].outputs
        return [names[b] for b in routine.results]


def _renamed(op: Op, names: Mapping[int, int]) -> Op:
    """The operation on buffers of other numbers."""
    inputs, outputs = (tuple(names[b] for b in of) for of in (op.inputs, op.outputs))
    if (inputs, outputs) == (op.inputs, op.outputs):
        return op
    if isinstance(op, BranchOp):
        selector = None if op.selector is None else names[op.selector]
        arguments = tuple(tuple(names[b] for b in of) for of in op.arguments)
        held = tuple((number, names[b]) for number, b in op.held)
        return replace(op, inputs=inputs, outputs=outputs, selector=selector, arguments=arguments, held=held)
    return replace(op, inputs=inputs, outputs=outputs)
