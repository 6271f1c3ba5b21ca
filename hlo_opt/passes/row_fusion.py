"""Kernels that go over the same rows become one, which reads them once; sums of their columns are folded on the way, a
part for each stretch of rows.

The gradient of a layer norm is such a case: sums of rows, then what needs these, then sums of what comes out, over
columns. A kernel by itself, each of them reads both operands. As one (`hlo_opt.plans.row_and_column_reduction`) they
leave parts of the sums of columns, which a second, small kernel brings together. What is joined is decided by the price
of the plan.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from hlo_opt.analysis.properties import has_side_effect, inside
from hlo_opt.analysis.targets import DeviceTarget
from hlo_opt.diag import Reason
from hlo_opt.fusion.engine import Engine
from hlo_opt.fusion.outline import KEPT_ON_FUSION, is_read_by_element, original_name, tidy
from hlo_opt.fusion.prices import Prices
from hlo_opt.fusion.state import FusionState
from hlo_opt.ir import Attribute, Called, Computation, Instruction, Layout, Module, Shape, edit
from hlo_opt.ir.walk import executed_computations, needed_first, operands_first, post_order
from hlo_opt.ops.reduction.reducers import running_types, starts_with_identity, widened, widened_literal
from hlo_opt.ops.sets import fused, results_of, tuple_index
from hlo_opt.passes.base import Pass, PassContext
from hlo_opt.plans import Plan, plan, region_of, row_reduction
from hlo_opt.plans.folding import Folded, Space
from hlo_opt.plans.row_and_column_reduction import stretch_of

WORTH = 0.98
"""The most that the joint kernel may take, relative to both kernels."""
_ROW_KINDS = frozenset({"row-reduction", "row-and-column-reduction"})


@dataclass(frozen=True)
class RowFusion(Pass):
    """Join a kernel that reduces rows with one that reads its results and the same rows. The values stay the same up to
    rounding; where sums of columns are cut into parts, the graph does not."""

    name: ClassVar[str] = "row-fusion"
    preserves: ClassVar[Literal["graph", "meaning"]] = "meaning"

    def run(self, module: Module, context: PassContext) -> bool:
        state = FusionState(module, context.options.target, context.memory.known)
        work = _Work(module, context, state.prices)
        for computation in list(executed_computations(module)):
            while work.join_one(computation):
                pass
        state = FusionState(module, context.options.target, context.memory.known)
        for computation, fusions in work.fusions.items():
            left = {f: kind for f, kind in fusions.items() if f.parent is not None}
            tidy(computation, left, state)
        if work.fusions:
            edit.sort_computations(module)
        return bool(work.fusions)


@dataclass
class _Work:
    """The module, prices of kernels, pairs that have been tried, and the fusions so far."""

    module: Module
    context: PassContext
    plans: Prices
    prices: dict[Instruction, float] = field(default_factory=dict)
    tried: set[tuple[Instruction, Instruction]] = field(default_factory=set)
    fusions: dict[Computation, dict[Instruction, str]] = field(default_factory=dict)
    """The fusions in each computation, with the kinds of their plans; some are already gone."""

    @property
    def target(self) -> DeviceTarget:
        return self.context.options.target

    def join_one(self, computation: Computation) -> bool:
        """Join the first pair that pays; False where there is none."""
        candidates = {i: spaces for i in computation.instructions if (spaces := _spaces(i))}
        if not candidates:
            return False
        computation.index_users()
        order = post_order(computation)
        places = {i: n for n, i in enumerate(order)}
        bound = _bound(order)
        for consumer in reversed(order):
            if consumer in bound or not _is_ours(consumer):
                continue
            read = dict.fromkeys(_kernel(o) for o in consumer.operands)
            for producer in sorted(
                (p for p in read if p in candidates and p not in bound), key=places.__getitem__, reverse=True
            ):
                if (producer, consumer) in self.tried or not _share_rows(producer, consumer, candidates[producer]):
                    continue
                self.tried.add((producer, consumer))
                if _reaches_otherwise(producer, consumer, places) or self._is_forbidden(producer, consumer):
                    continue
                joint = _Joint(producer, consumer, self.module, self.target)
                if self._pays(joint):
                    if not self.context.step():
                        return False
                    for fusion in joint.apply(self.context):
                        kernel_plan = plan(region_of(self.module, fusion), self.target)
                        assert isinstance(kernel_plan, Plan)
                        self.fusions.setdefault(computation, {})[fusion] = kernel_plan.kind
                    return True
        return False

    def _is_forbidden(self, producer: Instruction, consumer: Instruction) -> bool:
        if not self.context.options.separated:
            return False
        engine = Engine(self.module, self.context, RowFusion.name)
        return next(engine.forbidding(engine.edge(producer, consumer)), None) is not None

    def _pays(self, joint: _Joint) -> bool:
        if joint.main is None:
            return False
        sketch = self.plans.planned(joint.main.fusion()[0])
        if isinstance(sketch, Reason) or sketch.segments != 1 or sketch.kind not in _ROW_KINDS:
            return False
        together = sketch.price.us
        if joint.after is not None:
            together += self._us(joint.after.fusion()[0])
        apart = [self._price(i) for i in (joint.producer, joint.consumer)]
        return together <= WORTH * math.fsum(apart)

    def _price(self, kernel: Instruction) -> float:
        if kernel not in self.prices:
            self.prices[kernel] = self._us(kernel)
        return self.prices[kernel]

    def _us(self, kernel: Instruction) -> float:
        sketch = self.plans.planned(kernel)
        return math.inf if isinstance(sketch, Reason) else sketch.price.us


def _is_ours(kernel: Instruction) -> bool:
    """Whether an instruction is a kernel that may be built anew."""
    if not _folds(kernel) and (inside(kernel) is None or kernel.word("kind") not in ("kLoop", "kInput")):
        return False
    if has_side_effect(kernel) or kernel.control_predecessors or "output_to_operand_aliasing" in kernel.attributes:
        return False
    body = fused(kernel)
    if body is not None and any(i.control_predecessors or fused(i) is not None for i in body.instructions):
        return False
    count = 1 if body is None else len(results_of(body))
    return count == sum(1 for _ in kernel.shape.leaves()) and is_read_by_element(kernel)


def _bound(order: Iterable[Instruction]) -> set[Instruction]:
    """The kernels at an end of a control dependency, by themselves or by one of their elements."""
    bound: set[Instruction] = set()
    for i in order:
        if i.control_predecessors:
            bound.update((i, *i.control_predecessors))
    return bound | {i.operands[0] for i in bound if tuple_index(i) is not None}


def _members(kernel: Instruction) -> Iterable[Instruction]:
    body = fused(kernel)
    return [kernel] if body is None else body.instructions


def _folds(instruction: Instruction) -> bool:
    return instruction.opcode == "reduce"


def _spaces(kernel: Instruction) -> list[Space]:
    """The rows that a kernel reduces; empty for an instruction that is no generated kernel."""
    if fused(kernel) is None and not _folds(kernel):
        return []
    candidates = [row_reduction.space_of(i) for i in _members(kernel) if _folds(i)]
    spaces = [space for space in candidates if space is not None and space.reduced > 1]
    return spaces if spaces and _is_ours(kernel) else []


def _kernel(operand: Instruction) -> Instruction:
    """The kernel that an operand is a result of, or an element of its result."""
    return operand.operands[0] if tuple_index(operand) is not None else operand


def _share_rows(producer: Instruction, consumer: Instruction, spaces: Iterable[Space]) -> bool:
    """Whether both read, or one writes and the other reads, an array of the size of the rows that the producer
    reduces."""
    sizes = {space.elements for space in spaces}
    read = {o for o in producer.operands if o.shape.is_array and o.shape.element_count in sizes}
    return any(o in read or (_kernel(o) is producer and o.shape.element_count in sizes) for o in consumer.operands)


def _reaches_otherwise(producer: Instruction, consumer: Instruction, places: dict[Instruction, int]) -> bool:
    """Whether the consumer needs the producer through another kernel, too."""
    stack = [o for o in consumer.operands if _kernel(o) is not producer]
    seen, first = set(stack), places[producer]
    while stack:
        for near in (i := stack.pop()).operands + list(i.control_predecessors):
            if near is producer:
                return True
            if near not in seen and places[near] > first:
                seen.add(near)
                stack.append(near)
    return False


class _Joint:
    """Both kernels as one, `main`, or None where that cannot be. If there are sums of columns, the operations after
    them are in a second kernel, `after`. Nothing is part of the module before `apply`."""

    def __init__(self, producer: Instruction, consumer: Instruction, module: Module, target: DeviceTarget) -> None:
        self.producer, self.consumer, self.module, self.target = producer, consumer, module, target
        self.main: _Kernel | None = None
        self.after: _Kernel | None = None
        self.outside: dict[Instruction, list[Instruction]] = {}
        """The results, each with the instructions outside that stand for it."""
        self._values: dict[Instruction, Instruction] = {}
        self._members: list[Instruction] = []
        self.copies: list[tuple[Instruction, Instruction]] = []
        for kernel in (producer, consumer):
            self._take(kernel)
        self._arrange()

    def _take(self, kernel: Instruction) -> None:
        """Copy the members of a kernel. Values from outside stand for themselves."""
        body = fused(kernel)
        arguments = [self._inside_value(o) for o in kernel.operands]
        places = dict(zip([] if body is None else body.parameters, arguments, strict=False))
        results = [kernel] if body is None else results_of(body)
        for member in results if body is None else operands_first(results):
            if member not in places:
                copy = _copy(member, arguments if body is None else [places[o] for o in member.operands])
                places[member] = copy
                self._members.append(copy)
                self.copies.append((member, copy))
        for number, result in enumerate(results):
            outside = [u for u in kernel.users if tuple_index(u) == number] if kernel.shape.is_tuple else [kernel]
            self._values.update(dict.fromkeys(outside, places[result]))
            if any(o.is_root or any(u is not self.consumer for u in o.users) for o in outside):
                self.outside.setdefault(places[result], []).extend(outside)

    def _inside_value(self, operand: Instruction) -> Instruction:
        """The value of an operand inside the joint kernel. Scalar constants are copied, so that their values are known
        there."""
        literal = operand.literal
        if literal is not None and not literal.is_elided and not operand.shape.rank and operand not in self._values:
            parameter = self._values[operand] = _copy(operand, [])
            self._members.append(parameter)
        return self._values.get(operand, operand)

    def _arrange(self) -> None:
        """Divide the members between both kernels. Sums of columns are cut into parts."""
        reduces = [i for i in self._members if _folds(i)]
        spaces = {i: space for i in reduces if (space := row_reduction.space_of(i)) is not None}
        space = max(spaces.values())
        sums = [i for i in reduces if _columns_of(i) == space]
        late = set(sums)
        for i in self._members:
            if not late.isdisjoint(i.operands):
                late.add(i)
        results = list(self.outside)
        if any(i in late and i not in sums for i in reduces) or not late.isdisjoint(
            r for r in spaces if spaces[r] == space
        ):
            return
        main = _Kernel.of(results)
        if not sums:
            self.main = main
            return
        hero = next(i for i in reduces if spaces.get(i) == space)
        fusion, copies = main.fusion()
        rows = row_reduction.of(region_of(self.module, fusion), Folded(space, ((copies[hero],),), ()), self.target)
        stretch = stretch_of(rows, self.target)
        if stretch == space.kept or any(i in late and i.shape.element_count > space.reduced for i in results):
            return
        parts = [_cut(i, space, stretch) for i in sums]
        after = _Kernel.of([r for r in results if r in late], parts)
        if any(i.shape.element_count > space.reduced for i in after.members):
            return
        self.main, self.after = _Kernel.of([*(r for r in results if r not in late), *parts]), after

    def apply(self, context: PassContext) -> list[Instruction]:
        """Replace the producer and the consumer by the new kernels. Returns these."""
        computation, consumer = self.consumer.computation, self.consumer
        assert self.main is not None
        for old, new in self.copies:
            if old in context.origins:
                context.origins[new] = context.origins.pop(old)
        for kernel in (self.producer, consumer):
            context.fused_by.setdefault(original_name(kernel, context.origins), RowFusion.name)
        kept = {n: consumer.attributes[n] for n in KEPT_ON_FUSION if n in consumer.attributes}
        free = {old.name for old, _ in self.copies}
        fusion, values = self.main.put(computation, {}, kept, context, free)
        fusions = [fusion]
        if self.after is not None:
            fusion, more = self.after.put(computation, values, kept, context, free)
            fusions.append(fusion)
            values.update(more)
        for result, outside in self.outside.items():
            for old in outside:
                edit.replace_all_uses(old, values[result])
        for kernel in (consumer, self.producer):
            for user in list(kernel.users):
                edit.remove(user)
            edit.remove(kernel)
        for body in (fused(consumer), fused(self.producer)):
            if body is not None:
                edit.remove_computation(body)
        return fusions


@dataclass(frozen=True)
class _Kernel:
    """A kernel under construction: its results, its inputs, and its members, operands before users."""

    results: Sequence[Instruction]
    inputs: Sequence[Instruction]
    members: Sequence[Instruction]

    @classmethod
    def of(cls, results: Sequence[Instruction], boundary: Sequence[Instruction] = ()) -> _Kernel:
        """The kernel that computes results. Its inputs are instructions of the module, and values of `boundary`, which
        another kernel computes."""
        stops = set(boundary)
        members = needed_first(results, lambda i: () if i in stops or i.parent is not None else i.operands)
        inputs = [i for i in members if i in stops or i.parent is not None]
        return cls(results, inputs, [i for i in members if i not in stops and i.parent is None])

    def fusion(self) -> tuple[Instruction, dict[Instruction, Instruction]]:
        """A fusion that is no part of a module, and its members by their originals."""
        body, copies = self._body()
        return Instruction("joint", "fusion", body.root.shape, list(self.inputs), {"calls": Called(body)}), copies

    def _body(self) -> tuple[Computation, dict[Instruction, Instruction]]:
        """A computation of copies, and the copies by their originals."""
        body, places = Computation("joint"), dict[Instruction, Instruction]()
        for number, value in enumerate(self.inputs):
            parameter = Instruction(f"param_{number}", "parameter", value.shape, parameter_number=number)
            places[value] = edit.append(body, parameter)
        for member in self.members:
            places[member] = edit.append(body, _copy(member, [places[o] for o in member.operands]))
        roots = [places[r] for r in self.results]
        edit.set_root(body, roots[0])
        if len(roots) > 1:
            shape = Shape.tuple_of(*(r.shape for r in roots))
            edit.append(body, Instruction("results", "tuple", shape, roots), root=True)
        return body, places

    def put(
        self,
        computation: Computation,
        values: Mapping[Instruction, Instruction],
        attributes: Mapping[str, Attribute | Called],
        context: PassContext,
        free: set[str],
    ) -> tuple[Instruction, dict[Instruction, Instruction]]:
        """Put the kernel into a computation. Returns the fusion, and the instructions that stand for its results.
        `values` are the instructions that stand for inputs; names that become `free` may be used again, each once."""
        module, origins = computation.module, context.origins
        assert module is not None
        body, places = self._body()
        body.name = module.unique_name("fused_computation")
        for member in self.members:
            if member in origins:
                origins[places[member]] = origins[member]
        for instruction in body.instructions:
            if instruction.name in free:
                free.remove(instruction.name)
                continue
            origin = instruction.name
            instruction.name = module.unique_name(origin)
            if instruction.parameter_number is None and instruction.opcode != "tuple":
                origins.setdefault(instruction, origin)
        if len(self.results) > 1:
            origins[body.root] = original_name(body.root.operands[0], origins)
        for reducer in (c for i in body.instructions for c in i.called() if c.module is None):
            for instruction in (edit.add_computation(module, reducer)).instructions:
                instruction.name = module.unique_name(instruction.name)
            reducer.name = module.unique_name(reducer.name)
        edit.add_computation(module, body)
        operands = [values.get(g, g) for g in self.inputs]
        all_attributes = {"kind": Attribute.of("kInput"), "calls": Called(body), **attributes}
        fusion = edit.create(computation, "fusion", "fusion", body.root.shape, operands, all_attributes)
        if len(self.results) == 1:
            return fusion, {self.results[0]: fusion}
        return fusion, {r: edit.create_element(fusion, n) for n, r in enumerate(self.results)}


def _copy(instruction: Instruction, operands: list[Instruction]) -> Instruction:
    """The same operation on other operands, in no computation."""
    return Instruction(
        instruction.name,
        instruction.opcode,
        instruction.shape,
        list(operands),
        dict(instruction.attributes),
        literal=instruction.literal,
        offset=instruction.offset,
        end=instruction.end,
    )


def _columns_of(reduce: Instruction) -> Space | None:
    """The rows whose columns a reduce folds from the first row to the last; None for any other reduce, and where parts
    of its sums cannot be added."""
    value = reduce.operands[0]
    gone, sizes = set(reduce.ints("dimensions")), value.shape.dimensions if value.shape.is_array else ()
    if reduce.shape.is_tuple or not starts_with_identity(reduce) or not row_reduction.may_be_reordered(reduce):
        return None
    if gone != set(range(len(gone))):
        return None
    if any(list(s.minor_to_major) != list(range(s.rank))[::-1] for s in (value.shape, reduce.shape)):
        return None
    columns = math.prod(sizes[len(gone) :])
    return Space(value.shape.element_count // columns, columns) if columns > 1 else None


def _cut(reduce: Instruction, space: Space, stretch: int) -> Instruction:
    """Turn a sum of columns into one of parts with `stretch` rows each. Returns the parts. Those of narrow floats have
    the type in which kernels add them: the sum is still rounded once."""
    value, init = reduce.operands
    sizes = (space.kept // stretch, *reduce.shape.dimensions)
    attributes = {**reduce.attributes, "dimensions": Attribute.of((1,))}
    (running,) = running_types(reduce)
    is_wide = running != reduce.shape.type
    if is_wide:
        assert init.literal is not None, "it starts with a known number"
        value = Instruction("wide", "convert", value.shape.with_type(running), [value])
        init = Instruction(init.name, "constant", init.shape.with_type(running), literal=widened_literal(init.literal))
        attributes["to_apply"] = Called(widened(reduce.called_by("to_apply")))
    cut = Instruction("stretches", "reshape", _row_major(value.shape, (sizes[0], stretch, *sizes[1:])), [value])
    parts = Instruction("parts", "reduce", _row_major(value.shape, sizes), [cut, init], attributes)
    total = {**attributes, "dimensions": Attribute.of((0,))}
    if is_wide:
        whole = Instruction("total", "reduce", reduce.shape.with_type(running), [parts, init], total)
        reduce.opcode, reduce.operands = "convert", [whole]
        reduce.attributes = {n: v for n, v in reduce.attributes.items() if n not in ("to_apply", "dimensions")}
    else:
        reduce.operands, reduce.attributes = [parts, init], total
    return parts


def _row_major(like: Shape, sizes: tuple[int, ...]) -> Shape:
    return Shape(like.type, sizes, Layout(tuple(range(len(sizes)))[::-1]))
