"""Scatters that add updates to zeros, and whose result is added to an array: the updates are added to that array.
Scatters into each other's results become one of all updates.

The gradient of an embedding table is a scatter into zeros, which the optimizer adds to its momentum. Without the zeros
a table is written and read less. XLA does so for all types (AlgebraicSimplifierVisitor::HandleAdd in
xla/hlo/transforms/simplifiers/algebraic_simplifier.cc); here sums of narrow floats are left, where each of many small
updates would be rounded away beside a large element.

The gradient of a table that is read at several places of each element, as the corners of a cell are in a hash encoding,
is a chain of scatters. One scatter of all updates is one launch; the order in which a scatter brings its updates is
open. XLA merges the scatters of a sum likewise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, Literal

from hlo_opt.analysis.targets import DeviceTarget
from hlo_opt.ir import Attribute, Computation, Instruction, Shape, array, edit
from hlo_opt.ops.indexing.gather_dimensions import scatter_dimensions
from hlo_opt.ops.reduction.reducers import monoid
from hlo_opt.ops.sets import SIGNS, combines_updates
from hlo_opt.passes.base import PassContext, RewritingPass
from hlo_opt.passes.simplify.reading import is_number

MOST = 16
"""Scatters that become one: kernels of more parts than that take long to decide on, and save little."""


@dataclass(frozen=True)
class ScatterAccumulation(RewritingPass):
    """Replace x + scatter(zeros, updates) by a scatter of the updates into x, and scatters into the results of others
    by one scatter of all updates. The values stay the same up to rounding."""

    name: ClassVar[str] = "scatter-accumulation"
    preserves: ClassVar[Literal["graph", "meaning"]] = "meaning"
    simplifies: ClassVar[bool] = True

    def rewrites(self, computation: Computation, context: PassContext) -> Iterator[Callable[[], object]]:
        module, target = computation.module, context.options.target
        assert module is not None
        awaited = {before for i in computation.instructions for before in i.control_predecessors}
        for i in [i for i in computation.instructions if SIGNS.get(i.opcode) == 1]:
            scatters = next(filter(None, map(_into_zeros, i.operands)), [])
            if scatters and awaited.isdisjoint((i, *scatters)) and not i.control_predecessors:
                yield partial(_put, i, scatters)
        if computation is module.entry and not target.in_lanes:  # launches inside a loop may go away with it
            for chain in _chains(computation, awaited, target):
                yield partial(_merge, chain)


def _into_zeros(value: Instruction) -> list[Instruction]:
    """The scatters of sums that a value is, the last first: each goes into the result of the one before, the first into
    zeros, and nothing else reads them. None for other values."""
    scatters: list[Instruction] = []
    while _adds(value):
        scatters.append(value)
        value = value.operands[0]
    return scatters if is_number(value, 0) else []


def _adds(scatter: Instruction) -> bool:
    """Whether a value is a scatter of sums with one user, which reads it once."""
    if not combines_updates(scatter) or len(scatter.operands) != 3 or scatter.control_predecessors or scatter.is_root:
        return False
    shape, users = scatter.shape, list(scatter.users)
    if any(shape.dynamic) or len(users) != 1 or users[0].operands.count(scatter) != 1:
        return False
    if shape.type.is_narrow_float or monoid(scatter.called_by("to_apply")) != "add":
        return False
    return shape.same_bytes(users[0].shape)


def _put(total: Instruction, scatters: list[Instruction]) -> None:
    last, first = scatters[0], scatters[-1]
    (other,) = [o for o in total.operands if o is not last]
    edit.set_operands(first, [other, *first.operands[1:]])
    for scatter in scatters:
        edit.set_shape(scatter, total.shape)
    edit.redirect_users(total, last)
    edit.remove(total)


def _chains(computation: Computation, awaited: set[Instruction], target: DeviceTarget) -> Iterator[list[Instruction]]:
    """Scatters of which each but the first goes into the result of the one before, which nobody else reads, or awaits
    (`awaited`)."""
    light = dict.fromkeys(i for i in computation.instructions if i not in awaited and _is_light(i, target))
    following: dict[Instruction, Instruction] = {}
    for i in light:
        before = i.operands[0]
        if before not in light or before.is_root or list(before.users) != [i] or i.operands.count(before) != 1:
            continue
        if _alike(before, i):
            following[before] = i
    later = set(following.values())
    for first in following:
        if first not in later:
            chain = [first]
            while chain[-1] in following:
                chain.append(following[chain[-1]])
            for k in range(0, len(chain) - 1, MOST):
                yield chain[k : k + MOST]


def _is_light(scatter: Instruction, target: DeviceTarget) -> bool:
    """Whether it is a scatter whose updates take less time to write and read again, should a kernel of their own put
    them behind others, than a launch takes; they need not come in an order or to different places."""
    if not combines_updates(scatter) or len(scatter.operands) != 3 or scatter.control_predecessors:
        return False
    if any(any(o.shape.dynamic) or not o.shape.element_count for o in scatter.operands):
        return False
    if monoid(scatter.called_by("to_apply")) is None or scatter.value("indices_are_sorted", False) is True:
        return False
    moved = 2 * sum(o.shape.byte_size for o in scatter.operands[1:])
    return _row(scatter) is not None and moved * 1e6 / target.memory_bandwidth < target.kernel_launch_us


def _row(scatter: Instruction) -> tuple[int, int] | None:
    """The first dimension of the indices that counts updates, and that of the updates; None where there is none."""
    numbers, indices = scatter_dimensions(scatter), scatter.operands[1].shape
    counting = [d for d in range(indices.rank) if d != numbers.index_vector_dim]
    updates = [d for d in range(scatter.operands[2].shape.rank) if d not in numbers.offset_dims]
    found = zip(counting, updates, strict=True)
    return next((pair for pair in found if pair[0] not in numbers.batching.indices_dims), None)


def _alike(one: Instruction, other: Instruction) -> bool:
    """Whether two scatters differ in the number of their updates alone."""
    if scatter_dimensions(one) != scatter_dimensions(other) or not one.shape.same_bytes(other.shape):
        return False
    if monoid(one.called_by("to_apply")) != monoid(other.called_by("to_apply")):
        return False
    places = zip((_row(one) or ()), one.operands[1:], other.operands[1:], strict=True)
    return all(_without(a.shape, d) == _without(b.shape, d) for d, a, b in places)


def _without(shape: Shape, dimension: int) -> tuple[object, ...]:
    """What arrays have in common that can stand behind each other."""
    sizes = (*shape.dimensions[:dimension], *shape.dimensions[dimension + 1 :])
    return shape.type, sizes, shape.minor_to_major


def _merge(chain: list[Instruction]) -> None:
    """One scatter in place of the last of a chain, into what the first goes into."""
    first, last, row = chain[0], chain[-1], _row(chain[0])
    assert row is not None
    rows, updates = ([i.operands[k] for i in chain] for k in (1, 2))
    joined = [_behind_each_other("rows", rows, row[0], last), _behind_each_other("updates", updates, row[1], last)]
    edit.set_operands(last, [first.operands[0], *joined])
    if last.value("unique_indices", False) is True:
        edit.set_attribute(last, "unique_indices", Attribute.of(False))
    for i in reversed(chain[:-1]):
        edit.remove(i)


def _behind_each_other(wish: str, parts: list[Instruction], dimension: int, reader: Instruction) -> Instruction:
    """Arrays behind each other along a dimension, in their own layout."""
    sizes = list(parts[0].shape.dimensions)
    sizes[dimension] = sum(p.shape.dimensions[dimension] for p in parts)
    shape = replace(array(parts[0].shape.type, *sizes), layout=parts[0].shape.layout)
    made = edit.create(
        reader.computation, wish, "concatenate", shape, parts, {"dimensions": Attribute.of((dimension,))}
    )
    edit.inherit(made, reader)
    return made
