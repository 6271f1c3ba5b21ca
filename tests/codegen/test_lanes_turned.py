"""Runs that lie the other way round: images turned around, copied run by run before lanes compute, or as all there is to
do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hlo_opt.runtime.host.library import has_compiler
from tests.host_text import run_on_host

pytestmark = pytest.mark.skipif(not has_compiler(), reason="no C++ compiler")

KINDS = {"u8": np.uint8, "s16": np.int16, "f32": np.float32, "f64": np.float64}


def drawn(kind: str, *shape: int) -> Any:
    return np.random.default_rng(0).integers(0, 100, shape).astype(KINDS[kind])


@pytest.mark.parametrize("columns", [8, 31, 96, 700])
@pytest.mark.parametrize("run", [2, 3, 4, 5, 7])
@pytest.mark.parametrize("kind", KINDS)
def test_moved(kind: str, run: int, columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Vectors hold several of the short runs; the last run lies at an end of the array."""
    body = f"""ENTRY e {{
  x = {kind}[9,{columns},{run}] parameter(0)
  ROOT r = {kind}[9,{columns},{run}] reverse(x), dimensions={{1}}
}}
"""
    x = drawn(kind, 9, columns, run)
    found, text = run_on_host(body, x, monkeypatch=monkeypatch)
    np.testing.assert_array_equal(found, x[:, ::-1])
    assert f"hlo::turned<{run}>(out0" in text


@pytest.mark.parametrize("run", [2, 3, 4])
@pytest.mark.parametrize("kind", KINDS)
def test_computed(kind: str, run: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What lanes compute with reads copies, of a part of each row."""
    body = f"""ENTRY e {{
  x = {kind}[9,96,{run}] parameter(0)
  y = {kind}[9,80,{run}] parameter(1)
  t = {kind}[9,96,{run}] reverse(x), dimensions={{1}}
  s = {kind}[9,80,{run}] slice(t), slice={{[0:9],[5:85],[0:{run}]}}
  ROOT r = {kind}[9,80,{run}] add(s, y)
}}
"""
    x, y = drawn(kind, 9, 96, run), drawn(kind, 9, 80, run)
    found, text = run_on_host(body, x, y, monkeypatch=monkeypatch)
    np.testing.assert_array_equal(found, x[:, ::-1][:, 5:85] + y)
    assert f"hlo::turned<{run}>(hlo_turned0" in text


def test_converted(monkeypatch: pytest.MonkeyPatch) -> None:
    body = """ENTRY e {
  x = u8[9,96,3] parameter(0)
  t = u8[9,96,3] reverse(x), dimensions={1}
  ROOT r = s32[9,96,3] convert(t)
}
"""
    x = drawn("u8", 9, 96, 3)
    found, _ = run_on_host(body, x, monkeypatch=monkeypatch)
    np.testing.assert_array_equal(found, x[:, ::-1].astype(np.int32))


@pytest.mark.parametrize(("first", "last"), [(0, 2), (1, 3)])
def test_single_elements(first: int, last: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of three colours: the third may lie outside of the array, and is not read."""
    body = f"""ENTRY e {{
  x = f32[1,90,3] parameter(0)
  s = f32[1,90,2] slice(x), slice={{[0:1],[0:90],[{first}:{last}]}}
  ROOT r = f32[1,90,2] reverse(s), dimensions={{1}}
}}
"""
    x = drawn("f32", 1, 90, 3)
    found, text = run_on_host(body, x, monkeypatch=monkeypatch)
    np.testing.assert_array_equal(found, x[:, ::-1, first:last])
    assert "hlo::turned" not in text


def test_colours_in_another_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Copied run by run, and the elements of a run are then read in the order that they have."""
    body = """ENTRY e {
  x = u8[4,90,3] parameter(0)
  t = u8[4,90,3] reverse(x), dimensions={1}
  a = u8[4,90,1] slice(t), slice={[0:4],[0:90],[1:2]}
  b = u8[4,90,1] slice(t), slice={[0:4],[0:90],[0:1]}
  c = u8[4,90,1] slice(t), slice={[0:4],[0:90],[2:3]}
  ROOT r = u8[4,90,3] concatenate(a, b, c), dimensions={2}
}
"""
    x = drawn("u8", 4, 90, 3)
    found, _ = run_on_host(body, x, monkeypatch=monkeypatch)
    np.testing.assert_array_equal(found, x[:, ::-1][..., [1, 0, 2]])


def test_both_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pair and its other way round."""
    body = """ENTRY e {
  x = f32[9,96,2] parameter(0)
  t = f32[9,96,2] reverse(x), dimensions={1}
  u = f32[9,96,2] reverse(x), dimensions={1,2}
  ROOT r = f32[9,96,2] subtract(t, u)
}
"""
    x = drawn("f32", 9, 96, 2)
    found, _ = run_on_host(body, x, monkeypatch=monkeypatch)
    np.testing.assert_array_equal(found, x[:, ::-1] - x[:, ::-1, ::-1])


@pytest.mark.parametrize(("of", "read"), [("0", "hlo_turned0[hlo_lane]"), ("2", "hlo_turned0[hlo_lane * 3 + 1]")])
def test_lanes_are_elements_where_colours_are_alike(of: str, read: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A gain of an image is the same along a run; that of a colour is not."""
    count = {"0": 9, "2": 3}[of]
    body = f"""ENTRY e {{
  x = u8[9,96,3] parameter(0)
  flags = pred[9] parameter(1)
  gain = f32[{count}] parameter(2)
  t = u8[9,96,3] reverse(x), dimensions={{1}}
  f = pred[9,96,3] broadcast(flags), dimensions={{0}}
  s = u8[9,96,3] select(f, t, x)
  c = f32[9,96,3] convert(s)
  g = f32[9,96,3] broadcast(gain), dimensions={{{of}}}
  ROOT r = f32[9,96,3] multiply(c, g)
}}
"""
    x, flags, gain = drawn("u8", 9, 96, 3), np.arange(9) % 2 == 0, drawn("f32", count)
    found, text = run_on_host(body, x, flags, gain, monkeypatch=monkeypatch)
    chosen = np.where(flags[:, None, None], x[:, ::-1], x).astype(np.float32)
    np.testing.assert_array_equal(found, chosen * (gain[:, None, None] if of == "0" else gain))
    assert read in text
