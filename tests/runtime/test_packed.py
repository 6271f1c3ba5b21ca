"""Buffers in which several elements share a byte: every backend, and the emitted driver, take and give them as NumPy
has them."""

from __future__ import annotations

import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hlo_opt
from hlo_opt.evaluate import module_inputs
from hlo_opt.library.arrays import packed, raw_dtype, unpacked
from hlo_opt.runtime.driver.emission import manifest_of
from hlo_opt.runtime.host.library import has_compiler
from hlo_opt.runtime.schedule import build_schedule
from hlo_opt.runtime.schedule.lifetimes import peak_of
from tests.runtime.test_driver import run_driver

pytestmark = pytest.mark.skipif(not has_compiler(), reason="no C++ compiler")

VIEWS = """HloModule m
ENTRY e {
  p = s8[3]{0} parameter(0)
  u = s4[3]{0} parameter(1)
  i = s32[] parameter(2)
  w = s4[6]{0} bitcast(p)
  d = s4[6]{0} dynamic-update-slice(w, u, i)
  b = s8[3]{0} bitcast(d)
  q = u2[3,4]{1,0} bitcast(b)
  f = f32[2]{0} parameter(3)
  n = f4e2m1fn[4,4]{0,1} bitcast(f)
  ROOT t = (s8[3]{0}, u2[3,4]{1,0}, f4e2m1fn[4,4]{0,1}, s4[6]{0}) tuple(b, q, n, w)
}
"""
LOOP = """HloModule m
condition {
  s = (s32[], s4[7]{0}, u2[3,3]{1,0}, s4[2]{0}) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(5)
  ROOT less = pred[] compare(i, n), direction=LT
}
body {
  s = (s32[], s4[7]{0}, u2[3,3]{1,0}, s4[2]{0}) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  a = s4[7]{0} get-tuple-element(s), index=1
  b = u2[3,3]{1,0} get-tuple-element(s), index=2
  c = s4[2]{0} get-tuple-element(s), index=3
  one = s32[] constant(1)
  next = s32[] add(i, one)
  d = s4[7]{0} dynamic-update-slice(a, c, i)
  e = u2[3,3]{1,0} add(b, b)
  k = u2[3,3]{1,0} constant({{1,2,3},{3,2,1},{0,1,1}})
  f = u2[3,3]{1,0} add(e, k)
  ROOT t = (s32[], s4[7]{0}, u2[3,3]{1,0}, s4[2]{0}) tuple(next, d, f, c)
}
ENTRY e {
  a = s4[7]{0} parameter(0)
  b = u2[3,3]{1,0} parameter(1)
  c = s4[2]{0} parameter(2)
  z = s32[] constant(0)
  t = (s32[], s4[7]{0}, u2[3,3]{1,0}, s4[2]{0}) tuple(z, a, b, c)
  w = (s32[], s4[7]{0}, u2[3,3]{1,0}, s4[2]{0}) while(t), condition=condition, body=body
  x = s4[7]{0} get-tuple-element(w), index=1
  y = u2[3,3]{1,0} get-tuple-element(w), index=2
  ROOT r = (s4[7]{0}, u2[3,3]{1,0}) tuple(x, y)
}
"""
BRANCHES = """HloModule m
one {
  x = s4[3,5]{0,1} parameter(0)
  ROOT n = s4[3,5]{0,1} negate(x)
}
other {
  x = s4[3,5]{0,1} parameter(0)
  ROOT n = s4[3,5]{0,1} abs(x)
}
ENTRY e {
  c = pred[] parameter(0)
  p = s4[3,5]{1,0} parameter(1)
  q = s4[3,5]{1,0} add(p, p)
  ROOT r = s4[3,5]{0,1} conditional(c, q, q), true_computation=one, false_computation=other
}
"""
PRODUCT = """HloModule m
ENTRY e {
  p = s4[3,5]{1,0} parameter(0)
  k = s4[5,3]{1,0} constant({{1,2,3},{-4,5,6},{7,-8,1},{2,3,4},{5,6,7}})
  m = s4[3,5]{1,0} add(p, p)
  d = s32[3,3]{1,0} dot(m, k), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT c = (s32[3,3]{1,0}, s4[3,5]{1,0}) tuple(d, m)
}
"""
COPIED = """HloModule m
ENTRY e {
  p = s4[3,5]{1,0} parameter(0)
  q = u2[5]{0} parameter(1)
  t = (s4[3,5]{1,0}, u2[5]{0}) tuple(p, q)
  c = (s4[3,5]{0,1}, u2[5]{0}) copy(t)
  x = s4[3,5]{0,1} get-tuple-element(c), index=0
  s = u2[2]{0} constant({1, 1})
  l = u2[150]{0} constant({LONG})
  ROOT r = (s4[3,5]{0,1}, (s4[3,5]{0,1}, u2[5]{0}), u2[2]{0}, u2[150]{0}) tuple(x, c, s, l)
}
""".replace("LONG", ",".join(str(n * n % 7 % 4) for n in range(150)))
STILL = """HloModule m
condition {
  s = (s4[3]{0}, s4[3]{0}) parameter(0)
  ROOT yes = pred[] constant(true)
}
body {
  s = (s4[3]{0}, s4[3]{0}) parameter(0)
  a = s4[3]{0} get-tuple-element(s), index=0
  b = s4[3]{0} get-tuple-element(s), index=1
  c = s4[3]{0} maximum(a, b)
  d = s4[3]{0} minimum(a, c)
  ROOT t = (s4[3]{0}, s4[3]{0}) tuple(c, d)
}
ENTRY e {
  a = s4[3]{0} parameter(0)
  b = s4[3]{0} parameter(1)
  t = (s4[3]{0}, s4[3]{0}) tuple(a, b)
  ROOT w = (s4[3]{0}, s4[3]{0}) while(t), condition=condition, body=body
}
"""
CASES = {"views": VIEWS, "loop": LOOP, "branches": BRANCHES, "product": PRODUCT, "copied": COPIED}


