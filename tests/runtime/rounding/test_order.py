import numpy as np
import pytest

from hlo_opt import evaluate
from hlo_opt.ops.values import HIGH, LOW, MOVED, ROWS, Spread

from .spreads import holds, parsed, run, spread, within

RNG = np.random.default_rng(5)
LESS = (
    "less {\n  x = f32[] parameter(0)\n  y = f32[] parameter(1)\n  ROOT z = pred[] compare(x, y), direction=LT\n}\n\n"
)
LESS_OF_TWO = (
    "less {\n  x = f32[] parameter(0)\n  y = f32[] parameter(1)\n  u = s32[] parameter(2)\n  v = s32[] parameter(3)\n"
    "  ROOT z = pred[] compare(x, y), direction=LT\n}\n\n"
)
LARGEST = (
    "largest {\n  x = f32[] parameter(0)\n  i = s32[] parameter(1)\n  y = f32[] parameter(2)\n  j = s32[] "
    "parameter(3)\n"
    "  p = pred[] compare(x, y), direction=GT\n  q = pred[] compare(x, y), direction=EQ\n  r = pred[] compare(i, j), "
    "direction=LT\n"
    "  s = pred[] and(q, r)\n  t = pred[] or(p, s)\n  m = f32[] select(p, x, y)\n  n = s32[] select(t, i, j)\n  ROOT o "
    "= (f32[], s32[]) tuple(m, n)\n}\n\n"
)


def test_sorted_values_hold_the_sorted_bounds() -> None:
    body = "  a = f32[3,50]{1,0} parameter(0)\n  ROOT b = f32[3,50]{1,0} sort(a), dimensions={1}, to_apply=less"
    holds(body, RNG.normal(size=(3, 50)).astype(np.float32), radius=0.2, computations=LESS)


@pytest.mark.parametrize("radius", [1e-5, 1e-2])
def test_what_goes_along_is_open_where_keys_tie(radius: float) -> None:
    body = "  a = f32[60]{0} parameter(0)\n  i = s32[60]{0} iota(), iota_dimension=0\n"
    body += "  ROOT b = (f32[60]{0}, s32[60]{0}) sort(a, i), dimensions={0}, is_stable=true, to_apply=less"
    _, index = holds(body, RNG.normal(size=60).astype(np.float32), radius=radius, computations=LESS_OF_TWO)
    open_ = np.mean(index.rows[LOW] != index.rows[HIGH]) if isinstance(index, Spread) else 0.0
    assert open_ < 0.1 if radius < 1e-3 else 0 < open_ < 1


def test_what_a_comparator_that_is_no_order_makes_is_open() -> None:
    """It compares the key of one element with what goes along with the other."""
    mixed = (
        "mixed {\n  a = u32[] parameter(0)\n  b = u32[] parameter(1)\n  c = u32[] parameter(2)\n  d = u32[] "
        "parameter(3)\n  ROOT r = pred[] compare(KEYS), direction=LT\n}\n\n"
    )
    body = (
        "  x = u32[40]{0} parameter(0)\n  y = u32[40]{0} parameter(1)\n  ROOT s = (u32[40]{0}, u32[40]{0}) sort(x, y), "
        "dimensions={0}, to_apply=mixed"
    )
    given = [RNG.integers(0, 1000, 40, dtype=np.uint32) for _ in range(2)]
    for keys, is_order in (("a, b", True), ("b, c", False)):
        found = run(parsed(body, mixed.replace("KEYS", keys)), list(given))
        assert [isinstance(f, np.ndarray) for f in found] == [is_order] * 2
        assert all(within(f, np.full(40, 7, np.uint32)).all() != is_order for f in found)


def test_the_place_of_the_largest_is_open_where_it_ties() -> None:
    body = (
        "  a = f32[9,64]{1,0} parameter(0)\n  i = s32[9,64]{1,0} iota(), iota_dimension=1\n  k = f32[] "
        "constant(-inf)\n  z = s32[] constant(0)\n"
    )
    body += "  ROOT b = (f32[9]{0}, s32[9]{0}) reduce(a, i, k, z), dimensions={1}, to_apply=largest"
    a = RNG.normal(size=(9, 64)).astype(np.float32)
    a[4, 10], a[4, 50] = 9.0, 9.0001
    _, index = holds(body, a, radius=1e-4, computations=LARGEST)
    assert isinstance(index, Spread)
    open_ = index.rows[LOW] != index.rows[HIGH]
    assert open_[4] and index.rows[LOW][4] <= 10 and index.rows[HIGH][4] >= 50 and open_.sum() <= 2


