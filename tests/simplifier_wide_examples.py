"""The examples of the simplifier's rules, fourth part: windows, movers, numbers that are all the same, devices."""

from __future__ import annotations

from simplifier_examples import XY, M, X, example, number
from simplifier_fold_examples import EXAMPLES as EXAMPLES
from simplifier_fold_examples import ZERO

# ---- identities and integers

example(
    "factors-together",
    "f",
    (
        f"{X}; {number('2')}; a = T[12] multiply(x, n); l = T[] constant(-3); m = T[12] broadcast(l), dimensions={{}}; "
        "T[12] multiply(m, a)",
    ),
    (
        f"{X}; {number('3')}; a = T[12] multiply(x, n); l = T[] constant(2); m = T[12] broadcast(l), dimensions={{}}; "
        "T[12] multiply(a, m)",
        f"{X}; {number('2')}; a = T[12] multiply(x, n); l = T[] constant(0.5); m = T[12] broadcast(l), dimensions={{}}; "
        "T[12] multiply(a, m)",
    ),
)
example(
    "power-half-of-size",
    "f",
    f"{X}; a = T[12] abs(x); {number('0.5')}; T[12] power(a, n)",
    f"{X}; {number('0.5')}; T[12] power(x, n)",
    True,
)
example(
    "extreme-of-rising",
    "f",
    f"{XY}; a = T[12] tanh(x); b = T[12] tanh(y); T[12] maximum(a, b)",
    (
        f"{XY}; a = T[12] sqrt(x); b = T[12] sqrt(y); T[12] maximum(a, b)",
        f"{XY}; a = T[12] tanh(x); b = T[12] tanh(y); m = T[12] maximum(a, b); T[12] add(m, a)",
    ),
)
example(
    "square-of-root",
    "f",
    f"{X}; a = T[12] abs(x); r = T[12] sqrt(a); T[12] multiply(r, r)",
    (
        f"{X}; r = T[12] sqrt(x); T[12] multiply(r, r)",
        f"{XY}; a = T[12] abs(x); r = T[12] sqrt(a); T[12] multiply(r, y)",
    ),
    True,
)
IOTA = "a = T[12] iota(), iota_dimension=0"
example(
    "remainder-within",
    "i",
    (
        f"{IOTA}; {number('12')}; T[12] remainder(a, n)",
        f"{X}; k = T[12] constant({{{', '.join('5' * 12)}}}); "
        f"c = T[12] add(k, k); {number('11').replace('k', 'l')}; T[12] remainder(c, n)",
    ),
    f"{IOTA}; {number('11')}; T[12] remainder(a, n)",
)
example(
    "remainder-of-more",
    "i",
    f"{IOTA}; {number('7')}; s = T[12] add(n, a); T[12] remainder(s, n)",
    (
        f"{X}; {number('7')}; s = T[12] add(n, x); T[12] remainder(s, n)",
        f"a = T[12] iota(), iota_dimension=0; {number('120')}; s = T[12] add(n, a); m = T[12] add(s, s); "
        "T[12] remainder(m, n)",
    ),
)
example(
    "remainder-of-remainder",
    "i",
    f"{XY}; a = T[12] remainder(x, y); T[12] remainder(a, y)",
    f"{XY}; a = T[12] remainder(x, y); T[12] remainder(a, x)",
)

# ---- comparisons

