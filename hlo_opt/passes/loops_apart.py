"""Kernels that run all rounds of a loop become loops of kernels again, for backends where a launch costs next to
nothing and a barrier of all threads a lot.

A pool of processors runs the threads of such a kernel one stretch after another, all threads in each stretch.
Afterwards each operation of the loop has kernels of its own.
"""

from __future__ import annotations

from hlo_opt.analysis.graph.inlining import inline, is_plain_fusion
from hlo_opt.analysis.targets import DeviceTarget, InLanes
from hlo_opt.ir import Called, Instruction, Module, edit
from hlo_opt.ir.walk import executed_computations
from hlo_opt.ops.sets import LINEAR, combines_updates, fused, looped
from hlo_opt.passes.pipeline import Pipeline, parse_pipeline
from hlo_opt.passes.run import run
from hlo_opt.passes.table import preset
from hlo_opt.passes.while_fusion import WhileFusion
from hlo_opt.plans import Plan, plan, region_of
from hlo_opt.plans.grid_loop import InGrid
from hlo_opt.plans.phases import LANES, Phases, StoredValue
from hlo_opt.plans.plan import Part, Region

LARGE_PRODUCTS = 8192
"""Multiplications per round in products of two matrices above which routines do them faster than the threads of a
block, launches included. Measured: one of 16 x 32 and 32 x 32 takes 0.6 us as a routine with its launch, and 1.2 us by
threads; one of 8 x 32 and 32 x 32 takes 0.9 us and 0.4 us."""
MOST_WORK = 1 << 21
"""Instructions of a round, each for one lane, up to which one processor takes what all blocks of a device would share,
as launches would compute values again that a block keeps. A round of a Potts model of 48 x 48 cells has 1.1 million: it
takes 95 us in one block, and 600 us as launches."""
LARGE_SCATTERS = 8192
"""Pairs of an element and an update above which a scatter by itself, that makes one update after another, is quicker
than elements that each look at all updates. Measured: 64 elements and 300 updates take 13 us and 3 us."""
NARROW, LONGER = 4, 4
"""Elements of the rows of a product below which threads side by side read pieces of several rows, and how much longer
it then takes."""


def apart(module: Module, target: DeviceTarget) -> Module:
    """The module itself, or a copy in which kernels that run all rounds of a loop are loops again where that is
    quicker, fused without such kernels."""
    if not any(_pays(i, module, target) for i in _loops(module)):
        return module
    clone = edit.clone_module(module)
    calls = {_take_apart(loop, clone, target) for loop in [i for i in _loops(clone) if _pays(i, clone, target)]}
    inline(clone, lambda i: i in calls)
    return clone


def _loops(module: Module) -> list[Instruction]:
    """The kernels that contain loops."""
    fusions = [i for c in executed_computations(module) for i in c.instructions if is_plain_fusion(i)]
    return [
        i for i in fusions if (body := fused(i)) is not None and any(looped(o) is not None for o in body.instructions)
    ]


def _pays(kernel: Instruction, module: Module, target: DeviceTarget) -> bool:
    """Whether a kernel runs all rounds of a loop that takes less time as launches here: because a round has more work
    than one processor should do, or something that is faster by itself than by threads with barriers."""
    region = region_of(module, kernel)
    parts = _parts(region, target)
    if any(isinstance(part, InGrid) for part in parts):
        parts = _parts(region, InLanes.of(target))
        return any(isinstance(part, InGrid) or _gains(part) or _work(part) > MOST_WORK for part in parts)
    return any(map(_gains, parts))


def _parts(region: Region, target: DeviceTarget) -> list[Part]:
    """The parts of a region's kernel; none where it has no plan."""
    kernel_plan = plan(region, target)
    return [segment.part for segment in kernel_plan.segments] if isinstance(kernel_plan, Plan) else []


def _gains(part: Part) -> bool:
    """Whether a round has products that routines do faster than threads with barriers, or scatters that a kernel by
    itself does faster."""
    if not isinstance(part, Phases):
        return False
    pairs = sum(cell.value.shape.element_count * cell.terms for cell in part.cells if _is_pulled(cell, part))
    return sum(map(_multiplications, part.cells)) > LARGE_PRODUCTS or pairs > LARGE_SCATTERS


def _is_pulled(cell: StoredValue, part: Phases) -> bool:
    """Whether each element of a cell looks at all updates of a scatter."""
    origin = part.origins.get(cell.value)
    return cell.terms > 1 and origin is not None and combines_updates(origin)


def _work(part: Part) -> float:
    """The instructions of a round, each for one lane."""
    cells = part.cells if isinstance(part, Phases) else []
    return sum(cell.value.shape.element_count * cell.work.slots for cell in cells)


def _multiplications(cell: StoredValue) -> int:
    """Those of a product that reads an element of a matrix once for several sums, as routines do, and of a sum of few
    products, of which no vector of lanes reads a row; 0 for any other value. In a product of a matrix and a vector
    there is one sum."""
    shape, operands = cell.value.shape, [o.shape.element_count for o in cell.value.operands]
    multiplications = shape.element_count * cell.terms
    if cell.is_product and multiplications > max(operands):
        is_narrow = shape.dimensions[shape.minor_to_major[0]] < NARROW
        return multiplications * (LONGER if is_narrow else 1)
    is_sum = cell.terms > 1 and cell.value.operands[0].opcode in LINEAR
    return multiplications if is_sum and cell.terms < LANES else 0


def _take_apart(kernel: Instruction, module: Module, target: DeviceTarget) -> Instruction:
    """Replace a kernel by a call."""
    body = fused(kernel)
    assert body is not None
    alone = Module(module.name)
    edit.add_computation(alone, edit.clone_into_module(alone, body), entry=True)
    steps = parse_pipeline(preset("default")).steps
    parts = Pipeline(tuple(step for step in steps if not isinstance(step, WhileFusion)))
    entry = edit.clone_into_module(module, run(alone, passes=parts, target=target).module.entry)
    computation, called = kernel.computation, {"to_apply": Called(entry)}
    call = edit.create(computation, kernel.name, "call", kernel.shape, kernel.operands, called)
    edit.replace_all_uses(kernel, call)
    edit.remove(kernel)
    edit.sort(computation)
    return call
