"""Constants that follow the size: which formula two numbers have, and what it gives at other sizes."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from hlo_opt.analysis.sizes.formulas import fitting
from hlo_opt.ir import ELEMENT_TYPES, Shape
from hlo_opt.ir.literal import SizedLiteral
from hlo_opt.ir.size import Range, Size


@pytest.mark.parametrize(
    ("name", "number", "text"),
    [
        ("s32", lambda n: n, "n"),
        ("s32", lambda n: n - 1, "n - 1"),
        ("s64", lambda n: 3 * n // 2, "3 * n / 2"),
        ("u32", lambda n: n * n, "n^2"),
        ("s32", lambda n: n + 40, "n + 40"),
        ("f32", lambda n: 1 / n, "1 / n"),
        ("f32", lambda n: 1 / (n - 1), "1 / (n - 1)"),
        ("f32", lambda n: 2 / (3 * n), "2 / (3 * n)"),
        ("f64", lambda n: 1 / math.sqrt(n), "1 / sqrt(n)"),
        ("bf16", lambda n: 1 / n, "1 / n"),
        ("f32", lambda n: 0.25 * n, "n / 4"),
    ],
)
def test_two_numbers_have_a_formula(name: str, number: Callable[[int], float], text: str) -> None:
    element_type = ELEMENT_TYPES[name]
    formula = fitting(element_type, (12, 30), np.array([number(12), number(30)]).astype(element_type.dtype))
    assert formula is not None and str(formula) == text
    sizes = np.array([2, 14, 98])
    wanted = np.array([number(int(n)) for n in sizes]).astype(element_type.dtype)
    assert formula.of(sizes, element_type).tobytes() == wanted.tobytes()


@pytest.mark.parametrize(("name", "numbers"), [("s32", (17, 5)), ("f32", (0.1, 0.7)), ("f32", (math.inf, 1.0))])
def test_other_numbers_have_none(name: str, numbers: tuple[float, float]) -> None:
    element_type = ELEMENT_TYPES[name]
    assert fitting(element_type, (12, 30), np.array(numbers).astype(element_type.dtype)) is None


def test_who_reads_the_number_of_a_range_leaves_the_sizes_that_have_it() -> None:
    """An integer that is rounded is the same at two sizes."""
    formula = fitting(ELEMENT_TYPES["s8"], (4, 8), np.array([2, 4], np.int8))
    assert formula is not None
    sizes = Range([4, 5, 6, 7], [4, 5, 6, 7], 5)
    size = sizes.size()
    assert isinstance(size, Size)
    literal = formula.literal(Shape(ELEMENT_TYPES["s8"], (3,)), size)
    assert isinstance(literal, SizedLiteral) and literal == literal and sizes.sizes == [4, 5, 6, 7]
    assert np.array_equal(np.asarray(literal.value), [2, 2, 2]) and sizes.sizes == [4, 5]
