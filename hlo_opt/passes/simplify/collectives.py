"""Collectives among one device."""

from __future__ import annotations

from hlo_opt.ir import Instruction
from hlo_opt.passes.simplify.rule import rule
from hlo_opt.passes.simplify.site import Site


def _devices(i: Instruction) -> int:
    """How many devices run the module."""
    module = i.computation.module
    count = 1
    for name in ("replica_count", "num_partitions"):
        value = None if module is None else module.attributes.get(name)
        if value is not None and value.text.isdigit():
            count *= int(value.text)
    return count


def _is_alone(i: Instruction) -> bool:
    """Whether each device is in a group of its own: the module says so, and its groups have a device each."""
    groups = i.attributes.get("replica_groups")
    text = "" if groups is None else groups.text.replace(" ", "")
    single = text.startswith("{{") and "," not in text.replace("},{", "")
    if _devices(i) == 1:
        return text in ("", "{}", "{{0}}")
    return single and text.count("{") - 1 == _devices(i)


@rule(
    "collective-of-one",
    "all-reduce all-gather reduce-scatter collective-broadcast",
    "all-reduce, all-gather, reduce-scatter among one device = the operand",
    "nobody else brings anything",
)
def collective_of_one(i: Instruction, site: Site) -> Instruction | None:
    if len(i.operands) != 1 or not _is_alone(i) or not i.operands[0].shape.same_values(i.shape):
        return None
    return i.operands[0]
