"""Small facts about single instructions that legality, policy and the cost model share."""

from __future__ import annotations

from hlo_opt.ir import Computation, Instruction, Shape
from hlo_opt.ops import OpKind, find
from hlo_opt.ops.call_config import field
from hlo_opt.ops.custom_calls.opaque import says_side_effect
from hlo_opt.text.chains import base_opcode

GENERIC_TRITON = "__triton"


def is_free(opcode: str) -> bool:
    """Whether operations of an opcode launch no work of their own."""
    spec = find(opcode)
    return spec is not None and spec.is_free


def is_identity(opcode: str) -> bool:
    """Whether operations of an opcode are their first operand as it is, such as a barrier."""
    spec = find(opcode)
    return spec is not None and spec.is_identity


def launches(instruction: Instruction) -> bool:
    """Whether the instruction launches work: a kernel or a library call."""
    return not is_free(instruction.opcode) and not instruction.opcode.endswith("-done")


def has_side_effect(instruction: Instruction) -> bool:
    """Whether the instruction itself does more than give its value (called computations are not looked into). What an asynchronous operation does happens
    when it is started, and nobody knows what an operation does that the op table does not have."""
    opcode = instruction.opcode
    spec = find(opcode)
    if spec is None:
        base = base_opcode(opcode)
        if base is None or not opcode.endswith("-start"):
            return base is None
        opcode, spec = base, find(base)
    if opcode == "custom-call":
        return says_side_effect(instruction)
    return spec is not None and spec.side_effects


def elsewhere(computation: Computation) -> bool:
    """Whether a computation runs on another thread than its caller's: a call of it is more than its body."""
    thread = computation.attributes.get("execution_thread")
    return thread is not None and thread.text.strip('"') != "main"


def effectful_computations(computations: list[Computation]) -> set[Computation]:
    """The computations that hold a side effect, their own or that of one that they call; callees first in the list."""
    found: set[Computation] = set()
    changed = True
    while changed:  # one round when callees come first
        changed = False
        for computation in computations:
            if computation in found:
                continue
            if any(has_side_effect(i) for i in computation.instructions) or (
                found and not found.isdisjoint(computation.called)
            ):
                found.add(computation)
                changed = True
    return found


def is_elementwise(instruction: Instruction, operand: int | None = None) -> bool:
    """Whether each output element reads the operand elements at its own index only (HloInstruction::IsElementwise).

    Source: xla/hlo/ir/hlo_instruction.cc. A dynamic-update-slice is elementwise in its first operand, a bitcast-convert when widths match, a
    fusion when all that it holds is.
    """
    spec = find(instruction.opcode)
    if spec is None:
        return False
    if spec.aligned is not None:
        return spec.aligned(instruction, operand)
    if spec.kind is OpKind.ELEMENTWISE:
        return bool(instruction.operands)
    if instruction.opcode == "fusion":
        members = instruction.called_by("calls").instructions
        return all(i.parameter_number is not None or is_elementwise(i) for i in members)
    return False


def reuses_elements(instruction: Instruction, operand: int) -> bool:
    """Whether an element of the operand may be read for more than one output element (OperandElementUse::kReuse)."""
    spec = find(instruction.opcode)
    if spec is not None and spec.reuses is not None:
        return spec.reuses(instruction, operand)
    if instruction.opcode == "fusion":
        return fusion_reuses_elements(instruction, operand)
    return not is_elementwise(instruction)


def fusion_reuses_elements(fusion: Instruction, operand: int) -> bool:
    """As `reuses_elements`, for a parameter of a fusion: some path from the parameter to the root reuses, or two paths meet it.

    Source: xla/hlo/ir/hlo_instructions.cc, FusionReusesParamElements.
    """
    body = fusion.called_by("calls")
    parameter = next(p for p in body.parameters if p.parameter_number == operand)
    todo, seen = [parameter], {parameter}
    while todo:
        instruction = todo.pop()
        for user in instruction.users:
            for position, used in enumerate(user.operands):
                if used is instruction and reuses_elements(user, position):
                    return True
            if user not in seen:
                seen.add(user)
                todo.append(user)
    return False


def is_effectively_scalar(shape: Shape) -> bool:
    """One element, whatever the rank."""
    return shape.is_array and shape.element_count == 1


def true_rank(shape: Shape) -> int:
    """The number of dimensions larger than one."""
    return sum(size > 1 for size in shape.dimensions)


def fusion_backend_kind(instruction: Instruction) -> str:
    """The kind in a fusion's backend config (`__triton`, `__triton_gemm`, `__cudnn$fusion`, ...); empty when there is none."""
    return field(instruction, "fusion_backend_config", "kind") or ""


def is_generic_triton(instruction: Instruction) -> bool:
    """Whether a fusion is a tiled kernel that more may be fused into (xla/service/gpu/ir_emission_utils.h, IsGenericTritonFusion)."""
    return instruction.opcode == "fusion" and fusion_backend_kind(instruction) == GENERIC_TRITON


def names_library(fusion: Instruction) -> bool:
    """Whether the configuration of a fusion names a kernel of a library."""
    kind = fusion.attributes.get("kind")
    return kind is not None and kind.text == "kCustom" and fusion_backend_kind(fusion) not in ("", GENERIC_TRITON)


def is_boundary_fusion(instruction: Instruction) -> bool:
    """Whether a fusion stands for a library call (cuDNN, a Triton matrix product, a custom kernel) and must stay as it is."""
    if instruction.opcode != "fusion":
        return False
    return instruction.word("kind") == "kCustom" and fusion_backend_kind(instruction) != GENERIC_TRITON


def is_library(instruction: Instruction) -> bool:
    """Whether the instruction runs in a library or is opaque: nothing is fused into it, and it is fused into nothing."""
    if instruction.opcode == "fusion":
        return is_boundary_fusion(instruction)
    spec = find(instruction.opcode)
    if spec is None:
        return True
    if spec.is_library:
        return True
    opaque = (OpKind.CONTRACTION, OpKind.LINALG, OpKind.COLLECTIVE, OpKind.OPAQUE)
    return spec.kind in opaque and spec.cuda is None and not spec.has_expansion(instruction)
