"""The wishes for a module's parameters: those of their readers, propagated backwards from each result.

Calls, fusions, conditionals and loops are visited at each call site, as if inlined. The initial state of a loop gets
the wishes of its condition and body; wishes do not propagate around the loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hlo_opt.ir import Called, Computation, Instruction, Module
from hlo_opt.ops import find
from hlo_opt.ops.bounds import bounds_of, type_bounds
from hlo_opt.ops.sets import APPLIED, COPIES, looped, tuple_elements, tuple_index
from hlo_opt.ops.wishes import ANYTHING, NONE, Bounds, Wish, WishForm, is_special

MOST_VISITED = 100_000
"""The most instructions visited, counted per call; instructions beyond have no wishes."""
DEEPEST = 50
"""The deepest call nesting visited; computations below have no wishes."""
FEW = 6.0
"""The iterations that a loop should take whose bound is an input."""

_HANDS_ON = COPIES | {"broadcast", "convert", "reverse", "transpose"}


def wanted(module: Module) -> list[Wish]:
    """One wish per array of the entry's parameters, tuples flattened in order."""
    entry = module.entry
    frame = _Frame(entry, [], True, _Budget())
    frame.look()
    return [
        wish
        for p in entry.parameters
        for leaf, wish in zip(p.shape.leaves(), frame.wishes(p), strict=True)
        if leaf.is_array
    ]


def known_bounds(module: Module) -> dict[Instruction, Bounds]:
    """Value bounds of all instructions that have one array as their value, except inside reducers and comparators."""
    by_instruction: dict[Instruction, Bounds] = {}
    todo = [_Frame(module.entry, [], True, _Budget())]
    while todo:
        frame = todo.pop()
        for instruction in frame.computation.instructions:
            low, high = frame.bounds(instruction)
            if instruction in by_instruction:
                low, high = min(low, by_instruction[instruction][0]), max(high, by_instruction[instruction][1])
            by_instruction[instruction] = low, high
        todo += [inner for frames in frame.within.values() for inner, _ in frames]
    return by_instruction


class _Budget:
    """The number of instructions that may still be visited."""

    def __init__(self) -> None:
        self.left = MOST_VISITED


