"""Modules whose sizes kernels cannot know: the interpreter alone runs them."""

from __future__ import annotations

from hlo_opt.diag import BackendError
from hlo_opt.ir import Instruction, Module
from hlo_opt.passes.dynamic_padder import unknown


def of_any_size(module: Module) -> Instruction | None:
    """The first instruction whose size is open: of no bound, or an operation on sizes in use that kernels would take
    for their bounds."""
    every = (i for computation in module.computations for i in computation.instructions)
    unbounded = next((i for i in every if any(s < 0 for leaf in i.shape.leaves() for s in leaf.dimensions)), None)
    return unknown(module) if unbounded is None else unbounded


def refuse_open_sizes(module: Module, who: str) -> None:
    """Raises BackendError (HLO514) for a module with an open size; `who` has the kernels."""
    open_one = of_any_size(module)
    if open_one is not None:
        raise BackendError(
            f"{who}: {open_one.name} is {open_one.shape.without_layout()}, and kernels are built for sizes "
            f"that are known",
            code="HLO514",
            span=module.span(open_one),
            hint="choose --backend numpy",
        )
