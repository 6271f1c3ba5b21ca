"""Which devices a collective names, against how many there are and how its result is sized.

Source: xla/service/hlo_verifier.cc (CheckReplicaGroups, GetSubgroupSize, CheckCommonAllGatherInvariants, HandleReduceScatter, HandleAllToAll,
CheckDuplicatedSourceOrTarget).
"""

from __future__ import annotations

from collections.abc import Iterable

from hlo_opt.ir import Instruction
from hlo_opt.ops import OpKind, find
from hlo_opt.ops.collective.replica_groups import FLAGGED, groups, source_target_pairs
from hlo_opt.text.requirements import Fault

_UNEVEN = frozenset({"all-reduce", "all-reduce-start", "collective-broadcast"})
"""Where groups may differ in size."""


def group_fault(instruction: Instruction, replicas: int, partitions: int) -> Fault | None:
    """What is wrong with the devices that a collective names, in a module for so many replicas and partitions; None when nothing is."""
    spec, name = find(instruction.opcode), "replica_groups"
    if spec is None or spec.kind is not OpKind.COLLECTIVE:
        return None
    if "source_target_pairs" in spec.attributes:
        return _pairs(instruction)
    if name not in spec.attributes:
        return None
    written = instruction.attributes.get(name)
    found = [] if written is None else groups(written.text)
    if not any(found):
        return None
    members = sorted(member for group in found for member in group)
    if not all(found):
        return "a replica group is empty", name
    if members != list(range(len(members))):
        return f"replica_groups name {_strange(members)}", name
    if instruction.opcode not in _UNEVEN and len({len(group) for group in found}) > 1:
        return "replica groups differ in size", name
    kind, count = _devices(instruction, replicas, partitions)
    if count not in (1, len(members)):
        return f"replica_groups name {len(members)} of {count} {kind}", name
    return _sizes(instruction, len(found[0]), partitions)


def _strange(members: Iterable[int]) -> str:
    """The first of the sorted members that is twice there, or the first number that is missing."""
    for expected, member in enumerate(members):
        if member != expected:
            return f"{member} twice" if member < expected else f"{member}, but not {expected}"
    return "nothing"


def _devices(instruction: Instruction, replicas: int, partitions: int) -> tuple[str, int]:
    """What the groups count, and how many of it there are (GetCollectiveOpGroupMode)."""
    has_channel = "channel_id" in instruction.attributes
    if instruction.opcode in FLAGGED:
        if has_channel and instruction.value("use_global_device_ids", False) is True:
            return "devices", replicas * partitions
        return "replicas", replicas
    return ("partitions", partitions) if has_channel else ("replicas", replicas)


def _sizes(instruction: Instruction, members: int, partitions: int) -> Fault | None:
    """The result has as many shards as a group has members."""
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
    """A device sends to one device and receives from one, unless several arrays are moved in place."""
    if len(instruction.operands) == 4 or "source_target_pairs" not in instruction.attributes:
        return None
    pairs = source_target_pairs(instruction)
    for what, numbers in (("source", [s for s, _ in pairs]), ("target", [t for _, t in pairs])):
        twice = sorted(n for n in set(numbers) if numbers.count(n) > 1)
        if twice:
            return f"{what} {twice[0]} stands in two pairs", "source_target_pairs"
    return None
