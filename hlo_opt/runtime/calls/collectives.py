"""Collectives that an emitted driver does with NCCL: each device of the module runs the driver in a process of its own.

Those among all devices, of types and with combiners that NCCL has, are one call. For all others every device hears what every other one has, and takes
what its group sends it.
"""

from __future__ import annotations

from hlo_opt.ir import ElementType, Instruction, Shape
from hlo_opt.ops.collective.module_devices import counts
from hlo_opt.ops.collective.replica_groups import by_partition, participants, source_target_pairs
from hlo_opt.ops.reduction.reducers import monoid
from hlo_opt.ops.spec import ShapeError
from hlo_opt.runtime.calls.library import described, is_alone, plain
from hlo_opt.runtime.calls.one_device import alone_call
from hlo_opt.runtime.calls.table import DeviceCall, call_of

_COMBINERS = {"add": "sum", "multiply": "prod", "maximum": "max", "minimum": "min"}
_FOLDS = {"add": "add", "multiply": "multiply", "maximum": "maximum", "minimum": "minimum", "and": "bitwise_and"}
_FOLDS |= {"or": "bitwise_or"}
_TYPES = frozenset({"bf16", "f16", "f32", "f64", "s8", "u8", "s32", "u32", "s64", "u64"})
_KINDS = {"all-reduce": "all_reduce", "reduce-scatter": "reduce_scatter", "all-gather": "all_gather"}
_REDUCING = ("all-reduce", "reduce-scatter")
_GROUPED = frozenset({*_KINDS, "all-to-all", "collective-broadcast", "collective-permute"})
_MOST = 1024
"""Devices whose groups are written into a driver."""

Groups = tuple[tuple[int, ...], ...]


def driver_call(instruction: Instruction) -> DeviceCall | None:
    """How a driver computes an instruction, or None where it cannot."""
    made = call_of(instruction)
    if made is None and is_alone(instruction):
        made = alone_call(instruction)
    return made or exchange_of(instruction)


def exchange_of(instruction: Instruction) -> DeviceCall | None:
    """How a driver exchanges what a collective does; None for other instructions, for more devices than a driver lists, and for what has no fold in CuPy."""
    kind = instruction.opcode
    computation = instruction.parent
    if kind not in _GROUPED or computation is None or computation.module is None:
        return None
    replicas, partitions = counts(computation.module)
    devices = replicas * partitions
    given, made = [o.shape for o in instruction.operands], list(instruction.shape.leaves())
    if devices > _MOST or len(given) != len(made) or not all(s.is_array for s in (*given, *made)):
        return None
    try:
        groups = _pairs(instruction, replicas, partitions) if "permute" in kind else _groups(instruction)
    except (KeyError, ShapeError, ValueError):
        return None
    along = (instruction.ints("dimensions") or (0,))[0]
    operation = monoid(instruction.called_by("to_apply")) or "" if kind in _REDUCING else ""
    shapes = tuple(map(described, (*given, *made)))
    if kind in _KINDS and groups == (tuple(range(devices)),) and all(_moved(s.type) for s in given):
        combine = _COMBINERS.get(operation, "")
        if combine or kind not in _REDUCING:
            how = (kind, combine, along, devices)
            return DeviceCall("exchange_call", shapes, how, f"cupyx.distributed {_KINDS[kind]}")
    combine = _FOLDS.get(operation, "")
    if kind in _REDUCING and (not combine or not all(_folded(s, operation) for s in given)):
        return None
    if kind == "all-to-all" and instruction.shape.is_tuple:
        combine = "whole"
    if not all(_fits(kind, combine, along, groups, devices, *pair) for pair in zip(given, made, strict=True)):
        return None
    if combine == "whole" and any(len(group) != len(given) for group in groups):
        return None
    arguments = (kind, combine, along, devices, groups)
    return DeviceCall("group_exchange_call", shapes, arguments, "cupyx.distributed all_gather")


def _groups(instruction: Instruction) -> Groups:
    """The groups of devices that exchange among each other."""
    module = instruction.computation.module
    assert module is not None
    replicas, partitions = counts(module)
    found: dict[int, tuple[int, ...]] = {}
    for device in range(replicas * partitions):
        if device not in found:
            group = tuple(participants(instruction, *divmod(device, partitions), replicas, partitions))
            if len(set(group)) < len(group) or any(d in found or not 0 <= d < replicas * partitions for d in group):
                raise ValueError("groups that share devices, or name devices that there are not")
            found.update(dict.fromkeys(group, group))
    return tuple(dict.fromkeys(found.values()))


def _pairs(instruction: Instruction, replicas: int, partitions: int) -> Groups:
    """(source, target) of each transfer of a permutation. Who is not there sends nothing."""
    across = by_partition(instruction)
    count = partitions if across else replicas
    sent: dict[int, int] = {}
    for source, target in source_target_pairs(instruction):
        sent.setdefault(target, source)
    pairs = [(source, target) for target, source in sent.items() if source < count and target < count]
    if across:
        return tuple((r * partitions + s, r * partitions + t) for r in range(replicas) for s, t in pairs)
    return tuple((s * partitions + p, t * partitions + p) for p in range(partitions) for s, t in pairs)


def _fits(kind: str, combine: str, along: int, groups: Groups, devices: int, given: Shape, made: Shape) -> bool:
    """Whether a result has the shape that the exchange gives, on every device."""
    if given.type != made.type or given.rank != made.rank:
        return False
    if kind not in ("all-gather", "reduce-scatter", "all-to-all"):
        return given.dimensions == made.dimensions
    sizes = {len(group) for group in groups}
    if len(sizes) != 1 or sum(map(len, groups)) != devices:
        return False
    (size,) = sizes
    wanted = list(given.dimensions)
    if kind == "all-gather":
        wanted[along] *= size
    elif combine != "whole":
        if wanted[along] % size:
            return False
        if kind == "reduce-scatter":
            wanted[along] //= size
    return tuple(wanted) == made.dimensions


def _folded(shape: Shape, operation: str) -> bool:
    t = shape.type
    if operation in ("and", "or"):
        return plain(shape) and (t.kind == "pred" or t.is_integer)
    return plain(shape) and t.kind != "pred" and not (t.is_complex and operation in ("maximum", "minimum"))


def _moved(element_type: ElementType) -> bool:
    return element_type.name in _TYPES
