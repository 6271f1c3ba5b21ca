"""What lies between kernels becomes less: where operations move to the reader, that values stay, and what is left."""

from __future__ import annotations

import numpy as np
import pytest

import hlo_opt
from hlo_opt.evaluate.inputs import module_inputs
from hlo_opt.ir import Module
from hlo_opt.passes.run import run
from tests.small_modules import H100

HEAD = """HloModule m

add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}

less {
  a = s64[] parameter(0)
  b = s64[] parameter(1)
  ROOT s = s64[] maximum(a, b)
}
"""
READER = """
k1 {
  x = f32[512,4096]{1,0} parameter(0)
  zero = f32[] constant(0)
  ROOT c = f32[4096]{0} reduce(x, zero), dimensions={0}, to_apply=add
}
"""
CONVERT = f"""{HEAD}
k0 {{
  p = bf16[512,4096]{{1,0}} parameter(0)
  n = bf16[512,4096]{{1,0}} negate(p)
  w = f32[512,4096]{{1,0}} convert(n)
  two = f32[] constant(2)
  twos = f32[512,4096]{{1,0}} broadcast(two), dimensions={{}}
  ROOT m = f32[512,4096]{{1,0}} multiply(w, twos)
}}
{READER}
ENTRY e {{
  p = bf16[512,4096]{{1,0}} parameter(0)
  k = f32[512,4096]{{1,0}} fusion(p), kind=kLoop, calls=k0
  ROOT c = f32[4096]{{0}} fusion(k), kind=kInput, calls=k1
}}
"""
REVERSED = CONVERT.replace(
    "ROOT m = f32[512,4096]{1,0} multiply(w, twos)", "ROOT m = f32[512,4096]{1,0} reverse(w), dimensions={0}"
)
TWO = f"""{HEAD}
k0 {{
  p = bf16[512,4096]{{1,0}} parameter(0)
  n = bf16[512,4096]{{1,0}} negate(p)
  w = f32[512,4096]{{1,0}} convert(n)
  ROOT r = (bf16[512,4096]{{1,0}}, f32[512,4096]{{1,0}}) tuple(n, w)
}}
{READER}
ENTRY e {{
  p = bf16[512,4096]{{1,0}} parameter(0)
  k = (bf16[512,4096]{{1,0}}, f32[512,4096]{{1,0}}) fusion(p), kind=kLoop, calls=k0
  n = bf16[512,4096]{{1,0}} get-tuple-element(k), index=0
  w = f32[512,4096]{{1,0}} get-tuple-element(k), index=1
  c = f32[4096]{{0}} fusion(w), kind=kInput, calls=k1
  ROOT o = (bf16[512,4096]{{1,0}}, f32[4096]{{0}}) tuple(n, c)
}}
"""
KEYS = f"""{HEAD}
k0 {{
  p = f32[256,4096]{{1,0}} parameter(0)
  n = f32[256,4096]{{1,0}} tanh(p)
  b = s32[256,4096]{{1,0}} bitcast-convert(n)
  w = s64[256,4096]{{1,0}} convert(b)
  i = s64[256,4096]{{1,0}} iota(), iota_dimension=1
  ROOT m = s64[256,4096]{{1,0}} xor(w, i)
}}

k1 {{
  x = s64[256,4096]{{1,0}} parameter(0)
  y = s64[256,4096]{{1,0}} parameter(1)
  d = s64[256,4096]{{1,0}} subtract(x, y)
  zero = s64[] constant(0)
  ROOT c = s64[256]{{0}} reduce(d, zero), dimensions={{1}}, to_apply=less
}}

ENTRY e {{
  p = f32[256,4096]{{1,0}} parameter(0)
  k = s64[256,4096]{{1,0}} fusion(p), kind=kLoop, calls=k0
  ROOT c = s64[256]{{0}} fusion(k, k), kind=kInput, calls=k1
}}
"""
MASK = f"""{HEAD}
k0 {{
  p = s32[8192]{{0}} parameter(0)
  q = s32[8192,64]{{1,0}} broadcast(p), dimensions={{0}}
  i = s32[64]{{0}} iota(), iota_dimension=0
  j = s32[8192,64]{{1,0}} broadcast(i), dimensions={{1}}
  e = pred[8192,64]{{1,0}} compare(q, j), direction=EQ
  w = f32[8192,64]{{1,0}} convert(e)
  zero = f32[] constant(0)
  n = f32[64]{{0}} reduce(w, zero), dimensions={{0}}, to_apply=add
  ROOT r = (f32[64]{{0}}, f32[8192,64]{{1,0}}) tuple(n, w)
}}

k1 {{
  m = f32[8192,64]{{1,0}} parameter(0)
  x = f32[8192,16]{{1,0}} parameter(1)
  d = f32[64,16]{{1,0}} dot(m, x), lhs_contracting_dims={{0}}, rhs_contracting_dims={{0}}
  ROOT s = f32[64,16]{{1,0}} negate(d)
}}

ENTRY e {{
  p = s32[8192]{{0}} parameter(0)
  x = f32[8192,16]{{1,0}} parameter(1)
  k = (f32[64]{{0}}, f32[8192,64]{{1,0}}) fusion(p), kind=kInput, calls=k0
  n = f32[64]{{0}} get-tuple-element(k), index=0
  m = f32[8192,64]{{1,0}} get-tuple-element(k), index=1
  c = f32[64,16]{{1,0}} fusion(m, x), kind=kLoop, calls=k1
  ROOT r = (f32[64]{{0}}, f32[64,16]{{1,0}}) tuple(n, c)
}}
"""
"""Which of 64 each element belongs to: to compute this again takes the product longer than to read it."""


