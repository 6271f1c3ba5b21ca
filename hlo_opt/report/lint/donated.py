"""Rules about memory that a program does not give back: inputs that are copied or held beside the results that replace
them, and donations that no result uses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from hlo_opt.fusion.proof import prove_same_graph
from hlo_opt.ir import Instruction, Module, Shape, edit
from hlo_opt.ops.sets import looped, tuple_elements, tuple_index
from hlo_opt.ops.updates import updated
from hlo_opt.report.donating import donation_of
from hlo_opt.report.donations import Donation, KeptApart, kept_apart, lost_by_fusing, made_by, not_honoured
from hlo_opt.report.lint.base import Finding, FusedProgram, line_within
from hlo_opt.report.memory.timeline import moment_of
from hlo_opt.report.page import count, size
from hlo_opt.runtime.schedule import Schedule, build_schedule
from hlo_opt.runtime.schedule.lifetimes import buffer_bytes, lifetimes
from hlo_opt.runtime.schedule.ops import Copy, LoopOp
from hlo_opt.text.aliases import aliased_leaves, give_away
from hlo_opt.text.frames import source_location


@dataclass(frozen=True)
class CopiedInput:
    """An input, by number, that is copied because it must stay, and the result that is made in the copy."""

    leaf: int
    result: int
    instruction: Instruction
    bytes: int

    def us(self, program: FusedProgram) -> float:
        """Microseconds that the copy takes."""
        return program.copying(2 * self.bytes) + program.target.kernel_launch_us


def missed_donations(program: FusedProgram) -> Iterator[Finding]:
    """An input that is copied before it is updated, because the caller may still want it. With the input given away, in
    a copy of the module, the copy is not made any more."""
    missed = copied_inputs(program.schedule)
    if not missed:
        return
    donated = _given_away(program.fused, [(m.leaf, m.result) for m in missed])
    left = {(m.leaf, m.result) for m in copied_inputs(build_schedule(donated, program.target, program.emitted))}
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
        source = _line_of(program.fused, (made_by(entry.root, one.result), one.instruction, parameter))
        us = one.us(program)
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
        root = program.fused.entry.root
        source = _line_of(program.fused, (made_by(root, one.result), _launched_for(root, one.result), one.parameter))
        yield Finding("LNT112", numbers, source, one.parameter.name, bytes=one.bytes)


def _launched_for(root: Instruction, result: int) -> Instruction:
    """The instruction of the entry that a result comes from, such as a loop in a kernel."""
    values = [element for element in tuple_elements(root) or (root,) for _ in element.shape.leaves()]
    value = values[result]
    return value if tuple_index(value) is None else value.operands[0]


def _line_of(module: Module, instructions: Iterable[Instruction | None]) -> str:
    """The Python line of the first instruction that has one; "" if none has."""
    return next(filter(None, (line_within(module, i) for i in instructions if i is not None)), "")


def _change_of(one: Donation, is_lost: bool, kept: KeptApart | None) -> str:
    if kept is not None:
        return str(kept)
    if is_lost:
        return "none, unless memory is short: fusing is why, and no edge that was tried apart brings it back"
    return "make each element of the result from the same element of the input, or do not donate it"


def copied_inputs(schedule: Schedule) -> list[CopiedInput]:
    """The inputs of the entry that are copied to be updated into a result."""
    entry = schedule.entry
    root = lifetimes(entry.ops, entry.shapes).root
    numbers = {root[b]: k for k, b in enumerate(entry.inputs)}
    results = {root[b]: r for r, b in enumerate(entry.results)}
    missed: list[CopiedInput] = []
    for op in entry.ops:
        pairs: Iterable[tuple[int, int]] = ()
        if isinstance(op, Copy):
            pairs = zip(op.inputs, op.outputs, strict=True)
        elif isinstance(op, LoopOp):
            pairs = ((op.inputs[k], op.outputs[k]) for k in op.copied)
        for source, copy in pairs:
            leaf, result = numbers.get(root[source]), results.get(root[copy])
            if leaf is not None and result is not None:
                missed.append(CopiedInput(leaf, result, op.instruction, buffer_bytes(entry.shapes[source])))
    return missed


def _given_away(module: Module, pairs: Iterable[tuple[int, int]]) -> Module:
    """A copy of the module whose header gives inputs away, as pairs of `aliased_leaves`. Raises FusionError unless the
    rest is the same graph."""
    donated = edit.clone_module(module)
    give_away(donated, pairs)
    bare = edit.clone_module(donated)
    edit.take_header(bare, module)
    prove_same_graph(module, bare)
    return donated


HELD = 0.1
"""The share of the peak that donations must save to be told."""

LEAST_HELD = 1_000_000
"""Bytes below which they are not told."""

LEAST_UPDATED = 2
"""The fewest inputs that make a state: a single one that a result adds to may as well be an activation."""


def states_held_twice(program: FusedProgram) -> Iterator[Finding]:
    """Inputs that results replace, as a training step replaces weights and moments, and that are held beside them. The
    peak without them is that of a copy of the module in which they are given away."""
    copied = {(one.leaf, one.result) for one in copied_inputs(program.schedule)}
    pairs = [pair for pair in _updates(program.prepared) if pair not in copied]
    if len(pairs) < LEAST_UPDATED:
        return
    donated = build_schedule(_given_away(program.fused, pairs), program.target, program.emitted)
    now, less = moment_of(program.schedule).bytes, moment_of(donated).bytes
    if now - less < max(LEAST_HELD, HELD * now):
        return
    leaves = [(p, shape) for p in program.fused.entry.parameters for shape in p.shape.leaves()]
    sizes = [buffer_bytes(leaves[leaf][1]) for leaf, _ in pairs]
    entry = program.fused.entry
    makers = (made_by(entry.root, result) for _, result in pairs)
    lines = [source_location(program.fused, maker) for maker in makers if maker is not None]
    lines += [line_within(program.fused, i) for i in entry.instructions if looped(i) is not None]
    numbers = {
        "count": count(len(pairs)),
        "size": size(sum(sizes)),
        "peak": size(now),
        "less": size(less),
        "donation": donation_of(list(dict.fromkeys(leaves[leaf][0] for leaf, _ in pairs))),
    }
    rewrite = "with input_output_alias for them, and but for the header, the graph is the same (proved)"
    name = leaves[pairs[sizes.index(max(sizes))][0]][0].name
    yield Finding("LNT113", numbers, next(filter(None, lines), ""), name, bytes=now - less, rewrite=rewrite)


def _updates(module: Module) -> list[tuple[int, int]]:
    """Inputs, each with the result of its shape that replaces it: the input plus or minus something, or what a loop
    makes of it. Pairs as of `aliased_leaves`, without those."""
    donated = aliased_leaves(module)
    first, leaves = dict[Instruction, int](), list[Shape]()
    for parameter in module.entry.parameters:
        first[parameter] = len(leaves)
        leaves += parameter.shape.leaves()
    taken, pairs = set(donated), list[tuple[int, int]]()
    for result, shape in enumerate(module.entry.root.shape.leaves()):
        if result in donated.values() or not shape.is_array:
            continue
        found = (first[parameter] + number for parameter, number in updated(module.entry.root, result))
        fitting = [leaf for leaf in found if leaf not in taken and leaves[leaf].same_bytes(shape)]
        if fitting:
            # a state's arrays are returned in the order in which they came: a new moment is moment plus gradient
            before = pairs[-1][0] - pairs[-1][1] if pairs else None
            leaf = next((leaf for leaf in fitting if leaf - result == before), fitting[0])
            taken.add(leaf)
            pairs.append((leaf, result))
    return pairs
