"""The examples of `simplifier_examples` for rules that move elements, and look them up."""

from __future__ import annotations

from simplifier_examples import EXAMPLES, XY, M, X, example

__all__ = ["EXAMPLES"]

# ---- movement

example("reshape-to-itself", "f", f"{M}; T[4,3] reshape(x)", f"{M}; T[3,4] reshape(x)")
example(
    "reshape-of-reshape",
    "f",
    f"{M}; a = T[12] reshape(x); T[2,6] reshape(a)",
    f"{M}; a = T[3,4] transpose(x), dimensions={{1,0}}; T[12] reshape(a)",
)
example(
    "transpose-nothing",
    "f",
    f"{M}; T[4,3] transpose(x), dimensions={{0,1}}",
    f"{M}; T[3,4] transpose(x), dimensions={{1,0}}",
)
example(
    "transpose-of-transpose",
    "f",
    "x: T[4,3,2]; a = T[3,2,4] transpose(x), dimensions={1,2,0}; T[2,3,4] transpose(a), dimensions={1,0,2}",
    "x: T[4,3]; a = T[3,4] reshape(x); T[4,3] transpose(a), dimensions={1,0}",
)
example(
    "transpose-of-ones",
    "f",
    "x: T[4,1,3]; T[1,4,3] transpose(x), dimensions={1,0,2}",
    "x: T[4,2,3]; T[2,4,3] transpose(x), dimensions={1,0,2}",
)
example(
    "transpose-of-same",
    "f",
    "s: T[]; b = T[4,3] broadcast(s), dimensions={}; T[3,4] transpose(b), dimensions={1,0}",
    "s: T[4]; b = T[4,3] broadcast(s), dimensions={0}; T[3,4] transpose(b), dimensions={1,0}",
)
example(
    "reverse-nothing",
    "f",
    "x: T[4,1]; T[4,1] reverse(x), dimensions={1}",
    "x: T[4,1]; T[4,1] reverse(x), dimensions={0}",
)
example(
    "reverse-of-reverse",
    "f",
    f"{M}; a = T[4,3] reverse(x), dimensions={{0}}; T[4,3] reverse(a), dimensions={{0,1}}",
    f"{M}; T[4,3] reverse(x), dimensions={{0}}",
)
example("iota-of-one", "fi", "T[4,1] iota(), iota_dimension=1", "T[4,1] iota(), iota_dimension=0")
example(
    "reshape-iota",
    "i",
    "i = T[4,1] iota(), iota_dimension=0; T[1,4] reshape(i)",
    "i = T[4,2] iota(), iota_dimension=0; T[8] reshape(i)",
)
example(
    "transpose-of-iota",
    "i",
    "i = T[4,3] iota(), iota_dimension=0; T[3,4] transpose(i), dimensions={1,0}",
    f"{M}; T[3,4] transpose(x), dimensions={{1,0}}",
)

# ---- broadcasts

