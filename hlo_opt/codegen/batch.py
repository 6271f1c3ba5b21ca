"""The emitter of outputs that are small arrays for each element of a batch: a thread computes all of one."""

from __future__ import annotations

from collections.abc import Sequence

from hlo_opt.codegen.builder import Builder
from hlo_opt.codegen.loop import elements_of_thread
from hlo_opt.codegen.scalars import memory_type, stored
from hlo_opt.codegen.vectors import OutputTarget, Store, Targets
from hlo_opt.ir import Instruction
from hlo_opt.ir.index_map import Expression, split_constant
from hlo_opt.ops.code import of
from hlo_opt.ops.lowering import Index
from hlo_opt.plans.batch import MOST_BYTES, Batch
from hlo_opt.plans.plan import Plan, Segment


def emit(builder: Builder, plan: Plan, segment: Segment[Batch], first_block: int, targets: Targets) -> None:
    """Each thread computes its part of each output, for neighbouring lanes at a time; all of a lane is computed before
    its first element is written."""

    def compute(inside: Builder, place: Expression) -> list[Store]:
        wanted = [(plan.region.roots[n], targets[n][0], at) for n, at in segment.part.written(plan.region, place)]
        if segment.vector == 1 and any(shape.type.bytes < 4 for shape in (*plan.region.inputs, *plan.region.outputs)):
            _narrow(inside, wanted)
            return []
        return [Store(*target, at, inside.value(root, at)) for root, target, at in wanted]

    elements_of_thread(builder, plan, segment, first_block, segment.part.places, compute, most_bytes=MOST_BYTES)


def _narrow(builder: Builder, wanted: Sequence[tuple[Instruction, OutputTarget, Index]]) -> None:
    """Read the elements of narrow types that values need, in the order of memory, then compute and convert the values,
    then write them: NVRTC joins no accesses across conversions."""
    trial = builder.trial()
    for root, _, index in wanted:
        trial.value(root, index)
    reads = [read for read in dict.fromkeys(trial.loads()) if read[0].shape.type.bytes < 4]

    def place(read: tuple[Instruction, Index]) -> tuple[int, int]:
        parameter, index = read
        return parameter.parameter_number or 0, split_constant(builder.place(parameter.shape, index))[1]

    for parameter, index in sorted(reads, key=place):
        builder.value(parameter, index)
    values = [
        of(builder.let(memory_type(shape.type), "made", stored(shape.type, builder.value(root, index))))
        for root, (_, shape), index in wanted
    ]
    for (_, (pointer, shape), index), value in zip(wanted, values, strict=True):
        builder.put(pointer, shape, index, value)
