"""cuDNN custom calls that XLA:GPU writes for `convolution`: forward, both gradients, and forward with bias, activation
and side input.

Each equals an HLO convolution of other operands, which `as_hlo` builds and the evaluator runs. Window and dim_labels
are those of the forward convolution, whichever of its three arrays is the result. Source:
xla/service/gpu/cublas_cudnn.h (targets, kinds), xla/backends/gpu/transforms/conv_rewriter.cc and
cudnn_fused_conv_rewriter.cc (what they replace), xla/service/gpu/backend_configs.proto (CudnnConvBackendConfig),
xla/tsl/protobuf/dnn.proto (ActivationMode).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from hlo_opt.ir import Computation, Instruction, Shape, array
from hlo_opt.ir.attribute import Window, WindowDimension
from hlo_opt.ir.element_type import F32, F64, S32
from hlo_opt.ops.call_config import configuration, number
from hlo_opt.ops.contraction.table import ConvolutionDimensions, convolution_dimensions, infer_convolution
from hlo_opt.ops.custom_calls.targets import CustomCallSpec, register_custom_call
from hlo_opt.ops.faces import lazy
from hlo_opt.ops.shapes import windowed
from hlo_opt.ops.spec import Evaluator, ShapeError
from hlo_opt.ops.writer import Writer

ACTIVATIONS = (
    *("kNone", "kSigmoid", "kRelu", "kRelu6", "kReluX"),
    *("kTanh", "kBandPass", "kElu", "kLeakyRelu", "kGeluExact"),
)
"""Activations by their numbers in dnn.proto, which old dumps write."""

_Build = Callable[[Writer, Instruction, ConvolutionDimensions, Shape, list[Instruction]], Instruction]


def _config(instruction: Instruction) -> dict[str, Any]:
    return configuration(instruction, "cudnn_conv_backend_config")


def _labels(batch: int, feature: int, spatial: tuple[int, ...], letters: str = "bf") -> str:
    """The dim_labels text of one array."""
    text = [""] * (2 + len(spatial))
    text[batch], text[feature] = letters[0], letters[1]
    for name, position in enumerate(spatial):
        text[position] = str(name)
    return "".join(text)


def _convolution(
    writer: Writer,
    result: Shape,
    operands: tuple[Instruction, Instruction],
    c: ConvolutionDimensions,
) -> Instruction:
    lhs, rhs, output = (
        _labels(*part, letters=letters)
        for part, letters in zip((c.lhs, c.rhs, c.output), ("bf", "oi", "bf"), strict=True)
    )
    kind = operands[0].shape.type  # cuDNN accumulates in f32; f64 in f64, integers in s32
    product = writer.emit(
        "convolution",
        array(S32 if kind.is_integer else F64 if kind == F64 else F32, *result.dimensions),
        *operands,
        window=Window(c.window),
        dim_labels=f"{lhs}_{rhs}->{output}",
        feature_group_count=c.feature_groups,
        batch_group_count=c.batch_groups,
    )
    inferred = infer_convolution(product)
    if inferred.dimensions != result.dimensions:
        raise ShapeError(f"the convolution gives {inferred}, not {result}")
    return product


def _check_sizes(sizes: list[tuple[int, WindowDimension, int]]) -> None:
    """Raises ShapeError when a forward window does not map the input sizes to the output sizes."""
    for size, w, out in sizes:
        if windowed(size, w) != out:
            raise ShapeError(f"{size} elements have {windowed(size, w)} windows, not {out}")


def _spatial(c: ConvolutionDimensions, source: Shape, out: Shape) -> list[tuple[int, WindowDimension, int]]:
    pairs = zip(c.lhs[2], c.window, c.output[2], strict=True)
    return [(source.dimensions[a], w, out.dimensions[b]) for a, w, b in pairs]


def _forward(
    writer: Writer, call: Instruction, c: ConvolutionDimensions, result: Shape, values: list[Instruction]
) -> Instruction:
    _check_sizes(_spatial(c, values[0].shape, result))
    return _convolution(writer, result, (values[0], values[1]), c)


def _backward_input(
    writer: Writer, call: Instruction, c: ConvolutionDimensions, result: Shape, values: list[Instruction]
) -> Instruction:
    """The gradient of the input: a convolution of the output's gradient, dilated by the stride, with the reversed
    kernel.

    Input and output features of the kernel are exchanged within each group.
    """
    gradient, kernel = values
    sizes = _spatial(c, result, gradient.shape)
    _check_sizes(sizes)
    mirrored = []
    for size, w, out in sizes:
        if w.lhs_dilate != 1:
            raise ValueError("cuDNN has no base dilation")
        reach = (w.size - 1) * w.rhs_dilate
        low = reach - w.pad_low
        high = size + reach - low - ((out - 1) * w.stride + 1)
        mirrored.append(WindowDimension(w.size, 1, low, high, w.stride, w.rhs_dilate, not w.rhs_reversal))
    kernel, o, i, spatial = _swapped(writer, kernel, c)
    turned = ConvolutionDimensions(c.output, (i, o, spatial), c.lhs, tuple(mirrored), c.feature_groups, 1)
    return _convolution(writer, result, (gradient, kernel), turned)


def _swapped(
    writer: Writer, kernel: Instruction, c: ConvolutionDimensions
) -> tuple[Instruction, int, int, tuple[int, ...]]:
    """The kernel with features exchanged per group, [o / groups, groups * i, spatial..], and its dimension numbers;
    itself for one group."""
    o, i, spatial = c.rhs
    groups = c.feature_groups
    if groups == 1:
        return kernel, o, i, spatial
    sizes = kernel.shape.dimensions
    rows, columns = sizes[o] // groups, sizes[i]
    window = tuple(sizes[d] for d in spatial)
    ordered = writer.transpose(kernel, (o, i, *spatial))
    split = writer.reshape(ordered, groups, rows, columns, *window)
    turned = writer.transpose(split, (1, 0, 2, *range(3, 3 + len(window))))
    reshaped = writer.reshape(turned, rows, groups * columns, *window)
    return reshaped, 0, 1, tuple(range(2, 2 + len(window)))


def _backward_filter(
    writer: Writer, call: Instruction, c: ConvolutionDimensions, result: Shape, values: list[Instruction]
) -> Instruction:
    """The gradient of the kernel: a convolution of the input with the output's gradient, over batch instead of
    features."""
    source, gradient = values
    sizes = _spatial(c, source.shape, gradient.shape)
    _check_sizes(sizes)
    window = []
    for (size, w, out), position in zip(sizes, c.rhs[2], strict=True):
        if result.dimensions[position] != w.size:
            raise ShapeError(f"the window has size {w.size}, the kernel {result.dimensions[position]}")
        if w.lhs_dilate != 1 or w.rhs_reversal:
            raise ValueError("cuDNN has no such gradient of a kernel")
        reach = (out - 1) * w.stride + 1
        high = (w.size - 1) * w.rhs_dilate + reach - size - w.pad_low
        window.append(WindowDimension(out, w.rhs_dilate, w.pad_low, high, 1, w.stride))
    (batch, feature, spatial), (out_batch, out_feature, out_spatial), (o, i, kernel) = c.lhs, c.output, c.rhs
    turned = ConvolutionDimensions(
        (feature, batch, spatial),
        (out_feature, out_batch, out_spatial),
        (i, o, kernel),
        tuple(window),
        1,
        c.feature_groups,
    )
    return _convolution(writer, result, (source, gradient), turned)


def _with_activation(
    writer: Writer, call: Instruction, c: ConvolutionDimensions, result: Shape, values: list[Instruction]
) -> Instruction:
    """activation(scale conv(input, kernel) + side scale side input + bias)"""
    config = _config(call)
    value = _forward(writer, call, c, result, values[:2])
    value = writer.convert(value, F32) if value.shape.type == S32 else value
    scale, side = scales_of(call)
    value = writer.scaled(value, scale)
    if side and len(values) < 4:
        raise ValueError("the side input has a scale but is not an operand")
    if side:
        wide = writer.convert(values[3], value.shape.type)
        value = writer.binary("add", value, writer.scaled(wide, side))
    bias = writer.convert(values[2], value.shape.type)
    value = writer.binary("add", value, writer.along(bias, value.shape, c.output[1]))
    return _activated(writer, value, activation_of(call), number(config, "leakyrelu_alpha", 0.0))


def scales_of(call: Instruction) -> tuple[float, float]:
    """The factors of the convolution and of the side input, the latter 0 where there is none."""
    config = _config(call)
    side = number(config, "side_input_scale", 1.0 if len(call.operands) > 3 else 0.0)
    return number(config, "conv_result_scale", 1.0), side


def activation_of(call: Instruction) -> str:
    """The name of the activation, such as `kRelu`."""
    config = _config(call)
    mode = str(config.get("activation_mode", config.get("activationMode", "kNone")))
    return ACTIVATIONS[int(mode)] if mode.isdigit() and int(mode) < len(ACTIVATIONS) else mode


def _activated(writer: Writer, value: Instruction, mode: str, slope: float) -> Instruction:
    zero = writer.number(value.shape.type, 0.0)
    match mode:
        case "kNone":
            return value
        case "kRelu":
            return writer.binary("maximum", value, zero)
        case "kRelu6":
            six = writer.number(value.shape.type, 6.0)
            return writer.binary("minimum", writer.binary("maximum", value, zero), six)
        case "kElu":
            return writer.where_positive(value, value, writer.unary("exponential-minus-one", value))
        case "kLeakyRelu":
            return writer.where_positive(value, value, writer.scaled(value, slope))
        case "kSigmoid":
            return writer.unary("logistic", value)
        case "kTanh":
            return writer.unary("tanh", value)
        case _:
            raise ValueError(f"unknown activation {mode[:50]!r}")


_KINDS: dict[str, tuple[_Build, tuple[int, ...]]] = {
    "__cudnn$convForward": (_forward, (2,)),
    "__cudnn$convBackwardInput": (_backward_input, (2,)),
    "__cudnn$convBackwardFilter": (_backward_filter, (2,)),
    "__cudnn$convBiasActivationForward": (_with_activation, (3, 4)),
    "__cudnn$convForwardGraph": (_forward, (2,)),
}
"""The builder of a target's result, and the numbers of operands it takes."""


