"""The examples of `simplifier_examples` for rules that fold, multiply and branch."""

from __future__ import annotations

from simplifier_array_examples import EXAMPLES as EXAMPLES
from simplifier_examples import XY, X, example

# ---- reductions

ZERO, LOW = "z = T[] constant(0)", "z = T[] constant(LEAST)"
example(
    "reduce-of-nothing",
    "f",
    "x: T[4,0]; z: T[]; T[4] reduce(x, z), dimensions={1}, to_apply=add",
    "x: T[4,1]; z: T[]; T[4] reduce(x, z), dimensions={1}, to_apply=add",
)
example(
    "reduce-over-nothing",
    "i",
    f"x: T[4,1]; {ZERO}; T[4] reduce(x, z), dimensions={{1}}, to_apply=add",
    "x: T[4,1]; z: T[]; T[4] reduce(x, z), dimensions={1}, to_apply=add",
)
example(
    "reduce-of-one-element",
    "fi",
    (
        "x: T[4,1]; z: T[]; T[4] reduce(x, z), dimensions={1}, to_apply=add",
        "x: T[4,1,3]; z: T[]; T[4,3] reduce(x, z), dimensions={1}, to_apply=max",
        "x: T[4]; z: T[]; T[4] reduce(x, z), dimensions={}, to_apply=add",
    ),
    "x: T[4,2]; z: T[]; T[4] reduce(x, z), dimensions={1}, to_apply=add",
)
example(
    "reduce-of-transpose",
    "fi",
    f"x: T[4,3,2]; {ZERO}; t = T[2,4,3] transpose(x), dimensions={{2,0,1}}; T[4,3] reduce(t, z), dimensions={{0}}, "
    f"to_apply=add",
    f"x: T[4,3,2]; {ZERO}; t = T[2,3,4] transpose(x), dimensions={{2,1,0}}; T[3,4] reduce(t, z), dimensions={{0}}, "
    f"to_apply=add",
    True,
)
MOVED = f"x: T[4,3,2]; {ZERO}; t = T[2,4,3] transpose(x), dimensions={{2,0,1}}"
example(
    "reduce-of-moved",
    "fi",
    (
        f"{MOVED}; n = T[2,4,3] negate(t); T[4,3] reduce(n, z), dimensions={{0}}, to_apply=add",
        f"y: T[3]; {MOVED}; b = T[2,4,3] broadcast(y), dimensions={{2}}; n = T[2,4,3] negate(t); "
        f"m = T[2,4,3] multiply(n, t); s = T[2,4,3] subtract(m, b); a = T[2,4,3] add(s, n); "
        f"T[4,3] reduce(a, z), dimensions={{0}}, to_apply=add",
    ),
    (
        f"{MOVED}; n = T[2,4,3] negate(t); T[2,4] reduce(n, z), dimensions={{2}}, to_apply=add",
        f"y: T[2,4,3]; {MOVED}; n = T[2,4,3] add(t, y); T[4,3] reduce(n, z), dimensions={{0}}, to_apply=add",
        f"{MOVED}; n = T[2,4,3] negate(t); r = T[4,3] reduce(n, z), dimensions={{0}}, to_apply=add; "
        f"(T[4,3], T[2,4,3]) tuple(r, n)",
        f"y: T[2,3]; {MOVED}; b = T[2,4,3] broadcast(y), dimensions={{0,2}}; n = T[2,4,3] add(t, b); "
        f"T[4,3] reduce(n, z), dimensions={{0}}, to_apply=add",
    ),
    True,
)
example(
    "reduce-of-reshape",
    "fi",
    (
        f"x: T[4,6]; {ZERO}; r = T[4,2,3] reshape(x); T[4] reduce(r, z), dimensions={{1,2}}, to_apply=add",
        f"x: T[4,2,3]; {ZERO}; r = T[4,6] reshape(x); T[4] reduce(r, z), dimensions={{1}}, to_apply=add",
    ),
    f"x: T[4,6]; {ZERO}; r = T[4,2,3] reshape(x); T[4,2] reduce(r, z), dimensions={{2}}, to_apply=add",
    True,
)
example(
    "reduce-of-reduce",
    "gi",
    f"x: T[4,3,2]; {ZERO}; a = T[4,2] reduce(x, z), dimensions={{1}}, to_apply=add; T[4] reduce(a, z), "
    f"dimensions={{1}}, to_apply=add",
    f"x: T[4,3,2]; {ZERO}; a = T[4,2] reduce(x, z), dimensions={{1}}, to_apply=add; T[4] reduce(a, z), "
    f"dimensions={{1}}, to_apply=max",
    True,
)
example(
    "reduce-of-broadcast",
    "fi",
    (
        f"x: T[4]; {LOW}; b = T[4,3] broadcast(x), dimensions={{0}}; T[4] reduce(b, z), dimensions={{1}}, to_apply=max",
        f"x: T[4,2]; {LOW}; b = T[4,2,3] broadcast(x), dimensions={{0,1}}; T[4] reduce(b, z), dimensions={{1,2}}, "
        f"to_apply=max",
    ),
    f"x: T[4]; {ZERO}; b = T[4,3] broadcast(x), dimensions={{0}}; T[4] reduce(b, z), dimensions={{1}}, to_apply=add",
)
example(
    "reduce-of-pad",
    "fi",
    f"x: T[4,3]; {ZERO}; p = T[4,6] pad(x, z), padding=0_0x1_2; T[4] reduce(p, z), dimensions={{1}}, to_apply=add",
    f"x: T[4,3]; {ZERO}; p = T[5,3] pad(x, z), padding=1_0x0_0; T[5] reduce(p, z), dimensions={{1}}, to_apply=add",
    True,
)
example(
    "reduce-window-of-all",
    "fi",
    f"x: T[4,3]; {ZERO}; T[4,1] reduce-window(x, z), window={{size=1x3}}, to_apply=add",
    f"x: T[4,3]; {ZERO}; T[4,2] reduce-window(x, z), window={{size=1x2}}, to_apply=add",
    True,
)

