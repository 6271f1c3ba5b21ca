"""The first stage, before the passes of a preset or of the user: it inlines calls, merges equal values and simplifies
raw modules."""

from __future__ import annotations

from hlo_opt.diag import UsageError, did_you_mean
from hlo_opt.ir import Module
from hlo_opt.ops.sets import CALLS_OR_VIEWS
from hlo_opt.passes.base import Pass
from hlo_opt.passes.pipeline import Pipeline, parse_pipeline
from hlo_opt.passes.table import SIMPLIFY, SIMPLIFY_RAW

SIMPLIFY_MODES = ("auto", "always", "never")


def first_stage(module: Module, simplify: str, *, own_passes: bool) -> Pipeline:
    """The passes that run first.

    never   none, and a preset does without its own passes that simplify (`without_simplifying`)
    always  those of `SIMPLIFY_RAW`
    auto    before a preset those of `SIMPLIFY_RAW` where the module is raw; else those of `SIMPLIFY`: the
            user's own passes get the module nearly as it was written

    Raises UsageError for another word.
    """
    if simplify not in SIMPLIFY_MODES:
        hint = did_you_mean(simplify, SIMPLIFY_MODES)
        raise UsageError(f"simplify must be auto, always or never, not {simplify!r}", hint=hint)
    if simplify == "never":
        return Pipeline(())
    whole = simplify == "always" or (not own_passes and is_raw(module))
    return parse_pipeline(SIMPLIFY_RAW if whole else SIMPLIFY)


def without_simplifying(pipeline: Pipeline) -> Pipeline:
    """A pipeline without the passes at its top level that simplify: the graph is fused as it is."""
    return Pipeline(tuple(s for s in pipeline.steps if not (isinstance(s, Pass) and s.simplifies)))


def is_raw(module: Module) -> bool:
    """Whether nothing has simplified a module yet: it has no fusion and no bitcast. Frameworks write none; XLA does,
    once it has simplified a module and assigned layouts."""
    return not any(i.opcode in CALLS_OR_VIEWS for c in module.computations for i in c.instructions)
