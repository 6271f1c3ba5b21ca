"""The peak memory of a run, computed before anything is allocated: who owns which buffer, and how long it lives.

A value is a list of leaves, one per array of its shape. A leaf names the buffers that it uses: its own, or those of the
values that it is a view of. A buffer lives as long as a value that uses it. Parameters are the caller's buffers, and so
is any parameter that a computation returns unchanged.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from hlo_opt.evaluate.program import CompiledInstruction, Program, compile_computation, direct, error
from hlo_opt.ir import Computation, Instruction, Module, Shape
from hlo_opt.ir.walk import needed_first
from hlo_opt.ops import find
from hlo_opt.ops.control.table import branches
from hlo_opt.ops.dynamic import takes_dynamic
from hlo_opt.ops.elementwise.declare import Evaluation
from hlo_opt.ops.scratch import arrays, count, wide_bytes
from hlo_opt.ops.sets import body_of, looped, tuple_elements, tuple_index
from hlo_opt.ops.strides import Strides, row_major


def scratch_bytes(instruction: Instruction, inner: int) -> int:
    """Bytes besides operands and result. `inner` is the peak of one run of a called scalar computation (reducer,
    comparator)."""
    spec = find(instruction.opcode)
    if spec is not None and isinstance(spec.evaluate, Evaluation):
        return _elementwise(instruction, spec.evaluate)
    return 0 if spec is None or spec.scratch is None else spec.scratch(instruction, inner)


def _elementwise(instruction: Instruction, evaluation: Evaluation) -> int:
    """Bytes of widened operands and the unrounded result; twice the result's more for an evaluator of several steps."""
    if not instruction.shape.is_array or direct(instruction) is not None or evaluation.precision == "own":
        return 0
    further = evaluation.precision == "f64"
    total = 0
    for shape in arrays(instruction):
        wide = wide_bytes(shape.type, further=further)
        if wide != shape.type.bytes or shape.type.bits < 8:
            total += count(shape) * wide
    own = instruction.shape.type
    wide = wide_bytes(own, further=further)
    if wide != own.bytes or own.bits < 8:
        total += count(instruction.shape) * wide
    return total if evaluation.one_step else total + 2 * count(instruction.shape) * max(wide, 4)


@dataclass(frozen=True, slots=True)
class Leaf:
    """One array: the buffers it uses (array n of the parameters is -1 - n) and its strides in them."""

    buffers: frozenset[int] = frozenset()
    strides: Strides = None


Leaves = tuple[Leaf, ...]


@dataclass(frozen=True, slots=True)
class Footprint:
    """The memory of one run of a computation, without its arguments.

    peak     the most bytes alive at once, NumPy's scratch memory included
    at       the instruction of the peak; None where nothing is allocated
    results  the leaves of the root
    sizes    bytes of the buffers that they use, other than parameters
    """

    peak: int
    at: Instruction | None
    results: Leaves
    sizes: Mapping[int, int]


def footprints(computation: Computation, program_of: Callable[[Computation], Program]) -> dict[Computation, Footprint]:
    """The footprints of a computation and of all that it calls."""
    by_computation: dict[Computation, Footprint] = {}
    for called in _callees_first(computation):
        by_computation[called] = _Run(program_of(called), called, by_computation).footprint()
    return by_computation


def _callees_first(computation: Computation) -> list[Computation]:
    """The computation and all that it calls, transitively, callees first."""
    return needed_first([computation], lambda c: [called for i in c.instructions for called in i.called()])


def bytes_of(shape: Shape) -> int:
    """Bytes of a value in NumPy; tokens and unbounded sizes count as 0."""
    return sum(max(0, leaf.byte_size) for leaf in shape.leaves() if leaf.is_array)