# ---- dots

example(
    "dot-of-transpose",
    "fi",
    (
        "x: T[5,4]; y: T[5,3]; t = T[4,5] transpose(x), dimensions={1,0}; T[4,3] dot(t, y), lhs_contracting_dims={1}, "
        "rhs_contracting_dims={0}",
        "x: T[2,4,5]; y: T[2,3,5]; t = T[2,5,3] transpose(y), dimensions={0,2,1}; T[2,4,3] dot(x, t), "
        "lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={1}",
    ),
    "x: T[4,2,5]; y: T[2,5,3]; t = T[2,4,5] transpose(x), dimensions={1,0,2}; T[2,4,3] dot(t, y), lhs_batch_dims={0}, "
    "rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={1}",
    True,
)
DOT = (
    "x: T[2,4,5]; y: T[2,5,3]; d = T[2,4,3] dot(x, y), lhs_batch_dims={0}, rhs_batch_dims={0}, "
    "lhs_contracting_dims={2}, rhs_contracting_dims={1}"
)
example(
    "transpose-of-dot",
    "fi",
    f"{DOT}; T[2,3,4] transpose(d), dimensions={{0,2,1}}",
    f"{DOT}; T[4,2,3] transpose(d), dimensions={{1,0,2}}",
    True,
)
LATENT = (
    "w: T[4,3,5]; x: T[2,4,3]; k: T[2,7,5]; d = T[4,5,2] dot(w, x), lhs_batch_dims={0}, rhs_batch_dims={1}, "
    "lhs_contracting_dims={1}, rhs_contracting_dims={2}"
)
example(
    "dot-of-exchanged",
    "f",
    (
        f"{LATENT}; T[2,4,7] dot(d, k), lhs_batch_dims={{2}}, rhs_batch_dims={{0}}, lhs_contracting_dims={{1}}, "
        "rhs_contracting_dims={2}",
        f"{LATENT}; T[4,2,2,7] dot(d, k), lhs_contracting_dims={{1}}, rhs_contracting_dims={{2}}",
    ),
    (
        f"{LATENT}; z: T[2,7]; T[4,5,7] dot(d, z), lhs_contracting_dims={{2}}, rhs_contracting_dims={{0}}",
        f"{LATENT}; p = T[2,4,7] dot(d, k), lhs_batch_dims={{2}}, rhs_batch_dims={{0}}, lhs_contracting_dims={{1}}, "
        "rhs_contracting_dims={2}; (T[4,5,2], T[2,4,7]) tuple(d, p)",
    ),
    True,
)
example(
    "dot-of-nothing",
    "fi",
    "x: T[4,0]; y: T[0,3]; T[4,3] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
    "x: T[4,1]; y: T[1,3]; T[4,3] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
)
example(
    "dot-of-one",
    "fi",
    (
        "x: T[4,1]; y: T[1,3]; T[4,3] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
        "x: T[4,2]; y: T[3,2]; T[2,4,3] dot(x, y), lhs_batch_dims={1}, rhs_batch_dims={1}",
    ),
    "x: T[4,2]; y: T[2,3]; T[4,3] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
    True,
)

# ---- convolutions

