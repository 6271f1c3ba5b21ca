"""f16 in memory that neighbouring lanes read: every f16 is read, and numbers around every tie are rounded, as NumPy
does it, with the processor's instructions and without."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

from hlo_opt.codegen.lanes import SHIMS, shim
from hlo_opt.runtime.host.library import built, has_compiler
from tests.host_text import run_on_host

pytestmark = pytest.mark.skipif(not has_compiler(), reason="no C++ compiler")

EVERY = np.arange(65536, dtype=np.uint16).view(np.float16)
AROUND = np.concatenate(
    [
        (np.arange(1 << 18, dtype=np.uint32) << 14 | low).view(np.float32)
        for low in (0, 1, 0x0FFF, 0x1000, 0x1001, 0x1FFF, 0x2000, 0x3000, 0x3FFF)
    ]
)
"""Each f16, and what lies at, next to and between the ties, with every exponent of f32."""


@pytest.fixture(params=["native", "without instructions"])
def unit(request: pytest.FixtureRequest) -> str:
    """The head of a unit, for the processor at hand or for one that converts no f16."""
    head = "" if request.param == "native" else "#undef __F16C__\n"
    return head + "".join(map(shim, SHIMS))


def same(found: Any, expected: Any) -> None:
    """Equal to the bit, and NaN where NaN is expected."""
    numbers = expected == expected
    assert np.array_equal(np.isnan(found), ~numbers)
    bits = np.dtype(f"u{expected.itemsize}")
    assert np.array_equal(found[numbers].view(bits), expected[numbers].view(bits))


def test_halves_are_widened_and_narrowed(unit: str) -> None:
    """Also what is left of a vector."""
    text = (
        'extern "C" __attribute__((visibility("default"))) void widen(const unsigned short* x, float* y, long long n) '
        "{ hlo::widen_f16(x, y, n); }\n"
        'extern "C" __attribute__((visibility("default"))) void narrow(const float* x, unsigned short* y, long long n) '
        "{ hlo::narrow_f16(x, y, n); }\n"
    )
    made = ctypes.CDLL(str(built([unit + text])))
    for size in (EVERY.size, EVERY.size - 3):
        wide = np.zeros(EVERY.size, np.float32)
        made.widen(EVERY.ctypes.data_as(ctypes.c_void_p), wide.ctypes.data_as(ctypes.c_void_p), ctypes.c_longlong(size))
        same(wide[:size], EVERY[:size].astype(np.float32))
        assert not wide[size:].any()
    with np.errstate(all="ignore"):
        expected = AROUND.astype(np.float16)
    for size in (AROUND.size, AROUND.size - 5):
        half = np.zeros(AROUND.size, np.float16)
        made.narrow(
            AROUND.ctypes.data_as(ctypes.c_void_p), half.ctypes.data_as(ctypes.c_void_p), ctypes.c_longlong(size)
        )
        same(half[:size], expected[:size])
        assert not half[size:].view(np.uint16).any()


def test_elements(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each operation is rounded once: what is stored is not rounded before."""
    body = (
        "ENTRY e {\n  p = f16[65533]{0} parameter(0)\n  q = f16[65533]{0} parameter(1)\n"
        "  m = f16[65533]{0} multiply(p, q)\n  ROOT r = f16[65533]{0} subtract(m, q)\n}\n"
    )
    a, b = EVERY[3:], EVERY[::-1][3:]
    with np.errstate(all="ignore"):
        expected = ((a.astype(np.float32) * b.astype(np.float32)).astype(np.float16)).astype(np.float32)
        expected = (expected - b.astype(np.float32)).astype(np.float16)
    found, text = run_on_host(body, a, b, monkeypatch=monkeypatch)
    assert (text.count("hlo::read_f16("), text.count("hlo::write_f16(")) == (2, 1)
    same(found, expected)


@pytest.mark.parametrize("columns", [64, 1024, 1000, 1003])
def test_rows(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The greatest of rows, and what is taken from each of their elements."""
    shape, rows = f"f16[48,{columns}]{{1,0}}", "f16[48]{0}"
    body = (
        "larger {\n  a = f16[] parameter(0)\n  b = f16[] parameter(1)\n  ROOT r = f16[] maximum(a, b)\n}\n\n"
        f"ENTRY e {{\n  p = {shape} parameter(0)\n  z = f16[] constant(-inf)\n"
        f"  m = {rows} reduce(p, z), dimensions={{1}}, to_apply=larger\n"
        f"  b = {shape} broadcast(m), dimensions={{0}}\n  ROOT r = {shape} subtract(p, b)\n}}\n"
    )
    x = np.random.default_rng(0).standard_normal((48, columns)).astype(np.float16)
    expected = x - x.max(1, keepdims=True)
    same(run_on_host(body, x, monkeypatch=monkeypatch)[0], expected)
