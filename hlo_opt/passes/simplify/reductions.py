"""Rules for reduces: of reshaped and transposed values, of reduces, and of equal elements."""

from __future__ import annotations

import math

import numpy as np

from hlo_opt.evaluate import Interpreter
from hlo_opt.evaluate.program import face
from hlo_opt.ir import Attribute, Instruction, Window, array, edit
from hlo_opt.ir.element_type import F32
from hlo_opt.ops import OpKind, find
from hlo_opt.ops.movement.table import padding_dimensions
from hlo_opt.ops.reduction.reducers import is_wide, monoid, starts_with_identity
from hlo_opt.ops.sets import IDEMPOTENT
from hlo_opt.passes.simplify.reading import NUMBERS, is_a, is_number, loses_sign, negated, uniform
from hlo_opt.passes.simplify.rule import rule
from hlo_opt.passes.simplify.shapes import groups, is_rising
from hlo_opt.passes.simplify.site import Site

_OPEN = "the same elements are folded; HLO leaves their order open"


def _monoid(fold: Instruction) -> str | None:
    """The operation with which a fold of one array combines elements; None for any other fold."""
    if not fold.shape.is_array or len(fold.operands) != 2:
        return None
    return monoid(fold.called_by("to_apply"))


@rule("reduce-of-nothing", "reduce", "reduce of no elements = the init value everywhere", "nothing is folded")
def reduce_of_nothing(i: Instruction, site: Site) -> Instruction | None:
    if not i.shape.is_array or len(i.operands) != 2 or i.operands[0].shape.element_count or not i.shape.element_count:
        return None
    return site.spread(i.operands[1], i.shape.dimensions)


@rule(
    "reduce-over-nothing",
    "reduce",
    "reduce over dimensions of size 1 that starts with the identity = reshape",
    "one element is folded, and the init value changes nothing",
)
def reduce_over_nothing(i: Instruction, site: Site) -> Instruction | None:
    opcode, source = _monoid(i), i.operands[0]
    if opcode is None or math.prod(source.shape.dimensions[d] for d in i.ints("dimensions")) != 1:
        return None
    if not starts_with_identity(i):
        return None
    return None if loses_sign(i) else site.reshape(source, i.shape.dimensions)


@rule(
    "reduce-of-one-element",
    "reduce",
    "reduce over dimensions of size 1 = the operation on the init value and the elements",
    "one element is folded",
)
def reduce_of_one_element(i: Instruction, site: Site) -> Instruction | None:
    opcode, (source, start) = _monoid(i), (i.operands[0], i.operands[-1])
    if opcode is None or math.prod(source.shape.dimensions[d] for d in i.ints("dimensions")) != 1:
        return None
    if (
        i.shape.type.is_complex
        or source.shape.type != i.shape.type
        or start.shape.type != i.shape.type
        or not i.shape.element_count
    ):
        return None
    value = site.reshape(source, i.shape.dimensions)
    return site.elementwise(opcode, value, site.spread(start, i.shape.dimensions))


@rule(
    "reduce-of-transpose",
    "reduce",
    "reduce of a transpose that leaves what is kept in order = reduce",
    _OPEN,
    of="transpose",
)
def reduce_of_transpose(i: Instruction, site: Site) -> Instruction | None:
    inner = i.operands[0]
    if not is_a(inner, "transpose") or _monoid(i) is None:
        return None
    order, folded = inner.ints("dimensions"), i.ints("dimensions")
    if not is_rising([order[d] for d in range(len(order)) if d not in folded]):
        return None
    return site.again(i, [inner.operands[0], i.operands[1]], dimensions=tuple(sorted(order[d] for d in folded)))


@rule(
    "reduce-of-moved",
    "reduce",
    "reduce of elementwise operations on transposed arrays, which nobody else reads = on what was transposed",
    _OPEN,
)
def reduce_of_moved(i: Instruction, site: Site) -> Instruction | None:
    found = _elementwise_below(i) if _monoid(i) is not None else None
    if found is None:
        return None
    nodes, leaves = found
    moved = [leaf for leaf in leaves if is_a(leaf, "transpose")]
    orders = {leaf.ints("dimensions") for leaf in moved}
    if len(orders) != 1 or not all(leaf in moved or is_a(leaf, "broadcast") for leaf in leaves):
        return None
    (order,) = orders
    folded, sizes = i.ints("dimensions"), moved[0].operands[0].shape.dimensions
    spreads = {leaf: [order[d] for d in leaf.ints("dimensions")] for leaf in leaves if leaf not in moved}
    if not all(map(is_rising, [[order[d] for d in range(len(order)) if d not in folded], *spreads.values()])):
        return None
    made = {leaf: leaf.operands[0] for leaf in moved}
    made |= {leaf: site.broadcast(leaf.operands[0], sizes, mapped) for leaf, mapped in spreads.items()}
    for node in nodes:  # operands first
        operands = [made.get(o, o) for o in node.operands]
        made[node] = site.again(node, operands, array(node.shape.type, *sizes))
    dimensions = tuple(sorted(order[d] for d in folded))
    return site.again(i, [made[i.operands[0]], i.operands[1]], dimensions=dimensions)


