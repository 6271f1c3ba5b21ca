"""Flattening, checking and drawing inputs."""

from __future__ import annotations

from typing import ClassVar

import ml_dtypes
import numpy as np
import pytest

from hlo_opt import EvaluationError, evaluate, parse
from hlo_opt.evaluate import flatten, input_shapes, module_inputs, unflatten
from hlo_opt.evaluate.inputs import PLAIN, Style, checked, draw, is_raw, raw_dtype
from hlo_opt.ir import ELEMENT_TYPES, Shape, array
from hlo_opt.ir.values import Array
from hlo_opt.ops.wishes import Wish, WishForm


def drawn(element_type: str, sizes: tuple[int, ...], wish: Wish, style: Style = PLAIN, seed: int = 0) -> Array:
    return draw(np.random.default_rng(seed), Shape(ELEMENT_TYPES[element_type], sizes), wish, style)


@pytest.mark.parametrize(
    "style", [PLAIN, Style(1, loudness=1e-3), Style(2, loudness=30.0), Style(3, whole=True), Style(4, sparse=True)]
)
@pytest.mark.parametrize("wish", [Wish(low=0.0), Wish(-1.0, 1.0), Wish(high=80.0), Wish(0.0, 0.5, near=(0.25, 7.0))])
def test_floats_stay_in_range(wish: Wish, style: Style) -> None:
    x = drawn("f32", (500,), wish, style)
    assert (x >= wish.low).all() and (x <= wish.high).all() and len(set(x.tolist())) > 4


def test_values_that_decide_are_met_and_passed_on_both_sides() -> None:
    x = drawn("f32", (500,), Wish(near=(2.4,)))
    assert (x == np.float32(2.4)).any() and ((x > 2.38) & (x < 2.4)).any() and ((x > 2.4) & (x < 2.42)).any()
    n = drawn("s32", (500,), Wish(near=(100.0,)))
    assert {99, 100, 101} <= set(n.tolist())


def test_rows_are_as_small_as_what_is_added_to_them() -> None:
    x = np.abs(drawn("f32", (64, 16), Wish(small=1e-5)))
    rows = x.max(axis=1)
    assert rows.min() < 1e-3 and np.median(rows) > 0.5
    columns = np.abs(drawn("f32", (64, 64), Wish(small=1e-5), Style(1, axis=-1))).max(axis=0)
    assert columns.min() < 1e-3 and np.median(columns) > 0.5


def test_a_divisor_is_not_near_to_zero() -> None:
    assert np.abs(drawn("f32", (1000,), Wish(apart=True))).min() >= 0.1


def test_whole_numbers_tie_and_sparse_ones_vanish() -> None:
    assert len(set(drawn("f32", (1000,), Wish(), Style(1, whole=True)).tolist())) < 50
    assert (drawn("f32", (1000,), Wish(), Style(1, sparse=True)) == 0).mean() > 0.3


def test_indices_are_in_range_until_some_are_asked_to_be_beyond() -> None:
    wish = Wish(0.0, 9.0, form=WishForm.INDEX)
    inside, beyond = drawn("s32", (500,), wish), drawn("s32", (500,), wish, Style(1, beyond=0.125))
    assert set(inside.tolist()) == set(range(10))
    assert (beyond < 0).any() and (beyond > 9).any() and ((beyond >= 0) & (beyond <= 9)).mean() > 0.7
    assert drawn("u8", (500,), Wish(0.0, 255.0, form=WishForm.INDEX), Style(1, beyond=0.5)).dtype == np.uint8


@pytest.mark.parametrize(
    ("kind", "low", "high"), [("s64", -(2.0**63), 2.0**63), ("s64", 0.0, 2.0**63), ("u64", 0.0, 2.0**64)]
)
@pytest.mark.parametrize("sizes", [(), (100,)])
def test_a_range_of_all_integers_has_nothing_beyond(kind: str, low: float, high: float, sizes: tuple[int, ...]) -> None:
    x = drawn(kind, sizes, Wish(low, high, form=WishForm.INDEX), Style(1, beyond=0.5))
    assert x.size == 1 or np.ptp(x.astype(np.float64)) > 2.0**61


