"""Narrow floats that are only moved keep their bits in kernels, also those of NaN: the same module with unsigned
integers of their width says what they must be."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import hlo_opt
from hlo_opt.ir import ELEMENT_TYPES
from hlo_opt.ops.stored_bits import as_stored, bits_type
from hlo_opt.runtime.host.library import has_compiler
from hlo_opt.runtime.schedule import build_schedule
from scripts.random_moves import check

NARROW = [name for name, t in ELEMENT_TYPES.items() if bits_type(t) is not None]

MOVES = """HloModule m

later {{
  old = {t}[] parameter(0)
  ROOT new = {t}[] parameter(1)
}}

more {{
  s = (s32[], {t}[{n}], {t}[{n}], {t}[{n}]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(3)
  ROOT r = pred[] compare(i, n), direction=LT
}}

step {{
  s = (s32[], {t}[{n}], {t}[{n}], {t}[{n}]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  one = s32[] constant(1)
  j = s32[] add(i, one)
  a = {t}[{n}] get-tuple-element(s), index=1
  b = {t}[{n}] get-tuple-element(s), index=2
  c = {t}[{n}] get-tuple-element(s), index=3
  v = {t}[{n}] reverse(a), dimensions={{0}}
  x = {t}[5] dynamic-slice(c, j), dynamic_slice_sizes={{5}}
  w = {t}[{n}] dynamic-update-slice(b, x, i)
  ROOT r = (s32[], {t}[{n}], {t}[{n}], {t}[{n}]) tuple(j, w, v, c)
}}

ENTRY e {{
  x = {t}[{n}] parameter(0)
  y = {t}[{n}] parameter(1)
  p = pred[{n}] parameter(2)
  g = s32[{n},1] parameter(3)
  k = s32[] parameter(4)
  m = {t}[{rows},{columns}] reshape(x)
  zero = {t}[] constant({zero})
  i = s32[] constant(0)
  init = (s32[], {t}[{n}], {t}[{n}], {t}[{n}]) tuple(i, x, y, x)
  loop = (s32[], {t}[{n}], {t}[{n}], {t}[{n}]) while(init), condition=more, body=step
  part = {t}[{part}] slice(x), slice={{[1:{n}:3]}}
  last = {t}[1] slice(x), slice={{[{last}:{n}]}}
  fill = {t}[] reshape(last)
  copied = {t}[{rows},{columns}]{{0,1}} copy(m)
  turned = {t}[{columns},{rows}] transpose(m), dimensions={{1,0}}
  chosen = {t}[{n}] select(p, x, y)
  joined = {t}[{both}] concatenate(part, y), dimensions={{0}}
  padded = {t}[{spread}] pad(x, zero), padding=2_0_1
  filled = {t}[{more}] pad(x, fill), padding=2_1
  picked = {t}[{n}] gather(y, g), offset_dims={{}}, collapsed_slice_dims={{0}}, start_index_map={{0}}, index_vector_dim=1, slice_sizes={{1}}
  window = {t}[{part}] dynamic-slice(y, k), dynamic_slice_sizes={{{part}}}
  updated = {t}[{n}] dynamic-update-slice(y, part, k)
  reversed = {t}[{n}] reverse(chosen), dimensions={{0}}
  spread = {t}[3,{n}] broadcast(x), dimensions={{1}}
  placed = {t}[{n}] scatter(y, g, x), update_window_dims={{}}, inserted_window_dims={{0}}, scatter_dims_to_operand_dims={{0}}, index_vector_dim=1, to_apply=later
  first = {t}[{n}] get-tuple-element(loop), index=1
  second = {t}[{n}] get-tuple-element(loop), index=2
  ROOT r = (RESULTS) tuple(NAMES)
}}
"""
RESULTS = re.findall(r"^  (\w+) = (\{t\}\S*) (?!parameter|constant|reshape)", MOVES.split("ENTRY")[1], re.MULTILINE)


def moves(element_type: str, n: int) -> str:
    rows = 256 if n == 65536 else 16
    sizes = {"rows": rows, "columns": n // rows, "part": -(-(n - 1) // 3), "last": n - 1}
    sizes |= {"both": sizes["part"] + n, "spread": 2 * n + 1, "more": n + 3}
    zero = "5.877471754111438e-39" if element_type == "f8e8m0fnu" else "0"  # the number whose bits are 0
    text = MOVES.replace("RESULTS", ", ".join(shape for _, shape in RESULTS))
    return text.replace("NAMES", ", ".join(name for name, _ in RESULTS)).format(t=element_type, n=n, zero=zero, **sizes)


def arguments(element_type: str) -> list[Any]:
    """All values of the type, in two orders; and where to move them."""
    kind = ELEMENT_TYPES[element_type]
    n = max(256, 1 << kind.bits)
    rng = np.random.default_rng(3)
    bits = (np.arange(n) % (1 << kind.bits)).astype(np.uint16 if kind.bits == 16 else np.uint8)
    values = [of_bits(b, kind.dtype) for b in (bits, rng.permutation(bits))]
    return [*values, rng.integers(0, 2, n).astype(bool), rng.permutation(n).astype(np.int32)[:, None], np.int32(7)]


def of_bits(bits: Any, dtype: Any) -> Any:
    return bits.astype(dtype) if "int" in dtype.name else bits.view(dtype)


def differing(got: Any, want: Any) -> dict[str, int]:
    """How many elements have other bits, by result."""
    pairs = [(a.view(f"u{a.dtype.itemsize}"), b.view(f"u{b.dtype.itemsize}")) for a, b in zip(got, want, strict=True)]
    counts = {name: int((a != b).sum()) for (name, _), (a, b) in zip(RESULTS, pairs, strict=True)}
    return {name: count for name, count in counts.items() if count}


def expected(element_type: str) -> tuple[str, list[Any], list[Any]]:
    """The module, all values as its inputs, and what integers with their bits become."""
    unsigned = bits_type(ELEMENT_TYPES[element_type])
    assert unsigned is not None
    given = arguments(element_type)
    want = hlo_opt.evaluate(hlo_opt.parse(moves(unsigned.name, len(given[0]))), arguments(unsigned.name))
    return moves(element_type, len(given[0])), given, [np.asarray(a) for a in want]


@pytest.mark.parametrize("name", NARROW)
def test_the_evaluator_moves_bits(name: str) -> None:
    text, given, want = expected(name)
    assert differing(hlo_opt.evaluate(hlo_opt.parse(text), given), want) == {}


@pytest.mark.skipif(not has_compiler(), reason="needs a C++ compiler")
@pytest.mark.parametrize("form", ["lanes", "plain"])
@pytest.mark.parametrize("name", ["f16", "bf16", "f8e5m2", "f8e3m4", "f4e2m1fn"])
def test_kernels_move_bits(name: str, form: Any) -> None:
    text, given, want = expected(name)
    fused, _ = hlo_opt.fuse(text)
    assert differing(hlo_opt.compile(fused, "host", form=form)(*given), want) == {}


@pytest.mark.parametrize("name", NARROW)
def test_what_is_moved_is_neither_widened_nor_rounded(name: str) -> None:
    fused, _ = hlo_opt.fuse(moves(name, 256))
    sources = [kernel.source for kernel in build_schedule(fused).kernels]
    assert sources and not re.findall(rf"hlo_(?:load|store|round|upper)_{name}", "".join(sources))


def test_random_modules_move_bits() -> None:
    assert [found for seed in range(40) if (found := check(seed, None))] == []


@pytest.mark.skipif(not has_compiler(), reason="needs a C++ compiler")
@pytest.mark.parametrize("form", ["lanes", "plain"])
def test_kernels_of_random_modules_move_bits(form: Any) -> None:
    assert [found for seed in range(3) if (found := check(seed, form))] == []


BESIDE = """HloModule m

ENTRY e {
  x = f16[64,8] parameter(0)
  y = f16[64,8] parameter(1)
  turned = f16[8,64] transpose(x), dimensions={1,0}
  doubled = f16[8,64] add(turned, turned)
  bits = u16[64,8] bitcast-convert(y)
  p = pred[64,8] compare(x, y), direction=LT
  squared = f16[64,8] multiply(x, x)
  mixed = f16[64,8] select(p, y, squared)
  ROOT r = (f16[8,64], f16[8,64], u16[64,8], f16[64,8]) tuple(turned, doubled, bits, mixed)
}
"""


def test_what_computes_beside_reads_floats() -> None:
    """Of what is moved and read by operations, the operations read numbers; what is chosen from numbers is a number."""
    module = hlo_opt.parse(BESIDE)
    computation, declared = as_stored(module.entry)
    types = {i.name: str(i.shape.type) for i in computation.instructions if i.shape.is_array}
    assert [types[name] for name in ("x", "y", "turned", "bits")] == ["u16"] * 4
    assert [types[name] for name in ("doubled", "squared", "mixed")] == ["f16"] * 3
    assert {i.name: str(shape.type) for i, shape in declared.items()} == dict.fromkeys(("x", "y", "turned"), "f16")
    assert as_stored(computation)[0] is computation
    assert len(module.entry.instructions) == 9


ORDERED = """HloModule m

ENTRY e {
  a = f16[4096] parameter(0)
  b = f16[4096] parameter(1)
  c = f16[] constant(nan)
  d = f16[4096] broadcast(c), dimensions={}
  p = pred[4096] compare(a, b), direction=LT, type=TOTALORDER
  q = pred[4096] compare(a, d), direction=GE, type=TOTALORDER
  m = f16[4096] multiply(a, a)
  n = pred[4096] compare(m, d), direction=NE, type=TOTALORDER
  ROOT r = (pred[4096], pred[4096], pred[4096]) tuple(p, q, n)
}
"""


@pytest.mark.skipif(not has_compiler(), reason="needs a C++ compiler")
@pytest.mark.parametrize("form", ["lanes", "plain"])
def test_the_total_order_of_f16_tells_nans_apart(form: Any) -> None:
    rng = np.random.default_rng(5)
    bits = rng.integers(0, 1 << 16, (2, 4096))
    a, b = np.where(rng.random((2, 4096)) < 0.5, bits | 0x7C00, bits).astype(np.uint16).view(np.float16)
    module = hlo_opt.parse(ORDERED)
    want = hlo_opt.evaluate(module, [a, b])
    got = hlo_opt.compile(hlo_opt.fuse(module)[0], "host", form=form)(a, b)
    assert [int((one != other).sum()) for one, other in zip(got[:2], want[:2], strict=True)] == [0, 0]


SORTED = """HloModule m

before {{
  a = {t}[] parameter(0)
  b = {t}[] parameter(1)
  i = s32[] parameter(2)
  j = s32[] parameter(3)
  ROOT r = pred[] compare(a, b), direction={direction}, type=TOTALORDER
}}

alone {{
  a = {t}[] parameter(0)
  b = {t}[] parameter(1)
  ROOT r = pred[] compare(a, b), direction={direction}, type=TOTALORDER
}}

chosen {{
  a = {t}[] parameter(0)
  b = {t}[] parameter(1)
  zero = {t}[] constant(0)
  p = pred[] compare(a, zero), direction=EQ
  q = pred[] compare(b, zero), direction=EQ
  x = {t}[] select(p, zero, a)
  y = {t}[] select(q, zero, b)
  ROOT r = pred[] compare(x, y), direction={direction}, type=TOTALORDER
}}

ENTRY e {{
  x = {t}[{n}] parameter(0)
  y = {t}[{n}] parameter(1)
  i = s32[{n}] iota(), iota_dimension=0
  p = ({t}[{n}], s32[{n}]) sort(x, i), dimensions={{0}}, is_stable=true, to_apply=before
  q = {t}[{n}] sort(x), dimensions={{0}}, to_apply=alone
  s = {t}[{n}] sort(x), dimensions={{0}}, to_apply=chosen
  c = pred[{n}] compare(x, y), direction={direction}, type=TOTALORDER
  ROOT r = (({t}[{n}], s32[{n}]), {t}[{n}], {t}[{n}], pred[{n}]) tuple(p, q, s, c)
}}
"""

SIGNED = [name for name in NARROW if not name.endswith(("fnuz", "fnu"))]
"""Types with a negative zero."""


def in_order(bits: Any, width: int) -> Any:
    """Numbers in the total order of the floats with these bits."""
    sign = 1 << (width - 1)
    return np.where(bits & sign, ~(bits ^ sign), bits)


@pytest.mark.parametrize("direction", ["LT", "GT"])
@pytest.mark.parametrize("n", [4096, 8192])  # in shared memory and beyond
@pytest.mark.parametrize("form", [None, "lanes", "plain"])
@pytest.mark.parametrize("name", SIGNED)
def test_sorts_tell_nans_apart(name: str, form: Any, n: int, direction: str) -> None:
    if form is not None and (not has_compiler() or name not in ("f16", "bf16", "f8e5m2")):
        pytest.skip("no compiler, or as another type")
    kind = ELEMENT_TYPES[name]
    rng = np.random.default_rng(7)
    bits = rng.integers(0, 1 << kind.bits, (2, n))
    bits = np.where(rng.random((2, n)) < 0.5, bits | ({"f16": 0x7C00, "bf16": 0x7F80}.get(name, 0)), bits)
    x, y = bits.astype(f"u{kind.bytes}").view(kind.dtype)
    falls = direction == "GT"
    keys, others = in_order(bits, kind.bits) * (-1 if falls else 1)
    order = np.argsort(keys, kind="stable")
    module = hlo_opt.parse(SORTED.format(t=name, n=n, direction=direction))
    if form is None:
        got = hlo_opt.evaluate(module, [x, y])
    else:
        got = hlo_opt.compile(hlo_opt.fuse(module)[0], "host", form=form)(x, y)
    zeros = np.where(bits[0] == 1 << (kind.bits - 1), 0, bits[0])
    joined = np.argsort(in_order(zeros, kind.bits) * (-1 if falls else 1), kind="stable")
    unsigned = f"u{kind.bytes}"
    assert [np.array_equal(np.asarray(a).view(unsigned), x[o].view(unsigned))
            for a, o in ((got[0], order), (got[2], order), (got[3], joined))] == [True] * 3  # fmt: skip
    assert np.array_equal(np.asarray(got[1]), order)
    assert np.array_equal(np.asarray(got[4]), keys < others)
