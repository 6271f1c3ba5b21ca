"""Which kernel holds which instruction, and whether instructions that somebody expects in one kernel are:
`check --expect-fused`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from hlo_opt.analysis.properties import inside
from hlo_opt.diag import CheckError, UsageError, did_you_mean
from hlo_opt.fusion.decision import FusionDecision
from hlo_opt.ir import Instruction, Module
from hlo_opt.ir.walk import executed_computations
from hlo_opt.ops.sets import launches
from hlo_opt.passes import ExplainReport
from hlo_opt.report.gone import where_it_went
from hlo_opt.report.page import Page
from hlo_opt.report.sentences import advice, sentence

APART = "HLO713"


def members_of_kernels(module: Module) -> Iterator[tuple[Instruction, Instruction]]:
    """Each kernel with each instruction that it holds, itself among them."""
    for computation in executed_computations(module):
        for kernel in computation.instructions:
            if not launches(kernel):
                continue
            yield kernel, kernel
            body = inside(kernel)
            todo = [] if body is None else list(body.instructions)
            while todo:
                member = todo.pop()
                yield kernel, member
                within = inside(member)
                todo += [] if within is None else within.instructions


def expected(texts: Sequence[str]) -> list[list[str]]:
    """Names that belong in one kernel, from texts `A,B`. Raises UsageError for less than two."""
    groups = [[name.strip().lstrip("%") for name in text.split(",")] for text in texts]
    for text, group in zip(texts, groups, strict=True):
        if len(group) < 2 or not all(group):
            raise UsageError(f"--expect-fused takes two instructions or more, A,B, not {text!r}")
    return groups


def apart(report: ExplainReport, group: Sequence[str]) -> CheckError | None:
    """An error where no kernel of the result holds all of these instructions, with what refuses the first two of them
    that are apart. Raises UsageError, naming the nearest, for one that the module does not have."""
    origins, module = report.outcome.context.origins, report.outcome.original
    known = {i.name for c in module.computations for i in c.instructions}
    for name in group:
        if name not in known:
            filename = None if module.source is None else module.source.filename
            hint = did_you_mean(name, known) or "--expect-fused takes names of instructions of FILE, A,B"
            raise UsageError(f"there is no instruction {name!r}", hint=hint, filename=filename)
    kernels: dict[str, set[str]] = defaultdict(set)
    for kernel, member in members_of_kernels(report.outcome.module):
        kernels[origins.get(member, member.name)].add(kernel.name)
    if set.intersection(*(kernels[name] for name in group)):
        return None
    filename = None if module.source is None else module.source.filename
    gone = next((name for name in group if not kernels[name]), None)
    if gone is not None:
        message = where_it_went(report, [gone])[gone]
        return CheckError(
            message, code=APART, filename=filename, hint="--simplify never keeps instructions as they are"
        )
    first, second = _pair(group, kernels)
    homes = " and ".join(f"`{name}` in `{min(kernels[name])}`" for name in (first, second))
    decision = _between(report, kernels[first], kernels[second])
    why = "they do not read each other, directly or through one value" if decision is None else sentence(decision)
    hint = (
        advice(decision) if decision is not None else f"`hlo-opt explain FILE {first} {second}` shows the edges of both"
    )
    return CheckError(
        f"{first} and {second} are not in one kernel, {homes}: {why}", code=APART, filename=filename, hint=hint
    )


def together_page(groups: Sequence[Sequence[str]]) -> Page:
    """The page that says which instructions share a kernel, as expected."""
    page = Page()
    for group in groups:
        page.add("one kernel: ", ", ".join(group))
    return page


def _pair(group: Sequence[str], kernels: dict[str, set[str]]) -> tuple[str, str]:
    """Two that are apart, those next to each other first."""
    pairs = [(a, b) for n, a in enumerate(group) for b in group[n + 1 :] if not kernels[a] & kernels[b]]
    return min(pairs, key=lambda pair: group.index(pair[1]) - group.index(pair[0]), default=(group[0], group[-1]))


def _between(report: ExplainReport, above: set[str], below: set[str]) -> FusionDecision | None:
    """What was decided between kernels, on an edge that one reads first."""
    refusals = [
        d
        for d in report.refused
        if (d.producer_kernel in above and d.consumer_kernel in below)
        or (d.producer_kernel in below and d.consumer_kernel in above)
    ]
    return min(refusals, key=lambda d: (d.relation == "sibling", d.relation == "across", len(d.cause)), default=None)
