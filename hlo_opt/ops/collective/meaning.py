"""What collectives mean for one device among those that take part.

A face asks its evaluator what the devices of its group bring. Where an operation asks for more devices than there are, what nobody sends is zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hlo_opt.ir import Instruction, Shape
from hlo_opt.ir.values import Array
from hlo_opt.ops.collective.module_devices import by_partition, participants, source_target_pairs
from hlo_opt.ops.control.meaning import zeros
from hlo_opt.ops.reduction.reducers import is_wide, running_type
from hlo_opt.ops.spec import Evaluator
from hlo_opt.ops.values import Value, packed, parts


def _exchange(evaluator: Evaluator, instruction: Instruction, values: Sequence[Value]) -> tuple[list[Any], int]:
    """What each member of the group gives, in its order, and this device's place in it; (nothing, -1) for a device in no group."""
    device = evaluator.device
    group = participants(instruction, device.replica, device.partition, device.replicas, device.partitions)
    given = device.exchange(instruction, values, group)
    if len(given) < 2:
        return given, len(given) - 1
    return given, group.index(device.number) if device.number in group else -1


def _reduced(evaluator: Evaluator, instruction: Instruction, given: list[Any], number: int) -> Value:
    """Operand `number` of all members, folded in their order."""
    if len(given) == 1:
        return np.asarray(given[0][number])
    reducer, wide = instruction.called_by("to_apply"), is_wide(instruction)
    own = instruction.operands[number].shape.type
    arrays = [np.asarray(values[number]) for values in given]
    if wide:
        arrays = [array.astype(running_type(own).dtype) for array in arrays]
    made = arrays[0]
    for part in arrays[1:]:
        made = evaluator.map_elements(reducer, [made, part], wide=wide)[0]
    return made.astype(own.dtype) if wide else made


def all_reduce(evaluator: Evaluator, instruction: Instruction, values: list[Value]) -> Value:
    given = _exchange(evaluator, instruction, values)[0] or [values]
    return packed(instruction, [_reduced(evaluator, instruction, given, k) for k in range(len(values))])


def all_reduce_start(evaluator: Evaluator, instruction: Instruction, values: list[Value]) -> Value:
    """The results; in an older form (operand, result)."""
    made = all_reduce(evaluator, instruction, values)
    return (*values, *parts(made)) if len(instruction.shape.elements or ()) == 2 * len(values) else made


def _along(instruction: Instruction) -> int:
    return (instruction.ints("dimensions") or (0,))[0]


def _fitted(value: Array, shape: Shape) -> Array:
    """The value cut or padded with zeros to the shape."""
    if np.shape(value) == shape.dimensions:
        return value
    cut = value[tuple(map(slice, shape.dimensions))]
    made = np.zeros(shape.dimensions, shape.type.dtype)
    made[tuple(map(slice, cut.shape))] = cut
    return made


def _gathered(instruction: Instruction, given: list[Any], number: int, shape: Shape) -> Value:
    return _fitted(np.concatenate([np.asarray(v[number]) for v in given], axis=_along(instruction)), shape)


def all_gather(evaluator: Evaluator, instruction: Instruction, values: list[Value]) -> Value:
    given = _exchange(evaluator, instruction, values)[0] or [values]
    leaves = instruction.shape.leaves()
    return packed(instruction, [_gathered(instruction, given, k, leaf) for k, leaf in enumerate(leaves)])


def reduce_scatter(evaluator: Evaluator, instruction: Instruction, values: list[Value]) -> Value:
    """This device's share of the sums."""
    given, place = _exchange(evaluator, instruction, values)
    along = _along(instruction)
    made = []
    for number, leaf in enumerate(instruction.shape.leaves()):
        total = np.asarray(_reduced(evaluator, instruction, given or [values], number))
        size = leaf.dimensions[along]
        start = max(place, 0) * size
        made.append(_fitted(total[(slice(None),) * along + (slice(start, start + size),)], leaf))
    return packed(instruction, made)


def all_reduce_done(evaluator: Evaluator, instruction: Instruction, values: list[Value]) -> Value:
    return values[0] if instruction.shape.is_tuple or not isinstance(values[0], tuple) else values[0][-1]


