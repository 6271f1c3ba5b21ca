"""The table of kinds: the matcher of each, and the order of its segments in a launch. The emitter of a kind has the
same name in `hlo_opt.codegen`.

A kind is one file here, one file there, and a row of this table; nothing else names kinds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from hlo_opt.analysis.memory.forms import turns_view
from hlo_opt.analysis.targets import DeviceTarget
from hlo_opt.ir import Instruction, Shape
from hlo_opt.ops.emission import MOVERS
from hlo_opt.ops.sets import LOOPS
from hlo_opt.ops.spec import find
from hlo_opt.plans import (
    attention,
    batch,
    block_loop,
    block_scatter,
    block_search,
    column_reduction,
    concatenate,
    cumulative,
    dynamic_update_slice,
    folding,
    gather,
    grid_loop,
    grid_search,
    lane_loop,
    lane_search,
    long_sort,
    look_back,
    matmul,
    matrix_vector,
    pairwise,
    phases,
    register_transpose,
    row_and_column_reduction,
    row_reduction,
    scan,
    scatter,
    short_rows,
    slices,
    sliding_window,
    sort,
    tensor_attention,
    tensor_matmul,
    tiled_transpose,
    window_scatter,
)
from hlo_opt.plans.plan import Part, Region
from hlo_opt.plans.products import ProductSpace
from hlo_opt.plans.walks import Own, Walk, by_element, no_own, own_on

Match = Callable[[Region, Sequence[int], DeviceTarget, int], tuple[Sequence[Part], list[int]]]
"""(region, positions of outputs, target, free bytes of shared memory) -> the parts of a kind that fit, and the
positions of the other outputs."""

Walks = Callable[..., list[Walk]]
"""(region, segment, launch) -> the walks of the segment's threads, in order."""

Owned = Callable[..., list[Own]]
"""(region, segment, launch, walks) -> outputs of which each element is one thread's."""


@dataclass(frozen=True)
class Kind:
    """A kind. It has exactly one matcher (`match`, `whole` or `product`), or none if the matcher of the kind before it
    also returns its parts.

    name          the name, also of its emitter's file (with underscores)
    heroes        a region of this kind has an operation with one of these opcodes; None: with any
    order         the order of its segments in a launch
    match         finds parts among outputs
    whole         matches a whole region that is one sort, scan or loop
    otherwise     (region, target, what `whole` found) -> the same in another form, which competes by price
    product       matches a whole region that is one product
    has_rivals    other kinds with this flag may match the same region: the cheapest is used
    may_pay       whether to ask the matcher at all, by the whole region
    unheard       the kind is used only if no library can do the region
    whole_warps   its threads work by warps, so that blocks must be whole warps
    rereads_near  its threads walk the same elements several times, and keep them in registers or near them
    takes_room    what its matcher finds depends on the free bytes of shared memory
    moves_tiles   it transposes tiles: it may occur in every region with arrays of several layouts
    inside        the instructions of the computations that its hero calls, if the kind computes these itself
    walks         the walks of its threads, for the price; by default they divide elements among them
    own           outputs of which each element is one thread's, so that they may share an operand's memory; by default
                  none
    beside        the part in a launch that holds others too, if that differs
    """

    name: str
    heroes: frozenset[str] | None = None
    order: int = 0
    match: Match | None = None
    whole: Callable[[Region, DeviceTarget], Part | None] | None = None
    otherwise: Callable[..., Part | None] | None = None
    has_rivals: bool = False
    product: Callable[[Region, ProductSpace, DeviceTarget], Part | None] | None = None
    may_pay: Callable[[Region], bool] | None = None
    unheard: bool = False
    whole_warps: bool = False
    rereads_near: bool = False
    takes_room: bool = False
    moves_tiles: bool = False
    inside: Callable[..., Sequence[Instruction]] | None = None
    walks: Walks = by_element
    own: Owned = no_own
    beside: Callable[..., Part] | None = None

    def may_be_in(self, opcodes: frozenset[str], *, orders_differ: bool) -> bool:
        """Whether a region with these opcodes, and with arrays of several layouts (`orders_differ`) or one, may be of
        this kind, or have a part of it."""
        return self.heroes is None or not self.heroes.isdisjoint(opcodes) or (self.moves_tiles and orders_differ)


