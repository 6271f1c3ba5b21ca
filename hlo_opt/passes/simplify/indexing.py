"""Rules for slices and updates at places from data, gathers, scatters and sizes."""

from __future__ import annotations

import functools
import math

import numpy as np

from hlo_opt.ir import Instruction, PaddingDimension, Raw, SliceDimension, array
from hlo_opt.ir.element_type import PRED
from hlo_opt.ops.indexing.gather_dimensions import scatter_dimensions
from hlo_opt.ops.reduction.reducers import monoid, picks
from hlo_opt.passes.simplify.constants import computed
from hlo_opt.passes.simplify.digits import digits_of, rotation_of
from hlo_opt.passes.simplify.ranges import bounds
from hlo_opt.passes.simplify.reading import is_a, uniform
from hlo_opt.passes.simplify.rule import rule
from hlo_opt.passes.simplify.site import Site


def _places(starts: list[Instruction], sizes: tuple[int, ...], windows: tuple[int, ...]) -> list[int] | None:
    """The start of a window, clamped so that it is inside; None where data decide."""
    if len(starts) != len(sizes):
        return None
    places = []
    for start, size, window in zip(starts, sizes, windows, strict=True):
        number = uniform(start)
        if size == window:
            places.append(0)
        elif number is None:
            return None
        else:
            places.append(min(max(int(number), 0), size - window))
    return places


@rule(
    "dynamic-slice-known",
    "dynamic-slice",
    "dynamic-slice of everything = its operand, at a known place = slice",
    "a window that reaches out is moved inside",
)
def dynamic_slice_known(i: Instruction, site: Site) -> Instruction | None:
    value, *starts = i.operands
    if value.shape.same_values(i.shape):
        return value
    places = _places(starts, value.shape.dimensions, i.shape.dimensions)
    if places is None:
        return None
    return site.slice(value, [SliceDimension(p, p + n) for p, n in zip(places, i.shape.dimensions, strict=True)])


@rule(
    "dynamic-slice-of-broadcast",
    "dynamic-slice",
    "dynamic-slice of a broadcast, of whole dimensions of what is spread = broadcast",
    "the same elements are read",
)
def dynamic_slice_of_broadcast(i: Instruction, site: Site) -> Instruction | None:
    inner = i.operands[0]
    if not is_a(inner, "broadcast"):
        return None
    source, mapped = inner.operands[0], inner.ints("dimensions")
    if tuple(i.shape.dimensions[d] for d in mapped) != source.shape.dimensions:
        return None
    return site.broadcast(source, i.shape.dimensions, mapped)


@rule(
    "update-all",
    "dynamic-update-slice",
    "dynamic-update-slice of everything = the update, of nothing = its operand",
    "the window is the array",
)
def update_all(i: Instruction, site: Site) -> Instruction | None:
    value, update = i.operands[:2]
    if update.shape.same_values(i.shape):
        return update
    return value if not update.shape.element_count else None


@rule(
    "update-by-own-slice",
    "dynamic-update-slice",
    "dynamic-update-slice of x by its own dynamic-slice at the same place = x",
    "what is written stands there",
)
def update_by_own_slice(i: Instruction, site: Site) -> Instruction | None:
    value, update, *starts = i.operands
    if not is_a(update, "dynamic-slice") or update.operands[0] is not value:
        return None
    return value if list(update.operands[1:]) == starts else None


@rule(
    "update-of-same",
    "dynamic-update-slice",
    "dynamic-update-slice of one number everywhere at a known place = pad",
    "what is not written is the number",
)
def update_of_same(i: Instruction, site: Site) -> Instruction | None:
    value, update, *starts = i.operands
    if not is_a(value, "broadcast") or value.operands[0].shape.rank or not i.shape.rank:
        return None
    places = _places(starts, i.shape.dimensions, update.shape.dimensions)
    if places is None:
        return None
    edges = zip(places, i.shape.dimensions, update.shape.dimensions, strict=True)
    padding = tuple(PaddingDimension(p, size - p - own) for p, size, own in edges)
    return site.emit("pad", i.shape, update, value.operands[0], padding=padding)


