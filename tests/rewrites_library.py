"""Rewrites of modules with collectives and calls of libraries: rows for `rewrites`."""

from __future__ import annotations

from rewrites import edited, right, wrong

# ---- collectives

GROUPS = """\
HloModule m, num_partitions=4

sum { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] add(a, b) }

ENTRY e {
  p = f32[8]{0} parameter(0)
  a = f32[8]{0} all-reduce(p), channel_id=1, replica_groups={{0,1},{2,3}}, use_global_device_ids=true, to_apply=sum
  g = f32[16]{0} all-gather(a), channel_id=2, replica_groups={{0,1},{2,3}}, dimensions={0}, use_global_device_ids=true
  c = f32[16]{0} collective-permute(g), channel_id=3, source_target_pairs={{0,1},{1,0}}
  i = u32[] partition-id()
  j = u32[] replica-id()
  k = u32[] add(i, j)
  ROOT r = (f32[16]{0}, u32[]) tuple(c, k)
}
"""
wrong(
    "other groups",
    GROUPS,
    (
        "all-reduce(p), channel_id=1, replica_groups={{0,1},{2,3}}",
        "all-reduce(p), channel_id=1, replica_groups={{0,2},{1,3}}",
    ),
)
wrong(
    "one group",
    GROUPS,
    ("all-reduce(p), channel_id=1, replica_groups={{0,1},{2,3}}", "all-reduce(p), channel_id=1, replica_groups={}"),
)
wrong("a collective left out", GROUPS, ("all-gather(a)", "all-gather(p)"))
wrong("another reduction of a collective", GROUPS, ("add(a, b)", "multiply(a, b)"))
wrong("another channel of a collective", GROUPS, ("channel_id=3", "channel_id=4"))
wrong("replicas instead of devices", GROUPS, ("dimensions={0}, use_global_device_ids=true", "dimensions={0}"))
wrong("other pairs", GROUPS, ("{{0,1},{1,0}}", "{{0,1}}"))
wrong("the other number of a device", GROUPS, ("add(i, j)", "add(i, i)"))
wrong(
    "a collective twice",
    GROUPS,
    (
        "  c = ",
        "  g2 = f32[16]{0} all-gather(a), channel_id=2, replica_groups={{0,1},{2,3}}, dimensions={0}, "
        "use_global_device_ids=true\n  c = ",
    ),
)
right("devices asked twice", GROUPS, ("add(i, j)", "add(i2, j)"), ("  j = ", "  i2 = u32[] partition-id()\n  j = "))

# ---- products, scatters and calls of libraries

