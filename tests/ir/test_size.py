"""Sizes of a range: what their texts compute, and which sizes decisions leave."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable

import pytest

from hlo_opt.ir.element_type import F32
from hlo_opt.ir.index_map import constant
from hlo_opt.ir.shape import Shape
from hlo_opt.ir.size import (
    Range,
    Size,
    always_same,
    at_size,
    exactly,
    gcd,
    most,
    shape_at,
    size_in,
    unsigned,
    unsigned_long,
)


def fresh(least: int = 1, greatest: int = 64, example: int = 64) -> tuple[Range, int]:
    found = Range(range(least, greatest + 1), range(least, greatest + 1), example)
    return found, found.size()


FORMS: dict[str, Callable[[int], int]] = {
    "sum": lambda n: n + 3 + n,
    "difference": lambda n: 5 - n * 2,
    "product": lambda n: n * n - 1,
    "quotient": lambda n: (n * 3 + 7) // 4,
    "of a constant": lambda n: 1000 // n,
    "remainder": lambda n: (n * 5) % 7,
    "rounded up": lambda n: -(-(n * 64) // 128) * 128,
    "ceil": lambda n: math.ceil(n * 3 / 32),
    "bits": lambda n: n & (n - 1),
    "shifts": lambda n: (n << 3) >> 1,
    "product of many": lambda n: math.prod([n, 2, n]),
    "wide": lambda n: n * 2**30 * 8,
    "negative": lambda n: (3 - n * 4) // 5,
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_texts_compute_the_number_at_each_size(form: Callable[[int], int]) -> None:
    """C++ divides towards zero: so does `int(a / b)` of such small numbers."""
    found, n = fresh()
    number = form(n)
    assert isinstance(number, Size) and int.__int__(number) == form(64)
    text = str(number).replace("(long long)", "")
    for size in range(1, 65):
        assert at_size(number, size) == form(size)
        assert eval(text.replace("/", "//"), {"size": size}) == form(size), text
    if form(64) > 2**31:
        assert "(long long)" in str(number)
    assert found.sizes == list(range(1, 65))


def test_a_quotient_is_never_of_a_negative_number() -> None:
    _, n = fresh()
    assert str((3 - n * 4) // 5) == "(-((size * 4 + 1) / 5))"


def test_what_is_the_same_at_all_sizes_is_a_plain_number() -> None:
    _, n = fresh()
    assert (n * 64) % 4 == 0 and type((n * 64) % 4) is int
    assert type(n - n) is int and type((n * 8) // n) is int
    assert always_same(n * 2, n + n) and not always_same(n, 64)


def test_decisions_go_as_the_example_does_and_leave_the_sizes_that_do_alike() -> None:
    found, n = fresh()
    assert n >= 32 and found.sizes == list(range(32, 65))
    assert not n % 4 and found.sizes == list(range(32, 65, 4))
    assert n != 40 and 40 not in found.sizes and 44 in found.sizes
    assert max(n, 10) is n and found.sizes == [32, 36, *range(44, 65, 4)]
    assert exactly(n // 4) == 16 and found.sizes == [64]


def test_an_equal_comparison_leaves_that_size_only() -> None:
    found, n = fresh(example=48)
    assert n == 48 and found.sizes == [48] and exactly(n) == 48


def test_asking_for_the_greatest_leaves_all() -> None:
    found, n = fresh(example=3)
    assert most(n * 2) == 128 and most(7) == 7 and len(found.sizes) == 64


def test_gcd_is_plain_and_decides() -> None:
    found, n = fresh()
    assert gcd(n, 4) == 4 and found.sizes == list(range(4, 65, 4))
    assert gcd(12, 18) == 6


def test_sizes_are_no_keys_of_plain_numbers() -> None:
    """What is kept for a plain number (index maps keep much) is not found for a size, nor the other way round."""
    found, n = fresh()
    assert {64: "plain"}.get(n) is None and len(found.sizes) == 64
    assert constant(n).value is n
    other, m = fresh()
    assert n != m and len(found.sizes) == len(other.sizes) == 64


def test_prices_are_those_of_the_example() -> None:
    found, n = fresh(example=10)
    assert n / 4 == 2.5 and n * 1.0 == 10.0 and 0.5 * n == 5.0 and len(found.sizes) == 64


def test_shapes() -> None:
    _, n = fresh()
    shape = Shape.tuple_of(Shape(F32, (n * 2, 3)), Shape(F32, (4,)))
    assert str(shape) == "(f32[(size * 2),3], f32[4])"
    assert shape_at(shape, 5) == Shape.tuple_of(Shape(F32, (10, 3)), Shape(F32, (4,)))
    assert isinstance(size_in(shape), Size) and size_in(shape_at(shape, 5)) == 0
    assert shape.element_count - 4 == n * 6


def test_texts_of_launches() -> None:
    _, n = fresh()
    assert unsigned(3) == "3u" and unsigned(n + 1) == "(unsigned int)(size + 1)"


def test_a_size_is_not_saved() -> None:
    _, n = fresh()
    with pytest.raises(TypeError, match="not saved"):
        copy.deepcopy(n)


def test_a_text_of_64_bits() -> None:
    _, n = fresh()
    assert (unsigned_long(7), unsigned_long(n), unsigned_long(n - 1)) == (
        "7ull",
        "(unsigned long long)size",
        "(unsigned long long)(size - 1)",
    )


def test_sizes_in_steps() -> None:
    found = Range(range(2, 13, 2), range(2, 13, 2), 12)
    n = found.size()
    half = n // 2
    assert half + half == n and found.sizes == [2, 4, 6, 8, 10, 12]
    assert (str(half), at_size(half, 8)) == ("(size / 2)", 4)
