"""The dimension rules of convolution.

Source: xla/service/shape_inference.cc (InferConvolveShape), xla/service/hlo_cost_analysis.cc (GetConvolutionFlops).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from hlo_opt.ir import IndexMap, Instruction, Shape
from hlo_opt.ir.attribute import WindowDimension
from hlo_opt.ops.lazy import lazy
from hlo_opt.ops.shapes import integer, need, operand, product_type, result, window, windowed
from hlo_opt.ops.spec import ShapeError

evaluate_convolution = lazy("contraction.meaning", "convolution")

_LABELS = re.compile(r"([0-9bf?]+)_([0-9io?]+)->([0-9bf?]+)")


@dataclass(frozen=True)
class ConvolutionDimensions:
    """Positions of batch, feature and spatial dimensions: of the input, the kernel (output feature, input feature) and the output."""

    lhs: tuple[int, int, tuple[int, ...]]
    rhs: tuple[int, int, tuple[int, ...]]
    output: tuple[int, int, tuple[int, ...]]
    window: tuple[WindowDimension, ...]
    feature_groups: int
    batch_groups: int

    @property
    def described(self) -> tuple[Any, Any, Any]:
        """Positions, window and groups as plain values: what `convolution` of `hlo_opt.library` takes."""
        window = tuple(
            (w.size, w.stride, w.pad_low, w.pad_high, w.lhs_dilate, w.rhs_dilate, w.rhs_reversal) for w in self.window
        )
        return (self.lhs, self.rhs, self.output), window, (self.feature_groups, self.batch_groups)


def _positions(labels: str, first: str, second: str) -> tuple[int, int, tuple[int, ...]]:
    need(
        labels.count(first) == 1 and labels.count(second) == 1, f"dim_labels {labels} need one {first} and one {second}"
    )
    spatial = [c for c in labels if c.isdigit()]
    need(
        sorted(spatial) == [str(k) for k in range(len(spatial))], f"dim_labels {labels}: spatial dimensions are not 0.."
    )
    return labels.index(first), labels.index(second), tuple(labels.index(str(k)) for k in range(len(spatial)))


def convolution_dimensions(instruction: Instruction) -> ConvolutionDimensions:
    """The dimension numbers. Raises ShapeError when they do not fit together."""
    match = _LABELS.fullmatch(instruction.word("dim_labels"))
    if match is None:
        raise ShapeError("dim_labels is missing or malformed")
    lhs, rhs, output = match.groups()
    parts = (_positions(lhs, "b", "f"), _positions(rhs, "o", "i"), _positions(output, "b", "f"))
    need(len({len(p[2]) for p in parts}) == 1, "dim_labels have different numbers of spatial dimensions")
    groups = integer(instruction, "feature_group_count", 1), integer(instruction, "batch_group_count", 1)
    need(min(groups) >= 1, "group counts are positive")
    return ConvolutionDimensions(*parts, window(instruction, len(parts[0][2])), *groups)


def infer_convolution(instruction: Instruction) -> Shape:
    lhs, rhs = operand(instruction, 0), operand(instruction, 1)
    c = convolution_dimensions(instruction)
    rank = len(c.window) + 2
    need(lhs.rank == rank and rhs.rank == rank, f"dim_labels are for rank {rank}, operands are {lhs} and {rhs}")
    features, inputs = lhs.dimensions[c.lhs[1]], rhs.dimensions[c.rhs[1]]
    need(
        features == inputs * c.feature_groups,
        f"{features} features for kernels of {inputs} in {c.feature_groups} groups",
    )
    outputs, batch = rhs.dimensions[c.rhs[0]], lhs.dimensions[c.lhs[0]]
    need(outputs % c.feature_groups == 0, f"{outputs} output features in {c.feature_groups} groups")
    need(
        batch % c.batch_groups == 0 and outputs % c.batch_groups == 0, f"a batch of {batch} in {c.batch_groups} groups"
    )
    sizes = [0] * rank
    sizes[c.output[0]], sizes[c.output[1]] = batch // c.batch_groups, outputs
    for k, w in enumerate(c.window):
        need(
            w.size == rhs.dimensions[c.rhs[2][k]],
            f"the window has size {w.size} in spatial dimension {k}, the kernel not",
        )
        sizes[c.output[2][k]] = windowed(lhs.dimensions[c.lhs[2][k]], w)
    return result(instruction, product_type(instruction), sizes)


def index_convolution(instruction: Instruction, number: int) -> IndexMap | None:
    return None


def flops_convolution(instruction: Instruction) -> float:
    """Two per product, positions in the padding not counted."""
    c = convolution_dimensions(instruction)
    lhs, rhs = instruction.operands[0].shape, instruction.operands[1].shape
    valid = 1
    for k, w in enumerate(c.window):
        size = lhs.dimensions[c.lhs[2][k]]
        valid *= _valid_positions(size, windowed(size, w), w)
    batch = lhs.dimensions[c.lhs[0]] // c.batch_groups
    return 2.0 * valid * rhs.dimensions[c.rhs[1]] * rhs.dimensions[c.rhs[0]] * batch


def _valid_positions(size: int, out: int, w: WindowDimension) -> int:
    """(result, window) pairs along one dimension that read an element of the input."""
    if w.pad_low == w.pad_high == 0 and w.lhs_dilate == 1:
        return out * w.size
    valid = 0
    for at in range(w.size):
        offset = at * w.rhs_dilate - w.pad_low
        # dilated = o * stride + offset must lie in [0, (size - 1) * lhs_dilate] and be divisible by lhs_dilate
        first = max(0, -(offset // w.stride))
        last = min(out - 1, ((size - 1) * w.lhs_dilate - offset) // w.stride)
        if w.lhs_dilate == 1:
            valid += max(0, last - first + 1)
        else:
            valid += sum((o * w.stride + offset) % w.lhs_dilate == 0 for o in range(first, last + 1))
    return valid