def _space_of(reduce: Instruction, *, in_lanes: bool) -> folding.Space | None:
    return row_reduction.space_of(reduce, in_lanes=in_lanes) or column_reduction.space_of_any(reduce)


def _folds(region: Region, roots: Sequence[int], target: DeviceTarget, room: int) -> tuple[Sequence[Part], list[int]]:
    """Row and column reductions."""
    parts: list[Part] = []
    matched, rest = folding.match(region, roots, partial(_space_of, in_lanes=target.in_lanes))
    for folded in matched:
        part: Part | None
        if folded.space.minor > 1:
            part = column_reduction.of(region, folded, target, room)
        elif short_rows.is_for_one_thread(region, folded, target):
            part = None
        else:
            part = row_reduction.of(region, folded, target)
        if part is None:
            rest = sorted([*rest, *folded.roots])
        else:
            parts.append(part)
            room -= part.shared_bytes(part.block)
    return parts, rest


_SORTS = frozenset({"sort", "topk"})
_SCATTERS = frozenset({"scatter"})
_PRODUCTS = frozenset({"dot"})
_FOLDS = frozenset({"reduce"})
_WINDOWS = frozenset({"reduce-window"})
_LOOP = partial(Kind, heroes=LOOPS)

KINDS: list[Kind] = [
    Kind("sort", _SORTS, whole=lambda region, target: sort.match(region), walks=sort.walks),
    Kind("scan", frozenset({"scan"}), whole=lambda region, target: scan.match(region), walks=scan.walks),
    _LOOP(
        "lane-loop",
        whole=lane_search.match,
        inside=lane_loop.inside,
        walks=lane_loop.walks,
        own=lane_loop.own,
    ),
    _LOOP(
        "block-loop",
        whole=block_search.match,
        has_rivals=True,
        whole_warps=True,
        inside=phases.inside,
        walks=block_loop.walks,
    ),
    _LOOP(
        "grid-loop",
        whole=grid_search.match,
        otherwise=grid_search.with_fewer_meetings,
        has_rivals=True,
        whole_warps=True,
        inside=phases.inside,
        walks=grid_loop.walks,
    ),
    Kind("attention", _PRODUCTS, whole=attention.match, has_rivals=True, walks=attention.walks),
    Kind("tensor-attention", _PRODUCTS, whole=tensor_attention.match, walks=tensor_attention.walks),
    Kind("long-sort", _SORTS, whole=lambda region, target: long_sort.match(region), unheard=True, walks=sort.walks),
    Kind(
        "matrix-vector",
        _PRODUCTS,
        product=matrix_vector.match,
        has_rivals=True,
        walks=matrix_vector.walks,
    ),
    Kind("tensor-matmul", _PRODUCTS, product=tensor_matmul.match, walks=tensor_matmul.walks, own=own_on),
    Kind("matmul", _PRODUCTS, product=matmul.match, walks=matmul.walks, own=own_on),
    Kind(
        "block-scatter",
        _SCATTERS,
        7,
        block_scatter.match,
        has_rivals=True,
        takes_room=True,
        walks=block_scatter.walks,
    ),
    Kind(
        "scatter",
        _SCATTERS,
        7,
        lambda region, roots, target, room: scatter.match(region, roots, target),
        walks=scatter.walks,
    ),
    Kind(
        "dynamic-update-slice",
        frozenset({"dynamic-update-slice"}),
        6,
        lambda region, roots, target, room: dynamic_update_slice.match(region, roots, target),
        walks=dynamic_update_slice.walks,
    ),
    Kind(
        "look-back",
        _WINDOWS,
        0,
        look_back.match,
        has_rivals=True,
        whole_warps=True,
        takes_room=True,
        walks=look_back.walks,
    ),
    Kind(
        "cumulative",
        _WINDOWS,
        0,
        cumulative.match,
        whole_warps=True,
        takes_room=True,
        walks=cumulative.walks,
    ),
    Kind(
        "sliding-window",
        _WINDOWS,
        0,
        sliding_window.match,
        has_rivals=True,
        takes_room=True,
        walks=sliding_window.walks,
    ),
    Kind(
        "pairwise",
        _FOLDS,
        0,
        lambda region, roots, target, room: pairwise.match(region, roots, target),
        has_rivals=True,
        walks=pairwise.walks,
    ),
    Kind(
        "row-and-column-reduction",
        _FOLDS,
        0,
        row_and_column_reduction.match,
        whole_warps=True,
        takes_room=True,
        rereads_near=True,
        walks=row_and_column_reduction.walks,
    ),
    Kind(
        "row-reduction",
        _FOLDS,
        0,
        _folds,
        whole_warps=True,
        rereads_near=True,
        walks=row_reduction.walks,
        own=row_reduction.own,
        beside=row_reduction.beside,
    ),
    Kind(
        "column-reduction",
        _FOLDS,
        1,
        takes_room=True,
        walks=column_reduction.walks,
        own=column_reduction.own,
        beside=column_reduction.beside,
    ),
    Kind(
        "register-transpose",
        MOVERS,
        2,
        lambda region, roots, target, room: register_transpose.match(region, roots, target),
        has_rivals=True,
        moves_tiles=True,
        walks=register_transpose.walks,
        own=register_transpose.own,
    ),
    Kind(
        "tiled-transpose",
        MOVERS,
        2,
        tiled_transpose.match,
        takes_room=True,
        moves_tiles=True,
        walks=tiled_transpose.walks,
        own=own_on,
    ),
    Kind(
        "concatenate",
        frozenset({"concatenate"}),
        4,
        lambda region, roots, target, room: concatenate.match(region, roots, target),
        walks=concatenate.walks,
        own=concatenate.own,
    ),
    Kind(
        "window-scatter",
        window_scatter.WINDOWED,
        3,
        window_scatter.match,
        has_rivals=True,
        walks=window_scatter.walks,
    ),
    Kind(
        "gather",
        frozenset({"gather"}),
        5,
        lambda region, roots, target, room: gather.match(region, roots, target),
        has_rivals=True,
    ),
    Kind(
        "batch",
        order=3,
        match=lambda region, roots, target, room: batch.match(region, roots, target),
        has_rivals=True,
        may_pay=batch.may_pay,
        walks=batch.walks,
    ),
    Kind(
        "loop",
        order=3,
        match=lambda region, roots, target, room: (slices.match(region, roots, target), []),
        walks=slices.walks,
        own=own_on,
    ),
]
"""The kinds, in the order in which they are tried. The last matches everything."""


