"""The fold of a maximum and of the sum of exponentials below it, which `hlo_opt.passes.online_softmax` makes of two.

Element by element it takes two exponentials: the sum is rescaled by each. Elements that a thread has together take one
each, and one more for all of them: their maximum is known before the first is added.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

from hlo_opt.ir import Called, Computation, ElementType, Instruction, array, edit
from hlo_opt.ir.element_type import PRED
from hlo_opt.ir.walk import match
from hlo_opt.ops.sets import keeps_values
from hlo_opt.ops.writer import Writer


@dataclass(frozen=True)
class Together:
    """The steps of a fold of several elements x, from the maximum m and the sum s of those before.

    highest  (m, x) -> the greater one, for each element
    base     (m) -> what is subtracted: the maximum, or 0 where it is infinite or no number; the sum is then unused, or
             one of elements that are all -inf
    rescale  (s, m, base) -> the sum so far, below the new base
    add      (s, x, base) -> the sum with an element
    """

    highest: Computation
    base: Computation
    rescale: Computation
    add: Computation


def together(reduce: Instruction) -> Together | None:
    """The steps for several elements at a time; None unless the fold is one of a maximum and of exponentials, which
    starts with no element and counts each element once."""
    if len(reduce.operands) != 4 or not is_online(reduce.called_by("to_apply")):
        return None
    _, counts, low, zero = reduce.operands
    if _number(counts) != 1 or _number(low) != -math.inf or _number(zero) != 0:
        return None
    return _steps(counts.shape.type)


@functools.cache
def _steps(kind: ElementType) -> Together:
    scalar = array(kind)

    def finish(writer: Writer, root: Instruction) -> Computation:
        edit.set_root(writer.computation, root)
        return writer.computation

    def power(writer: Writer, x: Instruction, base: Instruction) -> Instruction:
        return writer.emit("exponential", scalar, writer.binary("subtract", x, base))

    highest, base, rescale, add = (Writer(name) for name in ("highest", "base", "rescale", "add"))
    greater = highest.binary("maximum", highest.parameter(0, scalar), highest.parameter(1, scalar))
    m = base.parameter(0, scalar)
    chosen = base.emit("select", scalar, base.emit("is-finite", array(PRED), m), m, base.number(kind, 0))
    s, before, now = (rescale.parameter(n, scalar) for n in range(3))
    scaled = rescale.binary("multiply", s, power(rescale, before, now))
    total, x, below = (add.parameter(n, scalar) for n in range(3))
    added = add.binary("add", total, power(add, x, below))
    return Together(finish(highest, greater), finish(base, chosen), finish(rescale, scaled), finish(add, added))


def is_online(reducer: Computation) -> bool:
    """Whether a reducer joins (maximum, sum of exponentials below it) of two parts, as `online_reducer` writes it."""
    if len(reducer.parameters) != 4 or len({p.shape for p in reducer.parameters}) != 1:
        return False
    shape = reducer.parameters[0].shape
    is_number = shape.is_array and not shape.rank and shape.type.is_float
    return is_number and _same(reducer.root, _model(shape.type).root)


@functools.cache
def _model(kind: ElementType) -> Computation:
    computation = Computation("online_softmax")
    online_reducer(Writer("online_softmax", computation), kind)
    return computation


def online_reducer(writer: Writer, kind: ElementType) -> None:
    """Write the reducer: from the maximum and the sum below it of two parts, those of both. Of the exponentials of the
    two differences to the new maximum one is always 1."""
    scalar = array(kind)
    a, b, c, d = (writer.parameter(n, scalar) for n in range(4))
    apart = writer.emit("negate", scalar, writer.emit("abs", scalar, writer.binary("subtract", a, c)))
    one = writer.number(kind, 1)
    power = writer.emit("exponential", scalar, apart)
    less = writer.emit("select", scalar, writer.emit("compare", array(PRED), a, c, direction="EQ"), one, power)
    is_first = writer.emit("compare", array(PRED), a, c, direction="GE")
    first = writer.binary("multiply", b, writer.emit("select", scalar, is_first, one, less))
    second = writer.binary("multiply", d, writer.emit("select", scalar, is_first, less, one))
    both = (writer.binary("maximum", a, c), writer.binary("add", first, second))
    edit.set_root(writer.computation, edit.create_tuple(writer.computation, both))


def _same(value: Instruction, model: Instruction) -> bool:
    """Whether two values are computed alike."""

    def below(one: Instruction, other: Instruction) -> list[tuple[Instruction, Instruction]] | None:
        alike = one.opcode == other.opcode and one.shape == other.shape and len(one.operands) == len(other.operands)
        if not alike or one.parameter_number != other.parameter_number or _number(one) != _number(other):
            return None
        if one.attributes.get("direction") != other.attributes.get("direction"):
            return None
        if any(isinstance(v, Called) for v in one.attributes.values()):
            return None
        return list(zip(one.operands, other.operands, strict=True))

    return match(value, model, below)


def _number(value: Instruction) -> float | None:
    """The number that all elements are, where that is known."""
    while keeps_values(value, frozenset({"broadcast"})):
        value = value.operands[0]
    literal = value.literal
    if literal is None or literal.is_elided or value.shape.rank:
        return None
    return float(literal.value)  # type: ignore[arg-type]  # an array of one float
