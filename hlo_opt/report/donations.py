"""What becomes of the inputs that a module's header gives away (`input_output_alias`): whether the result is made in
the input's memory; and where fusing is why it is not, which edge to keep apart."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hlo_opt.analysis.properties import inside
from hlo_opt.diag import EvaluationError, HloOptError
from hlo_opt.fusion.decision import FusionDecision
from hlo_opt.ir import Instruction, Module
from hlo_opt.ops.sets import is_view, tuple_elements, tuple_index
from hlo_opt.passes import ExplainReport
from hlo_opt.report.again import prepared, run_again, summary_of
from hlo_opt.report.page import LEAST, microseconds
from hlo_opt.runtime.schedule import EmittedKernels, Schedule, build_schedule
from hlo_opt.runtime.schedule.lifetimes import buffer_bytes, lifetimes
from hlo_opt.text.aliases import aliased_leaves

LEAST_SHARE = 0.005
"""The share of all inputs' bytes below which a donation is not worth a word."""

MOST_TRIED = 8
"""Edges that are kept apart for a try, in all: each try fuses the module again."""


@dataclass(frozen=True)
class Donation:
    """An array of a parameter that is given away.

    parameter    the parameter, or the tuple that holds the array
    leaf         the number of the array among all inputs
    result       the number of the array among all results whose memory it may be
    bytes        the array's size
    is_honoured  whether the result is made in the array's memory
    why          where it is not: why, in words
    """

    parameter: Instruction
    leaf: int
    result: int
    bytes: int
    is_honoured: bool
    why: str = ""


@dataclass(frozen=True)
class KeptApart:
    """An edge that, kept apart, lets a result use the memory of its input, and the microseconds that this costs."""

    edge: tuple[str, str]
    us: float

    def __str__(self) -> str:
        costs = f"for {microseconds(self.us)} more" if self.us >= LEAST else "at no cost"
        return f"--forbid {':'.join(self.edge)} keeps the donation, {costs}"


def donations(module: Module, schedule: Schedule) -> list[Donation]:
    """The donations of a module, in the order of its inputs. `schedule`: the module's program."""
    entry = schedule.entry
    root = lifetimes(entry.ops, entry.shapes).root
    parameters = [p for p in module.entry.parameters for _ in p.shape.leaves()]
    donated, apart = [], dict(entry.apart)
    for leaf, result in sorted(aliased_leaves(module).items()):
        source, target = entry.inputs[leaf], entry.results[result]
        size, is_honoured = buffer_bytes(entry.shapes[source]), root[source] == root[target]
        why = "" if is_honoured else apart[leaf]
        donated.append(Donation(parameters[leaf], leaf, result, size, is_honoured, why))
    return donated


def not_honoured(report: ExplainReport, emitted: EmittedKernels | None = None) -> list[Donation]:
    """The donations of the fused module that no result uses, the largest first, without the smallest; none of a module
    that has no program. `emitted`, here and below: kernels of the run's modules that are known (`build_schedule`)."""
    outcome = report.outcome
    if not aliased_leaves(outcome.module):
        return []
    every = _donations_of(outcome.module, report, emitted)
    inputs = sum(s.byte_size for p in outcome.module.entry.parameters for s in p.shape.leaves() if s.is_array)
    left = [one for one in every if not one.is_honoured and one.bytes >= LEAST_SHARE * inputs]
    return sorted(left, key=lambda one: -one.bytes)


def lost_by_fusing(
    report: ExplainReport, left: Sequence[Donation], emitted: EmittedKernels | None = None
) -> list[Donation]:
    """Those of these donations that the program would honour if each of its operations ran alone."""
    if not left:
        return []
    honoured = _honoured(report.outcome.original, report, emitted)
    return [one for one in left if one.leaf in honoured]


def kept_apart(
    report: ExplainReport, lost: Sequence[Donation], emitted: EmittedKernels | None = None
) -> dict[int, KeptApart]:
    """For each of these donations that fusing lost, by the number of its array, the edge that keeps it at least cost;
    none where no edge that was tried does. Each is tried: the passes run again without the edge."""
    if not lost:
        return {}
    module, honoured = prepared(report), _honoured(report.outcome.module, report, emitted)
    us = summary_of(run_again(report, module)).est_us
    best: dict[int, KeptApart] = {}
    tried: set[tuple[str, str]] = set()
    share = max(1, MOST_TRIED // len(lost))
    for one in lost:
        for edge in [d.edge for d in _around(report, one) if d.edge not in tried][:share]:
            if len(tried) == MOST_TRIED:
                return best
            tried.add(edge)
            try:
                outcome = run_again(report, module, [edge])
            except HloOptError:
                continue
            now = _honoured(outcome.module, report, emitted)
            cost = summary_of(outcome).est_us - us
            for other in lost if honoured < now else ():
                known = best.get(other.leaf)
                if other.leaf in now and (known is None or cost < known.us):
                    best[other.leaf] = KeptApart(edge, cost)
    return best


def _honoured(module: Module, report: ExplainReport, emitted: EmittedKernels | None) -> set[int]:
    return {one.leaf for one in _donations_of(module, report, emitted) if one.is_honoured}


def _donations_of(module: Module, report: ExplainReport, emitted: EmittedKernels | None) -> list[Donation]:
    """The donations of the module before or after fusing; none where it has no program: what cannot run has no
    memory."""
    try:
        return donations(module, build_schedule(module, report.outcome.target, emitted))
    except EvaluationError:
        return []


def _around(report: ExplainReport, lost: Donation) -> Iterator[FusionDecision]:
    """The fused edges at the operation that makes the result, then those at the operations that read the input."""
    origins = report.outcome.context.origins
    maker = made_by(report.outcome.module.entry.root, lost.result)
    names = [] if maker is None else [origins.get(maker, maker.name)]
    entry = report.outcome.module.entry
    parameter = next(p for p in entry.parameters if p.parameter_number == lost.parameter.parameter_number)
    names += [origins.get(i, i.name) for i in _readers(parameter)]
    fused = [d for d in report.fused if d.relation == "operand"]
    for name in dict.fromkeys(names):
        yield from (d for d in fused if d.producer == name)
        yield from (d for d in fused if d.consumer == name)


def made_by(value: Instruction, number: int) -> Instruction | None:
    """The operation inside a kernel that makes an array of a value; None where a loop, a branch or nothing does."""
    while True:
        elements, index, body = tuple_elements(value), tuple_index(value), inside(value)
        if elements is not None:
            for element in elements:
                leaves = len(list(element.shape.leaves()))
                if number < leaves:
                    value = element
                    break
                number -= leaves
        elif index is not None:
            (value,) = value.operands
            number += sum(len(list(e.leaves())) for e in (value.shape.elements or ())[:index])
        elif body is not None:
            value = body.root
        elif is_view(value.opcode):
            value = value.operands[0]
        else:
            return value if value.operands and value.shape.is_array else None


def _readers(value: Instruction) -> list[Instruction]:
    """The operations that read a value, those inside kernels."""
    readers: list[Instruction] = []
    todo = [value]
    while todo:
        read = todo.pop()
        for user in dict.fromkeys(read.users):
            body = inside(user)
            if body is None:
                readers.append(user)
            else:
                todo += [p for p, o in zip(body.parameters, user.operands, strict=True) if o is read]
    return readers
