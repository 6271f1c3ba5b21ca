"""Refusals of priority fusion: what only its rules say.

Source: xla/backends/gpu/transforms/priority_fusion.cc.
"""

from __future__ import annotations

from hlo_opt.diag.reason import ReasonSpec, register_reason

_HEAD = "// passes: priority-fusion\nHloModule example\n\n"
_SUM = "sum {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT c = f32[] add(a, b)\n}\n\n"

register_reason(
    ReasonSpec(
        "FUS122",
        "opcode-not-fused",
        "`{instruction}` ({opcode}) is none of the operations that priority fusion puts into kernels",
        "elementwise operations, data movement, reductions, gathers and scatters are fused; `{opcode}` keeps a launch of its own",
        "Matrix products, convolutions, sorts, random generators, control flow and library calls stay launches of their own, and so do fusions that "
        "stand for a library's kernel. Source: IsFusible in xla/backends/gpu/transforms/priority_fusion.cc.",
        _HEAD + "ENTRY e {\n  p = f32[64,64]{1,0} parameter(0)\n  n = f32[64,64]{1,0} negate(p)\n"
        '  ROOT c = f32[64,64]{1,0} custom-call(n), custom_call_target="library"\n}\n',
    )
)
register_reason(
    ReasonSpec(
        "FUS220",
        "merged-code-too-large",
        "`{producer}` and `{consumer}` together would emit {size} operations; the limit is {limit}",
        "`priority-fusion{{max-code-size={size}}}` allows it",
        "What a kernel needs at several indices is emitted once for each. Merging a kernel into one that reads it at several indices multiplies its "
        "size. Source: ProducerConsumerMergedTooLarge and kMaxIRSize in xla/service/gpu/model/gpu_hlo_cost_analysis.h.",
        _HEAD.replace("fusion\n", "fusion{max-code-size=4}\n")
        + "ENTRY e {\n  p = f32[64]{0} parameter(0)\n  n = f32[64]{0} negate(p)\n  a = f32[64]{0} abs(n)\n"
        "  t = f32[64]{0} tanh(a)\n  ROOT s = f32[64]{0} sine(t)\n}\n",
    )
)
_TRITON = (
    "tiled {\n  p = f32[64,128]{1,0} parameter(0)\n  ROOT n = f32[64,128]{1,0} negate(p)\n}\n\nENTRY e {\n"
    "  p = f32[64,128]{1,0} parameter(0)\n  i = s32[] parameter(1)\n"
    '  t = f32[64,128]{1,0} fusion(p), kind=kCustom, calls=tiled, backend_config={"fusion_backend_config":{"kind":"__triton"}}\n'
)
register_reason(
    ReasonSpec(
        "FUS321",
        "tiled-kernel-operation",
        "a tiled kernel does not compute `{instruction}`: {element_type} `{opcode}`",
        "`{opcode}` of {element_type} outside the Triton fusion stays a kernel of its own",
        "A fusion with the backend config `__triton` computes tiles. Such kernels have no gather, dynamic slice, update, scatter, concatenate, pad or "
        "window, no unsigned or complex numbers, and reduce one array over one dimension. Source: xla/backends/gpu/codegen/triton/support.cc.",
        _HEAD + _TRITON + "  ROOT s = f32[8,128]{1,0} dynamic-slice(t, i, i), dynamic_slice_sizes={8,128}\n}\n",
    )
)
register_reason(
    ReasonSpec(
        "FUS322",
        "not-tileable",
        "`{producer}` and `{consumer}` give no tiled kernel: no tile of the result {sizes} makes every one of their {members} operations a block",
        "without bitcasts and slices that cut dimensions apart, a tile of {sizes} exists",
        "A tiled kernel computes a block of its output from blocks of its operands. A bitcast or reshape that cuts or joins a dimension in the middle of "
        "a block, or reads that are no rectangle, leave no tile; neither does a row that does not fit the registers. Source: SymbolicTileAnalysis in "
        "xla/service/gpu/model/symbolic_tile_analysis.cc.",
        _HEAD + "tiled {\n  p = f32[6,10]{1,0} parameter(0)\n  ROOT n = f32[6,10]{1,0} negate(p)\n}\n\nENTRY e {\n"
        "  p = f32[6,10]{1,0} parameter(0)\n"
        '  t = f32[6,10]{1,0} fusion(p), kind=kCustom, calls=tiled, backend_config={"fusion_backend_config":{"kind":"__triton"}}\n'
        "  r = f32[4,15]{1,0} reshape(t)\n  ROOT m = f32[15,4]{1,0} transpose(r), dimensions={1,0}\n}\n",
    )
)
register_reason(
    ReasonSpec(
        "FUS420",
        "reduce-into-reduce",
        "`{producer}` holds {above} reductions and `{consumer}` {below}, each folding 16 or more elements into one",
        "`{producer}` and `{consumer}` can be fused through a kernel plan that computes rows in one block",
        "The outer reduction would compute the inner one again for every element that it reads, and the cost model does not see it. Reductions of fewer "
        "than 16 elements are loops in any kernel and do not count. Source: CanFuse in xla/backends/gpu/transforms/priority_fusion.cc.",
        _HEAD + _SUM + "ENTRY e {\n  p = f32[64,64,64]{2,1,0} parameter(0)\n  z = f32[] constant(0)\n"
        "  r = f32[64,64]{1,0} reduce(p, z), dimensions={2}, to_apply=sum\n  n = f32[64,64]{1,0} negate(r)\n"
        "  ROOT s = f32[64]{0} reduce(n, z), dimensions={1}, to_apply=sum\n}\n",
    )
)
