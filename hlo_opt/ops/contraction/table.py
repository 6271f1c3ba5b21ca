"""dot, ragged-dot, scaled-dot and convolution.

Semantics: xla/hlo/evaluator/hlo_evaluator_typed_visitor.h and xla/service/shape_inference.cc. Operands are converted to
the result's type; narrow floats accumulate in f32. On a device, libraries compute them; `lower_dot` is for kernels that
contain a small one.
"""

from __future__ import annotations

import math
import re
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from hlo_opt.ir import IndexMap, Instruction, Shape
from hlo_opt.ir.attribute import WindowDimension
from hlo_opt.ir.element_type import ElementType
from hlo_opt.ir.index_map import Expression, dimensions, variable
from hlo_opt.ops import faces
from hlo_opt.ops.code import Code, call, code
from hlo_opt.ops.faces import lazy
from hlo_opt.ops.lowering import Index, KernelBuilder, compute_type, zero
from hlo_opt.ops.reduction.reducers import running_type
from hlo_opt.ops.shapes import distinct, integer, need, operand, product_type, result, window, windowed
from hlo_opt.ops.spec import Arity, OpKind, ShapeError, attributes, declare

# ---- convolution: xla/service/shape_inference.cc (InferConvolveShape), xla/service/hlo_cost_analysis.cc
# (GetConvolutionFlops)

_LABELS = re.compile(r"([0-9bf?]+)_([0-9io?]+)->([0-9bf?]+)")


@dataclass(frozen=True)
class ConvolutionDimensions:
    """The dimension numbers (batch, feature, spatial) of input, kernel (output feature, input feature, spatial) and
    output."""

    lhs: tuple[int, int, tuple[int, ...]]
    rhs: tuple[int, int, tuple[int, ...]]
    output: tuple[int, int, tuple[int, ...]]
    window: tuple[WindowDimension, ...]
    feature_groups: int
    batch_groups: int

    @property
    def described(self) -> tuple[Any, Any, Any]:
        """Positions, window and groups as plain values, the arguments of `hlo_opt.library`'s `convolution`."""
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
    """The dimension numbers. Raises ShapeError where they are malformed or inconsistent."""
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


def flops_convolution(instruction: Instruction) -> float:
    """Two per product; positions in the padding do not count."""
    c = convolution_dimensions(instruction)
    lhs, rhs = instruction.operands[0].shape, instruction.operands[1].shape
    valid = 1
    for k, w in enumerate(c.window):
        size = lhs.dimensions[c.lhs[2][k]]
        valid *= _valid_positions(size, windowed(size, w), w)
    batch = lhs.dimensions[c.lhs[0]] // c.batch_groups
    return 2.0 * valid * rhs.dimensions[c.rhs[1]] * rhs.dimensions[c.rhs[0]] * batch


def _valid_positions(size: int, out: int, w: WindowDimension) -> int:
    """The number of (output, window) position pairs along one dimension that read an element of the input."""
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


@dataclass(frozen=True)
class DotDimensions:
    """The batch and contracting dimensions of both operands of a dot."""

    lhs_batch: tuple[int, ...]
    rhs_batch: tuple[int, ...]
    lhs_contracting: tuple[int, ...]
    rhs_contracting: tuple[int, ...]

    @classmethod
    def of(cls, instruction: Instruction) -> DotDimensions:
        return cls(
            instruction.ints("lhs_batch_dims"),
            instruction.ints("rhs_batch_dims"),
            instruction.ints("lhs_contracting_dims"),
            instruction.ints("rhs_contracting_dims"),
        )

    def free(self, rank: int, *, right: bool) -> tuple[int, ...]:
        """The dimensions of one operand that are neither batch nor contracting, in order."""
        others = self.rhs_batch + self.rhs_contracting if right else self.lhs_batch + self.lhs_contracting
        return tuple(d for d in range(rank) if d not in others)


def infer_dot(instruction: Instruction) -> Shape:
    lhs, rhs = operand(instruction, 0), operand(instruction, 1)
    dims = DotDimensions.of(instruction)
    distinct(dims.lhs_batch + dims.lhs_contracting, lhs.rank, "dimensions of the left side")
    distinct(dims.rhs_batch + dims.rhs_contracting, rhs.rank, "dimensions of the right side")
    for what, left, right in (
        ("batch", dims.lhs_batch, dims.rhs_batch),
        ("contracting", dims.lhs_contracting, dims.rhs_contracting),
    ):
        need(len(left) == len(right), f"{len(left)} and {len(right)} {what} dimensions")
        for a, b in zip(left, right, strict=True):
            need(
                lhs.dimensions[a] == rhs.dimensions[b],
                f"{what} dimensions differ: {lhs.dimensions[a]} on the left, {rhs.dimensions[b]} on the right",
            )
    sizes = [lhs.dimensions[d] for d in dims.lhs_batch]
    sizes += [lhs.dimensions[d] for d in dims.free(lhs.rank, right=False)]
    sizes += [rhs.dimensions[d] for d in dims.free(rhs.rank, right=True)]
    return result(instruction, product_type(instruction), sizes)


