"""Library calls of collectives; None where CuPy has none.

Each device runs an emitted driver in its own process. An exchange among all devices, with types and combiners of NCCL,
is one NCCL call. For others, each device gathers all devices' values and takes its group's. On one GPU, a module for
several devices runs as the first of them alone: values from other devices are zero (ops/collective/meaning.py).
"""

from __future__ import annotations

from hlo_opt.ir import Instruction, Shape
from hlo_opt.ops.calls.call import DeviceCall, as_call, call_of, operand_leaves, plain
from hlo_opt.ops.collective.module_devices import by_partition, counts, exchanges, participants, source_target_pairs
from hlo_opt.ops.custom_calls.table import hands_on
from hlo_opt.ops.elementwise.functions import FUNCTIONS
from hlo_opt.ops.reduction.reducers import monoid
from hlo_opt.ops.spec import LibraryCall

_COMBINERS = {"add": "sum", "multiply": "prod", "maximum": "max", "minimum": "min"}
_FOLDS = frozenset({*_COMBINERS, "and", "or"})
_TYPES = frozenset({"bf16", "f16", "f32", "f64", "s8", "u8", "s32", "u32", "s64", "u64"})
_KINDS = {"all-reduce": "all_reduce", "reduce-scatter": "reduce_scatter", "all-gather": "all_gather"}
_MOST = 1024
"""The most devices whose groups are written into a driver."""

Groups = tuple[tuple[int, ...], ...]


def device_call(instruction: Instruction) -> DeviceCall | None:
    """The library call for an instruction on one GPU; None where there is none."""
    if not exchanges(instruction):
        return call_of(instruction)
    call = alone(instruction)
    return None if call is None else as_call(instruction, call)


def alone(instruction: Instruction) -> LibraryCall | None:
    """A collective on a device alone: its own operands, cut or zero-padded to the result's shape."""
    operands, results = operand_leaves(instruction), list(instruction.shape.leaves())
    if len(operands) != len(results) or any(
        not m.is_array or g.type != m.type or g.rank != m.rank for g, m in zip(operands, results, strict=True)
    ):
        return None
    count = len(operands)
    return "alone_call", (count, tuple(range(count)) if _hears_itself(instruction) else (None,) * count), "cupy"


def _hears_itself(instruction: Instruction) -> bool:
    return "source_target_pairs" not in instruction.attributes or (0, 0) in source_target_pairs(instruction)


def forwards(instruction: Instruction) -> bool:
    """Whether the results are the operands' own arrays: a tuple copy, a custom call that only marks its operand, a
    collective for one device."""
    operands, results = operand_leaves(instruction), list(instruction.shape.leaves())
    is_copy = instruction.opcode == "copy" and instruction.shape.is_tuple
    is_mark = instruction.opcode == "custom-call" and hands_on(instruction)
    is_alone = exchanges(instruction) and _is_alone(instruction) and _hears_itself(instruction)
    if not (is_copy or is_mark or is_alone) or len(operands) != len(results):
        return False
    if instruction.opcode == "all-reduce":
        return True  # XLA accepts another result type here, and on XLA:CPU the result has the operand's
    pairs = zip(operands, results, strict=True)
    return all(g.is_array and g.type == m.type and g.dimensions == m.dimensions for g, m in pairs)


def _is_alone(instruction: Instruction) -> bool:
    module = instruction.computation.module
    return module is not None and counts(module) == (1, 1)


def exchange(instruction: Instruction) -> LibraryCall | None:
    """The call that exchanges a collective's values in a driver; None for more than `_MOST` devices or a reduction that
    CuPy lacks.

    Raises KeyError, ShapeError or ValueError for malformed groups.
    """
    kind, module = instruction.opcode, instruction.computation.module
    if module is None or _is_alone(instruction):
        return None if module is None else alone(instruction)
    replicas, partitions = counts(module)
    devices = replicas * partitions
    operands, results = [o.shape for o in instruction.operands], list(instruction.shape.leaves())
    if devices > _MOST or len(operands) != len(results) or not all(s.is_array for s in (*operands, *results)):
        return None
    is_sent, reduces = "source_target_pairs" in instruction.attributes, "to_apply" in instruction.attributes
    groups = (_pairs if is_sent else _groups)(instruction, replicas, partitions)
    along = (instruction.ints("dimensions") or (0,))[0]
    operation = monoid(instruction.called_by("to_apply")) or "" if reduces else ""
    if kind in _KINDS and groups == (tuple(range(devices)),) and all(s.type.name in _TYPES for s in operands):
        combine = _COMBINERS.get(operation, "")
        if combine or not reduces:
            return "exchange_call", (kind, combine, along, devices), f"cupyx.distributed {_KINDS[kind]}"
    if reduces and not (operation in _FOLDS and all(_folded(s, operation) for s in operands)):
        return None
    is_whole = kind == "all-to-all" and instruction.shape.is_tuple
    combine = "whole" if is_whole else FUNCTIONS[operation] if reduces else ""
    if not all(_fits(kind, combine, along, groups, devices, *pair) for pair in zip(operands, results, strict=True)):
        return None
    if is_whole and any(len(group) != len(operands) for group in groups):
        return None
    return "group_exchange_call", (kind, combine, along, devices, groups), "cupyx.distributed all_gather"


def _groups(instruction: Instruction, replicas: int, partitions: int) -> Groups:
    """The groups of devices that exchange values with each other."""
    by_device: dict[int, tuple[int, ...]] = {}
    for device in range(replicas * partitions):
        if device not in by_device:
            group = tuple(participants(instruction, *divmod(device, partitions), replicas, partitions))
            if len(set(group)) < len(group) or any(d in by_device or not 0 <= d < replicas * partitions for d in group):
                raise ValueError("groups that share devices, or name devices that there are not")
            by_device.update(dict.fromkeys(group, group))
    return tuple(dict.fromkeys(by_device.values()))


def _pairs(instruction: Instruction, replicas: int, partitions: int) -> Groups:
    """(source, target) of each transfer of a permute, as device numbers; devices that do not exist send nothing."""
    across = by_partition(instruction)
    count = partitions if across else replicas
    sent: dict[int, int] = {}
    for source, target in source_target_pairs(instruction):
        sent.setdefault(target, source)
    pairs = [(source, target) for target, source in sent.items() if source < count and target < count]
    if across:
        return tuple((r * partitions + s, r * partitions + t) for r in range(replicas) for s, t in pairs)
    return tuple((s * partitions + p, t * partitions + p) for p in range(partitions) for s, t in pairs)


def _fits(kind: str, combine: str, along: int, groups: Groups, devices: int, operands: Shape, results: Shape) -> bool:
    """Whether the result has the shape that the exchange returns, on every device."""
    if operands.type != results.type or operands.rank != results.rank:
        return False
    if kind not in ("all-gather", "reduce-scatter", "all-to-all"):
        return operands.dimensions == results.dimensions
    sizes = {len(group) for group in groups}
    if len(sizes) != 1 or sum(map(len, groups)) != devices:
        return False
    (size,) = sizes
    wanted = list(operands.dimensions)
    if kind == "all-gather":
        wanted[along] *= size
    elif combine != "whole":
        if wanted[along] % size:
            return False
        if kind == "reduce-scatter":
            wanted[along] //= size
    return tuple(wanted) == results.dimensions


def _folded(shape: Shape, operation: str) -> bool:
    t = shape.type
    if operation in ("and", "or"):
        return plain(shape) and (t.kind == "pred" or t.is_integer)
    return plain(shape) and t.kind != "pred" and not (t.is_complex and operation in ("maximum", "minimum"))