MASK_BESIDE = f"""{HEAD}
k0 {{
  v = f32[4096,512]{{1,0}} parameter(0)
  p = f32[512,4096]{{1,0}} transpose(v), dimensions={{1,0}}
  q = f32[4096]{{0}} parameter(1)
  t = f32[4096]{{0}} tanh(q)
  u = f32[512,4096]{{1,0}} broadcast(t), dimensions={{1}}
  m = f32[512,4096]{{1,0}} multiply(p, u)
  n = pred[512,4096]{{1,0}} compare(p, u), direction=LT
  w = f32[512,4096]{{1,0}} convert(n)
  y = f32[512,4096]{{1,0}} multiply(w, u)
  zero = f32[] constant(0)
  r = f32[512]{{0}} reduce(m, zero), dimensions={{1}}, to_apply=add
  ROOT o = (f32[512]{{0}}, f32[512,4096]{{1,0}}, f32[4096]{{0}}) tuple(r, y, t)
}}

k1 {{
  r = f32[512]{{0}} parameter(0)
  d = f32[512,4096]{{1,0}} parameter(1)
  b = f32[512,4096]{{1,0}} broadcast(r), dimensions={{0}}
  ROOT c = f32[512,4096]{{1,0}} subtract(d, b)
}}

ENTRY e {{
  p = f32[4096,512]{{1,0}} parameter(0)
  q = f32[4096]{{0}} parameter(1)
  k = (f32[512]{{0}}, f32[512,4096]{{1,0}}, f32[4096]{{0}}) fusion(p, q), kind=kInput, calls=k0
  r = f32[512]{{0}} get-tuple-element(k), index=0
  d = f32[512,4096]{{1,0}} get-tuple-element(k), index=1
  t = f32[4096]{{0}} get-tuple-element(k), index=2
  c = f32[512,4096]{{1,0}} fusion(r, d), kind=kLoop, calls=k1
  ROOT x = (f32[512,4096]{{1,0}}, f32[4096]{{0}}) tuple(c, t)
}}
"""
"""A mask is less than the numbers that are made of it and of another result, which lies beside it on the way; what
the mask is made of is no operand that readers would read in order."""


def narrowed(text: str) -> Module:
    made, _ = hlo_opt.fuse(hlo_opt.parse(text), passes="boundary-narrowing,cse,dce", simplify="never", target=H100)
    hlo_opt.verify(made)
    return made


def between(module: Module) -> list[str]:
    """The types of the large arrays that kernels hand to each other."""
    fusions = [i for i in module.entry.instructions if i.opcode == "fusion"]
    handed = dict.fromkeys(o for f in fusions for o in f.operands if o.parameter_number is None)
    return [str(o.shape.type) for o in handed if o.shape.element_count > 1000]


