"""The parts that rules of sums, loops and bounds are made of, on numbers that can be checked by hand."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from hlo_opt.ir import ELEMENT_TYPES
from hlo_opt.ops.spread import aside, certain, full, is_spread, limits, ordered, set_aside, settled
from hlo_opt.ops.values import HIGH, LOW, MOVED, ROWS, VALUE, Spread
from hlo_opt.runtime.rounding import calibration, control, sums
from hlo_opt.runtime.rounding.analysis import SpreadInterpreter
from hlo_opt.runtime.rounding.calibration import calibrated
from hlo_opt.text import parse

from .spreads import parsed, run

F32, F64, BF16, S32, C64 = (ELEMENT_TYPES[n] for n in ("f32", "f64", "bf16", "s32", "c64"))
INF, NAN = math.inf, math.nan


def rows(low: Any, value: Any, high: Any, moved: Any = None, dtype: Any = np.float64) -> Any:
    """One element, or as many as the lists have."""
    value = np.atleast_1d(np.asarray(value, dtype))
    made = [
        value,
        np.broadcast_to(np.asarray(low, dtype), value.shape),
        np.broadcast_to(np.asarray(high, dtype), value.shape),
    ]
    made += [np.broadcast_to(np.asarray(m, dtype), value.shape) for m in (moved or [value] * (ROWS - MOVED))]
    return np.stack(made)


class Quiet:
    """An analyst whose noise is one."""

    rewritten = False

    def noise(self, shape: tuple[int, ...]) -> Any:
        return np.ones(shape)


# ---- sums


def test_half_an_ulp_of_one() -> None:
    assert [sums.unit(ELEMENT_TYPES[n]) for n in ("f64", "c128", "f32", "bf16", "c64")] == [2.0**-53] * 2 + [
        2.0**-24
    ] * 3


@pytest.mark.parametrize(
    ("terms", "total", "squares", "partial", "steps"),
    [
        (1, 1.0, 1.0, 1.0, None),
        (2, 0.0, 4.0, 3.0, 2.0),  # two terms: fewer than twice the root
        (4, 0.0, 4.0, 3.0, 4.0),
        (9, 0.0, 4.0, 3.0, 6.0),
        (100, 0.0, 4.0, 30.0, 20.0),
        (100, -5.0, 4.0, 3.0, 20.0),
        (100, 10.0, 1.0, 10.0, 100.0),  # all alike: 100 * 1 = 10 * 10
        (100, 10.0, 1.2, 10.0, 100.0),
        (100, 10.0, 1.21, 10.0, 20.0),
    ],
)
def test_how_far_two_orders_of_a_sum_are_apart(
    terms: int, total: float, squares: float, partial: float, steps: float | None
) -> None:
    found = sums.open_order(terms, F32, np.array([total]), np.array([squares]), np.array([partial]))
    wanted = 0.0 if steps is None else 2 * 2.0**-24 * steps * (max(partial, abs(total)) + 2 * math.sqrt(squares))
    assert found == pytest.approx([wanted], rel=1e-12)


def test_sizes_and_distances() -> None:
    made = rows([1, -5, 2, 0], [2, -2, 2, 0], [4, -1, 2, 3])
    assert list(sums.sized(made, np.float64)) == [4, 5, 2, 3]
    assert list(sums.radius(made, np.float64)) == [2, 3, 0, 3]
    assert list(sums.sized(made[:1], np.float64)) == [2, 2, 2, 0] and list(sums.radius(made[:1], np.float64)) == [0] * 4
    assert list(sums.radius(rows([NAN], [NAN], [NAN]), np.float64)) == [0]


def product(a: Any, b: Any) -> Any:
    return a @ b


def test_the_largest_sum_on_the_way() -> None:
    a, b = np.array([[5.0, -3.0, 4.0, -6.0, 1.0, 1.0, 1.0, 1.0]]), np.ones((8, 1))
    # sums after two, four, six and eight terms: 2, 0, 2, 4
    assert sums.on_the_way(a, b, product, (1, 0)) == 4
    assert sums.on_the_way(a, b, product, None) == 22
    assert sums.on_the_way(a[:, :3], b[:3], product, (1, 0)) == 6  # 5, 2, 6
    assert sums.on_the_way(-a[:, :2], b[:2], product, (1, 0)) == 5


@pytest.mark.parametrize("scale", [1.0, 1e30, 0.0])
def test_squares_beyond_the_type(scale: float) -> None:
    a, b = np.array([[1.0, 2.0]], np.float32) * np.float32(scale), np.array([[3.0], [4.0]], np.float32)
    assert sums._squares(a, b, product)[0] == pytest.approx([(9 + 64) * scale**2], rel=1e-6)


def test_sums_before_some_places() -> None:
    value = np.array([[1.0, 2.0, -9.0, 4.0, 5.0, 6.0, 7.0, 8.0], [1.0] * 8])
    first = np.array([[10.0]])
    assert list(sums._before(value, (1,), first)) == [34.0, 18.0]  # 13, 8, 19, 34
    assert list(sums._before(-value, (1,), first * 0)) == [24.0, 8.0]
    assert list(sums._before(value[:, :3], (1,), first * 0)) == [6.0, 3.0]  # 1, 3, -6
    assert list(sums._before(value[:, :0], (1,), first)) == [0.0, 0.0]
    assert sums._before(value, (0, 1), first * 0).shape == ()


@pytest.mark.parametrize(("most", "whole"), [(2.0**24, True), (2.0**24 + 2, False)])
def test_whole_numbers_that_fit_are_summed_exactly(most: float, whole: bool) -> None:
    arrays = [np.array([[1.0, 2.0]])]
    assert sums._are_whole(arrays, np.array([most]), F32, ()) == whole
    assert sums._are_whole(arrays, np.array([most]), F64, ())
    assert not sums._are_whole([np.array([[1.5]]), *arrays], np.array([1.0]), F32, ())
    assert sums._are_whole([np.array([[1.5]]), *arrays], np.array([1.0]), F32, (0,))
    assert not sums._are_whole(arrays, np.array([]), F32, ())
    assert not sums._are_whole(arrays, np.array([NAN]), F32, ())


def test_a_sum_is_rounded_once_more_on_either_side() -> None:
    wide = rows(1.0, 1.0, 1.0)
    exact = sums.rounded(Quiet(), wide, np.array([0.0]), F32)
    assert isinstance(exact, np.ndarray) and exact == [1.0]
    made = sums.rounded(Quiet(), wide, np.array([2.0**-22]), F32)
    step = 2.0**-22 + 2.0**-23  # its own error, and an ULP
    assert (made.rows[LOW], made.rows[HIGH]) == (np.float32(1 - step), np.float32(1 + step))
    assert list(made.rows[MOVED:][:, 0]) == [np.float32(1 + 2.0**-24)] * 4
    narrow = sums.rounded(Quiet(), wide, np.array([2.0**-10]), BF16)
    assert isinstance(narrow, np.ndarray)  # rounded away
    open_ = sums.rounded(Quiet(), rows(1.0, 1.0, 1.0 + 2.0**-7, [1.0 + 2.0**-7] * 4), np.array([0.0]), BF16)
    assert (float(open_.rows[LOW][0]), float(open_.rows[HIGH][0])) == (1.0, 1.0078125)


def test_a_rounding_that_the_other_module_leaves_out() -> None:
    class Rewritten(Quiet):
        rewritten = True

    made = sums.rounded(Rewritten(), rows(1.0, 1.0, 1.0), np.array([0.0]), BF16)
    assert (float(made.rows[LOW][0]), float(made.rows[HIGH][0])) == (1 - 2.0**-7, 1 + 2.0**-7)
    assert not isinstance(sums.rounded(Rewritten(), rows(1.0, 1.0, 1.0), np.array([0.0]), F32), Spread)


def test_complex_sums_and_whole_ones() -> None:
    made = sums.rounded(Quiet(), rows(1 + 1j, 1 + 1j, 1 + 1j, dtype=np.complex128), np.array([0.5]), C64)
    assert (made.rows[LOW][0], made.rows[HIGH][0], made.rows[MOVED][0]) == (0.5 + 0.5j, 1.5 + 1.5j, 1.125 + 1j)
    whole = sums.rounded(Quiet(), rows(1.5, 2.0, 2.5), np.array([0.0]), S32)
    assert (whole.rows[LOW][0], whole.rows[HIGH][0]) == (1, 3)


def test_large_sums_are_made_piece_by_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    value, far, own = np.arange(1.0, 8.0), np.full(7, 0.25), np.zeros(7)
    moved = [value + 0.1 * k for k in range(4)]
    whole = sums.around(Quiet(), value, far, moved, own, F64)
    monkeypatch.setattr(sums, "_PIECE", 3)
    parts = sums.around(
        Quiet(), value.reshape(7, 1), far.reshape(7, 1), [m.reshape(7, 1) for m in moved], own.reshape(7, 1), F64
    )
    assert parts.rows.shape == (ROWS, 7, 1) and np.allclose(parts.rows[VALUE][:, 0], whole.rows[VALUE])
    assert (parts.rows[LOW][:, 0] < value).all() and (parts.rows[HIGH][:, 0] > value).all()


@pytest.mark.parametrize(
    "body",
    [
        "  ROOT c = f32[1,1]{1,0} dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
        "  t = f32[4]{0} reshape(a)\n  z = f32[] constant(0)\n  s = f32[] reduce(t, z), dimensions={0}, "
        "to_apply=add_f32\n  ROOT c = f32[1,1]{1,0} reshape(s)",
    ],
)
def test_bounds_of_sums_are_the_sums_of_bounds(body: str) -> None:
    value, low, high = [1, 2, 3, 4], [0.5, 1.5, 2.5, 3.5], [1.25, 2.25, 3.25, 4.25]
    given = Spread(np.array([[value], [low], [high], [high], [low], [low], [low]], np.float32))
    module = parsed("  a = f32[1,4]{1,0} parameter(0)\n  b = f32[4,1]{1,0} parameter(1)\n" + body)
    (made,) = run(module, [given, np.ones((4, 1), np.float32)])
    low, high = float(made.rows[LOW].reshape(())), float(made.rows[HIGH].reshape(()))
    wide = "dot" in body  # a product takes the larger radius for both sides
    assert low == pytest.approx(8.0, abs=1e-4) and high == pytest.approx(12.0 if wide else 11.0, abs=1e-4)


@pytest.mark.parametrize(("opcode", "low", "high"), [("maximum", 2.0, 4.0), ("minimum", 1.0, 3.0)])
def test_bounds_of_an_extreme_are_the_extremes_of_bounds(opcode: str, low: float, high: float) -> None:
    body = (
        f"  a = f32[2]{{0}} parameter(0)\n  i = f32[] parameter(1)\n  ROOT c = f32[] reduce(a, i), dimensions={{0}}, "
        f"to_apply={opcode}_f32"
    )
    given = Spread(rows([1.0, 2.0], [2.0, 3.0], [3.0, 4.0], dtype=np.float32))
    (made,) = run(parsed(body), [given, np.float32(-9.0 if opcode == "maximum" else 9.0)])
    assert (float(made.rows[LOW]), float(made.rows[HIGH])) == (low, high)


def test_terms_of_a_scatter_are_its_updates() -> None:
    """Three updates at 0, one at 1, none at 2: there, nothing is open, and one update of zero is exact."""
    body = (
        "  a = f32[3]{0} parameter(0)\n  i = s32[4,1]{1,0} constant({{0}, {0}, {0}, {1}})\n  u = f32[4]{0} "
        "parameter(1)\n"
        "  ROOT c = f32[3]{0} scatter(a, i, u), update_window_dims={}, inserted_window_dims={0}, "
        "scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=add_f32"
    )
    a, u = np.array([0.0, 0.0, 0.1], np.float32), np.array([0.1, 0.2, 0.3, 0.7], np.float32)
    (made,) = run(parsed(body), [a, u])
    wide = made.rows[HIGH].astype(np.float64) - made.rows[LOW]
    assert wide[0] > 0 and wide[1] == wide[2] == 0
    step = 2 * 2.0**-24 * 3 * 0.6  # three terms, and twice the root of three is more
    assert wide[0] == pytest.approx(2 * (step + 2.0**-24), rel=0.35)
    (more,) = run(parsed(body), [a + 1, u])
    assert (more.rows[HIGH] - more.rows[LOW])[1] > 0


# ---- bounds and moved values


def test_what_is_certain() -> None:
    made = rows([1.0, 1.0, NAN, NAN], [1.0, 1.0, NAN, 1.0], [1.0, 2.0, NAN, 1.0])
    assert list(certain(made)) == [True, False, True, False] and certain(made[:1]).all()
    parts = rows([1 + 1j, 1 + 1j], [1 + 1j, 1 + 1j], [1 + 1j, 1 + 2j], dtype=np.complex128)
    assert list(certain(parts)) == [True, False]
    assert isinstance(settled(made[:, :1]), np.ndarray) and isinstance(settled(made[:, :1], look=False), Spread)
    assert isinstance(settled(made, 3), Spread) and settled(made, 3).depth == 3
    assert full(made) is made and full(made[:1]).shape == made.shape


def test_what_is_a_spread() -> None:
    one, other = Spread(rows(1.0, 2.0, 3.0)), np.array([1.0])
    assert [is_spread(v) for v in (one, other, (other, (other, one)), (other,), ())] == [
        True,
        False,
        True,
        False,
        False,
    ]


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("s8", -128, 127),
        ("u8", 0, 255),
        ("s64", -(2**63), 2**63 - 1),
        ("u64", 0, 2**64 - 1),
        ("pred", False, True),
        ("s4", -8, 7),
        ("u4", 0, 15),
    ],
)
def test_limits_of_types(name: str, low: int, high: int) -> None:
    assert tuple(int(v) for v in limits(ELEMENT_TYPES[name])) == (low, high)


def test_what_is_set_aside_may_be_anything() -> None:
    made = rows([1.0, 1.0], [1.0, 1.0], [1.0, 1.0])
    set_aside(made, np.array([True, False]), F64)
    assert list(made[LOW]) == [-INF, 1.0] and list(made[HIGH]) == [INF, 1.0] and list(aside(made)) == [True, False]
    narrow = rows([1.0], [1.0], [1.0], dtype=ml_dtypes.float8_e4m3fn)
    set_aside(narrow, np.array([True]), ELEMENT_TYPES["f8e4m3fn"])
    assert (float(narrow[LOW][0]), float(narrow[HIGH][0])) == (-448.0, 448.0)
    parts = rows([1j], [1j], [1j], dtype=np.complex128)
    set_aside(parts, np.array([True]), ELEMENT_TYPES["c128"])
    assert (parts[LOW][0], parts[HIGH][0]) == (complex(-INF, -INF), complex(INF, INF)) and aside(parts).all()
    equal = rows([INF], [INF], [INF])
    assert not aside(equal).any() and aside(rows([1.0], [1.0], [INF])).all() and aside(rows([-INF], [1.0], [1.0])).all()


def test_bounds_are_put_in_order() -> None:
    made = rows([2.0, 1.0, NAN, NAN, 1.0, 1.0], [1.0, 3.0, 1.0, NAN, NAN, 1.0], [3.0, 2.0, 2.0, NAN, 2.0, NAN])
    ordered(made, F64)
    assert np.array_equal(made[LOW], [1.0, 1.0, -INF, NAN, -INF, -INF], equal_nan=True)
    assert np.array_equal(made[HIGH], [3.0, 3.0, INF, NAN, INF, INF], equal_nan=True)
    whole = rows([2, 1, 1], [1, 3, 2], [3, 2, 3], dtype=np.int8)
    ordered(whole, ELEMENT_TYPES["s8"])
    assert list(whole[LOW]) == [-128, -128, 1] and list(whole[HIGH]) == [127, 127, 3]
    parts = rows([2 + 1j], [1 + 3j], [3 + 2j], dtype=np.complex128)
    ordered(parts, ELEMENT_TYPES["c128"])
    assert (parts[LOW][0], parts[HIGH][0]) == (1 + 1j, 3 + 3j)


@pytest.mark.parametrize(
    ("moves", "kept"),
    [
        ([0.1, 0.1, 0.1, 0.1], 0.3),  # all alike: three times as far
        ([0.05, 0.1, 0.1, 0.1], 0.6),  # twice as far as another: six times
        ([0.01, 0.1, 0.1, 0.1], 0.8),  # at most eight times
        ([0.0, 0.1, 0.1, 0.1], 0.8),
        ([0.5, 0.5, 0.5, 0.5], 1.0),
        ([0.0, 0.0, 0.0, 0.0], 0.0),
    ],
)
def test_bounds_are_held_against_moved_values(moves: list[float], kept: float) -> None:
    made = calibrated(rows(9.0, 10.0, 11.0, [10 + m for m in moves]))
    floor = 4 * np.spacing(10.0)
    assert made[HIGH][0] == pytest.approx(10 + max(kept, floor), rel=1e-14) and made[LOW][0] == pytest.approx(
        10 - max(kept, floor), rel=1e-14
    )
    free = calibrated(rows(9.0, 10.0, 11.0, [10 + m for m in moves]), np.dtype(np.float32))
    assert free[HIGH][0] == pytest.approx(10 + kept, rel=1e-14)


def test_bounds_do_not_grow_and_the_smaller_side_stays() -> None:
    made = calibrated(rows(9.95, 10.0, 11.0, [10.1] * 4))
    assert (made[LOW][0], made[HIGH][0]) == (9.95, pytest.approx(10.3))
    certain_ = rows(1.0, 1.0, 1.0)
    assert calibrated(certain_) is certain_
    endless = rows(-INF, 1.0, INF, [5.0] * 4)
    assert calibrated(endless) is endless
    lost = calibrated(rows([9.0, -INF], [10.0, 1.0], [11.0, INF], [[10.1, 7.0]] * 4))
    assert list(lost[HIGH]) == [pytest.approx(10.3), INF] and list(lost[LOW]) == [pytest.approx(9.7), -INF]
    narrow = calibrated(rows(9.0, 10.0, 11.0, [10.0] * 4, ml_dtypes.bfloat16))
    assert float(narrow[HIGH][0]) == 10.0625  # one ULP
    parts = rows(1j, 2j, 3j, dtype=np.complex128)
    assert calibrated(parts) is parts


def test_elements_of_a_like_relative_width_stand_for_each_other() -> None:
    """Forty elements as wide as 2^-10, forty as wide as 2^-40 of their value; among the first, one moved."""
    value = np.ones(80)
    wide = np.where(np.arange(80) < 40, 2.0**-10, 2.0**-40)
    moved = value + wide * 0.05
    moved[0] = 1 + 0.1 * 2.0**-10
    made = calibrated(rows(value - wide, value, value + wide, [moved] * 4))
    share = (made[HIGH] - 1) / wide
    assert share[:40] == pytest.approx(np.full(40, 0.3), rel=1e-3) and share[40:] == pytest.approx(
        np.full(40, 0.15), rel=1e-2
    )
    # groups of too few count with all
    few = np.where(np.arange(80) < 70, 2.0**-10, 2.0**-40)
    made = calibrated(
        rows(value - few, value, value + few, [np.where(np.arange(80) < 70, value + few * 0.2, value + few * 0.05)] * 4)
    )
    assert ((made[HIGH] - 1) / few)[70:] == pytest.approx(np.full(10, 0.6), rel=1e-2)
    assert calibration.LEAST == 3.0 and calibration.MOST == 8.0


# ---- control flow and indices


def shape_of(text: str) -> Any:
    return parse(f"HloModule m\nENTRY e {{\n  ROOT p = {text} parameter(0)\n}}\n").entry.root.shape


def test_what_may_be_any_of_several_values() -> None:
    shape = shape_of("f64[1]{0}")
    one, other = Spread(rows(1.0, 2.0, 3.0)), np.array([5.0])
    made = control.hull([one, other], shape)
    assert (made.rows[VALUE][0], made.rows[LOW][0], made.rows[HIGH][0], made.rows[-1][0]) == (2.0, 1.0, 5.0, 5.0)
    assert control.hull([other, other], shape) is other and list(control.hull([other, np.array([5.0])], shape)) == [5.0]
    pair = control.hull([(one, other), (other, other)], shape_of("(f64[1]{0}, f64[1]{0})"))
    assert isinstance(pair, tuple) and pair[1] is other and pair[0].rows[HIGH][0] == 5.0
    parts = control.hull([np.array([1j]), np.array([2j])], shape_of("c128[1]{0}"))
    assert aside(parts.rows).all()
    gone = control.anything((one, other), shape_of("(f64[1]{0}, f64[1]{0})"))
    assert aside(gone[0].rows).all() and gone[1] is other and one.rows[LOW][0] == 1.0


LOOP = """HloModule m

