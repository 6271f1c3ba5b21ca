"""Where XLA:CPU uses an init value more than once, or does not round to bf16."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import hlo_opt

REDUCERS = """add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}
add_s32 {
  a = s32[] parameter(0)
  b = s32[] parameter(1)
  ROOT c = s32[] add(a, b)
}
add_bf16 {
  a = bf16[] parameter(0)
  b = bf16[] parameter(1)
  ROOT c = bf16[] add(a, b)
}
twice {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  c = f32[] add(b, b)
  ROOT d = f32[] add(a, c)
}
"""
REDUCES = [
    ("f32", "1", "0", "", "add"),
    ("f32", "32", "0", "", "add"),
    ("f32", "33", "0", "", "add"),
    ("f32", "1025", "0", "", "add"),
    ("f32", "3000", "0", "", "add"),
    ("f32", "4096", "0", "", "add"),
    ("s32", "4096", "0", "", "add_s32"),
    ("bf16", "164", "0", "", "add_bf16"),
    ("f32", "40,40", "0,1", "", "add"),
    ("f32", "4,40", "1", "4", "add"),
    ("f32", "1,4,1", "0,2", "4", "add"),
    ("f32", "128", "0", "", "twice"),
    ("f32", "5,0", "1", "5", "add"),
]


def both(text: str, inputs: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    pytest.importorskip("jaxlib")
    from scripts.xla_cpu import Program

    got = hlo_opt.evaluate(hlo_opt.parse(text), inputs)[0]
    return got.astype(np.float64), Program(text)(inputs)[0].astype(np.float64)


@pytest.mark.parametrize(("kind", "sizes", "dimensions", "result", "reducer"), REDUCES)
def test_init_values_go_in_as_often_as_in_xla(
    kind: str, sizes: str, dimensions: str, result: str, reducer: str
) -> None:
    text = f"HloModule m\n{REDUCERS}ENTRY e {{\n  p = {kind}[{sizes}] parameter(0)\n  c = {kind}[] constant(1)\n"
    text += f"  ROOT r = {kind}[{result}] reduce(p, c), dimensions={{{dimensions}}}, to_apply={reducer}\n}}\n"
    dtype = {"f32": np.float32, "s32": np.int32, "bf16": ml_dtypes.bfloat16}[kind]
    shape = [int(size) for size in sizes.split(",")]
    values = np.random.default_rng(1).integers(0, 3, shape).astype(dtype)
    got, want = both(text, [values])
    assert np.array_equal(got, want)
    plain = hlo_opt.evaluate(hlo_opt.parse(text), [values], as_xla_cpu=False)[0].astype(np.float64)
    axes = tuple(int(d) for d in dimensions.split(","))
    if kind != "bf16":
        assert np.array_equal(plain, (2 if reducer == "twice" else 1) * values.astype(np.float64).sum(axes) + 1)


A, B = "  a = bf16[64,96] parameter(0)\n", "  b = bf16[64,96] parameter(1)\n"
SUM = "  k = f32[] constant(0)\n  ROOT r = f32[96] reduce(c, k), dimensions={0}, to_apply=add\n"
BODIES = {
    "a conversion keeps": "  d = bf16[64,96] multiply(a, b)\n  ROOT c = f32[64,96] convert(d)\n",
    "operands are rounded": "  x = bf16[64,96] multiply(a, b)\n  d = bf16[64,96] multiply(x, b)\n  ROOT c = f32[64,96] convert(d)\n",
    "a move between rounds": "  d = bf16[64,96] multiply(a, b)\n  t = bf16[96,64] transpose(d), dimensions={1,0}\n  ROOT c = f32[96,64] convert(t)\n",
    "a product keeps": "  d = bf16[64,64] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={1}\n  ROOT c = f32[64,64] convert(d)\n",
    "two conversions round": "  f = f32[64,96] convert(a)\n  g = f32[64,96] sine(f)\n  d = bf16[64,96] convert(g)\n  ROOT c = f32[64,96] convert(d)\n",
    "a sum keeps": "  x = bf16[64,96] multiply(a, b)\n  d = bf16[64,96] multiply(x, b)\n  c = f32[64,96] convert(d)\n"
    + SUM,
    "a sum keeps through moves": "  d = bf16[64,96] multiply(a, b)\n  t = bf16[96,64] transpose(d), dimensions={1,0}\n  c = f32[96,64] convert(t)\n"
    + SUM.replace("dimensions={0}", "dimensions={1}"),
}


@pytest.mark.parametrize("name", BODIES)
def test_roundings_that_xla_leaves_out(name: str) -> None:
    generator = np.random.default_rng(2)
    inputs = [generator.uniform(0.5, 2, (64, 96)).astype(ml_dtypes.bfloat16) for _ in range(2)]
    got, want = both(f"HloModule m\n{REDUCERS}ENTRY e {{\n{A}{B}{BODIES[name]}}}\n", inputs)
    np.testing.assert_allclose(got, want, 2e-6)


@pytest.mark.parametrize("preset", ["xla-2023", "xla-2026", "default"])
@pytest.mark.parametrize("name", [*BODIES, "an unused value does not count", "a user in another kernel"])
def test_fusing_changes_no_rounding(name: str, preset: str) -> None:
    more = {
        "an unused value does not count": "  d = bf16[64,96] multiply(a, b)\n  u = bf16[64,96] sine(d)\n  c = f32[64,96] convert(d)\n" + SUM,
        "a user in another kernel": "  d = bf16[64,96] multiply(a, b)\n  s = bf16[64,64] dot(d, b), lhs_contracting_dims={1}, rhs_contracting_dims={1}\n"
        "  c = f32[64,96] convert(d)\n  k = f32[] constant(0)\n  x = f32[96] reduce(c, k), dimensions={0}, to_apply=add\n"
        "  ROOT t = (f32[96], bf16[64,64]) tuple(x, s)\n",
    }  # fmt: skip
    generator = np.random.default_rng(3)
    inputs = [generator.uniform(0.5, 2, (64, 96)).astype(ml_dtypes.bfloat16) for _ in range(2)]
    module = hlo_opt.parse(f"HloModule m\n{REDUCERS}ENTRY e {{\n{A}{B}{BODIES.get(name) or more[name]}}}\n")
    fused, _ = hlo_opt.fuse(module, preset=preset)
    for got, want in zip(hlo_opt.evaluate(fused, inputs), hlo_opt.evaluate(module, inputs), strict=True):
        np.testing.assert_array_equal(got, want)
