"""Bytes that an instruction accesses, as XLA's device-independent cost analysis counts them: each operand once, however often a kernel reads it.

Source: xla/service/hlo_cost_analysis.cc. A custom call counts with its operands and results, which XLA calls unknown.
"""

from __future__ import annotations

from hlo_opt.analysis.memory.accesses import byte_size
from hlo_opt.analysis.memory.transposes import moves_data
from hlo_opt.analysis.properties import is_boundary_fusion
from hlo_opt.ir import Computation, Instruction, Module
from hlo_opt.ir.walk import CONTROL_FLOW
from hlo_opt.ops import find
from hlo_opt.ops.sets import is_free, launches, results_of

POINTER = 8
"""Bytes of an element in a tuple's index table, as XLA's cost analysis counts them (HandleTuple)."""
_NO_MOVE = frozenset({"get-tuple-element", "bitcast", "tuple"})


def bytes_accessed(instruction: Instruction) -> float:
    """Bytes read and written by one execution."""
    if instruction.opcode == "fusion" and not is_boundary_fusion(instruction):
        return _of_fusion(instruction)
    if is_free(instruction.opcode) or (instruction.opcode == "transpose" and not moves_data(instruction)):
        return 0.0  # a transpose that only renames dimensions moves nothing
    return sum(_read(instruction, n) for n in range(len(instruction.operands))) + _written(instruction)


def _read(instruction: Instruction, number: int) -> float:
    """Bytes read of one operand by a plain instruction."""
    operand = instruction.operands[number].shape
    opcode = instruction.opcode
    spec = find(opcode)
    if number == 0 and spec is not None and spec.reads_part:
        return float(byte_size(instruction.shape))
    if number == 0 and opcode == "dynamic-update-slice":
        return 0.0
    if spec is not None and spec.first_index is not None and number > spec.first_index:
        return 0.0  # of the start indices XLA counts the first
    if opcode == "scatter" and number < len(instruction.operands) // 2:
        return float(byte_size(instruction.operands[-1].shape))
    return float(byte_size(operand))


def _written(instruction: Instruction) -> float:
    if instruction.opcode == "dynamic-update-slice":
        return float(byte_size(instruction.operands[1].shape))
    if instruction.opcode == "scatter":
        return float(byte_size(instruction.operands[-1].shape))
    return float(byte_size(instruction.shape))


def _of_fusion(fusion: Instruction) -> float:
    """A parameter counts with its slices, whole for each broadcast or reshape of it, and whole once where anything else reads it; a root that updates in place counts with its update
    (FusionParameterReadBytes)."""
    body = fusion.called_by("calls")
    total = 0.0
    for parameter in body.parameters:
        whole = False
        for user in parameter.users:
            first = user.operands[0] is parameter
            if first and user.opcode in ("slice", "dynamic-slice"):
                total += byte_size(user.shape)
            elif first and user.opcode == "dynamic-update-slice":
                continue
            elif user.opcode in ("broadcast", "reshape"):
                total += byte_size(parameter.shape)
            else:
                whole = True
        total += byte_size(parameter.shape) if whole else 0
    return total + sum(_written_root(r) for r in results_of(body))


def _written_root(root: Instruction) -> float:
    while root.opcode in _NO_MOVE and root.operands:
        root = root.operands[0]
    return (
        float(byte_size(root.operands[1].shape))
        if root.opcode == "dynamic-update-slice"
        else float(byte_size(root.shape))
    )


def module_bytes(module: Module) -> float:
    """Bytes of one run of the entry: bodies of loops once, of the branches of a conditional the dearest, called computations at each call."""
    totals: dict[Computation, float] = {}
    for computation in callees_first(module):
        total = 0.0
        for instruction in computation.instructions:
            if instruction.opcode == "conditional":
                total += max((totals[c] for c in instruction.called()), default=0.0)
            elif instruction.opcode in CONTROL_FLOW:
                total += sum(totals[c] for c in instruction.called())
            elif instruction.opcode == "tuple":
                total += POINTER * len(instruction.operands)
            else:
                total += bytes_accessed(instruction) if launches(instruction) else 0.0
        totals[computation] = total
    return totals[module.entry]


def callees_first(module: Module) -> list[Computation]:
    """The computations that control flow reaches from the entry, callees before callers."""
    found: list[Computation] = []
    done: set[Computation] = set()
    stack: list[tuple[Computation, bool]] = [(module.entry, False)]
    while stack:
        computation, ready = stack.pop()
        if ready:
            found.append(computation)
        elif computation not in done:
            done.add(computation)
            stack.append((computation, True))
            for instruction in computation.instructions:
                if instruction.opcode in CONTROL_FLOW:
                    stack.extend((c, False) for c in instruction.called())
    return found