MOST_MOVED = 32
"""The most elementwise operations that are followed below a reduce."""


def _elementwise_below(fold: Instruction) -> tuple[list[Instruction], list[Instruction]] | None:
    """The elementwise operations whose results only the fold needs, operands first, and the arrays that these are
    computed of. None if there are none or too many, or if one has another reader."""
    dimensions = fold.operands[0].shape.dimensions
    nodes: list[Instruction] = []
    leaves: dict[Instruction, None] = {}
    readers, ready = {fold}, [fold.operands[0]]
    while ready:
        value = ready.pop()
        if value in readers or not value.users <= readers or value.is_root:
            continue  # known, or a reader is not known yet: if it is never found, the value is needed elsewhere
        if not _is_elementwise(value) or value.shape.dimensions != dimensions or len(nodes) == MOST_MOVED:
            return None
        nodes.append(value)
        readers.add(value)
        for operand in dict.fromkeys(value.operands):
            if operand.shape.rank == 0:
                continue
            if operand.shape.dimensions != dimensions:  # bits of a type of another size
                return None
            if _is_elementwise(operand):
                ready.append(operand)
            else:
                leaves[operand] = None
    whole = all(o in readers or o in leaves or o.shape.rank == 0 for n in nodes for o in n.operands)
    return (nodes[::-1], list(leaves)) if nodes and whole else None


def _is_elementwise(value: Instruction) -> bool:
    spec = find(value.opcode)
    if spec is None or spec.kind is not OpKind.ELEMENTWISE or spec.side_effects or not value.operands:
        return False
    return not list(value.called()) and value.shape.is_array


@rule(
    "reduce-of-reshape",
    "reduce",
    "reduce of a reshape that splits or joins only dimensions that are folded together, or kept as they are = reduce",
    _OPEN,
    of="reshape",
)
def reduce_of_reshape(i: Instruction, site: Site) -> Instruction | None:
    inner = i.operands[0]
    if not is_a(inner, "reshape") or _monoid(i) is None or inner.shape.element_count == 0:
        return None
    source, sizes, folded = inner.operands[0], inner.shape.dimensions, i.ints("dimensions")
    over: list[int] = []
    kept: list[int] = []
    for theirs, ours in groups(source.shape.dimensions, sizes):
        if any(d in folded and sizes[d] != 1 for d in ours):
            if any(d not in folded and sizes[d] != 1 for d in ours):
                return None
            over += theirs
        elif [sizes[d] for d in ours if sizes[d] != 1] == [n for n in _at(source, theirs) if n != 1]:
            kept += theirs
        else:
            return None
    kept_sizes = tuple(source.shape.dimensions[d] for d in kept)
    if kept_sizes != i.shape.dimensions:  # dimensions of size 1 are kept or folded as the result has them
        wanted, ones = list(i.shape.dimensions), [d for d in kept if source.shape.dimensions[d] == 1]
        while ones and kept_sizes != tuple(wanted):
            d = ones.pop()
            kept.remove(d)
            over.append(d)
            kept_sizes = tuple(source.shape.dimensions[k] for k in kept)
        if kept_sizes != tuple(wanted):
            return None
    if not over:
        return None
    return site.again(i, [source, i.operands[1]], dimensions=tuple(sorted(over)))


def _at(value: Instruction, places: range) -> list[int]:
    return [value.shape.dimensions[d] for d in places]


@rule(
    "reduce-of-reduce",
    "reduce",
    "reduce of a reduce that nobody else reads, of no rows, by the same operation from its identity: one",
    _OPEN + ", and their groups",
    of="reduce",
)
def reduce_of_reduce(i: Instruction, site: Site) -> Instruction | None:
    inner = i.operands[0]
    if not is_a(inner, "reduce") or len(inner.users) > 1 or _monoid(i) is None or _monoid(i) != _monoid(inner):
        return None
    if not starts_with_identity(i) or not starts_with_identity(inner) or is_wide(i):
        return None
    first, source = inner.ints("dimensions"), inner.operands[0]
    if source.shape.rank - 1 in first:  # whoever has rows at hand folds them; what is left is small
        return None
    kept = [d for d in range(source.shape.rank) if d not in first]
    both = tuple(sorted((*first, *(kept[d] for d in i.ints("dimensions")))))
    return site.again(i, [source, i.operands[1]], dimensions=both)


