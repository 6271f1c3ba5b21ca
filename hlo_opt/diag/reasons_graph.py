"""Refusals because of the graph's shape (`FUS1xx`) and because something is switched off (`FUS5xx`).

An example is a module on which `hlo-opt explain` gives the reason; its first line may name the passes to run.
"""

from __future__ import annotations

from hlo_opt.diag.reason import ReasonSpec, register_reason

register_reason(
    ReasonSpec(
        "FUS101",
        "producer-is-result",
        "`{producer}` is the result of `{computation}` and must be written to memory anyway",
        "a multi-output fusion could write `{producer}` and use it in the same kernel",
        "The root of a computation is what its caller receives. Fusing it into one of its users would compute it a second time, for it has to be "
        "stored in any case. Source: xla/service/instruction_fusion.cc, ShouldFuse.",
        """\
HloModule example

ENTRY e {
  p = f32[64]{0} parameter(0)
  q = f32[64]{0} parameter(1)
  start = token[] after-all()
  ROOT sum = f32[64]{0} add(p, q)
  out = token[] custom-call(sum, start), custom_call_target="log", custom_call_has_side_effect=true
}
""",
    )
)
register_reason(
    ReasonSpec(
        "FUS102",
        "side-effect",
        "`{instruction}` ({opcode}) has side effects",
        "nothing: it must happen exactly once, where the program says",
        "Random number generators with hidden state, infeed, outfeed, sends, receives and custom calls that say so do more than give a value. "
        "Fusing could repeat, drop or reorder them. Source: HloInstruction::HasSideEffect.",
        """\
HloModule example

ENTRY e {
  low = f32[] constant(0)
  high = f32[] constant(1)
  noise = f32[64]{0} rng(low, high), distribution=rng_uniform
  ROOT n = f32[64]{0} negate(noise)
}
""",
    )
)
register_reason(
    ReasonSpec(
        "FUS103",
        "control-dependency",
        "`{instruction}` has control dependencies",
        "the edge can be fused once `control-predecessors` no longer names or hangs on `{instruction}`",
        "A control predecessor must have finished before its successor starts, although no data passes between them. Inside a kernel there is no such "
        "order, so both ends stay launches of their own.",
        """\
HloModule example

ENTRY e {
  p = f32[64]{0} parameter(0)
  first = f32[64]{0} negate(p)
  second = f32[64]{0} abs(p)
  third = f32[64]{0} add(second, second), control-predecessors={first}
  ROOT r = (f32[64]{0}, f32[64]{0}) tuple(first, third)
}
""",
    )
)
register_reason(
    ReasonSpec(
        "FUS104",
        "library-fusion",
        "`{instruction}` is a fusion that stands for a library or hand-written kernel",
        "dump the module before the pass that made it (XLA's GEMM rewriting), and its instructions can be fused",
        "XLA marks cuDNN calls, Triton matrix products and custom kernels as fusions of kind kCustom with a backend config. What runs is not the "
        "computation inside but the kernel that the config names, so nothing can be added to it.",
        """\
HloModule example

gemm {
  a = f32[16,16]{1,0} parameter(0)
  b = f32[16,16]{1,0} parameter(1)
  ROOT d = f32[16,16]{1,0} dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}

ENTRY e {
  a = f32[16,16]{1,0} parameter(0)
  b = f32[16,16]{1,0} parameter(1)
  f = f32[16,16]{1,0} fusion(a, b), kind=kCustom, calls=gemm, backend_config={"fusion_backend_config":{"kind":"__triton_gemm"}}
  ROOT n = f32[16,16]{1,0} negate(f)
}
""",
    )
)
register_reason(
    ReasonSpec(
        "FUS105",
        "several-outputs",
        "`{producer}` gives a tuple of {outputs} arrays, and only single-output operations can be pulled into their consumer",
        "an operation with one output can be fused; split `{producer}` where that costs nothing",
        "Only single-output operations can be pulled into their consumer. One that makes a tuple (a reduce over several arrays, a multi-output fusion) would have to be "
        "computed again for each of its outputs. Source: xla/service/gpu/gpu_fusible.cc.",
        """\
HloModule example

both {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  c = f32[] parameter(2)
  d = f32[] parameter(3)
  s = f32[] add(a, c)
  m = f32[] maximum(b, d)
  ROOT r = (f32[], f32[]) tuple(s, m)
}

ENTRY e {
  p = f32[8,64]{1,0} parameter(0)
  zero = f32[] constant(0)
  pair = (f32[8]{0}, f32[8]{0}) reduce(p, p, zero, zero), dimensions={1}, to_apply=both
  sum = f32[8]{0} get-tuple-element(pair), index=0
  ROOT n = f32[8]{0} negate(sum)
}
""",
    )
)
register_reason(
    ReasonSpec(
        "FUS107",
        "producer-is-fusion",
        "`{producer}` is a fusion of {size} instructions; instruction fusion takes single instructions",
        "fusion-merger takes whole fusions; add it to the pipeline",
        "Instruction fusion grows kernels upwards from their consumers, one instruction at a time. A fusion as a producer is what fusion-merger looks "
        "at. Source: xla/service/gpu/instruction_fusion.cc.",
        """\
// passes: instruction-fusion{may-duplicate=false}
HloModule example

ENTRY e {
  p = f32[64]{0} parameter(0)
  q = f32[64]{0} parameter(1)
  t = f32[64]{0} tanh(p)
  s = f32[64]{0} add(t, q)
  a = f32[64]{0} negate(s)
  b = f32[64]{0} abs(s)
  ROOT r = (f32[64]{0}, f32[64]{0}) tuple(a, b)
}
""",
    )
)
register_reason(
    ReasonSpec(
        "FUS108",
        "not-into-all-users",
        "`{producer}` would have to stay: its user `{user}` ({opcode}) cannot take it ({why})",
        "merging becomes possible once `{user}` takes `{producer}` too, or does without it",
        "Fusion merging repeats the work of a fusion in each of its users. That pays only when the fusion itself disappears, so all users must take it "
        "or none does. Source: FusionMerger, and xla/backends/gpu/transforms/priority_fusion.cc.",
        """\
// passes: instruction-fusion, fusion-merger
HloModule example

ENTRY e {
  p = f32[64]{0} parameter(0)
  q = f32[64]{0} parameter(1)
  t = f32[64]{0} tanh(p)
  s = f32[64]{0} add(t, q)
  n = f32[64]{0} negate(s)
  ROOT r = (f32[64]{0}, f32[64]{0}) tuple(n, s)
}
""",
    )
)
register_reason(
    ReasonSpec(
        "FUS111",
        "loop-boundary",
        "`{consumer}` gets what `{producer}` writes {way} of the loop `{loop}` ({rounds}): {bytes} bytes go through memory, for no kernel outlives a round",
        "unrolling `{loop}` (`unroll=` of `jax.lax.scan`) puts several rounds within reach of one kernel; what no round changes needs no place in its tuple",
        "A loop carries its values in a tuple. Each round launches its kernels anew: what one round writes, the next one reads back, and so do the "
        "kernels before and after the loop. Fusion works within one computation, so these edges stay.",
        """\
HloModule example

body {
  s = (s32[], f32[64]{0}) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  v = f32[64]{0} get-tuple-element(s), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  h = f32[64]{0} tanh(v)
  ROOT t = (s32[], f32[64]{0}) tuple(j, h)
}

condition {
  s = (s32[], f32[64]{0}) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  limit = s32[] constant(10)
  ROOT c = pred[] compare(i, limit), direction=LT
}

ENTRY e {
  p = f32[64]{0} parameter(0)
  n = f32[64]{0} negate(p)
  zero = s32[] constant(0)
  t = (s32[], f32[64]{0}) tuple(zero, n)
  w = (s32[], f32[64]{0}) while(t), condition=condition, body=body
  ROOT r = f32[64]{0} get-tuple-element(w), index=1
}
""",
    )
)
register_reason(
    ReasonSpec(
        "FUS112",
        "branch-boundary",
        "`{producer}` and `{consumer}` are on two sides of the {opcode} `{control}`: {bytes} bytes go through memory",
        "a select in place of `{control}`, or its computation inlined, puts both into one computation",
        "What a conditional or a call runs is a computation of its own, which starts its kernels when control comes there. Fusion works within one "
        "computation.",
        """\
HloModule example

above {
  x = f32[64]{0} parameter(0)
  ROOT t = f32[64]{0} tanh(x)
}

below {
  x = f32[64]{0} parameter(0)
  ROOT s = f32[64]{0} sine(x)
}

ENTRY e {
  p = f32[64]{0} parameter(0)
  i = s32[] parameter(1)
  n = f32[64]{0} negate(p)
  ROOT c = f32[64]{0} conditional(i, n, n), branch_computations={above, below}
}
""",
    )
)
register_reason(
    ReasonSpec(
        "FUS110",
        "always-on",
        "{rule} cannot be switched off: it keeps the program right or the kernel writable",
        "`hlo-opt explain {rule}` says what the rule protects",
        "`--what-if` switches rules off to see what they cost. Some rules are no matter of choice: without them the fused module would compute "
        "something else, or no kernel could be written.",
        """\
// passes: instruction-fusion
// what-if: FUS102
HloModule example

ENTRY e {
  low = f32[] constant(0)
  high = f32[] constant(1)
  noise = f32[64]{0} rng(low, high), distribution=rng_uniform
  ROOT n = f32[64]{0} negate(noise)
}
""",
    )
)
register_reason(
    ReasonSpec(
        "FUS501",
        "may-not-duplicate",
        "`{producer}` has {users} users, and this pass may not compute it again in each of them",
        "`instruction-fusion{{may-duplicate=true}}` may",
        "XLA runs instruction fusion twice: first without duplication, so that every producer goes where it costs nothing, then with. A pipeline with "
        "only the first pass leaves producers that several kernels need.",
        """\
// passes: instruction-fusion{may-duplicate=false}
HloModule example

ENTRY e {
  p = f32[64]{0} parameter(0)
  s = f32[64]{0} negate(p)
  a = f32[64]{0} tanh(s)
  b = f32[64]{0} abs(s)
  ROOT r = (f32[64]{0}, f32[64]{0}) tuple(a, b)
}
""",
    )
)
register_reason(
    ReasonSpec(
        "FUS502",
        "step-limit",
        "the limit of {limit} steps was reached before this edge",
        "a larger `--stop-after-step` reaches it",
        "`--stop-after-step` stops rewriting after a number of steps, so that a wrong or slow fusion can be found by bisecting.",
        """\
// stop-after-step: 0
HloModule example

ENTRY e {
  p = f32[64]{0} parameter(0)
  s = f32[64]{0} negate(p)
  ROOT t = f32[64]{0} tanh(s)
}
""",
    )
)
register_reason(
    ReasonSpec(
        "FUS503",
        "no-pass",
        "no pass of this pipeline fuses `{producer}` into `{consumer}`",
        "add instruction-fusion, or use `--preset default`",
        "Each fusion pass looks at edges of its own kind. An edge that none of the chosen passes looks at stays as it is.",
        """\
// passes: dce
HloModule example

ENTRY e {
  p = f32[64]{0} parameter(0)
  s = f32[64]{0} negate(p)
  ROOT t = f32[64]{0} tanh(s)
}
""",
    )
)
register_reason(
    ReasonSpec(
        "FUS504",
        "pass-was-done",
        "{passes} would fuse `{producer}` into `{consumer}` as they are now, but was done before later passes made them so",
        "`fixpoint(...)` around {passes} and what runs after it looks again",
        "A pass looks at the module once. What runs after it may remove a reader, join outputs or change a kernel's form, so that an edge which was refused "
        "would be fused now.",
        """\
// passes: instruction-fusion{may-duplicate=false}, dce
HloModule example

ENTRY e {
  p = f32[64]{0} parameter(0)
  s = f32[64]{0} negate(p)
  unused = f32[64]{0} abs(s)
  ROOT t = f32[64]{0} tanh(s)
}
""",
    )
)
