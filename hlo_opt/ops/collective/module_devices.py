"""The devices of a module, and which of them take part in a collective: replica groups in every spelling and mode.

A device is (replica, partition); its number is replica * partitions + partition.
Source: xla/service/collective_ops_utils.cc (GetCollectiveOpGroupMode, GetParticipatingDevicesGroups) and
xla/hlo/ir/collective_device_list.cc.
"""

from __future__ import annotations

import itertools
import math
import re
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

from hlo_opt.diag import DeviceWarning, EvaluationError
from hlo_opt.ir import Attribute, Instruction, Module, edit
from hlo_opt.ops.spec import OpKind, find

_IOTA = re.compile(r"\[([\d,\s]+)\]\s*<=\s*\[([\d,\s]+)\]\s*(?:T\(([\d,\s]+)\))?")
_MESH = re.compile(r"mesh\s*\[([^\]]*)\]\s*(?:,\s*device_ids=\s*\(([^()]*(?:\([^()]*\))?[^()]*)\))?\s*\{([^}]*)\}")
_AXIS = re.compile(r"'([^']*)'\s*=\s*(\d+)")
_PART = re.compile(r"'([^']*)'\s*(?::\s*\((\d+)\)\s*(\d+))?")
_TRANSPOSED = re.compile(r"\[([\d,\s]+)\]\s*(?:T\(([\d,\s]+)\))?")
_GROUP = re.compile(r"\{([\d\s,]*)\}")
_PAIR = re.compile(r"\{\s*(\d+)\s*,\s*(\d+)\s*\}")

FLAGGED = frozenset({"all-reduce", "all-gather", "reduce-scatter", "all-reduce-start", "all-gather-start"})
"""Collectives that take `use_global_device_ids`."""

_MOST_MEMBERS = 1 << 20
"""The most members of all groups; a text with more is refused."""


def groups(text: str) -> list[list[int]]:
    """Parse `replica_groups`: a list, a reshaped and transposed iota, or axes of a mesh. Empty means one group of all
    devices.

    Raises ValueError for any other text.
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
        return _of_mesh(mesh[1], mesh[2], mesh[3], text)
    raise ValueError(f"replica_groups={text[:100]} has an unknown form")


def _of_mesh(axes: str, order: str | None, chosen: str, text: str) -> list[list[int]]:
    """Groups along axes of a mesh, or along sub-axes: `'x':(2)4` has size 4 and follows a sub-axis of size 2. `order`
    places the devices."""
    sizes = {name: int(size) for name, size in _AXIS.findall(axes)}
    parts = [(name, int(before or 1), int(size or sizes.get(name, 0))) for name, before, size in _PART.findall(chosen)]
    _bounded(math.prod(sizes.values()))
    cuts = {name: sorted({1, size}) for name, size in sizes.items()}
    for name, before, size in parts:
        if name not in sizes or not size or sizes[name] % (before * size):
            raise ValueError(f"replica_groups={text[:100]} names axes that the mesh lacks")
        cuts[name] = sorted({*cuts[name], before, before * size})
    pieces = [(name, low, high) for name, own in cuts.items() for low, high in itertools.pairwise(own)]
    if any(high % low for _, low, high in pieces):
        raise ValueError(f"replica_groups={text[:100]} splits an axis into parts that do not fit")
    group = [
        pieces.index((name, low, high))
        for name, before, size in parts
        for own, low, high in pieces
        if own == name and before <= low < before * size
    ]
    if len(set(group)) < len(group):
        raise ValueError(f"replica_groups={text[:100]} names an axis twice")
    kept = [k for k in range(len(pieces)) if k not in group]
    devices = _placed(order, math.prod(sizes.values())).reshape([high // low for _, low, high in pieces])
    return _listed(devices.transpose([*kept, *group]), math.prod(devices.shape[k] for k in kept))


def _placed(order: str | None, count: int) -> Any:
    """The devices of a mesh in order of position: 0, 1, .., a transposed iota `[2,2]T(1,0)`, or as listed."""
    if order is None:
        return np.arange(count)
    iota = _TRANSPOSED.fullmatch(order.strip())
    if iota is None:
        return np.array(_numbers(order))
    shape = _numbers(iota[1])
    _bounded(math.prod(shape))
    return np.arange(math.prod(shape)).reshape(shape).transpose(_numbers(iota[2]) if iota[2] else None).reshape(-1)


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",") if part.strip()]


def _bounded(count: int) -> None:
    if count > _MOST_MEMBERS:
        raise ValueError(f"replica_groups name {count} devices")


def _listed(devices: Any, count: int) -> list[list[int]]:
    return [[int(device) for device in row] for row in devices.reshape(count, -1)]


def source_target_pairs(instruction: Instruction) -> list[tuple[int, int]]:
    """The pairs of a collective-permute."""
    pairs = _PAIR.findall(instruction.attributes["source_target_pairs"].text)
    return [(int(source), int(target)) for source, target in pairs]


def by_partition(instruction: Instruction) -> bool:
    """Whether a collective without `use_global_device_ids` counts partitions: it does if it has a channel."""
    return "channel_id" in instruction.attributes


def counted_by(instruction: Instruction) -> str:
    """What the numbers in a collective's groups or pairs denote: `replicas`, `partitions` or `devices`
    (GetCollectiveOpGroupMode)."""
    if instruction.opcode not in FLAGGED:
        return "partitions" if by_partition(instruction) else "replicas"
    return "devices" if _is_global(instruction) else "replicas"


def largest_named(instruction: Instruction) -> int:
    """The largest number in a collective's groups or pairs; -1 for none. Raises ValueError for a malformed text."""
    if "source_target_pairs" in instruction.attributes:
        return max((number for pair in source_target_pairs(instruction) for number in pair), default=-1)
    written = instruction.attributes.get("replica_groups")
    return max((n for group in groups(written.text) for n in group), default=-1) if written is not None else -1


