"""Rules about how a program runs: loops that launch, memory that is not given back, programs that are too small, shapes
that are compiled again and again."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from hlo_opt.analysis.graph.inlining import remove_uncalled
from hlo_opt.fusion.proof import prove_same_graph
from hlo_opt.ir import Computation, Instruction, Module, edit
from hlo_opt.ir.walk import executed_computations
from hlo_opt.ops.sets import calls_outside, launches, looped
from hlo_opt.passes.loops.while_unroll import MOST_OPERATIONS, UnrolledLoop
from hlo_opt.plans.choose import is_left_to_library
from hlo_opt.report.donating import donation_of
from hlo_opt.report.donations import Donation, KeptApart, kept_apart, lost_by_fusing, made_by, not_honoured
from hlo_opt.report.lint.base import Finding, FusedProgram
from hlo_opt.report.page import count, counted, microseconds, size
from hlo_opt.report.view.kernels import DrawnKernel
from hlo_opt.runtime.schedule import Schedule, build_schedule
from hlo_opt.runtime.schedule.lifetimes import buffer_bytes, lifetimes
from hlo_opt.runtime.schedule.ops import Copy, LoopOp
from hlo_opt.text.aliases import give_away
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
    places: list[tuple[float, tuple[Instruction, dict[str, str], float, int]]] = []
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
            places.append((takes, (loop, numbers, launching, calls)))
    tried = {loop for loop, *_ in program.worth_trying("LNT105", places)}
    for _, (loop, numbers, launching, calls) in places:
        rounds, saved = _unrolled(loop, program) if loop in tried else (0, 0.0)
        more = f"`unroll={rounds}` joins the kernels of {rounds} iterations; " if saved > 0 else ""
        if calls and not saved and loop in tried:
            more = f"do more in each: {counted(calls, 'library call')} in it cannot be joined with other kernels; "
        line = _line_of_loop(program.fused, loop)
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


def _line_of_loop(module: Module, loop: Instruction) -> str:
    body = looped(loop)
    inside = () if body is None else body.instructions
    return next((line for i in (loop, *inside) if (line := source_location(module, i))), "")


def too_small(program: FusedProgram) -> Iterator[Finding]:
    """A program of which launching is most."""
    total = program.summary.est_us
    launching = sum(kernel.price.launch * kernel.rounds for kernel in program.kernels)
    if not total or launching < SMALL * total:
        return
    numbers = {
        "share": f"{100 * launching / total:.0f} %",
        "total": microseconds(total),
        "launches": counted(program.summary.launches, "launch", "launches"),
    }
    dearest = max(program.kernels, key=lambda k: k.price.us * k.rounds)
    yield Finding("LNT111", numbers, program.source(dearest), program.original.name, launching)


@dataclass(frozen=True)
class _Missed:
    """An input, by number, that is copied because it must stay, and the result that is made in the copy."""

    leaf: int
    result: int
    instruction: Instruction
    bytes: int


def missed_donations(program: FusedProgram) -> Iterator[Finding]:
    """An input that is copied before it is updated, because the caller may still want it. With the input given away, in
    a copy of the module, the copy is not made any more."""
    schedule = build_schedule(program.fused, program.target, program.emitted)
    missed = _copied(schedule)
    if not missed:
        return
    donated = edit.clone_module(program.fused)
    give_away(donated, ((m.leaf, m.result) for m in missed))
    left = {(m.leaf, m.result) for m in _copied(build_schedule(donated, program.target, program.emitted))}
    bare = edit.clone_module(donated)
    edit.take_header(bare, program.fused)
    prove_same_graph(program.fused, bare)
    entry = program.fused.entry
    names = [p for p in entry.parameters for _ in p.shape.leaves()]
    for one in missed:
        if (one.leaf, one.result) in left:
            continue
        parameter = names[one.leaf]
        numbers = {
            "name": parameter.name,
            "number": str(parameter.parameter_number),
            "size": size(one.bytes),
            "result": str(one.result),
            "donation": donation_of([parameter]),
        }
        source = source_location(program.fused, one.instruction) or source_location(program.fused, parameter)
        us = program.copying(2 * one.bytes) + program.target.kernel_launch_us
        rewrite = "with input_output_alias for it the copy is gone; but for the header the graph is the same (proved)"
        yield Finding(
            "LNT108",
            numbers,
            source,
            parameter.name,
            us,
            saves=True,
            is_apart=True,
            bytes=one.bytes,
            rewrite=rewrite,
        )


def lost_donations(program: FusedProgram) -> Iterator[Finding]:
    """An input that is given away, but whose memory no result uses. Where fusing is why, edges around the result are
    kept apart, one at a time, in a copy of the module."""
    left = not_honoured(program.report, program.emitted)
    lost = lost_by_fusing(program.report, left, program.emitted)
    kept = kept_apart(program.report, lost, program.emitted)
    for one in left:
        numbers = {
            "name": one.parameter.name,
            "number": str(one.parameter.parameter_number),
            "size": size(one.bytes),
            "result": str(one.result),
            "why": one.why,
            "change": _change_of(one, one in lost, kept.get(one.leaf)),
        }
        maker = made_by(program.fused.entry.root, one.result)
        lines = [source_location(program.fused, i) for i in (maker, one.parameter) if i is not None]
        source = next(filter(None, lines), "")
        yield Finding("LNT112", numbers, source, one.parameter.name, bytes=one.bytes)


def _change_of(one: Donation, is_lost: bool, kept: KeptApart | None) -> str:
    if kept is not None:
        return str(kept)
    if is_lost:
        return "only where memory is short: fusing is why, and no edge that was tried apart brings it back"
    return "make each element of the result from the same element of the input, or do not donate it"


def _copied(schedule: Schedule) -> list[_Missed]:
    """The inputs of the entry that are copied to be updated into a result."""
    entry = schedule.entry
    root = lifetimes(entry.ops, entry.shapes).root
    numbers = {root[b]: k for k, b in enumerate(entry.inputs)}
    results = {root[b]: r for r, b in enumerate(entry.results)}
    missed: list[_Missed] = []
    for op in entry.ops:
        pairs: Iterable[tuple[int, int]] = ()
        if isinstance(op, Copy):
            pairs = zip(op.inputs, op.outputs, strict=True)
        elif isinstance(op, LoopOp):
            pairs = ((op.inputs[k], op.outputs[k]) for k in op.copied)
        for source, copy in pairs:
            leaf, result = numbers.get(root[source]), results.get(root[copy])
            if leaf is not None and result is not None:
                missed.append(_Missed(leaf, result, op.instruction, buffer_bytes(entry.shapes[source])))
    return missed


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
