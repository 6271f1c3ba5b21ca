"""For each reason the near twin of its example: the smallest change after which the reason is not given any more, as
replacements in the example's text."""

from __future__ import annotations

Change = tuple[str, str]

_SAME_SIZE: tuple[Change, ...] = (("32]{0}", "64]{0}"), ("[0:32]", "[0:64]"))

TWINS: dict[str, tuple[Change, ...]] = {
    # the result is another instruction
    "FUS101": (("ROOT sum", "sum"), ("  out =", "  ROOT n = f32[64]{0} negate(sum)\n  out =")),
    "FUS102": (("rng(low, high), distribution=rng_uniform", "broadcast(low), dimensions={}"),),
    "FUS103": ((", control-predecessors={first}", ""),),
    "FUS104": (("kCustom", "kLoop"), ("dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}", "add(a, b)")),
    # one array is reduced
    "FUS105": (
        ("ROOT r = (f32[], f32[]) tuple(s, m)", "ROOT r = f32[] add(a, c)"),
        ("  b = f32[] parameter(1)\n  c = f32[] parameter(2)\n  d = f32[] "
         "parameter(3)\n", "  c = f32[] parameter(1)\n"),
        ("  s = f32[] add(a, c)\n  m = f32[] maximum(b, d)\n", ""),
        ("(f32[8]{0}, f32[8]{0}) reduce(p, p, zero, zero)", "f32[8]{0} reduce(p, zero)"),
        ("  sum = f32[8]{0} get-tuple-element(pair), index=0\n", ""),
        ("negate(sum)", "negate(pair)"),
    ),
    # the producer is one instruction
    "FUS107": (("tanh(p)", "parameter(2)"),),
    "FUS108": (("tuple(n, s)", "tuple(n, p)"),),
    "FUS110": (("// what-if: FUS102\n", ""),),
    # nothing goes round, in or out but what is a parameter
    "FUS111": (
        ("add(i, one)", "get-tuple-element(s), index=0"),
        ("tanh(u)", "get-tuple-element(s), index=1"),
        ("tuple(zero, n)", "tuple(zero, p)"),
    ),
    "FUS112": (("conditional(i, n, n)", "conditional(i, p, p)"),),
    "FUS113": (("opt-barrier(n)", "bitcast(n)"),),
    "FUS122": (('custom-call(n), custom_call_target="library"', "tanh(n)"),),
    # the other kernel reads something else
    "FUS131": (("dot(n, n)", "dot(p, p)"),),
    "FUS132": (("dot(n, n)", "dot(q, q)"), ("  n =", "  q = f32[64,64]{1,0} parameter(1)\n  n =")),
    "FUS133": (("reverse(p), dimensions={0}", "abs(p)"),),
    "FUS134": (
        ("ROOT f", "f"),
        (
            "kind=kLoop, calls=two\n",
            "kind=kLoop, calls=two\n  g = f32[64]{0} get-tuple-element(f), index=0\n  ROOT h = f32[64]{0} abs(g)\n",
        ),
    ),
    "FUS135": (("multi-output-fusion", "multi-output-fusion{plain-siblings=true}"),),
    "FUS136": (("transpose(p), dimensions={1,0}", "abs(p)"),),
    "FUS137": (
        ("kind=kCustom", "kind=kLoop"),
        ("dot(p, q), lhs_contracting_dims={1}, rhs_contracting_dims={0}", "add(p, q)"),
    ),
    # both are read by one kernel only
    "FUS141": (("reverse(b), dimensions={0}", "abs(q)"),),
    "FUS142": (("reverse(q), dimensions={0}", "abs(q)"),),
    # four buffers fewer: the operands of the last sums are those of the first
    "FUS201": tuple((f", p{n})", ", p0)") for n in range(90, 100)),
    "FUS202": (
        ("add(r, r2)", "add(r, r)"),
        ("  r2 = f64[512]{0} reduce(q, zero), dimensions={0}, to_apply=sum\n", ""),
        ("f64", "f32"),
    ),
    "FUS203": (("add(t7, r8)", "add(t7, r7)"),),
    "FUS204": tuple((f", part{k})", f", part{k - 2})") for k in (15, 16)),
    "FUS205": (("max-copies=2", "max-copies=3"),),
    "FUS220": (("max-code-size=4", "max-code-size=40"),),
    "FUS230": (("reverse(v11), dimensions={0}", "abs(p)"), ("reverse(v10), dimensions={0}", "abs(p)")),
    "FUS241": (("max-plain-outputs=1", "max-plain-outputs=2"),),
    "FUS242": (("max-argument-bytes=32", "max-argument-bytes=64"),),
    "FUS301": (("s1", "s32"), ("convert(n)", "negate(n)")),
    "FUS302": (("dot(p, p), lhs_contracting_dims={1}, rhs_contracting_dims={0}", "add(p, p)"),),
    "FUS303": (("1025", "1024"), (", 1024})", "})")),
    "FUS305": (("negate(v61)", "negate(v59)"), ("  v60 = f32[8]{0} pad(v59, z), padding=1_-1\n  v61 = f32[8]{0} "
                                                "pad(v60, z), padding=1_-1\n", ""),),
    "FUS306": (("reverse(v14)", "reverse(p)"), ("reverse(v13)", "reverse(p)"), ("reverse(v12)", "reverse(p)")),
    "FUS307": (("<=8", "8"),),
    "FUS308": (('custom-call(n), custom_call_target="generate"', "abs(n)"),),
    # the fusion holds what reads the array by index
    "FUS309": (("f32[2,4]{1,0} bitcast", "f32[2,4]{1,0} reshape"),),
    "FUS310": ((", while-fusion", ""),),
    "FUS311": ((
        "d = f32[33,33]{1,0} dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={1}",
        "s = f32[33,1]{1,0} slice(x), slice={[0:33], [0:1]}\n  d = f32[33,33]{1,0} concatenate(x, x, s), dimensions={1}",
    ),),
    "FUS321": (("f32[8,128]{1,0} dynamic-slice(t, i, i), dynamic_slice_sizes={8,128}", "f32[64,128]{1,0} abs(t)"),),
    "FUS322": (
        ("f32[4,15]{1,0} reshape(t)", "f32[6,10]{1,0} abs(t)"),
        ("f32[15,4]{1,0} transpose", "f32[10,6]{1,0} transpose"),
    ),
    "FUS401": (("tanh(p)", "abs(p)"),),
    "FUS402": (("tanh(p)", "abs(p)"),),
    "FUS403": (("add(p, q)", "abs(p)"),),
    # the rows of the reduction are the rows of the consumer
    "FUS404": (("dimensions={0}, to_apply", "dimensions={1}, to_apply"),),
    "FUS405": (("transpose(p), dimensions={1,0}", "abs(p)"),),
    "FUS406": (("[32,64]", "[1,64]"),),
    "FUS407": (("dimensions={1}\n  d =", "dimensions={0}\n  d ="),),
    "FUS408": (("power(p, q)", "maximum(p, q)"), ("cosine(y)", "negate(y)"), ("sine(y)", "abs(y)")),
    "FUS409": (("reverse(s), dimensions={1}", "negate(s)"),),
    "FUS410": (("f32[1048576]{0} parameter", "s8[1048576]{0} parameter"),),
    "FUS420": (("[64,64,64]{2,1,0}", "[64,64,8]{2,1,0}"),),
    "FUS431": ((*_SAME_SIZE,)),
    "FUS432": (("dimensions={0}, to_apply", "dimensions={1}, to_apply"),),
    "FUS433": (("[512:1024]", "[0:512]"),),
    "FUS434": (("cosine(p)", "abs(p)"), ("reverse(q), dimensions={1}", "negate(q)")),
    "FUS441": (("max-mixed-elements=48", "max-mixed-elements=64"),),
    "FUS442": (("max-instructions=0", "max-instructions=1"),),
    "FUS443": (("s32[64]{0} convert(p)", "f32[64]{0} abs(p)"), ("s32", "f32")),
    "FUS444": (("s32[32]{0} convert(q)", "f32[32]{0} negate(q)"), ("s32", "f32")),
    "FUS501": (("abs(s)", "abs(p)"),),
    "FUS502": (("stop-after-step: 0", "stop-after-step: 5"),),
    "FUS503": (("passes: dce", "passes: instruction-fusion"),),
    "FUS504": (("instruction-fusion{may-duplicate=false}, dce", "dce, instruction-fusion{may-duplicate=false}"),),
    "FUS505": (("// forbid: s:t\n", ""),),
    "FUS601": (("dynamic-update-slice(b, b, i)", "dynamic-update-slice(b, c, i)"),
        ("  b =", "  c = f32[64]{0} abs(q)\n  b =")),
    "FUS602": (("f32[64]{0} reverse(p), dimensions={0}", "f32[64]{0} abs(p)"),),
    "FUS603": (("slice(p), slice={[8:16]}", "abs(n)"),),
    "FUS604": (
        ("(f32[64]{0}, f32[64]{0}) tuple(u, v)", "(f32[64]{0}, f32[64]{0}) tuple(u, q)"),
        ("  v = f32[64]{0} dynamic-update-slice(q, n, i)\n", ""),
    ),
    "FUS605": (("f32[16]{0} dynamic-slice", "f32[8]{0} dynamic-slice"), ("sizes={16}", "sizes={8}"),
        ("slice(s), slice={[0:8]}", "abs(s)")),
    "FUS606": (("dynamic-slice(p, j)", "dynamic-slice(p, i)"),),
    "FUS607": (("f32[8]{0} slice(p), slice={[8:16]}", "f32[8]{0} abs(n)"),),
    "FUS608": (("reverse(p), dimensions={0}", "abs(p)"),),
    "FUS609": (
        (
            "scatter(p, i, u), update_window_dims={}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, "
            "index_vector_dim=1, to_apply=sum",
            "abs(p)",
        ),
    ),
    "FUS610": (("scatter(q, i, u)", "scatter(p, i, v)"), ("  q = f32[1048576]{0} negate(p)", "  v = f32[8]{0} negate(u)")),
    "FUS611": ((", output_to_operand_aliasing={{}: (0, {})}", ""),),
    "FUS631": (("f32[64]{0} dynamic-update-slice(p, u, i)", "f32[64]{0} abs(p)"),),
    "FUS632": (("slice(p), slice={[0:8]}", "negate(u)"),),
}  # fmt: skip