example(
    "compare-of-extreme",
    "fi",
    (
        f"{XY}; m = T[12] maximum(y, x); pred[12] compare(m, x), direction=GT",
        f"{XY}; m = T[12] minimum(x, y); pred[12] compare(x, m), direction=GT",
    ),
    (
        f"{XY}; m = T[12] maximum(x, y); pred[12] compare(m, x), direction=GE",
        f"{XY}; m = T[12] minimum(x, y); pred[12] compare(m, x), direction=GT",
    ),
)
CHOICE = "p: pred[12]; a = T[] constant(3); b = T[12] broadcast(a), dimensions={}; c = T[] constant(1); "
CHOICE += "d = T[12] broadcast(c), dimensions={}; s = T[12] select(p, b, d)"
example(
    "compare-of-choice",
    "fi",
    (
        f"{CHOICE}; pred[12] compare(s, d), direction=NE",
        f"{CHOICE}; pred[12] compare(b, s), direction=GT",
        f"{CHOICE}; pred[12] compare(s, d), direction=GE",
    ),
    f"{CHOICE}; x: T[12]; pred[12] compare(s, x), direction=NE",
)

# ---- movement and movers

example(
    "transpose-past-ones",
    "fi",
    f"{M}; t = T[3,4] transpose(x), dimensions={{1,0}}; r = T[1,3,4] reshape(t); T[1,4,3] transpose(r), dimensions={{0,2,1}}",
    f"{M}; t = T[3,4] transpose(x), dimensions={{1,0}}; r = T[1,2,6] reshape(t); T[1,6,2] transpose(r), dimensions={{0,2,1}}",
)
example(
    "reshape-of-transpose",
    "fi",
    "x: T[24]; r = T[2,3,4] reshape(x); t = T[4,2,3] transpose(r), dimensions={2,0,1}; T[4,6] reshape(t)",
    "x: T[24]; r = T[2,3,4] reshape(x); t = T[4,3,2] transpose(r), dimensions={2,1,0}; T[4,6] reshape(t)",
)
example(
    "operation-on-reshapes",
    "fi",
    (
        f"{M}; y: T[4,3]; a = T[12] reshape(x); b = T[12] reshape(y); T[12] multiply(a, b)",
        f"p: pred[4,3]; {M}; q = pred[12] reshape(p); a = T[12] reshape(x); {number('2')}; T[12] select(q, a, n)",
    ),
    (
        f"{M}; y: T[3,4]; a = T[12] reshape(x); b = T[12] reshape(y); T[12] multiply(a, b)",
        f"{M}; y: T[12]; a = T[12] reshape(x); T[12] multiply(a, y)",
    ),
)
example(
    "concatenate-of-converts",
    "g",
    (
        "x: bf16[4]; y: bf16[3]; a = T[4] convert(x); b = T[3] convert(y); T[7] concatenate(a, b), dimensions={0}",
        "x: s32[4]; y: s32[3]; a = T[4] convert(x); b = T[3] convert(y); T[7] concatenate(a, b), dimensions={0}",
    ),
    (
        "x: s64[4]; y: bf16[3]; a = T[4] convert(x); b = T[3] convert(y); T[7] concatenate(a, b), dimensions={0}",
        "x: bf16[4]; y: bf16[4]; a = T[4] convert(x); b = T[4] convert(y); c = T[8] concatenate(a, b), dimensions={0}; "
        "(T[8], T[4]) tuple(c, b)",
    ),
)
HALVES = "a = T[5] slice(x), slice={[0:5]}; b = T[5] slice(y), slice={[0:5]}; c = T[7] slice(x), slice={[5:12]}; "
HALVES += "d = T[7] slice(y), slice={[5:12]}; e = T[5] add(a, b)"
example(
    "operation-on-slices",
    "fi",
    (
        f"{XY}; {HALVES}; f = T[7] add(c, d); (T[5], T[7]) tuple(e, f)",
        f"{XY}; w = T[12] add(x, y); {HALVES}; (T[12], T[5]) tuple(w, e)",
    ),
    (
        f"{XY}; {HALVES}; f = T[7] multiply(c, d); (T[5], T[7]) tuple(e, f)",
        f"{XY}; {HALVES}; (T[5], T[7]) tuple(e, d)",
    ),
)
CHOICE = f"p: pred[12]; {XY}"
example(
    "select-of-operations",
    "fi",
    (
        f"{CHOICE}; z: T[12]; a = T[12] multiply(x, z); b = T[12] multiply(y, z); T[12] select(p, a, b)",
        f"{CHOICE}; a = T[12] negate(x); b = T[12] negate(y); T[12] select(p, a, b)",
    ),
    (
        f"{CHOICE}; a = T[12] negate(x); b = T[12] negate(y); s = T[12] select(p, a, b); (T[12], T[12]) tuple(s, a)",
        f"{CHOICE}; a = T[12] multiply(x, y); b = T[12] add(y, y); T[12] select(p, a, b)",
        f"{CHOICE}; a = T[12] multiply(x, y); b = T[12] multiply(y, x); T[12] select(p, a, b)",
    ),
)
example(
    "select-of-reverse",
    "fi",
    (
        f"p: pred[12]; {X}; n = T[12] negate(x); r = T[12] reverse(n), dimensions={{0}}; T[12] select(p, r, n)",
        f"p: pred[12]; {X}; {number('3')}; a = T[12] multiply(n, x); r = T[12] reverse(a), dimensions={{0}}; "
        "T[12] select(p, a, r)",
    ),
    (
        f"{CHOICE}; n = T[12] add(x, y); r = T[12] reverse(n), dimensions={{0}}; T[12] select(p, n, r)",
        f"p: pred[12]; {X}; n = T[12] negate(x); r = T[12] reverse(n), dimensions={{0}}; s = T[12] select(p, r, n); "
        "(T[12], T[12]) tuple(s, n)",
    ),
)
example(
    "slice-between-parts",
    "f",
    f"{XY}; c = T[36] concatenate(x, y, x), dimensions={{0}}; T[24] slice(c), slice={{[12:36]}}",
    (
        f"{XY}; c = T[36] concatenate(x, y, x), dimensions={{0}}; T[22] slice(c), slice={{[12:34]}}",
        f"{XY}; c = T[36] concatenate(x, y, x), dimensions={{0}}; T[12] slice(c), slice={{[12:36:2]}}",
    ),
)
example(
    "pad-of-transpose",
    "f",
    (
        "x: T[4,3]; z: T[]; a = T[3,4] transpose(x), dimensions={1,0}; T[7,5] pad(a, z), padding=1_3x0_1",
        "x: T[2,3,4]; z: T[]; a = T[4,2,3] transpose(x), dimensions={2,0,1}; "
        "T[8,1,3] pad(a, z), padding=1_0_1x-1_0x0_0",
    ),
    "x: T[4,3]; z: T[]; a = T[3,4] transpose(x), dimensions={1,0}; b = T[7,5] pad(a, z), padding=1_3x0_1; "
    "c = T[3,4] negate(a); (T[7,5], T[3,4]) tuple(b, c)",
)
example(
    "pad-of-broadcast",
    "f",
    f"x: T[4]; {ZERO}; b = T[3,4] broadcast(x), dimensions={{1}}; T[3,9] pad(b, z), padding=0_0x1_1_1",
    f"x: T[4]; {ZERO}; b = T[3,4] broadcast(x), dimensions={{1}}; T[5,4] pad(b, z), padding=1_1x0_0",
)

