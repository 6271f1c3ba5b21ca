"""The place of the least or greatest element, as argmin and argmax give it, as folds of one array each."""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Sequence
from typing import Literal

from hlo_opt.ir import Called, Computation, ElementType, Instruction, array, edit
from hlo_opt.ir.attribute import Attribute
from hlo_opt.ir.element_type import PRED
from hlo_opt.ops.counts import counted_along
from hlo_opt.ops.pulls import Pulls
from hlo_opt.ops.reduction.reducers import is_identity
from hlo_opt.ops.relations import RELATIONS
from hlo_opt.ops.sets import tuple_elements
from hlo_opt.ops.writer import Writer

Extreme = Literal["minimum", "maximum"]

_NAN = float("nan")
_PAIRS = [*itertools.product((0.0, 1.0), repeat=2), (_NAN, 0.0), (0.0, _NAN), (_NAN, _NAN)]
"""Two values of a float in all their relations."""


class Extremes(Pulls):
    """Writes an argmin or argmax as two folds."""

    def extreme(self, reduce: Instruction, operands: Sequence[Instruction]) -> Instruction | None:
        """A fold of an array and of the places along the folded dimension, which picks the first NaN, else the first of
        the least or greatest elements; None for other operations. The least place at which an element equals the
        extreme is such a place, whatever the order of the folds."""
        gone = reduce.ints("dimensions") if reduce.opcode == "reduce" else ()
        if len(operands) != 4 or len(gone) != 1 or counted_along(operands[1]) != gone[0]:
            return None
        if not operands[0].shape.element_count:  # the place is then that of the start
            return None
        values, places, start, first = operands
        kind, number_type = values.shape.type, places.shape.type
        by = extreme_of(reduce.called_by("to_apply"), is_float=kind.is_float)
        least = _number(start)
        if by is None or kind.bits < 16 or _number(first) != 0 or least is None or not is_identity(by, kind, least):
            return None
        size = values.shape.dimensions
        best = self._folded(by, values, start, gone[0])
        kept = tuple(d for d in range(len(size)) if d != gone[0])
        wide = self.emit("broadcast", array(kind, *size), best, dimensions=kept)
        truths = array(PRED, *size)
        is_best = self.emit("compare", truths, values, wide, direction="EQ")
        if kind.is_float:
            is_best = self.binary("or", is_best, self.emit("compare", truths, values, values, direction="NE"))
        last = self.number(number_type, number_type.limits[1])
        chosen = self.emit("select", array(number_type, *size), is_best, places, self.spread(last, size))
        place = self._folded("minimum", chosen, last, gone[0])
        # of two zeros of different sign the one at that place
        own = self.emit("broadcast", array(number_type, *size), place, dimensions=kept)
        is_there = self.emit("compare", truths, places, own, direction="EQ")
        alone = self.emit("select", array(kind, *size), is_there, values, self.spread(start, size))
        return edit.create_tuple(self.computation, [self._folded(by, alone, start, gone[0]), place])

    def _folded(self, by: Extreme, values: Instruction, start: Instruction, dimension: int) -> Instruction:
        kept = (n for d, n in enumerate(values.shape.dimensions) if d != dimension)
        shape = array(values.shape.type, *kept)
        attributes: dict[str, Attribute | Called] = {
            "dimensions": Attribute.of((dimension,)),
            "to_apply": Called(_reducer(by, values.shape.type)),
        }
        self._count += 1
        return edit.create(self.computation, f"reduce.{self._count}", "reduce", shape, [values, start], attributes)


def _number(value: Instruction) -> object:
    """The value of a constant; None for others."""
    literal = value.literal
    return None if literal is None or literal.is_elided else literal.value


def _reducer(opcode: str, kind: ElementType) -> Computation:
    writer = Writer(opcode)
    left, right = (writer.parameter(n, array(kind)) for n in range(2))
    edit.set_root(writer.computation, writer.binary(opcode, left, right))
    return writer.computation


