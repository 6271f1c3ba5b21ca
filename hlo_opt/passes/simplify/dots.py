"""Products: of transposes, of nothing, and those that add nothing up."""

from __future__ import annotations

from hlo_opt.ir import Instruction
from hlo_opt.ops.contraction.table import DotDimensions
from hlo_opt.passes.simplify.reading import is_a
from hlo_opt.passes.simplify.rule import rule
from hlo_opt.passes.simplify.shapes import is_rising
from hlo_opt.passes.simplify.site import Site

_OPEN = "the same products are added up; HLO leaves their order open"


def _is_plain(dot: Instruction) -> bool:
    """Whether the types of a product are those of its operands, and no algorithm is asked for."""
    return len(dot.operands) == 2 and "algorithm" not in dot.attributes and "sparsity" not in dot.attributes


def _is_view(transpose: Instruction) -> bool:
    """Whether the result of a transpose lies in memory as its operand does."""
    order, source = transpose.ints("dimensions"), transpose.operands[0].shape
    moved = tuple(order.index(d) for d in source.minor_to_major)
    return moved == transpose.shape.minor_to_major


@rule(
    "dot-of-transpose",
    "dot",
    "dot of a transpose = dot over the dimensions where they were, where libraries read it so",
    _OPEN,
)
def dot_of_transpose(i: Instruction, site: Site) -> Instruction | None:
    if len(i.operands) != 2:
        return None
    found = DotDimensions.of(i)
    for number, side in enumerate(i.operands):
        if not is_a(side, "transpose"):
            continue
        order = side.ints("dimensions")
        batch = found.rhs_batch if number else found.lhs_batch
        contracting = found.rhs_contracting if number else found.lhs_contracting
        free = found.free(side.shape.rank, right=bool(number))
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
    """Whether dimensions in this order are matrices one after the other: what a library reads as it lies."""
    rest = [*contracting, *free], [*free, *contracting]
    return any([*batch, *part] == list(range(len(batch) + len(part))) for part in rest)


@rule(
    "transpose-of-dot",
    "transpose",
    "transpose of a dot that nobody else reads, which changes its sides = dot of the sides changed",
    "factors commute, and the same products are added up",
)
def transpose_of_dot(i: Instruction, site: Site) -> Instruction | None:
    dot = i.operands[0]
    if not is_a(dot, "dot") or len(dot.users) > 1 or not _is_plain(dot):
        return None
    found, (left, right) = DotDimensions.of(dot), dot.operands
    batches, lefts = len(found.lhs_batch), len(found.free(left.shape.rank, right=False))
    ranks = dot.shape.rank
    wanted = (*range(batches), *range(batches + lefts, ranks), *range(batches, batches + lefts))
    if i.ints("dimensions") != wanted or left.shape.type != right.shape.type:
        return None
    if (
        "operand_precision" in dot.attributes
        and len(set(dot.attributes["operand_precision"].text.strip("{}").split(","))) > 1
    ):
        return None
    return site.again(
        dot,
        [right, left],
        i.shape,
        lhs_batch_dims=found.rhs_batch,
        rhs_batch_dims=found.lhs_batch,
        lhs_contracting_dims=found.rhs_contracting,
        rhs_contracting_dims=found.lhs_contracting,
    )


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
    found, (left, right) = DotDimensions.of(i), i.operands
    if any(left.shape.dimensions[d] != 1 for d in found.lhs_contracting):
        return None
    if not (left.shape.type == right.shape.type == i.shape.type):
        return None
    batches = len(found.lhs_batch)
    lefts = found.free(left.shape.rank, right=False)
    rights = found.free(right.shape.rank, right=True)
    sides = []
    for value, batch, free, first in (
        (left, found.lhs_batch, lefts, batches),
        (right, found.rhs_batch, rights, batches + len(lefts)),
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