# ---- folds

example(
    "reduce-of-same",
    "fi",
    (
        f"{number('3', '4,5')}; {ZERO}; T[4] reduce(n, z), dimensions={{1}}, to_apply=add",
        f"{number('3', '4,5')}; {ZERO}; T[] reduce(n, z), dimensions={{0,1}}, to_apply=max",
    ),
    (
        f"{number('3', '4,5')}; z: T[]; T[4] reduce(n, z), dimensions={{1}}, to_apply=add",
        f"x: T[4,5]; {ZERO}; T[4] reduce(x, z), dimensions={{1}}, to_apply=add",
    ),
    True,
)
example(
    "sum-of-negated",
    "fi",
    f"x: T[4,3]; {ZERO}; m = T[4,3] negate(x); T[4] reduce(m, z), dimensions={{1}}, to_apply=add",
    (
        f"x: T[4,3]; {ZERO}; m = T[4,3] negate(x); T[4] reduce(m, z), dimensions={{1}}, to_apply=max",
        "x: T[4,3]; z = T[] constant(3); m = T[4,3] negate(x); T[4] reduce(m, z), dimensions={1}, to_apply=add",
        f"x: T[4,3]; {ZERO}; m = T[4,3] negate(x); a = T[4] reduce(m, z), dimensions={{1}}, to_apply=add; "
        "b = T[4] reduce(m, z), dimensions={1}, to_apply=max; T[4] add(a, b)",
        f"x: T[4,1]; {ZERO}; m = T[4,1] negate(x); T[4,1] reduce(m, z), dimensions={{}}, to_apply=add",
    ),
    True,
)
example(
    "sum-of-same",
    "if",
    (
        f"x: T[4]; {ZERO}; b = T[4,300] broadcast(x), dimensions={{0}}; T[4] reduce(b, z), dimensions={{1}}, "
        "to_apply=add",
        f"x: T[4]; {ZERO}; b = T[5,4,3] broadcast(x), dimensions={{1}}; T[5,4] reduce(b, z), dimensions={{2}}, "
        "to_apply=add",
        f"x: T[4]; y: T[4]; {ZERO}; a = T[4] multiply(x, x); b = T[4,90001] broadcast(a), dimensions={{0}}; "
        "T[4] reduce(b, z), dimensions={1}, to_apply=add",
    ),
    (
        f"x: T[4]; {ZERO}; b = T[4,3] broadcast(x), dimensions={{0}}; T[3] reduce(b, z), dimensions={{0}}, "
        "to_apply=add",
        "x: T[4,3]; z: T[]; b = T[4,3,5] broadcast(x), dimensions={0,1}; T[4] reduce(b, z), dimensions={1,2}, "
        "to_apply=add",
        f"x: T[4]; {ZERO}; b = T[4,3] broadcast(x), dimensions={{0}}; i = s32[4,3] iota(), iota_dimension=1; "
        "n = s32[] constant(0); (T[4], s32[4]) reduce(b, i, z, n), dimensions={1}, to_apply=both",
    ),
    True,
)
example(
    "reduce-window-of-nothing",
    "fi",
    f"x: T[3,0]; {ZERO}; T[5,2] reduce-window(x, z), window={{size=1x1 pad=1_1x1_1}}, to_apply=add",
    (
        f"x: T[3,1]; {ZERO}; T[5,3] reduce-window(x, z), window={{size=1x1 pad=1_1x1_1}}, to_apply=add",
        "x: T[3,0]; z = T[] constant(2); T[5,2] reduce-window(x, z), window={size=1x1 pad=1_1x1_1}, to_apply=add",
    ),
)
example(
    "reduce-window-of-ones",
    "fi",
    "x: T[4,3]; z = T[] constant(LEAST); T[4,3] reduce-window(x, z), window={size=1x1 stride=2x1 pad=1_2x-1_1}, to_apply=max",
    (
        "x: T[4,3]; z = T[] constant(1); T[4,3] reduce-window(x, z), window={size=1x1}, to_apply=max",
        "x: T[4,3]; z = T[] constant(LEAST); T[3,3] reduce-window(x, z), window={size=2x1}, to_apply=max",
    ),
)
example(
    "reduce-window-of-pad",
    "fi",
    "x: T[2,3]; z = T[] constant(5); p = T[4,6] pad(x, z), padding=1_0_1x1_2; "
    "T[6,19] reduce-window(p, z), window={size=1x2 pad=1_1x1_1 lhs_dilate=1x3 rhs_dilate=1x1}, to_apply=max".replace(
        "T[6,19]", "T[6,17]"
    ),
    "x: T[2,3]; z = T[] constant(5); y = T[] constant(4); p = T[3,6] pad(x, y), padding=1_0x1_2; "
    "T[3,5] reduce-window(p, z), window={size=1x2}, to_apply=max",
)
example(
    "reduce-window-of-same",
    "fi",
    (
        f"{number('1', '4,9')}; {ZERO}; T[4,9] reduce-window(n, z), window={{size=1x9 pad=0_0x8_0}}, to_apply=add",
        f"{number('3', '4,9')}; {ZERO}; T[6,5] reduce-window(n, z), window={{size=1x1 stride=1x2 pad=1_1x0_0}}, to_apply=add",
    ),
    f"x: T[4,9]; {ZERO}; T[4,9] reduce-window(x, z), window={{size=1x9 pad=0_0x8_0}}, to_apply=add",
    True,
)

