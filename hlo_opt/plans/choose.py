"""The plan of a region, or the reason why kernels cannot have it."""

from __future__ import annotations

from typing import Any

from hlo_opt.diag import Reason
from hlo_opt.ir import Computation, Instruction, Shape
from hlo_opt.ops.lowering import Elementwise, compute_type
from hlo_opt.ops.spec import find
from hlo_opt.plans import loop, row_reduction
from hlo_opt.plans.limits import DEEPEST, LARGEST, nesting, values_computed
from hlo_opt.plans.plan import Plan, Region

LARGEST_CONSTANT = 1024
"""Elements of a constant that becomes a table in a kernel's code."""

_STRUCTURAL = frozenset({"parameter", "constant", "tuple", "get-tuple-element", "fusion", "call"})


def plan(region: Region, target: Any = None, *, lowered: bool = False) -> Plan | Reason:
    """How one kernel computes the region: a row reduction where that fits, else a loop; or why no kernel can. `lowered` says that the caller has asked
    for the `lowering_reason` of every instruction already."""
    for instruction in () if lowered else region.computation.instructions:
        reason = lowering_reason(instruction)
        if reason is not None:
            return reason
    for root in region.roots:
        if not all(leaf.is_array for leaf in root.shape.leaves()):
            return _no_lowering(root, root.shape)
    depth = nesting(region.computation)
    if depth > DEEPEST:
        return Reason.of("FUS305", depth=depth, limit=DEEPEST)
    values = values_computed(region)
    if values > LARGEST:
        return Reason.of("FUS306", values=values, limit=LARGEST)
    rows = row_reduction.match(region)
    if rows is not None:
        return rows
    if (
        region.instruction.opcode == "fusion"
    ):  # an operation with outputs of several sizes (random bits and the next state) cannot be split
        sizes = [leaf.element_count for leaf in region.outputs]
        for size in sizes:
            if size != sizes[0]:
                return Reason.of("FUS304", first=sizes[0], second=size)
    return loop.match(region, target)


def lowering_reason(instruction: Instruction) -> Reason | None:
    """Why kernels cannot compute this instruction, or None when they can. Cheap: looks at the instruction and what it calls, at nothing around it."""
    stack = [instruction]
    seen: set[Computation] = set()
    while stack:
        current = stack.pop()
        reason = _own_reason(current)
        if reason is not None:
            return reason
        for called in current.called():
            if called not in seen:
                seen.add(called)
                stack.extend(called.instructions)
    return None


def _own_reason(instruction: Instruction) -> Reason | None:
    structural = instruction.opcode in _STRUCTURAL
    if not structural:
        spec = find(instruction.opcode)
        if spec is None or (spec.cuda is None and not spec.has_expansion(instruction)):
            if spec is not None and spec.is_library:
                return Reason.of("FUS302", opcode=instruction.opcode)
            return _no_lowering(instruction, instruction.shape)
        if isinstance(spec.cuda, Elementwise) and spec.cuda.text_for(instruction) is None:
            by = spec.cuda.by
            return _no_lowering(
                instruction, instruction.shape if isinstance(by, str) else instruction.operands[by].shape
            )
    shapes = [instruction.shape] if structural else [instruction.shape, *(o.shape for o in instruction.operands)]
    for shape in shapes:
        for leaf in shape.leaves():
            if not leaf.is_array or compute_type(leaf.type) is None:
                return _no_lowering(instruction, leaf)
            if any(leaf.dynamic) or -1 in leaf.dimensions or (leaf.layout is not None and "T(" in leaf.layout.tail):
                return Reason.of("FUS307", shape=str(leaf))
    if instruction.opcode == "parameter" and instruction.shape.is_tuple:
        return _no_lowering(instruction, instruction.shape)
    return _constant_reason(instruction) if instruction.opcode == "constant" else None


def _constant_reason(instruction: Instruction) -> Reason | None:
    literal, elements = instruction.literal, instruction.shape.element_count
    if not instruction.shape.is_array or literal is None or literal.is_elided:
        return _no_lowering(instruction, instruction.shape)
    if elements > LARGEST_CONSTANT:
        return Reason.of("FUS303", elements=elements, limit=LARGEST_CONSTANT)
    return None


def _no_lowering(instruction: Instruction, shape: Shape) -> Reason:
    element_type = "tuple" if shape.is_tuple else shape.type.name
    return Reason.of("FUS301", element_type=element_type, opcode=instruction.opcode)