def _is_global(instruction: Instruction) -> bool:
    return str(instruction.value("use_global_device_ids", False)) in ("True", "true")


def participants(instruction: Instruction, replica: int, partition: int, replicas: int, partitions: int) -> list[int]:
    """The device numbers of a device's group, in group order; empty when it is in none.

    Groups may name devices that do not exist. Raises ValueError for a mode that XLA refuses.
    """
    written = instruction.attributes.get("replica_groups")
    device_groups = groups(written.text) if written is not None else []
    has_channel = by_partition(instruction)
    if instruction.opcode in FLAGGED:
        if _is_global(instruction):
            if not has_channel:
                raise ValueError("use_global_device_ids needs a channel_id")
            return _mine(device_groups, replica * partitions + partition, replicas * partitions)
        chosen = _mine(device_groups, replica, replicas)
        if not has_channel:
            return [r * partitions + partition for r in chosen]
        return [r * partitions + p for r in chosen for p in range(partitions)]
    if has_channel:
        return [replica * partitions + p for p in _mine(device_groups, partition, partitions)]
    return [r * partitions + partition for r in _mine(device_groups, replica, replicas)]


def _mine(device_groups: list[list[int]], number: int, count: int) -> list[int]:
    """The group that contains a number; all numbers when there are no groups."""
    if not any(device_groups):
        return list(range(count))
    return next((group for group in device_groups if number in group), [])


WHICH_DEVICE = frozenset({"partition-id", "replica-id"})
"""Opcodes that return a device's own number."""

MOST_NAMED = 64
"""The most devices that collectives may imply where the header does not declare several."""

MOST = 1024
"""The most simulated devices: each takes a thread and its own copy of every value."""


def counts(module: Module) -> tuple[int, int]:
    """(replicas, partitions) of a module: `replica_count` and `num_partitions` in its header."""
    return _count(module, "replica_count"), _count(module, "num_partitions")