example(
    "broadcast-to-itself",
    "f",
    (f"{M}; T[4,3] broadcast(x), dimensions={{0,1}}", f"{M}; T[3,4] broadcast(x), dimensions={{1,0}}"),
    f"{M}; T[2,4,3] broadcast(x), dimensions={{1,2}}",
)
example(
    "broadcast-of-broadcast",
    "f",
    "x: T[4]; a = T[4,3] broadcast(x), dimensions={0}; T[2,4,3] broadcast(a), dimensions={1,2}",
    "x: T[12]; a = T[4,3] reshape(x); T[2,4,3] broadcast(a), dimensions={1,2}",
)
example(
    "broadcast-of-reshape",
    "f",
    "x: T[4]; a = T[4,1] reshape(x); T[4,1,3] broadcast(a), dimensions={0,1}",
    f"{X}; a = T[4,3] reshape(x); T[4,3,2] broadcast(a), dimensions={{0,1}}",
)
example(
    "broadcast-of-ones",
    "f",
    "x: T[4,1]; a = T[4,1] negate(x); T[4,1,3] broadcast(a), dimensions={0,1}",
    "x: T[4]; a = T[4] negate(x); T[4,3] broadcast(a), dimensions={0}",
)
example(
    "reshape-of-broadcast",
    "f",
    (
        "x: T[4]; a = T[4,3] broadcast(x), dimensions={0}; T[1,4,3] reshape(a)",
        "x: T[]; a = T[4,3] broadcast(x), dimensions={}; T[12] reshape(a)",
        "x: T[4,1]; a = T[4,1,6] broadcast(x), dimensions={0,1}; T[4,2,3] reshape(a)",
    ),
    "x: T[4]; a = T[4,3] broadcast(x), dimensions={0}; T[12] reshape(a)",
)
example(
    "transpose-of-broadcast",
    "f",
    "x: T[4]; a = T[4,3] broadcast(x), dimensions={0}; T[3,4] transpose(a), dimensions={1,0}",
    "x: T[4,2]; a = T[4,2,3] broadcast(x), dimensions={0,1}; T[2,4,3] transpose(a), dimensions={1,0,2}",
)
OUTER = "x: T[4,2]; y: T[4,3]; a = T[4,2,3] broadcast(x), dimensions={0,1}; b = T[4,2,3] broadcast(y), dimensions={0,2}"
OUTER += "; c = T[4,2,3] subtract(a, b)"
example(
    "transpose-of-operation",
    "fi",
    f"{OUTER}; T[4,3,2] transpose(c), dimensions={{0,2,1}}",
    (
        f"{OUTER}; T[3,4,2] transpose(c), dimensions={{2,0,1}}",
        f"{OUTER}; t = T[4,3,2] transpose(c), dimensions={{0,2,1}}; (T[4,3,2], T[4,2,3]) tuple(t, c)",
        f"z: T[4,2,3]; {OUTER}; d = T[4,2,3] add(a, z); T[4,3,2] transpose(d), dimensions={{0,2,1}}",
    ),
)
example(
    "operation-on-broadcasts",
    "f",
    (
        "x: T[]; y: T[]; a = T[12] broadcast(x), dimensions={}; b = T[12] broadcast(y), dimensions={}; T[12] add(a, b)",
        "x: T[4]; y: T[]; a = T[4,3] broadcast(x), dimensions={0}; b = T[4,3] broadcast(y), dimensions={}; T[4,3] "
        "multiply(a, b)",
    ),
    "x: T[4]; y: T[3]; a = T[4,3] broadcast(x), dimensions={0}; b = T[4,3] broadcast(y), dimensions={1}; T[4,3] add(a, "
    "b)",
)

# ---- slices

