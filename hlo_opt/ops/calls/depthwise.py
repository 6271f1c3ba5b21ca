"""Convolutions of each feature by a small window of its own, and these as a sum over the window that one fusion
computes.

cuDNN takes 10 to 20 times as long as memory allows for these, where features are last (measured on an H200 with cuDNN
9.14: 594 us for f32[32,56,56,144] by 3x3).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from hlo_opt.ops.calls.call import DeviceCall
from hlo_opt.ops.calls.convolutions import FORWARD, Asked, asked_of, convolutions_of

MOST_TAPS = 49
"""The most elements of a window: each is one term for every element of the result."""


def depthwise_of(call: DeviceCall) -> Asked | None:
    """A convolution of as many groups as features, each with one output feature; None for other calls."""
    asked, ways = asked_of(call), convolutions_of(call)
    if asked is None or not ways or ways[0].direction != FORWARD:
        return None
    (left, right, _), (of_left, of_right, _) = asked.shapes, asked.positions
    features = left[2][of_left[1]]
    return asked if asked.groups[0] == features == right[2][of_right[0]] else None


def depthwise_text(call: DeviceCall) -> str | None:
    """A module of one fusion that computes a depthwise convolution (`depthwise_of`); None for other calls, and for
    windows of more than `MOST_TAPS`. f16 and bf16 are added up in f32."""
    asked = depthwise_of(call)
    if asked is None:
        return None
    (left, right, result), (of_left, of_right, of_result) = asked.shapes, asked.positions
    features, window = left[2][of_left[1]], asked.window
    if math.prod(w[0] for w in window) > MOST_TAPS:
        return None
    wide = "f64" if result[0] == "f64" else "f32"

    def array(name: str, sizes: Sequence[int], minor_to_major: Sequence[int]) -> str:
        return f"{name}[{','.join(map(str, sizes))}]{{{','.join(map(str, minor_to_major))}}}"

    inputs = [array(left[0], left[2], left[3]), array(right[0], right[2], right[3])]
    ends, sizes = [(0, 0)] * len(left[2]), list(left[2])
    for d, w in zip(of_left[2], window, strict=True):
        ends[d] = w[2], w[3]
        sizes[d] += w[2] + w[3]
    padding = "x".join(f"{low}_{high}" for low, high in ends)
    lines = [
        f"a = {inputs[0]} parameter(0)",
        f"b = {inputs[1]} parameter(1)",
        f"image = {array(wide, left[2], left[3])} convert(a)",
        f"kernel = {array(wide, right[2], right[3])} convert(b)",
        f"zero = {wide}[] constant(0)",
        f"padded = {array(wide, sizes, left[3])} pad(image, zero), padding={padding}",
    ]
    source_of = {of_result[0]: of_left[0], of_result[1]: of_left[1], **dict(zip(of_result[2], of_left[2], strict=True))}
    order = [source_of[d] for d in range(len(source_of))]
    out, parts, total = array(wide, result[2], result[3]), [0] * len(order), ""
    for d, source in source_of.items():
        parts[source] = result[2][d]
    for n, tap in enumerate(itertools.product(*(range(w[0]) for w in window))):
        cut, taken = [f"[0:{size}]" for size in sizes], [f"[0:{size}]" for size in right[2]]
        for t, w, image, kernel in zip(tap, window, of_left[2], of_right[2], strict=True):
            first = t * w[5]
            cut[image] = f"[{first}:{first + (parts[image] - 1) * w[1] + 1}:{w[1]}]"
            at = w[0] - 1 - t if w[6] else t
            taken[kernel] = f"[{at}:{at + 1}]"
        one = [features if d == of_right[0] else 1 for d in range(len(right[2]))]
        lines += [
            f"cut{n} = {array(wide, parts, left[3])} slice(padded), slice={{{', '.join(cut)}}}",
            f"part{n} = {out} transpose(cut{n}), dimensions={{{','.join(map(str, order))}}}",
            f"one{n} = {array(wide, one, right[3])} slice(kernel), slice={{{', '.join(taken)}}}",
            f"factors{n} = {wide}[{features}]{{0}} reshape(one{n})",
            f"factor{n} = {out} broadcast(factors{n}), dimensions={{{of_result[1]}}}",
            f"term{n} = {out} multiply(part{n}, factor{n})",
        ]
        if total:
            lines.append(f"sum{n} = {out} add({total}, term{n})")
        total = f"sum{n}" if total else f"term{n}"
    whole = array(result[0], result[2], result[3])
    lines.append(f"ROOT result = {whole} convert({total})")
    body = "\n  ".join(lines)
    return (
        f"HloModule depthwise\n\nbody {{\n  {body}\n}}\n\nENTRY main {{\n  a = {inputs[0]} parameter(0)\n"
        f"  b = {inputs[1]} parameter(1)\n  ROOT c = {whole} fusion(a, b), kind=kLoop, calls=body\n}}\n"
    )
