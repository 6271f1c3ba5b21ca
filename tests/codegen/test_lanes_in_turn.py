"""Lanes that go one after another: those that mention many elements far apart, and runs under conditions within each
other. The recursive sums of `jax.lax.associative_scan` have both."""

from __future__ import annotations

import numpy as np
import pytest

import hlo_opt
from hlo_opt.codegen.lanes_folds import FAR, MANY, goes_in_turn
from hlo_opt.codegen.tree import Let, Statement
from hlo_opt.ir.index_map import Expression, Variable, add, constant, multiply
from hlo_opt.ops.code import Cell, Code, Function, Name
from hlo_opt.runtime.host.library import has_compiler
from tests.host_text import run_on_host

LANE = Variable(0, 63, "lane")


def reads(number: int, place: Expression, called: str = "") -> list[Statement]:
    """So many reads of elements from a place on."""
    before = (Function(called), "(") if called else ("(",)
    cells = [Cell(Name("in0"), Code((str(k),), place=add(place, constant(k)))) for k in range(number)]
    return [Let("float", Name(f"x{k}"), Code((*before, cell, ")"))) for k, cell in enumerate(cells)]


def test_which_lanes() -> None:
    far = multiply(LANE, FAR)
    assert goes_in_turn(reads(MANY, far), {}, ["lane"])
    assert not goes_in_turn(reads(MANY - 1, far), {}, ["lane"])
    assert not goes_in_turn(reads(MANY, multiply(LANE, FAR - 1)), {}, ["lane"])
    assert not goes_in_turn(reads(MANY, far), {}, ["other"])
    assert not goes_in_turn(reads(MANY, far, "expf"), {}, ["lane"])


def sums(size: int) -> str:
    """The lines of all sums of rows up to each element, as JAX writes them: of pairs first, then of elements between."""
    lines, number = list[str](), 0

    def line(text: str) -> str:
        nonlocal number
        number += 1
        lines.append(f"  v{number} = {text}")
        return f"v{number}"

    def every(x: str, first: int, last: int, length: int) -> str:
        return line(f"f32[8,{length}] slice({x}), slice={{[0:8],[{first}:{last}:2]}}")

    def scan(x: str, n: int) -> str:
        if n < 2:
            return x
        half = n // 2
        pairs = line(f"f32[8,{half}] subtract({every(x, 0, n - 1, half)}, {every(x, 1, n, half)})")
        odd = scan(pairs, half)
        first = line(f"f32[8,1] slice({x}), slice={{[0:8],[0:1]}}")
        even = first
        if half > 1:
            known = line(f"f32[8,{half - 1}] slice({odd}), slice={{[0:8],[0:{half - 1}]}}")
            rest = line(f"f32[8,{half - 1}] add({known}, {every(x, 2, n, half - 1)})")
            even = line(f"f32[8,{half}] concatenate({first}, {rest}), dimensions={{1}}")
        padded = [line(f"f32[8,{n}] pad({a}, z), padding=0_0x{pad}_1") for a, pad in ((even, "0_1"), (odd, "1_0"))]
        return line(f"f32[8,{n}] add({padded[0]}, {padded[1]})")

    result = scan("x", size)
    body = "\n".join(lines)
    return (
        f"ENTRY e {{\n  x = f32[8,{size}] parameter(0)\n  z = f32[] constant(0)\n{body}\n"
        f"  ROOT r = f32[8,{size}] copy({result})\n}}\n"
    )


@pytest.mark.skipif(not has_compiler(), reason="no C++ compiler")
@pytest.mark.parametrize("size", [8, 64, 512])
def test_recursive_sums(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.random.default_rng(0).integers(-50, 50, (8, size)).astype(np.float32)
    found, text = run_on_host(sums(size), x, monkeypatch=monkeypatch)
    (expected,) = hlo_opt.evaluate(hlo_opt.parse(f"HloModule m\n\n{sums(size)}"), [x])
    np.testing.assert_array_equal(found, expected)
    assert ("hlo::in_turn" in text) == (size > 8)


ROUNDS = """\
sum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}

less {
  s = (s32[], f32[256,48]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(300)
  ROOT r = pred[] compare(i, n), direction=LT
}

step {
  s = (s32[], f32[256,48]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  one = s32[] constant(1)
  j = s32[] add(i, one)
  t = f32[256,48] get-tuple-element(s), index=1
  zero = f32[] constant(0)
  whole = f32[256] reduce(t, zero), dimensions={1}, to_apply=sum
  part = f32[] constant(0.0208333333)
  parts = f32[256] broadcast(part), dimensions={}
  mean = f32[256] multiply(whole, parts)
  means = f32[256,48] broadcast(mean), dimensions={0}
  half = f32[] constant(0.5)
  halves = f32[256,48] broadcast(half), dimensions={}
  left = f32[256,48] subtract(means, t)
  moved = f32[256,48] multiply(left, halves)
  u = f32[256,48] add(t, moved)
  ROOT r = (s32[], f32[256,48]) tuple(j, u)
}

ENTRY e {
  t = f32[256,48] parameter(0)
  i = s32[] constant(0)
  s = (s32[], f32[256,48]) tuple(i, t)
  w = (s32[], f32[256,48]) while(s), condition=less, body=step
  ROOT r = f32[256,48] get-tuple-element(w), index=1
}
"""


@pytest.mark.skipif(not has_compiler(), reason="no C++ compiler")
def test_rounds_of_a_loop_keep_their_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    """What lanes read before a loop lies far apart, and is a small part of what there is to do."""
    x = np.random.default_rng(0).standard_normal((256, 48), np.float32)
    found, text = run_on_host(ROUNDS, x, monkeypatch=monkeypatch)
    np.testing.assert_allclose(found, np.broadcast_to(x.mean(1, keepdims=True), x.shape), rtol=1e-4, atol=1e-5)
    assert "hlo::in_turn();" not in text
