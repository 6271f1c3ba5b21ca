"""What fusion passes rely on: every name is the only one of its kind in the module, and every fusion has a computation
of its own.

Texts that XLA prints are so already (HloModule makes names unique, HloVerifier refuses shared fusion computations);
texts that people write need not be.
"""

from __future__ import annotations

from collections import Counter

from hlo_opt.analysis.graph.inlining import GROWTH_LIMIT, inline, is_plain_fusion
from hlo_opt.diag import VerifyError
from hlo_opt.fusion.proof import mismatched
from hlo_opt.ir import Called, Computation, Instruction, Module, edit
from hlo_opt.ir.walk import executed_computations


def prepare(module: Module) -> bool:
    """Make a module as passes expect it. Returns whether more than names changed.

    - Fusions that take an operand in another layout than their computation's parameter has are inlined.
    - Names become unique in the whole module; the entry keeps its own.
    - The computation of a launched fusion that anything else calls is copied, so that each has its own.

    Raises VerifyError when the copies would be more than `GROWTH_LIMIT` instructions.
    """
    # Where nothing in a fusion can tell which layout a value has, the operand itself will do as well as the parameter.
    fusions = {instruction for instruction, _ in mismatched(module) if is_plain_fusion(instruction)}
    if fusions:
        inline(module, fusions.__contains__)
    _separate_names(module)
    return separate_bodies(module) or bool(fusions)


def _separate_names(module: Module) -> None:
    names: set[str] = set()
    twice: list[Instruction] = []
    for computation in (module.entry, *(c for c in module.computations if c is not module.entry)):
        for instruction in computation.instructions:
            if instruction.name in names:
                twice.append(instruction)
            names.add(instruction.name)
    for instruction in twice:
        instruction.name = module.unique_name(instruction.name)


def separate_bodies(module: Module) -> bool:
    """Copy computations of launched fusions that others call too; returns whether there were any. Others are launched
    fusions, those within another fusion, and what else calls a computation. Raises VerifyError when the copies would be
    more than `GROWTH_LIMIT` instructions."""
    launched = [
        instruction
        for computation in executed_computations(module)
        for instruction in computation.instructions
        if instruction.opcode == "fusion"
    ]
    calls = Counter(body for computation in module.computations for body in computation.called)
    copies = 0
    for instruction in launched:
        body = instruction.called_by("calls")
        if calls[body] == 1:
            continue
        calls[body] -= 1
        copies += len(body.instructions)
        if copies > GROWTH_LIMIT:
            raise VerifyError(
                f"fusions share computations that are more than {GROWTH_LIMIT} instructions when each has its own",
                span=module.span(instruction),
            )
        edit.set_attribute(instruction, "calls", Called(_copy(module, body)))
    if copies:
        edit.sort_computations(module)
    return bool(copies)


def _copy(module: Module, body: Computation) -> Computation:
    new = edit.new_computation(module, body.name)
    new.attributes = dict(body.attributes)
    copies: dict[Instruction, Instruction] = {}
    for member in body.instructions:
        copy = edit.clone_into(new, member, [copies[o] for o in member.operands])
        copy.control_predecessors = [copies[p] for p in member.control_predecessors]
        copies[member] = copy
    edit.set_root(new, copies[body.root])
    return new