def test_a_kernel_that_another_waits_for_stays() -> None:
    """The one that takes its place would not be waited for."""
    name = next(i.name for i in hlo_opt.parse(CONVERT).entry.instructions if i.opcode == "fusion")
    root = next(line for line in CONVERT.splitlines() if "ROOT" in line and line in CONVERT.partition("ENTRY")[2])
    late = f"  late = pred[] constant(true)\n  dead = pred[1]{{0}} reshape(late), control-predecessors={{{name}}}\n"
    waiting = CONVERT.replace(root, late + root)
    assert between(narrowed(CONVERT)) != between(hlo_opt.parse(CONVERT))
    assert between(narrowed(waiting)) == between(hlo_opt.parse(waiting))


@pytest.mark.parametrize(
    ("text", "types"),
    [
        (CONVERT, ["bf16"]),
        (REVERSED, ["bf16"]),
        (TWO, ["bf16"]),
        (KEYS, ["s32"]),
        (MASK, ["pred"]),
        (MASK_BESIDE, ["pred", "f32"]),
    ],
    ids=["convert", "reverse", "two results", "keys", "mask", "mask beside"],
)
def test_readers_compute_what_is_wide(text: str, types: list[str]) -> None:
    parsed, made = hlo_opt.parse(text), narrowed(text)
    assert between(made) == types
    inputs = module_inputs(parsed, seed=1)
    for got, want in zip(hlo_opt.evaluate(made, inputs), hlo_opt.evaluate(parsed, inputs), strict=True):
        np.testing.assert_array_equal(got.astype(np.float64), want.astype(np.float64))


def test_what_is_written_already_is_written_once() -> None:
    made = narrowed(TWO)
    assert sum(i.opcode == "fusion" for i in made.entry.instructions) == 2
    assert not any(i.shape.is_tuple for i in made.entry.instructions if i.opcode == "fusion")


