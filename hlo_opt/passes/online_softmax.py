"""A long row's maximum and its sum of exponentials in one reading: the sum is rescaled whenever the maximum grows.

Rows that the registers of a block hold are read once whatever is folded of them. Longer ones are read for each level of
folds: a softmax of 131,072 takes the maximum, the sum, and what it writes, three readings; folded together, the first
two are one. The same holds for long columns, which no registers hold. Source: M. Milakov and N. Gimelshein, "Online
normalizer calculation for softmax", 2018.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal

import numpy as np

from hlo_opt.ir import Called, Computation, Instruction, Shape, edit
from hlo_opt.ir.element_type import F32, F64, PRED
from hlo_opt.ir.index_map import variable
from hlo_opt.ops.reduction.online import online_reducer
from hlo_opt.ops.reduction.softmax import Exponentials, sums_of
from hlo_opt.ops.sets import fused
from hlo_opt.ops.writer import Writer
from hlo_opt.passes.base import PassContext, RewritingPass
from hlo_opt.passes.expansion import BroadcastingWriter
from hlo_opt.plans import Plan, column_reduction, plan, region_of, row_reduction
from hlo_opt.plans.columns import MOST_THREADS
from hlo_opt.plans.element_reads import depending_on, heroes_read
from hlo_opt.plans.folding import Space, operand_index, result_index
from hlo_opt.plans.price import price

LONGEST_KEPT = row_reduction.ROW_PER_THREAD * MOST_THREADS
"""Elements of a row that a block keeps with half of its registers. Of longer ones the price knows whether all of its
registers hold them, or those of several blocks."""
COLUMN_KEPT = 8 * row_reduction.MOST_KEPT
"""Elements of a column that registers of a block hold, with 32 threads for each four columns."""


@dataclass(frozen=True)
class OnlineSoftmax(RewritingPass):
    """Inside kernels, compute the maximum of a long row and the sum of its exponentials in one reading, where the
    plan's price is lower. The values stay the same up to rounding.

    columns  before fusion: do so for long columns, which do not stay in the cache until they are read again
    """

    name: ClassVar[str] = "online-softmax"
    preserves: ClassVar[Literal["graph", "meaning"]] = "meaning"

    columns: bool = False

    def rewrites(self, computation: Computation, context: PassContext) -> Iterator[Callable[[], object]]:
        if self.columns:
            target = context.options.target
            if target.in_lanes:
                return  # exponentials take a processor longer than another reading
            levels = _levels(computation, lambda sums: _long_column(sums, target.l2_cache_size))
            yield from (partial(_fold_together, exponentials, {}) for exponentials in levels)
            return
        for fusion in computation.instructions:
            body = fused(fusion)
            if body is None or not any(_levels(body, _long_row)) or fusion.word("kind") == "kCustom":
                continue
            computations = _folded(body)
            candidate = Instruction(
                "online", "fusion", fusion.shape, list(fusion.operands), {"calls": Called(computations[0])}
            )
            pays = _us(candidate, computation, context) < _us(fusion, computation, context)
            for tried in computations:
                edit.remove_computation(tried)
            if pays:
                yield partial(_put, fusion)


def _us(kernel: Instruction, computation: Computation, context: PassContext) -> float:
    assert computation.module is not None
    kernel_plan = plan(region_of(computation.module, kernel), context.options.target)
    return price(kernel_plan, context.options.target).us if isinstance(kernel_plan, Plan) else math.inf


def _put(fusion: Instruction) -> None:
    old = fusion.called_by("calls")
    edit.set_attribute(fusion, "calls", Called(_folded(old)[0]))
    edit.remove_computation(old)


def _folded(body: Computation) -> list[Computation]:
    """A copy of a kernel's computation with its levels folded together, and the new reducers."""
    clone = edit.clone_computation(body)
    reducers: dict[Shape, Computation] = {}
    for exponentials in _levels(clone, _long_row):
        _fold_together(exponentials, reducers)
    edit.sort(clone)
    return [clone, *reducers.values()]


