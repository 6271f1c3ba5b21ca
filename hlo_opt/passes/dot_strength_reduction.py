"""Products of small matrices become sums of products of elements, where such a kernel is estimated to take no longer
than a library. The kernel can then contain the operations before and after it, and a loop over it may have lanes.

XLA has the same idea under this name (AlgebraicSimplifierVisitor::HandleDotStrengthReduction in
xla/hlo/transforms/simplifiers/algebraic_simplifier.cc); it writes a reduce of a multiply. XLA:GPU leaves products of
few elements to its loop emitter (IsMatrixMultiplicationTooSmallForRewriting, xla/service/gpu/matmul_utils.cc). Terms
are added in the order of the contracted index, in the type in which kernels add them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal

from hlo_opt.analysis.targets import DeviceTarget
from hlo_opt.ir import Computation, Instruction, Module, edit
from hlo_opt.ops.contraction.table import DotDimensions
from hlo_opt.ops.spec import OpKind, find
from hlo_opt.ops.terms import Terms
from hlo_opt.passes.base import PassContext, RewritingPass
from hlo_opt.plans import Plan, plan, region_of
from hlo_opt.plans.calls import price_of_call
from hlo_opt.plans.price import price

_MEANING = frozenset({"lhs_batch_dims", "rhs_batch_dims", "lhs_contracting_dims", "rhs_contracting_dims"})
_FREE = frozenset({"operand_precision", "metadata"})  # terms are as precise as can be asked for


@dataclass(frozen=True)
class DotStrengthReduction(RewritingPass):
    """Write products of small matrices, one for each element of a batch, as sums of products of elements.

    max_terms     elements that are contracted
    max_elements  elements of each result
    """

    name: ClassVar[str] = "dot-strength-reduction"
    preserves: ClassVar[Literal["graph", "meaning"]] = "meaning"
    simplifies: ClassVar[bool] = True
    idempotent: ClassVar[bool] = True

    max_terms: int = 8
    max_elements: int = 64

    def rewrites(self, computation: Computation, context: PassContext) -> Iterator[Callable[[], object]]:
        module = computation.module
        assert module is not None
        for i in list(computation.instructions):
            if self._is_small(i) and _pays(i, module, context.options.target):
                yield partial(_write_out, i)

    def _is_small(self, i: Instruction) -> bool:
        spec = find(i.opcode)
        if spec is None or spec.kind is not OpKind.CONTRACTION or spec.index is None or i.control_predecessors:
            return False
        if len(i.operands) != 2 or not i.attributes.keys() <= _MEANING | _FREE or not i.shape.element_count:
            return False
        numbers, (left, right) = DotDimensions.of(i), (o.shape for o in i.operands)
        if any(map(any, (i.shape.dynamic, left.dynamic, right.dynamic))):
            return False
        batch = math.prod(left.dimensions[d] for d in numbers.lhs_batch)
        terms = math.prod(left.dimensions[d] for d in numbers.lhs_contracting)
        return 0 < terms <= self.max_terms and i.shape.element_count <= self.max_elements * batch


def _pays(dot: Instruction, module: Module, target: DeviceTarget) -> bool:
    """Whether a kernel of its own would take no longer than the library."""
    kernel_plan = plan(region_of(module, dot), target)
    return isinstance(kernel_plan, Plan) and price(kernel_plan, target).us <= price_of_call(dot, target).us


def _write_out(dot: Instruction) -> None:
    """Replace the product by its terms, which inherit its Python line."""
    computation, writer = dot.computation, Terms("terms", dot.computation)
    before = len(computation.instructions)
    product = writer.product(dot, dot.operands)
    if product is None:
        return
    if not product.shape.same_bytes(dot.shape):
        product = writer.emit("copy", dot.shape, product)
    for i in list(computation.instructions)[before:]:
        edit.inherit(i, dot)
    edit.replace_all_uses(dot, product)
    edit.remove(dot)