IN_MEMORY = f"""{HEAD}
k0 {{
  p = bf16[512,4096]{{1,0}} parameter(0)
  s = f32[] parameter(1)
  w = f32[512,4096]{{1,0}} convert(p)
  b = f32[512,4096]{{1,0}} broadcast(s), dimensions={{}}
  d = f32[512,4096]{{1,0}} multiply(w, b)
  zero = f32[] constant(0)
  r = f32[512]{{0}} reduce(d, zero), dimensions={{1}}, to_apply=add
  ROOT o = (f32[512]{{0}}, f32[512,4096]{{1,0}}) tuple(r, d)
}}

k1 {{
  r = f32[512]{{0}} parameter(0)
  d = f32[512,4096]{{1,0}} parameter(1)
  b = f32[512,4096]{{1,0}} broadcast(r), dimensions={{0}}
  ROOT c = f32[512,4096]{{1,0}} subtract(d, b)
}}

ENTRY e {{
  p = bf16[512,4096]{{1,0}} parameter(0)
  s = f32[] parameter(1)
  k = (f32[512]{{0}}, f32[512,4096]{{1,0}}) fusion(p, s), kind=kInput, calls=k0
  r = f32[512]{{0}} get-tuple-element(k), index=0
  d = f32[512,4096]{{1,0}} get-tuple-element(k), index=1
  ROOT c = f32[512,4096]{{1,0}} fusion(r, d), kind=kLoop, calls=k1
}}
"""
UPDATED = IN_MEMORY.replace("p = bf16", "p = f32").replace(
    "w = f32[512,4096]{1,0} convert(p)", "w = f32[512,4096]{1,0} abs(p)"
)
UPDATED = UPDATED.replace("  zero =", "  one = f32[1,1]{1,0} reshape(s)\n  i = s32[] constant(3)\n  zero =")
UPDATED = UPDATED.replace(
    "ROOT o = (f32[512]{0}, f32[512,4096]{1,0}) tuple(r, d)",
    "u = f32[512,4096]{1,0} dynamic-update-slice(p, one, i, i)\n"
    "  ROOT o = (f32[512]{0}, f32[512,4096]{1,0}, f32[512,4096]{1,0}) tuple(r, d, u)",
)
UPDATED = UPDATED.replace(
    "k = (f32[512]{0}, f32[512,4096]{1,0})", "k = (f32[512]{0}, f32[512,4096]{1,0}, f32[512,4096]{1,0})"
)
UPDATED = UPDATED.replace("ROOT c = f32[512,4096]{1,0} fusion(r, d)", "c = f32[512,4096]{1,0} fusion(r, d)").replace(
    "kind=kLoop, calls=k1\n}",
    "kind=kLoop, calls=k1\n  u = f32[512,4096]{1,0} get-tuple-element(k), index=2\n"
    "  ROOT t = (f32[512,4096]{1,0}, f32[512,4096]{1,0}) tuple(c, u)\n}",
)
OVERWRITTEN = IN_MEMORY.replace(
    "ROOT c = f32[512,4096]{1,0} fusion(r, d)", "c = f32[512,4096]{1,0} fusion(r, d)"
).replace(
    "kind=kLoop, calls=k1\n}",
    'kind=kLoop, calls=k1\n  u = bf16[512,4096]{1,0} custom-call(p, r), custom_call_target="f", '
    "output_to_operand_aliasing={{}: (0, {})}\n  ROOT t = (f32[512,4096]{1,0}, bf16[512,4096]{1,0}) tuple(c, u)\n}",
)
IN_F32 = IN_MEMORY.replace("p = bf16", "p = f32").replace("convert(p)", "abs(p)")
GIVEN = IN_F32.replace("HloModule m", "HloModule m, input_output_alias={ {}: (0, {}, may-alias) }", 1)
OTHER_RESULT = f"""{HEAD}
k0 {{
  p = f32[512,4096]{{1,0}} parameter(0)
  t = f32[512,4096]{{1,0}} tanh(p)
  q = f32[512,4096]{{1,0}} multiply(t, t)
  ROOT o = (f32[512,4096]{{1,0}}, f32[512,4096]{{1,0}}) tuple(t, q)
}}

k1 {{
  t = f32[512,4096]{{1,0}} parameter(0)
  q = f32[512,4096]{{1,0}} parameter(1)
  d = f32[512,4096]{{1,0}} subtract(t, q)
  zero = f32[] constant(0)
  ROOT c = f32[4096]{{0}} reduce(d, zero), dimensions={{0}}, to_apply=add
}}

ENTRY e {{
  p = f32[512,4096]{{1,0}} parameter(0)
  k = (f32[512,4096]{{1,0}}, f32[512,4096]{{1,0}}) fusion(p), kind=kLoop, calls=k0
  t = f32[512,4096]{{1,0}} get-tuple-element(k), index=0
  q = f32[512,4096]{{1,0}} get-tuple-element(k), index=1
  ROOT c = f32[4096]{{0}} fusion(t, q), kind=kInput, calls=k1
}}
"""
WITH_ZEROS = f"""{HEAD}
k0 {{
  p = s32[512,4096]{{1,0}} parameter(0)
  n = s32[512,4096]{{1,0}} negate(p)
  zero = s32[] constant(0)
  z = s32[512,4096]{{1,0}} broadcast(zero), dimensions={{}}
  b = pred[512,4096]{{1,0}} compare(n, z), direction=LT
  ROOT o = (s32[512,4096]{{1,0}}, pred[512,4096]{{1,0}}, s32[512,4096]{{1,0}}) tuple(n, b, z)
}}

k1 {{
  n = s32[512,4096]{{1,0}} parameter(0)
  b = pred[512,4096]{{1,0}} parameter(1)
  t = s32[512,4096]{{1,0}} multiply(n, n)
  ROOT c = s32[512,4096]{{1,0}} select(b, t, n)
}}

ENTRY e {{
  p = s32[512,4096]{{1,0}} parameter(0)
  k = (s32[512,4096]{{1,0}}, pred[512,4096]{{1,0}}, s32[512,4096]{{1,0}}) fusion(p), kind=kLoop, calls=k0
  n = s32[512,4096]{{1,0}} get-tuple-element(k), index=0
  b = pred[512,4096]{{1,0}} get-tuple-element(k), index=1
  z = s32[512,4096]{{1,0}} get-tuple-element(k), index=2
  c = s32[512,4096]{{1,0}} fusion(n, b), kind=kLoop, calls=k1
  ROOT r = (s32[512,4096]{{1,0}}, s32[512,4096]{{1,0}}) tuple(c, z)
}}
"""
"""Zeros that another result is compared with are a result, too: who compares makes them, and does not read them."""
LONG_FOR_FEW = IN_MEMORY.replace("p = bf16", "p = f32").replace("s = f32[] param", "s = f32[4096]{0} param")
LONG_FOR_FEW = LONG_FOR_FEW.replace("convert(p)", "abs(p)").replace(
    "b = f32[512,4096]{1,0} broadcast(s), dimensions={}",
    "l = f32[4096]{0} log-plus-one(s)\n  b = f32[512,4096]{1,0} broadcast(l), dimensions={1}",
)
"""A logarithm for each column: less than to read an element for each row."""
FOLDED = IN_F32.replace("tuple(r, d)", "tuple(r, q)").replace(
    "  ROOT o =",
    "  t = f32[512,4096]{1,0} negate(p)\n  g = f32[512]{0} reduce(t, zero), dimensions={1}, to_apply=add\n"
    "  y = f32[512,4096]{1,0} broadcast(g), dimensions={0}\n"
    "  q = f32[512,4096]{1,0} multiply(t, y)\n  ROOT o =",
)
"""A product of an operand and a fold, which is computed after what is made of the operand."""
OUTER = f"""{HEAD}
k0 {{
  x = f32[64,1,512]{{2,1,0}} parameter(0)
  d = f32[64,64]{{1,0}} parameter(1)
  v = f32[64,512]{{1,0}} bitcast(x)
  b = f32[64,512,64]{{2,1,0}} broadcast(v), dimensions={{0,1}}
  c = f32[64,512,64]{{2,1,0}} broadcast(d), dimensions={{0,2}}
  m = f32[64,512,64]{{2,1,0}} multiply(b, c)
  q = f32[64,512,64]{{2,1,0}} multiply(m, m)
  zero = f32[] constant(0)
  r = f32[64]{{0}} reduce(q, zero), dimensions={{1,2}}, to_apply=add
  ROOT o = (f32[64]{{0}}, f32[64,512,64]{{2,1,0}}) tuple(r, m)
}}

k1 {{
  r = f32[64]{{0}} parameter(0)
  m = f32[64,512,64]{{2,1,0}} parameter(1)
  b = f32[64,512,64]{{2,1,0}} broadcast(r), dimensions={{0}}
  w = f32[64,512,64]{{2,1,0}} multiply(m, b)
  zero = f32[] constant(0)
  ROOT s = f32[512,64]{{1,0}} reduce(w, zero), dimensions={{0}}, to_apply=add
}}

ENTRY e {{
  x = f32[64,1,512]{{2,1,0}} parameter(0)
  d = f32[64,64]{{1,0}} parameter(1)
  k = (f32[64]{{0}}, f32[64,512,64]{{2,1,0}}) fusion(x, d), kind=kInput, calls=k0
  r = f32[64]{{0}} get-tuple-element(k), index=0
  m = f32[64,512,64]{{2,1,0}} get-tuple-element(k), index=1
  ROOT s = f32[512,64]{{1,0}} fusion(r, m), kind=kInput, calls=k1
}}
"""
"""The gradient of each example, of which its norm and a weighted sum are asked for, of a vector in other dimensions."""
LOOKED_UP = f"""{HEAD}
k0 {{
  p = f32[64,1024]{{1,0}} parameter(0)
  i = s32[8192,1]{{1,0}} parameter(1)
  g = f32[8192,1024]{{1,0}} gather(p, i), offset_dims={{1}}, collapsed_slice_dims={{0}}, start_index_map={{0}}, index_vector_dim=1, slice_sizes={{1,1024}}
  d = f32[8192,1024]{{1,0}} negate(g)
  zero = f32[] constant(0)
  r = f32[8192]{{0}} reduce(d, zero), dimensions={{1}}, to_apply=add
  ROOT o = (f32[8192]{{0}}, f32[8192,1024]{{1,0}}) tuple(r, d)
}}

k1 {{
  r = f32[8192]{{0}} parameter(0)
  d = f32[8192,1024]{{1,0}} parameter(1)
  b = f32[8192,1024]{{1,0}} broadcast(r), dimensions={{0}}
  ROOT c = f32[8192,1024]{{1,0}} subtract(d, b)
}}

ENTRY e {{
  p = f32[64,1024]{{1,0}} parameter(0)
  i = s32[8192,1]{{1,0}} parameter(1)
  k = (f32[8192]{{0}}, f32[8192,1024]{{1,0}}) fusion(p, i), kind=kInput, calls=k0
  r = f32[8192]{{0}} get-tuple-element(k), index=0
  d = f32[8192,1024]{{1,0}} get-tuple-element(k), index=1
  ROOT c = f32[8192,1024]{{1,0}} fusion(r, d), kind=kLoop, calls=k1
}}
"""
"""Rows of a small table: to look them up again is less to read."""
COPIED = CONVERT.replace("  n = bf16[512,4096]{1,0} negate(p)\n", "").replace("convert(n)", "convert(p)")


