"""What costs too much to compute again."""

from __future__ import annotations

import pytest

from hlo_opt.fusion.choices import always_duplicable, is_expensive
from hlo_opt.ir import Instruction
from hlo_opt.text import parse


def root(expression: str) -> Instruction:
    return parse(
        f"HloModule m\nENTRY e {{\n  p = f32[64] parameter(0)\n  q = f64[64] parameter(1)\n  h = bf16[64] parameter(2)\n  x = f16[64] parameter(3)\n  ROOT r = {expression}\n}}\n"
    ).entry.root


@pytest.mark.parametrize("opcode", ["exponential", "sqrt", "rsqrt"])
def test_what_special_function_units_compute_is_cheap(opcode: str) -> None:
    assert [is_expensive(root(f"{t}[64] {opcode}({n})")) for t, n in (("f32", "p"), ("bf16", "h"), ("f16", "x"))] == [
        False
    ] * 3
    assert is_expensive(root(f"f64[64] {opcode}(q)"))


def test_other_functions_are_not() -> None:
    assert is_expensive(root("f32[64] tanh(p)")) and is_expensive(root("f64[64] divide(q, q)"))
    assert not is_expensive(root("f32[64] divide(p, p)")) and not is_expensive(root("f32[64] add(p, p)"))


def test_what_costs_nothing_to_compute_again() -> None:
    assert always_duplicable(root("f64[64] convert(p)")) and not always_duplicable(root("f32[64] convert(q)"))
    assert always_duplicable(root("f32[2] iota(), iota_dimension=0")) and not always_duplicable(
        root("f32[64] negate(p)")
    )