# ---- products

example(
    "dot-of-reordered",
    "fi",
    (
        "x: T[2,2,3]; t = T[2,3,2] transpose(x), dimensions={0,2,1}; r = T[2,6] reshape(t); "
        "c = T[6,2] constant({{1,2},{3,4},{5,6},{7,8},{9,0},{1,2}}); "
        "T[2,2] dot(r, c), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
        "x: T[2,2,3]; t = T[2,3,2] transpose(x), dimensions={0,2,1}; r = T[2,6] reshape(t); "
        "c = T[2,6] constant({{1,2,3,4,5,6},{7,8,9,0,1,2}}); "
        "T[2,2] dot(c, r), lhs_contracting_dims={1}, rhs_contracting_dims={1}",
    ),
    (
        "x: T[3,2,2]; t = T[2,3,2] transpose(x), dimensions={1,0,2}; r = T[2,6] reshape(t); "
        "c = T[6,1] constant({{1},{3},{5},{7},{9},{1}}); "
        "T[2,1] dot(r, c), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
        "x: T[2,2,3]; c: T[6,2]; t = T[2,3,2] transpose(x), dimensions={0,2,1}; r = T[2,6] reshape(t); "
        "T[2,2] dot(r, c), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
        "x: T[3,0,0]; t = T[0,3,0] transpose(x), dimensions={1,0,2}; r = T[0,6] reshape(t); "
        "c = T[6,1] constant({{1},{3},{5},{7},{9},{1}}); "
        "T[0,1] dot(r, c), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
    ),
    True,
)