@pytest.mark.parametrize(
    ("text", "types"),
    [(IN_MEMORY, []), (OTHER_RESULT, ["f32"]), (LONG_FOR_FEW, []), (OUTER, []), (LOOKED_UP, ["f32"])],
    ids=["an operand", "another result", "an operand and a function of columns", "an outer product", "looked up"],
)
def test_what_is_in_memory_anyway_is_no_result(text: str, types: list[str]) -> None:
    parsed, made = hlo_opt.parse(text), narrowed(text)
    assert between(made) == types
    assert all(i.shape.is_array for i in made.entry.instructions if i.opcode == "fusion")
    inputs = module_inputs(parsed, seed=1)
    for got, want in zip(hlo_opt.evaluate(made, inputs), hlo_opt.evaluate(parsed, inputs), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-6)


def test_zeros_that_are_a_result_are_not_read() -> None:
    parsed, made = hlo_opt.parse(WITH_ZEROS), narrowed(WITH_ZEROS)
    assert between(made) == []
    inputs = module_inputs(parsed, seed=1)
    for got, want in zip(hlo_opt.evaluate(made, inputs), hlo_opt.evaluate(parsed, inputs), strict=True):
        np.testing.assert_array_equal(got, want)


def test_a_fold_is_handed_on_in_place_of_what_is_made_of_it_and_an_operand() -> None:
    parsed, made = hlo_opt.parse(FOLDED), narrowed(FOLDED)
    assert between(made) == []
    inputs = module_inputs(parsed, seed=1)
    for got, want in zip(hlo_opt.evaluate(made, inputs), hlo_opt.evaluate(parsed, inputs), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-6)