def test_a_choice_of_few_takes_every_turn() -> None:
    wish = Wish(0.0, 3.0, form=WishForm.INDEX)
    found = [int(drawn("s32", (), wish, Style(n), seed=5)) for n in range(12)]
    assert set(found[:4]) == {0, 1, 2, 3} and {-1, 4} <= set(found)


def test_unique_sorted_and_sized_indices() -> None:
    unique = drawn("s32", (50,), Wish(0.0, 79.0, form=WishForm.UNIQUE))
    assert len(set(unique.tolist())) == 50 and unique.max() <= 79
    assert (np.diff(drawn("s32", (50,), Wish(0.0, 20.0, form=WishForm.SORTED))) >= 0).all()
    assert {int(drawn("s32", (), Wish(0.0, 5.0, form=WishForm.SIZE), seed=s)) for s in range(60)} == set(range(6))


def test_bits_are_all_over_a_word() -> None:
    for name in ("u32", "s32", "u64", "s64", "u8"):
        bits = drawn(name, (4000,), Wish(form=WishForm.BITS))
        ones = np.unpackbits(bits.view(np.uint8)).mean()
        assert 0.48 < ones < 0.52


def test_matrices_can_be_factorized_and_solved() -> None:
    a = drawn("f64", (3, 5, 5), Wish(form=WishForm.DEFINITE))
    assert np.linalg.eigvalsh(a).min() > 0 and np.allclose(a, np.swapaxes(a, 1, 2))
    assert np.abs(np.linalg.det(np.tril(drawn("f64", (5, 5), Wish(form=WishForm.TRIANGULAR))))) > 1


def test_narrow_types_and_single_values_can_be_drawn() -> None:
    for name in ("f8e5m2", "bf16", "f16", "s4", "u2", "pred", "c64"):
        for style in (PLAIN, Style(1, loudness=30.0, beyond=0.5, special=0.1), Style(2, whole=True, sparse=True)):
            for sizes in ((), (1,), (0,), (3, 4)):
                wish = Wish(near=(0.0, 300.0), small=1e-5)
                assert drawn(name, sizes, wish, style).shape == sizes


def test_indices_from_the_end_leave_the_gap_out() -> None:
    wish = Wish(-50.0, 40.0, form=WishForm.INDEX, gap=(-10.0, 0.0))
    found = drawn("s32", (500,), wish)
    assert ((found >= 0) | (found <= -10)).all() and (found < 0).any() and found.min() >= -50 and found.max() <= 40
    scalars = [int(drawn("s32", (), wish, Style(n), seed=3)) for n in range(8)]
    assert scalars[2] == 0 and scalars[3] == 40 and any(-50 <= s <= -10 for s in scalars)


def test_an_infinite_imaginary_part_leaves_the_real_part_alone() -> None:
    shape = Shape(ELEMENT_TYPES["c64"], (1000,))
    drawn = draw(np.random.default_rng(0), shape, style=Style(special=0.5))
    assert (np.isinf(drawn.imag) & np.isfinite(drawn.real)).any() and (
        np.isinf(drawn.real) & np.isfinite(drawn.imag)
    ).any()


def test_ends_come_in_every_combination_of_parts_where_they_are_wished_for() -> None:
    made = draw(np.random.default_rng(0), Shape(ELEMENT_TYPES["c64"], (37,)), Wish(special=True), Style(special=0.03))

    def kinds(part: np.ndarray) -> list[str]:  # type: ignore[type-arg]
        return [str(x) if x == 0 or not np.isfinite(x) else "number" for x in part]

    assert len({*zip(kinds(made.real), kinds(made.imag), strict=True)}) == 36


TEXT = """HloModule m

ENTRY e {
  p = (f32[3], (s32[2], token[])) parameter(0)
  q = bf16[4] parameter(1)
  ROOT r = (bf16[4], (f32[3], (s32[2], token[]))) tuple(q, p)
}
"""


def test_shapes_leave_tokens_out() -> None:
    module = parse(TEXT)
    assert [str(s) for s in input_shapes(module)] == ["f32[3]", "s32[2]", "bf16[4]"]