@rule(
    "reduce-of-broadcast",
    "reduce",
    "max, min, and, or over a dimension of equal elements = over the others",
    "how often an element comes in does not count",
    of="broadcast",
)
def reduce_of_broadcast(i: Instruction, site: Site) -> Instruction | None:
    inner = i.operands[0]
    opcode = _monoid(i)
    if not is_a(inner, "broadcast") or opcode not in IDEMPOTENT or not inner.shape.element_count:
        return None
    source, mapped, folded = inner.operands[0], inner.ints("dimensions"), i.ints("dimensions")
    if not is_rising(mapped) or all(d in mapped for d in folded):
        return None
    left = tuple(k for k, d in enumerate(mapped) if d in folded)
    if left:
        small_sizes = tuple(n for k, n in enumerate(source.shape.dimensions) if k not in left)
        small = site.again(i, [source, i.operands[1]], array(i.shape.type, *small_sizes), dimensions=left)
    else:
        start = site.spread(i.operands[1], source.shape.dimensions)
        small = site.elementwise(str(opcode), source, start)
    kept = [d for d in range(inner.shape.rank) if d not in folded]
    places = [kept.index(d) for d in mapped if d not in folded]
    if places == list(range(i.shape.rank)):
        return small
    return site.broadcast(small, i.shape.dimensions, places)


@rule(
    "sum-of-negated",
    "reduce",
    "sum of -x from 0 = 0 - (sum of x from 0), where only such sums read -x",
    "each partial sum is the negated one; no sum from 0 is -0, and neither is 0 - x",
    of="negate",
)
def sum_of_negated(i: Instruction, site: Site) -> Instruction | None:
    inner = i.operands[0]
    opposite = negated(inner)
    if not _is_sum_from_zero(i) or opposite is None or inner.is_root:
        return None
    if i.shape.element_count >= inner.shape.element_count or not all(map(_is_sum_from_zero, inner.users)):
        return None
    total = site.again(i, [opposite, i.operands[1]])
    return site.elementwise("subtract", site.full(i.shape, 0), total)


def _is_sum_from_zero(i: Instruction) -> bool:
    """Whether an instruction is a sum of numbers that starts at 0, not at -0."""
    is_sum = i.opcode == "reduce" and _monoid(i) == "add" and not i.shape.type.is_complex
    return is_sum and is_number(i.operands[1], 0)


@rule(
    "reduce-of-pad",
    "reduce",
    "reduce of a pad by the identity, in dimensions that are folded = reduce",
    "the identity changes nothing",
    of="pad",
)
def reduce_of_pad(i: Instruction, site: Site) -> Instruction | None:
    inner = i.operands[0]
    if not is_a(inner, "pad") or _monoid(i) is None or not starts_with_identity(i):
        return None
    value, start = uniform(inner.operands[1]), uniform(i.operands[1])
    if (
        value is None
        or start is None
        or value.tobytes() != start.tobytes()
        or not inner.operands[0].shape.element_count
    ):
        return None
    for d, part in enumerate(padding_dimensions(inner)):
        if min(part.low, part.high) < 0 or ((part.low or part.high or part.interior) and d not in i.ints("dimensions")):
            return None
    return site.again(i, [inner.operands[0], i.operands[1]])


@rule(
    "reduce-window-of-all",
    "reduce-window",
    "reduce-window whose window is all of some dimensions and one element of the others = reduce",
    _OPEN,
)
def reduce_window_of_all(i: Instruction, site: Site) -> Instruction | None:
    if _monoid(i) is None or not i.shape.element_count:
        return None
    source, window = i.operands[0], i.value("window", Window(()))
    if not isinstance(window, Window) or len(window.dimensions) != source.shape.rank:
        return None
    folded = []
    for d, w in enumerate(window.dimensions):
        if w.pad_low or w.pad_high or w.lhs_dilate != 1 or (w.rhs_dilate != 1 and w.size > 1):
            return None
        if w.size == 1 and w.stride == 1:
            continue
        if w.size != source.shape.dimensions[d]:
            return None
        folded.append(d)
    sizes = [n for d, n in enumerate(source.shape.dimensions) if d not in folded]
    fold = edit.create(
        i.computation,
        "reduce",
        "reduce",
        array(i.shape.type, *sizes),
        i.operands,
        {"dimensions": Attribute.of(tuple(folded)), "to_apply": i.attributes["to_apply"]},
    )
    site.created.append(fold)
    return site.reshape(fold, i.shape.dimensions)


