"""Products of small matrices become sums of products of elements, where such a kernel is estimated to take no longer
than a library. The kernel can then contain the operations before and after it, and a loop over it may have lanes.

XLA has the same idea under this name (AlgebraicSimplifierVisitor::HandleDotStrengthReduction in
xla/hlo/transforms/simplifiers/algebraic_simplifier.cc); it writes a reduce of a multiply. XLA:GPU leaves products of
few elements to its loop emitter (IsMatrixMultiplicationTooSmallForRewriting, xla/service/gpu/matmul_utils.cc). Terms
are added in the order of the contracted index, in the type in which kernels add them.

Products of a matrix and a vector become a multiply and a reduce, where that is quicker than a library, or where the
kernel that computes the matrix, such as the state of a linear attention, can fold it besides.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal

from hlo_opt.analysis.targets import DeviceTarget
from hlo_opt.ir import Attribute, Called, Computation, Instruction, Module, array, edit
from hlo_opt.ir.element_type import BF16, F16, F32, F64
from hlo_opt.ops.contraction.table import DotDimensions, sum_type
from hlo_opt.ops.reduction.softmax import attention_products
from hlo_opt.ops.spec import OpKind, find
from hlo_opt.ops.terms import Terms
from hlo_opt.passes.base import PassContext, RewritingPass
from hlo_opt.passes.expansion import BroadcastingWriter, scalar_reducer
from hlo_opt.plans import Plan, Region, plan, region_of
from hlo_opt.plans.calls import price_of_call
from hlo_opt.plans.price import price

CLEARLY = 0.9
"""A fold replaces a product by itself only if its time is below this share of the product's, unless other products read
the matrix, too: one kernel may then read it once. Of few terms, it may take longer by as much: any kernel that reads it
can compute it, a scatter or another fold, which take in no product."""
_MEANING = frozenset({"lhs_batch_dims", "rhs_batch_dims", "lhs_contracting_dims", "rhs_contracting_dims"})
_FREE = frozenset({"operand_precision", "metadata"})  # terms are as precise as can be asked for
_FLOATS = frozenset({F32, F64, BF16, F16})


@dataclass(frozen=True)
class DotStrengthReduction(RewritingPass):
    """Write products of small matrices, one for each element of a batch, as sums of products of elements, and products
    of a matrix and a vector as a multiply and a reduce.

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
        products = list(filter(_is_plain, computation.instructions))
        reads = Counter(operand for dot in products for operand in dict.fromkeys(dot.operands))
        readers = {dot: tuple(reads[o] for o in dot.operands) for dot in products}  # before sums replace them
        # where queries and keys, and then weights and values, are multiplied, one kernel can do both
        attention = set() if context.options.target.in_lanes else attention_products(computation.instructions)
        known: _Times = {}
        for i in products:
            if self._is_small(i) and _pays(i, module, context.options.target):
                yield partial(_write_out, i)
            elif i not in attention and (side := _matrix(i)) is not None:
                share = 1 / CLEARLY if self._has_few_terms(i) else CLEARLY
                if _sum_pays(i, side, readers[i][side], module, context.options.target, share, known):
                    yield partial(_write_as_sum, i, side)

    def _is_small(self, i: Instruction) -> bool:
        numbers, left = DotDimensions.of(i), i.operands[0].shape
        batch = math.prod(left.dimensions[d] for d in numbers.lhs_batch)
        return self._has_few_terms(i) and i.shape.element_count <= self.max_elements * batch

    def _has_few_terms(self, i: Instruction) -> bool:
        left = i.operands[0].shape.dimensions
        return 0 < math.prod(left[d] for d in DotDimensions.of(i).lhs_contracting) <= self.max_terms


def _is_plain(i: Instruction) -> bool:
    """Whether it is a product of two arrays of known sizes, and nothing else."""
    spec = find(i.opcode)
    if spec is None or spec.kind is not OpKind.CONTRACTION or spec.index is None or i.control_predecessors:
        return False
    if len(i.operands) != 2 or not i.attributes.keys() <= _MEANING | _FREE or not i.shape.element_count:
        return False
    return not any(any(shape.dynamic) for shape in (i.shape, *(o.shape for o in i.operands)))


