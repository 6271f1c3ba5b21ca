"""Collectives on one GPU of a module that is made for several: that device hears from nobody, and what nobody sends is zero (ops/collective/meaning.py).

Emitted drivers have no use for this: they exchange (`calls.collectives`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hlo_opt.ir import Instruction, Shape
from hlo_opt.ops.collective.replica_groups import source_target_pairs
from hlo_opt.ops.custom_calls.targets import hands_on
from hlo_opt.ops.spec import ShapeError
from hlo_opt.runtime.calls.library import described, is_alone
from hlo_opt.runtime.calls.table import DeviceCall, call_of

Sources = Sequence[int | None]
"""For each array of the result: the array of the operands that it comes from, None for zeros."""


def device_call(instruction: Instruction) -> DeviceCall | None:
    """How CuPy computes an instruction on one GPU, or None where it cannot."""
    return call_of(instruction) or alone_call(instruction)


def alone_call(instruction: Instruction) -> DeviceCall | None:
    """What a collective gives a device that is alone: its own operand, cut or padded with zeros to the shape of the result. None for other instructions."""
    find = _SOURCES.get(instruction.opcode)
    try:
        sources = None if find is None else find(instruction)
    except ShapeError:
        return None
    given = [leaf for o in instruction.operands for leaf in o.shape.leaves()]
    made = list(instruction.shape.leaves())
    if sources is None or not _fits(sources, given, made):
        return None
    return DeviceCall("alone_call", tuple(map(described, (*given, *made))), (len(given), tuple(sources)), "cupy")


def handed_on(instruction: Instruction) -> list[int] | None:
    """For each array of the result the one of the operands that it is: a copy of a tuple, a custom call that only marks its operand, a collective of a module for one
    device. None for an instruction that does something."""
    given = [leaf for o in instruction.operands for leaf in o.shape.leaves()]
    made = list(instruction.shape.leaves())
    is_copy = instruction.opcode == "copy" and instruction.shape.is_tuple
    sources: Sources | None = range(len(given))
    if not is_copy and not (instruction.opcode == "custom-call" and hands_on(instruction)):
        find = _SOURCES.get(instruction.opcode) if is_alone(instruction) else None
        try:
            sources = None if find is None else find(instruction)
        except ShapeError:
            return None
    found = [k for k in sources or () if k is not None and k < len(given)]
    if sources is None or len(found) != len(sources) or len(found) != len(made):
        return None
    if (
        instruction.opcode == "all-reduce"
    ):  # XLA reads one that names another type, and on XLA:CPU the result has the operand's
        return found
    pairs = [(given[k], leaf) for k, leaf in zip(found, made, strict=True)]
    return found if all(g.is_array and g.type == m.type and g.dimensions == m.dimensions for g, m in pairs) else None


def _fits(sources: Sources, given: Sequence[Shape], made: Sequence[Shape]) -> bool:
    if len(sources) != len(made) or not all(leaf.is_array for leaf in made):
        return False
    return all(
        k is None or (k < len(given) and given[k].type == leaf.type and given[k].rank == leaf.rank)
        for k, leaf in zip(sources, made, strict=True)
    )


def _own(instruction: Instruction) -> Sources:
    return range(len(instruction.operands))


def _sent(instruction: Instruction) -> Sources:
    """What this device, the first one, sends to itself: the permutation's operands or zeros."""
    own = _own(instruction)
    return list(own) if (0, 0) in source_target_pairs(instruction) else [None for _ in own]


_SOURCES: dict[str, Callable[[Instruction], Sources]] = {
    "all-gather": _own,
    "all-reduce": _own,
    "all-to-all": _own,
    "collective-broadcast": _own,
    "collective-permute": _sent,
    "reduce-scatter": _own,
}
