"""Regressions in which something is lost, as two texts each: one pass over a row, an early end of a loop, an overlap, a
library's convolution, a narrow type. See `scripts/diff_regressions.py`."""

from __future__ import annotations

from dataclasses import replace

from scripts.diff_regressions import _PLAIN, _ROLLED, _ROLLED_BODY, Regression, _pair, _replaced

_OVERLAPPED = (
    "gradient = f32[4096,4096]{1,0} parameter(0)",
    "x = f32[4096,4096]{1,0} parameter(1)",
    "begun = f32[4096,4096]{1,0} all-reduce-start(gradient), replica_groups={}, to_apply=add @61",
    "y = f32[4096,4096]{1,0} dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0} @62",
    "summed = f32[4096,4096]{1,0} all-reduce-done(begun) @61",
    "ROOT out = f32[4096,4096]{1,0} add(y, summed) @63",
)

_NARROWED = (
    "x = f32[2048,2048]{1,0} parameter(0)",
    "w = f32[2048,2048]{1,0} parameter(1)",
    "weights = f32[2048,2048]{1,0} exponential(x) @71",
    "narrow_x = bf16[2048,2048]{1,0} convert(weights) @72",
    "narrow_w = bf16[2048,2048]{1,0} convert(w) @72",
    "y = f32[2048,2048]{1,0} dot(narrow_x, narrow_w), lhs_contracting_dims={1}, rhs_contracting_dims={0} @72",
    "ROOT out = f32[2048,2048]{1,0} tanh(y) @73",
)

_CONVOLVED = (
    "x = f32[16,66,128]{2,1,0} parameter(0)",
    "w = f32[3,128,128]{2,1,0} parameter(1)",
    "y = f32[16,64,128]{2,1,0} convolution(x, w), window={size=3}, dim_labels=b0f_0io->b0f @81",
    "ROOT out = f32[16,64,128]{2,1,0} tanh(y) @82",
)
_TAPS = """taps {
  taps_s = (s32[], f32[16,66,128]{2,1,0}, f32[3,128,128]{2,1,0}, f32[16,64,128]{2,1,0}) parameter(0)
  taps_i = s32[] get-tuple-element(taps_s), index=0
  taps_x = f32[16,66,128]{2,1,0} get-tuple-element(taps_s), index=1
  taps_w = f32[3,128,128]{2,1,0} get-tuple-element(taps_s), index=2
  taps_y = f32[16,64,128]{2,1,0} get-tuple-element(taps_s), index=3
  taps_one = s32[] constant(1)
  taps_zero = s32[] constant(0)
  taps_n = s32[] add(taps_i, taps_one)
  taps_a = f32[16,64,128]{2,1,0} dynamic-slice(taps_x, taps_zero, taps_i, taps_zero), dynamic_slice_sizes={16,64,128}
  taps_b = f32[1,128,128]{2,1,0} dynamic-slice(taps_w, taps_i, taps_zero, taps_zero), dynamic_slice_sizes={1,128,128}
  taps_c = f32[128,128]{1,0} reshape(taps_b)
  taps_d = f32[16,64,128]{2,1,0} dot(taps_a, taps_c), lhs_contracting_dims={2}, rhs_contracting_dims={0}
  taps_e = f32[16,64,128]{2,1,0} add(taps_y, taps_d)
  ROOT taps_r = (s32[], f32[16,66,128], f32[3,128,128], f32[16,64,128]) tuple(taps_n, taps_x, taps_w, taps_e)
}

more {
  more_s = (s32[], f32[16,66,128]{2,1,0}, f32[3,128,128]{2,1,0}, f32[16,64,128]{2,1,0}) parameter(0)
  more_i = s32[] get-tuple-element(more_s), index=0
  more_k = s32[] constant(3)
  ROOT more_r = pred[] compare(more_i, more_k), direction=LT
}

"""
_STATE = "(s32[], f32[16,66,128]{2,1,0}, f32[3,128,128]{2,1,0}, f32[16,64,128]{2,1,0})"
_BY_TAPS = (
    *_CONVOLVED[:2],
    "first = s32[] constant(0)",
    "zero = f32[] constant(0)",
    "zeros = f32[16,64,128]{2,1,0} broadcast(zero), dimensions={} @81",
    f"state = {_STATE} tuple(first, x, w, zeros) @81",
    f"loop = {_STATE} while(state), condition=more, body=taps @81",
    "y = f32[16,64,128]{2,1,0} get-tuple-element(loop), index=3 @81",
    _CONVOLVED[-1],
)

LOST: dict[str, Regression] = {
    "a softmax whose sum is split by a reshape": _pair(
        _PLAIN,
        _replaced(
            _PLAIN,
            (
                "total = f32[512]{0} reduce(weights, zero), dimensions={1}",
                "pieces = f32[512,2,512]{2,1,0} reshape(weights) @33\n"
                "partial = f32[512,2]{1,0} reduce(pieces, zero), dimensions={2}, to_apply=add @33\n"
                "total = f32[512]{0} reduce(partial, zero), dimensions={1}",
            ),
        ),
        "pieces partial total",
        33,
        worse=False,
    ),
    "a collective that nothing overlaps": _pair(
        _OVERLAPPED,
        _replaced(
            _OVERLAPPED,
            ("begun = f32[4096,4096]{1,0} all-reduce-start", "summed = f32[4096,4096]{1,0} all-reduce"),
            ("\nsummed = f32[4096,4096]{1,0} all-reduce-done(begun) @61", ""),
        ),
        "begun summed",
        61,
        worse=False,
    ),
    "a product that reads f32 again": _pair(
        _NARROWED,
        (
            *_NARROWED[:3],
            _NARROWED[5].replace("narrow_x", "weights").replace("narrow_w", "w"),
            _NARROWED[6],
        ),
        "narrow_x narrow_w y",
        72,
    ),
    "a convolution that became a loop": _pair(_CONVOLVED, _BY_TAPS, "y loop", 81, before=_TAPS, worse=False),
}
"""Each by what a user would say of it."""


def _on_eight_devices(one: Regression) -> Regression:
    old, new = (text.replace("HloModule step", "HloModule step, replica_count=8", 1) for text in (one.old, one.new))
    return replace(one, old=old, new=new)


def _more_rounds() -> Regression:
    one = _pair(_ROLLED, _ROLLED, "condition_k loop", 50, before=_ROLLED_BODY)
    text = one.new.replace("condition_k = s32[] constant(3)", "condition_k = s32[] constant(30)")
    return replace(one, new=text)


LOST["a loop of more rounds"] = _more_rounds()
LOST["a collective that nothing overlaps"] = _on_eight_devices(LOST["a collective that nothing overlaps"])
