"""The proof that a rewritten module computes what the original did.

Fusing is outlining: with all fusions and calls inlined, both modules must have the same value graph. Numbering both
with one table makes that a comparison of numbers, leaf by leaf. Side effects, and what waits for control dependencies,
are matched one to one (`analysis/graph/occurrences.py`). The header is compared as it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from hlo_opt.analysis.graph.inlining import other_layouts
from hlo_opt.analysis.graph.numbering import Numbered, Numbering, Table, ValueNumber, agree, leaves
from hlo_opt.analysis.graph.occurrences import Matching
from hlo_opt.diag import ProofError
from hlo_opt.ir import Computation, Instruction, Module, Shape
from hlo_opt.text.printer import SHORT, print_instruction

LONGEST = 300
"""Characters of an instruction that a refusal shows."""

_OF_PARAMETERS = ("sharding", "parameter_replication")
"""What an attribute of an entry parameter tells the caller."""


def prove_same_graph(before: Module, after: Module) -> None:
    """Raises ProofError, naming the smallest value that only one of them computes, when the graphs differ.

    Also checks what inlining cannot see: that every fusion's parameters and root have the shapes, layouts included, of
    its operands and its result; one that did not before need not now.
    """
    _same_header(before, after)
    table = Table()
    left, right = Numbering(before, table).entry(), Numbering(after, table).entry()
    matching = agree(table, left, right)
    if matching.pairs is None:
        raise ProofError(_why_not(table, left, right, matching))
    others = list(_odd(after))
    known = {shapes for shapes, _, _ in _odd(before)} if others else set()
    for name, what in sorted((name, what) for shapes, name, what in others if shapes not in known):
        raise ProofError(f"{name} takes or gives other shapes or layouts than {what}")


def _odd(module: Module) -> Iterator[tuple[str, str, str]]:
    """Instructions whose shapes or layouts do not match those of the computations they call or of the tuples they
    build, take elements of, or pass on. Each as the shapes, which copies of it have too, its name, and the name of what
    it does not match."""
    for instruction, body in mismatched(module):
        shapes = [*(o.shape for o in instruction.operands), instruction.shape]
        theirs = [*(p.shape for p in body.parameters), body.root.shape]
        yield f"{instruction.opcode} {shapes} {theirs}", instruction.name, f"its computation {body.name}"
    for computation in module.computations:
        for instruction in computation.instructions:
            expected, actual = _fitting(instruction)
            if len(expected) != len(actual) or not all(map(Shape.same_bytes, expected, actual)):
                yield f"{instruction.opcode} {expected} {actual}", instruction.name, "what it is made of"


def _fitting(instruction: Instruction) -> tuple[list[Shape], list[Shape]]:
    """Shapes that must be the same, one by one: XLA takes no other layout here (xla/service/hlo_verifier.cc,
    ShapeVerifier::CheckShape). What called computations take and give is numbered."""
    shape, operands = instruction.shape, [o.shape for o in instruction.operands]
    match instruction.opcode:
        case "tuple":
            return operands, _elements(shape)
        case "get-tuple-element":
            index = instruction.attribute("index", int)
            return _elements(*operands)[index : index + 1], [shape]
        case "opt-barrier" | "async-update":
            return operands, [shape]
        case "copy-start":
            return operands, _elements(shape)[1:2]
        case "copy-done":
            return _elements(*operands)[:1], [shape]
        case "async-start":
            body = instruction.called_by("calls")
            inner = Shape.tuple_of(*operands), Shape.tuple_of(*(p.shape for p in body.parameters)), body.root.shape
            elements = _elements(shape)[:2]
            return list(inner), [*elements[:1], *elements]
        case "async-done":
            return _elements(*operands)[1:2], [shape]
        case "while":
            return [*operands, shape], [instruction.called_by("body").root.shape] * 2
        case "conditional":
            branches = list(instruction.called())
            inputs = [p.shape for b in branches for p in b.parameters]
            return [*operands[1:], *[shape] * len(branches)], [*inputs, *(b.root.shape for b in branches)]
        case _:
            return [], []


def _elements(shape: Shape) -> list[Shape]:
    return list(shape.elements or ())


def _why_not(table: Table, left: Numbered, right: Numbered, matching: Matching) -> str:
    """Why two entries do not agree. Where side effects take part, a value is known by the colour that says what it is
    made of."""
    if _nesting(left.root) != _nesting(right.root):
        return "the result is another tuple than the original's"
    ours, theirs = matching.one, matching.other
    lost = Counter([ours.get(o, o) for o in left.occurrences])
    lost.subtract([theirs.get(o, o) for o in right.occurrences])
    for number, (old, new) in enumerate(zip(leaves(left.root), leaves(right.root), strict=True)):
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
    if matching.is_open:
        return "too many equal side effects to find out which is which"
    return "equal side effects are merged or kept apart in another way than in the original"


def _nesting(value: ValueNumber) -> object:
    return None if isinstance(value, int) else [_nesting(v) for v in value]


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
    value = instruction.attributes.get(name)
    return "" if value is None else value.text


def mismatched(module: Module) -> Iterator[tuple[Instruction, Computation]]:
    """Fusions and calls whose operands or results are others, or have other shapes or layouts, than the computation
    takes and gives."""
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
    """Walk down both values while they are the same operation on operands of which one differs, to name the smallest
    value that differs."""
    while True:
        above_old, above_new = table.operands[old], table.operands[new]
        if len(above_old) != len(above_new):
            break
        pairs = zip(above_old, above_new, strict=True)
        differing = [(a, b) for a, b in pairs if matching.one.get(a, ~a) != matching.other.get(b, ~b)]
        if not differing and table.head(old) == table.head(new):
            return f"{_name(table, old)} waits for other values than it did"
        if len(differing) != 1:
            break
        (pair,) = differing
        if _opcode(table, pair[0]) != _opcode(table, pair[1]):
            break
        old, new = pair
    was, became = _name(table, old), _name(table, new)
    if was == became:
        return f"{was} is configured in another way, or calls or holds something else"
    return f"{was} became {became}"


def _opcode(table: Table, number: int) -> str:
    instruction = table.instruction_of[number]
    return "tuple" if instruction is None else instruction.opcode


def _name(table: Table, number: int) -> str:
    instruction, key = table.instruction_of[number], table.keys[number]
    if instruction is None:
        text = f"({', '.join(_name(table, o) for o in table.operands[number])})"
    elif key[0] == "get-tuple-element":
        text = f"element {key[1]} of {_name(table, *table.operands[number])}"
    else:
        text = print_instruction(instruction, SHORT)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}.."