example(
    "slice-all", "f", f"{M}; T[4,3] slice(x), slice={{[0:4],[0:3]}}", f"{M}; T[4,2] slice(x), slice={{[0:4],[0:2]}}"
)
example(
    "slice-of-slice",
    "f",
    "x: T[20]; a = T[6] slice(x), slice={[2:20:3]}; T[2] slice(a), slice={[1:5:2]}",
    "x: T[20]; a = T[20] reverse(x), dimensions={0}; T[2] slice(a), slice={[1:5:2]}",
)
example(
    "slice-of-concatenate",
    "f",
    f"{XY}; c = T[24] concatenate(x, y), dimensions={{0}}; T[5] slice(c), slice={{[13:22:2]}}",
    f"{XY}; c = T[24] concatenate(x, y), dimensions={{0}}; T[4] slice(c), slice={{[10:14]}}",
)
example(
    "slice-of-broadcast",
    "f",
    "x: T[4]; a = T[4,3] broadcast(x), dimensions={0}; T[2,2] slice(a), slice={[1:4:2],[0:2]}",
    "x: T[4]; a = T[4,3] broadcast(x), dimensions={0}; b = T[4,3] negate(a); T[2,2] slice(b), slice={[1:4:2],[0:2]}",
)
PAD = "x: T[8]; v: T[]; a = T[14] pad(x, v), padding=2_4"
example(
    "slice-of-pad",
    "f",
    (f"{PAD}; T[4] slice(a), slice={{[3:7]}}", f"{PAD}; T[3] slice(a), slice={{[11:14]}}"),
    f"{PAD}; T[4] slice(a), slice={{[1:5]}}",
)
example(
    "slice-of-iota",
    "i",
    "i = T[4,6] iota(), iota_dimension=1; T[2,5] slice(i), slice={[2:4],[0:5]}",
    "i = T[4,6] iota(), iota_dimension=1; T[2,5] slice(i), slice={[2:4],[1:6]}",
)
example(
    "slice-of-reverse",
    "f",
    "x: T[9]; a = T[9] reverse(x), dimensions={0}; T[3] slice(a), slice={[1:6:2]}",
    "x: T[9]; a = T[9] negate(x); T[3] slice(a), slice={[1:6:2]}",
)
example(
    "slice-of-transpose",
    "f",
    f"{M}; a = T[3,4] transpose(x), dimensions={{1,0}}; T[2,2] slice(a), slice={{[1:3],[0:4:2]}}",
    f"{M}; a = T[3,4] transpose(x), dimensions={{1,0}}; b = T[2,2] slice(a), slice={{[1:3],[0:4:2]}}; c = T[3,4] "
    f"negate(a); (T[2,2], T[3,4]) tuple(b, c)",
)
example(
    "concatenate-of-one",
    "f",
    (
        "x: T[4]; T[4] concatenate(x), dimensions={0}",
        "x: T[4]; y: T[0]; z: T[2]; T[6] concatenate(x, y, z), dimensions={0}",
    ),
    "x: T[4]; y: T[2]; T[6] concatenate(x, y), dimensions={0}",
)
example(
    "concatenate-of-concatenate",
    "f",
    f"{XY}; c = T[24] concatenate(x, y), dimensions={{0}}; T[36] concatenate(c, x), dimensions={{0}}",
    "x: T[4,3]; c = T[8,3] concatenate(x, x), dimensions={0}; T[8,6] concatenate(c, c), dimensions={1}",
)
example(
    "concatenate-of-slices",
    "f",
    f"{X}; a = T[4] slice(x), slice={{[1:5]}}; b = T[3] slice(x), slice={{[5:8]}}; T[7] concatenate(a, b), "
    f"dimensions={{0}}",
    f"{X}; a = T[4] slice(x), slice={{[1:5]}}; b = T[3] slice(x), slice={{[6:9]}}; T[7] concatenate(a, b), "
    f"dimensions={{0}}",
)
example(
    "concatenate-of-same",
    "f",
    "s: T[]; a = T[4] broadcast(s), dimensions={}; b = T[3] broadcast(s), dimensions={}; T[7] concatenate(a, b), "
    "dimensions={0}",
    "s: T[]; r: T[]; a = T[4] broadcast(s), dimensions={}; b = T[3] broadcast(r), dimensions={}; T[7] concatenate(a, "
    "b), dimensions={0}",
)

# ---- pads

example(
    "pad-nothing", "f", "x: T[4]; v: T[]; T[4] pad(x, v), padding=0_0", "x: T[4]; v: T[]; T[4] pad(x, v), padding=1_-1"
)
example(
    "pad-of-empty", "f", "x: T[0]; v: T[]; T[4] pad(x, v), padding=3_1", "x: T[1]; v: T[]; T[5] pad(x, v), padding=3_1"
)
example(
    "pad-of-same",
    "f",
    "k = T[] constant(2); x = T[4] broadcast(k), dimensions={}; T[6] pad(x, k), padding=1_1",
    "k = T[] constant(2); j = T[] constant(3); x = T[4] broadcast(k), dimensions={}; T[6] pad(x, j), padding=1_1",
)
example(
    "pad-to-slice",
    "f",
    "x: T[6]; v: T[]; T[3] pad(x, v), padding=-1_-2",
    "x: T[6]; v: T[]; T[6] pad(x, v), padding=1_-1",
)
example(
    "pad-of-pad",
    "f",
    "x: T[4]; v: T[]; a = T[6] pad(x, v), padding=1_1; T[9] pad(a, v), padding=2_1",
    "x: T[4]; v: T[]; w: T[]; a = T[6] pad(x, v), padding=1_1; T[9] pad(a, w), padding=2_1",
)

