"""The proof that a rewritten module computes what the original did.

Fusing is outlining: with all fusions and calls inlined, both modules must have the same value graph. Numbering both with one table makes that a
comparison of numbers, leaf by leaf; side effects are compared as a multiset, control dependencies and the header as they are.
"""

from __future__ import annotations

from collections.abc import Iterator

from hlo_opt.analysis.inlining import other_layouts
from hlo_opt.analysis.numbering import Numbering, Table, leaves
from hlo_opt.diag import ProofError
from hlo_opt.ir import Computation, Instruction, Module

_PARTITIONING = frozenset({"is_scheduled"})


def prove_same_graph(before: Module, after: Module) -> None:
    """Raises ProofError, naming the smallest value that only one of them computes, when the graphs differ.

    Also checks what inlining cannot see: that every fusion's parameters and root have the shapes, layouts included, of its operands and its result;
    one that did not before need not now.
    """
    _same_header(before, after)
    table = Table()
    left, right = Numbering(before, table).entry(), Numbering(after, table).entry()
    for number, (old, new) in enumerate(zip(leaves(left.root), leaves(right.root), strict=False)):
        if old != new:
            raise ProofError(f"output {number} of the result is another value: {_difference(table, old, new)}")
    if left.root != right.root:
        raise ProofError("the result is another tuple than the original's")
    if left.effects != right.effects:
        lost, made = left.effects - right.effects, right.effects - left.effects
        which = next(iter(lost), next(iter(made), 0))
        raise ProofError(f"side effects differ: {'lost' if lost else 'added'} {_name(table, which)}")
    if left.waits != right.waits:
        raise ProofError("a control dependency is lost or added")
    others = list(mismatched(after))
    known = {(i.name, body.name) for i, body in mismatched(before)} if others else set()
    for instruction, body in others:
        if (instruction.name, body.name) not in known:
            raise ProofError(
                f"{instruction.name} takes or gives other shapes or layouts than its computation {body.name}"
            )


def _same_header(before: Module, after: Module) -> None:
    old = {n: v.text for n, v in before.attributes.items() if n not in _PARTITIONING}
    new = {n: v.text for n, v in after.attributes.items() if n not in _PARTITIONING}
    if old != new:
        changed = sorted(n for n in old.keys() | new.keys() if old.get(n) != new.get(n))
        raise ProofError(f"the module header changed: {', '.join(changed)}")
    if [p.shape for p in before.entry.parameters] != [p.shape for p in after.entry.parameters]:
        raise ProofError("the entry's parameters changed")
    if not before.entry.root.shape.same_bytes(after.entry.root.shape):
        raise ProofError(f"the entry's result is {after.entry.root.shape}, not {before.entry.root.shape}")


def mismatched(module: Module) -> Iterator[tuple[Instruction, Computation]]:
    """Fusions and calls whose operands or results have other shapes, or layouts, than the computation has."""
    for computation in module.computations:
        for instruction in computation.instructions:
            if instruction.opcode in ("fusion", "call"):
                body = instruction.called_by("calls" if instruction.opcode == "fusion" else "to_apply")
                if other_layouts(instruction, body) or not instruction.shape.same_bytes(body.root.shape):
                    yield instruction, body


def _difference(table: Table, old: int, new: int) -> str:
    """Walk down both values while they are the same operation on operands of which one differs, to name the smallest value that differs."""
    while True:
        above_old, above_new = table.operands[old], table.operands[new]
        differing = [(a, b) for a, b in zip(above_old, above_new, strict=False) if a != b]
        if len(above_old) != len(above_new) or len(differing) != 1 or not _same_operation(table, *differing[0]):
            return f"{_name(table, old)} became {_name(table, new)}"
        old, new = differing[0]


def _same_operation(table: Table, old: int, new: int) -> bool:
    one, other = table.made_by[old], table.made_by[new]
    if one is None or other is None:
        return one is other
    return one.opcode == other.opcode


def _name(table: Table, number: int) -> str:
    instruction = table.made_by[number]
    if instruction is None:
        return "a tuple"
    return f"{instruction.name} = {instruction.shape} {instruction.opcode}({', '.join(o.name for o in instruction.operands)})"
