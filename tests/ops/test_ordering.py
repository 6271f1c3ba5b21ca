"""sort, topk and select-and-scatter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hlo_opt

CASES = [
    "f32[50] sort(f32[50]), dimensions={0}, to_apply=lt",
    "f32[5,30] sort(f32[5,30]), dimensions={1}, to_apply=gt_total",
    "f32[30,5] sort(f32[30,5]), dimensions={0}, to_apply=lt",
    "(f32[40], s32[40]) sort(f32[40], s32[40]), dimensions={0}, is_stable=true, to_apply=by_magnitude",
    "(f32[3,4], s32[3,4]) topk(f32[3,20]), k=4, largest=true",
]
POOL = "f32[4,5] select-and-scatter(f32[4,5], f32[2,2], f32[]), window={size=2x3 stride=2x2}, select=ge, scatter=add"
OVERLAP = "f32[5] select-and-scatter(f32[5], f32[4], f32[]), window={size=2}, select=ge, scatter=add"


@pytest.mark.parametrize("text", [*CASES, POOL, OVERLAP])
def test_shapes(family: Any, text: str) -> None:
    family.infers(text)


def test_xla_agrees(family: Any) -> None:
    family.agrees_with_xla([*CASES, POOL.replace("f32[]", "f32[]"), OVERLAP])


@pytest.mark.parametrize("count", [1, 2, 3, 7, 64, 100])
def test_any_comparator_sorts_stably(family: Any, count: int) -> None:
    text = (
        f"(f32[2,{count}], s32[2,{count}]) sort(f32[2,{count}], s32[2,{count}]), dimensions={{1}}, "
        f"to_apply=by_magnitude"
    )
    values = np.random.default_rng(count).integers(-5, 6, (2, count)).astype(np.float32)
    places = np.tile(np.arange(count, dtype=np.int32), (2, 1))
    got, order = family.run(text, values, places)
    expected = np.argsort(np.abs(values), axis=1, kind="stable")
    assert np.array_equal(order, expected)
    assert np.array_equal(got, np.take_along_axis(values, expected, axis=1))


def test_total_order_puts_nan_last_and_minus_zero_first(family: Any) -> None:
    values = np.array([np.nan, 0.0, -0.0, np.inf, -np.inf, -np.nan, 1.0], np.float32)
    (got,) = family.run("f32[7] sort(f32[7]), dimensions={0}, to_apply=gt_total", values)
    assert np.isnan(got[0]) and np.isnan(got[-1]) and got[1:6].tolist() == [np.inf, 1.0, 0.0, 0.0, -np.inf]
    assert np.signbit(got).tolist() == [False, False, False, False, True, True, True]


def test_a_comparator_that_is_no_order_still_gives_a_permutation(family: Any) -> None:
    text = "(f32[9], s32[9]) sort(f32[9], s32[9]), dimensions={0}, to_apply=by_magnitude"
    text = text.replace("by_magnitude", "odd")
    from hlo_opt import evaluate, parse

    odd = (
        "odd {\n  x = f32[] parameter(0)\n  y = f32[] parameter(1)\n  i = s32[] parameter(2)\n  j = s32[] "
        "parameter(3)\n"
    )
    odd += "  c = f32[] convert(j)\n  ROOT z = pred[] compare(x, c), direction=LT\n}\n\n"
    body = "  p0 = f32[9] parameter(0)\n  p1 = s32[9] parameter(1)\n  ROOT r = " + text.replace(
        "sort(f32[9], s32[9])", "sort(p0, p1)"
    )
    values = np.arange(9, dtype=np.float32)[::-1].copy()
    got, order = evaluate(
        parse(f"HloModule m\n\n{odd}ENTRY e {{\n{body}\n}}\n"), [values, np.arange(9, dtype=np.int32)]
    )
    assert sorted(order.tolist()) == list(range(9)) and np.array_equal(got, values[order])


def test_topk_keeps_the_lower_index_of_equals(family: Any) -> None:
    values, indices = family.run("(f32[3], s32[3]) topk(f32[5]), k=3, largest=true", [1.0, 3.0, 3.0, np.nan, 2.0])
    assert indices.tolist() == [3, 1, 2] and np.isnan(values[0])
    values, indices = family.run("(f32[2], s32[2]) topk(f32[5]), k=2, largest=false", [2.0, 3.0, 1.0, 1.0, 2.0])
    assert indices.tolist() == [2, 3] and values.tolist() == [1.0, 1.0]


def test_select_and_scatter_adds_where_windows_meet(family: Any) -> None:
    (got,) = family.run(OVERLAP, [1.0, 5.0, 2.0, 2.0, 9.0], [1.0, 2.0, 4.0, 8.0], 0.5)
    assert got.tolist() == [0.5, 3.5, 4.5, 0.5, 8.5]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("f32[5] sort(f32[5]), dimensions={1}, to_apply=lt", "distinct"),
        ("f32[5] sort(f32[5]), dimensions={0}, to_apply=add", "must return pred"),
        ("(f32[5], f32[4]) sort(f32[5], f32[4]), dimensions={0}, to_apply=by_magnitude", "sizes must be the same"),
        ("(f32[6], s32[6]) topk(f32[5]), k=6, largest=true", "k=6"),
        (OVERLAP.replace("f32[4]", "f32[3]"), "the window needs"),
    ],
)
def test_refused(family: Any, text: str, message: str) -> None:
    family.refuses(text, message)


def test_a_function_of_both_sides_is_a_key(family: Any) -> None:
    from hlo_opt.ops.ordering.meaning import mirrored

    by_size = "by_size {\n  x = f32[] parameter(0)\n  y = f32[] parameter(1)\n  a = f32[] abs(x)\n  b = f32[] abs(y)\n"
    from hlo_opt import evaluate, parse

    for root, side in (("compare(a, b)", 0), ("compare(b, a)", 1), ("compare(a, y)", None), ("compare(a, a)", None)):
        text = f"HloModule m\n{by_size}  ROOT r = pred[] {root}, direction=LT\n}}\n"
        text += "ENTRY e {\n  p = f32[5] parameter(0)\n  ROOT s = f32[5] sort(p), dimensions={0}, to_apply=by_size\n}\n"
        module = parse(text)
        comparator = module.entry.root.called_by("to_apply")
        assert mirrored(*comparator.root.operands) == side
        if side is not None:
            (got,) = evaluate(module, [np.array([3, -1, 2, -5, 4], np.float32)])
            assert got.tolist() == ([-1, 2, 3, 4, -5] if side == 0 else [-5, 4, 3, 2, -1])


LEXICOGRAPHIC = """HloModule m
less {
  a = s32[] parameter(0)
  b = s32[] parameter(1)
  c = f32[] parameter(2)
  d = f32[] parameter(3)
  i = s32[] parameter(4)
  j = s32[] parameter(5)
  less = pred[] compare(a, b), direction=LT
  same = pred[] compare(b, a), direction=EQ
  more = pred[] compare(c, d), direction=GT
  and = pred[] and(more, same)
  ROOT or = pred[] or(and, less)
}
ENTRY e {
  p = s32[2,3000]{1,0} parameter(0)
  q = f32[2,3000]{1,0} parameter(1)
  i = s32[2,3000]{1,0} iota(), iota_dimension=1
  ROOT s = (s32[2,3000]{1,0}, f32[2,3000]{1,0}, s32[2,3000]{1,0}) sort(p, q, i), dimensions={1}, is_stable=true, to_apply=less
}
"""


def test_several_keys_without_comparing_element_by_element(monkeypatch: pytest.MonkeyPatch) -> None:
    import hlo_opt
    from hlo_opt.ops.ordering import meaning as ordering_meaning

    monkeypatch.setattr(ordering_meaning, "_merge_sort", None)
    generator = np.random.default_rng(0)
    first = generator.integers(0, 5, (2, 3000)).astype(np.int32)
    second = generator.integers(0, 5, (2, 3000)).astype(np.float32)
    got = hlo_opt.evaluate(hlo_opt.parse(LEXICOGRAPHIC), [first, second])
    order = np.stack([np.lexsort((-second[k], first[k])) for k in range(2)])
    assert np.array_equal(got[2], order)
    assert np.array_equal(got[1], np.take_along_axis(second, order, 1))


@pytest.mark.parametrize("stable", ["", ", is_stable=true"])
def test_nothing_is_sorted(stable: str) -> None:
    import hlo_opt

    text = LEXICOGRAPHIC.replace("2,3000", "0,3").replace(", is_stable=true", stable)
    got = hlo_opt.evaluate(hlo_opt.parse(text), [np.zeros((0, 3), np.int32), np.zeros((0, 3), np.float32)])
    assert [x.shape for x in got] == [(0, 3)] * 3


@pytest.mark.parametrize("kind", [np.int8, np.uint8, np.int16, np.int32, np.uint32, np.float16, np.float32])
@pytest.mark.parametrize("few", [False, True])
def test_the_first_of_many_are_those_of_a_stable_sort(kind: Any, few: bool) -> None:
    """A partition finds them: also among many that are equal."""
    bits = np.random.default_rng(0).integers(0, 4 if few else 1 << 32, (5, 400), np.uint32)
    name = {"f": "f", "i": "s", "u": "u"}[np.dtype(kind).kind] + str(8 * np.dtype(kind).itemsize)
    x = bits.astype(f"u{np.dtype(kind).itemsize}").view(kind)
    text = f"ENTRY e {{\n  p = {name}[5,400] parameter(0)\n  ROOT t = ({name}[5,K], s32[5,K]) topk(p), k=K, largest=true\n}}\n"

    def positions(count: int) -> Any:
        return hlo_opt.evaluate(hlo_opt.parse("HloModule m\n\n" + text.replace("K", str(count))), [x])[1]

    np.testing.assert_array_equal(positions(7), positions(400)[:, :7])


@pytest.mark.parametrize("direction", ["LT", "GT"])
@pytest.mark.parametrize("kind", ["s8", "u8", "s16", "u16", "s32", "u32", "s64", "f32", "bf16"])
def test_equal_keys_of_every_type_stay_in_order(kind: str, direction: str) -> None:
    """And the ends of a type's range are in order, along any dimension."""
    order_of = {"s": "SIGNED", "u": "UNSIGNED", "f": "TOTALORDER", "b": "TOTALORDER"}
    text = (
        f"HloModule m\nless {{\n  a = {kind}[] parameter(0)\n  b = {kind}[] parameter(1)\n  c = s32[] parameter(2)\n"
        f"  d = s32[] parameter(3)\n  ROOT r = pred[] compare(a, b), direction={direction}, "
        f"type={order_of[kind[0]]}\n}}\n"
        f"ENTRY e {{\n  k = {kind}[300,2] parameter(0)\n  i = s32[300,2] iota(), iota_dimension=0\n"
        f"  ROOT s = ({kind}[300,2], s32[300,2]) sort(k, i), dimensions={{0}}, is_stable=true, to_apply=less\n}}\n"
    )
    module = hlo_opt.parse(text)
    dtype = module.entry.parameters[0].shape.type.dtype
    generator = np.random.default_rng(1)
    if "f" in kind:
        ends, exact = [-np.inf, np.inf, 0.5], np.float64
    else:
        info = np.iinfo(dtype)
        ends, exact = [info.min, info.max, info.max // 2], dtype
    keys = generator.choice(np.array(ends, exact), (300, 2)).astype(dtype)
    got, order = hlo_opt.evaluate(module, [keys])
    ranks = np.unique(keys.astype(exact), return_inverse=True)[1].reshape(keys.shape)
    want = np.argsort(ranks if direction == "LT" else -ranks, axis=0, kind="stable")
    np.testing.assert_array_equal(order, want)
    np.testing.assert_array_equal(got, np.take_along_axis(keys, want, 0))