REPEAT = "k: T[2,5,3,4]; b = T[2,5,3,2,4] broadcast(k), dimensions={0,1,2,4}; r = T[2,5,6,4] reshape(b)"
example(
    "dot-of-repeated",
    "fi",
    (
        f"q: T[2,6,4]; {REPEAT}; "
        "T[2,6,5] dot(q, r), lhs_batch_dims={0,1}, lhs_contracting_dims={2}, rhs_batch_dims={0,2}, rhs_contracting_dims={3}",
        f"q: T[2,6,5]; {REPEAT}; "
        "T[2,6,4] dot(q, r), lhs_batch_dims={0,1}, lhs_contracting_dims={2}, rhs_batch_dims={0,2}, rhs_contracting_dims={1}",
    ),
    (
        f"q: T[6,2,4]; {REPEAT}; "
        "T[6,2,5] dot(q, r), lhs_batch_dims={0,1}, lhs_contracting_dims={2}, rhs_batch_dims={2,0}, rhs_contracting_dims={3}",
        f"q: T[2,7,6,4]; {REPEAT}; "
        "T[2,6,7,5] dot(q, r), lhs_batch_dims={0,2}, lhs_contracting_dims={3}, rhs_batch_dims={0,2}, rhs_contracting_dims={3}",
    ),
    True,
)
example(
    "convolution-of-pad",
    "g",
    f"x: T[2,4,5,3]; {ZERO}; p = T[2,8,7,3] pad(x, z), padding=0_0x1_0_1x1_1x0_0; k: T[3,3,3,4]; "
    "T[2,8,5,4] convolution(p, k), window={size=3x3 pad=1_1x0_0}, dim_labels=b01f_01io->b01f",
    (
        f"x: T[2,4,5,2]; {ZERO}; p = T[2,4,5,3] pad(x, z), padding=0_0x0_0x0_0x1_0; k: T[3,3,3,4]; "
        "T[2,2,3,4] convolution(p, k), window={size=3x3}, dim_labels=b01f_01io->b01f",
        "x: T[2,4,5,3]; z = T[] constant(1); p = T[2,5,5,3] pad(x, z), padding=0_0x1_0x0_0x0_0; k: T[3,3,3,4]; "
        "T[2,3,3,4] convolution(p, k), window={size=3x3}, dim_labels=b01f_01io->b01f",
    ),
    True,
)

