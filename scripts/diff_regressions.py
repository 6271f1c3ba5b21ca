"""Regressions as they happen in real programs, each as two texts: a type, a layout, an annotation or a barrier is
another one, and what follows from it is, too.

Every pair says which instructions the first difference must begin with, and the Python line that it must name. What
stands around the change is the same program in both.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Regression:
    """Two texts, the names of which one must be told first, and the Python line. `codes`: a refusal must be told with
    it; `worse`: it must be told as slower."""

    old: str
    new: str
    names: frozenset[str]
    line: str
    codes: bool = False
    worse: bool = True


_FOLDS = """HloModule step

add {
  add_a = f32[] parameter(0)
  add_b = f32[] parameter(1)
  ROOT add_r = f32[] add(add_a, add_b)
}

max {
  max_a = f32[] parameter(0)
  max_b = f32[] parameter(1)
  ROOT max_r = f32[] maximum(max_a, max_b)
}

"""


def _at(line: int) -> str:
    return f'metadata={{op_name="jit(step)/op" source_file="model.py" source_line={line}}}'


def _entry(*lines: str, before: str = "") -> str:
    """A module whose entry has these lines; `@N` at the end of one is its Python line."""
    made = [
        f"{text.rstrip()}, {_at(int(at))}" if at else text for text, _, at in (line.partition(" @") for line in lines)
    ]
    return f"{_FOLDS}{before}ENTRY main {{\n  " + "\n  ".join(made) + "\n}\n"


_SOFTMAX = (
    "low = f32[] constant(-inf)",
    "zero = f32[] constant(0)",
    "top = f32[512]{0} reduce(logits, low), dimensions={1}, to_apply=max @31",
    "tops = f32[512,1024]{1,0} broadcast(top), dimensions={0} @31",
    "shifted = f32[512,1024]{1,0} subtract(logits, tops) @31",
    "weights = f32[512,1024]{1,0} exponential(shifted) @32",
    "total = f32[512]{0} reduce(weights, zero), dimensions={1}, to_apply=add @33",
    "totals = f32[512,1024]{1,0} broadcast(total), dimensions={0} @33",
)
"""From `logits` to `weights` and `totals`."""
_PLAIN = (
    "logits = f32[512,1024]{1,0} parameter(0)",
    *_SOFTMAX,
    "ROOT probabilities = f32[512,1024]{1,0} divide(weights, totals) @33",
)


def _pair(
    old: tuple[str, ...],
    new: tuple[str, ...],
    names: str,
    line: int,
    before: str = "",
    *,
    codes: bool = False,
    worse: bool = True,
) -> Regression:
    texts = _entry(*old, before=before), _entry(*new, before=before)
    return Regression(*texts, frozenset(names.split()), f"model.py:{line}" if line else "", codes, worse)


def _replaced(lines: tuple[str, ...], *pairs: tuple[str, str]) -> tuple[str, ...]:
    """The lines with texts in them replaced; a line may become several."""
    text = "\n".join(lines)
    for old, new in pairs:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return tuple(text.split("\n"))


_PRODUCT = (
    "x = bf16[512,1024]{1,0} parameter(0)",
    "w = bf16[1024,1024]{1,0} parameter(1)",
    "y = bf16[512,1024]{1,0} dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0} @20",
    "b = bf16[512,1024]{1,0} parameter(2)",
    "biased = bf16[512,1024]{1,0} add(y, b) @21",
    "ROOT out = bf16[512,1024]{1,0} tanh(biased) @22",
)
_WIDE_PRODUCT = tuple(line.replace("bf16", "f32") for line in _PRODUCT)

_CAST_PRODUCT = (
    "x = f32[512,1024]{1,0} parameter(0)",
    "w = f32[1024,1024]{1,0} parameter(1)",
    "z = f32[512,1024]{1,0} sine(x) @19",
    "narrow = bf16[512,1024]{1,0} convert(z) @20",
    "u = bf16[1024,1024]{1,0} convert(w) @21",
    "y = bf16[512,1024]{1,0} dot(narrow, u), lhs_contracting_dims={1}, rhs_contracting_dims={0} @21",
    "ROOT out = bf16[512,1024]{1,0} tanh(y) @22",
)

_ACCUMULATED = _replaced(
    _PRODUCT,
    ("y = bf16[512,1024]{1,0} dot(x, w)", "wide = f32[512,1024]{1,0} dot(x, w)"),
    ("b = bf16", "y = bf16[512,1024]{1,0} convert(wide) @20\nb = bf16"),
)

_ROLLED_BODY = """body {
  body_s = (s32[], f32[4096,256]{1,0}) parameter(0)
  body_i = s32[] get-tuple-element(body_s), index=0
  body_one = s32[] constant(1)
  body_n = s32[] add(body_i, body_one)
  body_x = f32[4096,256]{1,0} get-tuple-element(body_s), index=1
  body_y = f32[4096,256]{1,0} sine(body_x)
  body_z = f32[4096,256]{1,0} multiply(body_y, body_x)
  ROOT body_r = (s32[], f32[4096,256]{1,0}) tuple(body_n, body_z)
}

