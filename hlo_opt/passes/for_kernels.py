"""The passes that backends run before they plan kernels. They run modules that nothing has simplified, too."""

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
from hlo_opt.passes.products_apart import ProductsApart
from hlo_opt.passes.reductions_apart import ReductionsApart
from hlo_opt.passes.repeats_apart import RepeatsApart

EXPANSIONS: tuple[Expansion, ...] = (DynamicPadder(), ConditionalToSelect(), BatchNormExpander())


IN_LANES: tuple[Expansion, ...] = (ProductsApart(), RepeatsApart(), ReductionsApart(), OddFunctions())
"""Passes before `EXPANSIONS` for a processor that runs threads as lanes."""


def expanded(module: Module, target: DeviceTarget, passes: tuple[Expansion, ...] = EXPANSIONS) -> Module:
    """The module itself if the passes change nothing, else a changed copy."""
    for expansion in passes:
        if expansion.concerns(module):
            copy = edit.clone_module(module)
            if expansion.run(copy, PassContext(FuseOptions(target))):
                module = copy
    return module
