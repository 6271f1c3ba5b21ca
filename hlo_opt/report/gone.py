"""Which pass took an instruction of the input away, and by which rule."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from hlo_opt.analysis.properties import effectful_computations, has_side_effect
from hlo_opt.fusion.context import PassContext
from hlo_opt.ir import Computation, Instruction, Module
from hlo_opt.ir.walk import operands_first
from hlo_opt.passes import ExplainReport
from hlo_opt.passes.algebraic_simplifier import AlgebraicSimplifier
from hlo_opt.passes.base import Pass
from hlo_opt.passes.run import run_again


def where_it_went(report: ExplainReport, names: Collection[str]) -> dict[str, str]:
    """What to say of instructions that no kernel of the result holds, by their names: the passes run once more, and
    after each it is asked what is left."""
    if not names:
        return {}
    context = PassContext(report.outcome.context.options)
    taken: dict[str, str] = {}

    def note(step: Pass, module: Module, changed: bool) -> None:
        if changed:
            left = {context.origins.get(i, i.name) for i in _needed(module)}
            taken.update({name: step.name for name in names if name not in left and name not in taken})

    run_again(report.outcome, context, note)
    rules = {r.instruction: r.rule for steps in context.simplified for r in steps}
    original = report.outcome.original
    given = {i.name: i for c in original.computations for i in c.instructions}
    unread = given.keys() - {i.name for i in _needed(original)}
    return {name: _sentence(given[name], "" if name in unread else taken.get(name), rules) for name in names}


def _needed(module: Module) -> Iterator[Instruction]:
    """What the results need, or of what acts: a pass that leaves an instruction unread takes it away, and
    `dce` only clears up."""
    acting = effectful_computations(list(module.computations))
    for computation in module.computations:
        roots = [i for i in computation.instructions if i.is_root or has_side_effect(i) or _calls(i, acting)]
        yield from operands_first(roots)


def _calls(instruction: Instruction, computations: Collection[Computation]) -> bool:
    return any(called in computations for called in instruction.called())


def _sentence(gone: Instruction, step: str | None, rules: Mapping[str, str]) -> str:
    rewritten = next((i.name for i in (gone, *gone.users) if i.name in rules), None)
    if step is None:
        why = "it launches nothing"
    elif not step:
        why = "no result needs it"
    elif step != AlgebraicSimplifier.name or rewritten is None:
        why = f"`{step}` took it away"
    elif rewritten == gone.name:
        why = f"`{step}` rewrote it by the rule `{rules[rewritten]}`"
    else:
        why = f"`{step}` took it away when it rewrote `{rewritten}` by the rule `{rules[rewritten]}`"
    return f"`{gone.name}` is in no kernel of the result: {why}"
