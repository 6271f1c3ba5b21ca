"""Scatters whose windows are lanes side by side: only where no lane changes what another one mentions."""

from __future__ import annotations

import re

import numpy as np
import pytest

from hlo_opt.codegen.lanes_apart import are_apart
from hlo_opt.codegen.tree import Assign, Do, For, Let, Statement
from hlo_opt.ir.index_map import Expression, Variable, add, constant, multiply
from hlo_opt.ops.code import Code, Name, address, call, cell, code, of
from hlo_opt.runtime.host.library import has_compiler
from tests.host_text import run_on_host

OUT, LANE = Name("out0"), Variable(0, 15, "lane")
ROW = multiply(Variable(0, 99, "i1"), 64)


def at(place: Expression) -> Code:
    return Code(of(Name("i")).pieces, place=place)


def added(place: Expression, values: int) -> Do:
    return Do(call("hlo_atomic_add_f32", address(OUT, at(place)), *(code("1.0f") for _ in range(values))))


@pytest.mark.parametrize(
    ("items", "apart"),
    [
        ([added(add(ROW, multiply(LANE, 4)), 4)], True),
        ([added(add(ROW, multiply(LANE, 4)), 8)], False),
        ([added(ROW, 4)], False),
        ([added(add(ROW, multiply(LANE, 4)), 2), added(add(add(ROW, multiply(LANE, 4)), constant(2)), 2)], True),
        ([added(add(ROW, multiply(LANE, 4)), 2), added(add(add(ROW, multiply(LANE, 4)), constant(4)), 2)], False),
        ([added(add(ROW, multiply(LANE, 4)), 2), added(multiply(LANE, 4), 2)], False),
        ([Do(call("atomicAdd", address(OUT, at(add(ROW, LANE))), code("1.0f")))], True),
        ([Do(call("hlo_atomic_add_bf16", address(OUT, at(add(ROW, LANE))), code("1")))], False),
        ([Assign(cell(OUT, at(add(ROW, LANE))), code("1.0f"))], True),
        ([Let("float", Name("x"), cell(OUT, at(ROW))), Assign(cell(OUT, at(add(ROW, LANE))), code("x"))], False),
        ([Let("float", Name("x"), cell(Name("in0"), at(ROW))), Assign(cell(OUT, at(add(ROW, LANE))), code("x"))], True),
        ([Assign(cell(OUT, at(LANE)), code("1.0f")), Assign(cell(Name("out1"), at(LANE)), code("1.0f"))], False),
        ([For("int", None, code(""), code("true"), code(""), body=[added(add(ROW, multiply(LANE, 4)), 4)])], False),
    ],
)
def test_which_lanes_are_apart(items: list[Statement], apart: bool) -> None:
    assert are_apart(items, {"in0"}, {}, "lane") == apart


@pytest.mark.skipif(not has_compiler(), reason="no C++ compiler")
@pytest.mark.parametrize("columns", [16, 40, 96, 5, 3, 1])
@pytest.mark.parametrize(
    ("kind", "combiner"), [("f32", "add"), ("s32", "add"), ("f32", "maximum"), ("f16", "add"), ("c64", "add")]
)
def test_rows_are_combined_in_lanes(kind: str, combiner: str, columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the order of the updates, to the bit; places outside are left out."""
    body = f"""\
plus {{
  a = {kind}[] parameter(0)
  b = {kind}[] parameter(1)
  ROOT r = {kind}[] {combiner}(a, b)
}}

ENTRY e {{
  o = {kind}[7,{columns}] parameter(0)
  i = s32[500,1] parameter(1)
  u = {kind}[500,{columns}] parameter(2)
  ROOT r = {kind}[7,{columns}] scatter(o, i, u), update_window_dims={{1}}, inserted_window_dims={{0}},
    scatter_dims_to_operand_dims={{0}}, index_vector_dim=1, to_apply=plus
}}
"""
    generator = np.random.default_rng(3)
    dtype = {"f32": np.float32, "s32": np.int32, "f16": np.float16, "c64": np.complex64}[kind]
    start, updates = ((generator.standard_normal((n, columns)) * 100).astype(dtype) for n in (7, 500))
    places = generator.integers(-1, 8, (500, 1)).astype(np.int32)
    expected = start.copy()
    for place, update in zip(places[:, 0], updates, strict=True):
        if 0 <= place < 7:
            expected[place] = {"add": np.add, "maximum": np.maximum}[combiner](expected[place], update)
    found, text = run_on_host(body, start, places, updates, monkeypatch=monkeypatch)
    np.testing.assert_array_equal(found, expected)
    (parameters,) = re.findall(r"void scatter\w+\(([^)]*)\)", text)
    assert ("hlo_live" in parameters) == (columns > 1)