def test_a_fold_by_order_is_open_where_one_of_its_values_is_nan() -> None:
    """NaN is neither greater nor equal, so that what stood before it is forgotten: each order ends otherwise."""
    body = (
        "  a = f32[300,16]{1,0} parameter(0)\n  i = s32[300,16]{1,0} parameter(1)\n  k = f32[] constant(-inf)\n"
        "  z = s32[] constant(0)\n"
        "  ROOT b = (f32[300]{0}, s32[300]{0}) reduce(a, i, k, z), dimensions={1}, to_apply=largest"
    )
    module = parsed(body, LARGEST)
    a = RNG.normal(size=(300, 16)).astype(np.float32)
    a[RNG.random(a.shape) < 0.1] = np.nan
    places = RNG.integers(0, 7, a.shape, dtype=np.int32)  # some are alike
    found = run(module, [a, places])
    for _ in range(30):
        order = RNG.permutation(16)
        others = evaluate(module, [a[:, order], places[:, order]])
        for made, other in zip(found, others, strict=True):
            assert within(made, np.asarray(other)).all()
    is_certain = ~np.isnan(a).any(axis=1)
    assert is_certain.sum() > 30 and (np.asarray(found[1].rows[LOW]) == found[1].rows[HIGH])[is_certain].all()


def test_a_fold_that_takes_the_later_of_two_equal_values_is_open_where_several_tie() -> None:
    """The first and the last may have the same place, and one between them another."""
    later = (
        "largest {\n  x = f32[] parameter(0)\n  i = s32[] parameter(1)\n  y = f32[] parameter(2)\n  j = s32[] "
        "parameter(3)\n  p = pred[] compare(x, y), direction=GT\n  m = f32[] select(p, x, y)\n  n = s32[] "
        "select(p, i, j)\n  ROOT o = (f32[], s32[]) tuple(m, n)\n}\n\n"
    )
    body = (
        "  a = f32[1,3]{1,0} parameter(0)\n  i = s32[1,3]{1,0} parameter(1)\n  k = f32[] constant(-inf)\n"
        "  z = s32[] constant(0)\n"
        "  ROOT b = (f32[1]{0}, s32[1]{0}) reduce(a, i, k, z), dimensions={1}, to_apply=largest"
    )
    given = np.ones((1, 3), np.float32), np.array([[7, 6, 7]], np.int32)
    value, place = run(parsed(body, later), given)
    assert not isinstance(value, Spread) and value.tolist() == [1.0]
    assert isinstance(place, Spread) and within(place, np.array([6], np.int32)).all()


def test_folds_of_several_sums_are_sums() -> None:
    two = (
        "two {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  c = f32[] parameter(2)\n  d = f32[] "
        "parameter(3)\n"
    )
    two += "  x = f32[] add(a, c)\n  y = f32[] maximum(b, d)\n  ROOT t = (f32[], f32[]) tuple(x, y)\n}\n\n"
    body = (
        "  a = f32[7,30]{1,0} parameter(0)\n  z = f32[] constant(0)\n  ROOT b = (f32[7]{0}, f32[7]{0}) reduce(a, a, z, "
        "z), dimensions={1}, to_apply=two"
    )
    a = RNG.normal(size=(7, 30)).astype(np.float32)
    total, most = run(parsed(body, two), [a])
    assert isinstance(total, Spread) and isinstance(most, np.ndarray)
    holds(body, a, radius=1e-3, computations=two)


def test_a_fold_whose_order_shows_is_turned_by_simulated_backends() -> None:
    odd = (
        "odd {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  s = f32[] add(a, b)\n  k = f32[] constant(1)\n  "
        "p = f32[] multiply(s, k)\n  ROOT x = f32[] add(p, k)\n}\n\n"
    )
    body = (
        "  a = f32[7,300]{1,0} parameter(0)\n  z = f32[] constant(0)\n  ROOT b = f32[7]{0} reduce(a, z), "
        "dimensions={1}, to_apply=odd"
    )
    a = RNG.normal(size=(7, 300)).astype(np.float32)
    (made,) = run(parsed(body, odd), [a])
    total = (a.astype(np.float64).sum(axis=1) + 300).astype(np.float32)
    assert isinstance(made, Spread) and ((made.rows[LOW] <= total) & (total <= made.rows[HIGH])).all()
    assert (made.rows[MOVED:] != made.rows[0]).any()
    assert isinstance(run(parsed(body, odd), [spread(RNG, a, 1e-3)])[0], Spread)


def test_computed_nan_stand_in_any_order() -> None:
    """A backend may give a NaN any sign and payload, and `topk` orders by these."""
    module = parsed(
        "  x = f32[2,4]{1,0} parameter(0)\n  ROOT t = (f32[2,3]{1,0}, s32[2,3]{1,0}) topk(x), k=3, largest=true"
    )
    nan = np.array([0x7FC00000, 0x7FFFFFFF, 0xFFC00000], np.uint32).view(np.float32)
    x = np.array([[1, nan[0], 2, nan[1]], [1, 2, 3, 4]], np.float32)
    assert [m.tolist() for m in run(module, [x])[1:]] == [[[3, 1, 2], [3, 2, 1]]]
    computed = np.repeat(x[None], ROWS, axis=0)
    computed[HIGH, 1, 0] = 1.5
    values, places = run(module, [Spread(computed)])
    for other in ([1, nan[1], 2, nan[0]], [1, nan[2], 2, nan[2]]):
        for found, wanted in zip((values, places), run(module, [np.array([other, x[1]], np.float32)]), strict=True):
            assert within(found, wanted).all()
    assert (places.rows[:, 1] == [3, 2, 1]).all()