@rule("gather-one", "gather", "gather of one window = dynamic-slice", "both move a window that reaches out inside")
def gather_one(i: Instruction, site: Site) -> Instruction | None:
    value, indices = i.operands
    along = i.attribute("index_vector_dim", int)
    starts = i.ints("start_index_map")
    sizes = i.ints("slice_sizes")
    if "operand_batching_dims" in i.attributes and i.ints("operand_batching_dims"):
        return None
    count = indices.shape.dimensions[along] if along < indices.shape.rank else 1
    if indices.shape.element_count != count or not i.shape.element_count or count != len(starts):
        return None
    if i.shape.element_count != math.prod(sizes):  # index vectors without elements name many windows, too
        return None
    offsets = i.ints("offset_dims")
    if list(offsets) != sorted(offsets):
        return None
    kind = indices.shape.type
    flat = site.reshape(indices, (count,))
    scalars: dict[int, Instruction] = {}
    for n, d in enumerate(starts):
        one = site.slice(flat, [SliceDimension(n, n + 1)]) if count > 1 else flat
        scalars[d] = site.reshape(one, ())
    zero = site.scalar(kind, 0) if len(scalars) < value.shape.rank else None
    places = [scalars.get(d, zero) for d in range(value.shape.rank)]
    window = site.emit(
        "dynamic-slice",
        array(value.shape.type, *sizes),
        value,
        *(p for p in places if p is not None),
        dynamic_slice_sizes=sizes,
    )
    return window if window.shape.same_values(i.shape) else site.reshape(window, i.shape.dimensions)


@rule("gather-rows-in-order", "gather", "gather of all rows in order (by an iota) = its operand", "row n comes n-th")
def gather_rows(i: Instruction, site: Site) -> Instruction | None:
    value, indices = i.operands
    while is_a(indices, "reshape"):
        indices = indices.operands[0]
    if not is_a(indices, "iota") or indices.shape.element_count != value.shape.dimensions[0]:
        return None
    if indices.shape.element_count - 1 > indices.shape.type.limits[1]:  # the iota wraps around
        return None
    rank, sizes = value.shape.rank, i.ints("slice_sizes")
    by_rows = i.ints("start_index_map") == (0,) == i.ints("collapsed_slice_dims")
    if not by_rows or sizes != (1, *value.shape.dimensions[1:]) or i.ints("offset_dims") != tuple(range(1, rank)):
        return None
    if indices.shape.dimensions[indices.attribute("iota_dimension", int)] != indices.shape.element_count:
        return None  # it counts again for each place of the other dimensions
    return value if value.shape.same_values(i.shape) else None


@rule(
    "gather-at-known-places",
    "gather",
    "gather along a dimension at known places: slice, reverse, transpose, broadcast and reshape where these are digits "
    "with steps (i // k, i % k, i ^ c), concatenate of two slices for (i + c) % n",
    "the same elements are read; places from transcendental functions are computed as the interpreter computes them",
)
def gather_at_known_places(i: Instruction, site: Site) -> Instruction | None:
    value, indices = i.operands
    along = _only_dimension(i)
    numbers = None if along is None else computed(indices, MOST_PLACES)
    if along is None or numbers is None or numbers.size < 2:
        return None
    last = value.shape.dimensions[along] - 1
    places = np.array([min(max(int(n), 0), last) for n in numbers.reshape(-1).tolist()])
    if (first := rotation_of(places, last + 1)) is not None:
        ends = [(first, last + 1), (0, first)]
        sizes = value.shape.dimensions
        parts = [
            [SliceDimension(*e) if d == along else SliceDimension(0, n) for d, n in enumerate(sizes)] for e in ends
        ]
        return site.concatenate([site.slice(value, p) for p in parts], along)
    digits = digits_of(places)
    return None if digits is None else site.reshape(digits.read(value, along, site), i.shape.dimensions)