# ---- indexing

ROW = "update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1"
example(
    "scatter-of-one",
    "fi",
    (
        f"x: T[4,3]; i: s32[1,1]; u: T[1,3]; T[4,3] scatter(x, i, u), {ROW}, to_apply=last",
        f"x: T[4,3]; i: s8[1,1]; u: T[1,3]; T[4,3] scatter(x, i, u), {ROW}, to_apply=add",
        f"x: T[4,3]; i = s32[1,1] constant({{{{2}}}}); u: T[1,3]; T[4,3] scatter(x, i, u), {ROW}, to_apply=last",
        f"x: T[4,3]; j: s32[1,1]; k = s32[1,1] constant({{{{3}}}}); r = s32[1,1] remainder(j, k); i = u32[1,1] bitcast(r); "
        f"u: T[1,3]; T[4,3] scatter(x, i, u), {ROW}, to_apply=last",
        "x: T[4,3]; i: s32[2]; u: T[2,2]; T[4,3] scatter(x, i, u), update_window_dims={0,1}, inserted_window_dims={}, "
        "scatter_dims_to_operand_dims={1,0}, index_vector_dim=0, to_apply=last",
    ),
    f"x: T[4,3]; i: s32[2,1]; u: T[2,3]; T[4,3] scatter(x, i, u), {ROW}, to_apply=last",
)

# ---- control

example(
    "conditional-of-few",
    "f",
    "p: pred[]; x: T[]; y: T[]; T[] conditional(p, x, y), true_computation=double, false_computation=fourth",
    (
        f"p: pred[]; {XY}; T[12] conditional(p, x, y), true_computation=up, false_computation=down",
        "p: s32[]; x: T[]; y: T[]; T[] conditional(p, x, y), branch_computations={double, fourth}",
    ),
)
example(
    "barrier-of-needed",
    "f",
    f"{XY}; t = (T[12], T[12]) tuple(x, y); b = (T[12], T[12]) opt-barrier(t); T[12] get-tuple-element(b), index=1",
    f"{XY}; t = (T[12], T[12]) tuple(x, y); b = (T[12], T[12]) opt-barrier(t); c = T[12] get-tuple-element(b), index=1; "
    "d = T[12] get-tuple-element(b), index=0; T[12] add(c, d)",
)

# ---- devices

