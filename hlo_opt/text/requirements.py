"""What XLA asks of an instruction beyond shapes and the forms of its attributes.

Source: xla/hlo/parser/hlo_parser.cc, CreateInstruction; xla/service/hlo_verifier.cc.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from hlo_opt.ir import Instruction
from hlo_opt.ops import OpKind, find
from hlo_opt.text.aliases import operand_alias_fault
from hlo_opt.text.asynchronous import link
from hlo_opt.text.shapes import compatible, read_shapes

Fault = tuple[str, str]
"""A message, and the attribute that it is about (or nothing)."""


def instruction_fault(instruction: Instruction) -> Fault | None:
    """What breaks a rule of the instruction's opcode; None when nothing does. Attributes have their forms by then."""
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
    return _operand_layouts(instruction) or (_aliasing(instruction) if link(instruction.opcode) is None else None)


def _replication(instruction: Instruction) -> Fault | None:
    name = "parameter_replication"
    if instruction.parameter_number is None:
        return f"only a parameter has {name}", name
    given = len(re.findall("true|false", instruction.attributes[name].text))
    leaves = sum(1 for _ in instruction.shape.leaves())
    return None if given == leaves else (f"{name} has {given} values for {leaves} arrays", name)


def _global_ids(instruction: Instruction) -> Fault | None:
    """GetCollectiveOpGroupMode (xla/hlo/ir/collective_op_group_mode.cc)."""
    if instruction.value("use_global_device_ids", False) is True and "channel_id" not in instruction.attributes:
        return "use_global_device_ids=true needs a channel_id", "use_global_device_ids"
    return None


def _one_dimension(instruction: Instruction) -> Fault | None:
    if "dimensions" in instruction.attributes and len(instruction.ints("dimensions")) != 1:
        return "expected one dimension", "dimensions"
    return None


def _collective(instruction: Instruction, takes: Mapping[str, bool]) -> Fault | None:
    """What each attribute that the opcode takes asks for."""
    if "use_global_device_ids" in takes and (fault := _global_ids(instruction)) is not None:
        return fault
    if "dimensions" in takes:
        return _one_dimension(instruction)
    return _permute(instruction) if "slice_sizes" in takes else _channel(instruction)


def _permute(instruction: Instruction) -> Fault | None:
    if "slice_sizes" in instruction.attributes and len(instruction.operands) != 4:
        return f"with slice_sizes it takes 4 operands, but has {len(instruction.operands)}", "slice_sizes"
    return None


def _conditional(instruction: Instruction) -> Fault | None:
    """A truth value chooses between two computations, a number among a list."""
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


def _aliasing(instruction: Instruction) -> Fault | None:
    name = "output_to_operand_aliasing"
    fault = operand_alias_fault(instruction) if name in instruction.attributes else None
    return None if fault is None else (f"{name}: {fault}", name)


def _channel(instruction: Instruction) -> Fault | None:
    """A done goes with the channel of what it waits for."""
    before = instruction.operands[0] if instruction.operands else None
    if before is None or before.opcode not in ("send", "recv"):
        return None
    ours, theirs = instruction.value("channel_id", -1), before.value("channel_id", -1)
    return None if ours == theirs else (f"its channel_id is not that of {before.name}", "channel_id")
