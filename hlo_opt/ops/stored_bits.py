"""What a kernel only moves are bits: the narrow floats of a computation that no operation computes, as unsigned
integers.

Registers hold narrow floats as f32. To widen a number and to narrow it again takes time, and changes the bits of a NaN:
a signalling one becomes quiet, and some ways make all the same. HLO moves an element as it is stored. So arrays that
are read from memory and written again, moved, chosen or read as integers in between, are arrays of integers of their
width here, and so their kernels are those of integers. What computes with such an array reads it as the floats that it
holds, by a `bitcast-convert`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from hlo_opt.ir import ELEMENT_TYPES, Attribute, Called, Computation, ElementType, Instruction, Shape, edit
from hlo_opt.ir.literal import Literal, SizedLiteral
from hlo_opt.ir.walk import operands_first, reached
from hlo_opt.ops.reduction.reducers import picks
from hlo_opt.ops.sets import (
    LOOPS,
    REINTERPRETS,
    combines_updates,
    is_identity,
    looped,
    tuple_elements,
    tuple_index,
)
from hlo_opt.ops.spec import find

_CHOOSE = frozenset({"copy", "select"})
"""Elementwise operations whose result is an element of an operand."""


_BITS = {
    t: ELEMENT_TYPES[f"u{t.bits}"]
    for t in ELEMENT_TYPES.values()
    if t.is_narrow_float and f"u{t.bits}" in ELEMENT_TYPES
}


def bits_type(element_type: ElementType) -> ElementType | None:
    """The unsigned integer that holds the bits of a narrow float; None for other types, and where there is none."""
    return _BITS.get(element_type)


def as_stored(computation: Computation) -> tuple[Computation, Mapping[Instruction, Shape]]:
    """The computation of a kernel with arrays that are only moved as integers; itself, where there are none. And the
    shapes that these had, by what they are now.

    An array is moved where it reaches a result, or an operation that reads its bits, without being computed, and comes
    from parameters, tables of constants, or the bits of another type; a loop may carry it. What moves together with it,
    but was computed, is narrowed first. Not so f16 and bf16, which stay floats then: processors narrow f16 in one
    instruction, which the vector code of the host has only where it stores.
    """
    loops = [i for i in computation.instructions if i.opcode in LOOPS]
    state = _State.of(loops[0]) if len(loops) == 1 else None
    every = [computation] if state is None else [computation, state.body, state.condition]
    if any(looped(i) is not None for c in every[1:] for i in c.instructions):
        return computation, {}  # what a loop within hands on is not followed
    if not any(_is_narrow(i) for c in every for i in c.instructions):
        return computation, {}
    results = [computation.root]
    for i in results:
        results += tuple_elements(i) or ()
    # nearly all kernels end here
    wanted = [r for r in results if _is_narrow(r) and (state is not None or _begins(r) or moved_operands(r))]
    wanted += [o for c in every for i in c.instructions if reads_bits(i) or orders_bits(i) for o in i.operands]
    if not wanted:
        return computation, {}
    orders = {c: operands_first([*c.parameters, c.root]) for c in every}
    moved = _moved([i for order in orders.values() for i in order], wanted, state)
    if not moved:
        return computation, {}
    copies = _Writer(orders, moved, frozenset(results), state).copies(computation)
    return copies[computation.root].computation, {copies[i]: i.shape for i in moved if i in copies}


def _is_narrow(instruction: Instruction) -> bool:
    return instruction.shape.element_type in _BITS


@dataclass(frozen=True, eq=False)
class _State:
    """The arrays that a loop carries: what they begin with, and what a round makes of them."""

    loop: Instruction
    body: Computation
    condition: Computation
    initial: Sequence[Instruction]
    yields: Sequence[Instruction]

    @classmethod
    def of(cls, loop: Instruction) -> _State | None:
        """None where a loop carries anything but the elements of tuples, each read by itself."""
        body, condition = loop.called_by("body"), loop.called_by("condition")
        initial, yields = tuple_elements(loop.operands[0]), tuple_elements(body.root)
        if initial is None or yields is None or list(loop.operands[0].users) != [loop]:
            return None
        state = cls(loop, body, condition, initial, yields)
        return state if all(tuple_index(user) is not None for v in state.values for user in v.users) else None

    @property
    def values(self) -> tuple[Instruction, ...]:
        """The tuples that hold the state."""
        return (self.loop, *self.body.parameters, *self.condition.parameters)

    @property
    def tuples(self) -> tuple[Instruction, Instruction]:
        """The tuples that are made of it: at first, and in each round."""
        return self.loop.operands[0], self.body.root

    def number(self, instruction: Instruction) -> int | None:
        """The number of the array that an instruction reads from the state; None for others."""
        number = tuple_index(instruction)
        return number if number is not None and instruction.operands[0] in self.values else None


_Value = Instruction | int
"""An array, or the number of one that a loop carries."""


def moved_operands(instruction: Instruction) -> list[Instruction]:
    """The operands of whose elements the result consists; none where it is computed."""
    spec, opcode = find(instruction.opcode), instruction.opcode
    moves = spec is not None and (spec.moves_data or opcode in _CHOOSE or is_identity(opcode))
    if combines_updates(instruction):
        moves = len(instruction.operands) == 3 and picks(instruction.called_by("to_apply")) == 1
    if not moves or not instruction.shape.is_array:
        return []
    return [o for o in instruction.operands if o.shape.is_array and o.shape.type == instruction.shape.type]


def reads_bits(instruction: Instruction) -> bool:
    """Whether an instruction reads the bits of its operand as another type."""
    return instruction.opcode in REINTERPRETS and not moved_operands(instruction)


def _begins(instruction: Instruction) -> bool:
    """Whether the bits of a narrow float are at hand, in memory or as another type."""
    return instruction.parameter_number is not None or _is_table(instruction) or reads_bits(instruction)


_OF_SEVERAL_NANS = frozenset({"f16", "f8e5m2", "f8e4m3", "f8e3m4"})
"""Types with several NaNs of a sign, which kernels do not widen by a shift as they do bf16."""


def orders_bits(instruction: Instruction) -> bool:
    """Whether an instruction compares by IEEE 754's totalOrder floats whose NaNs differ: processors widen a signalling
    one of f16 to a quiet one, GPUs all to one, and what narrows 8 bits makes all one."""
    if instruction.opcode != "compare" or instruction.word("type") != "TOTALORDER":
        return False
    first, second = (o.shape.type for o in instruction.operands)
    return first.name in _OF_SEVERAL_NANS and first == second


def _moved(instructions: Sequence[Instruction], wanted: Sequence[Instruction], state: _State | None) -> set[_Value]:
    """What are integers: what is wanted as it is stored, and comes from where it is stored."""
    sources: dict[_Value, Sequence[_Value]] = {}
    begins, computed = list[_Value](), list[_Value]()
    for i in instructions:
        if not _is_narrow(i):
            continue
        number = None if state is None else state.number(i)
        sources[i] = moved_operands(i) if number is None else (number,)
        if _begins(i):
            begins.append(i)
        elif not sources[i] and i.literal is None and i.shape.type.bits == 16:
            computed.append(i)
    if state is not None:
        ends = enumerate(zip(state.initial, state.yields, strict=True))
        sources.update((n, both) for n, both in ends if _is_narrow(both[0]))
    users: dict[_Value, list[_Value]] = {}
    for user, those in sources.items():
        for source in those:
            users.setdefault(source, []).append(user)
    stored = _reached(begins, users) - _reached(computed, users)
    kept = {user: those for user, those in sources.items() if user in stored}
    moved = _reached(wanted, kept) & stored
    return moved | {user for value in moved if isinstance(value, int) for user in users[value]}


def _reached(starts: Iterable[_Value], edges: Mapping[_Value, Sequence[_Value]]) -> set[_Value]:
    return reached(starts, lambda value: edges.get(value, ()))


def _is_plain(literal: Literal) -> bool:
    """Whether its value is known, and the same for all sizes."""
    return literal.is_known and not isinstance(literal, SizedLiteral)


def _is_table(instruction: Instruction) -> bool:
    """Whether it is a constant with elements to read, or one whose NaN no literal in the code has."""
    literal = instruction.literal
    if literal is None or not _is_plain(literal):
        return False
    return instruction.shape.element_count > 1 or _is_nan(literal)


def _is_nan(literal: Literal) -> bool:
    import numpy as np

    return bool(np.isnan(np.asarray(literal.value, np.float32)).any())


def _as_bits(shape: Shape) -> Shape:
    return replace(shape, element_type=bits_type(shape.type))


class _Writer:
    """Writes computations again, with integers for what is moved."""

    def __init__(
        self,
        orders: Mapping[Computation, Sequence[Instruction]],
        moved: Collection[_Value],
        results: Collection[Instruction],
        state: _State | None,
    ) -> None:
        self._orders, self._moved, self._results, self._state = orders, moved, results, state

    def copies(self, computation: Computation) -> dict[Instruction, Instruction]:
        """The new instructions of a computation, by the old ones."""
        new = Computation(computation.name)
        copies: dict[Instruction, Instruction] = {}
        others: dict[Instruction, Instruction] = {}
        for i in self._orders[computation]:
            operands = []
            ordered = orders_bits(i) and any(o in self._moved for o in i.operands)
            for position, o in enumerate(i.operands):
                if (o in self._moved) == (ordered or self._takes_bits(i, position)):
                    operands.append(copies[o])
                    continue
                if o not in others:
                    others[o] = self._otherwise(o, copies[o])
                operands.append(others[o])
            copies[i] = edit.clone_into(new, i, [_place_of(o) for o in operands] if ordered else operands)
            if ordered:
                edit.set_attribute(copies[i], "type", Attribute.of("SIGNED"))
            self._retype(i, copies[i])
        edit.set_root(new, copies[computation.root])
        return copies

    def _takes_bits(self, instruction: Instruction, position: int) -> bool:
        """Whether an instruction takes an operand as an integer."""
        operand, state = instruction.operands[position], self._state
        if state is not None and instruction in state.tuples:
            return position in self._moved
        if instruction in self._moved:
            return operand in moved_operands(instruction) or (reads_bits(instruction) and operand in self._moved)
        hands_on = instruction in self._results and tuple_elements(instruction) is not None
        return operand in self._moved and (hands_on or reads_bits(instruction))

    def _otherwise(self, old: Instruction, new: Instruction) -> Instruction:
        """What an operand is to those that take it the other way: bits as floats, or floats as bits."""
        if old not in self._moved and old.literal is not None and _is_plain(old.literal):
            number = edit.clone_into(new.computation, old, ())
            edit.set_literal(number, _bits_of(old))
            return number
        shape, way = (old.shape, "floats") if old in self._moved else (_as_bits(old.shape), "bits")
        return edit.create(new.computation, f"{old.name}.{way}", "bitcast-convert", shape, [new])

    def _retype(self, old: Instruction, new: Instruction) -> None:
        """Give a copy the shape that it has now."""
        state = self._state
        if old in self._moved:
            if old.literal is not None:
                edit.set_literal(new, _bits_of(old))
                return
            edit.set_shape(new, _as_bits(old.shape))
            if combines_updates(old):
                edit.set_attribute(new, "to_apply", Called(_picking(old)))
        elif tuple_elements(new) is not None:
            leaves = zip(old.shape.elements or (), new.operands, strict=True)
            edit.set_shape(new, Shape.tuple_of(*(replace(s, element_type=o.shape.element_type) for s, o in leaves)))
        elif state is not None and old in state.values:
            carried = enumerate(old.shape.elements or ())
            edit.set_shape(new, Shape.tuple_of(*(_as_bits(s) if n in self._moved else s for n, s in carried)))
            if old is state.loop:
                for name, computation in (("body", state.body), ("condition", state.condition)):
                    root = self.copies(computation)[computation.root]
                    edit.set_attribute(new, name, Called(root.computation))


def _place_of(bits: Instruction) -> Instruction:
    """A whole number for the place of a float in its total order, from its bits: those of what is negative are turned,
    but for the sign."""
    width = bits.shape.type.bits
    computation, shape = bits.computation, replace(bits.shape, element_type=ELEMENT_TYPES[f"s{width}"])

    def number(value: int) -> Instruction:
        import numpy as np

        scalar = Shape(shape.type)
        constant = edit.create(
            computation, "number", "constant", scalar, literal=Literal(scalar, value=np.array(value, shape.type.dtype))
        )
        if not shape.rank:
            return constant
        return edit.create(computation, "numbers", "broadcast", shape, [constant], {"dimensions": Attribute.of(())})

    signed = edit.create(computation, "signed", "bitcast-convert", shape, [bits])
    signs = edit.create(computation, "signs", "shift-right-arithmetic", shape, [signed, number(width - 1)])
    digits = edit.create(computation, "digits", "shift-right-logical", shape, [signs, number(1)])
    return edit.create(computation, "place", "xor", shape, [signed, digits])


def _bits_of(constant: Instruction) -> Literal:
    """The bits of a constant's value, as integers."""
    import numpy as np

    assert constant.literal is not None
    shape, value = _as_bits(constant.shape), np.asarray(constant.literal.value)
    return Literal(shape, value=value.view(f"u{value.dtype.itemsize}").astype(shape.type.dtype))


def _picking(scatter: Instruction) -> Computation:
    """The computation of a scatter that overwrites, for integers."""
    computation = Computation(scatter.called_by("to_apply").name)
    shape = Shape(bits_type(scatter.shape.type))
    edit.create_parameter(computation, "old", shape, 0)
    edit.set_root(computation, edit.create_parameter(computation, "new", shape, 1))
    return computation
