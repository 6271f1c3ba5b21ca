"""Rules for convolutions: of transposes and reverses, and those that are matrix products."""

from __future__ import annotations

from dataclasses import replace

from hlo_opt.ir import Attribute, Instruction, Raw, SliceDimension, Window, edit
from hlo_opt.ops.contraction.table import ConvolutionDimensions, convolution_dimensions
from hlo_opt.ops.movement.table import padding_dimensions
from hlo_opt.passes.simplify.reading import is_a, is_number
from hlo_opt.passes.simplify.rule import rule
from hlo_opt.passes.simplify.site import Site

_OPEN = "the same products are added up; HLO leaves their order open"


def _labels(i: Instruction) -> list[str]:
    """The labels of the dimensions of both sides and of the result."""
    sides, result = i.word("dim_labels").split("->")
    return [*sides.split("_"), result]


def _relabelled(site: Site, i: Instruction, operands: list[Instruction], labels: list[str]) -> Instruction:
    """The convolution with other labels."""
    relabelled = site.again(i, operands)
    edit.set_attribute(relabelled, "dim_labels", _attribute(f"{labels[0]}_{labels[1]}->{labels[2]}", i))
    return relabelled


def _attribute(text: str, like: Instruction) -> Attribute:
    return Attribute(text, value=Raw(text) if isinstance(like.value("dim_labels", ""), Raw) else text)


@rule(
    "convolution-of-transpose",
    "convolution",
    "convolution of a transpose = convolution with the dimensions where they were",
    _OPEN,
)
def convolution_of_transpose(i: Instruction, site: Site) -> Instruction | None:
    for number, side in enumerate(i.operands):
        if is_a(side, "transpose"):
            labels, order = _labels(i), side.ints("dimensions")
            labels[number] = "".join(labels[number][order.index(d)] for d in range(len(order)))
            operands = list(i.operands)
            operands[number] = side.operands[0]
            return _relabelled(site, i, operands, labels)
    return None


@rule(
    "transpose-of-convolution",
    "transpose",
    "transpose of a convolution that nobody else reads = convolution into the dimensions where they go",
    _OPEN,
)
def transpose_of_convolution(i: Instruction, site: Site) -> Instruction | None:
    inner = i.operands[0]
    if not is_a(inner, "convolution") or len(inner.users) > 1:
        return None
    labels = _labels(inner)
    labels[2] = "".join(labels[2][d] for d in i.ints("dimensions"))
    convolution = _relabelled(site, inner, list(inner.operands), labels)
    edit.set_shape(convolution, i.shape)
    return convolution


@rule(
    "convolution-of-reverse",
    "convolution",
    "convolution by a kernel that is turned round in space = one that reads it the other way round",
    "each element meets the same one",
)
def convolution_of_reverse(i: Instruction, site: Site) -> Instruction | None:
    value, kernel = i.operands
    if not is_a(kernel, "reverse"):
        return None
    c = convolution_dimensions(i)
    turned = kernel.ints("dimensions")
    if any(d not in c.rhs[2] for d in turned):
        return None
    window = Window(
        tuple(
            replace(w, rhs_reversal=not w.rhs_reversal) if c.rhs[2][k] in turned else w for k, w in enumerate(c.window)
        )
    )
    return site.again(i, [value, kernel.operands[0]], window=window)


@rule(
    "convolution-of-points",
    "convolution",
    "convolution by a kernel of size 1 in space, without padding and groups = dot; with strides, of a slice",
    _OPEN,
)
def convolution_of_points(i: Instruction, site: Site) -> Instruction | None:
    value, kernel = i.operands
    c = convolution_dimensions(i)
    if not _is_pointwise(c) or not i.shape.element_count or not value.shape.element_count:
        return None
    if value.shape.type != kernel.shape.type:
        return None
    # The dot gives batch and space in the order of the left side, then the output features.
    place = {c.lhs[0]: c.output[0]} | dict(zip(c.lhs[2], c.output[2], strict=True))
    free = [d for d in range(value.shape.rank) if d != c.lhs[1]]
    if [place[d] for d in free] != list(range(len(free))) or c.output[1] != len(free):
        return None
    value = _strided(site, value, c)
    inputs, outputs = kernel.shape.dimensions[c.rhs[1]], kernel.shape.dimensions[c.rhs[0]]
    first = c.rhs[1] < c.rhs[0]
    matrix = site.reshape(kernel, (inputs, outputs) if first else (outputs, inputs))
    kept = {n: a for n, a in i.attributes.items() if n in ("operand_precision", "metadata")}
    product = site.emit(
        "dot", i.shape, value, matrix, lhs_contracting_dims=(c.lhs[1],), rhs_contracting_dims=(0 if first else 1,)
    )
    for name, attribute in kept.items():
        edit.set_attribute(product, name, attribute)
    return product


@rule(
    "convolution-of-pad",
    "convolution",
    "convolution of an array with zeros around it, or between its elements = convolution that does so itself",
    "what a window reads outside of the array is 0",
)
def convolution_of_pad(i: Instruction, site: Site) -> Instruction | None:
    value, kernel = i.operands
    if not is_a(value, "pad") or not is_number(value.operands[1], 0) or not value.operands[0].shape.element_count:
        return None
    c, edges = convolution_dimensions(i), padding_dimensions(value)
    space = {d: k for k, d in enumerate(c.lhs[2])}
    if any((e.low or e.high or e.interior) and d not in space for d, e in enumerate(edges)):
        return None
    if any(e.low < 0 or e.high < 0 for e in edges) or any(w.lhs_dilate > 1 for w in c.window):
        return None
    wider = list(c.window)
    for d, k in space.items():
        w, e = wider[k], edges[d]
        wider[k] = replace(w, pad_low=w.pad_low + e.low, pad_high=w.pad_high + e.high, lhs_dilate=e.interior + 1)
    return site.again(i, [value.operands[0], kernel], window=Window(tuple(wider)))


def _is_pointwise(c: ConvolutionDimensions) -> bool:
    plain = all(w.size == w.lhs_dilate == 1 and not (w.pad_low or w.pad_high) for w in c.window)
    return plain and c.feature_groups == c.batch_groups == 1


def _strided(site: Site, value: Instruction, c: ConvolutionDimensions) -> Instruction:
    """The points of a strided convolution with a kernel of size 1."""
    strides = dict(zip(c.lhs[2], (w.stride for w in c.window), strict=True))
    if all(stride == 1 for stride in strides.values()):
        return value
    return site.slice(value, [SliceDimension(0, n, strides.get(d, 1)) for d, n in enumerate(value.shape.dimensions)])
