"""dot, ragged-dot, scaled-dot and convolution: sums of products.

Semantics: xla/hlo/evaluator/hlo_evaluator_typed_visitor.h and xla/service/shape_inference.cc. Operands are converted to the result's type; narrow floats
accumulate in f32. Libraries compute them on a device; the loop below is for kernels that choose to hold a small one.
"""

from __future__ import annotations

import math
from contextlib import ExitStack
from dataclasses import dataclass

from hlo_opt.ir import IndexMap, Instruction, Shape
from hlo_opt.ir.element_type import ElementType
from hlo_opt.ir.index_map import Expression, dimensions, variable
from hlo_opt.ops.code import Code, code
from hlo_opt.ops.contraction.convolution import (
    evaluate_convolution,
    flops_convolution,
    index_convolution,
    infer_convolution,
)
from hlo_opt.ops.guards import zero
from hlo_opt.ops.lazy import lazy
from hlo_opt.ops.lowering import Index, KernelBuilder, compute_type
from hlo_opt.ops.reduction.accumulation import running_type
from hlo_opt.ops.shapes import distinct, need, operand, product_type, result, rounded
from hlo_opt.ops.spec import Arity, OpKind, OpSpec, register


@dataclass(frozen=True)
class DotDimensions:
    """Which dimensions of both sides are matched: batch dimensions stay, contracting ones are summed over."""

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
        """The dimensions of one side that are neither batch nor contracting, in order."""
        taken = self.rhs_batch + self.rhs_contracting if right else self.lhs_batch + self.lhs_contracting
        return tuple(d for d in range(rank) if d not in taken)


def infer_dot(instruction: Instruction) -> Shape:
    lhs, rhs = operand(instruction, 0), operand(instruction, 1)
    found = DotDimensions.of(instruction)
    distinct(found.lhs_batch + found.lhs_contracting, lhs.rank, "dimensions of the left side")
    distinct(found.rhs_batch + found.rhs_contracting, rhs.rank, "dimensions of the right side")
    for what, left, right in (
        ("batch", found.lhs_batch, found.rhs_batch),
        ("contracting", found.lhs_contracting, found.rhs_contracting),
    ):
        need(len(left) == len(right), f"{len(left)} and {len(right)} {what} dimensions")
        for a, b in zip(left, right, strict=True):
            need(
                lhs.dimensions[a] == rhs.dimensions[b],
                f"{what} dimensions differ: {lhs.dimensions[a]} on the left, {rhs.dimensions[b]} on the right",
            )
    sizes = [lhs.dimensions[d] for d in found.lhs_batch]
    sizes += [lhs.dimensions[d] for d in found.free(lhs.rank, right=False)]
    sizes += [rhs.dimensions[d] for d in found.free(rhs.rank, right=True)]
    return result(instruction, product_type(instruction), sizes)


def index_dot(instruction: Instruction, number: int) -> IndexMap | None:
    if number > 1:
        return None
    found = DotDimensions.of(instruction)
    lhs, rhs = (o.shape for o in instruction.operands[:2])
    out = dimensions(instruction.shape.dimensions)
    side, right = (rhs, True) if number else (lhs, False)
    batch, contracting = (found.rhs_batch, found.rhs_contracting) if right else (found.lhs_batch, found.lhs_contracting)
    start = len(batch) + (len(found.free(lhs.rank, right=False)) if right else 0)
    at: dict[int, Expression] = {d: out[k] for k, d in enumerate(batch)}
    at.update((d, out[start + k]) for k, d in enumerate(found.free(side.rank, right=right)))
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
    """The type in which products of a type are summed."""
    return running_type(element_type)


def summed(element_type: ElementType, total: Code, a: Code, b: Code) -> Code:
    """A sum with one more product of a dot of the type, in `sum_type`."""
    name = compute_type(sum_type(element_type))
    if element_type.kind == "pred":
        return code("{} || ({} && {})", total, a, b)
    if element_type.is_integer:  # unsigned, so that overflow wraps
        unsigned = f"unsigned {'long long' if element_type.bits == 64 else 'int'}"
        product = code(f"({unsigned})({name})({{}}) * ({unsigned})({name})({{}})", a, b)
        return code(f"({name})(({unsigned}){{}} + {{}})", total, product)
    return code(f"{{}} + ({name}){{}} * ({name}){{}}", total, a, b)


def flops_dot(instruction: Instruction) -> float:
    """Two per product (xla/service/hlo_cost_analysis.cc, GetDotFlops)."""
    lhs = instruction.operands[0].shape
    contracted = math.prod(lhs.dimensions[d] for d in instruction.ints("lhs_contracting_dims"))
    return 2.0 * instruction.shape.element_count * contracted


def infer_declared(instruction: Instruction) -> Shape:
    """For operations whose dimension rules the table does not have: the declaration is taken as it is."""
    return instruction.shape.without_layout()


MATMUL = "numpy.matmul"
"""What NumPy computes products with, by the library that it multiplies matrices with."""
_DOT = {
    "lhs_batch_dims": False,
    "lhs_contracting_dims": False,
    "rhs_batch_dims": False,
    "rhs_contracting_dims": False,
    "operand_precision": False,
}
register(
    OpSpec(
        "dot",
        OpKind.CONTRACTION,
        Arity(2, None),
        {**_DOT, "algorithm": False},
        infer=infer_dot,
        evaluate=lazy("contraction.meaning", "dot"),
        index=index_dot,
        cuda=lower_dot,
        flops=flops_dot,
        tolerance=rounded(256),
        call=lazy("calls.products", "dot"),
        routine=MATMUL,
        is_library=True,
        scratch=lazy("scratch", "product"),
    )
)
register(
    OpSpec(
        "ragged-dot",
        OpKind.CONTRACTION,
        Arity(3, 3),
        {**_DOT, "lhs_ragged_dims": True, "rhs_group_dims": False},
        infer=infer_declared,
        evaluate=lazy("contraction.meaning", "ragged_dot"),
        flops=flops_dot,
        tolerance=rounded(256),
        routine=MATMUL,
        is_library=True,
        scratch=lazy("scratch", "grouped"),
    )
)
register(
    OpSpec(
        "scaled-dot",
        OpKind.CONTRACTION,
        Arity(2, 4),
        {**_DOT, "algorithm": False},
        infer=infer_dot,
        evaluate=lazy("contraction.meaning", "scaled_dot"),
        flops=flops_dot,
        tolerance=rounded(256),
        routine=MATMUL,
        is_library=True,
        scratch=lazy("scratch", "grouped"),
    )
)
register(
    OpSpec(
        "convolution",
        OpKind.CONTRACTION,
        Arity(2, None),
        {
            "window": False,
            "dim_labels": True,
            "feature_group_count": False,
            "batch_group_count": False,
            "convolution_kind": False,
            "operand_precision": False,
            "sparsity_config": False,
        },
        infer=infer_convolution,
        evaluate=evaluate_convolution,
        index=index_convolution,
        flops=flops_convolution,
        tolerance=rounded(256),
        call=lazy("calls.products", "convolution"),
        routine=MATMUL,
        is_library=True,
        scratch=lazy("scratch", "convolution"),
    )
)
