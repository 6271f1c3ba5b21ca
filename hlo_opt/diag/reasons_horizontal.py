"""Refusals of the horizontal passes: why two kernels that one consumer reads stay two launches.

Sources: xla/service/gpu/horizontal_loop_fusion.cc and horizontal_input_fusion.cc, as they were before XLA dropped them.
"""

from __future__ import annotations

from hlo_opt.diag.reason import ReasonSpec, register_reason


def _example(options: str, body: str) -> str:
    return f"// passes: horizontal-loop-fusion{options}\nHloModule example\n\nENTRY e {{\n{body}}}\n"


_TWO = """\
  p = f32[64]{0} parameter(0)
  q = f32[32]{0} parameter(1)
  a = f32[64]{0} negate(p)
  b = f32[32]{0} negate(q)
  ROOT r = (f32[64]{0}, f32[32]{0}) tuple(a, b)
"""

register_reason(
    ReasonSpec(
        "FUS141",
        "read-elsewhere",
        "`{instruction}` is read by `{user}` too, not only by `{consumer}`",
        "kernels that only `{consumer}` reads can share a launch without anyone waiting longer",
        "Kernels in one launch end together. Where one consumer is the only reader of all of them, none of them can need another, and nothing waits longer "
        "than before. Source: IsConsumerTheOnlyNonRootUser in the classic xla/service/gpu/horizontal_loop_fusion.cc.",
        _example(
            "",
            """\
  p = f32[64]{0} parameter(0)
  q = f32[32]{0} parameter(1)
  a = f32[64]{0} negate(p)
  b = f32[32]{0} negate(q)
  s = f32[32]{0} reverse(b), dimensions={0}
  h = f32[96]{0} concatenate(a, b), dimensions={0}
  ROOT r = (f32[96]{0}, f32[32]{0}) tuple(h, s)
""",
        ),
    )
)
register_reason(
    ReasonSpec(
        "FUS142",
        "no-loop",
        "`{instruction}` is a {form}; only elementwise operations and loop fusions are put side by side",
        "a loop fusion instead of a {form} would be taken",
        "Horizontal loop fusion gives each member the threads of a loop. Reductions have a pass of their own (horizontal-input-fusion); scatters, transposes, "
        "updates in place and library calls stay apart. Source: IsFusibleCandidate in the classic xla/service/gpu/horizontal_loop_fusion.cc.",
        _example("", _TWO.replace("negate(q)", "reverse(q), dimensions={0}")),
    )
)
register_reason(
    ReasonSpec(
        "FUS241",
        "too-many-outputs",
        "the launch would write {outputs} outputs; the limit is {limit}",
        "`horizontal-loop-fusion{{max-outputs={outputs},max-plain-outputs={outputs}}}` allows it",
        "Every output brings code and a branch to the kernel. XLA closed a launch at 32 outputs, at 64 for single operations. Source: "
        "GetNextSpanOfFusions in the classic xla/service/gpu/horizontal_loop_fusion.cc.",
        _example("{max-plain-outputs=1}", _TWO),
    )
)
register_reason(
    ReasonSpec(
        "FUS242",
        "argument-space",
        "the launch would take {bytes} bytes of pointers; the limit is {limit}",
        "fewer or smaller kernels together: {bytes} bytes do not fit, for CUDA gives a kernel's arguments 4 KiB before CUDA 12.1",
        "Each operand and each output is a pointer among the arguments of the kernel, whose space is limited. Source: GetNextSpanOfFusions in the classic "
        "xla/service/gpu/horizontal_loop_fusion.cc.",
        _example("{max-argument-bytes=32}", _TWO),
    )
)
register_reason(
    ReasonSpec(
        "FUS441",
        "large-enough-alone",
        "`{instruction}` has {elements} elements, more than the {limit} up to which sharing a launch pays",
        "`horizontal-loop-fusion{{{option}={elements}}}` allows it",
        "A launch costs about a microsecond, which a large kernel does not notice. Small ones are all launch. Source: IsProfitableFusionCandidate in the "
        "classic xla/service/gpu/horizontal_loop_fusion.cc.",
        _example("{max-mixed-elements=48}", _TWO),
    )
)
register_reason(
    ReasonSpec(
        "FUS442",
        "too-many-instructions",
        "`{instruction}` has {size} instructions, more than the {limit} of a kernel that is put beside others",
        "`horizontal-loop-fusion{{max-instructions={size}}}` allows it",
        "Long kernels do not notice the launch, and side by side they only make one kernel with much code. Source: IsProfitableFusionCandidate in the classic "
        "xla/service/gpu/horizontal_loop_fusion.cc.",
        _example("{max-instructions=0}", _TWO),
    )
)
register_reason(
    ReasonSpec(
        "FUS443",
        "output-types-mixed",
        "`{instruction}` has outputs of several element types ({types})",
        "`horizontal-loop-fusion{{mixed-types=true}}` takes {types} together",
        "XLA concatenated the outputs of the kernels, which asks for one element type. Blocks of their own do not, but the pass keeps XLA's rule unless told "
        "otherwise. Source: IsFusibleCandidate in the classic xla/service/gpu/horizontal_loop_fusion.cc.",
        """\
// passes: horizontal-loop-fusion
HloModule example

two {
  p = f32[64]{0} parameter(0)
  n = f32[64]{0} negate(p)
  c = s32[64]{0} convert(p)
  ROOT t = (f32[64]{0}, s32[64]{0}) tuple(n, c)
}

ENTRY e {
  p = f32[64]{0} parameter(0)
  q = f32[64]{0} parameter(1)
  f = (f32[64]{0}, s32[64]{0}) fusion(p), kind=kLoop, calls=two
  g = f32[64]{0} get-tuple-element(f), index=0
  h = s32[64]{0} get-tuple-element(f), index=1
  a = f32[64]{0} negate(q)
  ROOT r = (f32[64]{0}, s32[64]{0}, f32[64]{0}) tuple(g, h, a)
}
""",
    )
)
register_reason(
    ReasonSpec(
        "FUS444",
        "outputs-differ",
        "`{first}` has {first_outputs} and `{second}` {second_outputs} outputs",
        "`horizontal-loop-fusion{{mixed-types=true}}` takes {first_outputs} and {second_outputs} together",
        "XLA put kernels side by side that have the same number of outputs of the same element type, because it concatenated them one by one. Source: "
        "GetNextSpanOfFusions in the classic xla/service/gpu/horizontal_loop_fusion.cc.",
        _example(
            "",
            _TWO.replace("b = f32[32]{0} negate(q)", "b = s32[32]{0} convert(q)").replace(
                "f32[32]{0}) tuple", "s32[32]{0}) tuple"
            ),
        ),
    )
)