# ---- indexing

KNOWN = "k = s32[] constant(7)"
example(
    "dynamic-slice-known",
    "f",
    (
        f"{X}; {KNOWN}; T[8] dynamic-slice(x, k), dynamic_slice_sizes={{8}}",
        "x: T[4]; i: s32[]; T[4] dynamic-slice(x, i), dynamic_slice_sizes={4}",
    ),
    f"{X}; i: s32[]; T[8] dynamic-slice(x, i), dynamic_slice_sizes={{8}}",
)
example(
    "dynamic-slice-of-broadcast",
    "f",
    "x: T[3]; i: s32[]; j: s32[]; b = T[8,3] broadcast(x), dimensions={1}; T[4,3] dynamic-slice(b, i, j), "
    "dynamic_slice_sizes={4,3}",
    "x: T[3]; i: s32[]; j: s32[]; b = T[8,3] broadcast(x), dimensions={1}; T[4,2] dynamic-slice(b, i, j), "
    "dynamic_slice_sizes={4,2}",
)
example(
    "update-all",
    "f",
    f"{XY}; i: s32[]; T[12] dynamic-update-slice(x, y, i)",
    f"{X}; y: T[3]; i: s32[]; T[12] dynamic-update-slice(x, y, i)",
)
example(
    "update-by-own-slice",
    "f",
    f"{X}; i: s32[]; a = T[3] dynamic-slice(x, i), dynamic_slice_sizes={{3}}; T[12] dynamic-update-slice(x, a, i)",
    f"{X}; i: s32[]; j: s32[]; a = T[3] dynamic-slice(x, i), dynamic_slice_sizes={{3}}; T[12] dynamic-update-slice(x, "
    f"a, j)",
)
example(
    "update-of-same",
    "f",
    f"s: T[]; y: T[3]; x = T[12] broadcast(s), dimensions={{}}; {KNOWN}; T[12] dynamic-update-slice(x, y, k)",
    "s: T[]; y: T[3]; i: s32[]; x = T[12] broadcast(s), dimensions={}; T[12] dynamic-update-slice(x, y, i)",
)
ROW = "offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1,3}"
example(
    "gather-one",
    "f",
    f"x: T[5,3]; i: s32[1,1]; T[1,3] gather(x, i), {ROW}",
    (
        f"x: T[5,3]; i: s32[2,1]; T[2,3] gather(x, i), {ROW}",
        "x: T[3]; i: s32[2,0]; T[2,3] gather(x, i), offset_dims={1}, collapsed_slice_dims={}, start_index_map={}, "
        "index_vector_dim=1, slice_sizes={3}",
    ),
)
example(
    "gather-rows-in-order",
    "f",
    f"x: T[5,3]; i = s32[5] iota(), iota_dimension=0; j = s32[5,1] reshape(i); T[5,3] gather(x, j), {ROW}",
    (
        f"x: T[5,3]; i = s32[4] iota(), iota_dimension=0; j = s32[4,1] reshape(i); T[4,3] gather(x, j), {ROW}",
        f"x: T[200,3]; i = s8[200,1] iota(), iota_dimension=0; T[200,3] gather(x, i), {ROW}",
    ),
)
HALVES = (
    "i = s32[10] iota(), iota_dimension=0; two = s32[] constant(2); t = s32[10] broadcast(two), dimensions={}; h = "
)
example(
    "gather-at-known-places",
    "f",
    f"x: T[5,3]; {HALVES}s32[10] divide(i, t); j = s32[10,1] reshape(h); T[10,3] gather(x, j), {ROW}",
    (
        f"x: T[5,3]; {HALVES}s32[10] subtract(t, i); j = s32[10,1] reshape(h); T[10,3] gather(x, j), {ROW}",
        f"x: T[5,3]; n: s32[10]; {HALVES}s32[10] divide(n, t); j = s32[10,1] reshape(h); T[10,3] gather(x, j), {ROW}",
    ),
)
SCATTER = (
    "update_window_dims={}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, "
    "to_apply=add"
)
example(
    "scatter-nothing",
    "f",
    f"x: T[5]; i: s32[0,1]; u: T[0]; T[5] scatter(x, i, u), {SCATTER}",
    f"x: T[5]; i: s32[1,1]; u: T[1]; T[5] scatter(x, i, u), {SCATTER}",
)
example(
    "sort-one",
    "f",
    "x: T[4,1]; T[4,1] sort(x), dimensions={1}, to_apply=less",
    "x: T[4,2]; T[4,2] sort(x), dimensions={1}, to_apply=less",
)
SORT = "x: T[4,7]; y: s32[4,7]; s = (T[4,7], s32[4,7]) sort(x, y), dimensions={1}, is_stable=true, to_apply=keys"
example(
    "sort-unread",
    "f",
    f"{SORT}; T[4,7] get-tuple-element(s), index=0",
    (f"{SORT}; s32[4,7] get-tuple-element(s), index=1", SORT.replace("s = ", "")),
)
ORDER = "p = s32[4,7] iota(), iota_dimension=1; s = (T[4,7], s32[4,7]) sort(x, p), dimensions={1}, to_apply=keys; "
PLACES = "o = s32[4,7] get-tuple-element(s), index=1; g = s32[4,7,1] reshape(o); "
BY_PLACE = (
    "offset_dims={}, collapsed_slice_dims={1}, start_index_map={1}, operand_batching_dims={0}, "
    "start_indices_batching_dims={0}, index_vector_dim=2, slice_sizes={1,1}"
)
COLUMN = (
    "s = (T[7], s32[7]) sort(x, p), dimensions={0}, to_apply=keys; o = s32[7] get-tuple-element(s), index=1; "
    "g = s32[7,1] reshape(o); T[7] gather(x, g), offset_dims={}, collapsed_slice_dims={0}, start_index_map={0}, "
    "index_vector_dim=1, slice_sizes={1}"
)
example(
    "gather-in-order-of-sort",
    "fi",
    (
        f"x: T[4,7]; {ORDER}{PLACES}T[4,7] gather(x, g), {BY_PLACE}",
        f"x: T[7]; p = s32[7] iota(), iota_dimension=0; {COLUMN}",
        f"x: T[4,7]; i = s32[7] iota(), iota_dimension=0; p = s32[4,7] broadcast(i), dimensions={{1}}; "
        f"{ORDER.partition('; ')[2]}{PLACES}T[4,7] gather(x, g), {BY_PLACE}",
    ),
    (
        f"x: T[4,7]; y: T[4,7]; {ORDER}{PLACES}T[4,7] gather(y, g), {BY_PLACE}",
        f"x: T[4,7]; {ORDER.replace('iota_dimension=1', 'iota_dimension=0')}{PLACES}T[4,7] gather(x, g), {BY_PLACE}",
        f"x: T[7]; p: s32[7]; {COLUMN}",
    ),
)
example(
    "size-known",
    "f",
    f"{M}; s32[] get-dimension-size(x), dimensions={{1}}",
    "x: T[<=4]; s32[] get-dimension-size(x), dimensions={0}",
)
