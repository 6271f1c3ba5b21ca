"""Collectives that an emitted driver does with NCCL: those among all devices of the module, each of which runs the driver in a process of its own."""

from __future__ import annotations

from hlo_opt.evaluate.devices import counts
from hlo_opt.ir import ElementType, Instruction
from hlo_opt.ops.reducers import monoid
from hlo_opt.ops.replica_groups import participants
from hlo_opt.runtime.calls import DeviceCall, call_of
from hlo_opt.runtime.calls_library import described

_COMBINERS = {"add": "sum", "multiply": "prod", "maximum": "max", "minimum": "min"}
_TYPES = frozenset({"bf16", "f16", "f32", "f64", "s8", "u8", "s32", "u32", "s64", "u64"})
_KINDS = {"all-reduce": "all_reduce", "reduce-scatter": "reduce_scatter", "all-gather": "all_gather"}


def driver_call(instruction: Instruction) -> DeviceCall | None:
    """How a driver computes an instruction, or None where it cannot."""
    return call_of(instruction) or exchange_of(instruction)


def exchange_of(instruction: Instruction) -> DeviceCall | None:
    """How a driver exchanges what a collective does; None for other instructions, and for collectives in groups of fewer devices than all or of types that NCCL lacks."""
    computation = instruction.parent
    if instruction.opcode not in _KINDS or computation is None or computation.module is None:
        return None
    replicas, partitions = counts(computation.module)
    try:
        group = participants(instruction, 0, 0, replicas, partitions)
    except ValueError:
        return None
    shapes = [*(o.shape for o in instruction.operands), *instruction.shape.leaves()]
    combine = ""
    if instruction.opcode != "all-gather":
        combine = _COMBINERS.get(monoid(instruction.called_by("to_apply")) or "", "")
        if not combine:
            return None
    if group != list(range(replicas * partitions)) or not all(s.is_array and _moved(s.type) for s in shapes):
        return None
    along = instruction.ints("dimensions")[0] if instruction.opcode != "all-reduce" else 0
    arguments = (instruction.opcode, combine, along, len(group))
    does = f"cupyx.distributed {_KINDS[instruction.opcode]}"
    return DeviceCall("exchange_call", tuple(map(described, shapes)), arguments, does)


def _moved(element_type: ElementType) -> bool:
    return element_type.name in _TYPES
