"""Kernels around a product become a product and kernels beside it again, for processors that have routines for
products.

On a device such a kernel saves a launch and a round through memory. On a processor both cost little, and a routine
that knows its caches and vectors does a product several times as quickly as the threads of a block, one stretch after
another.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal

from hlo_opt.analysis.graph.inlining import is_plain_fusion
from hlo_opt.ir import Called, Computation, Instruction, Module, edit
from hlo_opt.ir.walk import executed_computations, needed_first
from hlo_opt.ops.sets import fused, is_product, tuple_elements, tuple_index
from hlo_opt.passes.base import PassContext
from hlo_opt.passes.dce import DeadCodeElimination, drop_unread, sweep
from hlo_opt.passes.expansion import Expansion
from hlo_opt.plans import Plan, plan, region_of
from hlo_opt.plans.instructions import of_value
from hlo_opt.plans.products import OfProduct

MOST_AGAIN = 2
"""How often a loop over the results of a product may compute an element of an operand again."""
OFTEN = 16
"""How often a routine reads each element of both operands, at least, to be faster than a loop over the results: it
keeps them in registers. So many terms are a vector, too."""


@dataclass(frozen=True)
class ProductsApart(Expansion):
    """Take products out of the kernels around them: operands first, then the product, then the rest."""

    name: ClassVar[str] = "products-apart"
    preserves: ClassVar[Literal["graph", "meaning"]] = "graph"

    def concerns(self, module: Module) -> bool:
        return any(_around_product(i) for c in executed_computations(module) for i in c.instructions)

    def rewrites(self, computation: Computation, context: PassContext) -> Iterator[Callable[[], object]]:
        module = computation.module
        assert module is not None
        for kernel in filter(_around_product, list(computation.instructions)):
            kernel_plan = plan(region_of(module, kernel), context.options.target)
            product = _product_of(kernel, kernel_plan) if isinstance(kernel_plan, Plan) else None
            if product is not None:
                yield partial(_take_apart, kernel, product)

    def run(self, module: Module, context: PassContext) -> bool:
        changed = False
        while super().run(module, context):  # what is left of a kernel may be one around another product
            DeadCodeElimination().run(module, context)
            changed = True
        return changed


def _around_product(i: Instruction) -> bool:
    """Whether it is a kernel with a product and something around it."""
    return is_plain_fusion(i) and any(map(is_product, i.called_by("calls").instructions))


def _product_of(kernel: Instruction, kernel_plan: Plan) -> Instruction | None:
    """The product that the plan computes in tiles; else one that a routine computes faster than the kernel."""
    part = kernel_plan.segments[0].part
    if isinstance(part, OfProduct):
        return part.hero
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
    rest, copies = _copy(body)
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
    edit.replace_all_uses(kernel, _kernel(kernel, rest, operands))
    edit.remove(kernel)


def _is_worked_out(value: Instruction) -> bool:
    """Whether a value of a kernel is more than its parameters in another order: what is after the product then reads it
    again rather than to compute it again."""
    return any(of_value(i).slots for i in needed_first([value], lambda i: i.operands) if i.parameter_number is None)


def _value(kernel: Instruction, body: Computation, operand: Instruction) -> Instruction:
    """An operand of a product outside of the kernel that computes it."""
    if operand.parameter_number is not None:
        return kernel.operands[operand.parameter_number]
    above, copies = _copy(body)
    edit.set_root(above, copies[operand])
    return _kernel(kernel, above, kernel.operands)


def _copy(body: Computation) -> tuple[Computation, dict[Instruction, Instruction]]:
    copy = edit.clone_computation(body)
    return copy, dict(zip(body.instructions, copy.instructions, strict=True))


def _kernel(old: Instruction, body: Computation, operands: Iterable[Instruction]) -> Instruction:
    """A new kernel for a computation, without what this does not read."""
    sweep(body, set())
    called = {**old.attributes, "calls": Called(body)}
    new = edit.create(old.computation, old.name, "fusion", body.root.shape, list(operands), called)
    drop_unread(new, body)
    return new
