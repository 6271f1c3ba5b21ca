"""Reducers: associative and commutative computations with an identity, for reduce, reduce-window, scan, scatter and
select-and-scatter.

HLO leaves the order of a reduction open, and how often its init value goes in. So reducers are associative and
commutative, sums and products of floats are compared with a tolerance, and the init value is the reducer's identity.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hlo_opt.ir import Called, ElementType, Shape
from random_modules.comparable.known import Known, Number, largest, limits, wrapped
from random_modules.comparable.writer import PRED, S32, Writer


@dataclass(frozen=True)
class Reducer:
    """`interval` is what operands must lie in, and `after` what a fold of so many values lies in."""

    computation: Called
    identity: Number
    interval: tuple[Number, Number]
    after: Callable[[Known, int], Known]


def _extreme(element_type: ElementType, sign: int) -> Number:
    """The identity of minimum (1) and maximum (-1)."""
    if element_type.is_float:
        return sign * float("inf")
    return limits(element_type)[sign > 0]


def reducer(w: Writer, element_type: ElementType, *, plain: bool = False, most: int = 1 << 30) -> Reducer:
    """A drawn reducer; `most` is how many values it will fold, `plain` ones are those of every collective."""
    least, greatest = limits(element_type)
    if element_type.kind == "pred":
        opcode = w.pick(("and", "or"))
        made = w.scalar_function(opcode, element_type)
        return Reducer(made, opcode == "and", (0, 1), lambda known, count: Known(0, 1, True))
    kinds = [
        "add",
        "maximum",
        "minimum",
        *(() if plain else ("chosen",)),
        *(("and", "or", "xor", "multiply") if element_type.is_integer and not plain else ()),
    ]
    if most <= 64 and not element_type.is_integer:
        kinds.append("multiply")
    kind = w.pick(kinds if not element_type.is_complex else ("add",))
    if kind in ("maximum", "minimum", "chosen"):
        computation = _chosen(w, element_type) if kind == "chosen" else w.scalar_function(kind, element_type)
        identity = _extreme(element_type, 1 if kind == "minimum" else -1)
        return Reducer(
            computation, identity, (least, greatest), lambda known, count: _with_identity(known, element_type)
        )
    computation = w.scalar_function(kind, element_type)
    if element_type.is_integer:
        identity = {"add": 0, "multiply": 1, "and": -1 if least < 0 else greatest, "or": 0, "xor": 0}[kind]
        return Reducer(computation, identity, (least, greatest), lambda known, count: Known(least, greatest, True))
    if kind == "multiply":
        return Reducer(computation, 1, (0.9, 1.1), lambda known, count: Known(0.0, 500.0, False))
    return Reducer(computation, 0, (least, greatest), _summed)


def _summed(known: Known, count: int) -> Known:
    bound = largest(known) * max(count, 1)
    return Known(-bound, bound, False)


def _with_identity(known: Known, element_type: ElementType) -> Known:
    """An empty fold gives the identity, which may be infinite: the clamp of later uses makes it finite."""
    least, greatest = limits(element_type)
    if element_type.is_integer:
        return wrapped(element_type, least, greatest)
    return Known(-float("inf"), float("inf"), known.exact)


def _chosen(w: Writer, element_type: ElementType) -> Called:
    """The maximum, spelled with compare and select: no operation that is recognised."""
    scalar = Shape(element_type)
    with w.computation([scalar, scalar], [Known(0, 0, False)] * 2) as (left, right):
        greater = w.emit("compare", PRED, [left, right], direction="GT")
        return w.finish(w.emit("select", scalar, [greater, left, right]))


def argument_of_maximum(w: Writer, element_type: ElementType) -> Called:
    """(value, index) of the greatest value; of equal ones that with the least index."""
    value, index = Shape(element_type), S32
    with w.computation([value, index, value, index], [Known(0, 0, False)] * 4) as parameters:
        a, i, b, j = parameters
        greater = w.emit("compare", PRED, [a, b], direction="GT")
        equal = w.emit("compare", PRED, [a, b], direction="EQ")
        before = w.emit("compare", PRED, [i, j], direction="LT")
        first = w.emit("or", PRED, [greater, w.emit("and", PRED, [equal, before])])
        best = w.emit("select", value, [first, a, b])
        where = w.emit("select", index, [first, i, j])
        return w.finish(w.emit("tuple", Shape.tuple_of(value, index), [best, where]))