@rule(
    "reduce-of-same",
    "reduce",
    "reduce of one known number everywhere = what comes out, everywhere",
    "it is computed as the interpreter computes it; HLO leaves the order of a fold open",
    of=NUMBERS,
)
def reduce_of_same(i: Instruction, site: Site) -> Instruction | None:
    if _monoid(i) is None or not i.shape.element_count:
        return None
    number, start = map(uniform, i.operands)
    count = math.prod(i.operands[0].shape.dimensions[d] for d in i.ints("dimensions"))
    if number is None or start is None or not 0 < count <= _MOST_FOLDED:
        return None
    row = site.full(array(i.operands[0].shape.type, count), number)
    fold = site.again(i, [row, i.operands[1]], array(i.shape.type), dimensions=(0,))
    total = face(fold)(Interpreter(), fold, [np.full(count, number, number.dtype), start])
    return site.full(i.shape, np.asarray(total))


_MOST_FOLDED = 1 << 16
"""The most elements that are folded here."""


_PRODUCTS = {"f16": 11, "bf16": 8, "f32": 24, "f64": 53}
"""The bits of a product by type, of the types of whose numbers products are as good as sums."""
_MOST_TIMES = 1 << 15
"""The greatest power of two of f16."""


@rule(
    "sum-of-same",
    "reduce",
    "sum of n times the same number = a product, xor of it: itself or 0",
    "modulo 2^n for integers; of floats HLO leaves the order of a fold open, and x * n is the exact sum of n times x, "
    "rounded; an even number of times undoes itself",
    of="broadcast",
)
def sum_of_same(i: Instruction, site: Site) -> Instruction | None:
    inner, opcode = i.operands[0], _monoid(i)
    if not is_a(inner, "broadcast") or opcode not in ("add", "xor"):
        return None
    kind = i.shape.type
    if not (kind.is_integer or kind.name in _PRODUCTS):
        return None
    source, mapped, folded = inner.operands[0], inner.ints("dimensions"), i.ints("dimensions")
    count = math.prod(inner.shape.dimensions[d] for d in folded if d not in mapped)
    left = tuple(k for k, d in enumerate(mapped) if d in folded)
    if len(left) == len(folded) or not is_rising(mapped) or not inner.shape.element_count:
        return None
    starts_neutral = starts_with_identity(i)
    if (left and is_wide(i)) or not (starts_neutral or (kind.is_integer and not left)):
        return None
    if left:  # each copy is summed, and then the copies
        sizes = (n for k, n in enumerate(source.shape.dimensions) if k not in left)
        source = site.again(i, [source, i.operands[1]], array(kind, *sizes), dimensions=left)
    value = _times(source, count, site) if opcode == "add" else source if count % 2 else site.full(source.shape, 0)
    if value is None:
        return None
    if not left and (loses_sign(i) or not starts_neutral):
        value = site.elementwise(opcode, value, site.spread(i.operands[1], source.shape.dimensions))
    kept = [d for d in range(inner.shape.rank) if d not in folded]
    places = [kept.index(d) for d in mapped if d not in folded]
    return value if len(places) == len(kept) else site.broadcast(value, i.shape.dimensions, places)


def _times(value: Instruction, count: int, site: Site) -> Instruction | None:
    """Each element `count` times, rounded once; None where no type holds the count. Small floats are multiplied in
    f32, in which their folds add up, where they do not hold it."""
    kind, sizes = value.shape.type, value.shape.dimensions
    if kind.is_integer:
        least, most = kind.limits
        times = (count - least) % (most - least + 1) + least
        return site.elementwise("multiply", value, site.full(array(kind, *sizes), times))
    is_held = (count & -count) << _PRODUCTS[kind.name] > count
    if is_held and (kind.name != "f16" or count <= _MOST_TIMES):
        return site.elementwise("multiply", value, site.full(array(kind, *sizes), count))
    if kind.bits > 16 or count >> _PRODUCTS[F32.name]:
        return None
    wide = site.convert(value, F32)
    return site.convert(site.elementwise("multiply", wide, site.full(array(F32, *sizes), count)), kind)
