"""Folds inside a loop that are the same in all its rounds, such as the maximum of a row whose exponentials are summed:
computed before the loop, once."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from hlo_opt.ir import Instruction
from hlo_opt.ir.index_map import variables_of
from hlo_opt.ops.lowering import Element, Elementwise, Index
from hlo_opt.ops.spec import find


def folds_beside(elements: Sequence[Element], rounds: Collection[str]) -> Iterator[Element]:
    """Folds that the elements certainly need, and where, if that is the same for all values of the variables `rounds`;
    in the order of need."""
    todo, seen = list(reversed(elements)), set(elements)
    while todo:
        instruction, at = todo.pop()
        if find(instruction.opcode) is None or not instruction.operands or not instruction.shape.is_array:
            continue
        pulls = [_pull(instruction, number, at) for number in range(len(instruction.operands))]
        if any(is_fold for is_fold, _ in pulls):
            if not any(name in rounds for e in at for name in variables_of(e)):
                yield instruction, at
            continue
        needs = [need for _, need in reversed(pulls) if need is not None and need not in seen]
        seen.update(needs)
        todo += needs


def _pull(instruction: Instruction, number: int, at: Index) -> tuple[bool, Element | None]:
    """Whether an operand is folded; and else the element of it that a result at `at` certainly needs, None where that
    is open."""
    operand, spec = instruction.operands[number], find(instruction.opcode)
    assert spec is not None
    if isinstance(spec.cuda, Elementwise):
        return False, (operand, at if operand.shape.rank else ())
    index_map = None if spec.index is None or not operand.shape.is_array else spec.index(instruction, number)
    if index_map is None or index_map.runtime or index_map.conditions_at(at):
        return False, None
    return bool(index_map.symbols), None if index_map.symbols else (operand, index_map.apply(at))