W3 = "window={size=3}, dim_labels=b0f_0io->b0f"
example(
    "convolution-of-transpose",
    "g",
    f"x: T[5,8,2]; t = T[8,5,2] transpose(x), dimensions={{1,0,2}}; w: T[3,2,4]; T[8,3,4] convolution(t, w), {W3}",
    f"x: T[8,5,2]; w: T[3,2,4]; T[8,3,4] convolution(x, w), {W3}",
    True,
)
example(
    "transpose-of-convolution",
    "g",
    f"x: T[8,5,2]; w: T[3,2,4]; c = T[8,3,4] convolution(x, w), {W3}; T[4,8,3] transpose(c), dimensions={{2,0,1}}",
    f"x: T[8,5,2]; w: T[3,2,4]; c = T[8,3,4] convolution(x, w), {W3}; n = T[8,3,4] negate(c); T[4,8,3] transpose(n), "
    f"dimensions={{2,0,1}}",
    True,
)
example(
    "convolution-of-reverse",
    "g",
    f"x: T[8,5,2]; w: T[3,2,4]; r = T[3,2,4] reverse(w), dimensions={{0}}; T[8,3,4] convolution(x, r), {W3}",
    f"x: T[8,5,2]; w: T[3,2,4]; r = T[3,2,4] reverse(w), dimensions={{0,1}}; T[8,3,4] convolution(x, r), {W3}",
    True,
)
W1 = "window={size=1}, dim_labels=b0f_0io->b0f"
POINTS = "x: T[8,5,2]; w: T[1,2,4]; T[8,{}] convolution(x, w), window={{size=1 {}}}, dim_labels=b0f_0io->b0f"
example(
    "convolution-of-points",
    "g",
    (f"x: T[8,5,2]; w: T[1,2,4]; T[8,5,4] convolution(x, w), {W1}", POINTS.format("3,4", "stride=2")),
    (POINTS.format("7,4", "pad=1_1"), POINTS.format("9,4", "lhs_dilate=2")),
    True,
)

# ---- tuples, control, collectives, constants

example(
    "element-of-tuple",
    "f",
    f"{XY}; t = (T[12], T[12]) tuple(x, y); T[12] get-tuple-element(t), index=1",
    "t: (T[12], T[12]); T[12] get-tuple-element(t), index=1",
)
PAIR = "t: (T[12], T[12]); a = T[12] get-tuple-element(t), index=0; b = T[12] get-tuple-element(t), index=1"
example(
    "tuple-of-elements",
    "f",
    f"{PAIR}; u = (T[12], T[12]) tuple(a, b); T[12] get-tuple-element(u), index=0",
    f"{PAIR}; u = (T[12], T[12]) tuple(b, a); T[12] get-tuple-element(u), index=0",
)
example(
    "conditional-known",
    "f",
    f"{XY}; k = pred[] constant(false); T[12] conditional(k, x, y), true_computation=up, false_computation=down",
    f"{XY}; k: pred[]; T[12] conditional(k, x, y), true_computation=up, false_computation=down",
)
example(
    "map-of-operations",
    "fi",
    f"{XY}; T[12] map(x, y), dimensions={{0}}, to_apply=twice",
    f"{X}; T[12] map(x), dimensions={{0}}, to_apply=summed",
)
example(
    "collective-of-one",
    "f",
    f"{X}; T[12] all-reduce(x), replica_groups={{}}, to_apply=add",
    f"{X}; T[12] all-reduce(x), replica_groups={{{{0,1}}}}, to_apply=add",
)
example(
    "sharding-of-one",
    "fi",
    'x: T[12]; T[12] custom-call(x), custom_call_target="Sharding", sharding={{replicated}}',
    'x: T[12]; T[12] custom-call(x), custom_call_target="MoveToHost"',
)
example("value-of-nothing", "f", "x: T[0,3]; T[0,3] negate(x)", "x: T[1,3]; T[1,3] negate(x)")
example("constant-of-same", "fi", "T[3] constant({2, 2, 2})", "T[3] constant({2, 2, 3})")
example(
    "operation-on-constants",
    "fi",
    (
        "a = T[3] constant({1, 2, 3}); b = T[3] constant({4, 2, 7}); T[3] multiply(a, b)",
        "a = T[3] constant({1, 2, 3}); b = T[3] iota(), iota_dimension=0; T[3] multiply(a, b)",
    ),
    (
        "a = T[3] constant({1, 2, 3}); x: T[3]; T[3] multiply(a, x)",
        "k = T[] constant(2); n = T[3] broadcast(k), dimensions={}; b = T[3] iota(), iota_dimension=0; "
        "T[3] multiply(n, b)",
    ),
)
