"""The meaning of collectives on one of the participating devices.

A face gets the values of the devices in its group from the evaluator. Values from devices that do not exist are zero.
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
    """The values of each group member, in group order, and this device's position; ([], -1) for a device in no
    group."""
    device = evaluator.device
    group = participants(instruction, device.replica, device.partition, device.replicas, device.partitions)
    received = device.exchange(instruction, values, group)
    if len(received) < 2:
        return received, len(received) - 1
    return received, group.index(device.number) if device.number in group else -1


def _reduced(evaluator: Evaluator, instruction: Instruction, members: list[Any], number: int) -> Value:
    """Operand `number` of all members, reduced in group order."""
    if len(members) == 1:
        return np.asarray(members[0][number])
    reducer, wide = instruction.called_by("to_apply"), is_wide(instruction)
    own = instruction.operands[number].shape.type
    arrays = [np.asarray(values[number]) for values in members]
    if wide:
        arrays = [array.astype(running_type(own).dtype) for array in arrays]
    total = arrays[0]
    for part in arrays[1:]:
        total = evaluator.map_elements(reducer, [total, part], wide=wide)[0]
    return total.astype(own.dtype) if wide else total


def all_reduce(evaluator: Evaluator, instruction: Instruction, values: list[Value]) -> Value:
    received = _exchange(evaluator, instruction, values)[0] or [values]
    return packed(instruction, [_reduced(evaluator, instruction, received, k) for k in range(len(values))])


def all_reduce_start(evaluator: Evaluator, instruction: Instruction, values: list[Value]) -> Value:
    """The results; in an older form (operand, result)."""
    results = all_reduce(evaluator, instruction, values)
    return (*values, *parts(results)) if len(instruction.shape.elements or ()) == 2 * len(values) else results


def _along(instruction: Instruction) -> int:
    return (instruction.ints("dimensions") or (0,))[0]


def _fitted(value: Array, shape: Shape) -> Array:
    """The value cut or zero-padded to the shape."""
    if np.shape(value) == shape.dimensions:
        return value
    cut = value[tuple(map(slice, shape.dimensions))]
    padded = np.zeros(shape.dimensions, shape.type.dtype)
    padded[tuple(map(slice, cut.shape))] = cut
    return padded


def _gathered(instruction: Instruction, members: list[Any], number: int, shape: Shape) -> Value:
    return _fitted(np.concatenate([np.asarray(v[number]) for v in members], axis=_along(instruction)), shape)


def all_gather(evaluator: Evaluator, instruction: Instruction, values: list[Value]) -> Value:
    received = _exchange(evaluator, instruction, values)[0] or [values]
    leaves = instruction.shape.leaves()
    return packed(instruction, [_gathered(instruction, received, k, leaf) for k, leaf in enumerate(leaves)])


def reduce_scatter(evaluator: Evaluator, instruction: Instruction, values: list[Value]) -> Value:
    """This device's shard of the sums."""
    received, place = _exchange(evaluator, instruction, values)
    along = _along(instruction)
    shares = []
    for number, leaf in enumerate(instruction.shape.leaves()):
        total = np.asarray(_reduced(evaluator, instruction, received or [values], number))
        size = leaf.dimensions[along]
        start = max(place, 0) * size
        shares.append(_fitted(total[(slice(None),) * along + (slice(start, start + size),)], leaf))
    return packed(instruction, shares)


def all_reduce_done(evaluator: Evaluator, instruction: Instruction, values: list[Value]) -> Value:
    return values[0] if instruction.shape.is_tuple or not isinstance(values[0], tuple) else values[0][-1]


def all_gather_start(evaluator: Evaluator, instruction: Instruction, values: list[Value]) -> Value:
    elements = instruction.shape.elements
    assert elements is not None
    received = _exchange(evaluator, instruction, values)[0] or [values]
    own = tuple(values) if elements[0].is_tuple else values[0]
    gathered = tuple(_gathered(instruction, received, k, leaf) for k, leaf in enumerate(elements[1].leaves()))
    result = gathered if elements[1].is_tuple else gathered[0]
    return own, result, *(zeros(shape) for shape in elements[2:])


def _second(evaluator: Evaluator, instruction: Instruction, values: list[Value]) -> Value:
    return values[0][1] if isinstance(values[0], tuple) else values[0]


all_gather_done = collective_permute_done = _second


def all_to_all(evaluator: Evaluator, instruction: Instruction, values: list[Value]) -> Value:
    """Split an array along a dimension and send part k to member k; with a tuple result, send operand k."""
    received, place = _exchange(evaluator, instruction, values)
    if len(received) < 2:
        return packed(instruction, values)
    if instruction.shape.is_tuple:
        if len(values) != len(received):
            raise ValueError(f"{len(values)} operands for {len(received)} devices")
        return tuple(v[place] for v in received)
    along = _along(instruction)
    return np.concatenate([np.split(np.asarray(v[0]), len(received), axis=along)[place] for v in received], axis=along)


def collective_broadcast(evaluator: Evaluator, instruction: Instruction, values: list[Value]) -> Value:
    """The first member's value; zeros on a device in no group."""
    received, place = _exchange(evaluator, instruction, values)
    return packed(instruction, received[0] if place >= 0 else [np.zeros_like(v) for v in values])


def _permuted(evaluator: Evaluator, instruction: Instruction, values: Sequence[Value]) -> list[Value]:
    """The value from this device's source; zeros without one. A device alone receives only from itself."""
    if "slice_sizes" in instruction.attributes:
        raise ValueError("a permute into existing buffers is not evaluated")
    device = evaluator.device
    across = by_partition(instruction)
    here = device.partition if across else device.replica
    source = next((s for s, target in source_target_pairs(instruction) if target == here), None)
    everyone = [
        device.replica * device.partitions + k if across else k * device.partitions + device.partition
        for k in range(device.partitions if across else device.replicas)
    ]
    received = device.exchange(instruction, values, everyone)
    if source is None or source >= len(received):
        return [np.zeros_like(v) for v in values]
    return list(received[source])


def collective_permute(evaluator: Evaluator, instruction: Instruction, values: list[Value]) -> Value:
    if len(values) not in (1, len(list(instruction.shape.leaves()))):
        raise ValueError("a permute into existing buffers is not evaluated")
    return packed(instruction, _permuted(evaluator, instruction, values))


def collective_permute_start(evaluator: Evaluator, instruction: Instruction, values: list[Value]) -> Value:
    elements = instruction.shape.elements
    result = _permuted(evaluator, instruction, values)
    if elements is None:
        return result[0]
    if elements[0].is_tuple:
        return tuple(values), tuple(result), *(zeros(shape) for shape in elements[2:])
    return values[0], result[0], *(zeros(shape) for shape in elements[2:])


def ragged_all_to_all(evaluator: Evaluator, instruction: Instruction, values: list[Value]) -> Value:
    """(operand, output, input offsets, send sizes, output offsets, receive sizes) on each member.

    Slices of rows of each member's operand are written into the output where the sender says. Offsets come in equal
    parts, one per member of the group.
    """
    received, place = _exchange(evaluator, instruction, values)
    output = np.array(values[1])
    members = received or [values]
    for member in members:
        operand = np.asarray(member[0])
        starts, sizes, targets = (np.asarray(v).reshape(-1).astype(np.int64) for v in member[2:5])
        each = len(starts) // len(members)
        mine = slice(max(place, 0) * each, (max(place, 0) + 1) * each) if len(members) > 1 else slice(None)
        for start, size, to in zip(starts[mine], sizes[mine], targets[mine], strict=True):
            output[to : to + size] = operand[start : start + size]
    return output
