"""The table of passes, with the place of each class, and the table of presets, which are named pipelines.

Classes are imported on first use. Plugins add passes through entry points of the group `hlo_opt.passes`: the entry
point's name is the pass's, its object the class.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import re
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from types import MappingProxyType
from typing import Any

from hlo_opt.diag import UsageError, did_you_mean
from hlo_opt.diag.plugins import PASSES as GROUP
from hlo_opt.diag.plugins import Plugin, plugins
from hlo_opt.passes.base import Pass

_TABLE: dict[str, str] = {
    "algebraic-simplifier": "hlo_opt.passes.algebraic_simplifier:AlgebraicSimplifier",
    "attention-fusion": "hlo_opt.passes.attention_fusion:AttentionFusion",
    "batch-norm-expander": "hlo_opt.passes.batch_norm_expander:BatchNormExpander",
    "bitcast-hoisting": "hlo_opt.passes.bitcast_hoisting:BitcastHoisting",
    "bitcast-movement": "hlo_opt.passes.bitcast_movement:BitcastMovement",
    "boundary-narrowing": "hlo_opt.passes.boundary_narrowing:BoundaryNarrowing",
    "computation-deduplicator": "hlo_opt.passes.computation_deduplicator:ComputationDeduplicator",
    "convolution-epilogues": "hlo_opt.passes.convolution_epilogues:ConvolutionEpilogues",
    "copy-fusion": "hlo_opt.passes.copy_fusion:CopyFusion",
    "cse": "hlo_opt.passes.cse:CommonSubexpressionElimination",
    "cumulative-joiner": "hlo_opt.passes.cumulative_joiner:CumulativeJoiner",
    "cumulative-splitter": "hlo_opt.passes.cumulative_splitter:CumulativeSplitter",
    "dce": "hlo_opt.passes.dce:DeadCodeElimination",
    "dot-merger": "hlo_opt.passes.dot_merger:DotMerger",
    "dot-strength-reduction": "hlo_opt.passes.dot_strength_reduction:DotStrengthReduction",
    "fusion-merger": "hlo_opt.passes.fusion_merger:FusionMerger",
    "horizontal-input-fusion": "hlo_opt.passes.horizontal_input_fusion:HorizontalInputFusion",
    "horizontal-loop-fusion": "hlo_opt.passes.horizontal_loop_fusion:HorizontalLoopFusion",
    "inline": "hlo_opt.passes.inline:Inline",
    "instruction-fusion": "hlo_opt.passes.instruction_fusion:InstructionFusion",
    "kernel-joining": "hlo_opt.passes.kernel_joining:KernelJoining",
    "launch-packing": "hlo_opt.passes.launch_packing:LaunchPacking",
    "layout-fitting": "hlo_opt.passes.layout_fitting:LayoutFitting",
    "moment-folding": "hlo_opt.passes.moment_folding:MomentFolding",
    "multi-output-fusion": "hlo_opt.passes.multi_output_fusion:MultiOutputFusion",
    "online-softmax": "hlo_opt.passes.online_softmax:OnlineSoftmax",
    "priority-fusion": "hlo_opt.passes.priority_fusion:PriorityFusion",
    "product-epilogues": "hlo_opt.passes.product_epilogues:ProductEpilogues",
    "product-fusion": "hlo_opt.passes.product_fusion:ProductFusion",
    "reduction-simplifier": "hlo_opt.passes.reduction_simplifier:ReductionSimplifier",
    "reduction-splitter": "hlo_opt.passes.reduction_splitter:ReductionSplitter",
    "row-fusion": "hlo_opt.passes.row_fusion:RowFusion",
    "scan-to-window": "hlo_opt.passes.scan_to_window:ScanToWindow",
    "scatter-accumulation": "hlo_opt.passes.scatter_accumulation:ScatterAccumulation",
    "scatter-to-select": "hlo_opt.passes.scatter_to_select:ScatterToSelect",
    "sort-iota-fusion": "hlo_opt.passes.sort_iota_fusion:SortIotaFusion",
    "sum-factoring": "hlo_opt.passes.sum_factoring:SumFactoring",
    "topk-to-maxima": "hlo_opt.passes.topk_to_maxima:TopkToMaxima",
    "tree-to-window": "hlo_opt.passes.tree_to_window:TreeToWindow",
    "variadic-op-splitter": "hlo_opt.passes.variadic_op_splitter:VariadicOpSplitter",
    "while-flatten": "hlo_opt.passes.loops.while_flatten:WhileFlatten",
    "while-fusion": "hlo_opt.passes.while_fusion:WhileFusion",
    "while-loop-invariant-code-motion": "hlo_opt.passes.loops.while_invariants:WhileInvariants",
    "while-loop-simplifier": "hlo_opt.passes.loops.while_loop_simplifier:WhileLoopSimplifier",
    "while-loop-unroller": "hlo_opt.passes.while_loop_unroller:WhileLoopUnroller",
    "while-reroll": "hlo_opt.passes.loops.while_reroll:WhileReroll",
    "while-select": "hlo_opt.passes.loops.while_select:WhileSelect",
    "while-unroll": "hlo_opt.passes.loops.while_unroll:WhileUnroll",
}

PASSES: Mapping[str, str] = MappingProxyType(_TABLE)
"""Name -> `module:Class` of the passes that are not plugins', read only."""

