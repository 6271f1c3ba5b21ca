"""What operations wish for their operands."""

from __future__ import annotations

import math

import pytest

from hlo_opt import parse
from hlo_opt.evaluate.wanted import wanted
from hlo_opt.ops import find
from hlo_opt.ops.wishes import NONE, RULES, Wish, WishForm


def asked(body: str, *parameters: str) -> list[Wish]:
    lines = [f"  p{n} = {shape} parameter({n})" for n, shape in enumerate(parameters)]
    return wanted(parse("HloModule m\n\nENTRY e {\n" + "\n".join([*lines, *body.strip().split("\n")]) + "\n}\n"))


@pytest.mark.parametrize(
    ("body", "low", "high"),
    [
        ("ROOT r = f32[9] log(p0)", 0.0, math.inf),
        ("ROOT r = f32[9] sqrt(p0)", 0.0, math.inf),
        ("ROOT r = f32[9] rsqrt(p0)", 0.0, math.inf),
        ("ROOT r = f32[9] log-plus-one(p0)", -1.0, math.inf),
        ("ROOT r = f32[9] acos(p0)", -1.0, 1.0),
        ("ROOT r = f32[9] exponential(p0)", -math.inf, 80.0),
        ("n = f32[9] negate(p0)\n  ROOT r = f32[9] log(n)", -math.inf, 0.0),
        ("one = f32[9] constant({1,1,1,1,1,1,1,1,1})\n  n = f32[9] subtract(one, p0)\n  ROOT r = f32[9] "
         "log(n)", -math.inf, 1.0),
        ("n = f32[9] multiply(p0, p0)\n  ROOT r = f32[9] log(n)", -math.inf, math.inf),
        ("n = f32[9] exponential(p0)\n  ROOT r = f32[9] log(n)", -math.inf, 80.0),
    ],
)  # fmt: skip
def test_functions_are_given_what_they_are_defined_for(body: str, low: float, high: float) -> None:
    (wish,) = asked(body, "f32[9]")
    assert (wish.low, wish.high) == (low, high)


def test_a_divisor_keeps_away_from_zero_and_a_sum_below_one_from_nothing() -> None:
    a, b = asked("ROOT r = f32[4] divide(p0, p1)", "f32[4]", "f32[4]")
    assert b.apart and not a.apart


def test_comparisons_ask_for_their_bounds_on_the_way_back_through_arithmetic() -> None:
    (wish,) = asked(
        "c = f32[] constant(3)\n  two = f32[] constant(2)\n  t = f32[] multiply(p0, two)\n  u = f32[] add(t, two)\n  "
        "ROOT r = pred[] compare(u, c), direction=LT",
        "f32[]",
    )
    assert wish.near == (0.5,)


def test_a_constant_that_is_added_asks_for_values_as_small() -> None:
    text = """e = f32[] constant(1e-5)
  z = f32[] constant(0)
  s = f32[4,8] multiply(p0, p0)
  v = f32[4] reduce(s, z), dimensions={1}, to_apply=sum
  b = f32[4] broadcast(e), dimensions={}
  a = f32[4] add(v, b)
  ROOT r = f32[4] rsqrt(a)"""
    head = "HloModule m\n\nsum {\n  x = f32[] parameter(0)\n  y = f32[] parameter(1)\n  ROOT r = f32[] add(x, y)\n}\n\n"
    (wish,) = wanted(parse(head + "ENTRY e {\n  p0 = f32[4,8] parameter(0)\n  " + text + "\n}\n"))
    assert wish.small == pytest.approx(math.sqrt(1e-5 / 8)) and wish.low == -math.inf


def test_indices_are_within_the_table() -> None:
    _, wish = asked(
        "ROOT g = f32[5,8] gather(p0, p1), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, "
        "index_vector_dim=1, slice_sizes={1,8}",
        "f32[100,8]",
        "s32[5]",
    )
    assert (wish.low, wish.high, wish.form) == (0.0, 99.0, WishForm.INDEX)


def test_weights_are_scaled_by_their_fan_in() -> None:
    x, w = asked(
        "ROOT d = f32[4,8] dot(p0, p1), lhs_contracting_dims={1}, rhs_contracting_dims={0}", "f32[4,64]", "f32[64,8]"
    )
    assert x == NONE and w.scale == 0.125


@pytest.mark.parametrize("opcode", ["mulhi", "xor"])
def test_words_are_drawn_in_full_where_their_upper_bits_count(opcode: str) -> None:
    assert [w.form for w in asked(f"ROOT r = s64[9] {opcode}(p0, p1)", "s64[9]", "s64[9]")] == [
        WishForm.BITS,
        WishForm.BITS,
    ]


def test_two_wishes_are_joined_or_serve_either() -> None:
    assert Wish(low=0.0) & Wish(high=1.0) == Wish(0.0, 1.0)
    assert Wish(0.0, 7.0) & Wish(-8.0, -1.0) == Wish(-8.0, 7.0)
    assert NONE & Wish(scale=2.0) == Wish(scale=2.0) & NONE == Wish(scale=2.0)


def test_every_rule_is_for_an_operation_or_a_call() -> None:
    calls = {"tan", "acos", "acosh", "asin", "atanh", "cosh", "sinh", "erf", "dynamic-reshape"}
    for opcode, rule in RULES.items():
        spec = find(opcode)
        assert spec is None or spec.samples is rule
        assert spec is not None or opcode in calls, opcode


@pytest.mark.parametrize("opcode", ["bitcast", "bitcast-convert"])
def test_integers_that_become_floats_bit_by_bit_are_bits(opcode: str) -> None:
    (wish,) = asked(f"ROOT r = f32[9] {opcode}(p0)", "u32[9]")
    assert wish.form is WishForm.BITS


def test_a_bitcast_to_other_dimensions_hands_the_wish_on() -> None:
    (wish,) = asked("b = f32[9] bitcast(p0)\n  ROOT r = f32[9] log(b)", "f32[3,3]")
    assert wish.low == 0.0
