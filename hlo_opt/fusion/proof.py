"""The proof that a rewritten module computes what the original did.

Fusing is outlining: with all fusions and calls inlined, both modules must have the same value graph. Numbering both with one table makes that a
comparison of numbers, leaf by leaf. Side effects, and what waits for control dependencies, are matched one to one (`analysis/occurrences.py`). The header
is compared as it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from hlo_opt.analysis.inlining import other_layouts
from hlo_opt.analysis.numbering import Numbered, Numbering, Table, agree, leaves
from hlo_opt.analysis.occurrences import Matching
from hlo_opt.diag import ProofError
from hlo_opt.ir import Computation, Instruction, Module, Shape

_OF_PARAMETERS = ("sharding", "parameter_replication")
"""What an attribute of an entry parameter tells the caller."""


def prove_same_graph(before: Module, after: Module) -> None:
    """Raises ProofError, naming the smallest value that only one of them computes, when the graphs differ.

    Also checks what inlining cannot see: that every fusion's parameters and root have the shapes, layouts included, of its operands and its result;
    one that did not before need not now.
    """
    _same_header(before, after)
    table = Table()
    left, right = Numbering(before, table).entry(), Numbering(after, table).entry()
    matching = agree(table, left, right)
    if matching.pairs is None:
        raise ProofError(_why_not(table, left, right, matching))
    others = set(_odd(after))
    for name, what in sorted(others.difference(_odd(before)) if others else ()):
        raise ProofError(f"{name} takes or gives other shapes or layouts than {what}")


_MADE_OF_OTHERS = frozenset({"tuple", "get-tuple-element", "while", "conditional"})


def _odd(module: Module) -> Iterator[tuple[str, str]]:
    """Names of instructions whose shapes, layouts included, do not go with those of what they call, put together or take apart, and the name of that."""
    for instruction, body in mismatched(module):
        yield instruction.name, f"its computation {body.name}"
    for computation in module.computations:
        for instruction in computation.instructions:
            opcode = instruction.opcode
            if opcode not in _MADE_OF_OTHERS:
                continue
            operands = instruction.operands
            if opcode == "tuple":
                expected, given = [o.shape for o in operands], list(instruction.shape.elements or ())
            elif opcode == "get-tuple-element":
                elements, place = operands[0].shape.elements or (), instruction.attribute("index", int)
                expected, given = list(elements[place : place + 1]), [instruction.shape]
            elif opcode == "while":
                bodies = [instruction.called_by(name) for name in ("condition", "body")]
                expected = [instruction.shape] * 4
                given = [operands[0].shape, bodies[1].root.shape, *(body.parameters[0].shape for body in bodies)]
            else:
                branches = list(instruction.called())
                expected = [*(o.shape for o in operands[1:]), *[instruction.shape] * len(branches)]
                given = [*(b.parameters[0].shape for b in branches), *(b.root.shape for b in branches)]
            if len(expected) != len(given) or not all(map(Shape.same_bytes, expected, given)):
                yield instruction.name, "what it is made of"


def _why_not(table: Table, left: Numbered, right: Numbered, matching: Matching) -> str:
    """Why two entries do not agree. Where side effects take part, a value is known by the colour that says what it is made of."""
    ours, theirs = matching.one, matching.other
    lost = Counter([ours.get(o, o) for o in left.occurrences])
    lost.subtract([theirs.get(o, o) for o in right.occurrences])
    for number, (old, new) in enumerate(zip(leaves(left.root), leaves(right.root), strict=False)):
        if ours.get(old, ~old) != theirs.get(new, ~new):
            return f"output {number} of the result is another value: {_difference(table, old, new, matching)}"
    for occurrences, colours, sign, what in (
        (left.occurrences, ours, 1, "lost"),
        (right.occurrences, theirs, -1, "added"),
    ):
        for occurrence in occurrences:
            if sign * lost[colours[occurrence]] > 0:
                kind = "control dependencies" if table.only_waits(occurrence) else "side effects"
                return f"{kind} differ: {what} {_name(table, occurrence)}"
    if len(list(leaves(left.root))) != len(list(leaves(right.root))) or not left.occurrences:
        return "the result is another tuple than the original's"
    if matching.is_open:
        return "too many equal side effects to find out which is which"
    return "equal side effects are shared or told apart in another way than in the original"


def _same_header(before: Module, after: Module) -> None:
    old = {n: v.text for n, v in before.attributes.items()}
    new = {n: v.text for n, v in after.attributes.items()}
    if "is_scheduled" not in new:
        old.pop("is_scheduled", None)  # what follows no schedule may say so, but nothing may claim one
    if old != new:
        changed = sorted(n for n in old.keys() | new.keys() if old.get(n) != new.get(n))
        raise ProofError(f"the module header changed: {', '.join(changed)}")
    if [p.shape for p in before.entry.parameters] != [p.shape for p in after.entry.parameters]:
        raise ProofError("the entry's parameters changed")
    for one, other in zip(before.entry.parameters, after.entry.parameters, strict=True):
        if any(_text(one, name) != _text(other, name) for name in _OF_PARAMETERS):
            raise ProofError(f"the entry's parameter {one.parameter_number} is cut or copied in another way")
    if not before.entry.root.shape.same_bytes(after.entry.root.shape):
        raise ProofError(f"the entry's result is {after.entry.root.shape}, not {before.entry.root.shape}")


def _text(instruction: Instruction, name: str) -> str:
    found = instruction.attributes.get(name)
    return "" if found is None else found.text


def mismatched(module: Module) -> Iterator[tuple[Instruction, Computation]]:
    """Fusions and calls whose operands or results are others, or have other shapes or layouts, than the computation takes and gives."""
    for computation in module.computations:
        for instruction in computation.instructions:
            if instruction.opcode in ("fusion", "call"):
                body = instruction.called_by("calls" if instruction.opcode == "fusion" else "to_apply")
                numbers = [p.parameter_number for p in body.parameters]
                if (
                    numbers != list(range(len(instruction.operands)))
                    or other_layouts(instruction, body)
                    or not instruction.shape.same_bytes(body.root.shape)
                ):
                    yield instruction, body


def _difference(table: Table, old: int, new: int, matching: Matching) -> str:
    """Walk down both values while they are the same operation on operands of which one differs, to name the smallest value that differs."""
    while True:
        above_old, above_new = table.operands[old], table.operands[new]
        differing = [
            (a, b)
            for a, b in zip(above_old, above_new, strict=False)
            if matching.one.get(a, ~a) != matching.other.get(b, ~b)
        ]
        if above_old and not differing and len(above_old) == len(above_new) and _same_operation(table, old, new):
            return f"{_name(table, old)} waits for other values than it did"
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