@dataclass
class _Run:
    """Tracks memory through the steps of a program."""

    program: Program
    computation: Computation
    known: Mapping[Computation, Footprint]
    sizes: dict[int, int] = field(default_factory=dict)
    uses: dict[int, int] = field(default_factory=dict)
    alive: int = 0
    peak: int = 0
    at: Instruction | None = None

    def footprint(self) -> Footprint:
        values: dict[int, Leaves] = {}
        shapes: dict[int, Shape] = {}
        number = 0
        for parameter in self.computation.parameters:
            leaves = list(parameter.shape.leaves())
            slot = self.program.parameters[parameter.parameter_number or 0]
            values[slot] = tuple(
                Leaf(frozenset({-1 - number - k}), row_major(leaf.dimensions)) for k, leaf in enumerate(leaves)
            )
            shapes[slot] = parameter.shape
            number += len(leaves)
        for step in self.program.steps:
            value = self.value_of(step, [values[o] for o in step.operands], [shapes[o] for o in step.operands])
            values[step.slot], shapes[step.slot] = value, step.instruction.shape
            self.hold(value)
            for slot in step.frees:
                self.release(values.pop(slot, ()))
        results = values[self.program.root]
        used = {b for leaf in results for b in leaf.buffers if b >= 0}
        return Footprint(self.peak, self.at, results, {b: self.sizes[b] for b in sorted(used)})

    def value_of(self, step: CompiledInstruction, operands: Sequence[Leaves], shapes: Sequence[Shape]) -> Leaves:
        """The value of a step. Its memory, and its scratch memory, count towards the peak."""
        instruction = step.instruction
        opcode, shape = instruction.opcode, instruction.shape
        spec = find(opcode)
        if step.is_taken or opcode == "copy" or (spec is not None and spec.is_identity):
            return operands[0]
        if (index := tuple_index(instruction)) is not None:
            return _element(operands[0], shapes[0], index)
        if tuple_elements(instruction) is not None:
            return tuple(leaf for value in operands for leaf in value)
        if opcode in ("async-done", "copy-done"):
            return _element(operands[0], shapes[0], 1 if opcode == "async-done" else 0)
        if looped(instruction) is not None:
            return self.loop(instruction, operands[0])
        if opcode == "conditional":
            return self.choice(instruction, operands)
        called = body_of(instruction)
        if called is not None:
            inner = self.known[called]
            self.mark(inner.peak, inner.at or instruction)
            return self.returned(inner, [leaf for value in operands for leaf in value])
        if takes_dynamic(instruction):
            return self.fresh(instruction, bytes_of(shape))
        if spec is not None and spec.view is not None and shape.is_array:
            is_view, strides = spec.view(instruction, operands[0][0].strides)
            if is_view:
                return (Leaf(operands[0][0].buffers, strides),)
            return self.fresh(instruction, 0)
        if opcode == "iota" and shape.rank and shape.element_count:
            return self.line(instruction)
        if opcode == "convert" and shape.type == instruction.operands[0].shape.type:
            return operands[0]
        return self.fresh(instruction, self.scratch(instruction))

    def scratch(self, instruction: Instruction) -> int:
        inner = max((self.known[c].peak for c in instruction.called() if c in self.known), default=0)
        return scratch_bytes(instruction, inner)

    def mark(self, more: int, at: Instruction) -> None:
        """Record a momentary use of `more` bytes besides what is alive."""
        if self.alive + more > self.peak:
            self.peak, self.at = self.alive + more, at

    def buffer(self, size: int) -> int:
        self.sizes[len(self.sizes)] = size
        return len(self.sizes) - 1

    def fresh(self, instruction: Instruction, scratch: int) -> Leaves:
        """Newly allocated arrays, while `scratch` bytes are in use."""
        leaves = list(instruction.shape.leaves())
        self.mark(bytes_of(instruction.shape) + scratch, instruction)
        return tuple(
            Leaf(frozenset({self.buffer(bytes_of(leaf))}), row_major(leaf.dimensions)) if leaf.is_array else Leaf()
            for leaf in leaves
        )

    def line(self, instruction: Instruction) -> Leaves:
        """An iota is stored as one line of numbers, broadcast by strides."""
        shape, along = instruction.shape, instruction.value("iota_dimension", 0)
        along = along if isinstance(along, int) else 0
        count = max(0, shape.dimensions[along])
        self.mark(count * (shape.type.bytes + 8), instruction)  # NumPy counts in 64 bits first
        strides = tuple(int(d == along) for d in range(shape.rank))
        return (Leaf(frozenset({self.buffer(count * shape.type.bytes)}), strides),)

    def returned(self, inner: Footprint, arguments: Sequence[Leaf]) -> Leaves:
        """A computation's result in its caller, which owns the new buffers from now on."""
        own = {b: self.buffer(size) for b, size in inner.sizes.items()}
        return tuple(Leaf(_mapped(leaf, own, arguments), leaf.strides) for leaf in inner.results)

    def loop(self, instruction: Instruction, state: Leaves) -> Leaves:
        """While the body computes the next state, the current and the initial state are alive. Elements it passes
        through stay in place."""
        condition, body = (self.known[instruction.called_by(n)] for n in ("condition", "body"))
        leaves: list[Leaf] = []
        carried, charged = 0, set[int]()
        for number, (leaf, own, shape) in enumerate(zip(body.results, state, instruction.shape.leaves(), strict=True)):
            if leaf.buffers == {-1 - number}:
                leaves.append(own)
                continue
            new = {b for b in leaf.buffers if b >= 0}
            size = sum(body.sizes[b] for b in sorted(new - charged)) if new else bytes_of(shape)
            charged |= new
            carried += size
            leaves.append(Leaf(frozenset({self.buffer(size)}), leaf.strides))
        inner = max(condition, body, key=lambda f: f.peak)
        self.mark(carried + inner.peak, inner.at or instruction)
        return tuple(leaves)

    def choice(self, instruction: Instruction, operands: Sequence[Leaves]) -> Leaves:
        """A conditional counts as its most expensive branch."""
        called = [c for value in branches(instruction) for c in value.computations]
        callees = [self.known[c] for c in called]
        largest = max(callees, key=lambda f: f.peak)
        self.mark(largest.peak, largest.at or instruction)
        shared = self.buffer(max(sum(f.sizes.values()) for f in callees))
        leaves = []
        for number in range(len(callees[0].results)):
            used: frozenset[int] = frozenset()
            for footprint, argument in zip(callees, operands[1:], strict=True):
                own = dict.fromkeys(footprint.sizes, shared)
                used |= _mapped(footprint.results[number], own, argument)
            leaves.append(Leaf(used))
        return tuple(leaves)

    def hold(self, value: Leaves) -> None:
        for leaf in value:
            for b in leaf.buffers:
                if b >= 0:
                    self.uses[b] = self.uses.get(b, 0) + 1
                    self.alive += self.sizes[b] if self.uses[b] == 1 else 0

    def release(self, value: Leaves) -> None:
        for leaf in value:
            for b in leaf.buffers:
                if b >= 0:
                    self.uses[b] -= 1
                    self.alive -= self.sizes[b] if not self.uses[b] else 0


