"""The kernel of a convolution of each feature by a window of its own, on arrays with features last.

It stands where a library call would: no plan is made for it. It reads vectors of features, and keeps in registers what
neighbouring results share (`device/depthwise.cuh`).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass

from hlo_opt.analysis.targets import DeviceTarget
from hlo_opt.codegen.cuda import kernel_text
from hlo_opt.codegen.kernel import Kernel, Pointer, Tree
from hlo_opt.codegen.names import comment
from hlo_opt.codegen.scalars import memory_type
from hlo_opt.codegen.tree import Aligned, Do
from hlo_opt.ir import ELEMENT_TYPES, Layout, Shape
from hlo_opt.ops.calls.call import DeviceCall
from hlo_opt.ops.calls.depthwise import depthwise_of
from hlo_opt.ops.code import Name, code
from hlo_opt.plans.plan import Launch

VECTOR = 4
"""Features of a thread: with more, sums and factors of a long row of the window do not fit into registers."""
LONGEST_ROW = 16
"""The most taps of a window along its last dimension: a thread has a factor of each in registers."""
MOST_ACROSS = 8
"""The most neighbouring results of a thread."""
BLOCK = 256
WORKING = 512
"""Threads of a multiprocessor below which it waits for memory."""
FEWEST_ROWS = 3
"""Rows of a window up to which a thread reads them all at once."""


@dataclass(frozen=True)
class _Side:
    """A spatial dimension, as `hlo_side` has it."""

    image: int
    result: int
    taps: int
    stride: int
    low: int
    dilation: int
    step: int

    def columns(self, across: int) -> int:
        """Elements of the image that so many neighbouring results need."""
        return len({s * self.stride + t * self.dilation for s in range(across) for t in range(self.taps)})

    @property
    def text(self) -> str:
        values = (self.image, self.result, self.taps, self.stride, self.low, self.dilation, self.step)
        return f"hlo_side{{{', '.join(map(str, values))}}}"


_NOTHING = _Side(1, 1, 1, 1, 0, 1, 0)


def depthwise_kernel(call: DeviceCall, target: DeviceTarget) -> Kernel | None:
    """The kernel of a depthwise convolution; None for other calls, and where features are not last in memory."""
    asked = depthwise_of(call)
    if asked is None:
        return None
    (left, right, result), (of_left, of_right, of_result) = asked.shapes, asked.positions
    spatial = sorted(range(len(asked.window)), key=lambda k: of_left[2][k])
    if not 1 <= len(spatial) <= 3:
        return None
    for shape, (batch, features, places) in ((left, of_left), (result, of_result)):
        if list(reversed(shape[3])) != [batch, *(places[k] for k in spatial), features]:
            return None
    steps, step = {}, 1
    for d in right[3]:
        steps[d] = step
        step *= right[2][d]
    first, sides = 0, []
    for k in spatial:
        taps, stride, low, _, _, dilation, is_turned = asked.window[k]
        along = steps[of_right[2][k]]
        first += (taps - 1) * along if is_turned else 0
        image, out = left[2][of_left[2][k]], result[2][of_result[2][k]]
        sides.append(_Side(image, out, taps, stride, low, dilation, -along if is_turned else along))
    sides = [_NOTHING] * (3 - len(sides)) + sides
    if sides[2].taps > LONGEST_ROW:
        return None
    return _kernel(call, target, sides, first, steps[of_right[0]])


def _kernel(call: DeviceCall, target: DeviceTarget, sides: Sequence[_Side], first: int, step: int) -> Kernel:
    depth, row, column = sides
    shapes = [Shape(ELEMENT_TYPES[s[0]], tuple(s[2]), Layout(tuple(s[3]))) for s in call.shapes[:3]]
    features = shapes[0].dimensions[shapes[0].minor_to_major[0]]
    batch = shapes[0].element_count // (features * math.prod(side.image for side in sides))
    vector = math.gcd(features, VECTOR)
    across = _across(column, batch * depth.result * row.result * (features // vector), target.core_count * WORKING)
    vectors, strips = features // vector, -(-column.result // across)
    in_block = _even(vectors, BLOCK // 4)
    rows = _even(row.result, max(1, BLOCK // in_block))
    lines = _even(strips, max(1, BLOCK // (in_block * rows)))
    tiles = (-(-n // each) for n, each in ((vectors, in_block), (strips, lines), (row.result, rows)))
    launch = Launch(math.prod(tiles) * depth.result * batch, in_block * rows * lines)
    kinds = [memory_type(shape.type) for shape in shapes]
    wide = "double" if kinds[0] == "double" else "float"
    is_bf16 = "true" if shapes[0].type.name == "bf16" else "false"
    at_once = row.taps if row.taps <= FEWEST_ROWS else 1
    how = (is_bf16, vector, across, column.taps, column.stride, column.dilation, at_once, wide)
    tile = f"hlo_tile{{{features}, {step}, {in_block}, {rows}, {lines}}}"
    image, kernel, out = Name("in0"), Name("in1"), Name("out0")
    text = f"hlo_depthwise<{', '.join(map(str, how))}>({{}}, {{}} + {first}, {{}}, "
    described = ", ".join((*(side.text for side in sides), tile)).replace("{", "{{").replace("}", "}}")
    body = [
        *(Aligned(n, f"{'const ' * (n != out)}{k}*", 16) for n, k in zip((image, kernel, out), kinds, strict=True)),
        Do(code(f"{text}{described})", image, kernel, out)),
    ]
    pointers = tuple(Pointer(k, n, constant=n != out) for n, k in zip((image, kernel, out), kinds, strict=True))
    tree = Tree(launch, pointers, (), tuple(body))
    before, after = kernel_text(tree, str(launch.block))
    said = [f"depthwise convolution: {launch.grid} blocks of {launch.block} threads", " by ".join(map(str, shapes[:2]))]
    before = comment([*said, f"gives {shapes[2]}"]) + before
    symbol = f"depthwise_{hashlib.sha256(f'{launch.grid} {before}{after}'.encode()).hexdigest()[:16]}"
    return Kernel(
        symbol, f"{before}{symbol}{after}", launch, tuple(shapes[:2]), (shapes[2],), "depthwise", tree, rereads=True
    )


def _across(column: _Side, lines: int, threads: int) -> int:
    """How many neighbouring results a thread has: the fewest loads of vectors and multiplications, the latter in
    quarters, while there are enough threads for the device."""

    def work(across: int) -> float:
        strips = -(-column.result // across)
        of_one = 4 * (column.columns(across) + column.taps) + across * column.taps
        return strips * of_one * max(1.0, threads / (strips * lines))

    return min(range(1, MOST_ACROSS + 1), key=work)


def _even(count: int, most: int) -> int:
    """The size of tiles, at most so large, that fill `count` with the least left over."""
    return -(-count // -(-count // most))
