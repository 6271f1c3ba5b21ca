"""Questions about operations that several rooms ask, answered in one place."""

from __future__ import annotations

from hlo_opt.ir import Computation, Instruction
from hlo_opt.ops.spec import OpKind, find

_BODIES = {"fusion": "calls", "call": "to_apply"}
APPLIED = frozenset(_BODIES)
"""Operations that run one computation once, on all their operands, and give what it gives."""

EXTREMES = frozenset({"maximum", "minimum"})
SIGNS = {"add": 1, "subtract": -1}
"""Sums of two operands, with the sign of the second."""
IDEMPOTENT = EXTREMES | {"and", "or"}
"""Reducers for which it does not count how often a value comes in, and that round nothing."""

COPIES = frozenset({"bitcast", "copy", "reshape"})
"""Operations that give the elements of their operand, each once, in the order that they had: in memory, or row-major."""
RESHAPES = frozenset({"bitcast", "reshape"})
"""Those under other dimensions."""


UPDATES = frozenset({"dynamic-update-slice", "scatter"})
"""Operations that write a part of their first operand, in its own memory where nothing else needs it."""
SLICES = frozenset({"dynamic-slice", "slice"})
"""Those that read a part of it."""


def is_free(opcode: str) -> bool:
    """Whether operations of an opcode launch no work of their own."""
    spec = find(opcode)
    return spec is not None and spec.is_free


def is_identity(opcode: str) -> bool:
    """Whether operations of an opcode are their first operand as it is, such as a barrier."""
    spec = find(opcode)
    return spec is not None and spec.is_identity


def keeps_bytes(opcode: str) -> bool:
    """Whether operations of an opcode are the memory of their first operand, under another shape at most: barriers, bitcasts."""
    return is_identity(opcode) or is_view(opcode)


def is_view(opcode: str) -> bool:
    """Whether operations of an opcode are elements of an operand as they lie in memory, under another shape."""
    spec = find(opcode)
    return spec is not None and spec.is_free and spec.moves_data


def launches(instruction: Instruction) -> bool:
    """Whether the instruction launches work: a kernel or a library call."""
    return not is_free(instruction.opcode) and not instruction.opcode.endswith("-done")


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
    body = fused(instruction)
    return body is not None and all(i.parameter_number is not None or is_elementwise(i) for i in body.instructions)


def reuses_elements(instruction: Instruction, operand: int) -> bool:
    """Whether an element of the operand may be read for more than one output element (OperandElementUse::kReuse)."""
    spec = find(instruction.opcode)
    if spec is not None and spec.reuses is not None:
        return spec.reuses(instruction, operand)
    body = fused(instruction)
    return not is_elementwise(instruction) if body is None else _reuses_parameter(body.parameters[operand])


def _reuses_parameter(parameter: Instruction) -> bool:
    """As `reuses_elements`, for a parameter of a fusion: whether some path from it to the root reuses.

    Source: xla/hlo/ir/hlo_instructions.cc, FusionReusesParamElements.
    """
    todo, seen = [parameter], {parameter}
    while todo:
        instruction = todo.pop()
        for user in instruction.users:
            if any(used is instruction and reuses_elements(user, n) for n, used in enumerate(user.operands)):
                return True
            if user not in seen:
                seen.add(user)
                todo.append(user)
    return False


def fused(instruction: Instruction) -> Computation | None:
    """The computation of a fusion: it runs as one kernel; None for any other operation."""
    return None if instruction.opcode != "fusion" else instruction.called_by(_BODIES["fusion"])


def looped(instruction: Instruction) -> Computation | None:
    """The computation that a loop runs in each round; None for any other operation."""
    return None if instruction.opcode != "while" else instruction.called_by("body")


def taken_element(instruction: Instruction) -> int | None:
    """The number of the element that is taken out of a tuple; None for any other operation."""
    return None if instruction.opcode != "get-tuple-element" else instruction.attribute("index", int)


def held(instruction: Instruction) -> list[Instruction] | None:
    """The elements of a tuple that is put together here; None for any other operation."""
    return None if instruction.opcode != "tuple" else instruction.operands


def body_of(instruction: Instruction) -> Computation | None:
    """The computation that a fusion or a call runs; None for any other operation."""
    name = _BODIES.get(instruction.opcode)
    return None if name is None else instruction.called_by(name)


def results_of(computation: Computation) -> list[Instruction]:
    """The values that a computation gives: what its root's tuple holds, or its root."""
    found = held(computation.root)
    return [computation.root] if found is None else list(found)


def root_of(instruction: Instruction) -> Instruction:
    """What a fusion computes last; any other operation itself."""
    body = fused(instruction)
    return instruction if body is None else body.root