def _mapped(leaf: Leaf, own: Mapping[int, int], arguments: Sequence[Leaf]) -> frozenset[int]:
    buffers: set[int] = set()
    for b in leaf.buffers:
        buffers |= {own[b]} if b >= 0 else arguments[-1 - b].buffers
    return frozenset(buffers)


def _element(value: Leaves, shape: Shape, index: int) -> Leaves:
    """The leaves of one element of a tuple."""
    elements = shape.elements or ()
    start = sum(len(list(e.leaves())) for e in elements[:index])
    return value[start : start + len(list(elements[index].leaves()))] if index < len(elements) else ()


SHARE = 0.8
"""The share of the machine's memory that a run may take by default."""

_DRAWN = 16
"""Bytes per element while random inputs are drawn: once in f64, once while converted to their type."""


@dataclass(frozen=True, slots=True)
class Peak:
    """The most bytes alive at once, and the instruction where that is; None where nothing is allocated."""

    bytes: int
    at: Instruction | None


def default_limit() -> int | None:
    """80 % of the machine's memory in bytes; None where the system does not report it."""
    try:
        return int(SHARE * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, OSError, ValueError):
        return None


def sized(number: int) -> str:
    """A byte count for people: `3.5 GiB (3758096384 bytes)`."""
    value, unit = float(number), 0
    names = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
    while value >= 1024 and unit < len(names) - 1:
        value, unit = value / 1024, unit + 1
    return f"{number} bytes" if not unit else f"{value:.3g} {names[unit]} ({number} bytes)"


