"""The lowering of a module to a schedule: the operations that every backend and the emitted driver walk.

Tuples are only names for lists of buffers, so that `tuple`, `get-tuple-element` and the like need no operation. A
buffer is written once each time its routine runs, so that all aliases are safe.

Dumps from before layout assignment may pass a value under another layout (a call with an operand in `{1,0}` and a
parameter in `{0,1}`). If that changes the order of elements, a `Relayout` moves them; a computation whose callers use
several layouts becomes several routines.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Literal as OneOf

import numpy as np

from hlo_opt.analysis.graph.structure import Members, Structures
from hlo_opt.analysis.properties import is_boundary_fusion
from hlo_opt.analysis.targets import DeviceTarget, target_of
from hlo_opt.codegen import emit_kernel
from hlo_opt.codegen.kernel import Kernel
from hlo_opt.diag import EvaluationError, Reason
from hlo_opt.ir import Computation, Instruction, Layout, Literal, Module, Shape
from hlo_opt.ir.values import Array
from hlo_opt.ops import OpKind, find
from hlo_opt.ops.calls.call import call_of
from hlo_opt.ops.calls.collectives import forwards
from hlo_opt.ops.collective.module_devices import WHICH_DEVICE
from hlo_opt.ops.control.table import branches as branches_of
from hlo_opt.ops.custom_calls.targets import find_custom_call
from hlo_opt.ops.sets import at_once, goes_on
from hlo_opt.ops.spec import Device
from hlo_opt.passes.for_kernels import expanded
from hlo_opt.plans import region_of
from hlo_opt.plans.choose import is_left_to_library, plan, separate_plans
from hlo_opt.plans.in_place import Sharing, sharing_of
from hlo_opt.plans.plan import Plan
from hlo_opt.runtime.schedule.donation import with_donations
from hlo_opt.runtime.schedule.lifetimes import callees_first, with_frees
from hlo_opt.runtime.schedule.ops import (
    AliasOp,
    Allocate,
    BranchOp,
    Buffers,
    CallOp,
    ConstantOp,
    Copy,
    Free,
    LaunchOp,
    LoopOp,
    Op,
    Relayout,
    Routine,
    RoutineKey,
    callees,
)
from hlo_opt.text.aliases import aliased_leaves


@dataclass(frozen=True, eq=False)
class KernelOfLeaves:
    """A kernel, and which of an instruction's array leaves it writes; its other outputs are not read."""

    kernel: Kernel
    leaves: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Emitted:
    """A kernel as it was emitted, with its plan, and the leaves that it writes, as in `KernelOfLeaves`."""

    plan: Plan
    kernel: Kernel
    leaves: tuple[int, ...]


class EmittedKernels:
    """The kernels that were emitted for a module, or for copies of it, on one target: each structure once. The layers
    of a deep model repeat a few structures, and so do schedules of several copies."""

    def __init__(self) -> None:
        self._members = Members(Structures())
        self._known: dict[Hashable, tuple[Emitted, ...]] = {}
        self._in_place: dict[tuple[Kernel, tuple[tuple[int, int], ...]], Kernel] = {}

    def of(self, instruction: Instruction, emit: Callable[[], tuple[Emitted, ...]]) -> tuple[Emitted, ...]:
        """The kernels of an instruction; `emit` is called for a structure without any."""
        key = self._members.of_kernel(instruction)
        known = self._known.get(key)
        if known is None:
            known = emit()
            if known:
                self._known[key] = known
        return known

    def in_place(self, kernel: Kernel, plan: Plan, pairs: tuple[tuple[int, int], ...]) -> Kernel:
        """The kernel of a plan, emitted for outputs in the memory of operands."""
        key = kernel, pairs
        known = self._in_place.get(key)
        if known is None:
            capability = kernel.compute_capability
            known = self._in_place[key] = replace(emit_kernel(plan, pairs), compute_capability=capability)
        return known