condition {
  condition_s = (s32[], f32[4096,256]{1,0}) parameter(0)
  condition_i = s32[] get-tuple-element(condition_s), index=0
  condition_k = s32[] constant(3)
  ROOT condition_r = pred[] compare(condition_i, condition_k), direction=LT
}

"""
_UNROLLED = (
    "x0 = f32[4096,256]{1,0} parameter(0)",
    *(
        text
        for n in range(3)
        for text in (
            f"t{n} = f32[4096,256]{{1,0}} sine(x{n}) @50",
            f"x{n + 1} = f32[4096,256]{{1,0}} multiply(t{n}, x{n}) @50",
        )
    ),
    "ROOT end = f32[4096,256]{1,0} negate(x3) @55",
)
_ROLLED = (
    "x0 = f32[4096,256]{1,0} parameter(0)",
    "first = s32[] constant(0)",
    "state = (s32[], f32[4096,256]{1,0}) tuple(first, x0)",
    "loop = (s32[], f32[4096,256]{1,0}) while(state), condition=condition, body=body @50",
    "last = f32[4096,256]{1,0} get-tuple-element(loop), index=1 @50",
    "ROOT end = f32[4096,256]{1,0} negate(last) @55",
)

_ORDERS = """less {
  less_a = f32[] parameter(0)
  less_b = f32[] parameter(1)
  ROOT less_r = pred[] compare(less_a, less_b), direction=LT
}

total {
  total_a = f32[] parameter(0)
  total_b = f32[] parameter(1)
  ROOT total_r = pred[] compare(total_a, total_b), direction=GT, type=TOTALORDER
}