def inputs_bytes(module: Module) -> int:
    """Bytes of the entry's parameters."""
    return sum(bytes_of(p.shape) for p in module.entry.parameters)


def drawing_bytes(module: Module) -> int:
    """The most bytes alive while random inputs are drawn one after another."""
    done, most = 0, 0
    for parameter in module.entry.parameters:
        for leaf in parameter.shape.leaves():
            if leaf.is_array:
                most = max(most, done + _DRAWN * max(0, leaf.element_count) + bytes_of(leaf))
                done += bytes_of(leaf)
    return most


def peak_of(computation: Computation, program_of: Callable[[Computation], Program]) -> Peak:
    """The peak of a run besides its arguments. Results count twice at the end, when the caller gets copies."""
    footprint = footprints(computation, program_of)[computation]
    copied = sum(footprint.sizes.values()) + bytes_of(computation.root.shape)
    if copied > footprint.peak:
        return Peak(copied, computation.root)
    return Peak(footprint.peak, footprint.at)


def check_memory(
    module: Module,
    limit: int | None,
    *,
    devices: int = 1,
    inputs: int | None = None,
    beside: int = 0,
    drawn: bool = False,
    program_of: Callable[[Computation], Program] = compile_computation,
) -> None:
    """Raises EvaluationError (HLO402) where a run of the module would exceed `limit` bytes (None: no limit).

    devices     the number of devices that run at the same time, each with its own values
    inputs      bytes of all devices' inputs; None: those of the parameters, per device
    beside      bytes that the caller holds meanwhile
    drawn       whether inputs are drawn at random, which takes more than they do
    program_of  the compiled form of a computation, where the caller caches it
    """
    if limit is None:
        return
    input_bytes = devices * inputs_bytes(module) if inputs is None else inputs
    peak = peak_of(module.entry, program_of)
    total, at = input_bytes + beside + devices * peak.bytes, peak.at or module.entry.root
    refuse_more(Peak(total, at), limit, devices=devices, inputs=input_bytes)
    if drawn:
        check_drawing(module, limit, devices=devices)


def refuse_more(peak: Peak, limit: int, *, devices: int = 1, inputs: int | None = None) -> None:
    """Raises EvaluationError (HLO402) where a peak exceeds the limit. `inputs` is the number of its bytes that are
    inputs."""
    if peak.bytes <= limit:
        return
    times = f" on {devices} devices" if devices > 1 else ""
    of_inputs = "" if inputs is None else f", {sized(inputs)} of them inputs"
    assert peak.at is not None
    raise error(
        peak.at,
        f"the run would hold {sized(peak.bytes)}{times} here{of_inputs}; the limit is {sized(limit)}",
        code="HLO402",
        hint="--memory-limit SIZE (in Python memory_limit) sets another limit",
    )


def check_drawing(module: Module, limit: int | None, *, devices: int = 1) -> None:
    """Raises EvaluationError (HLO402) where drawing inputs for all devices would exceed `limit` bytes (None: no
    limit)."""
    most = (devices - 1) * inputs_bytes(module) + drawing_bytes(module)
    if limit is not None and most > limit:
        times = f" for {devices} devices" if devices > 1 else ""
        raise error(
            module.entry.parameters[0],
            f"drawing the inputs{times} would take {sized(most)}; the limit is {sized(limit)}",
            code="HLO402",
            hint="--memory-limit SIZE (in Python memory_limit) sets another limit",
        )
