"""The emitter of scan plans: a loop over the steps of one line, with carried values in variables."""

from __future__ import annotations

from collections.abc import Sequence

from hlo_opt.codegen.builder import Builder
from hlo_opt.codegen.loop import elements_of_thread
from hlo_opt.codegen.vectors import Store, Targets
from hlo_opt.ir import Shape
from hlo_opt.ir.index_map import Expression, add, constant, delinearize, multiply
from hlo_opt.ops.code import Name
from hlo_opt.ops.lowering import Index
from hlo_opt.ops.reduction.table import is_reversed
from hlo_opt.plans.plan import Plan, Segment
from hlo_opt.plans.scan import ScanRuns
from hlo_opt.plans.sort import operands_of


def emit(builder: Builder, plan: Plan, segment: Segment[ScanRuns], first_block: int, targets: Targets) -> None:
    """One thread per line. Lines that are neighbours in memory go to neighbouring threads."""
    runs = segment.part
    written = [target for number in segment.roots for target in operands_of(plan.region.roots[number], targets[number])]
    assert runs.whole is not None
    order = [d if d < runs.axis else d - 1 for d in runs.whole.minor_to_major[::-1] if d != runs.axis]

    def line(builder: Builder, position: Expression) -> list[Store]:
        parts = delinearize(position, [runs.line_dimensions[d] for d in order])
        at = dict(zip(order, parts, strict=True))
        return _line(builder, runs, tuple(at[d] for d in range(len(order))), written)

    elements_of_thread(builder, plan, segment, first_block, runs.lines, line)


def _line(builder: Builder, runs: ScanRuns, place: Index, written: Sequence[tuple[int, Name, Shape]]) -> list[Store]:
    """Emit the steps, which write the outputs per step. Returns the stores of the final carries."""
    hero = runs.hero
    first = len(list(hero.shape.leaves())) - runs.carries
    carried = []
    for operand in hero.operands[len(runs.inputs) :]:
        start = builder.value(operand, place)
        builder.name_after(operand)
        carried.append(builder.variable(operand.shape.type, start))
    if runs.length:
        with builder.loop(runs.length) as step:
            along = add(constant(runs.length - 1), multiply(step, -1)) if is_reversed(hero) else step
            index = (*place[: runs.axis], along, *place[runs.axis :])
            values = [builder.value(o, index) for o in runs.inputs]
            body = hero.called_by("to_apply")
            results = builder.apply(body, [*values, *carried], index=place)
            kinds = [leaf.type for leaf in body.root.shape.leaves()][first:]
            carries = [builder.bind_exact(t, value) for t, value in zip(kinds, results[first:], strict=True)]
            for number, pointer, shape in written:
                if number < first:
                    builder.store(pointer, shape, index, results[number])
            for name, value in zip(carried, carries, strict=True):
                builder.assign(name, value)
    return [Store(pointer, shape, place, carried[n - first]) for n, pointer, shape in written if n >= first]
