"""XLA's requirements on an instruction beyond shapes and attribute forms.

Which attributes go together; which devices a collective may name, given their number; how its result is sized.

Source: xla/hlo/parser/hlo_parser.cc, CreateInstruction; xla/service/hlo_verifier.cc (CheckReplicaGroups,
GetSubgroupSize, CheckCommonAllGatherInvariants, HandleReduceScatter, HandleAllToAll, CheckDuplicatedSourceOrTarget).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from hlo_opt.ir import Instruction
from hlo_opt.ops import OpKind, find
from hlo_opt.ops.collective.module_devices import counted_by, groups, source_target_pairs
from hlo_opt.ops.shapes import compatible
from hlo_opt.text.aliases import operand_alias_fault
from hlo_opt.text.asynchronous import link
from hlo_opt.text.shapes import read_shapes

Fault = tuple[str, str]
"""A message, and the attribute at fault, or ""."""


def instruction_fault(instruction: Instruction) -> Fault | None:
    """The first broken rule of the instruction's opcode; None when there is none. Attribute forms are already
    checked."""
    if "parameter_replication" in instruction.attributes:
        fault = _replication(instruction)
        if fault is not None:
            return fault
    spec = find(instruction.opcode)
    if spec is None:
        return None
    if spec.kind is OpKind.COLLECTIVE:
        return _collective(instruction, spec.attributes)
    if "branch_computations" in spec.attributes:
        return _conditional(instruction)
    fault = _operand_layouts(instruction)
    aliasing = "output_to_operand_aliasing"
    if fault is None and link(instruction.opcode) is None and aliasing in instruction.attributes:
        wrong = operand_alias_fault(instruction)
        return None if wrong is None else (f"{aliasing}: {wrong}", aliasing)
    return fault


def _replication(instruction: Instruction) -> Fault | None:
    name = "parameter_replication"
    if instruction.parameter_number is None:
        return f"only a parameter can have {name}", name
    values = len(re.findall("true|false", instruction.attributes[name].text))
    leaves = sum(1 for _ in instruction.shape.leaves())
    return None if values == leaves else (f"{name} has {values} values for {leaves} arrays", name)


def _collective(instruction: Instruction, takes: Mapping[str, bool]) -> Fault | None:
    """Check the attributes of a collective against each other and against the operands."""
    by_device = "use_global_device_ids"  # GetCollectiveOpGroupMode (xla/hlo/ir/collective_op_group_mode.cc)
    if (
        by_device in takes
        and instruction.value(by_device, False) is True
        and "channel_id" not in instruction.attributes
    ):
        return f"{by_device}=true needs a channel_id", by_device
    if "dimensions" in takes:
        is_one = "dimensions" not in instruction.attributes or len(instruction.ints("dimensions")) == 1
        return None if is_one else ("expected one dimension", "dimensions")
    if "slice_sizes" not in takes:
        return _channel(instruction)
    is_fit = "slice_sizes" not in instruction.attributes or len(instruction.operands) == 4
    return None if is_fit else (f"{len(instruction.operands)} operands, but slice_sizes needs 4", "slice_sizes")


def _conditional(instruction: Instruction) -> Fault | None:
    """A predicate selects one of two computations, an integer one of a list."""
    index = instruction.operands[0].shape.element_type if instruction.operands else None
    names = (
        ("branch_computations",) if index is None or index.name != "pred" else ("true_computation", "false_computation")
    )
    for name in ("branch_computations", "true_computation", "false_computation"):
        if name in names and name not in instruction.attributes:
            return f"a conditional on {index} needs the attribute {name}", ""
        if name not in names and name in instruction.attributes:
            return f"a conditional on {index} has no attribute {name}", name
    return None


def _operand_layouts(instruction: Instruction) -> Fault | None:
    name = "operand_layout_constraints"
    if name in instruction.attributes:
        shapes = read_shapes(instruction.attributes[name].text)
        operands = instruction.operands
        if len(shapes) != len(operands):
            return f"{name} has {len(shapes)} shapes for {len(operands)} operands", name
        for number, (shape, operand) in enumerate(zip(shapes, operands, strict=True)):
            if not compatible(shape, operand.shape):
                return f"{name}: operand {number} is {operand.shape}, not {shape}", name
    return None


def _channel(instruction: Instruction) -> Fault | None:
    """A send-done or recv-done has the channel of its send or recv."""
    before = instruction.operands[0] if instruction.operands else None
    if before is None or before.opcode not in ("send", "recv"):
        return None
    ours, theirs = instruction.value("channel_id", -1), before.value("channel_id", -1)
    return None if ours == theirs else (f"its channel_id differs from that of {before.name}", "channel_id")


_UNEVEN = frozenset({"all-reduce", "all-reduce-start", "collective-broadcast"})
"""Collectives whose replica groups may differ in size."""


def group_fault(instruction: Instruction, replicas: int, partitions: int) -> Fault | None:
    """The first fault of a collective's devices, in a module of `replicas` and `partitions`; None when there is
    none."""
    spec, name = find(instruction.opcode), "replica_groups"
    if spec is None or spec.kind is not OpKind.COLLECTIVE:
        return None
    if "source_target_pairs" in spec.attributes:
        return _pairs(instruction)
    if name not in spec.attributes:
        return None
    written = instruction.attributes.get(name)
    device_groups = [] if written is None else groups(written.text)
    if not any(device_groups):
        return None
    members = sorted(member for group in device_groups for member in group)
    if not all(device_groups):
        return "a replica group is empty", name
    if members != list(range(len(members))):
        return f"replica_groups name {_strange(members)}", name
    if instruction.opcode not in _UNEVEN and len({len(group) for group in device_groups}) > 1:
        return "replica groups differ in size", name
    kind = counted_by(instruction)
    count = {"replicas": replicas, "partitions": partitions, "devices": replicas * partitions}[kind]
    if count not in (1, len(members)):
        return f"replica_groups name {len(members)} of {count} {kind}", name
    return _sizes(instruction, len(device_groups[0]), partitions)


def _strange(members: Iterable[int]) -> str:
    """The first duplicate of the sorted members, or the first missing number."""
    for expected, member in enumerate(members):
        if member != expected:
            return f"{member} twice" if member < expected else f"{member}, but not {expected}"
    return "nothing"


def _sizes(instruction: Instruction, members: int, partitions: int) -> Fault | None:
    """Check that the result has as many shards as a group has members."""
    opcode = instruction.opcode
    if opcode == "all-to-all" and "dimensions" not in instruction.attributes:
        count = len(instruction.operands)
        return None if count == members else (f"{count} operands for groups of {members}", "replica_groups")
    if opcode not in ("all-gather", "reduce-scatter"):
        return None
    if "channel_id" in instruction.attributes and instruction.value("use_global_device_ids", False) is not True:
        members *= partitions
    (along,) = instruction.ints("dimensions")
    small, large = instruction.operands[0].shape, next(iter(instruction.shape.leaves()))
    if opcode == "reduce-scatter":
        small, large = large, small
    if not (small.is_array and along < min(small.rank, large.rank)) or members == 1:
        return None
    a, b = small.dimensions[along], large.dimensions[along]
    if a < 0 or b < 0 or (a and -(-b // a) == members) or a == b == 0:
        return None
    return f"groups of {members} do not make {b} of {a}", "replica_groups"


def _pairs(instruction: Instruction) -> Fault | None:
    """Each device sends and receives at most once, unless `slice_sizes` moves several slices in place."""
    if len(instruction.operands) == 4 or "source_target_pairs" not in instruction.attributes:
        return None
    pairs = source_target_pairs(instruction)
    for what, numbers in (("source", [s for s, _ in pairs]), ("target", [t for _, t in pairs])):
        twice = sorted(n for n in set(numbers) if numbers.count(n) > 1)
        if twice:
            return f"{what} {twice[0]} is in two pairs", "source_target_pairs"
    return None
