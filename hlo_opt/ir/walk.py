"""Traversal orders of the graph."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from operator import attrgetter
from typing import TypeVar

from hlo_opt.ir.facts import POST_ORDER, Fact
from hlo_opt.ir.module import Computation, Instruction, Module

N = TypeVar("N", bound=Hashable)


def needed_first(starts: Iterable[N], needs: Callable[[N], Sequence[N]]) -> list[N]:
    """The nodes that `starts` need, transitively, in post order: each once, after those it needs; otherwise in order.

    Raises AssertionError on a cycle.
    """
    entered: set[N] = set()
    order: dict[N, None] = {}
    for start in starts:
        if start in order:
            continue
        entered.add(start)
        path, left = [start], [iter(needs(start))]
        while path:
            for needed in left[-1]:
                if needed not in order:
                    below = needs(needed)
                    if not below:  # true of about every second node
                        order[needed] = None
                        continue
                    assert needed not in entered, f"{needed} needs itself"
                    entered.add(needed)
                    path.append(needed)
                    left.append(iter(below))
                    break
            else:
                left.pop()
                order[path.pop()] = None
    return list(order)


def reached(starts: Iterable[N], edges: Callable[[N], Iterable[N]]) -> set[N]:
    """The starts and everything that edges lead to from them, in any number of steps."""
    found = set(starts)
    todo = list(found)
    while todo:
        for node in edges(todo.pop()):
            if node not in found:
                found.add(node)
                todo.append(node)
    return found


def match(one: N, other: N, below: Callable[[N, N], Iterable[tuple[N, N]] | None]) -> bool:
    """Whether two graphs match, pair by pair from the first: `below` says which pairs must match for one to do so; None
    where it does not. Each pair is asked for once."""
    todo, seen = [(one, other)], {(one, other)}
    while todo:
        pairs = below(*todo.pop())
        if pairs is None:
            return False
        for pair in pairs:
            if pair not in seen:
                seen.add(pair)
                todo.append(pair)
    return True


def are_in_order(nodes: Iterable[N], needs: Callable[[N], Sequence[N]]) -> bool:
    """Whether each node comes after those that it needs: `needed_first` of them all would leave their order alone, but
    takes several times as long to say so."""
    before: set[N] = set()
    for node in nodes:
        if not before.issuperset(needs(node)):
            return False
        before.add(node)
    return True


def operands_first(roots: Iterable[N]) -> list[N]:
    """The roots and everything that they need, operands before users: of instructions, or of other nodes with
    `operands`."""
    return needed_first(roots, _OPERANDS)


_OPERANDS = attrgetter("operands")


def post_order(computation: Computation) -> list[Instruction]:
    """Instructions in post order, depth first from those without users, as XLA's MakeInstructionPostOrder."""
    known = computation.facts.get(POST_ORDER)
    if isinstance(known, tuple):
        return list(known)
    computation.index_users()
    root = computation._root
    ends = [i for i in computation._instructions if i is root or not i._users]
    order = needed_first(ends, needed_by)
    computation.facts[POST_ORDER] = tuple(order)
    return order


def needed_by(instruction: Instruction) -> list[Instruction]:
    """What must come before an instruction: its operands, then its control predecessors. Not to be changed."""
    if not instruction.control_predecessors:
        return instruction.operands
    return [*instruction.operands, *instruction.control_predecessors]


def edited_since(module: Module, fact: Fact) -> list[Computation]:
    """The computations that do not have a fact, or call one without it, directly or not; in the module's order."""
    edited: set[Computation] = set()
    before = -1
    while len(edited) != before:  # two rounds, when callees come first
        before = len(edited)
        for computation in module.computations:
            if computation not in edited and (
                fact not in computation.facts or not edited.isdisjoint(computation.called)
            ):
                edited.add(computation)
    return [c for c in module.computations if c in edited]


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
