"""Independent products become one where a library begins fewer of them for it, such as the gates of a recurrent cell.

Products that share an operand are one product of it and the others side by side; products of equal shapes are a batch.
XLA has the first form (xla/service/dot_merger.cc), for products below a size; here the price decides, with what copying
the operands together and the results apart takes. Results are sums of the same terms. A library may add the terms of
another size in another order.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, Literal

from hlo_opt.analysis.targets import DeviceTarget
from hlo_opt.fusion.products import WORTH, WORTH_ALONE
from hlo_opt.ir import Attribute, Called, Computation, Instruction, Layout, Module, Shape, SliceDimension, edit
from hlo_opt.ir.walk import post_order
from hlo_opt.ops.contraction.table import DotDimensions
from hlo_opt.ops.sets import is_elementwise
from hlo_opt.passes.base import PassContext, RewritingPass
from hlo_opt.passes.expansion import BroadcastingWriter
from hlo_opt.plans import Plan, plan, region_of
from hlo_opt.plans.calls import price_of_call
from hlo_opt.plans.price import price

_MEANING = ("lhs_batch_dims", "rhs_batch_dims", "lhs_contracting_dims", "rhs_contracting_dims")
_ASKED = ("operand_precision", "algorithm", "frontend_attributes")
"""What is asked of a product. Frontend attributes may mean anything: those of one product are not given to another."""


@dataclass(frozen=True)
class Joint:
    """Products as one.

    dots      the products, of which none needs another
    axes      the dimension of each operand along which those of the products follow one another, or None for an operand
              that all share
    axis      the dimension of the result along which theirs do
    is_batch  whether that is a new dimension, the first of the operands and of the result
    """

    dots: tuple[Instruction, ...]
    axes: tuple[int | None, int | None]
    axis: int
    is_batch: bool

    def operand_shape(self, side: int) -> Shape:
        return _side_by_side([dot.operands[side].shape for dot in self.dots], self.axes[side], self.is_batch)

    @property
    def shape(self) -> Shape:
        return _side_by_side([dot.shape for dot in self.dots], self.axis, self.is_batch)

    @property
    def attributes(self) -> dict[str, Attribute | Called]:
        """Those of the joint product."""
        first = self.dots[0]
        kept: dict[str, Attribute | Called] = {k: v for k, v in first.attributes.items() if k not in _MEANING}
        for name in _MEANING:
            dimensions = first.ints(name)
            if self.is_batch:
                dimensions = tuple(d + 1 for d in dimensions)
                dimensions = (0, *dimensions) if "batch" in name else dimensions
            if dimensions:
                kept[name] = Attribute.of(dimensions)
        return kept


@dataclass(frozen=True)
class DotMerger(RewritingPass):
    """Make independent products of the entry one, side by side or as a batch, where that takes less time. Loops have
    kernels of their own."""

    name: ClassVar[str] = "dot-merger"
    preserves: ClassVar[Literal["graph", "meaning"]] = "meaning"
    simplifies: ClassVar[bool] = True
    idempotent: ClassVar[bool] = True

    def computations(self, module: Module) -> Iterable[Computation]:
        return [module.entry]

    def rewrites(self, computation: Computation, context: PassContext) -> Iterator[Callable[[], object]]:
        module, target = computation.module, context.options.target
        assert module is not None
        if target.in_lanes:
            return  # a processor's routine begins at once
        if sum(map(_is_plain, computation.instructions)) < 2:
            return
        levels = _levels(computation)
        left = [i for i in levels if _is_plain(i)]
        known: dict[Hashable, float] = {}
        for side in (0, 1):
            for group in _alike(left, partial(_sharing, levels, side)):
                joint = _beside(group, side)
                if _pays(joint, module, target, known):
                    left = [i for i in left if i not in group]
                    yield partial(_merge, joint)
        for group in _alike(left, partial(_equal, levels)):
            joint = Joint(tuple(group), (0, 0), 0, is_batch=True)
            if _pays(joint, module, target, known):
                yield partial(_merge, joint)


def _levels(computation: Computation) -> dict[Instruction, int]:
    """How many products each value needs one after another: of two with the same number none needs the other."""
    levels: dict[Instruction, int] = {}
    for i in post_order(computation):
        needed = (*i.operands, *i.control_predecessors)
        levels[i] = max((levels[o] + (o.opcode == "dot") for o in needed), default=0)
    return levels


def _is_plain(i: Instruction) -> bool:
    """Whether it is a product of two arrays of known sizes, and nothing else."""
    if i.opcode != "dot" or len(i.operands) != 2 or i.control_predecessors or not i.shape.element_count:
        return False
    if not i.attributes.keys() <= {*_MEANING, *_ASKED, "metadata"}:
        return False
    shapes = [i.shape, *(o.shape for o in i.operands)]
    return not any(any(s.dynamic) for s in shapes)


def _alike(dots: Sequence[Instruction], likeness: Callable[[Instruction], Hashable]) -> list[list[Instruction]]:
    """The products with the same likeness, where there are several."""
    groups: dict[Hashable, list[Instruction]] = {}
    for dot in dots:
        if (key := likeness(dot)) is not None:
            groups.setdefault(key, []).append(dot)
    return [group for group in groups.values() if len(group) > 1]


def _how(dot: Instruction) -> Hashable:
    names = (*_MEANING, *_ASKED)
    return tuple(str(dot.attributes[n]) if n in dot.attributes else "" for n in names)


def _sharing(levels: dict[Instruction, int], side: int, dot: Instruction) -> Hashable:
    """Equal for products of the same operand `side` and others that may stand side by side; None where the other is a
    vector."""
    other = dot.operands[1 - side].shape
    free = DotDimensions.of(dot).free(other.rank, right=side == 0)
    if not free:
        return None
    rest = tuple(size for d, size in enumerate(other.dimensions) if d != free[0])
    forms = (other.type, rest, other.minor_to_major, dot.shape.type, dot.shape.minor_to_major)
    return levels[dot], dot.operands[side], _how(dot), forms


def _equal(levels: dict[Instruction, int], dot: Instruction) -> Hashable:
    """Equal for products of equal shapes."""
    return levels[dot], _how(dot), dot.shape, *(o.shape for o in dot.operands)


def _beside(dots: Sequence[Instruction], side: int) -> Joint:
    """Products of the same operand `side` as one."""
    first, numbers = dots[0], DotDimensions.of(dots[0])
    left, right = (numbers.free(o.shape.rank, right=bool(k)) for k, o in enumerate(first.operands))
    batch = len(numbers.lhs_batch)
    if side == 0:
        return Joint(tuple(dots), (None, right[0]), batch + len(left), is_batch=False)
    return Joint(tuple(dots), (left[0], None), batch, is_batch=False)


def _side_by_side(shapes: Sequence[Shape], axis: int | None, is_batch: bool) -> Shape:
    first = shapes[0]
    if axis is None:
        return first
    if is_batch:
        order = (*(d + 1 for d in first.minor_to_major), 0)
        return Shape(first.type, (len(shapes), *first.dimensions), Layout(order))
    total = sum(shape.dimensions[axis] for shape in shapes)
    return replace(first, dimensions=tuple(total if d == axis else n for d, n in enumerate(first.dimensions)))


def _pays(joint: Joint, module: Module, target: DeviceTarget, known: dict[Hashable, float]) -> bool:
    """Whether the joint product, a kernel that copies its operands together, and one that copies results for those that
    cannot read them where they are, take clearly less time than the products apart. `known` has the times of products
    that were asked for before."""
    aside = Module(module.name)
    computation = edit.new_computation(aside, "product")
    operands = [edit.create_parameter(computation, "x", joint.operand_shape(side), side) for side in (0, 1)]
    whole = edit.create(computation, "dot", "dot", joint.shape, operands, joint.attributes)
    edit.set_root(computation, whole)
    copied = [joint.operand_shape(side) for side in (0, 1) if joint.axes[side] is not None]
    moved = [sum(shape.byte_size for shape in copied), sum(d.shape.byte_size for d in joint.dots if _is_copied(d))]
    copies = sum(target.kernel_launch_us + 2 * n / target.memory_bandwidth * 1e6 for n in moved if n)
    most = WORTH * sum([_us(dot, module, target, known) for dot in joint.dots])
    return copies < most and _us(whole, aside, target, known) + copies < most


def _is_copied(dot: Instruction) -> bool:
    """Whether something reads a product that cannot read a part of an array."""
    return dot.is_root or not all(is_elementwise(u) or u.opcode == "reduce" for u in dot.users)


def _us(dot: Instruction, module: Module, target: DeviceTarget, known: dict[Hashable, float]) -> float:
    """Microseconds of a product by itself: of a library, or of our kernel where that is clearly quicker."""
    key = _how(dot), dot.shape, *(o.shape for o in dot.operands), len(set(dot.operands))
    us = known.get(key)
    if us is None:
        us = known[key] = _us_of(dot, module, target)
    return us


def _us_of(dot: Instruction, module: Module, target: DeviceTarget) -> float:
    call, own = price_of_call(dot, target).us, plan(region_of(module, dot), target)
    alone = price(own, target).us if isinstance(own, Plan) else call
    return alone if alone < WORTH_ALONE * call else call


def _merge(joint: Joint) -> None:
    """Replace products by parts of the joint one."""
    first, writer = joint.dots[0], BroadcastingWriter(joint.dots[0].computation)
    operands = []
    for side in (0, 1):
        parts, axis = [dot.operands[side] for dot in joint.dots], joint.axes[side]
        if joint.is_batch:
            parts = [writer.emit("reshape", _side_by_side([p.shape], 0, is_batch=True), p) for p in parts]
        shape = joint.operand_shape(side)
        operands.append(parts[0] if axis is None else writer.concatenate(shape, parts, axis))
    whole = edit.create(first.computation, first.name, "dot", joint.shape, operands, joint.attributes)
    edit.inherit(whole, first)
    start = 0
    for dot in joint.dots:
        shape = _side_by_side([dot.shape], joint.axis, joint.is_batch)
        limit = start + shape.dimensions[joint.axis]
        places = [SliceDimension(0, size) for size in whole.shape.dimensions]
        places[joint.axis] = SliceDimension(start, limit)
        part = writer.slice(shape, whole, places)
        edit.inherit(part, dot)
        edit.replace_all_uses(dot, writer.emit("reshape", dot.shape, part) if joint.is_batch else part)
        edit.remove(dot)
        start = limit
