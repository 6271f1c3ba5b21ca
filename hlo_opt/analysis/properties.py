"""What single instructions and computations of a module do: side effects, threads, configurations of fusions. What an opcode is says `hlo_opt.ops.sets`."""

from __future__ import annotations

from hlo_opt.ir import Attribute, Computation, Instruction, Shape
from hlo_opt.ops import find
from hlo_opt.ops.call_config import field
from hlo_opt.ops.custom_calls.targets import says_side_effect
from hlo_opt.ops.sets import fused
from hlo_opt.text.asynchronous import base_opcode

GENERIC_TRITON = "__triton"


def has_side_effect(instruction: Instruction) -> bool:
    """Whether the instruction itself does more than give its value (called computations are not looked into). What an asynchronous operation does happens
    when it is started, and nobody knows what an operation does that the op table does not have."""
    spec = find(instruction.opcode)
    if spec is None:
        base = base_opcode(instruction.opcode)
        if base is None or not instruction.opcode.endswith("-start"):
            return base is None
        spec = find(base)
    return (spec is not None and spec.side_effects) or says_side_effect(instruction)


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
    if "kind" not in instruction.attributes:
        return False
    return fusion_backend_kind(instruction) == GENERIC_TRITON and fused(instruction) is not None


def is_boundary_fusion(instruction: Instruction) -> bool:
    """Whether a fusion stands for a library call (cuDNN, a Triton matrix product, a custom kernel) and must stay as it is."""
    kind = instruction.attributes.get("kind")
    if not isinstance(kind, Attribute) or kind.text != "kCustom":  # most instructions, and asked of all
        return False
    return fusion_backend_kind(instruction) != GENERIC_TRITON


def inside(instruction: Instruction) -> Computation | None:
    """The computation of a fusion that may be looked into; None for one that stands for a library call, and for any other operation."""
    return None if is_boundary_fusion(instruction) else fused(instruction)