"""
_SORTED = (
    "x = f32[256,4096]{1,0} parameter(0)",
    "scaled = f32[256,4096]{1,0} multiply(x, x) @60",
    "ROOT ordered = f32[256,4096]{1,0} sort(scaled), dimensions={1}, is_stable=true, to_apply=less @61",
)

_SCATTERED = (
    "table = f32[1024,64]{1,0} parameter(0)",
    "rows = s32[8192,1]{1,0} parameter(1)",
    "updates = f32[8192,64]{1,0} parameter(2)",
    "twice = f32[8192,64]{1,0} add(updates, updates) @70",
    "ROOT scattered = f32[1024,64]{1,0} scatter(table, rows, twice), update_window_dims={1}, inserted_window_dims={0}, "
    "scatter_dims_to_operand_dims={0}, index_vector_dim=1, unique_indices=true, to_apply=add @71",
)

_GATHERED = (
    "table = f32[65536,64]{1,0} parameter(0)",
    "rows = s32[8192,1]{1,0} parameter(1)",
    "taken = f32[8192,64]{1,0} gather(table, rows), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, "
    "index_vector_dim=1, "
    "slice_sizes={1,64}, indices_are_sorted=true @80",
    "ROOT out = f32[8192,64]{1,0} tanh(taken) @81",
)

_SLICED = (
    "cache = f32[64,1024]{1,0} parameter(0)",
    "place = s32[] parameter(1)",
    "zero = s32[] constant(0)",
    "row = f32[1,1024]{1,0} dynamic-slice(cache, place, zero), dynamic_slice_sizes={1,1024} @90",
    "ROOT out = f32[1,1024]{1,0} exponential(row) @91",
)

_NARROW_PRODUCT = (
    "x = f32[256,1024]{1,0} parameter(0)",
    "w = f32[1024,8]{1,0} parameter(1)",
    "t = f32[256,1024]{1,0} tanh(x) @12",
)
_AS_PRODUCT = (
    *_NARROW_PRODUCT,
    "ROOT y = f32[256,8]{1,0} dot(t, w), lhs_contracting_dims={1}, rhs_contracting_dims={0} @14",
)
_AS_LOOP = (
    *_NARROW_PRODUCT,
    "zero = f32[] constant(0)",
    "rows = f32[256,1024,8]{2,1,0} broadcast(t), dimensions={0,1} @14",
    "columns = f32[256,1024,8]{2,1,0} broadcast(w), dimensions={1,2} @14",
    "terms = f32[256,1024,8]{2,1,0} multiply(rows, columns) @14",
    "ROOT y = f32[256,8]{1,0} reduce(terms, zero), dimensions={1}, to_apply=add @14",
)

_TABLE = ("table = f32[4096,64]{1,0} parameter(0)", "rows = s32[1024]{0} parameter(1)")
_TAKEN_BY_INDEX = (
    *_TABLE,
    "places = s32[1024,1]{1,0} reshape(rows) @20",
    "taken = f32[1024,64]{1,0} gather(table, places), offset_dims={1}, collapsed_slice_dims={0}, "
    "start_index_map={0}, index_vector_dim=1, slice_sizes={1,64} @20",
    "ROOT out = f32[1024,64]{1,0} tanh(taken) @21",
)
_TAKEN_BY_PRODUCT = (
    *_TABLE,
    "numbers = s32[1024,4096]{1,0} iota(), iota_dimension=1 @20",
    "wanted = s32[1024,4096]{1,0} broadcast(rows), dimensions={0} @20",
    "equal = pred[1024,4096]{1,0} compare(numbers, wanted), direction=EQ @20",
    "ones = f32[1024,4096]{1,0} convert(equal) @20",
    "taken = f32[1024,64]{1,0} dot(ones, table), lhs_contracting_dims={1}, rhs_contracting_dims={0} @20",
    "ROOT out = f32[1024,64]{1,0} tanh(taken) @21",
)

_REDUCED = (
    "gradient = f32[4096,256]{1,0} parameter(0)",
    "scaled = f32[4096,256]{1,0} multiply(gradient, gradient) @30",
    "whole = f32[4096,256]{1,0} all-reduce(scaled), channel_id=1, replica_groups={{0,1,2,3}}, "
    "use_global_device_ids=true, to_apply=add @31",
    "ROOT out = f32[4096,256]{1,0} tanh(whole) @32",
)
_SCATTERED_AND_GATHERED = _replaced(
    _REDUCED,
    (
        "whole = f32[4096,256]{1,0} all-reduce(scaled), channel_id=1, replica_groups={{0,1,2,3}}, "
        "use_global_device_ids=true, to_apply=add @31",
        "part = f32[1024,256]{1,0} reduce-scatter(scaled), channel_id=1, replica_groups={{0,1,2,3}}, "
        "use_global_device_ids=true, dimensions={0}, to_apply=add @31\n"
        "whole = f32[4096,256]{1,0} all-gather(part), channel_id=2, replica_groups={{0,1,2,3}}, "
        "use_global_device_ids=true, dimensions={0} @31",
    ),
)

_KEPT = (
    "cache = f32[64,4096]{1,0} parameter(0)",
    "row = f32[1,4096]{1,0} parameter(1)",
    "place = s32[] parameter(2)",
    "zero = s32[] constant(0)",
    "ROOT out = f32[64,4096]{1,0} dynamic-update-slice(cache, row, place, zero) @70",
)
_COPIED = _replaced(
    _KEPT,
    ("zero = s32[]", "copied = f32[64,4096]{1,0} copy(cache) @70\nzero = s32[]"),
    ("dynamic-update-slice(cache,", "dynamic-update-slice(copied,"),
)


_RAMP = (
    "x = f32[256,512]{1,0} parameter(0)",
    "down = f32[256,512]{1,0} negate(x) @18",
    "numbers = f32[512]{0} iota(), iota_dimension=0 @17",
    "step = f32[] constant(512)",
    "steps = f32[512]{0} broadcast(step), dimensions={} @17",
    "ramp = f32[512]{0} divide(numbers, steps) @17",
    "ramps = f32[256,512]{1,0} broadcast(ramp), dimensions={1} @18",
    "decay = f32[256,512]{1,0} multiply(down, ramps) @18",
    "ROOT out = f32[256,512]{1,0} exponential(decay) @18",
)
_WIDE_RAMP = (
    "x = f32[256,512]{1,0} parameter(0)",
    "down = f32[256,512]{1,0} negate(x) @18",
    "wide = f64[256,512]{1,0} convert(down) @18",
    "numbers = s64[512]{0} iota(), iota_dimension=0 @17",
    "count = f64[512]{0} convert(numbers) @17",
    "step = f64[] constant(512)",
    "steps = f64[512]{0} broadcast(step), dimensions={} @17",
    "ramp = f64[512]{0} divide(count, steps) @17",
    "ramps = f64[256,512]{1,0} broadcast(ramp), dimensions={1} @18",
    "decay = f64[256,512]{1,0} multiply(wide, ramps) @18",
    "ROOT out = f64[256,512]{1,0} exponential(decay) @18",
)

_GATE = (
    "x = f32[128,512]{1,0} parameter(0)",
    "half = f32[] constant(0.5)",
    "halves = f32[128,512]{1,0} broadcast(half), dimensions={} @44",
    "one = f32[] constant(1)",
    "ones = f32[128,512]{1,0} broadcast(one), dimensions={} @44",
    "scale = f32[] constant(0.8)",
    "scales = f32[128,512]{1,0} broadcast(scale), dimensions={} @44",
    "square = f32[128,512]{1,0} multiply(x, x) @44",
    "cube = f32[128,512]{1,0} multiply(square, x) @44",
    "both = f32[128,512]{1,0} add(x, cube) @44",
    "scaled = f32[128,512]{1,0} multiply(both, scales) @44",
    "bent = f32[128,512]{1,0} tanh(scaled) @44",
    "more = f32[128,512]{1,0} add(bent, ones) @44",
    "gate = f32[128,512]{1,0} multiply(more, halves) @44",
    "ROOT out = f32[128,512]{1,0} multiply(x, gate) @44",
)
_OTHER_GATE = _replaced(
    _GATE,
    (
        "square = f32[128,512]{1,0} multiply(x, x) @44\n"
        "cube = f32[128,512]{1,0} multiply(square, x) @44\n"
        "both = f32[128,512]{1,0} add(x, cube) @44\n"
        "scaled = f32[128,512]{1,0} multiply(both, scales) @44\n"
        "bent = f32[128,512]{1,0} tanh(scaled) @44\n",
        "down = f32[128,512]{1,0} negate(x) @44\n"
        "raised = f32[128,512]{1,0} exponential(down) @44\n"
        "under = f32[128,512]{1,0} add(raised, ones) @44\n"
        "bent = f32[128,512]{1,0} divide(ones, under) @44\n",
    ),
)

_CHOSEN = (
    "p = pred[] parameter(0)",
    "x = f32[512,512]{1,0} parameter(1)",
    "one = f32[512,512]{1,0} sine(x) @50",
    "other = f32[512,512]{1,0} cosine(x) @50",
    "ps = pred[512,512]{1,0} broadcast(p), dimensions={} @50",
    "ROOT out = f32[512,512]{1,0} select(ps, one, other) @50",
)
_BRANCHES = """yes {
  yes_x = f32[512,512]{1,0} parameter(0)
  ROOT yes_r = f32[512,512]{1,0} sine(yes_x)
}