NO_NARROWER = CONVERT.replace("bf16", "f32").replace(
    "w = f32[512,4096]{1,0} convert(n)", "w = f32[512,4096]{1,0} abs(n)"
)
RESULT = CONVERT.replace("ROOT c = f32[4096]{0} fusion(k)", "c = f32[4096]{0} fusion(k)").replace(
    "calls=k1\n}", "calls=k1\n  ROOT o = (f32[512,4096]{1,0}, f32[4096]{0}) tuple(k, c)\n}"
)
LIBRARY = CONVERT.replace(
    "ROOT c = f32[4096]{0} fusion(k), kind=kInput, calls=k1",
    "ROOT c = f32[512,512]{1,0} dot(k, k), lhs_contracting_dims={1}, rhs_contracting_dims={1}",
)
MOVED = CONVERT.replace(
    "ROOT m = f32[512,4096]{1,0} multiply(w, twos)",
    "low = f32[256,4096]{1,0} slice(w), slice={[0:256],[0:4096]}\n"
    "  high = f32[256,4096]{1,0} slice(w), slice={[256:512],[0:4096]}\n"
    "  ROOT m = f32[512,4096]{1,0} concatenate(high, low), dimensions={0}",
)
DEAR = CONVERT.replace(
    "ROOT m = f32[512,4096]{1,0} multiply(w, twos)",
    "m = f32[512,4096]{1,0} power(w, twos)\n  ROOT q = f32[512,4096]{1,0} power(m, twos)",
).replace(
    "ROOT c = f32[4096]{0} fusion(k), kind=kInput, calls=k1",
    "c = f32[4096]{0} fusion(k), kind=kInput, calls=k1\n  d = f32[4096]{0} fusion(k), kind=kInput, calls=k2\n"
    "  ROOT t = (f32[4096]{0}, f32[4096]{0}) tuple(c, d)",
)
DEAR = DEAR.replace("ENTRY", READER.replace("k1", "k2").replace("constant(0)", "constant(1)") + "\nENTRY")
DEAR = DEAR.replace("f32", "f64")