def inputs_of(module: hlo_opt.Module, seed: int) -> list[Any]:
    """Elements of every value that a type of less than a byte has."""
    rng = np.random.default_rng(seed)
    found = []
    for array in module_inputs(module, seed):
        bits = {"int4": 4, "uint2": 2}.get(array.dtype.name)
        if bits:
            memory = rng.integers(0, 256, -(-array.size * bits // 8)).astype(np.uint8)
            array = unpacked(np, memory, bits, array.size).view(array.dtype).reshape(array.shape)
        found.append(array)
    return found


def assert_same(got: list[Any], want: list[Any]) -> None:
    for a, b in zip(got, want, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        assert a.tobytes() == np.ascontiguousarray(b).tobytes(), (a, b)


@pytest.mark.parametrize("name", CASES)
def test_host_and_cupy_give_what_the_reference_gives(name: str, fake: types.ModuleType) -> None:
    module = hlo_opt.parse(CASES[name])
    for backend in ("host", "cupy"):
        executable = hlo_opt.compile(module, backend)
        for seed in range(3):
            given = inputs_of(module, seed)
            assert_same(executable(*given), hlo_opt.evaluate(module, given))


@pytest.mark.parametrize("name", CASES)
def test_a_driver_takes_and_gives_raw_elements(name: str, tmp_path: Path) -> None:
    module = hlo_opt.parse(CASES[name])
    given = inputs_of(module, 4)
    hlo_opt.emit(module, tmp_path / "emitted")
    outputs, _ = run_driver(tmp_path / "emitted", given)
    assert_same(outputs, [a.view(raw_dtype(a.dtype)) for a in hlo_opt.evaluate(module, given)])


def test_the_sanitizers_find_nothing() -> None:
    for text in (VIEWS, LOOP):
        module = hlo_opt.parse(text)
        given = inputs_of(module, 1)
        assert_same(hlo_opt.compile(module, "host", sanitize=True)(*given), hlo_opt.evaluate(module, given))


@pytest.mark.parametrize("backend", ["host", "cupy"])
def test_a_loop_that_changes_nothing_goes_on(backend: str, fake: types.ModuleType) -> None:
    module = hlo_opt.parse(STILL)
    executable = hlo_opt.compile(module, backend, max_steps=100)
    with pytest.raises(hlo_opt.EvaluationError, match="goes on after 100 iterations"):
        executable(*inputs_of(module, 2))


def test_buffers_have_the_bytes_that_their_elements_fill() -> None:
    module = hlo_opt.parse("HloModule m\nENTRY e { p = s4[1001]{0} parameter(0)\n ROOT n = s4[1001]{0} negate(p) }")
    schedule = build_schedule(module)
    (kernel,) = manifest_of(schedule, {k.symbol: "k.cu" for k in schedule.kernels})["kernels"]
    assert [shape["bytes"] for shape in (*kernel["inputs"], *kernel["outputs"])] == [501, 501]
    assert peak_of(schedule).bytes == 3 * 501  # the input, the result, and the result as the caller gets it
    assert hlo_opt.compile(module, "host").report()["memory"]["inputs"] == 501


@pytest.mark.parametrize("bits", [1, 2, 4])
def test_packing_goes_both_ways(bits: int) -> None:
    for count in (0, 1, 2, 3, 7, 8, 9, 64):
        values = (np.arange(count) * 7 + 3).astype(np.uint8) & np.uint8((1 << bits) - 1)
        memory = packed(np, values, bits)
        assert memory.size == -(-count * bits // 8)
        whole = sum(int(v) << bits * n for n, v in enumerate(values))
        assert int.from_bytes(memory.tobytes(), "little") == whole
        np.testing.assert_array_equal(unpacked(np, memory, bits, count), values)
