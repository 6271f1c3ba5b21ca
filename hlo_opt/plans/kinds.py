"""The table of kinds of kernels: how each is found, and in which order segments of several follow each other. An
emitter of each kind has the same name in `hlo_opt.codegen`.

A kind is two files, one here and one there, and a row of this table; nothing else knows kinds by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from hlo_opt.analysis.targets import DeviceTarget
from hlo_opt.ir import Instruction, Shape
from hlo_opt.ops.sets import LOOPS
from hlo_opt.plans import (
    batch,
    block_loop,
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
    loop,
    matmul,
    matrix_vector,
    phases,
    row_and_column_reduction,
    row_reduction,
    scan,
    scatter,
    sort,
    tensor_matmul,
    tiled_transpose,
)
from hlo_opt.plans.plan import Part, Region
from hlo_opt.plans.products import Space
from hlo_opt.plans.walks import Walk, by_element

Match = Callable[[Region, Sequence[int], DeviceTarget, int], tuple[Sequence[Part], list[int]]]
"""(region, positions of outputs, target, free bytes of shared memory) -> the parts of a kind that fit, and the
positions of the other outputs."""

Walks = Callable[..., list[Walk]]
"""(region, segment, launch) -> what the threads of the segment do, one walk after another."""


@dataclass(frozen=True)
class Kind:
    """How kernels of a kind are found. Exactly one of the matchers is there, or none where the kind before finds both.

    name     of its parts, of its emitter's file (with underscores), and in what is shown to users
    heroes   the opcodes of which a region holds one where the kind is in it; None: it may be in any
    order    where its segments stand among those of a launch; rows of the table have an order of their own
    match    finds parts among outputs
    whole    finds the region as one sort, scan or loop, whose operation no other kind computes
    has_rivals  others may be quicker: the region is arranged once with the kinds that say so and once without them, and
                the arrangement that takes the least time is kept
    product  finds the region as one product, given what is multiplied
    unheard  only where no library has what the region asks for
    whole_warps  its threads meet by warps, so that blocks must be whole ones
    rereads_near its threads go over the same elements several times and find in registers, or near them, what they have
    read before
    moves_tiles  it transposes in shared memory, so that reads and writes are in the order of memory: it may be in every
                 region whose arrays lie in several orders
    inside   the operations of a round, or a step, of its hero that it computes itself, where it opens what the hero
             calls
    walks    what its threads do, for its price; without a word of its own, they share elements out among them
    """

    name: str
    heroes: frozenset[str] | None = None
    order: int = 0
    match: Match | None = None
    whole: Callable[[Region, DeviceTarget], Part | None] | None = None
    has_rivals: bool = False
    product: Callable[[Region, Space, DeviceTarget], Part | None] | None = None
    unheard: bool = False
    whole_warps: bool = False
    rereads_near: bool = False
    moves_tiles: bool = False
    inside: Callable[..., Sequence[Instruction]] | None = None
    walks: Walks = by_element

    def may_be_in(self, opcodes: frozenset[str], *, orders_differ: bool) -> bool:
        """Whether a region that holds such operations, and reads and writes arrays of one order in memory or several,
        may be, or have a part, of this kind."""
        return self.heroes is None or not self.heroes.isdisjoint(opcodes) or (self.moves_tiles and orders_differ)


def _folds(region: Region, roots: Sequence[int], target: DeviceTarget, room: int) -> tuple[Sequence[Part], list[int]]:
    """Row and column reductions."""
    parts: list[Part] = []
    found, rest = folding.match(region, roots, lambda r: row_reduction.space_of(r) or column_reduction.space_of(r))
    for folded in found:
        part: Part | None
        if folded.space.minor > 1:
            part = column_reduction.of(region, folded, target, room)
        else:
            part = row_reduction.of(region, folded, target)
        if part is None:
            rest = sorted([*rest, *folded.roots])
        else:
            parts.append(part)
            room -= part.shared_bytes(part.block)
    return parts, rest


_SORTS = frozenset({"sort", "topk"})
_PRODUCTS = frozenset({"dot"})
_FOLDS = frozenset({"reduce"})
_LOOP = partial(Kind, heroes=LOOPS)

KINDS: list[Kind] = [
    Kind("sort", _SORTS, whole=lambda region, target: sort.match(region), walks=sort.walks),
    Kind("scan", frozenset({"scan"}), whole=lambda region, target: scan.match(region), walks=scan.walks),
    _LOOP(
        "lane-loop",
        whole=lambda region, target: lane_search.match(region),
        inside=lane_loop.inside,
        walks=lane_loop.walks,
    ),
    _LOOP(
        "block-loop",
        whole=lambda region, target: block_search.match(region),
        has_rivals=True,
        whole_warps=True,
        inside=phases.inside,
        walks=block_loop.walks,
    ),
    _LOOP(
        "grid-loop",
        whole=grid_search.match,
        has_rivals=True,
        whole_warps=True,
        inside=phases.inside,
        walks=grid_loop.walks,
    ),
    Kind("long-sort", _SORTS, whole=lambda region, target: long_sort.match(region), unheard=True, walks=sort.walks),
    Kind(
        "matrix-vector",
        _PRODUCTS,
        product=lambda region, space, target: matrix_vector.match(region, space),
        walks=matrix_vector.walks,
    ),
    Kind("tensor-matmul", _PRODUCTS, product=tensor_matmul.match, walks=tensor_matmul.walks),
    Kind("matmul", _PRODUCTS, product=matmul.match, walks=matmul.walks),
    Kind(
        "scatter",
        frozenset({"scatter"}),
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
        "cumulative",
        frozenset({"reduce-window"}),
        0,
        cumulative.match,
        whole_warps=True,
        walks=cumulative.walks,
    ),
    Kind(
        "row-and-column-reduction",
        _FOLDS,
        0,
        row_and_column_reduction.match,
        whole_warps=True,
        rereads_near=True,
        walks=row_and_column_reduction.walks,
    ),
    Kind("row-reduction", _FOLDS, 0, _folds, whole_warps=True, rereads_near=True, walks=row_reduction.walks),
    Kind("column-reduction", _FOLDS, 1, walks=column_reduction.walks),
    Kind(
        "tiled-transpose",
        frozenset({"transpose", "copy"}),
        2,
        tiled_transpose.match,
        moves_tiles=True,
        walks=tiled_transpose.walks,
    ),
    Kind(
        "concatenate",
        frozenset({"concatenate"}),
        4,
        lambda region, roots, target, room: concatenate.match(region, roots, target),
        walks=concatenate.walks,
    ),
    Kind("gather", frozenset({"gather"}), 5, lambda region, roots, target, room: gather.match(region, roots, target)),
    Kind(
        "batch",
        order=3,
        match=lambda region, roots, target, room: batch.match(region, roots),
        has_rivals=True,
        walks=batch.walks,
    ),
    Kind("loop", order=3, match=lambda region, roots, target, room: (loop.match(region, roots, target), [])),
]
"""In the order in which they are asked. The last takes what no other does."""


def orders_differ(shapes: Iterable[Shape]) -> bool:
    """Whether arrays of the same number of dimensions have these in different orders in memory."""
    orders: dict[int, tuple[int, ...]] = {}
    return any(orders.setdefault(s.rank, s.minor_to_major) != s.minor_to_major for s in shapes if s.is_array)


def kind_of(part: Part) -> Kind:
    """The row of a part's kind."""
    return next(kind for kind in KINDS if kind.name == part.kind)
