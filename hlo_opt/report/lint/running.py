"""Rules about how a program runs: loops that launch, memory that is not given back, programs that are too small, shapes
that are compiled again and again."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from hlo_opt.analysis.graph.inlining import remove_uncalled
from hlo_opt.ir import Computation, Instruction, Module
from hlo_opt.ir.walk import executed_computations
from hlo_opt.ops.sets import calls_outside, launches, looped
from hlo_opt.passes.loops.while_unroll import MOST_OPERATIONS, UnrolledLoop
from hlo_opt.plans.choose import is_left_to_library
from hlo_opt.report.lint.base import Finding, FusedProgram, line_within
from hlo_opt.report.lint.donated import copied_inputs
from hlo_opt.report.page import count, counted, microseconds
from hlo_opt.report.view.kernels import DrawnKernel
from hlo_opt.text.frames import source_location

SMALL = 0.5
"""Share of launching in the time of a program from which on it is too small for the device."""

LAUNCHING = 0.1
"""Share of launching in the time of a loop below which its kernels are long enough for launches not to matter."""


def loop_launches(program: FusedProgram) -> Iterator[Finding]:
    """A loop that is not one kernel: each iteration launches its kernels again, and what waits for the host waits in
    each. A loop whose kernels take long beside their launches is left alone, unless it waits for the host."""
    by_computation: defaultdict[Computation, list[DrawnKernel]] = defaultdict(list)
    for kernel in program.kernels:
        by_computation[kernel.instruction.computation].append(kernel)
    places: list[tuple[float, tuple[Instruction, dict[str, str], float, int, bool]]] = []
    for computation in executed_computations(program.fused):
        for loop in computation.instructions:
            body = looped(loop)
            if body is None:
                continue
            kernels = [kernel for part in loop.called() for kernel in by_computation.get(part, ())]
            outside = [i.name for part in loop.called() for i in part.instructions if calls_outside(i)]
            is_counted = loop.name not in program.summary.unknown_loops
            runs = max(1, program.report.rounds.get(computation.name, 1))
            times = program.report.rounds.get(body.name, 1) // runs
            if not kernels or (times == 1 and is_counted):
                continue
            launching = sum(kernel.price.launch * kernel.rounds for kernel in kernels)
            takes = sum(kernel.price.us * kernel.rounds for kernel in kernels)
            if is_counted and not outside and launching < LAUNCHING * takes:
                continue
            numbers = {
                "name": loop.name,
                "iterations": count(times) if is_counted else "an unknown number of",
                "kernels": counted(len(kernels), "kernel"),
                "runs": f", and runs {count(runs)} times" if runs > 1 else "",
                "host": f"; `{outside[0]}` waits for the host in each" if outside else "",
            }
            calls = sum(is_left_to_library(kernel.instruction) for kernel in kernels)
            places.append((takes, (loop, numbers, launching, calls, bool(outside))))
    tried = {loop for loop, *_ in program.worth_trying("LNT105", places)}
    for _, (loop, numbers, launching, calls, asks_host) in places:
        rounds, saved = _unrolled(loop, program) if loop in tried and not asks_host else (0, 0.0)
        more = f"`unroll={rounds}` joins the kernels of {rounds} iterations; " if saved > 0 else ""
        if asks_host:
            more = "call the host once for all iterations, before or after the loop; "
        elif calls and not saved and loop in tried:
            more = f"do more in each: {counted(calls, 'library call')} in it cannot be joined with other kernels; "
        line = line_within(program.fused, loop)
        yield Finding("LNT105", {**numbers, "more": more}, line, loop.name, saved or launching, saves=saved > 0)


UNROLLED = 4
"""Rounds of a long loop that are tried as one."""
AT_ONCE = 8
"""The most rounds that are tried without a loop."""


def _unrolled(loop: Instruction, program: FusedProgram) -> tuple[int, float]:
    """How many rounds of a loop to join, and the microseconds that it saves; 0 where it saves nothing."""
    copy = program.copy_with(loop)
    if copy is None or (rounds := UnrolledLoop.of(copy[1])) is None:
        return 0, 0.0
    module, own = copy
    number = rounds.count.rounds if rounds.count.rounds <= AT_ONCE else UNROLLED
    operations = sum(map(launches, own.called_by("body").instructions))
    if number * operations > MOST_OPERATIONS:
        return 0, 0.0
    rounds.join(number)
    remove_uncalled(module)
    return number, max(0.0, program.saved(module) or 0.0)


def too_small(program: FusedProgram) -> Iterator[Finding]:
    """A program of which launching is most, also beside the copies of its inputs."""
    copies = copied_inputs(program.schedule)
    total = program.summary.est_us + sum(one.us(program) for one in copies)
    launching = sum(kernel.price.launch * kernel.rounds for kernel in program.kernels)
    launching += len(copies) * program.target.kernel_launch_us
    if not total or launching < SMALL * total:
        return
    numbers = {
        "share": f"{100 * launching / total:.0f} %",
        "total": microseconds(total),
        "launches": counted(program.summary.launches + len(copies), "launch", "launches"),
    }
    dearest = max(program.kernels, key=lambda k: k.price.us * k.rounds)
    yield Finding("LNT111", numbers, program.source(dearest), program.original.name, launching)


def recompiled(modules: Sequence[Module]) -> Iterator[Finding]:
    """Modules of a folder that are one program for other sizes."""
    families: defaultdict[tuple[object, ...], list[Module]] = defaultdict(list)
    for module in modules:
        families[_form(module)].append(module)
    for family in families.values():
        shapes = {tuple(str(p.shape.without_layout()) for p in m.entry.parameters): m for m in family}
        if len(shapes) < 2:
            continue
        first = family[0]
        signatures = [", ".join(shape) for shape in shapes]
        numbers = {
            "name": first.name,
            "count": count(len(shapes)),
            "shapes": "; ".join(text[:80] for text in signatures[:3]),
        }
        source = next((line for i in first.entry.instructions if (line := source_location(first, i))), "")
        yield Finding("LNT110", numbers, source, first.name)


def _form(module: Module) -> tuple[object, ...]:
    """What a module is without its sizes: the operations in their order, with types and ranks."""
    return tuple(
        (i.opcode, *((leaf.type.name, len(leaf.dimensions)) for leaf in i.shape.leaves() if leaf.is_array))
        for c in module.computations
        for i in c.instructions
    )
