"""Refusals because of resources (`FUS2xx`) and because fusing would not pay (`FUS4xx`)."""

from __future__ import annotations

from hlo_opt.diag.reason import ReasonSpec, register_reason


def _many(lines: str, count: int) -> str:
    return "".join(lines.replace("#", str(n)) for n in range(count))


register_reason(
    ReasonSpec(
        "FUS201",
        "too-many-operands",
        "the kernel would take {operands} inputs and give {outputs} outputs, {count} buffers together; the limit is {limit}",
        "{count} buffers would fit a limit of {count}; packing small inputs into one array helps",
        "Every input and output is a kernel argument, and the space for arguments is small. XLA allows 96 buffers per kernel "
        "(MaxOperandsAndOutputsPerFusion in xla/service/gpu/gpu_fusible.cc).",
        "HloModule example\n\nENTRY e {\n"
        + _many("  p# = f32[8]{0} parameter(#)\n", 100)
        + "  sum1 = f32[8]{0} add(p0, p1)\n"
        + "".join(f"  sum{n} = f32[8]{{0}} add(sum{n - 1}, p{n})\n" for n in range(2, 99))
        + "  ROOT sum99 = f32[8]{0} add(sum98, p99)\n}\n",
    )
)
register_reason(
    ReasonSpec(
        "FUS202",
        "shared-memory",
        "the reductions and transposes of both would need {bytes} bytes of shared memory; a block has {limit}",
        "{bytes} bytes do not fit this device; fewer column reductions and transposes in one kernel do",
        "Column reductions and tiled transposes exchange values between threads through shared memory. XLA adds up what every member of a fusion that "
        "could use some would need (FusionFitsInBudget in xla/service/gpu/gpu_fusible.cc).",
        """\
// passes: instruction-fusion, fusion-merger
HloModule example

sum {
  a = f64[] parameter(0)
  b = f64[] parameter(1)
  ROOT c = f64[] add(a, b)
}

columns {
  p = f64[512,512]{1,0} parameter(0)
  q = f64[512,512]{1,0} parameter(1)
  zero = f64[] constant(0)
  r = f64[512]{0} reduce(p, zero), dimensions={0}, to_apply=sum
  r2 = f64[512]{0} reduce(q, zero), dimensions={0}, to_apply=sum
  ROOT s = f64[512]{0} add(r, r2)
}

ENTRY e {
  p = f64[512,512]{1,0} parameter(0)
  q = f64[512,512]{1,0} parameter(1)
  x = f64[512,512]{1,0} parameter(2)
  y = f64[512,512]{1,0} parameter(3)
  zero = f64[] constant(0)
  f = f64[512]{0} fusion(p, q), kind=kInput, calls=columns
  b = f64[512,512]{1,0} broadcast(f), dimensions={1}
  m = f64[512,512]{1,0} multiply(b, x)
  ROOT g = f64[512]{0} reduce(m, zero), dimensions={0}, to_apply=sum
}
""",
    )
)
register_reason(
    ReasonSpec(
        "FUS203",
        "too-many-reductions",
        "both together hold {count} reductions; the limit is {limit}",
        "{count} reductions fit into two kernels",
        "Each reduction keeps partial results in registers and shared memory. XLA puts at most 8 into one kernel "
        "(kMaxUnnestedReductionOutputsPerFusion in xla/service/gpu/gpu_fusible.cc).",
        "HloModule example\n\nsum {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT c = f32[] add(a, b)\n}\n\nENTRY e {\n"
        + "  zero = f32[] constant(0)\n"
        + _many(
            "  p# = f32[64,128]{1,0} parameter(#)\n  r# = f32[64]{0} reduce(p#, zero), dimensions={1}, to_apply=sum\n",
            9,
        )
        + "  t1 = f32[64]{0} add(r0, r1)\n"
        + "".join(f"  t{n} = f32[64]{{0}} add(t{n - 1}, r{n})\n" for n in range(2, 8))
        + "  ROOT t8 = f32[64]{0} add(t7, r8)\n}\n",
    )
)
register_reason(
    ReasonSpec(
        "FUS204",
        "code-duplication",
        "the code of `{producer}` would be emitted {count} times in the kernel; the limit is {limit}",
        "`instruction-fusion{{max-emissions={count}}}` allows it",
        "An instruction inside a kernel is computed once for each different index at which its users need it. Where users read through slices, "
        "reshapes or concatenates, code multiplies. The limit is XLA's kAllowedCodeDuplication "
        "(xla/service/fusion_node_indexing_evaluation.cc).",
        "// passes: instruction-fusion\nHloModule example\n\nENTRY e {\n  p = f32[1024]{0} parameter(0)\n  n = f32[1024]{0} tanh(p)\n"
        + "".join(f"  part{n} = f32[64]{{0}} slice(n), slice={{[{n * 8}:{n * 8 + 64}]}}\n" for n in range(17))
        + "  t1 = f32[64]{0} add(part0, part1)\n"
        + "".join(f"  t{n} = f32[64]{{0}} add(t{n - 1}, part{n})\n" for n in range(2, 16))
        + "  ROOT t16 = f32[64]{0} add(t15, part16)\n}\n",
    )
)
register_reason(
    ReasonSpec(
        "FUS205",
        "too-many-copies",
        "copying the {size} instructions of `{producer}` into {users} users would add {copies} instructions; the limit is {limit}",
        "`fusion-merger{{max-copies={copies}}}` allows it",
        "A fusion that is merged into several users is computed in each. The cost model may find that cheap on small arrays, but kernels grow, compile "
        "slowly and repeat arithmetic that one kernel could do once. XLA limits the size of a merged kernel instead (10,000 emitted instructions, "
        "xla/service/gpu/model/gpu_hlo_cost_analysis.h).",
        "// passes: instruction-fusion{may-duplicate=false}, fusion-merger{max-copies=2}\nHloModule example\n\nENTRY e {\n"
        "  p = f32[64]{0} parameter(0)\n  q = f32[64]{0} parameter(1)\n  x = f32[64]{0} subtract(p, q)\n  m = f32[64]{0} multiply(x, x)\n  s = f32[64]{0} add(m, q)\n  a = f32[64]{0} negate(s)\n  b = f32[32]{0} slice(s), slice={[0:32]}\n"
        "  ROOT r = (f32[64]{0}, f32[32]{0}) tuple(a, b)\n}\n",
    )
)
register_reason(
    ReasonSpec(
        "FUS401",
        "expensive-duplicated",
        "`{producer}` ({opcode}) is expensive and would be computed in each of its {users} users",
        "fused into one kernel with all users of `{producer}`, it would be computed once",
        "Reading a value from memory costs a few operations' time; computing a tanh, a reduction or a gather again costs more. Producers of that kind "
        "are not duplicated. Source: xla/service/instruction_fusion.cc, IsExpensive and ShouldFuse.",
        """\
// passes: instruction-fusion
HloModule example

ENTRY e {
  p = f32[64]{0} parameter(0)
  t = f32[64]{0} tanh(p)
  a = f32[64]{0} negate(t)
  b = f32[32]{0} slice(t), slice={[0:32]}
  ROOT r = (f32[64]{0}, f32[32]{0}) tuple(a, b)
}
""",
    )
)
register_reason(
    ReasonSpec(
        "FUS402",
        "expensive-reused",
        "`{producer}` ({opcode}) is expensive, and `{user}` ({user_opcode}) reads each of its elements several times",
        "`{producer}` after `{user}`, or made cheaper, could be fused",
        "A broadcast, a window or a matrix product needs an element of its operand many times. Inside a kernel each need is a computation, so an "
        "expensive producer is better computed once and read often. Source: xla/service/gpu/instruction_fusion.cc.",
        """\
// passes: instruction-fusion
HloModule example

ENTRY e {
  p = f32[64]{0} parameter(0)
  q = f32[64,64]{1,0} parameter(1)
  t = f32[64]{0} tanh(p)
  b = f32[64,64]{1,0} broadcast(t), dimensions={1}
  ROOT r = f32[64,64]{1,0} add(b, q)
}
""",
    )
)
register_reason(
    ReasonSpec(
        "FUS403",
        "more-traffic",
        "duplicating `{producer}` into its {users} users would read {read} bytes in each instead of its {size} bytes once made",
        "it pays if all paths from `{producer}` end in one kernel, so that `{producer}` itself disappears",
        "A producer with several large operands reads more than it writes. When it cannot be fused into all its users on all paths, it has to be "
        "written anyway, and every copy reads the operands again. Source: ComputeGloballyUnfusible in xla/service/instruction_fusion.cc.",
        """\
// passes: instruction-fusion
HloModule example

ENTRY e {
  p = f32[64]{0} parameter(0)
  q = f32[64]{0} parameter(1)
  s = f32[64]{0} add(p, q)
  a = f32[64]{0} negate(s)
  ROOT r = (f32[64]{0}, f32[64]{0}) tuple(a, s)
}
""",
    )
)
register_reason(
    ReasonSpec(
        "FUS404",
        "reduction-epilogue",
        "`{producer}` is a {reduction} reduction of {sizes} with a kernel form of its own; inside `{consumer}` a loop would repeat it per element",
        "a consumer with one result per row of {sizes}, or of the reduced rows themselves, fits a row-reduction kernel",
        "A reduction kernel lets many threads work on one result. Fused into a consumer that walks another index space, every thread would loop over the "
        "whole row or column. Only consumers that fit the same kernel are taken. Source: xla/service/gpu/gpu_fusible.cc, "
        "IsProducerConsumerFusible; hlo_opt/plans/row_reduction.py.",
        """\
HloModule example

sum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}

ENTRY e {
  p = f32[512,512]{1,0} parameter(0)
  q = f32[512,512]{1,0} parameter(1)
  zero = f32[] constant(0)
  r = f32[512]{0} reduce(p, zero), dimensions={0}, to_apply=sum
  b = f32[512,512]{1,0} broadcast(r), dimensions={0}
  ROOT m = f32[512,512]{1,0} multiply(b, q)
}
""",
    )
)
register_reason(
    ReasonSpec(
        "FUS405",
        "transpose-before-reduction",
        "`{producer}` moves data (`{transpose}`), and the reduction `{reduction}` would read memory with jumps",
        "reducing the other dimension of `{transpose}`'s operand needs no transpose",
        "Neighbouring threads of a reduction read neighbouring elements. Through a transpose these lie far apart, and every read fetches a whole cache "
        "line for one element. Source: xla/service/gpu/instruction_fusion.cc ('would break read coalescing').",
        """\
// passes: instruction-fusion
HloModule example

sum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}

ENTRY e {
  p = f32[512,512]{1,0} parameter(0)
  zero = f32[] constant(0)
  t = f32[512,512]{1,0} transpose(p), dimensions={1,0}
  ROOT r = f32[512]{0} reduce(t, zero), dimensions={1}, to_apply=sum
}
""",
    )
)
register_reason(
    ReasonSpec(
        "FUS406",
        "heavy-computation",
        "`{producer}` loops over {elements} elements ({opcode}) per result, and `{user}` ({user_opcode}) needs each result several times",
        "`{user}` in a kernel of its own reads the results of `{producer}` from memory",
        "A reduction without a kernel form of its own, or a window of more than 10 elements, is a loop in each thread. Behind a broadcast or another "
        "window the loop would run again for every element that needs the result. Source: CreatesHeavyComputation in "
        "xla/service/gpu/gpu_fusible.cc.",
        """\
// passes: instruction-fusion
HloModule example

sum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}

ENTRY e {
  p = f32[16,64]{1,0} parameter(0)
  q = f32[32,64]{1,0} parameter(1)
  zero = f32[] constant(0)
  r = f32[64]{0} reduce(p, zero), dimensions={0}, to_apply=sum
  b = f32[32,64]{1,0} broadcast(r), dimensions={1}
  ROOT m = f32[32,64]{1,0} multiply(b, q)
}
""",
    )
)
register_reason(
    ReasonSpec(
        "FUS407",
        "loses-row-kernel",
        "with `{producer}` inside, `{consumer}` would no longer be a row-reduction kernel but a {kind}",
        "`{producer}` keeps a kernel of its own, or takes another form",
        "A row-reduction kernel reads its rows once with all threads of a block. A producer that does not fit that form would turn the kernel into a loop "
        "that reduces every row in one thread. Source: hlo_opt/plans/row_reduction.py; XLA says 'would turn it into a loop fusion'.",
        """\
HloModule example

sum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}

ENTRY e {
  p = f32[64,64]{1,0} parameter(0)
  zero = f32[] constant(0)
  r = f32[64]{0} reduce(p, zero), dimensions={1}, to_apply=sum
  b = f32[64,64]{1,0} broadcast(r), dimensions={1}
  d = f32[64,64]{1,0} subtract(p, b)
  ROOT s = f32[64]{0} reduce(d, zero), dimensions={1}, to_apply=sum
}
""",
    )
)
register_reason(
    ReasonSpec(
        "FUS408",
        "slower-fused",
        "computed inside what reads it (kernels: {users}), `{producer}` would cost {us_fused:.3f} us instead of {us_unfused:.3f} us",
        "less work in `{producer}`, which each reader repeats (now {users}), would pay",
        "The cost model prices the producer and all its users as they are, and with the producer computed in each of them. Source: "
        "GpuPerformanceModel::EstimateRunTimes in xla/service/gpu/model/gpu_performance_model.cc.",
        """\
// passes: instruction-fusion{may-duplicate=false}, instruction-fusion, fusion-merger
HloModule example

ENTRY e {
  p = f32[4096,64]{1,0} parameter(0)
  q = f32[4096,64]{1,0} parameter(1)
  x = f32[4096,64]{1,0} power(p, q)
  y = f32[4096,64]{1,0} add(x, q)
  a = f32[4096,64]{1,0} sine(y)
  b = f32[4096,64]{1,0} cosine(y)
  ROOT r = (f32[4096,64]{1,0}, f32[4096,64]{1,0}) tuple(a, b)
}
""",
    )
)
