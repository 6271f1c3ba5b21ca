"""Products of matrices that the host computes by itself: batches, several dimensions of a role, any layout, and the
types that it takes."""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import pytest

import hlo_opt
from hlo_opt.runtime.host.library import has_compiler

pytestmark = pytest.mark.skipif(not has_compiler(), reason="needs a C++ compiler")

LAST_BY_FIRST = "lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={1}"
CASES = {
    "batch": ((3, 5, 7), (3, 7, 4), (3, 5, 4), LAST_BY_FIRST),
    "a large batch": ((70, 40, 33), (70, 33, 50), (70, 40, 50), LAST_BY_FIRST),
    "small tiles of all heights": ((2, 23, 9), (2, 9, 35), (2, 23, 35), LAST_BY_FIRST),
    "a tile that begins in the one before": ((2, 9, 5), (2, 5, 8), (2, 9, 8), LAST_BY_FIRST),
    "the least products": ((9, 3, 3), (9, 3, 4), (9, 3, 4), LAST_BY_FIRST),
    "short vectors": (
        (7, 21, 19),
        (7, 19),
        (7, 21),
        "lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={1}",
    ),
    "two batch dimensions": (
        (3, 2, 5, 7),
        (3, 2, 7, 4),
        (3, 2, 5, 4),
        "lhs_batch_dims={0,1}, rhs_batch_dims={0,1}, lhs_contracting_dims={3}, rhs_contracting_dims={2}",
    ),
    "two dimensions of rows": ((5, 3, 7), (7, 4), (5, 3, 4), "lhs_contracting_dims={2}, rhs_contracting_dims={0}"),
    "two of terms": ((5, 3, 7), (3, 7, 6), (5, 6), "lhs_contracting_dims={1,2}, rhs_contracting_dims={0,1}"),
    "batches apart": (
        (3, 5, 2, 7),
        (3, 4, 2, 7),
        (3, 2, 5, 4),
        "lhs_batch_dims={0,2}, rhs_batch_dims={0,2}, lhs_contracting_dims={3}, rhs_contracting_dims={3}",
    ),
    "rows apart": ((5, 7, 3), (7, 4), (5, 3, 4), "lhs_contracting_dims={1}, rhs_contracting_dims={0}"),
    "columns apart": ((6, 8), (9, 6, 3), (8, 9, 3), "lhs_contracting_dims={0}, rhs_contracting_dims={1}"),
    "rows and columns apart": (
        (5, 7, 3),
        (9, 7, 2),
        (5, 3, 9, 2),
        "lhs_contracting_dims={1}, rhs_contracting_dims={1}",
    ),
    "vectors": ((17,), (17,), (), "lhs_contracting_dims={0}, rhs_contracting_dims={0}"),
    "few rows": ((3, 37), (37, 70), (3, 70), "lhs_contracting_dims={1}, rhs_contracting_dims={0}"),
    "few rows of many terms": ((2, 801), (801, 65), (2, 65), "lhs_contracting_dims={1}, rhs_contracting_dims={0}"),
    "a batch of rows": ((4, 1, 9), (4, 9, 33), (4, 1, 33), LAST_BY_FIRST),
    "few columns": ((70, 37), (37, 3), (70, 3), "lhs_contracting_dims={1}, rhs_contracting_dims={0}"),
    "a long vector": ((301, 517), (517,), (301,), "lhs_contracting_dims={1}, rhs_contracting_dims={0}"),
    "a vector before a matrix": ((517,), (517, 301), (301,), "lhs_contracting_dims={0}, rhs_contracting_dims={0}"),
    "a vector before rows": ((517,), (301, 517), (301,), "lhs_contracting_dims={0}, rhs_contracting_dims={1}"),
    "columns of a matrix": ((517, 301), (517,), (301,), "lhs_contracting_dims={0}, rhs_contracting_dims={0}"),
    "a batch of vectors": (
        (70, 6, 29),
        (70, 29),
        (70, 6),
        "lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={1}",
    ),
    "a batch of short vectors": (
        (7, 9, 13),
        (7, 13),
        (7, 9),
        "lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={1}",
    ),
    "a batch of sums, terms apart": (
        (9, 14),
        (14, 9),
        (9,),
        "lhs_batch_dims={0}, rhs_batch_dims={1}, lhs_contracting_dims={1}, rhs_contracting_dims={0}",
    ),
    "a vector": ((40, 33), (33,), (40,), "lhs_contracting_dims={1}, rhs_contracting_dims={0}"),
}


def shape(sizes: tuple[int, ...], order: tuple[int, ...]) -> str:
    layout = f"{{{','.join(map(str, order))}}}" if order else ""
    return f"f32[{','.join(map(str, sizes))}]{layout}"


