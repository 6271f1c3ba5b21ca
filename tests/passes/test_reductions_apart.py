"""Reduces of dimensions that lie apart, as two kernels on a processor."""

from __future__ import annotations

import numpy as np
import pytest

import hlo_opt
from hlo_opt.analysis.targets import target
from hlo_opt.ir import Module
from hlo_opt.passes.for_kernels import IN_LANES, expanded
from hlo_opt.runtime.host.library import has_compiler

H100 = target("h100_sxm")


def sums(shape: str, dimensions: str, result: str, more: str = "ROOT r = {result} copy(s)") -> Module:
    """A kernel that sums the squares of an array."""
    return hlo_opt.parse(f"""HloModule m
add {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}}
f {{
  x = f32[{shape}] parameter(0)
  square = f32[{shape}] multiply(x, x)
  zero = f32[] constant(0)
  s = f32[{result}] reduce(square, zero), dimensions={{{dimensions}}}, to_apply=add
  {more.format(result=f"f32[{result}]", shape=f"f32[{shape}]")}
}}
ENTRY e {{
  x = f32[{shape}] parameter(0)
  ROOT k = {f"f32[{shape}]" if "{shape}" in more else f"f32[{result}]"} fusion(x), kind=kInput, calls=f
}}
""")


APART = sums("60,80,100", "0,2", "80")
TWO = """t = {result} reduce(x, zero), dimensions={{0,2}}, to_apply=add
  ROOT r = {result} subtract(s, t)"""
SPREAD = """b = {shape} broadcast(s), dimensions={{1}}
  ROOT r = {shape} multiply(x, b)"""


@pytest.mark.parametrize(
    ("module", "folded"),
    {
        "rows of two runs": (APART, [(2,), (0,)]),
        "the longest run lies outside": (sums("200,30,37", "0,2", "30"), [(0,), (1,)]),
        "two sums in one kernel": (sums("60,80,100", "0,2", "80", TWO), [(2,), (2,), (0,), (0,)]),
        "one run": (sums("60,80,100", "1,2", "60"), [(1, 2)]),
        "few elements": (sums("6,80,30", "0,2", "80"), [(0, 2)]),
        "short runs": (sums("8,2000,8", "0,2", "2000"), [(0, 2)]),
        "read again for an output": (sums("60,80,100", "0,2", "80", SPREAD), [(0, 2)]),
    }.values(),
)
def test_the_longest_run_is_folded_first(module: Module, folded: list[tuple[int, ...]]) -> None:
    before = str(module)
    made = expanded(module, H100, IN_LANES)
    assert str(module) == before
    hlo_opt.verify(made)
    kernels = [i.called_by("calls") for i in made.entry.instructions if i.opcode == "fusion"]
    assert len(kernels) == 1 + (len(folded) > 1)
    assert [i.ints("dimensions") for k in kernels for i in k.instructions if i.opcode == "reduce"] == folded


@pytest.mark.skipif(not has_compiler(), reason="needs a C++ compiler")
@pytest.mark.parametrize("module", [APART, sums("60,80,100", "0,2", "80", TWO)])
def test_results_stay_the_same(module: Module) -> None:
    x = np.random.default_rng(0).uniform(-1, 1, (60, 80, 100)).astype(np.float32)
    found = hlo_opt.compile(module, backend="host")(x)
    want = hlo_opt.compile(module, backend="numpy")(x)
    np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-5)
