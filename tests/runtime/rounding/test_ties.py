"""Runs of ties in sorts, and folds whose order shows, element by element."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hlo_opt.ir import ELEMENT_TYPES
from hlo_opt.ops.values import HIGH, LOW, MOVED, ROWS, VALUE, Spread
from hlo_opt.runtime.rounding import order

from .spreads import parsed

F32, BF16 = ELEMENT_TYPES["f32"], ELEMENT_TYPES["bf16"]


def hulled(values: list[float], ties: list[bool]) -> Any:
    rows = np.repeat(np.array([values]), ROWS, axis=0)
    return order._hulled(rows, np.array(ties), 1)


def test_a_run_of_ties_may_stand_in_any_order() -> None:
    made = hulled([4.0, 1.0, 3.0, 9.0, 7.0], [True, True, False, True])
    assert list(made[VALUE]) == [4.0, 1.0, 3.0, 9.0, 7.0]
    assert list(made[LOW]) == [1.0, 1.0, 1.0, 7.0, 7.0] and list(made[HIGH]) == [4.0, 4.0, 4.0, 9.0, 9.0]
    # simulated backends exchange neighbours: one the second with the third, the other the first with the second
    assert list(made[MOVED]) == [4.0, 3.0, 1.0, 7.0, 9.0] or list(made[MOVED]) == [4.0, 3.0, 1.0, 9.0, 7.0]
    assert list(made[MOVED + 1])[:3] == [1.0, 4.0, 3.0]
    assert (made[MOVED + 2 :] == made[VALUE]).all()
    alone = hulled([4.0, 1.0], [False])
    assert (alone == [4.0, 1.0]).all()


def test_ties_go_along_the_dimension_that_is_sorted() -> None:
    rows = np.repeat(np.array([[[4.0, 1.0], [2.0, 8.0]]]), ROWS, axis=0)
    made = order._hulled(rows, np.array([[True, False]]), 1)
    assert made[LOW].tolist() == [[2.0, 1.0], [2.0, 8.0]] and made[HIGH].tolist() == [[4.0, 1.0], [4.0, 8.0]]
    parts = order._hulled(rows.astype(np.complex128), np.array([[True, False]]), 1)
    assert (parts == rows).all()


def test_folded_dimensions_are_brought_to_the_front() -> None:
    rows = np.arange(2 * 3 * 4 * 5).reshape(2, 3, 4, 5)
    found = order._in_front(rows, (0, 2))
    assert found.shape == (2, 15, 4) and (found[1, :, 2] == rows[1, :, 2, :].reshape(-1)).all()
    assert order._in_front(rows, (1,)).shape == (2, 4, 3, 5)


def test_simulated_backends_begin_elsewhere() -> None:
    rows = np.repeat(np.arange(14.0)[None], ROWS, axis=0)
    made = order._turned(rows, None, 14)
    assert [int(r[0]) for r in made] == [0, 0, 0, 14 - 7, 14 - 9, 14 - 11, 14 - 13]
    assert (np.sort(made, axis=1) == rows).all() and (rows[MOVED] == np.arange(14.0)).all()


def test_a_fold_is_as_uncertain_as_its_moved_values() -> None:
    rows = np.array([[1.0, 2.0]] * 3 + [[1.5, 2.0]] + [[1.0, 2.0]] * 3)
    exact = order._rounded(None, Spread(rows[:, :1]), F32, False)
    assert isinstance(exact, np.ndarray)
    made = order._rounded(None, Spread(rows), F32, True)
    mean, step = 0.25, 16 * 2.0**-24
    assert made.rows[HIGH] == pytest.approx([1 + 8 * 0.5 + step, 2 + 8 * mean + 2 * step], rel=1e-6)
    assert made.rows[LOW] == pytest.approx([1 - 8 * 0.5 - step, 2 - 8 * mean - 2 * step], rel=1e-6)
    whole = np.array([1, 2])
    assert order._rounded(None, whole, ELEMENT_TYPES["s32"], True) is whole


@pytest.mark.parametrize(
    ("body", "shows"),
    [
        ("  ROOT c = f32[] add(a, b)", True),
        ("  ROOT c = f32[] maximum(a, b)", False),
        ("  d = f32[] negate(a)\n  ROOT c = f32[] minimum(d, b)", False),
        ("  p = pred[] compare(a, b), direction=LT\n  ROOT c = f32[] select(p, a, b)", False),
        ("  d = f32[] multiply(a, a)\n  ROOT c = f32[] maximum(d, b)", True),
    ],
)
def test_which_folds_show_their_order(body: str, shows: bool) -> None:
    assert order.rounds(parsed(f"  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n{body}").entry) == shows


@pytest.mark.parametrize(
    ("leaves", "plain"),
    [
        (("add(a, c)", "maximum(b, d)"), True),
        (("add(c, a)", "maximum(d, b)"), True),
        (("add(a, b)", "maximum(b, d)"), False),
        (("add(a, c)", "subtract(b, d)"), False),
    ],
)
def test_which_folds_of_several_are_folds_of_their_own(leaves: tuple[str, str], plain: bool) -> None:
    body = "".join(f"  {n} = f32[] parameter({k})\n" for k, n in enumerate("abcd"))
    body += f"  x = f32[] {leaves[0]}\n  y = f32[] {leaves[1]}\n  ROOT t = (f32[], f32[]) tuple(x, y)"
    entry = parsed(body).entry
    assert (order._sums(entry) is not None) == plain
    singles = order._singles(entry)
    assert [s.root.opcode for s in singles] == [
        leaves[0][:3] if plain else singles[0].root.opcode,
        singles[1].root.opcode,
    ]
    assert all([o.parameter_number for o in s.root.operands] == [0, 1] for s in singles)


def test_parts_of_values() -> None:
    value = Spread(np.arange(ROWS * 4.0).reshape(ROWS, 4))
    assert order._cut(value, slice(1, 3)).rows.tolist() == value.rows[:, 1:3].tolist()
    assert order._cut(np.arange(4), 2) == 2
    both = order._joined(value, np.array([7.0]))
    assert both.rows.shape == (ROWS, 5) and (both.rows[:, 4] == 7.0).all()
    assert list(order._joined(np.array([1]), np.array([2]))) == [1, 2]
    wide = order._spread_to(Spread(np.arange(float(ROWS))), (2, 3), np.float32)
    assert wide.rows.shape == (ROWS, 2, 3) and wide.rows.dtype == np.float32 and (wide.rows[4] == 4).all()
    assert order._spread_to(np.float64(2.0), (2,), np.float32).tolist() == [2.0, 2.0]