LIBRARY = """\
HloModule m

sum { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] add(a, b) }
gemm { a = f32[8,8]{1,0} parameter(0) b = f32[8,8]{1,0} parameter(1) ROOT r = f32[8,8]{1,0} dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0} }
update { a = f32[8,8]{1,0} parameter(0) b = f32[8,8]{1,0} parameter(1) ROOT r = f32[8,8]{1,0} add(a, b) }

ENTRY e {
  p = f32[8,8]{1,0} parameter(0)
  q = f32[8,8]{1,0} parameter(1)
  i = s32[4,1]{1,0} parameter(2)
  u = f32[4,8]{1,0} parameter(3)
  d = f32[8,8]{1,0} dot(p, q), lhs_contracting_dims={1}, rhs_contracting_dims={0}, operand_precision={highest,highest}
  g = f32[8,8]{1,0} fusion(d, q), kind=kCustom, calls=gemm, backend_config={"fusion_backend_config":{"kind":"__triton_gemm"}}
  s = f32[8,8]{1,0} scatter(g, i, u), update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=sum
  n = f32[8,8]{1,0} fusion(s, p), kind=kLoop, calls=update, output_to_operand_aliasing={{}: (0, {})}
  ROOT o = f32[8,8]{1,0} negate(n)
}
"""
wrong("a less precise product", LIBRARY, (", operand_precision={highest,highest}", ""))
wrong(
    "a product of another algorithm",
    LIBRARY,
    ("operand_precision={highest,highest}", "operand_precision={highest,highest}, algorithm=dot_tf32_tf32_f32"),
)
wrong(
    "another dimension contracted", LIBRARY, ("rhs_contracting_dims={0}, operand", "rhs_contracting_dims={1}, operand")
)
wrong(
    "both dimensions contracted changed",
    LIBRARY,
    (
        "lhs_contracting_dims={1}, rhs_contracting_dims={0}, operand",
        "lhs_contracting_dims={0}, rhs_contracting_dims={1}, operand",
    ),
)
wrong("factors swapped", LIBRARY, ("dot(p, q)", "dot(q, p)"))
wrong("another kernel of a library", LIBRARY, ("__triton_gemm", "__cublas_fusion"))
wrong(
    "a kernel of a library left out",
    LIBRARY,
    (
        'fusion(d, q), kind=kCustom, calls=gemm, backend_config={"fusion_backend_config":{"kind":"__triton_gemm"}}',
        "dot(d, q), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
    ),
)
wrong("what a kernel of a library computes", LIBRARY, ("dot(a, b)", "dot(b, a)"))
wrong("operands of a kernel of a library", LIBRARY, ("fusion(d, q), kind=kCustom", "fusion(q, d), kind=kCustom"))
wrong(
    "a promise that indices are unique",
    LIBRARY,
    ("index_vector_dim=1, to_apply", "index_vector_dim=1, unique_indices=true, to_apply"),
)
wrong(
    "a promise that indices are sorted",
    LIBRARY,
    ("index_vector_dim=1, to_apply", "index_vector_dim=1, indices_are_sorted=true, to_apply"),
)
wrong(
    "a promise that indices are unique withdrawn",
    edited(LIBRARY, ("index_vector_dim=1, to_apply", "index_vector_dim=1, unique_indices=true, to_apply")),
    ("unique_indices=true, ", ""),
)
wrong("updates that overwrite", LIBRARY, ("ROOT r = f32[] add(a, b)", "ROOT r = f32[] copy(b)"))
wrong("memory that a fusion shares", LIBRARY, (", output_to_operand_aliasing={{}: (0, {})}", ""))
wrong("memory that a fusion shares with another operand", LIBRARY, ("{{}: (0, {})}", "{{}: (1, {})}"))
wrong(
    "a fusion that shares memory put in",
    LIBRARY,
    ("fusion(s, p), kind=kLoop, calls=update, output_to_operand_aliasing={{}: (0, {})}", "add(s, p)"),
)
right(
    "a kernel of a library with another body of the same value",
    LIBRARY,
    ("ROOT r = f32[8,8]{1,0} dot(a, b)", "c = f32[8,8]{1,0} negate(a) ROOT r = f32[8,8]{1,0} dot(a, b)"),
)
right(
    "a fusion of kind kCustom that names no kernel",
    LIBRARY,
    ("negate(n)", "fusion(n), kind=kCustom, calls=minus"),
    ("update {", "minus { a = f32[8,8]{1,0} parameter(0) ROOT r = f32[8,8]{1,0} negate(a) }\nupdate {"),
)
right(
    "a tiled fusion",
    LIBRARY,
    ("negate(n)", 'fusion(n), kind=kCustom, calls=minus, backend_config={"fusion_backend_config":{"kind":"__triton"}}'),
    ("update {", "minus { a = f32[8,8]{1,0} parameter(0) ROOT r = f32[8,8]{1,0} negate(a) }\nupdate {"),
)
right(
    "metadata of a kernel of a library",
    LIBRARY,
    (
        "calls=gemm",
        'calls=gemm, metadata={op_name="x"}, frontend_attributes={a="b"}, sharding={replicated}, origin={{"a"}}, '
        "statistics={visualizing_index=0,a=1}",
    ),
)
right(
    "metadata of a custom call",
    edited(LIBRARY, ("negate(n)", 'custom-call(n), custom_call_target="f"')),
    (
        'custom_call_target="f"',
        'custom_call_target="f", metadata={op_name="x"}, origin={{"a"}}, statistics={visualizing_index=0,a=1}',
    ),
)
wrong(
    "another promise about indices",
    edited(LIBRARY, ("index_vector_dim=1, to_apply", "index_vector_dim=1, unique_indices=true, to_apply")),
    ("unique_indices=true", "indices_are_sorted=true"),
)
right(
    "attributes of a product in another order",
    LIBRARY,
    (
        "dot(p, q), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
        "dot(p, q), rhs_contracting_dims={0}, lhs_contracting_dims={1}",
    ),
)
right(
    "attributes of a scatter in another order",
    LIBRARY,
    ("update_window_dims={1}, inserted_window_dims={0}", "inserted_window_dims={0}, update_window_dims={1}"),
)
right(
    "a layout that a scatter does not read",
    edited(LIBRARY, ("scatter(g, i, u)", "scatter(g, i, k)"), ("  s = ", "  k = f32[4,8]{1,0} negate(u)\n  s = ")),
    ("k = f32[4,8]{1,0}", "k = f32[4,8]{0,1}"),
)
wrong(
    "a layout that a kernel of a library reads",
    edited(
        LIBRARY,
        (
            "b = f32[8,8]{1,0} parameter(1) ROOT r = f32[8,8]{1,0} dot",
            "b = f32[8,8]{0,1} parameter(1) ROOT r = f32[8,8]{1,0} dot",
        ),
    ),
    ("d = f32[8,8]{1,0}", "d = f32[8,8]{0,1}"),
    ("gemm { a = f32[8,8]{1,0}", "gemm { a = f32[8,8]{0,1}"),
)
wrong(
    "memory that a fusion shares, and another configuration of it",
    LIBRARY,
    ("calls=update, output", 'calls=update, backend_config="x", output'),
)
