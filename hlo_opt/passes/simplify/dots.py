"""Rules for products: of transposes, of arrays without elements, and without a sum."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from hlo_opt.ir import Attribute, Instruction, Shape, array, edit
from hlo_opt.ops.calls.call import call_of, described
from hlo_opt.ops.calls.strided import product_of
from hlo_opt.ops.contraction.table import DotDimensions
from hlo_opt.passes.simplify.reading import is_a, known
from hlo_opt.passes.simplify.rule import rule
from hlo_opt.passes.simplify.shapes import groups, is_rising
from hlo_opt.passes.simplify.site import Site

_OPEN = "the same products are added up; HLO leaves their order open"


def _is_plain(dot: Instruction) -> bool:
    """Whether the types of a product are those of its operands, and no algorithm is asked for."""
    return len(dot.operands) == 2 and "algorithm" not in dot.attributes and "sparsity" not in dot.attributes


def _is_view(transpose: Instruction) -> bool:
    """Whether a transpose keeps every element in its place in memory."""
    order, source = transpose.ints("dimensions"), transpose.operands[0].shape
    moved = tuple(order.index(d) for d in source.minor_to_major)
    return moved == transpose.shape.minor_to_major


@rule(
    "dot-of-transpose",
    "dot",
    "dot of a transpose = dot over the dimensions where they were, where libraries read it so",
    _OPEN,
    of="transpose",
)
def dot_of_transpose(i: Instruction, site: Site) -> Instruction | None:
    if len(i.operands) != 2:
        return None
    numbers = DotDimensions.of(i)
    for number, side in enumerate(i.operands):
        if not is_a(side, "transpose"):
            continue
        order = side.ints("dimensions")
        batch = numbers.rhs_batch if number else numbers.lhs_batch
        contracting = numbers.rhs_contracting if number else numbers.lhs_contracting
        free = numbers.free(side.shape.rank, right=bool(number))
        batch, contracting = tuple(order[d] for d in batch), tuple(order[d] for d in contracting)
        kept = tuple(order[d] for d in free)
        if not is_rising(kept) or not (_is_view(side) or _is_matrix(batch, contracting, kept)):
            continue
        name = ("lhs", "rhs")[number]
        operands = list(i.operands)
        operands[number] = side.operands[0]
        return site.again(i, operands, None, **{f"{name}_batch_dims": batch, f"{name}_contracting_dims": contracting})
    return None


def _is_matrix(batch: tuple[int, ...], contracting: tuple[int, ...], free: tuple[int, ...]) -> bool:
    """Whether dimensions in this order are matrices one after the other, as a library reads them."""
    rest = [*contracting, *free], [*free, *contracting]
    return any([*batch, *part] == list(range(len(batch) + len(part))) for part in rest)


def changes_sides(transpose: Instruction) -> bool:
    """Whether a transpose is a dot with its sides changed."""
    dot = transpose.operands[0]
    if not is_a(dot, "dot") or len(dot.users) > 1 or not _is_plain(dot):
        return False
    numbers, (left, right) = DotDimensions.of(dot), dot.operands
    batches, lefts = len(numbers.lhs_batch), len(numbers.free(left.shape.rank, right=False))
    wanted = (*range(batches), *range(batches + lefts, dot.shape.rank), *range(batches, batches + lefts))
    return transpose.ints("dimensions") == wanted and left.shape.type == right.shape.type


@rule(
    "transpose-of-dot",
    "transpose",
    "transpose of a dot that nobody else reads, which changes its sides = dot of the sides changed",
    "factors commute, and the same products are added up",
    of="dot",
)
def transpose_of_dot(i: Instruction, site: Site) -> Instruction | None:
    if not changes_sides(i):
        return None
    return _exchanged(i.operands[0], i.shape, site)


def _exchanged(dot: Instruction, shape: Shape, site: Site) -> Instruction:
    """The dot with its sides changed."""
    numbers, (left, right) = DotDimensions.of(dot), dot.operands
    exchanged = site.again(
        dot,
        [right, left],
        shape,
        lhs_batch_dims=numbers.rhs_batch,
        rhs_batch_dims=numbers.lhs_batch,
        lhs_contracting_dims=numbers.rhs_contracting,
        rhs_contracting_dims=numbers.lhs_contracting,
    )
    written = dot.attributes.get("operand_precision")
    if isinstance(written, Attribute):
        first, *rest = written.text.strip("{} ").split(",")
        edit.set_attribute(exchanged, "operand_precision", Attribute("{" + ",".join([*rest, first]) + "}"))
    return exchanged


@rule(
    "dot-of-exchanged",
    "dot",
    "dot of a dot that nobody else reads and libraries copy first = dot of that with its sides changed",
    "factors commute, and the same products are added up",
    of="dot",
)
def dot_of_exchanged(i: Instruction, site: Site) -> Instruction | None:
    products = [n for n, o in enumerate(i.operands) if is_a(o, "dot") and len(o.users) == 1 and _is_plain(o)]
    call = call_of(i) if products and len(i.operands) == 2 and i.shape.element_count else None
    if call is None or call.function != "gemm_call" or product_of(call) is not None:
        return None
    numbers = DotDimensions.of(i)
    batch, contracting = [numbers.lhs_batch, numbers.rhs_batch], [numbers.lhs_contracting, numbers.rhs_contracting]
    for number in products:
        dot = i.operands[number]
        of_dot, ranks = DotDimensions.of(dot), dot.shape.rank
        batches = len(of_dot.lhs_batch)
        middle = batches + len(of_dot.free(dot.operands[0].shape.rank, right=False))
        order = [*range(batches), *range(middle, ranks), *range(batches, middle)]
        if dot.operands[0].shape.type != dot.operands[1].shape.type:
            continue
        if not is_rising([order.index(d) for d in numbers.free(ranks, right=bool(number))]):
            continue
        shape = array(dot.shape.type, *(dot.shape.dimensions[d] for d in order))
        shapes, batch_dims, sums = list(call.shapes), list(batch), list(contracting)
        shapes[number] = described(shape)
        batch_dims[number] = tuple(order.index(d) for d in batch[number])
        sums[number] = tuple(order.index(d) for d in contracting[number])
        arguments = (tuple(batch_dims), tuple(sums), *call.arguments[2:])
        if product_of(replace(call, shapes=tuple(shapes), arguments=arguments)) is None:
            continue
        operands = list(i.operands)
        operands[number] = _exchanged(dot, shape, site)
        name = ("lhs", "rhs")[number]
        places = {f"{name}_batch_dims": batch_dims[number], f"{name}_contracting_dims": sums[number]}
        return site.again(i, operands, None, **places)
    return None


@rule("dot-of-nothing", "dot", "dot over no elements = 0 everywhere", "a sum of nothing is 0")
def dot_of_nothing(i: Instruction, site: Site) -> Instruction | None:
    if len(i.operands) != 2 or not i.shape.element_count or all(o.shape.element_count for o in i.operands):
        return None
    return site.full(i.shape, 0)


@rule(
    "dot-of-one",
    "dot",
    "dot over one element, or none at all = multiply",
    "a sum of one product is the product; HLO leaves the sign of a zero open",
)
def dot_of_one(i: Instruction, site: Site) -> Instruction | None:
    if not _is_plain(i) or not i.shape.element_count or i.shape.type.kind == "pred":
        return None
    numbers, (left, right) = DotDimensions.of(i), i.operands
    if any(left.shape.dimensions[d] != 1 for d in numbers.lhs_contracting):
        return None
    if not (left.shape.type == right.shape.type == i.shape.type):
        return None
    batches = len(numbers.lhs_batch)
    lefts = numbers.free(left.shape.rank, right=False)
    rights = numbers.free(right.shape.rank, right=True)
    sides = []
    for value, batch, free, first in (
        (left, numbers.lhs_batch, lefts, batches),
        (right, numbers.rhs_batch, rights, batches + len(lefts)),
    ):
        places = {d: k for k, d in enumerate(batch)} | {d: first + k for k, d in enumerate(free)}
        kept = [d for d in range(value.shape.rank) if d in places]
        small = site.reshape(value, [value.shape.dimensions[d] for d in kept])
        spread = [places[d] for d in kept]
        if spread != sorted(spread):
            order = sorted(range(len(spread)), key=spread.__getitem__)
            small, spread = site.transpose(small, order), sorted(spread)
        whole = spread == list(range(i.shape.rank))
        sides.append(small if whole else site.broadcast(small, i.shape.dimensions, spread))
    return site.emit("multiply", i.shape, *sides)


@rule(
    "dot-of-reordered",
    "dot",
    "dot of a reshape of a transpose within the dimension that is added up, with a constant = dot with a reordered one",
    _OPEN,
    of="reshape",
)
def dot_of_reordered(i: Instruction, site: Site) -> Instruction | None:
    if len(i.operands) != 2:
        return None
    dimension_numbers = DotDimensions.of(i)
    pairs = (
        (dimension_numbers.lhs_contracting, dimension_numbers.rhs_contracting),
        (dimension_numbers.rhs_contracting, dimension_numbers.lhs_contracting),
    )
    for number, (ours, theirs) in enumerate(pairs):
        side, other = i.operands[number], i.operands[1 - number]
        numbers = known(other)
        if len(ours) != 1 or not is_a(side, "reshape") or not is_a(side.operands[0], "transpose") or numbers is None:
            continue
        if not numbers.size or numbers.size > _MOST_REORDERED or not side.shape.element_count:
            continue
        transpose = side.operands[0]
        run = next((t for t, r in groups(transpose.shape.dimensions, side.shape.dimensions) if ours[0] in r), range(0))
        if math.prod(transpose.shape.dimensions[d] for d in run) != side.shape.dimensions[ours[0]]:
            continue
        order = transpose.ints("dimensions")
        moved = [order[d] for d in run]
        straight = [*order[: run.start], *sorted(moved), *order[run.stop :]]
        large = [d for d in straight if transpose.operands[0].shape.dimensions[d] != 1]
        if not is_rising(large) or is_rising(order):
            continue
        sizes, along = [transpose.shape.dimensions[d] for d in run], theirs[0]
        outer, inner = numbers.shape[:along], numbers.shape[along + 1 :]
        places = [len(outer) + moved.index(d) for d in sorted(moved)]
        axes = [*range(len(outer)), *places, *range(len(outer) + len(run), len(outer) + len(run) + len(inner))]
        values = numbers.reshape(*outer, *sizes, *inner).transpose(axes).reshape(numbers.shape)
        operands = [site.reshape(transpose.operands[0], side.shape.dimensions)]
        operands.insert(1 - number, site.literal(array(other.shape.type, *numbers.shape), values))
        return site.again(i, operands)
    return None


_MOST_REORDERED = 1 << 16
"""The most elements of a constant that is written again."""


@rule(
    "dot-of-repeated",
    "dot",
    "dot of an array that is repeated along a batch dimension = dot of the array, with more rows on the other side",
    "the same products are added up: rows that shared a copy share the original",
    of="reshape",
)
def dot_of_repeated(i: Instruction, site: Site) -> Instruction | None:
    if not _is_plain(i) or not i.shape.element_count:
        return None
    numbers = DotDimensions.of(i)
    for number, batch, beside in ((0, numbers.lhs_batch, numbers.rhs_batch), (1, numbers.rhs_batch, numbers.lhs_batch)):
        repeated = _repeated(i.operands[number])
        if repeated is None or repeated.at not in batch:
            continue
        other, place = i.operands[1 - number], beside[batch.index(repeated.at)]
        sizes = list(other.shape.dimensions)
        sizes[place : place + 1] = [repeated.count, repeated.times]
        # Dimensions of the other side behind the one that is split move by one; its second part is a row.
        contracting = (numbers.rhs_contracting, numbers.lhs_contracting)[number]
        moved = tuple(d + (d > place) for d in contracting)
        spread = tuple(d + (d > place) for d in beside)
        rows = [d for d in range(len(sizes)) if d not in moved and d not in spread]
        inner = batch.index(repeated.at) == len(batch) - 1
        between = () if number else numbers.free(i.operands[0].shape.rank, right=False)
        if not inner or rows[0] != place + 1 or between:
            continue  # what was one dimension would lie apart in the result
        if not (i.shape.is_row_major and other.shape.is_row_major):
            continue
        split = site.view(other, sizes)
        kept = (numbers.lhs_contracting, numbers.rhs_contracting)[number]
        names = ("lhs", "rhs")
        dims = {
            f"{names[number]}_batch_dims": batch,
            f"{names[number]}_contracting_dims": kept,
            f"{names[1 - number]}_batch_dims": spread,
            f"{names[1 - number]}_contracting_dims": moved,
        }
        operands = [split, split]
        operands[number] = repeated.source
        places = len(batch)
        shape = (*i.shape.dimensions[: places - 1], repeated.count, repeated.times, *i.shape.dimensions[places:])
        return site.view(site.again(i, operands, array(i.shape.type, *shape), **dims), i.shape.dimensions)
    return None


@dataclass(frozen=True)
class _Repeated:
    """An array in which each of `count` rows along dimension `at` stands `times` times in a row."""

    source: Instruction
    at: int
    count: int
    times: int


def _repeated(value: Instruction) -> _Repeated | None:
    """The repetition in a reshape of a broadcast that changes nothing else."""
    inner = value.operands[0] if is_a(value, "reshape") else value
    if not is_a(inner, "broadcast") or inner is value or inner.shape.rank != value.shape.rank + 1:
        return None
    mapped = inner.ints("dimensions")
    added = [d for d in range(inner.shape.rank) if d not in mapped]
    if len(added) != 1 or not is_rising(mapped) or added[0] == 0:
        return None
    at, sizes = added[0] - 1, inner.shape.dimensions
    joined = (*sizes[:at], sizes[at] * sizes[at + 1], *sizes[at + 2 :])
    if joined != value.shape.dimensions or sizes[at + 1] < 2:
        return None
    return _Repeated(inner.operands[0], at, sizes[at], sizes[at + 1])