def _pays(dot: Instruction, module: Module, target: DeviceTarget) -> bool:
    """Whether a kernel of its own would take no longer than the library."""
    kernel_plan = plan(region_of(module, dot), target)
    return isinstance(kernel_plan, Plan) and price(kernel_plan, target).us <= price_of_call(dot, target).us


def _write_out(dot: Instruction) -> None:
    """Replace the product by its terms, which inherit its Python line."""
    computation, writer = dot.computation, Terms("terms", dot.computation)
    before = len(computation.instructions)
    product = writer.product(dot, dot.operands)
    if product is not None:
        _replace(dot, product, before)


def _replace(dot: Instruction, product: Instruction, before: int) -> None:
    """Let another instruction stand for the product, in the product's layout. What was added to the computation since
    it had `before` instructions inherits the product's Python line."""
    if not product.shape.same_bytes(dot.shape):
        product = BroadcastingWriter(dot.computation).emit("copy", dot.shape, product)
    for i in list(dot.computation.instructions)[before:]:
        edit.inherit(i, dot)
    edit.replace_all_uses(dot, product)
    edit.remove(dot)


def _matrix(dot: Instruction) -> int | None:
    """The number of the operand that is a matrix, if the other one is a vector. Of two vectors, that which a kernel
    computes for others as well."""
    numbers, shapes = DotDimensions.of(dot), [dot.shape, *(o.shape for o in dot.operands)]
    if not all(s.type in _FLOATS and s.minor_to_major == tuple(reversed(range(s.rank))) for s in shapes):
        return None
    if F64 in (types := {s.type for s in shapes}) and len(types) > 1:
        return None  # the sum would round its operands
    matrices = []
    for side in range(2):
        vector = dot.operands[1 - side]
        free = numbers.free(vector.shape.rank, right=side == 0)
        if all(vector.shape.dimensions[d] == 1 for d in free):
            matrices.append(side)
    return next((side for side in matrices if _is_beside(dot.operands[side])), next(iter(matrices), None))


def _is_beside(matrix: Instruction) -> bool:
    """Whether a kernel computes a matrix element by element, and it, or what it is computed from, is read elsewhere."""
    spec = find(matrix.opcode)
    if spec is None or spec.kind is not OpKind.ELEMENTWISE:
        return False
    arrays = [o for o in matrix.operands if o.opcode != "broadcast"]
    return matrix.is_root or any(len(value.users) > 1 for value in (matrix, *arrays))


_Times = dict[Hashable, tuple[float, float]]
"""Microseconds of a sum and of the product in its place, by what both depend on: layers have the same ones."""


def _sum_pays(
    dot: Instruction,
    side: int,
    readers: int,
    module: Module,
    target: DeviceTarget,
    share: float,
    known: _Times,
) -> bool:
    """Whether a kernel that multiplies and reduces takes less than this share of the product's time; or takes no
    longer, where the kernel that computes the matrix can do this, and need not read it, or where several products
    (`readers`) read the matrix, and one kernel may read it for all."""
    if target.in_lanes:
        return False  # a processor's routine knows its caches
    matrix = dot.operands[side]
    meaning = tuple([(n, a.text) for n, a in dot.attributes.items() if n in _MEANING or n in _FREE - {"metadata"}])
    key = meaning, side, dot.shape, *(o.shape for o in dot.operands), len(set(dot.operands))
    us, limit = known.get(key) or known.setdefault(key, _times(dot, side, module, target))
    read_us = matrix.shape.byte_size * 1e6 / target.memory_bandwidth
    if _is_beside(matrix):
        return us - read_us < limit
    return us - read_us * (1 - 1 / readers) < limit * (max(1.0, share) if readers > 1 else share)