@pytest.mark.parametrize(
    "text",
    [NO_NARROWER, RESULT, LIBRARY, MOVED, DEAR, COPIED, UPDATED, OVERWRITTEN, GIVEN],
    ids=[
        "nothing is narrower",
        "a result",
        "a library reads it",
        "elements move",
        "computed by two readers",
        "a copy",
        "in place",
        "overwritten",
        "given away",
    ],
)
def test_what_stays(text: str) -> None:
    before = [str(i.shape) for i in hlo_opt.parse(text).entry.instructions]
    assert [str(i.shape) for i in narrowed(text).entry.instructions] == before


BESIDE = IN_F32.replace("s = f32[]", "q = f32[512,4096]{1,0}").replace("(p, s)", "(p, q)")
BESIDE = BESIDE.replace("w = f32[512,4096]{1,0} abs(p)", "far = f32[512,4096]{1,0} abs(q)")
BESIDE = BESIDE.replace("  b = f32[512,4096]{1,0} broadcast(s), dimensions={}\n", "")
BESIDE = BESIDE.replace("  d = f32[512,4096]{1,0} multiply(w, b)\n", "").replace("reduce(d,", "reduce(p,")
BESIDE = BESIDE.replace("tuple(r, d)", "tuple(r, far)")


def test_what_moves_keeps_its_origin_and_no_operand_stays_that_nothing_reads() -> None:
    assert between(narrowed(IN_F32)) == []  # only that it is given away keeps it in `test_what_stays`
    outcome = run(hlo_opt.parse(BESIDE), passes="boundary-narrowing,cse,dce", simplify="never", target=H100)
    first, second = (i for i in outcome.module.entry.instructions if i.opcode == "fusion")
    assert [o.name for o in first.operands] == ["p"] and "q" in [o.name for o in second.operands]
    (moved,) = (i for i in second.called_by("calls").instructions if i.opcode == "abs")
    assert outcome.context.origins[moved] == "far"


def test_keys_of_a_topk_lie_between_kernels_as_what_they_are_keys_of() -> None:
    """Of a matrix that takes too long to be computed again."""
    text = """HloModule m

ENTRY e {
  x = f32[8,4,4096]{2,1,0} parameter(0)
  s = f32[8,4]{1,0} parameter(1)
  m = f32[8,4]{1,0} reduce(x, n), dimensions={2}, to_apply=high
  b = f32[8,4,4096]{2,1,0} broadcast(m), dimensions={0,1}
  d = f32[8,4,4096]{2,1,0} subtract(x, b)
  r = f32[8,16384]{1,0} reshape(d)
  ROOT t = (f32[8,4]{1,0}, s32[8,4]{1,0}) topk(r), k=4, largest=true
}
""".replace(
        "ENTRY e {",
        "high {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT s = f32[] maximum(a, b)\n}\n\n"
        "ENTRY e {\n  n = f32[] constant(-inf)",
    )
    long = "".join(f"  d{k + 1} = f32[8,4,4096]{{2,1,0}} tanh(d{k})\n" for k in range(16))
    text = text.replace("  d =", "  d0 =").replace("  r = ", f"{long}  r = ").replace("reshape(d)", "reshape(d16)")
    parsed = hlo_opt.parse(text)
    fused, _ = hlo_opt.fuse(parsed)
    assert between(fused) and "s64" not in between(fused)