class KernelSet:
    """The distinct kernels of a module. Structurally equal instructions give equal texts, hence equal symbols, and
    share a kernel.

    reasons  why an instruction that was asked for has no kernel
    """

    def __init__(self, module: Module, target: DeviceTarget, emitted: EmittedKernels) -> None:
        self._module = module
        self._target = target
        self._emitted = emitted
        self._by_symbol: dict[str, Kernel] = {}
        self._of: dict[Instruction, tuple[KernelOfLeaves, ...]] = {}
        self._plans: dict[Kernel, Plan] = {}
        self._sharing: dict[Kernel, Sharing] = {}
        self.apart: dict[Kernel, Kernel] = {}
        self.reasons: dict[Instruction, Reason] = {}

    def parts_of(self, instruction: Instruction) -> tuple[KernelOfLeaves, ...]:
        """The kernels of an instruction, usually one.

        Several if one kernel cannot write all outputs (`rng-bit-generator`: bits and state); none if a library or the
        interpreter must compute it (see `is_left_to_library`).
        """
        if instruction not in self._of:
            emitted: tuple[Emitted, ...] = ()
            if not is_left_to_library(instruction):
                emitted = self._emitted.of(instruction, lambda: self._planned(instruction))
            self._of[instruction] = tuple(map(self._part, emitted))
        return self._of[instruction]

    def _planned(self, instruction: Instruction) -> tuple[Emitted, ...]:
        region = region_of(self._module, instruction)
        positions: list[tuple[int, ...]] = []
        for root in region.roots:
            first = sum(map(len, positions))
            positions.append(tuple(range(first, first + len(list(root.shape.leaves())))))
        outcome = plan(region, self._target)
        if isinstance(outcome, Plan):
            return (self._emit(outcome, positions),)
        if instruction.opcode == "fusion" or len(region.roots) == 1:
            self.reasons[instruction] = outcome
            return ()
        separate = separate_plans(region, self._target)
        if isinstance(separate, Reason):
            self.reasons[instruction] = separate
            return ()
        return tuple(self._emit(each, [leaves]) for each, leaves in zip(separate, positions, strict=True))

    def _emit(self, kernel_plan: Plan, positions: Sequence[tuple[int, ...]]) -> Emitted:
        kernel = replace(emit_kernel(kernel_plan), compute_capability=self._target.compute_capability)
        return Emitted(kernel_plan, kernel, tuple(leaf for leaves in positions for leaf in leaves))

    def _part(self, emitted: Emitted) -> KernelOfLeaves:
        kernel = emitted.kernel
        first = self._by_symbol.setdefault(kernel.symbol, kernel)
        if (kernel.inputs, kernel.outputs) == (first.inputs, first.outputs):
            kernel = first
        else:  # equal texts may read arrays of other shapes
            kernel = replace(kernel, source=first.source)
        self._plans.setdefault(kernel, emitted.plan)
        return KernelOfLeaves(kernel, emitted.leaves)

    def sharing(self, kernel: Kernel) -> Sharing:
        """The outputs of a kernel, with operands, that `in_place` may be asked for."""
        if kernel not in self._sharing:
            self._sharing[kernel] = sharing_of(self._plans[kernel])
        return self._sharing[kernel]

    def in_place(self, kernel: Kernel, pairs: Sequence[tuple[int, int]]) -> Kernel:
        """The kernel with outputs in the memory of operands: (output, operand), among its `sharing`."""
        emitted = self._emitted.in_place(kernel, self._plans[kernel], tuple(sorted(pairs)))
        shared = replace(
            self._by_symbol.setdefault(emitted.symbol, emitted), inputs=kernel.inputs, outputs=kernel.outputs
        )
        self.apart[shared] = kernel
        return shared

    def distinct(self, routines: Iterable[Routine]) -> tuple[Kernel, ...]:
        """The kernels that routines launch, each once, in the order of creation."""
        launched = {op.kernel.symbol for routine in routines for op in routine.ops if isinstance(op, LaunchOp)}
        return tuple(kernel for symbol, kernel in self._by_symbol.items() if symbol in launched)


