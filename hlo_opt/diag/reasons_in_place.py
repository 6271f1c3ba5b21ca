"""Refusals because of aliasing and in-place updates (`FUS6xx`).

Source of the rules: ShouldFuseInPlaceOp in xla/service/instruction_fusion.cc.
"""

from __future__ import annotations

from hlo_opt.diag.reason import ReasonSpec, register_reason

_HEAD = "HloModule example\n\nENTRY e {\n  p = f32[64]{0} parameter(0)\n  i = s32[] parameter(1)\n"
_PAGE = (
    "A dynamic-update-slice at the root of a kernel writes its update into the buffer that it was given, and touches nothing else. A producer in the "
    "same kernel that reads the buffer may meet elements that are overwritten already. "
)

register_reason(
    ReasonSpec(
        "FUS601",
        "buffer-read-twice",
        "`{consumer}` overwrites `{buffer}` in place and takes it as another operand too",
        "a copy of `{buffer}` for the other operand makes the update safe",
        _PAGE + "Here the buffer is also what is written.",
        _HEAD
        + "  q = f32[64]{0} parameter(2)\n  b = f32[64]{0} negate(q)\n"
        + "  ROOT u = f32[64]{0} dynamic-update-slice(b, b, i)\n}\n",
    )
)
register_reason(
    ReasonSpec(
        "FUS602",
        "producer-moves-data",
        "`{producer}` reads the buffer that is overwritten through {count} operations that move data",
        "with at most one slice between buffer and update, the places can be compared",
        _PAGE + "With more than one operation that is not elementwise, nobody can tell which elements are read.",
        "// passes: inline, fusion-merger\nHloModule example\n\nmoving {\n  p = f32[64]{0} parameter(0)\n  r = f32[64]{0} reverse(p), dimensions={0}\n"
        "  ROOT s = f32[8]{0} slice(r), slice={[0:8]}\n}\n\nENTRY e {\n  p = f32[64]{0} parameter(0)\n  i = s32[] parameter(1)\n"
        "  f = f32[8]{0} fusion(p), kind=kLoop, calls=moving\n  ROOT u = f32[64]{0} dynamic-update-slice(p, f, i)\n}\n",
    )
)
register_reason(
    ReasonSpec(
        "FUS603",
        "consumer-moves-data",
        "`{consumer}` overwrites `{buffer}` and reads it through a {opcode} as well",
        "without that {opcode} the buffer is read only where it is written",
        _PAGE + "The producer reads it element by element, but inside the consumer something else reads other places.",
        "// passes: instruction-fusion\nHloModule example\n\nbody {\n  p = f32[64]{0} parameter(0)\n  n = f32[8]{0} parameter(1)\n  i = s32[] parameter(2)\n"
        "  s = f32[8]{0} slice(p), slice={[8:16]}\n  a = f32[8]{0} add(s, n)\n  ROOT u = f32[64]{0} dynamic-update-slice(p, a, i)\n}\n\n"
        "ENTRY e {\n  q = f32[64]{0} parameter(0)\n  n = f32[8]{0} parameter(1)\n  i = s32[] parameter(2)\n  p = f32[64]{0} negate(q)\n"
        "  ROOT f = f32[64]{0} fusion(p, n, i), kind=kLoop, calls=body\n}\n",
    )
)
register_reason(
    ReasonSpec(
        "FUS604",
        "several-updates",
        "`{consumer}` has {count} updates in place",
        "one update per kernel can be compared with what `{consumer}` reads",
        _PAGE + "With several updates the order in which they happen would matter.",
        "// passes: instruction-fusion\nHloModule example\n\nbody {\n  p = f32[64]{0} parameter(0)\n  q = f32[64]{0} parameter(1)\n  n = f32[8]{0} parameter(2)\n  i = s32[] parameter(3)\n"
        "  u = f32[64]{0} dynamic-update-slice(p, n, i)\n  v = f32[64]{0} dynamic-update-slice(q, n, i)\n"
        "  ROOT t = (f32[64]{0}, f32[64]{0}) tuple(u, v)\n}\n\n"
        "ENTRY e {\n  p = f32[64]{0} parameter(0)\n  q = f32[64]{0} parameter(1)\n  i = s32[] parameter(2)\n"
        "  n = f32[8]{0} slice(p), slice={[8:16]}\n"
        "  ROOT f = (f32[64]{0}, f32[64]{0}) fusion(p, q, n, i), kind=kLoop, calls=body\n}\n",
    )
)
register_reason(
    ReasonSpec(
        "FUS605",
        "slice-differs-from-update",
        "`{producer}` reads {slice} of the buffer, but {update} of it are overwritten",
        "a slice of exactly the update's sizes, without strides, could be fused",
        _PAGE
        + "A slice is safe when it covers exactly what is written: then every thread reads its element before it writes it.",
        "// passes: instruction-fusion\n"
        + _HEAD
        + "  s = f32[16]{0} dynamic-slice(p, i), dynamic_slice_sizes={16}\n  h = f32[8]{0} slice(s), slice={[0:8]}\n"
        + "  ROOT u = f32[64]{0} dynamic-update-slice(p, h, i)\n}\n",
    )
)
register_reason(
    ReasonSpec(
        "FUS606",
        "slice-elsewhere",
        "`{producer}` reads the buffer at other indices than `{consumer}` overwrites",
        "the same index operands for slice and update make it safe",
        _PAGE + "The slice has the update's sizes but may overlap it elsewhere.",
        _HEAD
        + "  j = s32[] parameter(2)\n  s = f32[8]{0} dynamic-slice(p, j), dynamic_slice_sizes={8}\n"
        + "  ROOT u = f32[64]{0} dynamic-update-slice(p, s, i)\n}\n",
    )
)
register_reason(
    ReasonSpec(
        "FUS607",
        "another-read-of-buffer",
        "`{consumer}` already reads the buffer through a {opcode}, and the producer would be another such read",
        "one read of the buffer per kernel can be compared with the update; {opcode} is one already",
        _PAGE + "Two slices of the buffer in one kernel are one too many.",
        "// passes: instruction-fusion\nHloModule example\n\nbody {\n  p = f32[64]{0} parameter(0)\n  n = f32[8]{0} parameter(1)\n  i = s32[] parameter(2)\n"
        "  s = f32[8]{0} slice(p), slice={[8:16]}\n  a = f32[8]{0} add(s, n)\n  ROOT u = f32[64]{0} dynamic-update-slice(p, a, i)\n}\n\n"
        "ENTRY e {\n  p = f32[64]{0} parameter(0)\n  i = s32[] parameter(1)\n  n = f32[8]{0} dynamic-slice(p, i), dynamic_slice_sizes={8}\n"
        "  ROOT f = f32[64]{0} fusion(p, n, i), kind=kLoop, calls=body\n}\n",
    )
)
register_reason(
    ReasonSpec(
        "FUS608",
        "unrecognised-in-place",
        "`{producer}` ({opcode}) reads or makes the buffer that `{consumer}` overwrites, in a way that cannot be compared with the update",
        "a slice at the updated place, or elementwise operations, could be fused",
        _PAGE
        + "Only slices and elementwise reads are understood. A broadcast that makes the buffer is refused too: fused, the update would have to "
        "write the whole array instead of its few elements.",
        _HEAD
        + "  r = f32[64]{0} reverse(p), dimensions={0}\n  q = f32[8]{0} parameter(2)\n"
        + "  ROOT u = f32[64]{0} dynamic-update-slice(r, q, i)\n}\n",
    )
)
_SCATTER = """\
HloModule example

sum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}

ENTRY e {
  p = f32[64]{0} parameter(0)
  i = s32[8,1]{1,0} parameter(1)
  u = f32[8]{0} parameter(2)
"""
register_reason(
    ReasonSpec(
        "FUS609",
        "scatter-result",
        "`{producer}` scatters: its elements are complete only when the whole kernel is done",
        "nothing: `{producer}` must end its kernel",
        "A scatter adds updates to elements in no order. Until the last one has arrived no element may be read, and threads of a kernel cannot wait "
        "for all others. Source: CanEmitInputFusedScatter in xla/service/gpu/gpu_fusible.cc.",
        _SCATTER
        + "  s = f32[64]{0} scatter(p, i, u), update_window_dims={}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=sum\n"
        + "  ROOT n = f32[64]{0} negate(s)\n}\n",
    )
)
register_reason(
    ReasonSpec(
        "FUS610",
        "scatter-operand",
        "`{producer}` makes or reads the array that `{scatter}` updates in place",
        "producers of the indices and of the updates of `{scatter}` can be fused",
        "A scatter updates its first operand where it lies. That array must be finished before the first update arrives. Source: "
        "CanEmitInputFusedScatter in xla/service/gpu/gpu_fusible.cc.",
        _SCATTER
        + "  q = f32[64]{0} negate(p)\n"
        + "  ROOT s = f32[64]{0} scatter(q, i, u), update_window_dims={}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=sum\n}\n",
    )
)
register_reason(
    ReasonSpec(
        "FUS611",
        "results-in-operands",
        "`{instruction}` is a fusion that says which of its results lie where its operands do",
        "nothing: the operands of `{instruction}` and their order must stay as they are",
        "`output_to_operand_aliasing` promises that a result is written into the buffer of an operand, which it names by number. Somebody else made that promise, and "
        "buffers may be assigned already: another kernel that takes other operands could not keep it.",
        """\
HloModule example

body {
  p = f32[64]{0} parameter(0)
  ROOT n = f32[64]{0} negate(p)
}

ENTRY e {
  p = f32[64]{0} parameter(0)
  q = f32[64]{0} exponential(p)
  ROOT f = f32[64]{0} fusion(q), kind=kLoop, output_to_operand_aliasing={{}: (0, {})}, calls=body
}
""",
    )
)