def _count(module: Module, name: str) -> int:
    attribute = module.attributes.get(name)
    value = attribute.value if isinstance(attribute, Attribute) else 1
    return value if isinstance(value, int) and value > 0 else 1


def exchanges(instruction: Instruction) -> bool:
    """Whether devices exchange values in an instruction."""
    spec = find(instruction.opcode) or find(instruction.opcode.removesuffix("-start"))
    return spec is not None and spec.kind is OpKind.COLLECTIVE and not instruction.opcode.endswith("-done")


def depends_on_devices(module: Module) -> Instruction | None:
    """The first instruction whose value depends on other devices or on the device's number; None where devices are
    independent."""
    dependent = (i for i in _reached(module) if exchanges(i) or i.opcode in WHICH_DEVICE)
    return next(dependent, None)


def tells_devices_apart(module: Module) -> bool:
    """Whether the module reads the number of its device."""
    return any(i.opcode in WHICH_DEVICE for i in _reached(module))


def _reached(module: Module) -> Iterator[Instruction]:
    """The instructions of the entry and of all computations it calls."""
    todo, seen = [module.entry], {module.entry}
    for computation in todo:
        for instruction in computation.instructions:
            yield instruction
            for called in instruction.called():
                if called not in seen:
                    seen.add(called)
                    todo.append(called)


def named(module: Module) -> tuple[int, int]:
    """(replicas, partitions) that a module needs, judging by its collectives where the header declares one device.

    Many dumps have such a header and leave the count to the compiler, while groups and pairs name more devices. What
    numbers devices through replicas and partitions counts partitions, unless the module asks for its replica and not
    for its partition. Returns the header's counts where they exceed one device, and (1, 1) where collectives imply more
    than `MOST_NAMED` devices or cannot be read.
    """
    if counts(module) != (1, 1):
        return counts(module)
    replicas = partitions = devices = 1
    asked = set()
    for instruction in _reached(module):
        if instruction.opcode in WHICH_DEVICE:
            asked.add(instruction.opcode)
        if not exchanges(instruction):
            continue
        try:
            most, kind = 1 + largest_named(instruction), counted_by(instruction)
        except (KeyError, ValueError):
            return 1, 1
        if kind == "replicas":
            replicas = max(replicas, most)
        elif kind == "partitions":
            partitions = max(partitions, most)
        else:
            devices = max(devices, most)
    if asked == {"replica-id"}:
        replicas = max(replicas, -(-devices // partitions))
    partitions = max(partitions, -(-devices // replicas))
    return (replicas, partitions) if replicas * partitions <= MOST_NAMED else (1, 1)


def for_devices(module: Module, devices: tuple[int, int]) -> Module:
    """The module, or a copy with these replica and partition counts in its header."""
    if counts(module) == devices:
        return module
    copy = edit.clone_module(module)
    for name, count in zip(("replica_count", "num_partitions"), devices, strict=True):
        copy.attributes[name] = Attribute.of(count)
    return copy


def warn_of_one_device(module: Module) -> None:
    """Emit a DeviceWarning where only the first of several devices runs although the others matter."""
    replicas, partitions = counts(module)
    first = depends_on_devices(module) if replicas * partitions > 1 else None
    if first is not None:
        alone = f"this runs the first of the module's {replicas * partitions} devices ({replicas} x {partitions}) alone"
        warnings.warn(
            f"HLO406 {alone}, which matters to {first.opcode} {first.name}; evaluate_devices, or run_devices "
            "of a compiled module, runs all",
            DeviceWarning,
            stacklevel=3,
        )


def check_devices(module: Module) -> int:
    """The number of devices of a module. Raises EvaluationError (HLO402) for more than `MOST`."""
    number = math.prod(counts(module))
    if number > MOST:
        raise EvaluationError(f"{number} devices are more than the {MOST} that are simulated", code="HLO402")
    return number
