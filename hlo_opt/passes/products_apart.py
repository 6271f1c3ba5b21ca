"""Kernels around a product become a product and kernels beside it again, for processors that have routines for
products.

On a device such a kernel saves a launch and a round through memory. On a processor both cost little, and a routine
that knows its caches and vectors does a product several times as quickly as the threads of a block, one stretch after
another.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from hlo_opt.analysis.graph.inlining import is_plain_fusion
from hlo_opt.ir import Computation, Instruction, edit
from hlo_opt.ir.walk import needed_first
from hlo_opt.ops.sets import fused, is_product, tuple_elements, tuple_index
from hlo_opt.passes.kernels_apart import KernelsApart, copied, has, kernel_of
from hlo_opt.plans import Plan
from hlo_opt.plans.instructions import of_value
from hlo_opt.plans.products import OfProduct

MOST_AGAIN = 2
"""How often a loop over the results of a product may compute an element of an operand again."""
OFTEN = 16
"""How often a routine reads each element of both operands, at least, to be faster than a loop over the results: it
keeps them in registers. So many terms are a vector, too."""


@dataclass(frozen=True)
class ProductsApart(KernelsApart):
    """Take products out of the kernels around them: operands first, then the product, then the rest."""

    name: ClassVar[str] = "products-apart"

    def may_hold(self, instruction: Instruction) -> bool:
        return _around_product(instruction)

    def change(self, kernel: Instruction, kernel_plan: Plan) -> Callable[[], object] | None:
        product = _product_of(kernel, kernel_plan)
        return None if product is None else partial(_take_apart, kernel, product)


def _around_product(i: Instruction) -> bool:
    """Whether it is a kernel with a product and something around it."""
    return is_plain_fusion(i) and any(map(is_product, i.called_by("calls").instructions))


def _product_of(kernel: Instruction, kernel_plan: Plan) -> Instruction | None:
    """The product that the plan computes in tiles, or the first of them; else one that a routine computes faster than
    the kernel."""
    part = kernel_plan.segments[0].part
    if isinstance(part, OfProduct) and has(kernel, [part.first]):
        return part.first
    return next((i for i in kernel.called_by("calls").instructions if is_product(i) and _is_for_a_routine(i)), None)


def _is_for_a_routine(product: Instruction) -> bool:
    """Whether an operand of a dot is computed, and each of its elements goes into more than `MOST_AGAIN` results; or
    whether each element of both goes into `OFTEN` results and more, and the sums are as long."""
    if "lhs_contracting_dims" not in product.attributes:
        return False
    terms = math.prod(product.operands[0].shape.dimensions[d] for d in product.ints("lhs_contracting_dims"))
    times = [product.shape.element_count * terms / max(1, o.shape.element_count) for o in product.operands]
    computed = [t for o, t in zip(product.operands, times, strict=True) if o.parameter_number is None]
    return max(computed, default=0) > MOST_AGAIN or min(terms, *times) >= OFTEN


def _take_apart(kernel: Instruction, product: Instruction) -> None:
    """Replace a kernel by its product, kernels for the product's operands where these are computed, and one for what
    comes after it."""
    body = fused(kernel)
    assert body is not None
    values = {operand: _value(kernel, body, operand) for operand in dict.fromkeys(product.operands)}
    alone = edit.clone_into(kernel.computation, product, [values[operand] for operand in product.operands])
    if product.is_root:
        edit.replace_all_uses(kernel, alone)
        edit.remove(kernel)
        return
    rest, copies = copied(body)
    operands = list(kernel.operands)
    for value, outside in ((product, alone), *((v, o) for v, o in values.items() if _is_worked_out(v))):
        read = edit.create_parameter(rest, "product" if value is product else "operand", value.shape, len(operands))
        edit.replace_all_uses(copies[value], read)
        operands.append(outside)
    edit.sort(rest)
    for number, value in enumerate(tuple_elements(body.root) or ()):
        for taker in [u for u in kernel.users if tuple_index(u) == number] if _is_worked_out(value) else ():
            if value in values:
                edit.redirect_users(taker, values[value])
    edit.replace_all_uses(kernel, kernel_of(kernel, rest, operands))
    edit.remove(kernel)


def _is_worked_out(value: Instruction) -> bool:
    """Whether a value of a kernel is more than its parameters in another order: what is after the product then reads it
    again rather than to compute it again."""
    return any(of_value(i).slots for i in needed_first([value], lambda i: i.operands) if i.parameter_number is None)


def _value(kernel: Instruction, body: Computation, operand: Instruction) -> Instruction:
    """An operand of a product outside of the kernel that computes it."""
    if operand.parameter_number is not None:
        return kernel.operands[operand.parameter_number]
    above, copies = copied(body)
    edit.set_root(above, copies[operand])
    return kernel_of(kernel, above, kernel.operands)