def without_dead_control(routines: Mapping[RoutineKey, Routine]) -> dict[RoutineKey, Routine]:
    """The routines without control flow that has neither read results nor side effects, in the same order."""
    effects = _with_effects(routines, callees_first(routines))
    return {key: _alive(routine, effects) for key, routine in routines.items()}


def _alive(routine: Routine, effects: Set[Op]) -> Routine:
    kept: list[Op] = []
    needed = set(routine.results)
    for op in reversed(routine.ops):
        if isinstance(op, LoopOp | BranchOp) and op not in effects and needed.isdisjoint(op.outputs):
            continue
        kept.append(op)
        needed.update(op.inputs)
    return replace(routine, ops=tuple(reversed(kept)))


def _with_effects(routines: Mapping[RoutineKey, Routine], order: Sequence[RoutineKey]) -> Set[Op]:
    """The operations with visible effects: library calls with side effects, and control flow that runs some."""
    operations: set[Op] = set()
    telling: set[RoutineKey] = set()
    for key in order:
        for op in routines[key].ops:
            spec = find(op.instruction.opcode) if isinstance(op, CallOp) else None
            # collectives only concern devices of this run
            is_seen = spec is not None and spec.side_effects and spec.kind is not OpKind.COLLECTIVE
            if is_seen or any(k in telling for k in callees(op)):
                operations.add(op)
                telling.add(key)
    return operations


@dataclass(frozen=True, eq=False)
class Schedule:
    """All routines of a module, the entry first, and their distinct kernels, for one device.

    apart  for kernels that were emitted for one memory of outputs and operands: the same for memory of their own
    """

    module: Module
    target: DeviceTarget
    routines: Mapping[RoutineKey, Routine]
    kernels: tuple[Kernel, ...]
    apart: Mapping[Kernel, Kernel] = field(default_factory=dict)

    @property
    def entry(self) -> Routine:
        return next(iter(self.routines.values()))

    def ops(self) -> Iterator[tuple[Routine, Op]]:
        """The operations of instructions with their routines: once per computation, however often or in however many
        layouts it runs."""
        seen: set[Computation] = set()
        for routine in self.routines.values():
            if routine.computation not in seen:
                seen.add(routine.computation)
                yield from ((routine, op) for op in routine.ops if not isinstance(op, Relayout | Free))

    def library_calls(self, kind: OneOf["library", "fallback"]) -> dict[str, int]:
        """The number of library calls (or fallbacks) by target."""
        calls = Counter(op.call for _, op in self.ops() if isinstance(op, CallOp) and op.kind == kind)
        return dict(sorted(calls.items()))


def build_schedule(
    module: Module, target: str | DeviceTarget | None = None, emitted: EmittedKernels | None = None
) -> Schedule:
    """The schedule of a module, fused or not, for a device: see `target_of`. `emitted` are the kernels of copies of the
    module for the same device, which are not emitted again; it grows. Raises EvaluationError for malformed control
    flow."""
    device = target_of(module, target)
    module = expanded(module, device)
    kernels = KernelSet(module, device, EmittedKernels() if emitted is None else emitted)
    entry = module.entry
    todo = [RoutineKey(entry, _parameter_layouts(entry), _layouts(entry.root.shape.leaves()))]
    routines: dict[RoutineKey, Routine] = {}
    while todo:
        key = todo.pop()
        if key not in routines:
            routines[key] = RoutineBuilder(key, kernels).build()
            todo.extend(reversed([k for op in routines[key].ops for k in callees(op)]))
    decided = with_donations(routines, aliased_leaves(module), kernels)
    finished = without_dead_control(decided)
    freed = {key: replace(r, ops=with_frees(r.ops, r.results)) for key, r in finished.items()}
    return Schedule(module, device, freed, kernels.distinct(decided.values()), kernels.apart)