class _Frame:
    """A computation at one call site."""

    def __init__(
        self,
        computation: Computation,
        arguments: Sequence[Sequence[Bounds]],
        outermost: bool,
        budget: _Budget,
        depth: int = 0,
        weights: Sequence[bool] = (),
    ) -> None:
        self.computation = computation
        self.budget = budget
        self.depth = depth
        self.within: dict[Instruction, list[tuple[_Frame, int]]] = {}
        """The frames of the computations an instruction calls, each with the number of its first operand."""
        self._wishes: dict[Instruction, list[Wish]] = {}
        self._bounds: dict[Instruction, list[Bounds]] = {}
        self._weights: set[Instruction] = set()
        for instruction in computation.instructions:
            number = instruction.parameter_number
            if number is not None:
                argument = arguments[number] if number < len(arguments) else None
                own = [type_bounds(leaf) for leaf in instruction.shape.leaves()]
                has_bounds = argument is not None and len(argument) == len(own)
                self._bounds[instruction] = list(argument or ()) if has_bounds else own
                if outermost or (number < len(weights) and weights[number]):
                    self._weights.add(instruction)
            else:
                self._enter(instruction)

    def _enter(self, instruction: Instruction) -> None:
        """Record the bounds of an instruction, and make frames for what it calls."""
        self.budget.left -= 1
        operands = instruction.operands
        if (instruction.opcode in _HANDS_ON or tuple_index(instruction) is not None) and operands[0] in self._weights:
            self._weights.add(instruction)
        count = leaves(instruction)
        if tuple_elements(instruction) is not None:
            self._bounds[instruction] = [b for o in operands for b in self._bounds[o]]
            return
        if tuple_index(instruction) is not None:
            start = first_leaf(instruction)
            self._bounds[instruction] = self._bounds[operands[0]][start : start + count]
            return
        called = self._called(instruction) if self.budget.left > 0 and self.depth < DEEPEST else []
        for computation, first in called:
            known = instruction.opcode in APPLIED or instruction.opcode in ("conditional", "async-start")
            arguments = operands[first : first + len(computation.parameters)]
            frame = _Frame(
                computation,
                [self._bounds[o] for o in arguments] if known else [],
                False,
                self.budget,
                self.depth + 1,
                [o in self._weights for o in arguments],
            )
            self.within.setdefault(instruction, []).append((frame, first))
        if instruction.opcode in APPLIED and called:
            frame = self.within[instruction][0][0]
            self._bounds[instruction] = list(frame._bounds[frame.computation.root])
        elif count == 1 and instruction.shape.is_array:
            self._bounds[instruction] = [bounds_of(instruction, [self.bounds(o) for o in operands])]
        else:
            self._bounds[instruction] = [ANYTHING] * count

    @staticmethod
    def _called(instruction: Instruction) -> list[tuple[Computation, int]]:
        """The computations called with whole operands, each with the number of the first operand."""
        called: list[tuple[Computation, int]] = []
        if instruction.opcode == "conditional":
            branches = instruction.attributes.get("branch_computations")
            listed = branches.computations if isinstance(branches, Called) else instruction.called()
            return [(computation, number) for number, computation in enumerate(listed, 1)]
        if instruction.opcode in APPLIED or instruction.opcode in ("while", "map", "async-start"):
            called = [(computation, 0) for computation in instruction.called()]
        return called

    def look(self, result: Sequence[Wish] = ()) -> None:
        """Propagate the wish for the result back to the parameters."""
        if result:
            self._want(self.computation.root, result)
        for instruction in reversed(list(self.computation.instructions)):
            if instruction.parameter_number is None and instruction in self._bounds:
                self._ask(instruction, self.wishes(instruction))

    def _ask(self, instruction: Instruction, wish: list[Wish]) -> None:
        """Propagate the wish for an instruction's result to its operands."""
        operands = instruction.operands
        if tuple_elements(instruction) is not None:
            start = 0
            for operand in operands:
                end = start + leaves(operand)
                self._want(operand, wish[start:end])
                start = end
        elif tuple_index(instruction) is not None:
            start, count = first_leaf(instruction), leaves(operands[0])
            wishes = [NONE] * start + wish
            self._want(operands[0], wishes + [NONE] * (count - len(wishes)))
        elif instruction.opcode == "opt-barrier":
            self._want(operands[0], wish)
        elif instruction in self.within:
            self._ask_within(instruction, wish)
        elif instruction.opcode == "sort":
            for operand, own in zip(operands, wish, strict=False):
                self._want(operand, [own & Wish(near=(0.0, 1.0))])
        else:
            spec = find(instruction.opcode)
            if spec is not None and spec.samples is not None:
                asked = list(spec.samples(instruction, wish[0] if len(wish) == 1 else NONE, self))
                if is_special(instruction):
                    asked += [NONE] * (len(operands) - len(asked))
                    asked = [replace(a, special=True) for a in asked]
                for operand, own in zip(operands, asked, strict=False):
                    if operand.shape.is_array:
                        self._want(operand, [own])

    def _ask_within(self, instruction: Instruction, wish: list[Wish]) -> None:
        for frame, first in self.within[instruction]:
            is_state = looped(instruction) is not None
            frame.look([] if is_state or len(wish) != leaves(frame.computation.root) else wish)
            for operand, parameter in zip(instruction.operands[first:], frame.computation.parameters, strict=False):
                if leaves(operand) == leaves(parameter):
                    self._want(operand, frame.wishes(parameter))
        if looped(instruction) is not None:
            self._ask_bounds(instruction)
        elif instruction.opcode == "conditional" and instruction.operands[0].shape.type.kind != "pred":
            branches = len(self.within[instruction])
            self._want(instruction.operands[0], [Wish(0.0, float(branches - 1), form=WishForm.INDEX)])

    def _ask_bounds(self, loop: Instruction) -> None:
        """Integers of the state that the condition compares should be small, so that the loop takes a few
        iterations."""
        condition = loop.attributes.get("condition")
        if not isinstance(condition, Called):
            return
        wishes = [NONE] * leaves(loop)
        for compare in condition.computations[0].instructions:
            if compare.opcode != "compare":
                continue
            for operand in compare.operands:
                leaf = _leaf_of_state(operand)
                if leaf is not None and operand.shape.is_array and operand.shape.type.is_integer:
                    wishes[leaf] = Wish(0.0, FEW)
        self._want(loop.operands[0], wishes)

    def _want(self, instruction: Instruction, wishes: Sequence[Wish]) -> None:
        own = self._wishes.setdefault(instruction, [NONE] * leaves(instruction))
        for number, wish in enumerate(wishes):
            own[number] = own[number] & wish

    def wishes(self, instruction: Instruction) -> list[Wish]:
        """The wishes for each array of an instruction's value."""
        return self._wishes.get(instruction) or [NONE] * leaves(instruction)

    def bounds(self, instruction: Instruction) -> Bounds:
        limits = self._bounds.get(instruction)
        return limits[0] if limits is not None and len(limits) == 1 else ANYTHING

    def is_weight(self, instruction: Instruction) -> bool:
        return instruction in self._weights


def _leaf_of_state(instruction: Instruction) -> int | None:
    """The number of the array of a condition's parameter that an instruction passes on; None where it does not."""
    while instruction.opcode in _HANDS_ON:
        instruction = instruction.operands[0]
    if tuple_index(instruction) is not None and instruction.operands[0].parameter_number is not None:
        return first_leaf(instruction)
    return 0 if instruction.parameter_number is not None and instruction.shape.is_array else None


def leaves(instruction: Instruction) -> int:
    """The number of arrays and tokens in an instruction's value."""
    return sum(1 for _ in instruction.shape.leaves())


def first_leaf(element: Instruction) -> int:
    """The number of the first array of a get-tuple-element among those of its operand."""
    index, elements = element.value("index", 0), element.operands[0].shape.elements or ()
    count = index if isinstance(index, int) else 0
    return sum(sum(1 for _ in e.leaves()) for e in elements[:count])