ALL = "replica_groups={{0,1,2,3}}"
example(
    "all-reduce-of-same",
    "fi",
    (
        f"{number('3')}; T[12] all-reduce(n), {ALL}, to_apply=add",
        f"{number('3')}; T[3] reduce-scatter(n), {ALL}, dimensions={{0}}, to_apply=add",
    ),
    f"x: T[]; n = T[12] broadcast(x), dimensions={{}}; T[12] all-reduce(n), {ALL}, to_apply=add",
    True,
    devices=4,
)
example(
    "all-gather-of-same",
    "fi",
    f"{number('3')}; T[48] all-gather(n), {ALL}, dimensions={{0}}",
    f"{X}; T[48] all-gather(x), {ALL}, dimensions={{0}}",
    devices=4,
)
REPLICATED = "x = T[12] parameter(0), parameter_replication={true}"
example(
    "all-reduce-of-replicated",
    "fi",
    f"{REPLICATED}; T[12] all-reduce(x), {ALL}, to_apply=max",
    f"{X}; T[12] all-reduce(x), {ALL}, to_apply=max",
    devices=4,
)
example(
    "sum-of-replicated",
    "fi",
    f"{REPLICATED}; T[12] all-reduce(x), {ALL}, to_apply=add",
    f"{X}; T[12] all-reduce(x), {ALL}, to_apply=add",
    devices=4,
)
PLACE = "i = u32[] replica-id(); j = s32[] convert(i); l = s32[] constant(LENGTH); s = s32[] multiply(j, l)"
INNER = "a = T[12] all-reduce(x), replica_groups={{0,1},{2,3}}, to_apply=add"
example(
    "all-reduce-of-all-reduce",
    "fi",
    (
        f"{X}; {INNER}; T[12] all-reduce(a), replica_groups={{{{0,3}},{{2,1}}}}, to_apply=add",
        f"{X}; {INNER}; T[12] all-reduce(a), replica_groups=[2,2]<=[2,2]T(1,0), to_apply=add",
    ),
    (
        f"{X}; {INNER}; T[12] all-reduce(a), replica_groups={{{{0,1}},{{2,3}}}}, to_apply=add",
        f"{X}; {INNER}; T[12] all-reduce(a), replica_groups={{{{0,2}},{{1,3}}}}, to_apply=max",
        f"{X}; {INNER}; b = T[12] all-reduce(a), replica_groups={{{{0,2}},{{1,3}}}}, to_apply=add; T[12] add(a, b)",
        "x: T[12]; a = T[12] all-reduce(x), replica_groups={{0,1},{2,3}}, channel_id=1, use_global_device_ids=true, "
        "to_apply=add; T[12] all-reduce(a), replica_groups={{0,2},{1,3}}, to_apply=add",
    ),
    True,
    devices=4,
)
example(
    "own-part-of-all-gather",
    "fi",
    (
        f"{X}; {PLACE.replace('LENGTH', '12')}; g = T[48] all-gather(x), {ALL}, dimensions={{0}}; "
        "T[12] dynamic-slice(g, s), dynamic_slice_sizes={12}",
        f"{X}; {PLACE.replace('LENGTH', '12')}; g = T[48] all-gather(x), {ALL}, dimensions={{0}}; r = T[48,1] reshape(g); "
        "o = s32[] constant(0); T[12,1] dynamic-slice(r, s, o), dynamic_slice_sizes={12,1}",
    ),
    (
        f"{X}; {PLACE.replace('LENGTH', '6')}; g = T[48] all-gather(x), {ALL}, dimensions={{0}}; "
        "T[12] dynamic-slice(g, s), dynamic_slice_sizes={12}",
        f"{X}; {PLACE.replace('LENGTH', '12')}; g = T[48] all-gather(x), replica_groups={{{{3,2,1,0}}}}, dimensions={{0}}; "
        "T[12] dynamic-slice(g, s), dynamic_slice_sizes={12}",
    ),
    devices=4,
)
example(
    "own-part-of-all-reduce",
    "fi",
    f"{X}; {PLACE.replace('LENGTH', '3')}; g = T[12] all-reduce(x), {ALL}, to_apply=add; "
    "T[3] dynamic-slice(g, s), dynamic_slice_sizes={3}",
    (
        f"{X}; {PLACE.replace('LENGTH', '2')}; g = T[12] all-reduce(x), {ALL}, to_apply=add; "
        "T[3] dynamic-slice(g, s), dynamic_slice_sizes={3}",
        f"{X}; {PLACE.replace('LENGTH', '3')}; g = T[12] all-reduce(x), {ALL}, to_apply=add; "
        "d = T[3] dynamic-slice(g, s), dynamic_slice_sizes={3}; (T[3], T[12]) tuple(d, g)",
    ),
    True,
    devices=4,
)