def as_hlo(instruction: Instruction) -> Computation:
    """An equivalent computation outside any module, with one parameter per operand; workspaces are zero.

    Raises ValueError for a configuration that cannot be expressed, ShapeError for shapes that do not fit.
    """
    target = instruction.word("custom_call_target")
    build, counts = _KINDS[target]
    config = _config(instruction)
    if len(instruction.operands) not in counts:
        raise ValueError(f"{target} takes {' or '.join(map(str, counts))} operands, not {len(instruction.operands)}")
    if config.get("serialized_graph"):
        raise ValueError("a convolution given as a serialized graph is not supported")
    if config.get("reordered_int8_nchw_vect"):
        raise ValueError("a reordered filter is not supported")
    if build is not _with_activation and number(config, "conv_result_scale", 1.0) != 1.0:
        raise ValueError(f"{target} takes no scale")
    leaves = instruction.shape.elements or (instruction.shape,)
    writer = Writer("convolution")
    values = [writer.parameter(k, o.shape) for k, o in enumerate(instruction.operands)]
    outputs = build(writer, instruction, convolution_dimensions(instruction), leaves[0], values)
    results = [writer.saturated(outputs, leaves[0].type), *(writer.zeros(leaf) for leaf in leaves[1:])]
    return writer.finish(results, leaves) if instruction.shape.is_tuple else writer.finish(results[:1], leaves[:1])


def _evaluate(evaluator: Evaluator, instruction: Instruction, values: list[Any]) -> Any:
    return evaluator.call(as_hlo(instruction), values)


def flops(instruction: Instruction) -> float:
    """Two per product of the forward convolution, padding included (xla/service/gpu/model/gpu_hlo_cost_analysis.cc,
    GetConvolutionFlops)."""
    c = convolution_dimensions(instruction)
    result = (instruction.shape.elements or (instruction.shape,))[0]
    shapes = [o.shape for o in instruction.operands[:2]]
    target = instruction.word("custom_call_target")
    kernel = result if target.endswith("BackwardFilter") else shapes[1]
    out = shapes[0] if target.endswith("BackwardInput") else shapes[1] if target.endswith("BackwardFilter") else result
    return 2.0 * out.element_count * math.prod(kernel.dimensions) / max(kernel.dimensions[c.rhs[0]], 1)


for _target in _KINDS:
    register_custom_call(
        CustomCallSpec(
            _target, evaluate=_evaluate, flops=flops, call=lazy("calls.steps", "convolution"), library="cuDNN"
        )
    )
