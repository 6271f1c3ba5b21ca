"""What a kernel only moves are bits: the narrow floats of a region that no operation computes, as unsigned integers.

Registers hold narrow floats as f32. To widen a number and to narrow it again takes time, and changes the bits of a NaN:
a signalling one becomes quiet, and some ways make all the same. HLO moves an element as it is stored. So arrays that
are read from memory and written again, moved, chosen or read as integers in between, are arrays of integers of their
width here, and so their kernels are those of integers. What computes with such an array reads it as the floats that it
holds, by a `bitcast-convert`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from hlo_opt.ir import ELEMENT_TYPES, Called, Computation, ElementType, Instruction, Shape, edit
from hlo_opt.ir.literal import Literal, SizedLiteral
from hlo_opt.ir.walk import operands_first
from hlo_opt.ops.reduction.reducers import picks
from hlo_opt.ops.sets import REINTERPRETS, combines_updates, is_identity
from hlo_opt.ops.spec import find

_CHOOSE = frozenset({"copy", "select"})
"""Elementwise operations whose result is an element of an operand."""
_READ_AS = "bitcast-convert"


def bits_type(element_type: ElementType) -> ElementType | None:
    """The unsigned integer that holds the bits of a narrow float; None for other types."""
    return ELEMENT_TYPES.get(f"u{element_type.bits}") if element_type.is_narrow_float else None


def as_stored(computation: Computation) -> tuple[Computation, Mapping[Instruction, Shape]]:
    """The computation of a kernel with arrays that are only moved as integers; itself, where there are none. And the
    shapes that these had, by what they are now.

    An array is moved where it reaches a root, or an operation that reads its bits, without being computed, and all of
    it comes from parameters, tables of constants, or the bits of another type. What moves together with what was
    computed stays in registers as that is: it would be narrowed before it is moved, and the vector code of the host
    narrows only what it stores.
    """
    if not any(_is_narrow(i) for i in computation.instructions):
        return computation, {}
    order = operands_first([*computation.parameters, computation.root])
    results = {computation.root}
    for i in reversed(order):
        if i in results and i.opcode == "tuple":
            results.update(i.operands)
    moved = _moved(order, results)
    return _rewritten(computation, order, moved, results) if moved else (computation, {})


def _is_narrow(instruction: Instruction) -> bool:
    return instruction.shape.is_array and bits_type(instruction.shape.type) is not None


def _moved_operands(instruction: Instruction) -> list[Instruction]:
    """The operands of whose elements the result consists; none where it is computed."""
    spec, opcode = find(instruction.opcode), instruction.opcode
    moves = spec is not None and (spec.moves_data or opcode in _CHOOSE or is_identity(opcode))
    if combines_updates(instruction):
        moves = len(instruction.operands) == 3 and picks(instruction.called_by("to_apply")) == 1
    if not moves or not instruction.shape.is_array:
        return []
    return [o for o in instruction.operands if o.shape.is_array and o.shape.type == instruction.shape.type]


def _reads_bits(instruction: Instruction) -> bool:
    """Whether an instruction reads the bits of its operand as another type."""
    return instruction.opcode in REINTERPRETS and not _moved_operands(instruction)


def _moved(order: Sequence[Instruction], results: Collection[Instruction]) -> set[Instruction]:
    """The arrays that are integers: what is wanted as it is stored, and comes from where it is stored alone."""
    stored, computed = set[Instruction](), set[Instruction]()
    for i in order:
        if not _is_narrow(i) or i.literal is not None and not _is_table(i):
            continue
        moves = _moved_operands(i)
        if i.parameter_number is not None or i.literal is not None or _reads_bits(i):
            stored.add(i)
        elif not moves or not computed.isdisjoint(moves):
            computed.add(i)
        elif not stored.isdisjoint(moves):
            stored.add(i)
    wanted = set(results)
    for i in reversed(order):
        if _reads_bits(i):
            wanted.add(i.operands[0])
        elif i in wanted and i in stored:
            wanted.update(_moved_operands(i))
    return stored & wanted


def _is_table(instruction: Instruction) -> bool:
    """Whether it is a constant with elements to read, or whose NaN no literal in the code has."""
    literal = instruction.literal
    if literal is None or not _is_plain(literal):
        return False
    return instruction.shape.element_count > 1 or _is_nan(literal)


def _is_nan(literal: Literal) -> bool:
    import numpy as np

    return bool(np.isnan(np.asarray(literal.value, np.float32)).any())


def _rewritten(
    computation: Computation,
    order: Sequence[Instruction],
    moved: Collection[Instruction],
    results: Collection[Instruction],
) -> tuple[Computation, Mapping[Instruction, Shape]]:
    copy = Computation(computation.name)
    copies: dict[Instruction, Instruction] = {}
    others: dict[Instruction, Instruction] = {}
    """What is read the other way: bits as floats, floats as bits."""

    def other(operand: Instruction) -> Instruction:
        if operand not in others:
            if operand not in moved and operand.literal is not None and _is_plain(operand.literal):
                others[operand] = _constant(copy, operand)
            else:
                shape = operand.shape if operand in moved else _as_bits(operand.shape)
                others[operand] = edit.create(copy, operand.name, _READ_AS, shape, [copies[operand]])
        return others[operand]

    for i in order:
        if i in moved and i.literal is not None:
            copies[i] = _constant(copy, i)
            continue
        hands_on = i.opcode == "tuple" and i in results
        takes_bits = set(_moved_operands(i)) if i in moved else set()
        if hands_on or _reads_bits(i):
            takes_bits.update(moved)
        operands = [copies[o] if (o in moved) == (o in takes_bits) else other(o) for o in i.operands]
        copies[i] = edit.clone_into(copy, i, operands)
        if i in moved:
            edit.set_shape(copies[i], _as_bits(i.shape))
            if combines_updates(i):
                edit.set_attribute(copies[i], "to_apply", Called(_picking(i)))
        elif hands_on:
            edit.set_shape(copies[i], Shape.tuple_of(*(o.shape for o in operands)))
    edit.set_root(copy, copies[computation.root])
    return copy, {copies[i]: i.shape for i in moved}


def _as_bits(shape: Shape) -> Shape:
    return replace(shape, element_type=bits_type(shape.type))


def _is_plain(literal: Literal) -> bool:
    return literal.is_known and not isinstance(literal, SizedLiteral)


def _constant(computation: Computation, constant: Instruction) -> Instruction:
    """A constant with the bits of another one, as integers."""
    import numpy as np

    assert constant.literal is not None
    shape, value = _as_bits(constant.shape), np.asarray(constant.literal.value)
    bits = value.view(f"u{value.dtype.itemsize}").astype(shape.type.dtype)
    return edit.create(computation, constant.name, "constant", shape, literal=Literal(shape, value=bits))


def _picking(scatter: Instruction) -> Computation:
    """The computation of a scatter that overwrites, for integers."""
    computation = Computation(scatter.called_by("to_apply").name)
    shape = Shape(bits_type(scatter.shape.type))
    edit.create_parameter(computation, "old", shape, 0)
    edit.set_root(computation, edit.create_parameter(computation, "new", shape, 1))
    return computation
