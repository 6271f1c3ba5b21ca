"""Lanes that end for themselves.

Where a loop goes on as long as a predicate holds of any lane, and a round leaves a lane as it is once its own predicate
does not hold, nothing is lost when that lane stops: it would only hand on what it has. So `jax.vmap` writes a
`while_loop` (jax/_src/lax/control_flow/loops.py): `select(predicate, new, old)` for all that is handed on.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

from hlo_opt.analysis.graph.numbering import attribute_key, literal_key
from hlo_opt.analysis.properties import has_side_effect
from hlo_opt.ops.logic import implied, is_zero, known, passed_on, truth_of
from hlo_opt.ops.sets import is_elementwise, reorders
from hlo_opt.ops.spec import OpKind, find
from hlo_opt.plans.element_reads import Element, is_elsewhere, read_at


@dataclass
class Quiet:
    """What is known of a lane whose predicate `test` does not hold."""

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

    def keeps(self, made: Element, taken: Element) -> bool:
        """Whether a round makes an element what it was."""
        if self.key(made) == self.key(taken):
            return True
        truth = self.truth(made)
        if truth is not None:
            return truth == self.truth(taken)
        value, index = self.moved(made)
        passed = passed_on(value, self.truths((value, index)), [self.is_zero(o) for o in self.operands((value, index))])
        return passed is not None and self.keeps(self.operands((value, index))[passed], taken)

    def truth(self, element: Element) -> bool | None:
        """Whether a predicate holds, where that is known."""
        value, index = self.moved(element)
        if value.shape.type.kind != "pred":
            return None
        told = self._facts.get(self.key((value, index)))
        if told is not None:
            return told
        return known(value) if value.literal is not None else truth_of(value, self.truths((value, index)))

    def truths(self, element: Element) -> list[bool | None]:
        """Of the operands of an operation that works on each element by itself."""
        return [self.truth(o) for o in self.operands(element)]

    def is_zero(self, element: Element) -> bool:
        """Whether a number is known to be zero."""
        value, index = self.moved(element)
        return is_zero(value, self.truths((value, index)))

    def operands(self, element: Element) -> list[Element]:
        """What an operation that works on each element by itself reads; nothing of any other."""
        value, index = element
        if not is_elementwise(value):
            return []
        return [(o, index if o.shape.rank else ()) for o in value.operands]

    def moved(self, element: Element) -> Element:
        """Where an element comes from that is only moved."""
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
        """Equal for elements that are computed in the same way."""
        if element not in self._keys:
            value, index = self.moved(element)
            found: Hashable = (value, index)
            if value.literal is not None:
                found = (value.shape, literal_key(value.literal), index)
            elif not value.operands and value.parameter_number is None and not has_side_effect(value):
                found = (value.opcode, value.shape, attribute_key(value), index)
            elif is_elementwise(value) and value.operands and next(iter(value.called()), None) is None:
                operands = tuple(self.key(o) for o in self.operands((value, index)))
                found = (value.opcode, value.shape.type, attribute_key(value), operands)
            self._keys[element] = self._numbers.setdefault(found, len(self._numbers))
        return self._keys[element]
