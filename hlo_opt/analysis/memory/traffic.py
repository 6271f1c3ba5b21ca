"""Bytes that an instruction accesses, as XLA's device-independent cost analysis counts them: each operand once, however often a kernel reads it.

Source: xla/service/hlo_cost_analysis.cc. A custom call counts with its operands and results, which XLA calls unknown.
"""

from __future__ import annotations

from hlo_opt.analysis.memory.transposes import only_renames
from hlo_opt.analysis.properties import is_boundary_fusion
from hlo_opt.ir import Computation, Instruction, Module
from hlo_opt.ir.walk import CONTROL_FLOW, executed_computations
from hlo_opt.ops import find
from hlo_opt.ops.accesses import PARTIAL, SPREADS, whole
from hlo_opt.ops.emission import HEROES, Emitter
from hlo_opt.ops.sets import SLICES, body_of, fused, held, is_free, launches, looped, results_of
from hlo_opt.ops.shapes import called_flops

POINTER = 8
"""Bytes of an element in a tuple's index table, as XLA's cost analysis counts them (HandleTuple)."""


def bytes_accessed(instruction: Instruction) -> float:
    """Bytes read and written by one execution."""
    body = fused(instruction)
    if body is not None and not is_boundary_fusion(instruction):
        return _of_fusion(body)
    if is_free(instruction.opcode) or only_renames(instruction):
        return 0.0
    spec, rule = find(instruction.opcode), PARTIAL.get(instruction.opcode)
    found = whole(instruction) if rule is None else rule(instruction, called_flops)
    if spec is None or spec.first_index is None:
        return found.bytes
    return sum(found.read[: spec.first_index + 1]) + found.written  # of the start indices XLA counts the first


def _of_fusion(body: Computation) -> float:
    """A parameter counts with its slices, whole for each broadcast or reshape of it, and whole once where anything else reads it; a root that updates in place counts with its update
    (FusionParameterReadBytes)."""
    total = 0.0
    for parameter in body.parameters:
        size = parameter.shape.byte_size
        is_whole = False
        for user in parameter.users:
            first = user.operands[0] is parameter
            if first and user.opcode in SLICES:
                total += user.shape.byte_size
            elif user.opcode in SPREADS:
                total += size
            elif not (first and HEROES.get(user.opcode) is Emitter.IN_PLACE):
                is_whole = True
        total += size if is_whole else 0
    return total + sum(map(_written_root, results_of(body)))


def _written_root(root: Instruction) -> float:
    while is_free(root.opcode) and root.operands:
        root = root.operands[0]
    return written_by_root(root)


def written_by_root(root: Instruction) -> float:
    """Bytes that a root of a fusion writes: an update in place writes its update only."""
    written = root.operands[1] if HEROES.get(root.opcode) is Emitter.IN_PLACE else root
    return float(written.shape.byte_size)


def module_bytes(module: Module) -> float:
    """Bytes of one run of the entry: bodies of loops once, of the branches of a conditional the dearest, called computations at each call."""
    totals: dict[Computation, float] = {}
    executed = set(executed_computations(module))
    for computation in module.computations:
        if computation not in executed:
            continue
        total = 0.0
        for instruction in computation.instructions:
            parts = held(instruction)
            if parts is not None:
                total += POINTER * len(parts)
            elif instruction.opcode in CONTROL_FLOW:
                runs_all = looped(instruction) is not None or body_of(instruction) is not None
                called = [totals[c] for c in instruction.called()]
                total += sum(called) if runs_all else max(called, default=0.0)
            elif launches(instruction):
                total += bytes_accessed(instruction)
        totals[computation] = total
    return totals[module.entry]
