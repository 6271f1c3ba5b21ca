"""Refusals of multi-output fusion: why two kernels do not become one that writes what both wrote.

Sources: xla/backends/gpu/transforms/multi_output_fusion.cc, xla/service/gpu/gpu_fusible.cc.
"""

from __future__ import annotations

from hlo_opt.diag.reason import ReasonSpec, register_reason

_HEAD = "// passes: multi-output-fusion\nHloModule example\n\n"
_PLAIN = "// passes: multi-output-fusion{plain-siblings=true}\nHloModule example\n\n"
_SUM = "sum {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT c = f32[] add(a, b)\n}\n\n"

register_reason(
    ReasonSpec(
        "FUS131",
        "another-path",
        "`{consumer}` needs `{producer}` through another kernel as well, which would have to run in between",
        "once the other kernel has moved into `{consumer}` or its work is done there, `{producer}` can join",
        "A kernel starts when all its inputs are there. If something that the consumer reads is itself made from the producer's result, the joint kernel "
        "would wait for a kernel that waits for it. Source: OperandReachableFromProducer in xla/backends/gpu/transforms/multi_output_fusion.cc.",
        _HEAD
        + """\
ENTRY e {
  p = f32[64,64]{1,0} parameter(0)
  n = f32[64,64]{1,0} negate(p)
  d = f32[64,64]{1,0} dot(n, n), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT s = f32[64,64]{1,0} add(n, d)
}
""",
    )
)
register_reason(
    ReasonSpec(
        "FUS132",
        "siblings-connected",
        "`{user}` needs the result of `{needed}`, so fusing them would create a cycle",
        "`{needed}` can be fused into what reads it, or joined with it; `{user}` only with kernels that it does not need",
        "Two kernels that read the same value can be one if neither depends on the other. Source: CanFuseSiblings in "
        "xla/backends/gpu/transforms/multi_output_fusion.cc.",
        _PLAIN
        + """\
ENTRY e {
  p = f32[64,64]{1,0} parameter(0)
  n = f32[64,64]{1,0} negate(p)
  d = f32[64,64]{1,0} dot(n, n), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  s = f32[64,64]{1,0} add(p, d)
  ROOT t = (f32[64,64]{1,0}, f32[64,64]{1,0}) tuple(n, s)
}
""",
    )
)
register_reason(
    ReasonSpec(
        "FUS133",
        "no-output-form",
        "`{instruction}` ({form}) has a kernel form that writes one output only",
        "elementwise operations, loops, fast reductions and tiled transposes can stand beside other outputs; `multi-output-fusion{{any-form=true}}` asks "
        "for a plan instead and takes a {form} too where one has it",
        "XLA writes several outputs from loops, reductions and tiled transposes. Scatters, concatenates and single operations of other kinds have "
        "emitters of their own. Source: IsFusibleAsMultiOutputFusionRoot in xla/service/gpu/gpu_fusible.cc.",
        _PLAIN
        + """\
ENTRY e {
  p = f32[64,64]{1,0} parameter(0)
  n = f32[64,64]{1,0} negate(p)
  r = f32[64,64]{1,0} reverse(p), dimensions={0}
  ROOT t = (f32[64,64]{1,0}, f32[64,64]{1,0}) tuple(n, r)
}
""",
    )
)
register_reason(
    ReasonSpec(
        "FUS134",
        "tuple-passed-on",
        "`{instruction}` gives a tuple that goes whole to `{user}`; with another output it would be another tuple",
        "a tuple that is only read element by element (get-tuple-element) instead of by `{user}` can get longer",
        "A kernel with several outputs gives a tuple. Where all users pick elements, outputs can be added at the end. A user that takes the tuple as it "
        "is, or the caller, expects just these elements.",
        _HEAD
        + """\
two {
  a = f32[64]{0} parameter(0)
  b = f32[64]{0} negate(a)
  c = f32[64]{0} abs(a)
  ROOT d = (f32[64]{0}, f32[64]{0}) tuple(b, c)
}

ENTRY e {
  p = f32[64]{0} parameter(0)
  n = f32[64]{0} tanh(p)
  start = token[] after-all()
  out = token[] custom-call(n, start), custom_call_target="log", custom_call_has_side_effect=true
  ROOT f = (f32[64]{0}, f32[64]{0}) fusion(n), kind=kLoop, calls=two
}
""",
    )
)
register_reason(
    ReasonSpec(
        "FUS135",
        "two-plain-siblings",
        "neither `{first}` nor `{second}` is a fusion, and siblings are only joined into fusions",
        "`multi-output-fusion{{plain-siblings=true}}` joins `{first}` and `{second}` too",
        "XLA adds outputs to fusions; two single operations that read the same value stay two kernels, because the pass looks for a fusion first. "
        "Source: FuseSiblings in xla/backends/gpu/transforms/multi_output_fusion.cc.",
        _HEAD
        + "ENTRY e {\n  p = f32[64]{0} parameter(0)\n  n = f32[64]{0} negate(p)\n  t = f32[64]{0} tanh(p)\n"
        + "  ROOT r = (f32[64]{0}, f32[64]{0}) tuple(n, t)\n}\n",
    )
)
register_reason(
    ReasonSpec(
        "FUS136",
        "producer-keeps-kernel",
        "`{producer}` ({opcode}) {why}, and only plain loops join a consumer and keep their output",
        "`multi-output-fusion{{any-form=true}}` asks for a plan of both instead of the form of `{producer}`",
        "The joint kernel writes the producer's value where it computes it for the consumer, element by element. That fits loops that neither move data "
        "nor update a buffer in place. Source: IsProducerMultiOutputFusible in xla/service/gpu/gpu_fusible.cc.",
        _HEAD
        + """\
ENTRY e {
  p = f32[64,64]{1,0} parameter(0)
  n = f32[64,64]{1,0} transpose(p), dimensions={1,0}
  a = f32[64,64]{1,0} negate(n)
  ROOT r = (f32[64,64]{1,0}, f32[64,64]{1,0}) tuple(a, n)
}
""",
    )
)
register_reason(
    ReasonSpec(
        "FUS137",
        "siblings-of-library",
        "`{first}` and `{second}` both read `{parent}`, a library or hand-written kernel, and only readers of other values are tried as siblings",
        "a value that both read besides `{parent}` would have `{first}` and `{second}` tried",
        "Kernels that read the same value are siblings, and one kernel of them reads it once. XLA does not look for siblings below fusions of the kind "
        "kCustom (IsCustomFusion in xla/backends/gpu/transforms/multi_output_fusion.cc).",
        _HEAD
        + """\
product {
  p = f32[64,64]{1,0} parameter(0)
  q = f32[64,64]{1,0} parameter(1)
  ROOT d = f32[64,64]{1,0} dot(p, q), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}

first {
  p = f32[64,64]{1,0} parameter(0)
  ROOT n = f32[64,64]{1,0} negate(p)
}

ENTRY e {
  p = f32[64,64]{1,0} parameter(0)
  d = f32[64,64]{1,0} fusion(p, p), kind=kCustom, calls=product, backend_config={"fusion_backend_config":{"kind":"__triton_gemm"}}
  a = f32[64,64]{1,0} fusion(d), kind=kLoop, calls=first
  b = f32[64,64]{1,0} tanh(d)
  ROOT r = (f32[64,64]{1,0}, f32[64,64]{1,0}) tuple(a, b)
}
""",
    )
)
register_reason(
    ReasonSpec(
        "FUS230",
        "joint-code-too-large",
        "`{producer}` and `{consumer}` as one kernel would emit {size} operations; the limit is {limit}",
        "kernels of at most {limit} operations together",
        "What a kernel needs at several indices is emitted once for each. Large kernels compile slowly and spill registers. Source: "
        "ProducerConsumerMergedTooLarge and kMaxIRSize in xla/service/gpu/model/gpu_hlo_cost_analysis.h.",
        _HEAD
        + "big {\n  p = f32[64]{0} parameter(0)\n  v0 = f32[64]{0} negate(p)\n"
        + "".join(
            f"  r{k} = f32[64]{{0}} reverse(v{k}), dimensions={{0}}\n  v{k + 1} = f32[64]{{0}} add(v{k}, r{k})\n"
            for k in range(12)
        )
        + "  ROOT n = f32[64]{0} tanh(v12)\n}\n\nENTRY e {\n  p = f32[64]{0} parameter(0)\n  f = f32[64]{0} fusion(p), kind=kLoop, calls=big\n"
        + "  n = f32[64]{0} negate(p)\n  ROOT r = (f32[64]{0}, f32[64]{0}) tuple(f, n)\n}\n",
    )
)
register_reason(
    ReasonSpec(
        "FUS431",
        "loops-differ",
        "the threads of `{first}` walk {first_shape}, those of `{second}` {second_shape}",
        "`multi-output-fusion{{any-form=true}}` gives {first_shape} and {second_shape} blocks of their own in one launch",
        "The outputs of XLA's multi-output kernels share one loop: equal shapes but for the element type, or shapes with the same order in memory. A "
        "reduction counts with the shape that it reads. Source: ShapesCompatibleForMultiOutputFusion in xla/service/gpu/gpu_fusible.cc.",
        _HEAD
        + """\
half {
  p = f32[64]{0} parameter(0)
  s = f32[32]{0} slice(p), slice={[0:32]}
  ROOT n = f32[32]{0} negate(s)
}

ENTRY e {
  p = f32[64]{0} parameter(0)
  n = f32[64]{0} negate(p)
  f = f32[32]{0} fusion(p), kind=kLoop, calls=half
  ROOT r = (f32[64]{0}, f32[32]{0}) tuple(n, f)
}
""",
    )
)
register_reason(
    ReasonSpec(
        "FUS432",
        "heroes-differ",
        "`{first}` is a {first_hero} and `{second}` a {second_hero}, which need other threads",
        "reductions of the same rows or columns, and equal transposes, share a kernel; a {first_hero} and a {second_hero} do not",
        "Reductions and tiled transposes arrange the threads of a block around what they exchange. Only two of the same form can do it together. Source: "
        "FusionHeroesAreCompatible in xla/service/gpu/gpu_fusible.cc.",
        _PLAIN
        + _SUM
        + """\
ENTRY e {
  p = f32[512,512]{1,0} parameter(0)
  zero = f32[] constant(0)
  rows = f32[512]{0} reduce(p, zero), dimensions={1}, to_apply=sum
  columns = f32[512]{0} reduce(p, zero), dimensions={0}, to_apply=sum
  ROOT r = (f32[512]{0}, f32[512]{0}) tuple(rows, columns)
}
""",
    )
)
register_reason(
    ReasonSpec(
        "FUS433",
        "slices-apart",
        "`{first}` reads {first_slice} of `{parent}` and `{second}` {second_slice}: they share nothing",
        "slices of `{parent}` that overlap would be read once by one kernel",
        "Joining siblings pays because what both read is loaded once. Slices of a larger value that have no element in common give nothing to share. "
        "Source: ParameterSlicesAreNonOverlapping in xla/backends/gpu/transforms/multi_output_fusion.cc.",
        _HEAD
        + """\
low {
  p = f32[1024]{0} parameter(0)
  s = f32[512]{0} slice(p), slice={[0:512]}
  ROOT n = f32[512]{0} negate(s)
}

high {
  p = f32[1024]{0} parameter(0)
  s = f32[512]{0} slice(p), slice={[512:1024]}
  ROOT n = f32[512]{0} negate(s)
}

ENTRY e {
  p = f32[1024]{0} parameter(0)
  l = f32[512]{0} fusion(p), kind=kLoop, calls=low
  h = f32[512]{0} fusion(p), kind=kLoop, calls=high
  ROOT r = (f32[512]{0}, f32[512]{0}) tuple(l, h)
}
""",
    )
)
register_reason(
    ReasonSpec(
        "FUS434",
        "slower-together",
        "one kernel of `{first}` and `{second}` is estimated at {us_fused:.3f} us, two at {us_unfused:.3f} us",
        "it pays where one kernel takes less than {us_unfused:.3f} us",
        "The cost model compares both kernels, each with its launch, with one that reads and writes everything. A producer that is computed several times "
        "for each result, or in fewer blocks than before, can cost more than a launch. Source: EstimateRunTimesForMultiOutputFusion in "
        "xla/service/gpu/model/gpu_performance_model.cc.",
        _HEAD
        + """\
both {
  q = f32[4096,4096]{1,0} parameter(0)
  t = f32[4096,4096]{1,0} reverse(q), dimensions={1}
  ROOT a = f32[4096,4096]{1,0} add(q, t)
}

ENTRY e {
  p = f32[4096,4096]{1,0} parameter(0)
  q = f32[4096,4096]{1,0} cosine(p)
  a = f32[4096,4096]{1,0} fusion(q), kind=kLoop, calls=both
  ROOT r = (f32[4096,4096]{1,0}, f32[4096,4096]{1,0}) tuple(a, q)
}
""",
    )
)
register_reason(
    ReasonSpec(
        "FUS631",
        "update-beside-output",
        "`{update}` updates {size} elements in place, and its threads cover nothing else",
        "the update of {size} elements keeps a kernel of its own",
        "A dynamic-update-slice at the root of a kernel writes only its update. Beside another output the loop would have to cover that too. Source: "
        "LegalToFuse in xla/backends/gpu/transforms/multi_output_fusion.cc.",
        _PLAIN
        + """\
place {
  p = f32[64]{0} parameter(0)
  u = f32[8]{0} parameter(1)
  i = s32[] parameter(2)
  ROOT d = f32[64]{0} dynamic-update-slice(p, u, i)
}

ENTRY e {
  p = f32[64]{0} parameter(0)
  u = f32[8]{0} parameter(1)
  i = s32[] parameter(2)
  d = f32[64]{0} fusion(p, u, i), kind=kLoop, calls=place
  n = f32[64]{0} negate(p)
  ROOT r = (f32[64]{0}, f32[64]{0}) tuple(d, n)
}
""",
    )
)
