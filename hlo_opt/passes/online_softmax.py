"""A long row's maximum and its sum of exponentials in one reading: the sum is rescaled whenever the maximum grows.

Rows that the registers of a block hold are read once whatever is folded of them. Longer ones are read for each level of folds: a softmax of 131,072 takes the maximum, the sum, and what it
writes, three readings; folded together, the first two are one. Source: M. Milakov and N. Gimelshein, "Online normalizer calculation for softmax", 2018.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from hlo_opt.ir import Called, Computation, Instruction, Module, Shape, edit
from hlo_opt.ir.element_type import F32, F64
from hlo_opt.ir.index_map import variable
from hlo_opt.ir.walk import executed_computations
from hlo_opt.ops.reduction.reducers import monoid, starts_with_identity
from hlo_opt.ops.sets import fused
from hlo_opt.passes.base import Pass, PassContext
from hlo_opt.passes.expansion import Writer
from hlo_opt.plans import Plan, plan, region_of, row_reduction
from hlo_opt.plans.columns import MOST_THREADS
from hlo_opt.plans.element_reads import depending_on, heroes_read
from hlo_opt.plans.folding import operand_index, result_index
from hlo_opt.plans.price import price

LONGEST_KEPT = row_reduction.MOST_KEPT * MOST_THREADS
"""Elements of a row that registers of a block hold."""
_MOVES = frozenset({"broadcast", "reshape", "bitcast", "copy"})


@dataclass(frozen=True)
class OnlineSoftmax(Pass):
    """Inside kernels, fold the maximum of a long row and the sum of exponentials below it as one, where the price of the plan says so. The values stay the same up to rounding."""

    name: ClassVar[str] = "online-softmax"
    preserves: ClassVar[Literal["graph", "meaning"]] = "meaning"

    def run(self, module: Module, context: PassContext) -> bool:
        changed = False
        target = context.options.target
        for computation in list(executed_computations(module)):
            for fusion in computation.instructions:
                body = fused(fusion)
                if body is None or not any(_levels(body)) or fusion.word("kind") == "kCustom":
                    continue
                made = edit.clone_computation(body)
                reducers: dict[Shape, Computation] = {}
                for low, total in _levels(made):
                    _fold_together(low, total, reducers)
                edit.sort(made)
                candidate = Instruction(
                    "online", "fusion", fusion.shape, list(fusion.operands), {"calls": Called(made)}
                )
                us = []
                for kernel in (fusion, candidate):
                    found = plan(region_of(module, kernel), target)
                    us.append(price(found, target).us if isinstance(found, Plan) else np.inf)
                if us[1] < us[0] and context.step():
                    edit.set_attribute(fusion, "calls", Called(made))
                    edit.remove_computation(body)
                    changed = True
                else:
                    for unused in (made, *reducers.values()):
                        edit.remove_computation(unused)
        if changed:
            edit.sort_computations(module)
        return changed


def _levels(body: Computation) -> list[tuple[Instruction, Instruction]]:
    """The maxima of long rows, each with the sum of exponentials that needs it."""
    found: list[tuple[Instruction, Instruction]] = []
    for total in body.instructions:
        if total.opcode != "reduce" or not _folds(total, "add"):
            continue
        space = row_reduction.space_of(total)
        if space is None or space.reduced <= LONGEST_KEPT:
            continue
        low = _maximum_below(total)
        if low is not None and not any(low in pair for pair in found):
            found.append((low, total))
    return found


def _folds(reduce: Instruction, opcode: str) -> bool:
    return starts_with_identity(reduce) and monoid(reduce.called_by("to_apply")) == opcode


def _maximum_below(total: Instruction) -> Instruction | None:
    """The maximum of a sum's rows, where the sum is one of exp(x - maximum of x); None for any other."""
    value = total.operands[0]
    while value.opcode == "convert":
        value = value.operands[0]
    if value.opcode != "exponential" or value.operands[0].opcode != "subtract":
        return None
    x, low = value.operands[0].operands
    if total.shape.type not in (F32, F64) or not x.shape.type.is_float or x.shape.type.bits > total.shape.type.bits:
        return None
    start = low
    while low.opcode != "reduce":
        if low.opcode == "maximum" and any(map(_is_lowest, low.operands)):
            low = next(o for o in low.operands if not _is_lowest(o))
        elif low.opcode in _MOVES:
            low = low.operands[0]
        else:
            return None
    if low.operands[0] is not x or not _folds(low, "maximum") or low.ints("dimensions") != total.ints("dimensions"):
        return None
    space = row_reduction.space_of(low)
    if space is None or space != row_reduction.space_of(total):
        return None
    kept, reduced = variable("kept", space.kept), variable("reduced", space.reduced)
    over = depending_on(total.computation, [low])
    found = heroes_read([(start, operand_index(total, kept, reduced))], over, {low: result_index(low, kept)})
    return low if found == [low] else None


def _is_lowest(value: Instruction) -> bool:
    """Whether all elements are -inf."""
    while value.opcode in _MOVES:
        value = value.operands[0]
    return value.literal is not None and not value.literal.is_elided and bool(np.all(np.asarray(value.literal.value) == -np.inf))  # fmt: skip


def _fold_together(low: Instruction, total: Instruction, reducers: dict[Shape, Computation]) -> None:
    """Let both be results of one fold."""
    writer, x, kind = Writer(total.computation), low.operands[0], total.shape.type
    scalar = Shape(kind)
    if scalar not in reducers:
        reducers[scalar] = _reducer(total.computation, scalar)
    wide = x if x.shape.type == kind else writer.emit("convert", x.shape.with_type(kind), x)
    ones = writer.emit("broadcast", wide.shape, writer.scalar(kind, 1), dimensions=())
    shape = Shape.tuple_of(low.shape.with_type(kind), total.shape)
    operands = (wide, ones, writer.scalar(kind, -np.inf), writer.scalar(kind, 0))
    attributes = {"dimensions": total.attributes["dimensions"], "to_apply": Called(reducers[scalar])}
    both = edit.create(total.computation, "online", "reduce", shape, operands, attributes)
    highest, rest = (writer.element(both, n) for n in range(2))
    # where the maximum is infinite, exp(x - maximum) is no number somewhere in the row
    none = writer.emit("subtract", highest.shape, highest, highest)
    whole = writer.emit(
        "add", total.shape, rest, none if none.shape == total.shape else writer.reshape(none, total.shape)
    )
    for old, new in ((low, writer.convert(highest, low.shape.type)), (total, whole)):
        edit.replace_all_uses(old, new)
        edit.remove(old)


def _reducer(beside: Computation, scalar: Shape) -> Computation:
    """Of two parts of a row, each its maximum and its sum below that, those of both. Of the exponentials of both differences to the new maximum one is always 1."""
    module = beside.module
    assert module is not None
    made = edit.new_computation(module, "online_softmax")
    writer = Writer(made)
    a, b, c, d = (edit.create(made, f"p{k}", "parameter", scalar, parameter_number=k) for k in range(4))
    apart = writer.emit("negate", scalar, writer.emit("abs", scalar, writer.emit("subtract", scalar, a, c)))
    one = writer.scalar(scalar.type, 1)
    less = writer.select(writer.compare("EQ", a, c), one, writer.emit("exponential", scalar, apart))
    is_first = writer.compare("GE", a, c)
    first = writer.emit("multiply", scalar, b, writer.select(is_first, one, less))
    second = writer.emit("multiply", scalar, d, writer.select(is_first, less, one))
    results = (writer.emit("maximum", scalar, a, c), writer.emit("add", scalar, first, second))
    edit.create_tuple(made, results, root=True)
    return made
