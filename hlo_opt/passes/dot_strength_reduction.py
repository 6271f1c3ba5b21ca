"""Products of small matrices as sums of products of elements, where a kernel is estimated to take no longer than a
library: what comes before and after them then goes into the same kernel, and a loop over them may have lanes.

XLA's name for the same idea (AlgebraicSimplifierVisitor::HandleDotStrengthReduction in
xla/hlo/transforms/simplifiers/algebraic_simplifier.cc), which makes a reduce of a multiply; XLA:GPU leaves products of
few elements to its loop emitter (IsMatrixMultiplicationTooSmallForRewriting, xla/service/gpu/matmul_utils.cc). Terms
are added in the order of the contracted index, in the type in which kernels add them up.
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
        found, (left, right) = DotDimensions.of(i), (o.shape for o in i.operands)
        if any(map(any, (i.shape.dynamic, left.dynamic, right.dynamic))):
            return False
        batch = math.prod(left.dimensions[d] for d in found.lhs_batch)
        terms = math.prod(left.dimensions[d] for d in found.lhs_contracting)
        return 0 < terms <= self.max_terms and i.shape.element_count <= self.max_elements * batch


def _pays(dot: Instruction, module: Module, target: DeviceTarget) -> bool:
    """Whether a kernel of its own would take no longer than the library."""
    made = plan(region_of(module, dot), target)
    return isinstance(made, Plan) and price(made, target).us <= price_of_call(dot, target).us


def _write_out(dot: Instruction) -> None:
    """Put the terms in the product's place, with its source line."""
    computation, writer = dot.computation, Terms("terms", dot.computation)
    before = len(computation.instructions)
    made = writer.product(dot, dot.operands)
    if made is None:
        return
    if not made.shape.same_bytes(dot.shape):
        made = writer.emit("copy", dot.shape, made)
    metadata = dot.attributes.get("metadata")
    for i in list(computation.instructions)[before:]:
        if metadata is not None:
            edit.set_attribute(i, "metadata", metadata)
    edit.replace_all_uses(dot, made)
    edit.remove(dot)