def test_unflatten_is_the_inverse_of_flatten() -> None:
    shapes = [Shape.tuple_of(array(ELEMENT_TYPES["f32"], 1), Shape.tuple_of()), array(ELEMENT_TYPES["f32"])]
    arrays = [np.ones(1, np.float32), np.float32(2)]
    values = unflatten(shapes, arrays)
    assert values[0][1] == () and flatten(tuple(values))[0] is arrays[0] and len(flatten(tuple(values))) == 2


def test_the_same_seed_draws_the_same() -> None:
    module = parse(TEXT)
    first, again, other = module_inputs(module, 1), module_inputs(module, 1), module_inputs(module, 2)
    assert all(a.tobytes() == b.tobytes() for a, b in zip(first, again, strict=True))
    assert any(a.tobytes() != b.tobytes() for a, b in zip(first, other, strict=True))
    assert [a.dtype for a in first] == [np.float32, np.int32, np.dtype(ml_dtypes.bfloat16)]
    evaluate(module, first)


@pytest.mark.parametrize("name", [n for n, t in ELEMENT_TYPES.items() if t.numpy_name])
def test_every_type_can_be_drawn(name: str) -> None:
    element_type = ELEMENT_TYPES[name]
    drawn = draw(np.random.default_rng(0), Shape(element_type, (50,)))
    assert drawn.dtype == element_type.dtype and drawn.shape == (50,)
    if element_type.is_integer:
        assert drawn.astype(np.int64).min() >= (0 if element_type.kind == "unsigned" else -4)
        assert drawn.astype(np.int64).max() <= 7 and len(set(drawn.astype(np.int64).tolist())) > 1


def test_raw_bits_are_taken_for_types_that_numpy_lacks() -> None:
    module = parse("HloModule m\n\nENTRY e {\n  ROOT q = bf16[2] parameter(0)\n}\n")
    bits = np.array([1.5, -2], ml_dtypes.bfloat16).view(np.uint16)
    assert evaluate(module, [bits])[0].tolist() == [1.5, -2]
    assert is_raw(ELEMENT_TYPES["bf16"]) and not is_raw(ELEMENT_TYPES["f16"])
    assert raw_dtype(ELEMENT_TYPES["f8e5m2"]) == np.uint8


def test_operations_say_what_they_like_to_be_given() -> None:
    module = parse("HloModule m\n\nENTRY e {\n  x = f32[200] parameter(0)\n  ROOT y = f32[200] log(x)\n}\n")
    (x,) = module_inputs(module, 0)
    assert (x > 0).all()


def test_nothing_is_drawn_for_an_open_size() -> None:
    module = parse(
        "HloModule m\n\nENTRY e {\n  p = (f32[2], f32[?,3]) parameter(0)\n  ROOT g = f32[2] get-tuple-element(p), "
        "index=0\n}\n"
    )
    with pytest.raises(EvaluationError, match="has no bound") as caught:
        module_inputs(module)
    assert caught.value.code == "HLO401" and caught.value.line == 4


class OnGpu:
    """An array of CuPy: NumPy gets it by `get` only."""

    __cuda_array_interface__: ClassVar[dict[str, object]] = {}

    def __init__(self, values: np.ndarray) -> None:  # type: ignore[type-arg]
        self.values = values

    def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray:  # type: ignore[type-arg]
        raise TypeError("Implicit conversion to a NumPy array is not allowed. Please use `.get()`")

    def get(self) -> np.ndarray:  # type: ignore[type-arg]
        return self.values


class OnOtherGpu(OnGpu):
    """An array of a library that has no `get`."""

    get = property()  # type: ignore[assignment]


def test_arrays_of_cupy_are_copied() -> None:
    module = parse("HloModule m\nENTRY e {\n  a = bf16[2] parameter(0)\n  ROOT r = bf16[2] negate(a)\n}\n")
    (got,) = checked(module, [OnGpu(np.array([0x3F80, 0x4000], np.uint16))])
    assert got.dtype == ml_dtypes.bfloat16 and got.tolist() == [1.0, 2.0]
    with pytest.raises(EvaluationError, match=r"in0 is not an array of bf16: Implicit conversion"):
        checked(module, [OnOtherGpu(np.zeros(2, np.uint16))])
