"""Orders of a graph."""

from __future__ import annotations

from collections.abc import Iterator

from hlo_opt.ir.module import Computation, Instruction, Module


def post_order(computation: Computation) -> list[Instruction]:
    """Operands before users, deterministic, as XLA's MakeInstructionPostOrder: depth first from the instructions without users."""
    done: set[Instruction] = set()
    order: list[Instruction] = []
    for start in computation.instructions:
        if start.users and not start.is_root:
            continue
        stack: list[tuple[Instruction, bool]] = [(start, False)]
        while stack:
            instruction, ready = stack.pop()
            if instruction in done:
                continue
            if ready:
                done.add(instruction)
                order.append(instruction)
                continue
            stack.append((instruction, True))
            stack.extend((p, False) for p in reversed(instruction.control_predecessors) if p not in done)
            stack.extend((o, False) for o in reversed(instruction.operands) if o not in done)
    return order


CONTROL_FLOW = frozenset({"while", "conditional", "call"})
"""Operations that run computations of a program: these launch work of their own. Bodies of fusions, reducers and comparators do not."""


def executed_computations(module: Module) -> Iterator[Computation]:
    """The entry and every computation that control flow (while, conditional, call) reaches from it, each once, callers first.

    Bodies of fusions, reducers and comparators are not executed by themselves and are left out.
    """
    seen: set[Computation] = set()
    todo = [module.entry]
    while todo:
        computation = todo.pop()
        if computation in seen:
            continue
        seen.add(computation)
        yield computation
        for instruction in computation.instructions:
            if instruction.opcode in CONTROL_FLOW:
                todo.extend(instruction.called())
