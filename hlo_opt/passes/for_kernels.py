"""What backends rewrite before they look for kernels. Pipelines do not run these passes: what `fuse` prints keeps the
operations that the user wrote."""

from __future__ import annotations

from hlo_opt.analysis.targets import DeviceTarget
from hlo_opt.fusion.context import FuseOptions
from hlo_opt.ir import Module, edit
from hlo_opt.passes.base import PassContext
from hlo_opt.passes.batch_norm_expander import BatchNormExpander
from hlo_opt.passes.conditional_to_select import ConditionalToSelect
from hlo_opt.passes.dynamic_padder import DynamicPadder
from hlo_opt.passes.expansion import Expansion
from hlo_opt.passes.odd_functions import OddFunctions

EXPANSIONS: tuple[Expansion, ...] = (DynamicPadder(), ConditionalToSelect(), BatchNormExpander())


IN_LANES: tuple[Expansion, ...] = (OddFunctions(),)
"""Before `EXPANSIONS`, where a processor plays threads as lanes."""


def expanded(module: Module, target: DeviceTarget, passes: tuple[Expansion, ...] = EXPANSIONS) -> Module:
    """The module itself where the passes find nothing to do, else a copy that they have rewritten."""
    for expansion in passes:
        if expansion.concerns(module):
            copy = edit.clone_module(module)
            if expansion.run(copy, PassContext(FuseOptions(target))):
                module = copy
    return module
