"""Reduces of dimensions that lie apart, between kept ones, in two, where no kernel walks rows or columns of them: one
thread for each result would fold all of it by itself.

A group norm of an image reduces the pixels and a few channels of each group. The longest run of reduced dimensions is
folded first, as columns or rows, and the short rest after it, which reads what little is left. The same elements are
folded; HLO leaves their order open. Source of the idea: xla/backends/gpu/transforms/reduction_splitter.cc.

A reduce of an array that another one has folded along some of the same dimensions goes on from its result. So does one
of other values that come from the same array: the gradient of a group norm's scale sums all images, and that of its
input each image, so that both are folded in one reading, image by image.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import ClassVar
from typing import Literal as OneOf

import numpy as np

from hlo_opt.ir import Attribute, Called, Computation, Instruction, Layout, Shape, edit
from hlo_opt.ir.walk import post_order
from hlo_opt.ops.reduction.reducers import monoid, running_types, starts_with_identity
from hlo_opt.ops.sets import is_elementwise
from hlo_opt.passes.base import PassContext, RewritingPass
from hlo_opt.passes.expansion import BroadcastingWriter, scalar_reducer
from hlo_opt.plans.row_reduction import may_be_reordered, space_of

SHORTEST = 9
"""Elements of the shortest run that is worth a kernel of its own, as in XLA."""
LEAST_SHARE = 64
"""Elements of a result that are worth a kernel more: a launch takes longer than one thread needs for fewer."""
MOST_SEEN = 64
"""The most values above a reduce that are followed to the arrays that it reads."""
_MOVES_NOTHING = ("reshape", "bitcast", "copy")
LEAST = 1 << 15
"""Elements of an array that is read in two kernels whatever the share of a thread is: the runs are read in order."""


@dataclass(frozen=True)
class ReductionSplitter(RewritingPass):
    """Split reduces of dimensions that lie apart, and those beside a reduce of fewer dimensions, and let a reduce go on
    from another one. The values stay the same up to rounding; the graph does not."""

    name: ClassVar[str] = "reduction-splitter"
    preserves: ClassVar[OneOf["graph", "meaning"]] = "meaning"
    simplifies: ClassVar[bool] = True

    def rewrites(self, computation: Computation, context: PassContext) -> Iterator[Callable[[], object]]:
        for reduce in [i for i in computation.instructions if i.opcode == "reduce"]:
            first = longest_run(reduce)
            if first is not None:
                yield partial(put_two, reduce, first)
        for reduce in [i for i in computation.instructions if i.opcode == "reduce"]:
            begun = begun_by(reduce)
            if begun is not None:
                yield partial(_go_on, reduce, begun)
        for reduce, first in beside_shorter(computation):
            yield partial(put_two, reduce, first)


def longest_run(reduce: Instruction) -> tuple[int, ...] | None:
    """The reduced dimensions of the longest run in memory, where the reduce is worth splitting: its init value is the
    identity, since both parts start with it, and no row kernel takes it as it is. XLA's row kernel takes rows of any
    length with a run above them (`reduction_form`); ours takes none that are shorter than a warp."""
    value = reduce.operands[0].shape
    share = value.element_count // max(1, reduce.shape.element_count if reduce.shape.is_array else 1)
    if (value.element_count < LEAST and share < LEAST_SHARE) or space_of(reduce) is not None:
        return None
    return longest_of_runs(reduce)


def longest_of_runs(reduce: Instruction) -> tuple[int, ...] | None:
    """The reduced dimensions of the longest of several runs in memory; None where there is one, where it is short, or
    where the reduce may not be two."""
    value = reduce.operands[0].shape
    if not _may_be_parted(reduce) or not may_be_reordered(reduce):
        return None
    sizes, folded = value.dimensions, reduce.ints("dimensions")
    in_order = [d for d in value.minor_to_major if sizes[d] != 1]
    runs = [tuple(run) for is_folded, run in itertools.groupby(in_order, lambda d: d in folded) if is_folded]
    if len(runs) < 2:
        return None
    longest = max(runs, key=lambda run: math.prod(sizes[d] for d in run))
    return tuple(sorted(longest)) if math.prod(sizes[d] for d in longest) >= SHORTEST else None


def beside_shorter(computation: Computation) -> list[tuple[Instruction, tuple[int, ...]]]:
    """The reduces of a run of dimensions that read an array of which another one, at the same level, folds only the
    later dimensions of this run; each with those. One kernel folds them for both."""
    levels: dict[Instruction, int] = {}
    arrays: dict[Instruction, set[Instruction]] = {}
    for i in post_order(computation):
        levels[i] = max((levels[o] for o in i.operands), default=0) + (i.opcode == "reduce")
        if i.opcode == "reduce" and _is_of_columns(i):
            arrays[i] = _arrays(i)
    around: dict[tuple[Instruction, int], set[tuple[int, int]]] = defaultdict(set)
    for reduce, read in arrays.items():
        for array in read:
            around[array, levels[reduce]].add(_around(reduce, 0))
    found = []
    for reduce, read in arrays.items():
        folded = sorted(reduce.ints("dimensions"))
        others = set[tuple[int, int]]().union(*(around[array, levels[reduce]] for array in read))
        whole = _around(reduce, 0)
        cuts = (n for n in range(1, len(folded)) if whole != _around(reduce, n) in others)
        found += [(reduce, tuple(folded[n:])) for n in itertools.islice(cuts, 1)]
    return found


def _is_of_columns(reduce: Instruction) -> bool:
    """Whether a reduce folds a run of dimensions of a large row-major array, but not the last."""
    shape, folded = reduce.operands[0].shape, sorted(reduce.ints("dimensions"))
    if not _may_be_parted(reduce) or not may_be_reordered(reduce) or shape.element_count < LEAST or not folded:
        return False
    if shape.minor_to_major != tuple(range(shape.rank))[::-1]:
        return False
    return folded == list(range(folded[0], folded[-1] + 1)) and folded[-1] < shape.rank - 1


def _around(reduce: Instruction, cut: int) -> tuple[int, int]:
    """The elements of the dimensions before the folded ones, `cut` of which are counted to these, and after them."""
    sizes, folded = reduce.operands[0].shape.dimensions, sorted(reduce.ints("dimensions"))
    return math.prod(sizes[: folded[cut]]), math.prod(sizes[folded[-1] + 1 :])


def _arrays(reduce: Instruction) -> set[Instruction]:
    """The arrays of its operand's size that a reduce reads, if all that is elementwise is computed for it."""
    count = reduce.operands[0].shape.element_count
    seen, stack, arrays = set[Instruction](), [reduce.operands[0]], set[Instruction]()
    while stack and len(seen) < MOST_SEEN:
        value = stack.pop()
        if value in seen or not value.shape.is_array or value.shape.element_count != count:
            continue
        seen.add(value)
        if is_elementwise(value) or value.opcode in _MOVES_NOTHING:
            stack += value.operands
        elif value.opcode != "broadcast":
            arrays.add(value)
    return arrays


