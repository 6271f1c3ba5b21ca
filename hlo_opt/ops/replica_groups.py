"""Which devices take part in a collective: replica groups in every spelling and mode.

Source: xla/service/collective_ops_utils.cc (GetCollectiveOpGroupMode, GetParticipatingDevicesGroups) and xla/hlo/ir/collective_device_list.cc.
A device is (replica, partition); its number is replica * partitions + partition.
"""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np

from hlo_opt.ir import Instruction

_IOTA = re.compile(r"\[([\d,\s]+)\]\s*<=\s*\[([\d,\s]+)\]\s*(?:T\(([\d,\s]+)\))?")
_MESH = re.compile(r"mesh\[([^\]]*)\]\s*\{([^}]*)\}")
_AXIS = re.compile(r"'([^']*)'\s*(?:=\s*(\d+))?")
_GROUP = re.compile(r"\{([\d\s,]*)\}")
_PAIR = re.compile(r"\{\s*(\d+)\s*,\s*(\d+)\s*\}")

FLAGGED = frozenset({"all-reduce", "all-gather", "reduce-scatter", "all-reduce-start", "all-gather-start"})
"""Collectives with `use_global_device_ids`."""

MOST = 1 << 20
"""More members than this are no groups of devices: the text is refused."""


def groups(text: str) -> list[list[int]]:
    """The groups that `replica_groups` writes as a list, as a reshaped and transposed iota, or as axes of a mesh; none for all devices.

    Raises ValueError for a text that is none of these.
    """
    text = text.strip()
    if text.startswith("{"):
        return [_numbers(group) for group in _GROUP.findall(text[1:-1])]
    iota = _IOTA.match(text)
    if iota is not None:
        count, reshape = _numbers(iota[1]), _numbers(iota[2])
        _bounded(math.prod(reshape))
        order = _numbers(iota[3]) if iota[3] else list(range(len(reshape)))
        return _listed(np.arange(math.prod(reshape)).reshape(reshape).transpose(order), count[0])
    mesh = _MESH.match(text)
    if mesh is not None:
        sizes = {name: int(size) for name, size in _AXIS.findall(mesh[1]) if size}
        chosen = [name for name, _ in _AXIS.findall(mesh[2])]
        if not set(chosen) <= set(sizes):
            raise ValueError(f"replica_groups={text[:100]} names axes that the mesh has not")
        _bounded(math.prod(sizes.values()))
        names = list(sizes)
        kept = [name for name in names if name not in chosen]
        devices = np.arange(math.prod(sizes.values())).reshape([*sizes.values()])
        order = [names.index(name) for name in [*kept, *chosen]]
        return _listed(devices.transpose(order), math.prod(sizes[name] for name in kept))
    raise ValueError(f"replica_groups={text[:100]} is in no known form")


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",") if part.strip()]


def _bounded(count: int) -> None:
    if count > MOST:
        raise ValueError(f"replica_groups name {count} devices")


def _listed(devices: Any, count: int) -> list[list[int]]:
    return [[int(device) for device in row] for row in devices.reshape(count, -1)]


def source_target_pairs(instruction: Instruction) -> list[tuple[int, int]]:
    """The pairs of a collective-permute."""
    found = _PAIR.findall(instruction.attributes["source_target_pairs"].text)
    return [(int(source), int(target)) for source, target in found]


def by_partition(instruction: Instruction) -> bool:
    """Whether a collective without `use_global_device_ids` counts partitions: when it has a channel."""
    return "channel_id" in instruction.attributes


def participants(instruction: Instruction, replica: int, partition: int, replicas: int, partitions: int) -> list[int]:
    """The numbers of the devices in the group of a device, in the order of the group. Empty when the device is in none.

    Groups may name devices beyond those that there are. Raises ValueError for a mode that XLA refuses.
    """
    written = instruction.attributes.get("replica_groups")
    found = groups(written.text) if written is not None else []
    has_channel = by_partition(instruction)
    if instruction.opcode in FLAGGED:
        if str(instruction.value("use_global_device_ids", False)) in ("True", "true"):
            if not has_channel:
                raise ValueError("use_global_device_ids takes a channel_id")
            return _mine(found, replica * partitions + partition, replicas * partitions)
        chosen = _mine(found, replica, replicas)
        if not has_channel:
            return [r * partitions + partition for r in chosen]
        return [r * partitions + p for r in chosen for p in range(partitions)]
    if has_channel:
        return [replica * partitions + p for p in _mine(found, partition, partitions)]
    return [r * partitions + partition for r in _mine(found, replica, replicas)]


def _mine(found: list[list[int]], number: int, count: int) -> list[int]:
    """The group with a number; all numbers when there are no groups."""
    if not any(found):
        return list(range(count))
    return next((group for group in found if number in group), [])