def _levels(body: Computation, space_of: Callable[[Exponentials], Space | None]) -> list[Exponentials]:
    """The sums of exponentials below the maxima of long rows or columns, one for each maximum. `space_of` gives the
    space of a sum that is long enough."""
    levels: list[Exponentials] = []
    for exponentials in sums_of(body.instructions, any_order=True):
        space = space_of(exponentials)
        if space is None or not _is_of_one_row(exponentials, space):
            continue
        if not any(exponentials.highest is other.highest for other in levels):
            levels.append(exponentials)
    return levels


def _long_row(exponentials: Exponentials) -> Space | None:
    space = row_reduction.space_of(exponentials.highest)
    return space if space is not None and space.reduced > LONGEST_KEPT else None


def _long_column(exponentials: Exponentials, held: int) -> Space | None:
    """The space of columns that lie beside each other in more than `held` bytes. If nothing but the sum needs the
    exponentials, blocks can share the columns of one fold, and `held` is for all columns that registers do not hold."""
    space, x = column_reduction.space_of(exponentials.highest), exponentials.total.operands[0].shape
    if space is None:
        return None
    is_shared = space.reduced > COLUMN_KEPT and _ends_in_sums(exponentials)
    elements = space.elements if is_shared else space.reduced * space.minor
    return space if elements * x.type.bytes > held else None


def _ends_in_sums(exponentials: Exponentials) -> bool:
    """Whether the exponentials are computed for their sum only."""
    value, last = exponentials.total.operands[0], exponentials.powers.operands[0]
    while len(value.users) == 1 and not value.is_root:
        if value is last:
            return True
        value = value.operands[0]
    return False


def _is_of_one_row(exponentials: Exponentials, space: Space) -> bool:
    """Whether an element has the maximum of its own row subtracted, and sums are no narrower than what is summed."""
    total, x, low = exponentials.total, exponentials.x, exponentials.highest
    if total.shape.type not in (F32, F64) or not x.shape.type.is_float or x.shape.type.bits > total.shape.type.bits:
        return False
    if space not in (row_reduction.space_of(low), column_reduction.space_of(low)):
        return False
    kept, reduced = variable("kept", space.kept), variable("reduced", space.reduced)
    over = depending_on(total.computation.instructions, [low])
    own = {low: result_index(low, kept)}
    return heroes_read([(exponentials.moved, operand_index(total, kept, reduced))], over, own) == [low]


def _fold_together(exponentials: Exponentials, reducers: dict[Shape, Computation]) -> None:
    """Replace the maximum and the sum by the results of one fold."""
    low, total = exponentials.highest, exponentials.total
    writer, x, kind = BroadcastingWriter(total.computation), low.operands[0], total.shape.type
    scalar = Shape(kind)
    if scalar not in reducers:
        reducers[scalar] = _reducer(total.computation, scalar)
    wide = x if x.shape.type == kind else writer.emit("convert", x.shape.with_type(kind), x)
    ones = writer.emit("broadcast", wide.shape, writer.scalar(kind, 1), dimensions=())
    shape = Shape.tuple_of(low.shape.with_type(kind), total.shape)
    operands = (wide, ones, writer.scalar(kind, -np.inf), writer.scalar(kind, 0))
    attributes = {"dimensions": low.attributes["dimensions"], "to_apply": Called(reducers[scalar])}
    both = edit.create(total.computation, "online", "reduce", shape, operands, attributes)
    highest, rest = (writer.element(both, n) for n in range(2))
    top = highest if highest.shape == total.shape else writer.reshape(highest, total.shape)
    if exponentials.is_guarded:  # exp(x - 0) of a maximum that is not finite: no term is larger, or one is no number
        finite = writer.emit("is-finite", total.shape.with_type(PRED), top)
        whole = writer.select(finite, rest, writer.emit("exponential", total.shape, top))
    else:  # where the maximum is infinite, exp(x - maximum) is no number somewhere in the row
        none = writer.emit("subtract", total.shape, top, top)
        whole = writer.emit("add", total.shape, rest, none)
    for old, new in ((low, writer.convert(highest, low.shape.type)), (total, whole)):
        edit.replace_all_uses(old, new)
        edit.remove(old)


def _reducer(beside: Computation, scalar: Shape) -> Computation:
    """The reducer of the fold, in the module of a computation."""
    module = beside.module
    assert module is not None
    reducer = edit.new_computation(module, "online_softmax")
    online_reducer(Writer("online_softmax", reducer), scalar.type)
    return reducer
