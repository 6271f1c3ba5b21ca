"""Bias, another array and the positive part after a convolution become part of its call: cuDNN adds and takes them of
what it has just computed, where a kernel reads and writes the result once more.

The call is the one that XLA:GPU makes of them (xla/backends/gpu/transforms/cudnn_fused_conv_rewriter.cc,
FuseBiasOrSideInput, FuseSideInputAlpha and FuseRelu). XLA does so wherever it can; here the result must be wanted in
memory: what a kernel computes of it anyway reads the convolution as well.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, Literal

import numpy as np

from hlo_opt.analysis.targets import DeviceTarget
from hlo_opt.ir import Attribute, Called, Computation, Instruction, Shape, array, edit
from hlo_opt.ir import Literal as Elements
from hlo_opt.ir.attribute import Quoted, Raw
from hlo_opt.ir.element_type import ELEMENT_TYPES
from hlo_opt.ops.calls.epilogues import TARGET
from hlo_opt.ops.contraction.table import convolution_dimensions
from hlo_opt.ops.spec import OpKind, find
from hlo_opt.passes.base import PassContext, RewritingPass
from hlo_opt.passes.simplify.reading import is_number
from hlo_opt.plans.calls import price_of_call
from hlo_opt.plans.convolutions import convolution_price

_KEPT = ("window", "dim_labels", "feature_group_count", "operand_precision", "metadata")
"""Attributes of a convolution that its call has, too."""
_PLAIN = {*_KEPT, "batch_group_count"}
_TAKES_IN = frozenset({OpKind.ELEMENTWISE, OpKind.MOVEMENT, OpKind.REDUCTION})
"""Kinds of operations whose kernel computes what they read, if that is a convolution and what is added to it."""


@dataclass(frozen=True)
class ConvolutionEpilogues(RewritingPass):
    """Make a convolution, and the bias, another array and the positive part after it, one call of cuDNN."""

    name: ClassVar[str] = "convolution-epilogues"
    preserves: ClassVar[Literal["graph", "meaning"]] = "meaning"
    simplifies: ClassVar[bool] = True
    idempotent: ClassVar[bool] = True

    def rewrites(self, computation: Computation, context: PassContext) -> Iterator[Callable[[], object]]:
        target = context.options.target
        if target.in_lanes:
            return  # a processor's routine has no such ends
        waited_for = {p for i in computation.instructions for p in i.control_predecessors}
        for i in [i for i in computation.instructions if i.opcode == "convolution"]:
            end = None if i.control_predecessors else _end_of(i)
            if end is not None and waited_for.isdisjoint((i, *end.values)) and _pays(end, target):
                yield partial(_replace, end)


@dataclass(frozen=True)
class _End:
    """What follows a convolution.

    values    the operations that it takes in, in order
    bias      an array of the features, if any
    side      an array like the result, if any
    is_relu   whether the positive part is taken
    """

    convolution: Instruction
    values: tuple[Instruction, ...] = ()
    bias: Instruction | None = None
    side: Instruction | None = None
    is_relu: bool = False


def _end_of(convolution: Instruction) -> _End | None:
    """What a call of cuDNN takes in; None for nothing, and where the result is not wanted in memory."""
    shape = convolution.shape
    if not convolution.attributes.keys() <= _PLAIN or not shape.type.is_float or any(shape.dynamic):
        return None
    if any(o.shape.type != shape.type or any(o.shape.dynamic) for o in convolution.operands):
        return None
    dimensions = convolution_dimensions(convolution)
    if dimensions.batch_groups != 1:
        return None
    end = _End(convolution)
    while (longer := _longer(end, dimensions.output[1])) is not None:
        end = longer
    return end if end.values and _is_stored(end.values[-1]) else None


def _longer(end: _End, feature: int) -> _End | None:
    """The end with the operation that follows; None for others."""
    value = end.values[-1] if end.values else end.convolution
    if value.is_root or len(value.users) != 1 or end.is_relu:
        return None
    (user,) = value.users
    if user.shape != value.shape or user.control_predecessors or user.operands.count(value) != 1:
        return None
    other = user.operands[0] if user.operands[-1] is value else user.operands[-1]
    if user.opcode == "maximum" and is_number(other, 0.0):
        return replace(end, values=(*end.values, user), is_relu=True)
    if user.opcode != "add":
        return None
    if other.opcode == "broadcast" and other.ints("dimensions") == (feature,):
        return None if end.bias is not None else replace(end, values=(*end.values, user), bias=other.operands[0])
    if end.side is None and other.shape == value.shape and other.opcode not in ("broadcast", "constant"):
        return replace(end, values=(*end.values, user), side=other)
    return None


def _is_stored(value: Instruction) -> bool:
    """Whether a user reads it in memory: a product, a library, a loop, the result of the computation."""
    if value.is_root:
        return True
    specs = [find(user.opcode) for user in value.users]
    return any(spec is None or spec.kind not in _TAKES_IN for spec in specs)


def _operands(end: _End) -> list[Shape]:
    shapes = [o.shape for o in end.convolution.operands]
    shapes.append(_bias_shape(end) if end.bias is None else end.bias.shape)
    return shapes if end.side is None else [*shapes, end.side.shape]


def _bias_shape(end: _End) -> Shape:
    shape = end.convolution.shape
    return array(shape.type, shape.dimensions[convolution_dimensions(end.convolution).output[1]])


def _result(end: _End) -> Shape:
    """What the call gives: the result, and memory that it works in, which whoever runs it provides."""
    return Shape.tuple_of(end.convolution.shape, array(ELEMENT_TYPES["u8"], 0))


def _attributes(end: _End) -> dict[str, Attribute | Called]:
    config = {
        "activation_mode": "kRelu" if end.is_relu else "kNone",
        "conv_result_scale": 1,
        "side_input_scale": int(end.side is not None),
        "leakyrelu_alpha": 0,
    }
    kept = {name: end.convolution.attributes[name] for name in _KEPT if name in end.convolution.attributes}
    return {
        **kept,
        "custom_call_target": Attribute.of(Quoted(TARGET)),
        "backend_config": Attribute.of(Raw(json.dumps({"cudnn_conv_backend_config": config}, separators=(",", ":")))),
    }


def _pays(end: _End, target: DeviceTarget) -> bool:
    """Whether the call takes less time than the convolution and a kernel that reads and writes its result."""
    given = [Instruction(f"p{n}", "parameter", shape) for n, shape in enumerate(_operands(end))]
    call = Instruction("call", "custom-call", _result(end), given, _attributes(end))
    read, written = float(sum(p.shape.byte_size for p in given)), float(end.convolution.shape.byte_size)
    together = convolution_price(call, read, written, target)
    if together is None:
        return False
    more = 0 if end.side is None else end.side.shape.byte_size
    kernel = target.kernel_launch_us + (2 * written + more) / target.memory_bandwidth * 1e6
    return together.us <= price_of_call(end.convolution, target).us + kernel


def _replace(end: _End) -> None:
    convolution, bias = end.convolution, end.bias
    computation = convolution.computation
    if bias is None:
        shape = _bias_shape(end)
        zeros = Elements(shape, value=np.zeros(shape.dimensions, shape.type.dtype))
        bias = edit.create(computation, "bias", "constant", shape, literal=zeros)
    operands = [*convolution.operands, bias, *([] if end.side is None else [end.side])]
    call = edit.create(computation, convolution.name, "custom-call", _result(end), operands, _attributes(end))
    edit.replace_all_uses(end.values[-1], edit.create_element(call, 0))
    for value in (*end.values[::-1], convolution):
        edit.remove(value)
    edit.sort(computation)
