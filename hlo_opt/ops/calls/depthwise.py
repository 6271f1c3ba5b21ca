"""Convolutions of each feature by a window of its own.

cuDNN takes 10 to 20 times as long as memory allows for these, where features are last (measured on an H200 with cuDNN
9.14: 594 us for f32[32,56,56,144] by 3x3).
"""

from __future__ import annotations

from hlo_opt.ops.calls.call import DeviceCall
from hlo_opt.ops.calls.convolutions import FILTER, Asked, asked_of, convolutions_of


def depthwise_of(call: DeviceCall) -> Asked | None:
    """A convolution of as many groups as features, each with one output feature; None for other calls."""
    asked, ways = asked_of(call), convolutions_of(call)
    if asked is None or not ways or ways[0].direction == FILTER:
        return None
    (left, right, _), (of_left, of_right, _) = asked.shapes, asked.positions
    features = left[2][of_left[1]]
    return asked if asked.groups[0] == features == right[2][of_right[0]] else None