OPTION_KINDS = ("bool", "int", "float", "str")


def register_pass(name: str, home: str) -> None:
    """Add a pass, as `module:Class`. Raises ValueError for a name that is taken."""
    if name in _TABLE:
        raise ValueError(f"pass {name} is declared twice")
    _TABLE[name] = home


def unregister_pass(name: str) -> None:
    """Take a pass out again: for tests and plugins that clean up after themselves."""
    del _TABLE[name]


def pass_names() -> list[str]:
    """All names, sorted. Raises UsageError for a plugin whose name is taken."""
    return sorted([*_TABLE, *_plugged()])


def pass_class(name: str) -> type[Pass]:
    """The class of a pass. Raises UsageError for an unknown name, with the nearest pass, and for a plugin that cannot
    be used."""
    plugged = _plugged()
    if name in plugged:
        return _plugin_class(plugged[name])
    if name not in _TABLE:
        known = pass_names()
        raise UsageError(f"there is no pass {name!r}", hint=did_you_mean(name, known) or f"known: {', '.join(known)}")
    module, _, attribute = _TABLE[name].partition(":")
    cls: type[Pass] = getattr(importlib.import_module(module), attribute)
    return cls


def pass_options(name: str) -> dict[str, tuple[str, object]]:
    """The options of a pass, spelt as users write them: type name and default."""
    return {f.name.replace("_", "-"): (option_kind(f), f.default) for f in fields(pass_class(name))}


_MEANING = re.compile(r"(\w+)  +(\S.*)")


def option_meanings(name: str) -> dict[str, str]:
    """The meanings of a pass's options, by their spelling: the lines of its docstring that begin with an option's name,
    with the deeper lines after them. An option without such a line is left out."""
    cls = pass_class(name)
    known = {f.name: f.name.replace("_", "-") for f in fields(cls)}
    meanings: dict[str, str] = {}
    current = ""
    for line in inspect.cleandoc(cls.__doc__ or "").splitlines():
        match = _MEANING.fullmatch(line)
        if match is not None and match[1] in known:
            current = known[match[1]]
            meanings[current] = match[2]
        elif current and line.startswith("  "):
            meanings[current] += f" {line.strip()}"
        else:
            current = ""
    return meanings


def option_kind(field: Field[Any]) -> str:
    """The type name of an option, whose annotation may be a text or a type."""
    return field.type if isinstance(field.type, str) else getattr(field.type, "__name__", str(field.type))


def plugin_of(cls: type[Pass]) -> Plugin | None:
    """The plugin that a pass comes from; None for one of the program's own."""
    plugin = _plugged().get(cls.name)
    return plugin if plugin is not None and cls is _plugin_class(plugin) else None


def _plugged() -> dict[str, Plugin]:
    return {p.name: p for p in plugins(GROUP, _TABLE)}


@functools.cache
def _plugin_class(plugin: Plugin) -> type[Pass]:
    cls = plugin.load()
    if not isinstance(cls, type) or not issubclass(cls, Pass):
        raise plugin.broken("is not a class derived from hlo_opt.passes.base.Pass")
    if not is_dataclass(cls) or getattr(cls, "name", None) != plugin.name:
        raise plugin.broken(f"must be a frozen dataclass whose `name` is {plugin.name!r}")
    if getattr(cls, "preserves", None) not in ("graph", "meaning"):
        raise plugin.broken('must say what it preserves: "graph" or "meaning"')
    for option in fields(cls):
        if option_kind(option) not in OPTION_KINDS or option.default is MISSING:
            raise plugin.broken(f"has an option {option.name} that is no bool, int, float or str with a default")
    return cls


SIMPLIFY = "inline,cse,dce"
"""The first passes of every run. They leave a simplified module unchanged."""

SIMPLIFY_RAW = (
    f"layout-fitting,batch-norm-expander,{SIMPLIFY},fixpoint(algebraic-simplifier,inline,cse,dce),layout-fitting,"
    "bitcast-movement{reshapes=false},cse,dce,computation-deduplicator"
)
"""The simplify stage: it replaces `SIMPLIFY` where a module is raw, or must be simplified in any case."""