def orders_differ(shapes: Iterable[Shape]) -> bool:
    """Whether arrays of the same rank have different layouts."""
    orders: dict[int, tuple[int, ...]] = {}
    return any(orders.setdefault(s.rank, s.minor_to_major) != s.minor_to_major for s in shapes if s.is_array)


def may_share_folds(instruction: Instruction) -> bool:
    """Whether a kernel of the instruction may have folds whose partial results threads combine (`Segment.folded`):
    False for what has code of its own for each element, and so is neither one nor expanded to one."""
    spec = find(instruction.opcode)
    return instruction.opcode in _FOLDS | _WINDOWS or spec is None or (spec.cuda is None and not spec.is_free)


def kinds_for(region: Region) -> list[Kind]:
    """The kinds of which a region may be, or have a part."""
    opcodes = frozenset(i.opcode for i in region.computation.instructions)
    differ = any(map(turns_view, region.computation.instructions)) or orders_differ((*region.inputs, *region.outputs))
    return [kind for kind in KINDS if kind.may_be_in(opcodes, orders_differ=differ)]


PRODUCT_KINDS = frozenset(kind.name for kind in KINDS if kind.product is not None)
"""The names of the kinds that compute one product, and whose threads share its terms."""
ATTENTION_KINDS = frozenset({attention.Attention.kind, tensor_attention.TensorAttention.kind})
"""The names of the kinds that compute two products and the softmax between them."""

_BY_NAME = {kind.name: kind for kind in KINDS}


def kind_of(part: Part) -> Kind:
    """The row of the table for a part's kind."""
    known = _BY_NAME.get(part.kind)
    return known if known is not None else next(kind for kind in KINDS if kind.name == part.kind)  # of a test