class RoutineBuilder:
    """Builds one routine. The buffers in `leaves` always have the layouts of their instruction's shape."""

    def __init__(self, key: RoutineKey, kernels: KernelSet) -> None:
        self.key = key
        self.kernels = kernels
        self.shapes: list[Shape] = []
        self.ops: list[Op] = []
        self.leaves: dict[Instruction, Buffers] = {}

    def build(self) -> Routine:
        computation = self.key.computation
        layouts = iter(self.key.inputs)
        inputs: list[int] = []
        for parameter in computation.parameters:
            buffers = tuple(self.fresh(_laid_out(leaf, next(layouts))) for leaf in parameter.shape.leaves())
            inputs.extend(buffers)
            self.leaves[parameter] = self.adapted(parameter, buffers, parameter.shape)
        for instruction in computation.instructions:
            if instruction.parameter_number is None:
                self.leaves[instruction] = self.adapted(instruction, self.place(instruction), instruction.shape)
        root = computation.root
        results = tuple(
            self.relaid(root, b, _laid_out(self.shapes[b], order))
            for b, order in zip(self.leaves[root], self.key.results, strict=True)
        )
        return Routine(computation, tuple(self.shapes), tuple(inputs), results, tuple(self.ops))

    def fresh(self, shape: Shape) -> int:
        self.shapes.append(shape)
        return len(self.shapes) - 1

    def adapted(self, i: Instruction, buffers: Sequence[int], shape: Shape) -> Buffers:
        """The buffers of a value, in the layouts of a shape's leaves."""
        leaves = list(shape.leaves())
        if len(leaves) != len(buffers):
            raise self.malformed(i, f"{len(buffers)} arrays where {shape} has {len(leaves)}")
        return tuple(self.relaid(i, b, leaf) for b, leaf in zip(buffers, leaves, strict=True))

    def relaid(self, i: Instruction, buffer: int, shape: Shape) -> int:
        """The buffer, or a relayout of it for the shape's layout."""
        if lies_alike(self.shapes[buffer], shape):
            return buffer
        target = self.fresh(shape)
        self.ops.append(Relayout(i, (buffer,), (target,)))
        return target

    def place(self, i: Instruction) -> Buffers:
        """The buffers of an instruction's value; adds the operations that fill them, if any."""
        operands = tuple(b for o in i.operands for b in self.leaves[o])
        spec = find(i.opcode)
        if spec is not None and spec.is_identity:
            return self.leaves[i.operands[0]]
        if forwards(i):
            self.ops.append(CallOp(i, (), (), "empty", i.word("custom_call_target", i.opcode)))
            return operands
        if i.opcode == "tuple":
            return operands
        if i.opcode == "get-tuple-element":
            return self.part(i, i.attribute("index", int))
        work, path = at_once(i), goes_on(i)
        if work is not None:
            return self.started(i, operands, work)
        if path is not None:
            return self.part(i, *path) if path else operands
        match i.opcode:
            case "while":
                return self.loop(i, operands)
            case "call":
                return self.branch(i, operands, None, [i.called_by("to_apply")], [operands])
            case "conditional":
                selector, *arguments = (self.leaves[o] for o in i.operands)
                computations = [c for value in branches_of(i) for c in value.computations]
                return self.branch(i, operands, selector[0], computations, arguments)
        return self.compute(i, operands)

    def part(self, i: Instruction, index: int) -> Buffers:
        """The buffers of an element of the operand, a tuple."""
        source = i.operands[0]
        parts = source.shape.elements
        if parts is None or not 0 <= index < len(parts):
            raise self.malformed(i, f"{source.name} has no element {index}")
        first = sum(len(list(s.leaves())) for s in parts[:index])
        return self.leaves[source][first : first + len(list(parts[index].leaves()))]

    def started(self, i: Instruction, operands: Buffers, work: Instruction) -> Buffers:
        """The value of a start operation, with the results computed already. The context elements, which identify
        pending work, are zeros."""
        results = self.place(work)
        if work.shape is i.shape:
            return results
        is_first = i.shape.elements is not None and work.shape is i.shape.elements[0]
        buffers = (*results, *operands) if is_first else (*operands, *results)
        leaves = list(i.shape.leaves())
        own, contexts = leaves[: len(buffers)], leaves[len(buffers) :]
        zeros = tuple(self.fresh(leaf) for leaf in contexts)
        arrays = [(b, leaf) for b, leaf in zip(zeros, contexts, strict=True) if leaf.is_array]
        literals = tuple(_full(leaf, 0) for _, leaf in arrays)
        self.ops.append(ConstantOp(i, (), tuple(b for b, _ in arrays), literals))
        return (*self.adapted(i, buffers, Shape.tuple_of(*own)), *zeros)

    def loop(self, i: Instruction, operands: Buffers) -> Buffers:
        condition, body = i.called_by("condition"), i.called_by("body")
        state = _layouts(i.shape.leaves())
        inputs = self.adapted(i, operands, i.shape)
        outputs = tuple(self.fresh(leaf) for leaf in i.shape.leaves())
        test = RoutineKey(condition, state, _layouts(condition.root.shape.leaves()))
        self.ops.append(LoopOp(i, inputs, outputs, test, RoutineKey(body, state, state)))
        return outputs

    def branch(
        self,
        i: Instruction,
        operands: Buffers,
        selector: int | None,
        computations: Sequence[Computation],
        arguments: Sequence[Buffers],
    ) -> Buffers:
        if len(computations) != len(arguments) or not computations:
            raise self.malformed(i, f"{len(computations)} branches for {len(arguments)} arguments")
        results = _layouts(i.shape.leaves())
        keys, per_branch = [], []
        for computation, buffers in zip(computations, arguments, strict=True):
            wanted = Shape.tuple_of(*(p.shape for p in computation.parameters))
            per_branch.append(self.adapted(i, buffers, wanted))
            keys.append(RoutineKey(computation, _parameter_layouts(computation), results))
        outputs = tuple(self.fresh(leaf) for leaf in i.shape.leaves())
        read = tuple(dict.fromkeys([*operands, *(b for buffers in per_branch for b in buffers)]))
        self.ops.append(BranchOp(i, read, outputs, selector, tuple(keys), tuple(per_branch)))
        return outputs

    def compute(self, i: Instruction, operands: Buffers) -> Buffers:
        """The buffers that a constant, a view, a kernel or a library call fills."""
        leaves = list(i.shape.leaves())
        literals = known_value(i)
        spec = find(i.opcode)
        is_empty = not (spec is not None and spec.side_effects) and not any(s.element_count for s in leaves)
        parts = () if literals is not None or is_empty or i.opcode == "bitcast" else self.kernels.parts_of(i)
        if parts:
            return self.launches(i, operands, parts)
        if i.opcode == "fusion" and not is_empty and call_of(i) is None:
            body = i.called_by("calls")  # no single kernel for it: run its operations one after another
            return self.branch(i, operands, None, [body], [operands])
        outputs = tuple(self.fresh(leaf) for leaf in leaves)
        if literals is not None:
            self.ops.append(ConstantOp(i, (), outputs, literals))
        elif i.opcode == "bitcast":
            self.ops.append(AliasOp(i, operands, outputs, is_view=True))
        elif is_empty:
            self.ops.append(CallOp(i, operands, outputs, "empty", i.opcode))
        else:
            known = (spec is not None and spec.is_library) or _is_library_target(i) or call_of(i) is not None
            call = i.word("custom_call_target", i.opcode)
            around = _library_call_inside(i)
            if around is not None:  # a sort whose iota is inside the fusion is a library call like any other sort
                known, call = True, around.opcode
            kind: OneOf["library", "fallback"] = "library" if known else "fallback"
            self.ops.append(CallOp(i, operands, outputs, kind, call))
        return outputs

    def launches(self, i: Instruction, operands: Buffers, parts: Sequence[KernelOfLeaves]) -> Buffers:
        """The buffers that the kernels of an instruction write, in the order of its leaves."""
        written: dict[int, int] = {}
        for part in parts:
            inputs = self.adapted(i, operands, Shape.tuple_of(*part.kernel.inputs))
            outputs = tuple(self.fresh(shape) for shape in part.kernel.outputs)
            updates = dict(part.kernel.aliases)
            for output, b in enumerate(outputs):
                if output in updates:
                    self.ops.append(Copy(i, (inputs[updates[output]],), (b,)))
                else:
                    self.ops.append(Allocate(i, (), (b,)))
            self.ops.append(LaunchOp(i, inputs, outputs, part.kernel))
            written.update(zip(part.leaves, outputs, strict=False))
        return tuple(written[leaf] for leaf in sorted(written))

    def malformed(self, i: Instruction, why: str) -> EvaluationError:
        module = self.key.computation.module
        return EvaluationError(f"{i.name}: {why}", code="HLO412", span=None if module is None else module.span(i))


