"""Maxima and minima of floats by index: each thread reads first, and changes only what is not as great or as small yet.
NaN wins whatever its sign is, also where it has been there from the start, and 0 is greater than -0."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hlo_opt
from hlo_opt.analysis.targets import target
from hlo_opt.codegen import Kernel, emit_kernel
from hlo_opt.ir import ELEMENT_TYPES
from hlo_opt.plans import Plan, plan, region_of
from hlo_opt.plans.price import price
from hlo_opt.runtime.host.library import has_compiler

H100 = target("h100_sxm")
KINDS = ("f64", "f32", "f16", "bf16")
VALUES = (np.nan, -np.nan, 0.0, -0.0, np.inf, -np.inf, 1.5, -1.5, 2.0, -2.0)


def text(kind: str, opcode: str, width: int, updates: int = 40, rows: int = 9) -> str:
    return f"""HloModule m
f {{
  a = {kind}[] parameter(0)
  b = {kind}[] parameter(1)
  ROOT r = {kind}[] {opcode}(a, b)
}}
ENTRY e {{
  p = {kind}[{rows},{width}] parameter(0)
  i = s32[{updates}] parameter(1)
  u = {kind}[{updates},{width}] parameter(2)
  ROOT s = {kind}[{rows},{width}] scatter(p, i, u), update_window_dims={{1}}, inserted_window_dims={{0}},
    scatter_dims_to_operand_dims={{0}}, index_vector_dim=1, to_apply=f
}}
"""


def single(kind: str, opcode: str, updates: int, rows: int = 1 << 18) -> str:
    """Elements, no windows."""
    whole = text(kind, opcode, 1, updates, rows).replace(f"[{rows},1]", f"[{rows}]")
    return whole.replace(f"[{updates},1]", f"[{updates}]").replace("update_window_dims={1}", "update_window_dims={}")


def made(hlo: str, device: Any = H100) -> tuple[Plan, Kernel]:
    module = hlo_opt.parse(hlo)
    found = plan(region_of(module, module.entry.root), device)
    assert isinstance(found, Plan), str(found)
    return found, emit_kernel(found)


@pytest.mark.skipif(not has_compiler(), reason="needs a C++ compiler")
@pytest.mark.parametrize("form", ["plain", "lanes"])
@pytest.mark.parametrize("kind", KINDS)
def test_values_are_those_of_the_evaluator(kind: str, form: Any) -> None:
    random, dtype = np.random.default_rng(0), ELEMENT_TYPES[kind].dtype
    for opcode in ("maximum", "minimum"):
        for width in (1, 2, 5, 8):
            module = hlo_opt.parse(text(kind, opcode, width))
            start = random.choice(VALUES, (9, width)).astype(dtype)
            updates = random.choice(VALUES[2:], (40, width)).astype(dtype)
            updates[::13] = dtype.type(VALUES[width % 2])
            inputs = [start, random.integers(-2, 11, 40).astype(np.int32), updates]
            (got,) = hlo_opt.compile(module, backend="host", form=form, target=H100)(*inputs)
            (wanted,) = hlo_opt.evaluate(module, inputs)
            np.testing.assert_array_equal(np.asarray(got, np.float64), np.asarray(wanted, np.float64))
            zeros = [np.full((9, width), zero, dtype) for zero in ((-0.0, 0.0) if opcode == "maximum" else (0.0, -0.0))]
            updates, turns = np.resize(zeros[1], (40, width)), np.arange(40, dtype=np.int32) % 9
            (got,) = hlo_opt.compile(module, backend="host", form=form, target=H100)(zeros[0], turns, updates)
            assert np.all(np.signbit(got) == (opcode == "minimum"))


@pytest.mark.parametrize(
    ("kind", "width", "vector", "function"),
    [
        ("f32", 64, 4, "hlo_extremes<true>("),
        ("f32", 5, 1, "hlo_extreme<true>("),
        ("f64", 6, 2, "hlo_extremes<true>("),
        ("bf16", 64, 8, "hlo_narrow_extremes<true, hlo_load_bf16, hlo_store_bf16>("),
        ("f16", 6, 2, "hlo_narrow_extremes<true, hlo_load_f16, hlo_store_f16>("),
        ("f16", 7, 1, "hlo_swapped("),
    ],
)
def test_neighbours_are_read_together(kind: str, width: int, vector: int, function: str) -> None:
    for device in (H100, target("a100_sxm_80")):
        found, kernel = made(text(kind, "maximum", width, rows=30000), device)
        assert found.segments[0].vector == vector
        assert function in kernel.source.split("__global__")[1]


def test_single_elements_are_read_together_where_there_are_many() -> None:
    assert made(single("f32", "minimum", 1 << 12))[0].segments[0].vector == 1
    found, kernel = made(single("f32", "minimum", 1 << 21))
    assert found.segments[0].vector == 4
    body = kernel.source.split("__global__")[1]
    assert body.count("hlo_extreme<false>(") == 4 and body.rindex("in2[") < body.index("hlo_extreme")
    assert made(single("f32", "minimum", (1 << 21) + 1))[0].segments[0].vector == 1
    assert made(single("f32", "add", 1 << 21))[0].segments[0].vector == 4


@pytest.mark.skipif(not has_compiler(), reason="needs a C++ compiler")
@pytest.mark.parametrize("kind", ["f32", "bf16"])
def test_single_elements_give_the_same_values(kind: str) -> None:
    random, dtype = np.random.default_rng(0), ELEMENT_TYPES[kind].dtype
    count = 1 << 21
    for opcode in ("maximum", "minimum"):
        module = hlo_opt.parse(single(kind, opcode, count))
        assert made(single(kind, opcode, count))[0].segments[0].vector > 1
        inputs = [random.choice(VALUES[2:], 1 << 18).astype(dtype), random.integers(-2, 300, count).astype(np.int32)]
        inputs.append(random.choice(VALUES[2:], count).astype(dtype))
        (got,) = hlo_opt.compile(module, backend="host", form="plain", target=H100)(*inputs)
        (wanted,) = hlo_opt.evaluate(module, inputs)
        np.testing.assert_array_equal(np.asarray(got, np.float64), np.asarray(wanted, np.float64))


def test_more_updates_of_an_element_change_it_less_often() -> None:
    """The n-th is the greatest so far once in n times."""
    few, many = (price(made(text("f32", "maximum", 64, 1 << 20, rows))[0], H100) for rows in (1 << 20, 1 << 12))
    assert many.cache < few.cache
