"""Lanes that end by themselves.

A loop may run until a predicate fails for all lanes, while no round changes a lane whose own predicate fails.
Such a lane can stop early. `jax.vmap` of a `while_loop` has this form (jax/_src/lax/control_flow/loops.py):
`select(predicate, new, old)` for every carried value.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

from hlo_opt.analysis.graph.numbering import attribute_key, literal_key
from hlo_opt.analysis.properties import has_side_effect
from hlo_opt.ops.logic import implied, is_zero, known, passed_on, truth_of
from hlo_opt.ops.lowering import Element
from hlo_opt.ops.sets import is_elementwise, reorders
from hlo_opt.ops.spec import OpKind, find
from hlo_opt.plans.element_reads import is_elsewhere, read_at


@dataclass
class Quiet:
    """The facts about a lane whose predicate `test` is false."""

    test: Element
    _keys: dict[Element, Hashable] = field(default_factory=dict)
    _numbers: dict[Hashable, int] = field(default_factory=dict)
    _facts: dict[Hashable, bool] = field(default_factory=dict)

    def __post_init__(self) -> None:
        stack = [(self.test, False)]
        while stack:
            element, truth = stack.pop()
            value, index = self.moved(element)
            self._facts[self.key((value, index))] = truth
            follows = implied(value, truth)
            if follows is not None:
                stack += [(operand, follows) for operand in self.operands((value, index))]

    def keeps(self, after: Element, before: Element) -> bool:
        """Whether an element has the same value before and after a round."""
        if self.key(after) == self.key(before):
            return True
        truth = self.truth(after)
        if truth is not None:
            return truth == self.truth(before)
        value, index = self.moved(after)
        passed = passed_on(value, self.truths((value, index)), [self.is_zero(o) for o in self.operands((value, index))])
        return passed is not None and self.keeps(self.operands((value, index))[passed], before)

    def truth(self, element: Element) -> bool | None:
        """The value of a predicate; None if it is unknown."""
        value, index = self.moved(element)
        if value.shape.type.kind != "pred":
            return None
        fact = self._facts.get(self.key((value, index)))
        if fact is not None:
            return fact
        return known(value) if value.literal is not None else truth_of(value, self.truths((value, index)))

    def truths(self, element: Element) -> list[bool | None]:
        """The `truth` of each operand of an elementwise operation."""
        return [self.truth(o) for o in self.operands(element)]

    def is_zero(self, element: Element) -> bool:
        """Whether a number is known to be zero."""
        value, index = self.moved(element)
        return is_zero(value, self.truths((value, index)))

    def operands(self, element: Element) -> list[Element]:
        """The elements that an elementwise operation reads; empty for any other operation."""
        value, index = element
        if not is_elementwise(value):
            return []
        return [(o, index if o.shape.rank else ()) for o in value.operands]

    def moved(self, element: Element) -> Element:
        """The element that this one is a copy of, through all operations that only move elements."""
        while True:
            value, index = element
            spec = find(value.opcode)
            if is_elementwise(value) and reorders(value):  # a copy into another layout
                element = value.operands[0], index
                continue
            if spec is None or spec.kind is not OpKind.MOVEMENT:
                return element
            sources = [
                (o, read_at(value, n, index)) for n, o in enumerate(value.operands) if not is_elsewhere(value, n, index)
            ]
            if len(sources) != 1 or sources[0][1] is None:
                return element
            element = sources[0][0], sources[0][1]

    def key(self, element: Element) -> Hashable:
        """The value number of an element: equal for elements that are computed in the same way."""
        if element not in self._keys:
            value, index = self.moved(element)
            key: Hashable = (value, index)
            if value.literal is not None:
                key = (value.shape, literal_key(value.literal), index)
            elif not value.operands and value.parameter_number is None and not has_side_effect(value):
                key = (value.opcode, value.shape, attribute_key(value), index)
            elif is_elementwise(value) and value.operands and next(iter(value.called()), None) is None:
                operands = tuple(self.key(o) for o in self.operands((value, index)))
                key = (value.opcode, value.shape.type, attribute_key(value), operands)
            self._keys[element] = self._numbers.setdefault(key, len(self._numbers))
        return self._keys[element]