def _library_call_inside(instruction: Instruction) -> Instruction | None:
    """The library operation of a boundary fusion; None for other instructions."""
    if not is_boundary_fusion(instruction):
        return None
    root = instruction.called_by("calls").root
    spec = find(root.opcode)
    return root if spec is not None and spec.is_library else None


def _is_library_target(instruction: Instruction) -> bool:
    """Whether a custom call is to a library function."""
    if instruction.opcode != "custom-call":
        return False
    spec = find_custom_call(instruction.word("custom_call_target"))
    return spec is not None and bool(spec.library)


def known_value(i: Instruction) -> tuple[Literal, ...] | None:
    """The leaves of a value that is known before the run; None if it is not."""
    match i.opcode:
        case "constant":
            assert i.literal is not None, i.name
            return tuple(_literal_leaves(i.literal))
        case opcode if opcode in WHICH_DEVICE:
            return (_full(i.shape, 0),)
        case "get-dimension-size":
            return (_full(i.shape, i.operands[0].shape.dimensions[i.ints("dimensions")[0]]),)
    return None


def _layouts(shapes: Iterable[Shape]) -> tuple[tuple[int, ...], ...]:
    return tuple(s.minor_to_major for s in shapes)


def _parameter_layouts(computation: Computation) -> tuple[tuple[int, ...], ...]:
    return _layouts(leaf for p in computation.parameters for leaf in p.shape.leaves())