MOST_PLACES = 1 << 14
"""The most places of a gather that are computed to see what they are."""


def _only_dimension(i: Instruction) -> int | None:
    """The only dimension that a gather indexes, if it takes single places of it with all of the other dimensions, and
    has it at the same position in its result. None for any other gather."""
    value = i.operands[0]
    if len(starts := i.ints("start_index_map")) != 1 or i.ints("collapsed_slice_dims") != starts:
        return None
    (along,) = starts
    others = tuple(d for d in range(value.shape.rank) if d != along)
    sizes = i.ints("slice_sizes")
    if i.ints("offset_dims") != others or any(sizes[d] != value.shape.dimensions[d] for d in others):
        return None
    return along if i.shape.rank == value.shape.rank and value.shape.dimensions[along] else None


@rule("scatter-nothing", "scatter", "scatter of no updates = its operand", "nothing is written")
def scatter_nothing(i: Instruction, site: Site) -> Instruction | None:
    if len(i.operands) != 3 or i.operands[2].shape.element_count:
        return None
    return i.operands[0]


@rule(
    "scatter-of-one",
    "scatter",
    "scatter of one window = dynamic-update-slice, of what stands there where the window reaches out",
    "a window that reaches out is left out, and otherwise none is moved",
)
def scatter_of_one(i: Instruction, site: Site) -> Instruction | None:
    if len(i.operands) != 3 or not i.shape.element_count:
        return None
    value, indices, update = i.operands
    numbers, reducer = scatter_dimensions(i), i.called_by("to_apply")
    opcode = monoid(reducer)
    plain = picks(reducer) == 1 or opcode is not None
    if not plain or numbers.batching.operand_dims or list(numbers.offset_dims) != sorted(numbers.offset_dims):
        return None
    if math.prod(numbers.batch_sizes(indices.shape)) != 1 or not update.shape.element_count:
        return None
    sizes = iter([update.shape.dimensions[d] for d in numbers.offset_dims])
    window = [1 if d in numbers.collapsed else next(sizes) for d in range(value.shape.rank)]
    flat = site.reshape(indices, (len(numbers.start_index_map),))
    starts = [site.scalar(indices.shape.type, 0)] * value.shape.rank
    inside: list[Instruction] = []
    for number, d in enumerate(numbers.start_index_map):
        start = flat if flat.shape.element_count == 1 else site.slice(flat, [SliceDimension(number, number + 1)])
        starts[d] = site.reshape(start, ())
        inside += _inside(starts[d], value.shape.dimensions[d] - window[d], site)
    old = site.emit(
        "dynamic-slice", array(value.shape.type, *window), value, *starts, dynamic_slice_sizes=tuple(window)
    )
    new = site.reshape(update, window)
    if opcode is not None:
        new = site.elementwise(opcode, old, new)
    if inside:
        where = functools.reduce(lambda a, b: site.elementwise("and", a, b), inside)
        new = site.emit("select", array(value.shape.type, *window), site.spread(where, window), new, old)
    return site.emit("dynamic-update-slice", array(value.shape.type, *value.shape.dimensions), value, new, *starts)


def _inside(start: Instruction, last: int, site: Site) -> list[Instruction]:
    """Predicates that test whether a start is between 0 and the last place; none for a bound that is known to hold."""
    least, most = bounds(start) or start.shape.type.limits
    truth, tests = array(PRED), []
    if least < 0:
        tests.append(site.emit("compare", truth, start, site.scalar(start.shape.type, 0), direction=Raw("GE")))
    if most > last:
        tests.append(site.emit("compare", truth, start, site.scalar(start.shape.type, last), direction=Raw("LE")))
    return tests


@rule(
    "size-known",
    "get-dimension-size",
    "get-dimension-size of a dimension that is not dynamic = its size",
    "it does not change",
)
def size_known(i: Instruction, site: Site) -> Instruction | None:
    (along,) = i.ints("dimensions")
    return site.scalar(i.shape.type, np.int64(i.operands[0].shape.dimensions[along]))
