"""How many bytes a run holds at once: who owns which memory, and how long it lives.

A value is a list of leaves, one per array of its shape, and a leaf names the buffers whose memory it uses: its own, or those of the values that it is a view
of. A buffer lives as long as a value that uses it. Parameters are buffers of the caller; so is what a computation returns as it got it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from hlo_opt.evaluate.program import Program, Step
from hlo_opt.evaluate.scratch import scratch_bytes
from hlo_opt.ir import Computation, Instruction, Shape
from hlo_opt.ops import find
from hlo_opt.ops.control.table import branches
from hlo_opt.ops.dynamic import takes_dynamic
from hlo_opt.ops.sets import body_of, held, looped, taken_element
from hlo_opt.ops.strides import Strides, row_major


@dataclass(frozen=True, slots=True)
class Leaf:
    """One array: the buffers that it uses (number n of the parameters' arrays is -1 - n) and how it lies in them."""

    buffers: frozenset[int] = frozenset()
    strides: Strides = None


Value = tuple[Leaf, ...]


@dataclass(frozen=True, slots=True)
class Footprint:
    """Of one run of a computation, without its arguments.

    peak     the most bytes alive at once, scratch memory of NumPy's included
    at       the instruction where that is; None where nothing is made
    results  the leaves of the root
    sizes    bytes of the buffers that they use and that are no parameter's
    """

    peak: int
    at: Instruction | None
    results: Value
    sizes: Mapping[int, int]


def footprints(computation: Computation, program_of: Callable[[Computation], Program]) -> dict[Computation, Footprint]:
    """The footprints of a computation and of all that it calls."""
    found: dict[Computation, Footprint] = {}
    for called in _callees_first(computation):
        found[called] = _Run(program_of(called), called, found).footprint()
    return found


def _callees_first(computation: Computation) -> list[Computation]:
    """The computation and all that it calls, in any depth, each after what it calls itself."""
    order: list[Computation] = []
    entered: set[Computation] = set()
    todo = [(computation, False)]
    while todo:
        top, is_done = todo.pop()
        if is_done:
            order.append(top)
        elif top not in entered:
            entered.add(top)
            todo.append((top, True))
            todo.extend((c, False) for i in top.instructions for c in i.called() if c not in entered)
    return order


def bytes_of(shape: Shape) -> int:
    """Bytes that NumPy takes for a value of the shape; tokens and sizes that are open count as none."""
    return sum(max(0, leaf.byte_size) for leaf in shape.leaves() if leaf.is_array)


@dataclass
class _Run:
    """Follows a program step by step."""

    program: Program
    computation: Computation
    known: Mapping[Computation, Footprint]
    sizes: dict[int, int] = field(default_factory=dict)
    uses: dict[int, int] = field(default_factory=dict)
    alive: int = 0
    peak: int = 0
    at: Instruction | None = None

    def footprint(self) -> Footprint:
        values: dict[int, Value] = {}
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
            made = self.made(step, [values[o] for o in step.operands], [shapes[o] for o in step.operands])
            values[step.slot], shapes[step.slot] = made, step.instruction.shape
            self.hold(made)
            for slot in step.frees:
                self.release(values.pop(slot, ()))
        results = values[self.program.root]
        used = {b for leaf in results for b in leaf.buffers if b >= 0}
        return Footprint(self.peak, self.at, results, {b: self.sizes[b] for b in sorted(used)})

    def made(self, step: Step, operands: Sequence[Value], shapes: Sequence[Shape]) -> Value:
        """The value of a step; its own memory and what it takes on the way count for the peak."""
        instruction = step.instruction
        opcode, shape = instruction.opcode, instruction.shape
        spec = find(opcode)
        if step.is_taken or opcode == "copy" or (spec is not None and spec.is_identity):
            return operands[0]
        if (index := taken_element(instruction)) is not None:
            return _element(operands[0], shapes[0], index)
        if held(instruction) is not None:
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
        """So many bytes are taken on top of what is alive."""
        if self.alive + more > self.peak:
            self.peak, self.at = self.alive + more, at

    def buffer(self, size: int) -> int:
        self.sizes[len(self.sizes)] = size
        return len(self.sizes) - 1

    def fresh(self, instruction: Instruction, scratch: int) -> Value:
        """New memory for every array, while `scratch` bytes are taken besides."""
        leaves = list(instruction.shape.leaves())
        self.mark(bytes_of(instruction.shape) + scratch, instruction)
        return tuple(
            Leaf(frozenset({self.buffer(bytes_of(leaf))}), row_major(leaf.dimensions)) if leaf.is_array else Leaf()
            for leaf in leaves
        )

    def line(self, instruction: Instruction) -> Value:
        """An iota is one line of numbers, seen again and again."""
        shape, along = instruction.shape, instruction.value("iota_dimension", 0)
        along = along if isinstance(along, int) else 0
        count = max(0, shape.dimensions[along])
        self.mark(count * (shape.type.bytes + 8), instruction)  # counted in 64 bits first
        strides = tuple(int(d == along) for d in range(shape.rank))
        return (Leaf(frozenset({self.buffer(count * shape.type.bytes)}), strides),)

    def returned(self, inner: Footprint, arguments: Sequence[Leaf]) -> Value:
        """What a computation gives its caller: its own buffers are the caller's from now on."""
        own = {b: self.buffer(size) for b, size in inner.sizes.items()}
        return tuple(Leaf(_mapped(leaf, own, arguments), leaf.strides) for leaf in inner.results)

    def loop(self, instruction: Instruction, state: Value) -> Value:
        """While the body makes the next state, its own one and the first one are alive. What the body hands on as it is stays where it was."""
        condition, body = (self.known[instruction.called_by(n)] for n in ("condition", "body"))
        made: list[Leaf] = []
        carried, charged = 0, set[int]()
        for number, (leaf, own, shape) in enumerate(zip(body.results, state, instruction.shape.leaves(), strict=True)):
            if leaf.buffers == {-1 - number}:
                made.append(own)
                continue
            new = {b for b in leaf.buffers if b >= 0}
            size = sum(body.sizes[b] for b in sorted(new - charged)) if new else bytes_of(shape)
            charged |= new
            carried += size
            made.append(Leaf(frozenset({self.buffer(size)}), leaf.strides))
        inner = max(condition, body, key=lambda f: f.peak)
        self.mark(carried + inner.peak, inner.at or instruction)
        return tuple(made)

    def choice(self, instruction: Instruction, operands: Sequence[Value]) -> Value:
        """As much as the branch that takes most."""
        called = [c for value in branches(instruction) for c in value.computations]
        found = [self.known[c] for c in called]
        largest = max(found, key=lambda f: f.peak)
        self.mark(largest.peak, largest.at or instruction)
        shared = self.buffer(max(sum(f.sizes.values()) for f in found))
        made = []
        for number in range(len(found[0].results)):
            used: frozenset[int] = frozenset()
            for footprint, argument in zip(found, operands[1:], strict=True):
                own = dict.fromkeys(footprint.sizes, shared)
                used |= _mapped(footprint.results[number], own, argument)
            made.append(Leaf(used))
        return tuple(made)

    def hold(self, value: Value) -> None:
        for leaf in value:
            for b in leaf.buffers:
                if b >= 0:
                    self.uses[b] = self.uses.get(b, 0) + 1
                    self.alive += self.sizes[b] if self.uses[b] == 1 else 0

    def release(self, value: Value) -> None:
        for leaf in value:
            for b in leaf.buffers:
                if b >= 0:
                    self.uses[b] -= 1
                    self.alive -= self.sizes[b] if not self.uses[b] else 0


def _mapped(leaf: Leaf, own: Mapping[int, int], arguments: Sequence[Leaf]) -> frozenset[int]:
    found: set[int] = set()
    for b in leaf.buffers:
        found |= {own[b]} if b >= 0 else arguments[-1 - b].buffers
    return frozenset(found)


def _element(value: Value, shape: Shape, index: int) -> Value:
    """The leaves of one element of a tuple."""
    elements = shape.elements or ()
    start = sum(len(list(e.leaves())) for e in elements[:index])
    return value[start : start + len(list(elements[index].leaves()))] if index < len(elements) else ()
