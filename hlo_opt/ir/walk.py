"""Traversal orders of the graph."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import TypeVar

from hlo_opt.ir.module import Computation, Instruction, Module

N = TypeVar("N", bound=Hashable)


def needed_first(starts: Iterable[N], needs: Callable[[N], Sequence[N]]) -> list[N]:
    """The nodes that `starts` need, transitively, in post order: each once, after those it needs; otherwise in order.

    Raises AssertionError on a cycle.
    """
    entered: set[N] = set()
    order: dict[N, None] = {}
    stack = list(starts)[::-1]
    while stack:
        node = stack[-1]
        if node in entered:
            order[stack.pop()] = None
            continue
        entered.add(node)
        for needed in reversed(needs(node)):
            if needed not in order:
                assert needed not in entered, f"{needed} needs itself"
                stack.append(needed)
    return list(order)


def post_order(computation: Computation) -> list[Instruction]:
    """Instructions in post order, depth first from those without users, as XLA's MakeInstructionPostOrder."""
    ends = [i for i in computation.instructions if i.is_root or not i.users]
    return needed_first(ends, lambda i: (*i.operands, *i.control_predecessors))


CONTROL_FLOW = frozenset({"while", "conditional", "call"})
"""Opcodes whose called computations launch work of their own, unlike bodies of fusions, reducers and comparators."""


def executed_computations(module: Module) -> Iterator[Computation]:
    """The entry and every computation that control flow (while, conditional, call) reaches from it, each once, callers
    first.

    Bodies of fusions, reducers and comparators are not executed on their own, so they are left out.
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