condition {
  s = (s32[], f32[]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[] get-tuple-element(s), index=1
  n = s32[] constant(LIMIT)
  c = pred[] compare(i, n), direction=LT
  k = f32[] constant(10)
  d = pred[] compare(x, k), direction=LT
  ROOT e = pred[] and(c, d)
}

body {
  s = (s32[], f32[]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[] get-tuple-element(s), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  two = f32[] constant(2)
  y = f32[] add(x, two)
  ROOT t = (s32[], f32[]) tuple(j, y)
}

ENTRY e {
  z = s32[] constant(0)
  x = f32[] parameter(0)
  t = (s32[], f32[]) tuple(z, x)
  ROOT w = (s32[], f32[]) while(t), condition=condition, body=body
}
"""


@pytest.mark.parametrize(
    ("value", "low", "high", "limit", "rounds", "reached"),
    [
        (1.0, 0.5, 1.5, 3, (3, 3), (6.5, 7.5)),
        (1.0, 0.5, 1.5, 50, (5, 5), (10.5, 11.5)),
        (2.0, 1.5, 2.5, 50, (4, 5), (9.5, 12.5)),  # after four rounds it is 9.5 to 10.5
        (1.9, 1.5, 2.5, 50, (4, 5), (9.5, 12.5)),
    ],
)
def test_a_loop_that_may_end_sooner_or_later(
    value: float, low: float, high: float, limit: int, rounds: tuple[int, int], reached: tuple[float, float]
) -> None:
    module = parse(LOOP.replace("LIMIT", str(limit)))
    given = Spread(np.array([value, low, high, low, high, value, value], np.float32))
    analyst = SpreadInterpreter(np.random.default_rng(0))
    count, last = analyst.call(module.entry, [given])
    assert [(t.instruction.opcode, t.elements) for t in analyst.ties() if t.instruction.opcode == "while"] == [
        ("while", 1)
    ] * (rounds[0] != rounds[1])
    found = (int(count), int(count)) if not isinstance(count, Spread) else (int(count.rows[LOW]), int(count.rows[HIGH]))
    assert found == rounds
    assert isinstance(last, Spread) and (float(last.rows[LOW]), float(last.rows[HIGH])) == pytest.approx(
        reached, rel=1e-5
    )


def test_a_loop_that_may_go_on_for_ever_says_nothing() -> None:
    text = LOOP.replace("constant(LIMIT)", "constant(100)").replace(
        "y = f32[] add(x, two)", "q = f32[] subtract(two, two)\n  y = f32[] add(x, q)"
    )
    given = Spread(np.array([10.0, 9.0, 11.0, 9.0, 11.0, 10.0, 10.0], np.float32))
    count, last = run(parse(text), [given])
    assert aside(last.rows[:, None]).all() and int(count.rows[VALUE]) == 0 and int(count.rows[HIGH]) == 2**31 - 1


BRANCHES = """HloModule m

first { x = f32[] parameter(0)
  ROOT y = f32[] negate(x)
}

second { x = f32[] parameter(0)
  ROOT y = f32[] abs(x)
}

third { x = f32[] parameter(0)
  k = f32[] constant(9)
  ROOT y = f32[] add(x, k)
}

ENTRY e {
  i = s32[] parameter(0)
  x = f32[] parameter(1)
  ROOT r = f32[] conditional(i, x, x, x), branch_computations={first, second, third}
}
"""


@pytest.mark.parametrize(
    ("index", "low", "high"),
    [((0, 0, 1), -2.0, 2.0), ((1, 1, 2), 2.0, 11.0), ((0, 1, 2), -2.0, 11.0), ((2, 2, 7), 11.0, 11.0),
        ((-3, 0, 0), -2.0, 11.0), ((1, 5, 5), 2.0, 11.0), ((0, 0, 0), -2.0, -2.0)],
)  # fmt: skip
def test_which_branches_may_be_taken(index: tuple[int, int, int], low: float, high: float) -> None:
    least, taken, most = index
    given = Spread(np.array([taken, least, most, least, most, taken, taken], np.int32))
    (made,) = run(parse(BRANCHES), [given, np.float32(2.0)])
    found = (float(made.rows[LOW]), float(made.rows[HIGH])) if isinstance(made, Spread) else (float(made), float(made))
    assert found == (low, high)


@pytest.mark.parametrize(
    ("index", "low", "high"),
    [((0, 0, 1), [1.0, 1.0], [9.0, 9.0]), ((1, 1, 1), [5.0, 3.0], [5.0, 3.0]), ((2, 2, 3), [3.0, 9.0], [3.0, 9.0])],
)
def test_what_is_read_at_an_open_index(index: tuple[int, int, int], low: list[float], high: list[float]) -> None:
    """The last start that fits is 2: there, 3 is no other place."""
    body = (
        "  a = f32[4]{0} parameter(0)\n  i = s32[] parameter(1)\n  ROOT r = f32[2]{0} dynamic-slice(a, i), "
        "dynamic_slice_sizes={2}"
    )
    least, taken, most = index
    given = Spread(np.array([taken, least, most, least, most, taken, taken], np.int32))
    (made,) = run(parsed(body), [np.array([1.0, 5.0, 3.0, 9.0], np.float32), given])
    found = (made.rows[LOW], made.rows[HIGH]) if isinstance(made, Spread) else (made, made)
    assert [list(f) for f in found] == [low, high]


def test_what_is_written_at_an_open_index_may_be_anywhere() -> None:
    body = (
        "  a = f32[4]{0} parameter(0)\n  u = f32[1]{0} parameter(1)\n  i = s32[] parameter(2)\n  ROOT r = f32[4]{0} "
        "dynamic-update-slice(a, u, i)"
    )
    given = [np.array([1.0, 5.0, 3.0, 9.0], np.float32), np.array([20.0], np.float32)]
    for low, high, open_ in ((1, 2, True), (1, 1, False)):
        (made,) = run(parsed(body), [*given, Spread(np.array([1, low, high, low, high, 1, 1], np.int32))])
        if not open_:
            assert list(made) == [1.0, 20.0, 3.0, 9.0]
            continue
        assert (made.rows[LOW] == 1.0).all() and (made.rows[HIGH] == 20.0).all()