no {
  no_x = f32[512,512]{1,0} parameter(0)
  ROOT no_r = f32[512,512]{1,0} cosine(no_x)
}

"""
_BRANCHED = (
    *_CHOSEN[:2],
    "ROOT out = f32[512,512]{1,0} conditional(p, x, x), true_computation=yes, false_computation=no @50",
)


def _with_header(entry: tuple[str, ...], header: str) -> str:
    return _entry(*entry).replace("HloModule step", f"HloModule step, {header}", 1)


REGRESSIONS: dict[str, Regression] = {
    "bf16 became f32": _pair(_PRODUCT, _WIDE_PRODUCT, "y x w b biased out", 20),
    "a product that is summed in f32": _pair(_PRODUCT, _ACCUMULATED, "y wide", 20),
    "a convert there and back": _pair(
        _PLAIN,
        _replaced(
            _PLAIN,
            ("ROOT probabilities", "small = bf16[512,1024]{1,0} convert(weights) @32\nlarge = f32[512,1024]{1,0} "
                                   "convert(small) @32\nROOT probabilities"),
            ("divide(weights, totals)", "divide(large, totals)"),
        ),
        "small large",
        32,
        worse=False,
    ),
    "another user keeps a value": _pair(
        _PLAIN,
        _replaced(
            _PLAIN,
            ("ROOT probabilities", "probabilities"),
            ("divide(weights, totals) @33", "divide(weights, totals) @33\nROOT both = (f32[512,1024]{1,0}, "
                                            "f32[512,1024]{1,0}) tuple(probabilities, weights)"),
        ),
        "weights",
        32,
    ),
    "a barrier inside a softmax": _pair(
        _PLAIN,
        _replaced(
            _PLAIN,
            ("total = f32[512]{0} reduce(weights,", "held = f32[512,1024]{1,0} opt-barrier(weights) @40\ntotal = "
                                                    "f32[512]{0} reduce(held,"),
            ("divide(weights, totals)", "divide(held, totals)"),
        ),
        "held",
        40,
        codes=True,
    ),
    "a cast that is gone, and one that promotes the other operand": _pair(
        _CAST_PRODUCT,
        (
            *_CAST_PRODUCT[:3],
            "u = bf16[1024,1024]{1,0} convert(w) @21",
            "wide = f32[1024,1024]{1,0} convert(u) @21",
            "y = f32[512,1024]{1,0} dot(z, wide), lhs_contracting_dims={1}, rhs_contracting_dims={0} @21",
            "ROOT out = f32[512,1024]{1,0} tanh(y) @22",
        ),
        "narrow",
        20,
    ),
    "another layout of an input": _pair(
        _PLAIN,
        _replaced(
            _PLAIN,
            ("logits = f32[512,1024]{1,0} parameter(0)", "given = f32[512,1024]{0,1} parameter(0)\nlogits = "
                                                         "f32[512,1024]{1,0} copy(given) @30"),
        ),
        "given logits",
        30,
    ),
    "a loop that is no longer unrolled": _pair(_UNROLLED, _ROLLED, "loop", 50, _ROLLED_BODY, worse=False),
    "a loop that is unrolled": _pair(_ROLLED, _UNROLLED, "loop", 50, _ROLLED_BODY, worse=False),
    "another comparator": _pair(_SORTED, _replaced(_SORTED, ("to_apply=less", "to_apply=total")), "ordered", 61,
        _ORDERS, worse=False),
    "a scatter that takes the "
    "larger": _pair(_SCATTERED, _replaced(_SCATTERED, ("to_apply=add", "to_apply=max")), "scattered", 71, worse=False),
    "indices that may be equal "
    "now": _pair(_SCATTERED, _replaced(_SCATTERED, (", unique_indices=true", "")), "scattered", 71, worse=False),
    "indices out of order": _pair(_GATHERED, _replaced(_GATHERED, (", indices_are_sorted=true", "")), "taken", 80,
        worse=False),
    "a slice that became a gather": _pair(
        _SLICED,
        _replaced(
            _SLICED,
            ("zero = s32[] constant(0)", "rows = s32[1]{0} reshape(place) @90"),
            (
                "dynamic-slice(cache, place, zero), dynamic_slice_sizes={1,1024}",
                "gather(cache, rows), offset_dims={0,1}, collapsed_slice_dims={}, start_index_map={0}, "
                "index_vector_dim=0, slice_sizes={1,1024}",
            ),
        ),
        "row rows",
        90,
        worse=False,
    ),
    "an all-reduce more": _pair(
        _PLAIN,
        _replaced(
            _PLAIN,
            ("totals = f32[512,1024]{1,0} broadcast(total)",
                "summed = f32[512]{0} all-reduce(total), replica_groups={}, to_apply=add @34\n"
                "totals = f32[512,1024]{1,0} broadcast(summed)"),
        ),
        "summed",
        34,
        worse=False,  # there is one device, so that simplifying takes it out
    ),
    "a product of highest precision": _pair(
        _WIDE_PRODUCT,
        _replaced(_WIDE_PRODUCT,
            ("rhs_contracting_dims={0}", "rhs_contracting_dims={0}, operand_precision={highest,highest}")),
        "y",
        20,
        worse=False,
    ),
    "a softmax in f32 in the middle": Regression(
        _entry(*_PLAIN).replace("f32", "bf16"),
        _entry(
            "logits = bf16[512,1024]{1,0} parameter(0)",
            "wide = f32[512,1024]{1,0} convert(logits) @29",
            *(line.replace("logits", "wide") for line in _SOFTMAX),
            "quotients = f32[512,1024]{1,0} divide(weights, totals) @33",
            "ROOT probabilities = bf16[512,1024]{1,0} convert(quotients) @33",
        ),
        frozenset({"wide"}),
        "model.py:29",
        worse=False,
    ),
    "a product that became a loop": _pair(_AS_PRODUCT, _AS_LOOP, "y", 14, worse=False),
    "rows taken by a product": _pair(_TAKEN_BY_INDEX, _TAKEN_BY_PRODUCT, "taken", 20),
    "an all-reduce in two": Regression(
        _with_header(_REDUCED, "num_partitions=4"),
        _with_header(_SCATTERED_AND_GATHERED, "num_partitions=4"),
        frozenset({"whole", "part"}),
        "model.py:31",
    ),
    "a donation that is lost": Regression(
        _with_header(_KEPT, "input_output_alias={ {}: (0, {}, may-alias) }"),
        _entry(*_COPIED),
        frozenset({"`cache`"}),
        "model.py:70",
        worse=False,
    ),
    "a chain that is computed again": _pair(
        _replaced(
            _PLAIN,
            ("ROOT probabilities", "probabilities"),
            ("divide(weights, totals) @33",
                "divide(weights, totals) @33\nROOT out = f32[512,1024]{1,0} multiply(weights, probabilities) @35"),
        ),
        _replaced(
            _PLAIN,
            ("ROOT probabilities", "probabilities"),
            (
                "divide(weights, totals) @33",
                "divide(weights, totals) @33\nheld = (f32[512,1024]{1,0}, f32[512]{0}) tuple(logits, top) @34\n"
                "kept = (f32[512,1024]{1,0}, f32[512]{0}) opt-barrier(held) @34\n"
                "logits2 = f32[512,1024]{1,0} get-tuple-element(kept), index=0 @34\n"
                "top2 = f32[512]{0} get-tuple-element(kept), index=1 @34\n"
                "tops2 = f32[512,1024]{1,0} broadcast(top2), dimensions={0} @34\n"
                "shifted2 = f32[512,1024]{1,0} subtract(logits2, tops2) @34\n"
                "weights2 = f32[512,1024]{1,0} exponential(shifted2) @34\n"
                "ROOT out = f32[512,1024]{1,0} multiply(weights2, probabilities) @35",
            ),
        ),
        "kept",
        34,
    ),
    "a variance in two readings": _pair(
        (
            "x = f32[64,131072]{1,0} parameter(0)",
            "zero = f32[] constant(0)",
            "squares = f32[64,131072]{1,0} multiply(x, x) @11",
            "moment = f32[64]{0} reduce(squares, zero), dimensions={1}, to_apply=add @11",
            "ROOT out = f32[64]{0} sqrt(moment) @12",
        ),
        (
            "x = f32[64,131072]{1,0} parameter(0)",
            "zero = f32[] constant(0)",
            "sum = f32[64]{0} reduce(x, zero), dimensions={1}, to_apply=add @10",
            "sums = f32[64,131072]{1,0} broadcast(sum), dimensions={0} @10",
            "away = f32[64,131072]{1,0} subtract(x, sums) @11",
            "squares = f32[64,131072]{1,0} multiply(away, away) @11",
            "moment = f32[64]{0} reduce(squares, zero), dimensions={1}, to_apply=add @11",
            "ROOT out = f32[64]{0} sqrt(moment) @12",
        ),
        "squares away sum sums",
        10,
    ),
    "a ramp of integers in f64": _pair(_RAMP, _WIDE_RAMP, "numbers", 17),
    "another gate": _pair(_GATE, _OTHER_GATE, "bent raised", 44, worse=False),
    "a select that became a conditional": _pair(_CHOSEN, _BRANCHED, "out", 50, _BRANCHES),
}  # fmt: skip