def begun_by(reduce: Instruction) -> Instruction | None:
    """The reduce that has folded the same large array in the same way along the most of the dimensions, but not all;
    None where its result is rounded more than one sum of all."""
    value = reduce.operands[0]
    if not _may_be_parted(reduce) or value.shape.element_count < LEAST:
        return None
    how, dimensions = monoid(reduce.called_by("to_apply")), set(reduce.ints("dimensions"))
    if reduce.shape.type.is_narrow_float and how not in ("maximum", "minimum"):
        return None
    begun = [
        user
        for user in value.users
        if user.opcode == "reduce"
        and set(user.ints("dimensions")) < dimensions
        and _may_be_parted(user)
        and user.operands[0] is value
        and user.shape.type == reduce.shape.type
        and monoid(user.called_by("to_apply")) == how
    ]
    return max(begun, key=lambda user: len(user.ints("dimensions")), default=None)


def _may_be_parted(reduce: Instruction) -> bool:
    """Whether a reduce of one array of known sizes starts with the identity, so that each of two parts may."""
    if not reduce.shape.is_array or any(reduce.operands[0].shape.dynamic) or reduce.control_predecessors:
        return False
    return starts_with_identity(reduce)


def _go_on(reduce: Instruction, begun: Instruction) -> None:
    """Fold what another reduce has left of the same array."""
    kept = [d for d in range(reduce.operands[0].shape.rank) if d not in begun.ints("dimensions")]
    rest = tuple(kept.index(d) for d in reduce.ints("dimensions") if d in kept)
    attributes = {**reduce.attributes, "dimensions": Attribute.of(rest)}
    operands = (begun, reduce.operands[1])
    total = edit.create(reduce.computation, reduce.name, "reduce", reduce.shape, operands, attributes)
    edit.inherit(total, reduce)
    edit.replace_all_uses(reduce, total)
    edit.remove(reduce)


def put_two(reduce: Instruction, first: tuple[int, ...]) -> Instruction:
    """Put two reduces in the place of one, and return that of the dimensions `first`. Narrow floats are f32 from it to
    the result, which is rounded once."""
    writer, value = BroadcastingWriter(reduce.computation), reduce.operands[0]
    (wide,) = running_types(reduce)
    literal = reduce.operands[1].literal
    assert literal is not None  # the identity
    start = writer.scalar(wide, np.asarray(literal.value).reshape(-1)[0])
    called = Called(scalar_reducer(reduce.computation, str(monoid(reduce.called_by("to_apply"))), Shape(wide)))
    kept = [d for d in range(value.shape.rank) if d not in first]
    order = tuple(kept.index(d) for d in value.shape.minor_to_major if d in kept)
    middle = Shape(wide, tuple(value.shape.dimensions[d] for d in kept), Layout(order))
    rest = tuple(kept.index(d) for d in reduce.ints("dimensions") if d in kept)

    def fold(x: Instruction, shape: Shape, dimensions: tuple[int, ...]) -> Instruction:
        attributes: dict[str, Attribute | Called] = {"dimensions": Attribute.of(dimensions), "to_apply": called}
        result = edit.create(reduce.computation, "reduce", "reduce", shape, (x, start), attributes)
        edit.inherit(result, reduce)
        return result

    part = fold(writer.convert(value, wide), middle, first)
    whole = fold(part, Shape(wide, reduce.shape.dimensions, reduce.shape.layout), rest)
    edit.replace_all_uses(reduce, writer.convert(whole, reduce.shape.type))
    edit.remove(reduce)
    return part