def _laid_out(shape: Shape, minor_to_major: tuple[int, ...]) -> Shape:
    return shape if shape.minor_to_major == minor_to_major else replace(shape, layout=Layout(minor_to_major))


def lies_alike(a: Shape, b: Shape) -> bool:
    """Whether two shapes of equal dimensions order their elements alike. Dimensions of size 1 do not matter."""
    if a.minor_to_major == b.minor_to_major or not a.element_count:
        return True
    return [d for d in a.minor_to_major if a.dimensions[d] != 1] == [
        d for d in b.minor_to_major if b.dimensions[d] != 1
    ]


def _full(shape: Shape, value: int) -> Literal:
    return Literal(shape, value=np.full(shape.dimensions, value, shape.type.dtype))


def _literal_leaves(literal: Literal) -> Iterator[Literal]:
    """The array literals of a tuple literal, depth first."""
    todo = [literal]
    while todo:
        top = todo.pop()
        if not top.shape.is_tuple:
            yield top
        elif not top.is_known:
            todo.extend(top.element(k) for k in reversed(range(len(top.shape.elements or ()))))
        elif isinstance(top.value, tuple):
            todo.extend(reversed(top.value))


def constant_array(op: ConstantOp, literal: Literal, device: Device | None) -> Array:
    """The array of a constant: the literal's value, or the number of the running device (None: a single one)."""
    if device is not None and op.instruction.opcode in WHICH_DEVICE:
        number = device.partition if op.instruction.opcode == "partition-id" else device.replica
        return np.full(literal.shape.dimensions, number, literal.shape.type.dtype)
    assert not isinstance(literal.value, tuple)
    return np.asarray(literal.value)