def extreme_of(reducer: Computation, *, is_float: bool) -> Extreme | None:
    """The extreme that a reducer of two (value, place) pairs looks for, if it picks the first NaN, else the first of
    the least or greatest values; None for other reducers. Since it may only compare and select, trying all relations
    between its arguments proves that."""
    numbers = [p.parameter_number for p in reducer.parameters]
    ends = tuple_elements(reducer.root)
    if sorted(n for n in numbers if n is not None) != [0, 1, 2, 3] or ends is None or len(ends) != 2:
        return None
    for by in ("minimum", "maximum"):
        before = operator.lt if by == "minimum" else operator.gt
        if all(
            _picked(reducer, a, b, (0, 1)) == int(a == a and (b != b or before(b, a)))
            for a, b in (_PAIRS if is_float else _PAIRS[:4])
        ):
            return by
    return None


def in_any_order(reduce: Instruction) -> Computation | None:
    """A copy outside any module of the reducer of an argmin or argmax, by which the place is that of the fold from left
    to right in whatever order the elements are folded: of equal values, and of two NaN, the one with the less place, or
    with the greater one where the reducer takes the right one. None where the reducer does that itself, and for other
    operations. The result depends on the order still if there are NaN, but a reducer does not pick the first."""
    if len(reduce.operands) != 4 or reduce.ints("dimensions") != (counted_along(reduce.operands[1]),):
        return None
    value, place = (o.shape.type for o in reduce.operands[:2])
    reducer = reduce.called_by("to_apply")
    pairs = _PAIRS if value.is_float else _PAIRS[:4]
    there, back = ([_picked(reducer, a, b, places) for a, b in pairs] for places in ((0, 1), (1, 0)))
    if None in (*there, *back) or there[1] == there[2] or (there[0], back[0]) != (there[3], back[3]):
        return None
    by_place = [one == other for one, other in zip(there, back, strict=True)]
    of_ties = (by_place[0], by_place[-1])  # of numbers, and of NaN
    if any(by_place[1:3]) or any(by_place[4:6]) or all(of_ties):
        return None
    writer = Writer(reducer.name)
    a, i, b, j = (writer.parameter(n, array(place if n % 2 else value)) for n in range(4))

    def says(left: Instruction, direction: str, right: Instruction) -> Instruction:
        return writer.emit("compare", array(PRED), left, right, direction=direction)

    wins = says(a, "GT" if there[1] else "LT", b)  # the right one of 0 and 1
    cases = [(says(a, "EQ", b), says(i, "GT" if there[0] else "LT", j))]
    if value.is_float and not all(there[4:]):
        none, other = says(a, "NE", a), says(b, "NE", b)
        if not there[4]:
            cases.append((none, writer.emit("not", array(PRED), other)))
        if not there[5]:
            cases.append((writer.emit("not", array(PRED), none), other))
        cases.append((writer.binary("and", none, other), says(i, "GT" if there[6] else "LT", j)))
    left = functools.reduce(lambda known, case: writer.binary("or", known, writer.binary("and", *case)), cases, wins)
    kept = [writer.emit("select", one.shape, left, one, other) for one, other in ((a, b), (i, j))]
    edit.set_root(writer.computation, edit.create_tuple(writer.computation, kept))
    return writer.computation


def _picked(reducer: Computation, left: float, right: float, places: tuple[int, int]) -> int | None:
    """Which of its places a reducer picks, of one value at the first place and another at the second; None if it does
    anything but to compare and select."""
    arguments = (left, places[0], right, places[1])
    known: dict[Instruction, float] = {}
    for i in reducer.instructions:
        operands = [known.get(o) for o in i.operands]
        if i.parameter_number is not None:
            known[i] = arguments[i.parameter_number]
        elif tuple_elements(i) is not None:
            continue
        elif None in operands:
            return None
        elif i.opcode == "compare" and i.word("type") != "TOTALORDER":
            known[i] = bool(RELATIONS[i.word("direction")](*operands))
        elif i.opcode in ("and", "or") and i.shape.type == PRED:
            known[i] = (all if i.opcode == "and" else any)(operands)
        elif i.opcode == "not" and i.shape.type == PRED:
            known[i] = not operands[0]
        elif i.opcode == "select":
            test, one, other = operands
            known[i] = one if test else other  # type: ignore[assignment]  # none is None
        else:
            return None
    ends = tuple_elements(reducer.root)
    if ends is None or len(ends) != 2:
        return None
    value, place = (known.get(end) for end in ends)
    if place not in (0, 1) or value is None:
        return None
    wanted = left if place == places[0] else right
    return int(place) if value == wanted or (value != value and wanted != wanted) else None