# ---- ranges of integers

PLACES = "p = s32[12] iota(), iota_dimension=0"
SORTED = f"{PLACES}; q = (T[12], s32[12]) sort(x, p), dimensions={{0}}, to_apply=keys; o = s32[12] get-tuple-element(q)"
ZEROS = "a = s32[] constant(0); z = s32[12] broadcast(a), dimensions={}"
TWELVES = "b = s32[] constant(12); m = s32[12] broadcast(b), dimensions={}"
ARGMAX = (
    "x: T[4,12]; p = s32[4,12] iota(), iota_dimension=1; k = T[] constant(LEAST); a = s32[] constant(0); "
    "q = (T[4], s32[4]) reduce(x, p, k, a), dimensions={1}, to_apply="
)
ONE_OF_ROW = "; o = s32[4] get-tuple-element(q), index=1; z = s32[4] broadcast(a), dimensions={}; pred[4] compare(o, z)"
example(
    "compare-ranges",
    "i",
    (
        f"i = T[12] iota(), iota_dimension=0; {number('12')}; pred[12] compare(i, n), direction=LT",
        f"x: T[12]; {SORTED}, index=1; {ZEROS}; pred[12] compare(o, z), direction=LT",
        f"x: T[12]; {SORTED}, index=1; {TWELVES}; pred[12] compare(m, o), direction=GT",
        f"{ARGMAX}first{ONE_OF_ROW}, direction=GE",
        f"x: pred[12]; {PLACES}; {TWELVES}; s = s32[12] select(x, p, m); {ZEROS}; pred[12] compare(z, s), direction=LE",
        f"x: u8[12]; c = s32[12] convert(x); {ZEROS}; pred[12] compare(c, z), direction=LT",
        f"x: pred[12]; c = s32[12] convert(x); {TWELVES}; pred[12] compare(c, m), direction=EQ",
        f"{PLACES}; {TWELVES}; d = s32[12] divide(p, m); r = s32[12] subtract(m, d); {ZEROS}; pred[12] compare(r, z), "
        "direction=NE",
        f"x: s32[12,1]; {PLACES}; g = s32[12] gather(p, x), offset_dims={{}}, collapsed_slice_dims={{0}}, "
        f"start_index_map={{0}}, index_vector_dim=1, slice_sizes={{1}}; {TWELVES}; pred[12] compare(g, m), direction=LT",
        f"{PLACES}; a = s32[] constant(7); c = s32[13] pad(p, a), padding=1_0; d = s32[25] concatenate(p, c), "
        "dimensions={0}; b = s32[] constant(12); m = s32[25] broadcast(b), dimensions={}; pred[25] compare(d, m), "
        "direction=GE",
        "x: f32[4,12]; q = (f32[4,3], s32[4,3]) topk(x), k=3, largest=true; o = s32[4,3] get-tuple-element(q), index=1; "
        "b = s32[] constant(12); m = s32[4,3] broadcast(b), dimensions={}; pred[4,3] compare(o, m), direction=LT",
    ),
    (
        f"i = T[12] iota(), iota_dimension=0; {number('11')}; pred[12] compare(i, n), direction=LT",
        f"x: T[12]; y: s32[12]; {SORTED}, index=1; {ZEROS}; pred[12] compare(o, z), direction=LT".replace(
            "sort(x, p)", "sort(x, y)"
        ),
        f"{ARGMAX}both{ONE_OF_ROW}, direction=GE",
        f"x: s8[12]; c = s32[12] convert(x); {ZEROS}; pred[12] compare(c, z), direction=LT",
        "x: s32[12]; c = u8[12] convert(x); k = u8[] constant(9); n = u8[12] broadcast(k), dimensions={}; pred[12] "
        "compare(c, n), direction=LT",
    ),
)
