"""Which devices a module is for, and where they matter to it."""

from __future__ import annotations

import math
import warnings

from hlo_opt.diag import DeviceWarning, EvaluationError
from hlo_opt.ir import Attribute, Instruction, Module
from hlo_opt.ops.spec import OpKind, find

WHICH_DEVICE = frozenset({"partition-id", "replica-id"})
"""What gives each device its own number."""

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
    todo, seen = [module.entry], {module.entry}
    for computation in todo:
        for instruction in computation.instructions:
            if exchanges(instruction) or instruction.opcode in WHICH_DEVICE:
                return instruction
            for called in instruction.called():
                if called not in seen:
                    seen.add(called)
                    todo.append(called)
    return None


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