def _times(dot: Instruction, side: int, module: Module, target: DeviceTarget) -> tuple[float, float]:
    """Microseconds of the sum, infinite where no kernel computes it, and of the product."""
    product = plan(region_of(module, dot), target)
    aside = Module(module.name)
    computation = edit.new_computation(aside, "sum")
    parameters = [edit.create_parameter(computation, "x", o.shape, k) for k, o in enumerate(dot.operands)]
    root = _sum(BroadcastingWriter(computation), dot, parameters, side)
    edit.set_root(computation, root)
    kernel = plan(Region(dot, computation, tuple(parameters), (root,)), target)
    us = price(kernel, target).us if isinstance(kernel, Plan) else math.inf
    return us, price(product, target).us if isinstance(product, Plan) else price_of_call(dot, target).us


def _sum(writer: BroadcastingWriter, dot: Instruction, operands: Sequence[Instruction], side: int) -> Instruction:
    """The product of a matrix, the operand with number `side`, and a vector as a multiply and a reduce."""
    numbers, kind = DotDimensions.of(dot), sum_type(dot.shape.type)
    shared, gone = (numbers.lhs_batch, numbers.rhs_batch), (numbers.lhs_contracting, numbers.rhs_contracting)
    matrix, vector = (writer.convert(operands[k], kind) for k in (side, 1 - side))
    rest = [d for d in range(matrix.shape.rank) if d not in gone[side]]
    places, matrix = _together(writer, matrix, rest, gone[side])
    there = [places[d] for d in (*shared[side], *gone[side])]
    place = dict(zip((*shared[1 - side], *gone[1 - side]), there, strict=True))
    kept = [d for d in range(vector.shape.rank) if d in place]
    thin = writer.reshape(vector, array(kind, *(vector.shape.dimensions[d] for d in kept)))
    wide = _laid(writer, thin, [place[d] for d in kept], matrix)
    terms = writer.emit("multiply", matrix.shape, matrix, wide)
    attributes: dict[str, Attribute | Called] = {
        "dimensions": Attribute.of(tuple(sorted(places[d] for d in gone[side]))),
        "to_apply": Called(scalar_reducer(writer.computation, "add", array(kind))),
    }
    shape = array(kind, *(operands[side].shape.dimensions[d] for d in rest))
    total = edit.create(writer.computation, "sum", "reduce", shape, (terms, writer.scalar(kind, 0)), attributes)
    order = [rest.index(d) for d in shared[side]]
    order += [k for k in range(len(rest)) if k not in order]
    if order != sorted(order):
        turned = array(kind, *(shape.dimensions[d] for d in order))
        total = writer.emit("transpose", turned, total, dimensions=tuple(order))
    return writer.convert(writer.reshape(total, array(kind, *dot.shape.dimensions)), dot.shape.type)


def _together(
    writer: BroadcastingWriter, matrix: Instruction, rest: Sequence[int], gone: Sequence[int]
) -> tuple[dict[int, int], Instruction]:
    """A matrix whose contracted dimensions (`gone`) are neighbours, and the new places of its dimensions: if they lie
    apart, they move to the end, for a kernel folds neighbours as a row."""
    axes = [*rest, *sorted(gone)]
    if max(gone, default=0) - min(gone, default=0) < len(gone):
        return {d: d for d in axes}, matrix
    turned = array(matrix.shape.type, *(matrix.shape.dimensions[d] for d in axes))
    return {d: k for k, d in enumerate(axes)}, writer.emit("transpose", turned, matrix, dimensions=tuple(axes))


def _laid(writer: BroadcastingWriter, vector: Instruction, places: Sequence[int], matrix: Instruction) -> Instruction:
    """A vector broadcast along the other dimensions of a matrix, of which it has those in `places`."""
    order = sorted(range(len(places)), key=places.__getitem__)
    if order != sorted(order):
        turned = array(vector.shape.type, *(vector.shape.dimensions[d] for d in order))
        vector = writer.emit("transpose", turned, vector, dimensions=tuple(order))
    return writer.emit("broadcast", matrix.shape, vector, dimensions=tuple(sorted(places)))


def _write_as_sum(dot: Instruction, side: int) -> None:
    """Replace the product by a multiply and a reduce, which inherit its Python line."""
    computation, writer = dot.computation, BroadcastingWriter(dot.computation)
    before = len(computation.instructions)
    _replace(dot, _sum(writer, dot, dot.operands, side), before)