def product(sizes: tuple[tuple[int, ...], ...], orders: tuple[tuple[int, ...], ...], attributes: str) -> str:
    left, right, made = map(shape, sizes, orders)
    return f"""HloModule m
ENTRY e {{
  x = {left} parameter(0)
  y = {right} parameter(1)
  ROOT d = {made} dot(x, y), {attributes}
}}
"""


@pytest.mark.parametrize("name", CASES)
def test_products(name: str) -> None:
    *sizes, attributes = CASES[name]
    plain = tuple(tuple(reversed(range(len(s)))) for s in sizes)
    every = itertools.product(*(itertools.permutations(order) for order in plain))
    for number, orders in enumerate(itertools.islice(every, 0, None, 37)):
        module = hlo_opt.parse(product(tuple(sizes), orders, attributes))
        generator = np.random.default_rng(number)
        inputs = [generator.normal(size=s).astype(np.float32) for s in sizes[:2]]
        executable = hlo_opt.compile(module, "host")
        for got, want in zip(executable(*inputs), hlo_opt.evaluate(module, inputs), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-4)
        if orders == plain:
            assert executable.report()["routines"] == {"dot": ["a product of the host's own (host_product.h)"]}


TYPES = {
    "f64": np.float64,
    "f32": np.float32,
    "bf16": ml_dtypes.bfloat16,
    "f16": np.float16,
    "s8": np.int8,
    "u8": np.uint8,
    "s16": np.int16,
    "u16": np.uint16,
    "s32": np.int32,
    "u32": np.uint32,
    "c64": np.complex64,
    "c128": np.complex128,
}
COMPUTED = [
    ("f64", "f64", "f64"),
    ("bf16", "bf16", "bf16"),
    ("bf16", "bf16", "f32"),
    ("f32", "bf16", "f32"),
    ("f16", "f16", "f16"),
    ("f16", "bf16", "f32"),
    ("s8", "s8", "s32"),
    ("s8", "s8", "s8"),
    ("u8", "s8", "s32"),
    ("s16", "s16", "s16"),
    ("u16", "u16", "u32"),
    ("s32", "s32", "s32"),
    ("u32", "u32", "u32"),
    ("c64", "c64", "c64"),
    ("c128", "c128", "c128"),
]
SIZES = [(5, 7, 9), (50, 801, 70), (1, 900, 333), (333, 40, 1), (2, 33, 64)]
"""Rows, terms and columns: more terms than a piece, few rows, few columns."""


def sample(name: str, sizes: tuple[int, ...], generator: np.random.Generator) -> np.ndarray:
    """Any number of an integer type: sums wrap."""
    dtype = np.dtype(TYPES[name])
    if name[0] in "su":
        info = np.iinfo(dtype)
        return generator.integers(info.min, info.max, sizes, dtype, endpoint=True)
    parts = [generator.normal(size=sizes) for _ in range(1 + (name[0] == "c"))]
    return (parts[0] if len(parts) == 1 else parts[0] + 1j * parts[1]).astype(dtype)


@pytest.mark.parametrize("types", COMPUTED, ids="-".join)
def test_types(types: tuple[str, str, str]) -> None:
    left, right, made = types
    generator = np.random.default_rng(3)
    for rows, terms, columns in SIZES:
        text = f"""HloModule m
ENTRY e {{
  x = {left}[{rows},{terms}] parameter(0)
  y = {right}[{terms},{columns}] parameter(1)
  ROOT d = {made}[{rows},{columns}] dot(x, y), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
}}
"""
        module = hlo_opt.parse(text)
        inputs = [sample(left, (rows, terms), generator), sample(right, (terms, columns), generator)]
        executable = hlo_opt.compile(module, "host")
        assert executable.report()["routines"] == {"dot": ["a product of the host's own (host_product.h)"]}
        for got, want in zip(executable(*inputs), hlo_opt.evaluate(module, inputs), strict=True):
            if made[0] in "su":
                np.testing.assert_array_equal(got, want)
            else:
                near = {"f64": 1e-12, "f32": 1e-5, "bf16": 1e-2, "f16": 2e-3, "c64": 1e-5, "c128": 1e-12}[made]
                dtype = np.complex128 if made[0] == "c" else np.float64
                wide = got.astype(dtype), want.astype(dtype)
                np.testing.assert_allclose(*wide, rtol=near, atol=near * terms**0.5)


LAYOUTS = [("{1,0}", "{1,0}", "{1,0}"), ("{0,1}", "{0,1}", "{0,1}"), ("{0,1}", "{1,0}", "{0,1}")]