_XLA_2026 = "variadic-op-splitter,sort-iota-fusion,priority-fusion,cse,dce"

_WITH_WINDOWS = _XLA_2026.replace("priority-fusion", "priority-fusion{sliding-windows=true}")

_HORIZONTAL = "fixpoint(horizontal-loop-fusion,horizontal-input-fusion,cse,dce)"

_MULTI_TENSOR = _HORIZONTAL.replace(
    "loop-fusion",
    "loop-fusion{any-mixed-alike=true,reductions-pay=true,max-outputs=2048,max-plain-outputs=2048,"
    "max-argument-bytes=32000}",
)

_OUTPUTS = (
    "attention-fusion,product-fusion,multi-output-fusion{levels=true,price-siblings=true},"
    "fusion-merger{weigh-kept=false},"
    "multi-output-fusion{levels=true,price-siblings=true},cse,dce,row-fusion,online-softmax,cse,dce,"
    "fusion-merger{weigh-kept=false,short-rows=true},cse,dce"
)
"""What no user could take in and write for the others after all is merged where that pays."""

_PRESETS = {
    "default": (
        "while-loop-simplifier,while-select,while-loop-unroller,cse,dce,while-reroll,while-flatten,"
        "while-loop-unroller{inner=true},cse,dce,"
        "reduction-simplifier,sum-factoring,scatter-to-select,scatter-accumulation,dot-strength-reduction,dot-merger,"
        "convolution-epilogues,topk-to-maxima,cse,moment-folding,online-softmax{columns=true},dce,"
        "scan-to-window,tree-to-window,dce,cumulative-joiner,cumulative-splitter,"
        "reduction-splitter,while-loop-invariant-code-motion,dce,"
        f"best({_WITH_WINDOWS},fixpoint(fusion-merger,cse,dce),{_OUTPUTS}"
        " | inline{fusions=true},fixpoint(instruction-fusion{may-duplicate=false},"
        f"instruction-fusion{{may-duplicate=true}},fusion-merger,cse,dce),"
        f"priority-fusion{{sliding-windows=true,own-prices=true,constants=false}},cse,dce,{_OUTPUTS}),"
        f"bitcast-movement,dce,{_MULTI_TENSOR},while-fusion,dce,launch-packing,dce,kernel-joining,dce,"
        "boundary-narrowing,cse,dce,product-epilogues,bitcast-hoisting,bitcast-movement{kernels=true}"
    ),
    "xla-2023": (
        "fixpoint(instruction-fusion{may-duplicate=false,row-kernels=false},instruction-fusion{row-kernels=false},"
        "fusion-merger{row-kernels=false,max-copies=10000},multi-output-fusion{xla-prices=true},cse,dce),"
        f"{_HORIZONTAL}"
    ),
    "xla-2026": f"{_XLA_2026},multi-output-fusion{{xla-prices=true}},cse,dce",
}
"""default: loops without what they do not need, without branches that take little time, short elementwise ones without
the loop, loops that were written out as loops again, reduces of single elements as reshapes, scatters of an element for
each row as selects, scatters into zeros as scatters into what they are added to, scalar factors of products after them,
products of small matrices, and of matrices and vectors, as sums, small independent products as one, what is added to
convolutions as part of their calls, the few largest of short rows as maxima, a softmax of long columns as one fold and
a division, scans that fold, and trees of associative scans, as cumulative windows, long cumulative windows and reduces
of dimensions that lie apart in parts, invariants of loops before them, then what xla-2026 does, but for sliding
windows, and then horizontal fusion, or, where that is estimated to take less time, instruction fusion with our
row-reduction kernels, which keep a softmax in one kernel, and priority fusion of what its rules left (large modules get
only this by the default effort), both with attention in one kernel where that pays, and short reductions folded where
they are read; then what moves nothing and is in no kernel as bitcasts; then loops whose lanes do not need each other as
one kernel; then kernels that are ready at the same time in one launch; then, in small modules, kernels and readers that
take less time as one, whatever rule kept them apart; then kernels write less of what others read, where these can
compute it; then biases and activations after products as part of their calls; last, bitcasts of what kernels update in
place in front of them.
xla-2023: the paper's order. xla-2026: xla/service/gpu/fusion_pipeline.cc."""


def preset_names() -> list[str]:
    return sorted(_PRESETS)


def preset(name: str) -> str:
    """The pipeline of a preset, as `--passes` would spell it. Raises UsageError, with the nearest preset, for an
    unknown name."""
    if name not in _PRESETS:
        hint = did_you_mean(name, _PRESETS) or f"known: {', '.join(preset_names())}"
        raise UsageError(f"there is no preset {name!r}", hint=hint)
    return _PRESETS[name]
