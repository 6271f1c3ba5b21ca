"""Which devices a module is for, and where they matter to it."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator

from hlo_opt.diag import DeviceWarning, EvaluationError
from hlo_opt.ir import Attribute, Instruction, Module, edit
from hlo_opt.ops.collective.replica_groups import counted_by, largest_named
from hlo_opt.ops.spec import OpKind, find

WHICH_DEVICE = frozenset({"partition-id", "replica-id"})
"""What gives each device its own number."""

MOST_NAMED = 64
"""Devices that a module may name without saying in its header that there are so many."""

MOST = 1024
"""More devices than this are refused: each takes a thread and its own copy of every value."""


def counts(module: Module) -> tuple[int, int]:
    """(replicas, partitions) of a module, from `replica_count` and `num_partitions` in its header."""
    return _count(module, "replica_count"), _count(module, "num_partitions")


def _count(module: Module, name: str) -> int:
    found = module.attributes.get(name)
    value = found.value if isinstance(found, Attribute) else 1
    return value if isinstance(value, int) and value > 0 else 1


def exchanges(instruction: Instruction) -> bool:
    """Whether devices meet in an instruction."""
    spec = find(instruction.opcode) or find(instruction.opcode.removesuffix("-start"))
    return spec is not None and spec.kind is OpKind.COLLECTIVE and not instruction.opcode.endswith("-done")


def depends_on_devices(module: Module) -> Instruction | None:
    """The first instruction whose value depends on what other devices send or on which device it is; None for a module in which every device runs by itself."""
    found = (i for i in _reached(module) if exchanges(i) or i.opcode in WHICH_DEVICE)
    return next(found, None)


def tells_devices_apart(module: Module) -> bool:
    """Whether the module asks which device it runs on."""
    return any(i.opcode in WHICH_DEVICE for i in _reached(module))


def _reached(module: Module) -> Iterator[Instruction]:
    """The instructions of the entry and of all that it calls."""
    todo, seen = [module.entry], {module.entry}
    for computation in todo:
        for instruction in computation.instructions:
            yield instruction
            for called in instruction.called():
                if called not in seen:
                    seen.add(called)
                    todo.append(called)


def named(module: Module) -> tuple[int, int]:
    """(replicas, partitions) that a module is for as its collectives tell: where the header says one device, groups and pairs may name more. Many texts have such a header, and leave it to whoever
    compiles them how many devices there are. What the header says where it says more than one, and where collectives name more than `MOST_NAMED` devices or cannot be
    read."""
    if counts(module) != (1, 1):
        return counts(module)
    replicas = partitions = devices = 1
    for instruction in _reached(module):
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
    partitions = max(partitions, -(-devices // replicas))
    return (replicas, partitions) if replicas * partitions <= MOST_NAMED else (1, 1)


def for_devices(module: Module, devices: tuple[int, int]) -> Module:
    """The module, or a copy of it whose header says so many replicas and partitions."""
    if counts(module) == devices:
        return module
    copy = edit.clone_module(module)
    for name, count in zip(("replica_count", "num_partitions"), devices, strict=True):
        copy.attributes[name] = Attribute.of(count)
    return copy


def warn_of_one_device(module: Module) -> None:
    """Warn (DeviceWarning) whoever runs only the first of several devices, where the others matter."""
    replicas, partitions = counts(module)
    first = depends_on_devices(module) if replicas * partitions > 1 else None
    if first is not None:
        alone = f"this runs the first of the module's {replicas * partitions} devices ({replicas} x {partitions}) alone"
        warnings.warn(
            f"HLO406 {alone}, which matters to {first.opcode} {first.name}; evaluate_devices, or run_devices of a compiled module, runs all",
            DeviceWarning,
            stacklevel=3,
        )


def check_devices(module: Module) -> int:
    """How many devices a module runs on. Raises EvaluationError (HLO402) for more than are simulated."""
    number = math.prod(counts(module))
    if number > MOST:
        raise EvaluationError(f"{number} devices are more than the {MOST} that are simulated", code="HLO402")
    return number