def index_dot(instruction: Instruction, number: int) -> IndexMap | None:
    if number > 1:
        return None
    dims = DotDimensions.of(instruction)
    lhs, rhs = (o.shape for o in instruction.operands[:2])
    out = dimensions(instruction.shape.dimensions)
    side, right = (rhs, True) if number else (lhs, False)
    batch, contracting = (dims.rhs_batch, dims.rhs_contracting) if right else (dims.lhs_batch, dims.lhs_contracting)
    start = len(batch) + (len(dims.free(lhs.rank, right=False)) if right else 0)
    at: dict[int, Expression] = {d: out[k] for k, d in enumerate(batch)}
    at.update((d, out[start + k]) for k, d in enumerate(dims.free(side.rank, right=right)))
    at.update((d, variable(f"s{k}", side.dimensions[d])) for k, d in enumerate(contracting))
    return IndexMap(tuple(at[d] for d in range(side.rank)), tuple(side.dimensions[d] for d in contracting))


def lower_dot(builder: KernelBuilder, instruction: Instruction, index: Index) -> Code:
    """A loop over the contracting dimensions."""
    left, right = index_dot(instruction, 0), index_dot(instruction, 1)
    assert left is not None and right is not None
    element_type = instruction.shape.type
    wide = sum_type(element_type)
    total = builder.variable(wide, zero(wide))
    with ExitStack() as loops:
        at = [loops.enter_context(builder.loop(size)) for size in left.symbols]
        a = builder.value(instruction.operands[0], left.apply(index, at))
        b = builder.value(instruction.operands[1], right.apply(index, at))
        builder.assign(total, summed(element_type, total, a, b))
    return builder.bind(element_type, total) if wide is not element_type else total


def sum_type(element_type: ElementType) -> ElementType:
    """The accumulator type of a dot."""
    return running_type(element_type)


def summed(element_type: ElementType, total: Code, a: Code, b: Code) -> Code:
    """The accumulator plus one more product, in `sum_type`."""
    name = compute_type(sum_type(element_type))
    if element_type.kind == "pred":
        return code("{} || ({} && {})", total, a, b)
    if element_type.is_integer:  # unsigned, so that overflow wraps
        unsigned = f"unsigned {'long long' if element_type.bits == 64 else 'int'}"
        product = code(f"({unsigned})({name})({{}}) * ({unsigned})({name})({{}})", a, b)
        return code(f"({name})(({unsigned}){{}} + {{}})", total, product)
    if name in _FUSED:  # one rounding, as in XLA's libraries and its dot emitter
        return call(_FUSED[name], a, b, total)
    return code(f"{{}} + ({name}){{}} * ({name}){{}}", total, a, b)


_FUSED = {"float": "fmaf", "double": "fma"}


def flops_dot(instruction: Instruction) -> float:
    """Two per product (xla/service/hlo_cost_analysis.cc, GetDotFlops)."""
    lhs = instruction.operands[0].shape
    contracted = math.prod(lhs.dimensions[d] for d in instruction.ints("lhs_contracting_dims"))
    return 2.0 * instruction.shape.element_count * contracted


MATMUL = "numpy.matmul"
"""NumPy's function for products, backed by its BLAS."""
_DOT = "lhs_batch_dims lhs_contracting_dims rhs_batch_dims rhs_contracting_dims operand_precision"
_CONVOLUTION = (
    "window dim_labels! feature_group_count batch_group_count convolution_kind operand_precision sparsity_config"
)
for _opcode, _least, _most, _attributes, _infer, _scratch in (
    ("dot", 2, None, f"{_DOT} algorithm", infer_dot, "product"),
    # its dimension rules are not in the table: the declared shape is accepted
    ("ragged-dot", 3, 3, f"{_DOT} lhs_ragged_dims! rhs_group_dims", lambda i: i.shape.without_layout(), "grouped"),
    ("scaled-dot", 2, 4, f"{_DOT} algorithm", infer_dot, "grouped"),
    ("convolution", 2, None, _CONVOLUTION, infer_convolution, "convolution"),
):
    declare(
        _opcode,
        OpKind.CONTRACTION,
        Arity(_least, _most),
        attributes(_attributes),
        infer=_infer,
        evaluate=lazy("contraction.meaning", _opcode.replace("-", "_")),
        index=index_dot if _opcode == "dot" else None,
        cuda=lower_dot if _opcode == "dot" else None,
        flops=flops_convolution if _opcode == "convolution" else flops_dot,
        tolerance=faces.rounded(256),
        call=lazy("calls.products", _opcode) if _opcode in ("dot", "convolution") else None,
        routine=MATMUL,
        is_library=True,
        scratch=lazy("scratch", _scratch),
    )
