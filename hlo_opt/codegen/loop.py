"""The emitter of loop plans."""

from __future__ import annotations

from collections.abc import Sequence

from hlo_opt.codegen.builder import Builder
from hlo_opt.ir import Shape
from hlo_opt.ir.index_map import Expression, Variable, add, constant, multiply
from hlo_opt.plans.loop import root_index
from hlo_opt.plans.plan import Plan, Segment


def emit(
    builder: Builder, plan: Plan, segment: Segment, first_block: int, targets: Sequence[Sequence[tuple[str, Shape]]]
) -> None:
    """Every thread computes `vector` consecutive elements of each root."""
    elements = next(segment.hero.shape.leaves()).element_count
    threads, block = elements // segment.vector, plan.launch.block
    position: Expression = constant(0)
    if segment.blocks * block > 1:
        counter = Variable(0, threads - 1, builder.names.fresh("thread" if segment.vector > 1 else "linear"))
        wide = segment.blocks * block > 2**31 - 1
        kind, cast = ("long long", "(long long)") if wide else ("int", "")
        own = f"({cast}blockIdx.x - {first_block})" if first_block else f"{cast}blockIdx.x"
        builder.line(f"const {kind} {counter.name} = {own} * {block} + threadIdx.x;")
        if segment.blocks * block != threads:
            builder.line(f"if ({counter.name} >= {threads}) return;")
        position = counter
    if segment.vector == 1:
        _elements(builder, plan, segment, targets, position)
        return
    builder.pragma("unroll")
    with builder.loop(segment.vector) as lane:
        linear = builder.declare_index("linear", add(multiply(position, segment.vector), lane))
        _elements(builder, plan, segment, targets, linear)


def _elements(
    builder: Builder,
    plan: Plan,
    segment: Segment,
    targets: Sequence[Sequence[tuple[str, Shape]]],
    position: Expression,
) -> None:
    writes = []
    for number in segment.roots:
        root = plan.region.roots[number]
        index = root_index(segment.hero, root, position)
        for element, (pointer, shape) in enumerate(targets[number]):
            value = builder.element(root, element, index) if root.shape.is_tuple else builder.value(root, index)
            writes.append((pointer, shape, index, value))
    for pointer, shape, index, value in writes:
        builder.store(pointer, shape, index, value)
