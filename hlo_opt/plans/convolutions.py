"""The price of convolutions: by cuDNN, which multiplies tiles of its results on multiprocessors, in waves; or by a
kernel of our own, where each feature has a window of its own.

The constants are fitted to 45 convolutions of cuDNN and 7 kernels on an H200, which are 7 % and 14 % off in the median
(`scripts.bench.convolution_times`).
"""

from __future__ import annotations

import math

from hlo_opt.analysis.targets import DeviceTarget
from hlo_opt.analysis.targets.rates import products_per_cycle
from hlo_opt.ir import ELEMENT_TYPES, Instruction
from hlo_opt.ops.calls.call import TF32, call_of
from hlo_opt.ops.calls.convolutions import DATA, FILTER, Convolution
from hlo_opt.ops.calls.epilogues import cudnn_ways
from hlo_opt.plans.depthwise import cycles, depthwise_plan
from hlo_opt.plans.price import ENDS, Price, clock, together

TILE, NARROWEST = 64, 16
"""Rows and columns of results that a block of cuDNN's has: with groups, as few as one group has, but not fewer than
tensor cores multiply."""
REACHED, GRADIENTS = 0.64, 0.36
"""The fraction of peak that a block reaches while it multiplies; and of gradients of a filter, whose sums are long, and
of f64."""
FILLING = 0.21
"""Microseconds of a wave of blocks before the first products and after the last."""
STARTING = 6.3
"""Microseconds of a call beside these."""
CHANNELS = 128
"""Bytes of features that a block multiplies at a time: fewer are filled up, for each element of the window."""
PARTS = tuple(2**k for k in range(8))
"""Into how many parts the sums of a gradient of a filter may be divided."""
OWN = 0.66
"""The fraction of the bandwidth of a copy, and of the rates of L1 and of instructions, that our own kernel reaches: its
threads wait for one line of the image after another."""
MOVING = 0.54
"""The fraction of the bandwidth of a copy that kernels reach which move arrays for cuDNN, most of which transpose."""


def convolution_price(instruction: Instruction, read: float, written: float, target: DeviceTarget) -> Price | None:
    """The price of a convolution that reads `read` bytes and writes `written`, in the fastest way that it can be
    computed; None for other instructions, and where neither cuDNN nor a kernel of our own computes it."""
    call = call_of(instruction)
    if call is None:
        return None
    plan = depthwise_plan(call, target)
    if plan is not None:
        return _kernel(read, written, *cycles(plan), target)
    prices = [_by_cudnn(way, read, written, target) for way in cudnn_ways(instruction, call)]
    return min(prices, key=lambda price: price.us, default=None)


def _kernel(read: float, written: float, loads: float, issued: float, target: DeviceTarget) -> Price:
    """The price of a kernel of our own. `loads` and `issued` are cycles of one multiprocessor."""
    device = clock(target) * target.core_count * OWN
    moved = (read + written) / (target.copied_per_second / 1e6) / OWN
    parts = (moved, loads / device, issued / device, 0.0, 0.0)
    launch = target.kernel_launch_us + ENDS
    return Price(together(parts) + launch, *parts, launch, read, written, read + written)


def _by_cudnn(way: Convolution, read: float, written: float, target: DeviceTarget) -> Price:
    moves = [move for move in way.moves if move is not None]
    bandwidth = target.copied_per_second / 1e6
    own, launches = 2.0 * sum(move.bytes for move in moves), 1 + len(moves)
    moving = own / MOVING / bandwidth + len(moves) * ENDS
    image, kernel, output = way.image, way.kernel, way.output
    kind = ELEMENT_TYPES[image.type_name]
    is_plain = kind.name == "f64" or (kind.name == "f32" and not way.is_rounded)
    if not is_plain and image.strides[1] != 1 and image.sizes[1] > 1:  # tensor cores read features last
        transposed = 2.0 * (image.bytes + output.bytes)
        own, moving, launches = own + transposed, moving + transposed / bandwidth, launches + 2
    name = TF32 if kind.name == "f32" and way.is_rounded else kind.name
    rate = products_per_cycle(target, name, tensor_cores=not is_plain) * clock(target)
    groups = max(1, image.sizes[1] // kernel.sizes[1])
    taps, at_once = math.prod(kernel.sizes[2:]), CHANNELS // kind.bytes
    parts: tuple[int, ...] = (1,)
    if way.direction == FILTER:
        filled = kernel.sizes[1] if groups > 1 else -(-kernel.sizes[1] // NARROWEST) * NARROWEST
        rows, columns = filled * taps, kernel.sizes[0] // groups
        sums, parts = output.sizes[0] * math.prod(output.sizes[2:]), PARTS
    elif way.direction == DATA:
        rows, columns = image.sizes[0] * math.prod(image.sizes[2:]), kernel.sizes[1]
        near = math.prod(-(-size // stride) for size, stride in zip(kernel.sizes[2:], way.strides, strict=True))
        sums = near * -(-(kernel.sizes[0] // groups) // at_once) * at_once
    else:
        rows, columns = output.sizes[0] * math.prod(output.sizes[2:]), kernel.sizes[0] // groups
        sums = taps * -(-kernel.sizes[1] // at_once) * at_once
    tile = [TILE if groups == 1 else min(TILE, max(NARROWEST, 1 << (n - 1).bit_length())) for n in (rows, columns)]
    blocks = -(-rows // tile[0]) * -(-columns // tile[1]) * groups
    reached = GRADIENTS if way.direction == FILTER or kind.name == "f64" else REACHED

    def multiplied(count: int) -> float:
        """Microseconds where each sum is computed in `count` parts, which a second kernel adds."""
        waves = -(-blocks * count // target.core_count)
        of_parts = 2 * count * rows * columns * groups * 4 / bandwidth + target.kernel_launch_us if count > 1 else 0.0
        return waves * (tile[0] * tile[1] * sums / count / (rate * reached) + FILLING) + of_parts

    busy = min(map(multiplied, parts))
    launch = launches * target.kernel_launch_us
    memory = (read + written) / bandwidth
    us = together((memory, busy)) + moving + launch + STARTING
    return Price(us, memory, 0.0, busy, 0.0, 0.0, launch, read + own / 2, written + own / 2, read + written + own)
