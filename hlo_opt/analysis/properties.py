"""Properties of instructions and computations: side effects, threads, fusion configs. `hlo_opt.ops.sets` classifies
opcodes."""

from __future__ import annotations

from collections.abc import Iterable

from hlo_opt.ir import Attribute, Computation, Instruction, Module, Shape
from hlo_opt.ir.facts import HAS_EFFECTS
from hlo_opt.ops import find
from hlo_opt.ops.call_config import field
from hlo_opt.ops.custom_calls.targets import SAYS_SIDE_EFFECT, says_side_effect
from hlo_opt.ops.sets import fused
from hlo_opt.text.asynchronous import base_opcode

GENERIC_TRITON = "__triton"


def has_side_effect(instruction: Instruction) -> bool:
    """Whether the instruction itself has a side effect, apart from called computations.

    An asynchronous operation's effect happens at its start; an opcode outside the op table is assumed to have one.
    """
    spec = find(instruction.opcode)
    if spec is None:
        base = base_opcode(instruction.opcode)
        if base is None or not instruction.opcode.endswith("-start"):
            return base is None
        spec = find(base)
        if spec is None:
            return says_side_effect(instruction)
    return spec.side_effects or (SAYS_SIDE_EFFECT in instruction.attributes and says_side_effect(instruction))


def elsewhere(computation: Computation) -> bool:
    """Whether a computation runs on another thread than its caller, so that a call is more than its body."""
    thread = computation.attributes.get("execution_thread")
    return thread is not None and thread.text.strip('"') != "main"


def _acts(computation: Computation) -> bool:
    """Whether an instruction of the computation itself has a side effect."""
    acts = computation.facts.get(HAS_EFFECTS)
    if not isinstance(acts, bool):
        acts = computation.facts[HAS_EFFECTS] = any(map(has_side_effect, computation.instructions))
    return acts


def effectful_computations(computations: list[Computation]) -> set[Computation]:
    """The computations with side effects, their own or in callees; the list has callees first."""
    effectful: set[Computation] = set()
    changed = True
    while changed:  # one round, when callees come first
        changed = False
        for computation in computations:
            if computation in effectful:
                continue
            if _acts(computation) or (effectful and not effectful.isdisjoint(computation.called)):
                effectful.add(computation)
                changed = True
    return effectful


class Effects:
    """The computations of a module with side effects, found out when they are first asked about."""

    def __init__(self, module: Module) -> None:
        self._module = module
        self._found: set[Computation] | None = None

    def isdisjoint(self, computations: Iterable[Computation]) -> bool:
        """Whether none of these computations has side effects."""
        if self._found is None:
            self._found = effectful_computations(list(self._module.computations))
        return self._found.isdisjoint(computations)


def is_effectively_scalar(shape: Shape) -> bool:
    """Whether the array has one element, whatever its rank."""
    return shape.is_array and shape.element_count == 1


def true_rank(shape: Shape) -> int:
    """The number of dimensions larger than one."""
    return sum(size > 1 for size in shape.dimensions)


def fusion_backend_kind(instruction: Instruction) -> str:
    """The kind in a fusion's backend config (`__triton`, `__triton_gemm`, `__cudnn$fusion`, ...); "" for none."""
    return field(instruction, "fusion_backend_config", "kind") or ""


def is_generic_triton(instruction: Instruction) -> bool:
    """Whether a fusion is a generic Triton kernel, into which more may be fused (xla/service/gpu/ir_emission_utils.h,
    IsGenericTritonFusion)."""
    if "kind" not in instruction.attributes:
        return False
    return fusion_backend_kind(instruction) == GENERIC_TRITON and fused(instruction) is not None


def is_boundary_fusion(instruction: Instruction) -> bool:
    """Whether a fusion stands for a library call (cuDNN, a Triton GEMM, a custom kernel) and must not be changed."""
    kind = instruction.attributes.get("kind")
    if not isinstance(kind, Attribute) or kind.text != "kCustom":  # fast path for most instructions
        return False
    return fusion_backend_kind(instruction) != GENERIC_TRITON


def inside(instruction: Instruction) -> Computation | None:
    """The computation of a fusion that may be looked into; None for library calls and other operations."""
    body = fused(instruction)  # None for most
    return None if body is None or is_boundary_fusion(instruction) else body