@pytest.mark.parametrize("layouts", LAYOUTS, ids="".join)
def test_complex_layouts(layouts: tuple[str, str, str]) -> None:
    """Of one product, and of batches."""
    left, right, made = layouts
    text = f"""HloModule m
ENTRY e {{
  x = c64[13,21]{left} parameter(0)
  y = c64[21,18]{right} parameter(1)
  u = c64[13,21,3] parameter(2)
  v = c64[21,18,3] parameter(3)
  d = c64[13,18]{made} dot(x, y), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  b = c64[3,13,18] dot(u, v), lhs_batch_dims={{2}}, rhs_batch_dims={{2}}, lhs_contracting_dims={{1}},
    rhs_contracting_dims={{0}}
  ROOT r = (c64[13,18]{made}, c64[3,13,18]) tuple(d, b)
}}
"""
    module = hlo_opt.parse(text)
    generator = np.random.default_rng(6)
    inputs = [sample("c64", p.shape.dimensions, generator) for p in module.entry.parameters]
    executable = hlo_opt.compile(module, "host")
    assert executable.report()["routines"] == {"dot": ["a product of the host's own (host_product.h)"]}
    for got, want in zip(executable(*inputs), hlo_opt.evaluate(module, inputs), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def test_a_bf16_nan_stays_one() -> None:
    """Of a NaN whose first digits are lost in 16 bits, too; and what is too large is infinite."""
    module = hlo_opt.parse(
        "HloModule m\nENTRY e {\n  x = f32[3,1] parameter(0)\n  y = bf16[1,1] parameter(1)\n"
        "  ROOT d = bf16[3,1] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n}\n"
    )
    left = np.array([[0x7F800001], [0x7F7FFFFF], [0x80000000]], np.uint32).view(np.float32)
    (got,) = hlo_opt.compile(module, "host")(left, np.ones((1, 1), ml_dtypes.bfloat16))
    values = got.astype(np.float32).reshape(-1)
    assert np.isnan(values[0]) and np.isposinf(values[1]) and values[2] == 0


def test_every_f16_and_what_rounds_to_one() -> None:
    """All bits there and back; numbers half way between two, and beside these; what is too large is infinite."""
    module = hlo_opt.parse(
        "HloModule m\nENTRY e {\n  x = f16[65536,1] parameter(0)\n  y = f32[65536,1] parameter(1)\n"
        "  one = f16[1,1] parameter(2)\n"
        "  a = f16[65536,1] dot(x, one), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
        "  b = f16[65536,1] dot(y, one), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
        "  ROOT r = (f16[65536,1], f16[65536,1]) tuple(a, b)\n}\n"
    )
    halves = np.arange(65536, dtype=np.uint16).view(np.float16)[:, None]
    near = np.repeat(halves[:0x7C00:4].astype(np.float32).view(np.uint32) | 0x1000, 9, 0)
    near += np.tile(np.array([-2, -1, 0, 1, 2, 0x1000, -0x1000, 0x800, -0x800]), len(near) // 9).astype(np.uint32)[
        :, None
    ]
    floats = np.resize(near.view(np.float32), (65536, 1))
    made = hlo_opt.compile(module, "host")(halves, floats, np.ones((1, 1), np.float16))
    with np.errstate(over="ignore"):
        for got, want in zip(made, (halves, floats.astype(np.float16)), strict=True):
            numbers = ~np.isnan(want)
            np.testing.assert_array_equal(np.isnan(got), ~numbers)
            np.testing.assert_array_equal(got[numbers] + np.float16(0), want[numbers] + np.float16(0))


def test_a_loop_of_narrow_products() -> None:
    """What is widened lies in the routine's memory, for each of its products its own."""
    text = """HloModule m
body {
  s = (s32[], bf16[9,9]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  one = s32[] constant(1)
  next = s32[] add(i, one)
  x = bf16[9,9] get-tuple-element(s), index=1
  y = bf16[9,9] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  z = bf16[9,9] dot(y, x), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  ROOT r = (s32[], bf16[9,9]) tuple(next, z)
}
condition {
  s = (s32[], bf16[9,9]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  three = s32[] constant(3)
  ROOT c = pred[] compare(i, three), direction=LT
}
ENTRY e {
  zero = s32[] constant(0)
  x = bf16[9,9] parameter(0)
  s = (s32[], bf16[9,9]) tuple(zero, x)
  w = (s32[], bf16[9,9]) while(s), condition=condition, body=body
  ROOT r = bf16[9,9] get-tuple-element(w), index=1
}
"""
    module = hlo_opt.parse(text)
    x = (np.random.default_rng(0).normal(size=(9, 9)) / 3).astype(ml_dtypes.bfloat16)
    (got,), (want,) = hlo_opt.compile(module, "host")(x), hlo_opt.evaluate(module, [x])
    np.testing.assert_allclose(got.astype(np.float32), want.astype(np.float32), rtol=0.05, atol=1e-3)
