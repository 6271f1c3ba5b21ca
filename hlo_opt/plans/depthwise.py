"""The plan of a depthwise convolution (each feature has a window of its own), on arrays with features last or first.

It replaces a library call, so it is not among the kinds of regions. A thread has several neighbouring results along
the last spatial dimension, of a vector of features where these are last, and keeps in registers what they share.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from hlo_opt.analysis.targets import DeviceTarget
from hlo_opt.ir import ELEMENT_TYPES, Layout, Shape
from hlo_opt.ops.calls.call import DeviceCall
from hlo_opt.ops.calls.depthwise import depthwise_of
from hlo_opt.plans.columns import WARP
from hlo_opt.plans.plan import Launch

VECTOR = 4
"""Features of a thread: with more, sums and factors of a long row of the window do not fit into registers."""
LONGEST_ROW = 49
"""The most taps of a window along its last dimension: the loop over them is unrolled."""
WIDEST_READ = 16
"""Bytes that one instruction of a thread loads or stores at most."""
MOST_ACROSS = 8
"""The most neighbouring results of a thread."""
BLOCK = 256
WORKING = 512
"""Threads of a multiprocessor below which it waits for memory."""


@dataclass(frozen=True)
class WindowSide:
    """A spatial dimension: elements of image and result, taps of the window, its stride, the padding before, dilations
    of kernel and image, and elements of the kernel from one tap to the next. As `hlo_side` has it."""

    image: int
    result: int
    taps: int
    stride: int
    low: int
    dilation: int
    base: int
    step: int

    @property
    def needed(self) -> float:
        """The taps of a window that lie on elements of the image, on average."""
        return self.taps / self.base

    def columns(self, across: int) -> tuple[int, int]:
        """The columns of the image that `across` neighbouring results may need: the first one, relative to the first
        result's, and their number."""
        last = (across - 1) * self.stride + (self.taps - 1) * self.dilation - self.low
        first = -(self.low // self.base)
        return first, last // self.base - first + 1

    def loads(self, across: int) -> int:
        """The number of these columns that they do need."""
        places = {s * self.stride + t * self.dilation - self.low for s in range(across) for t in range(self.taps)}
        return sum(place % self.base == 0 for place in places)

    def before(self, wide: int) -> int:
        """How far before the first result of a thread its first read begins, in elements. A read takes `wide` elements
        and starts at a multiple of them."""
        return -(-self.low // wide) * wide

    def reads(self, across: int, wide: int) -> int:
        """The number of reads, of `wide` elements each, that `across` neighbouring results need."""
        reach = (across - 1) * self.stride + (self.taps - 1) * self.dilation
        return (self.before(wide) - self.low + reach) // wide + 1


@dataclass(frozen=True)
class Depthwise:
    """How a depthwise convolution is computed.

    shapes   of image, kernel and result
    sides    three spatial dimensions; missing ones come first
    first    the element of the kernel at the first tap of the first feature
    step     elements of the kernel from one feature to the next
    is_first whether features are first, and not last
    vector   features of a thread
    across   neighbouring results of a thread
    wide     where features are first, neighbouring elements of the image that are read at once
    vectors, rows, strips  vectors of features, rows and strips of `across` results that a block has
    """

    shapes: tuple[Shape, Shape, Shape]
    sides: tuple[WindowSide, WindowSide, WindowSide]
    first: int
    step: int
    features: int
    is_first: bool
    vector: int
    across: int
    wide: int
    vectors: int
    rows: int
    strips: int

    @property
    def launch(self) -> Launch:
        depth, row, column = self.sides
        batch = self.shapes[2].element_count // (self.features * depth.result * row.result * column.result)
        strips = -(-column.result // self.across)
        pairs = (self.features // self.vector, self.vectors), (strips, self.strips), (row.result, self.rows)
        blocks = math.prod(-(-count // each) for count, each in pairs) * depth.result * batch
        return Launch(blocks, self.vectors * self.strips * self.rows)


def depthwise_plan(call: DeviceCall, target: DeviceTarget) -> Depthwise | None:
    """The plan of a depthwise convolution; None for other calls, and where features are neither last nor first in
    memory."""
    asked = depthwise_of(call)
    if asked is None:
        return None
    (left, right, result), (of_left, of_right, of_result) = asked.shapes, asked.positions
    spatial = sorted(range(len(asked.window)), key=lambda k: of_left[2][k])
    if not 1 <= len(spatial) <= 3:
        return None
    orders = set()
    for shape, (batch, inner, places) in ((left, of_left), (result, of_result)):
        order, own = list(reversed(shape[3])), [places[k] for k in spatial]
        orders.add((order == [batch, *own, inner], order == [batch, inner, *own]))
    if orders not in ({(True, False)}, {(False, True)}):
        return None
    is_first = orders == {(False, True)}
    steps, step = {}, 1
    for d in right[3]:
        steps[d] = step
        step *= right[2][d]
    first, sides = 0, []
    for k in spatial:
        taps, stride, low, _, base, dilation, is_turned = asked.window[k]
        along = steps[of_right[2][k]]
        first += (taps - 1) * along if is_turned else 0
        image, out = left[2][of_left[2][k]], result[2][of_result[2][k]]
        sides.append(WindowSide(image, out, taps, stride, low, dilation, base, -along if is_turned else along))
    none = [WindowSide(1, 1, 1, 1, 0, 1, 1, 0)] * (3 - len(sides))
    depth, row, column = *none, *sides
    if column.taps > LONGEST_ROW or column.base > (1 if is_first else MOST_ACROSS):
        return None
    a, b, c = (Shape(ELEMENT_TYPES[s[0]], tuple(s[2]), Layout(tuple(s[3]))) for s in asked.shapes)
    features = left[2][of_left[1]]
    vector = 1 if is_first else math.gcd(features, VECTOR)
    lines = c.element_count // (column.result * vector)
    most = WIDEST_READ // a.type.bytes if is_first else 1
    across = _across(column, lines, target.core_count * WORKING, most)
    wide = _wide(column, across, most)
    strips = -(-column.result // across)
    if is_first:
        strips = _even(strips, BLOCK)
        rows = _even(row.result, BLOCK // strips)
        vectors = _even(features, max(1, BLOCK // (strips * rows)))
    else:
        vectors = _even(features // vector, BLOCK // 4)
        rows = _even(row.result, max(1, BLOCK // vectors))
        strips = _even(strips, max(1, BLOCK // (vectors * rows)))
    shapes, by_dimension = (a, b, c), (depth, row, column)
    step = steps[of_right[0]]
    return Depthwise(shapes, by_dimension, first, step, features, is_first, vector, across, wide, vectors, rows, strips)


def _wide(column: WindowSide, across: int, most: int) -> int:
    """The number of neighbouring elements that one read takes. Either all or none of them are in the image, and the
    first is at a multiple of that number."""
    return math.gcd(most, column.image, across * column.stride)


def _across(column: WindowSide, lines: int, threads: int, most: int) -> int:
    """How many neighbouring results a thread has: the fewest loads and multiplications, of which there are four in the
    time of a load, while there are enough threads for the device. `most` as in `_wide`."""

    def work(across: int) -> float:
        strips, wide = -(-column.result // across), _wide(column, across, most)
        loads = column.loads(across) if most == 1 else column.reads(across, wide)
        of_one = 4 * (loads + column.taps) + across * column.needed
        return strips * of_one * max(1.0, threads / (strips * lines))

    return min(range(column.base, MOST_ACROSS + 1, column.base), key=work)


def _even(count: int, most: int) -> int:
    """The size of tiles, up to `most`, that leaves the least of `count` over."""
    return -(-count // -(-count // most))


_L1_BYTES, _AT_ONCE, _OF_A_LOAD = 128, 4, 2
"""Bytes per cycle of an L1 cache; warps per cycle that instructions are issued for; and instructions beside a load, for
its address and its condition."""


def cycles(plan: Depthwise) -> tuple[float, float]:
    """Cycles that all threads take together on one multiprocessor: of loads in its L1, and of issued instructions."""
    depth, row, column = plan.sides
    kind, warps = plan.shapes[0].type, plan.launch.grid * plan.launch.block / WARP
    lines = depth.needed * row.needed
    reads = column.reads(plan.across, plan.wide) if plan.is_first else column.loads(plan.across)
    loads = lines * (reads + column.taps)
    elements = lines * (reads * plan.wide + column.taps) if plan.is_first else loads * plan.vector
    products = lines * column.needed * plan.across * plan.vector
    issued = products * max(1, kind.bytes // 4) + (elements if kind.bytes < 4 else 0) + _OF_A_LOAD * loads
    return warps * elements * kind.bytes * WARP / _L1_BYTES, warps * issued / _AT_ONCE
