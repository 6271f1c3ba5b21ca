"""The simplify stage alone, and its certificate checked."""

from __future__ import annotations

from hlo_opt.analysis.targets import DEFAULT_TARGET, DeviceTarget
from hlo_opt.fusion.context import PassContext
from hlo_opt.fusion.preparation import prepare
from hlo_opt.fusion.proof import prove_same_graph
from hlo_opt.ir import Module, edit
from hlo_opt.passes.algebraic_simplifier import replayed
from hlo_opt.passes.pipeline import Pipeline, parse_pipeline
from hlo_opt.passes.run import Outcome, run
from hlo_opt.passes.table import SIMPLIFY_RAW


def stage(*, fast_math: bool = False) -> Pipeline:
    """The passes of the stage."""
    options = {"algebraic-simplifier": {"fast_math": fast_math}}
    return parse_pipeline(SIMPLIFY_RAW, options, override=True)


def simplified(module: Module, target: str | DeviceTarget = DEFAULT_TARGET, *, fast_math: bool = False) -> Outcome:
    """The outcome of the stage on a copy of the module."""
    return run(module, passes=stage(fast_math=fast_math), target=target, simplify="never")


def check_certificate(outcome: Outcome) -> int:
    """Do each rewrite of an outcome of `simplified` again, by rule and place, and prove that it gives the same graph.
    Returns how many there were. Raises ProofError."""
    work = edit.clone_module(outcome.original)
    prepare(work)
    replayed(outcome.pipeline, outcome.context.simplified).run(work, PassContext(outcome.context.options))
    edit.sort_computations(work)
    edit.restore_names(work)
    prove_same_graph(work, outcome.module)
    return sum(map(len, outcome.context.simplified))