def all_gather_start(evaluator: Evaluator, instruction: Instruction, values: list[Value]) -> Value:
    elements = instruction.shape.elements
    assert elements is not None
    given = _exchange(evaluator, instruction, values)[0] or [values]
    own = tuple(values) if elements[0].is_tuple else values[0]
    gathered = tuple(_gathered(instruction, given, k, leaf) for k, leaf in enumerate(elements[1].leaves()))
    made = gathered if elements[1].is_tuple else gathered[0]
    return own, made, *(zeros(shape) for shape in elements[2:])


def _second(evaluator: Evaluator, instruction: Instruction, values: list[Value]) -> Value:
    return values[0][1] if isinstance(values[0], tuple) else values[0]


all_gather_done = collective_permute_done = _second


def all_to_all(evaluator: Evaluator, instruction: Instruction, values: list[Value]) -> Value:
    """An array is split along a dimension, and part k goes to member k; of a tuple, operand k does."""
    given, place = _exchange(evaluator, instruction, values)
    if len(given) < 2:
        return packed(instruction, values)
    if instruction.shape.is_tuple:
        if len(values) != len(given):
            raise ValueError(f"{len(values)} operands for {len(given)} devices")
        return tuple(v[place] for v in given)
    along = _along(instruction)
    return np.concatenate([np.split(np.asarray(v[0]), len(given), axis=along)[place] for v in given], axis=along)


def collective_broadcast(evaluator: Evaluator, instruction: Instruction, values: list[Value]) -> Value:
    """The first member's value; zeros for a device in no group."""
    given, place = _exchange(evaluator, instruction, values)
    return packed(instruction, given[0] if place >= 0 else [np.zeros_like(v) for v in values])


def _permuted(evaluator: Evaluator, instruction: Instruction, values: Sequence[Value]) -> list[Value]:
    """What the source of this device sends; zeros when nobody sends to it. A device alone hears from nobody but itself."""
    if "slice_sizes" in instruction.attributes:
        raise ValueError("a permute into given buffers is not evaluated")
    device = evaluator.device
    across = by_partition(instruction)
    here = device.partition if across else device.replica
    source = next((s for s, target in source_target_pairs(instruction) if target == here), None)
    everyone = [
        device.replica * device.partitions + k if across else k * device.partitions + device.partition
        for k in range(device.partitions if across else device.replicas)
    ]
    given = device.exchange(instruction, values, everyone)
    if source is None or source >= len(given):
        return [np.zeros_like(v) for v in values]
    return list(given[source])


def collective_permute(evaluator: Evaluator, instruction: Instruction, values: list[Value]) -> Value:
    if len(values) not in (1, len(list(instruction.shape.leaves()))):
        raise ValueError("a permute into given buffers is not evaluated")
    return packed(instruction, _permuted(evaluator, instruction, values))


def collective_permute_start(evaluator: Evaluator, instruction: Instruction, values: list[Value]) -> Value:
    elements = instruction.shape.elements
    made = _permuted(evaluator, instruction, values)
    if elements is None:
        return made[0]
    if elements[0].is_tuple:
        return tuple(values), tuple(made), *(zeros(shape) for shape in elements[2:])
    return values[0], made[0], *(zeros(shape) for shape in elements[2:])


def ragged_all_to_all(evaluator: Evaluator, instruction: Instruction, values: list[Value]) -> Value:
    """(operand, output, input offsets, send sizes, output offsets, receive sizes): rows of every member's operand that it sends here are written
    into the output where the sender says. The offsets of a member come in equal parts, one for each member of the group."""
    given, place = _exchange(evaluator, instruction, values)
    made = np.array(values[1])
    members = given or [values]
    for member in members:
        operand = np.asarray(member[0])
        starts, sizes, targets = (np.asarray(v).reshape(-1).astype(np.int64) for v in member[2:5])
        each = len(starts) // len(members)
        mine = slice(max(place, 0) * each, (max(place, 0) + 1) * each) if len(members) > 1 else slice(None)
        for start, size, to in zip(starts[mine], sizes[mine], targets[mine], strict=True):
            made[to : to + size] = operand[start : start + size]
    return made
