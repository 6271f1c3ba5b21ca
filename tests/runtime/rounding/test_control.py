import numpy as np

from hlo_opt.ops.values import HIGH, LOW, Spread

from .spreads import parsed, run, spread

LOOP = """condition {
  s = (s32[], f32[50]{0}) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(STEPS)
  ROOT p = pred[] compare(i, n), direction=LT
}

body {
  s = (s32[], f32[50]{0}) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[50]{0} get-tuple-element(s), index=1
  y = f32[50]{0} sine(x)
  k = f32[] constant(0.1)
  b = f32[50]{0} broadcast(k), dimensions={}
  d = f32[50]{0} multiply(y, b)
  z = f32[50]{0} subtract(x, d)
  one = s32[] constant(1)
  j = s32[] add(i, one)
  ROOT t = (s32[], f32[50]{0}) tuple(j, z)
}

"""
ENTRY = """  a = f32[50]{0} parameter(0)
  i = s32[] constant(0)
  s = (s32[], f32[50]{0}) tuple(i, a)
  w = (s32[], f32[50]{0}) while(s), condition=condition, body=body
  ROOT x = f32[50]{0} get-tuple-element(w), index=1"""


def widths(steps: int) -> float:
    a = np.random.default_rng(1).normal(size=50).astype(np.float32)
    (made,) = run(parsed(ENTRY, LOOP.replace("STEPS", str(steps))), [a])
    assert isinstance(made, Spread)
    return float(np.median((made.rows[HIGH] - made.rows[LOW]) / np.maximum(np.abs(made.rows[0]), 1e-30)))


def test_the_bounds_of_a_loop_that_converges_do_not_grow_without_end() -> None:
    # interval arithmetic alone forgets that x - 0.1 sin(x) contracts: its bounds grow by a tenth each time
    assert widths(10) < 1e-5 and widths(300) < 1e-3


def test_a_loop_that_may_end_sooner_or_later_is_followed_both_ways() -> None:
    until = LOOP.replace("  ROOT p = pred[] compare(i, n), direction=LT", "").replace(
        "  n = s32[] constant(STEPS)\n",
        "  x = f32[50]{0} get-tuple-element(s), index=1\n  e = f32[1]{0} slice(x), slice={[0:1]}\n  f = f32[] "
        "reshape(e)\n"
        "  n = f32[] constant(0.5)\n  ROOT p = pred[] compare(f, n), direction=GT\n",
    )
    a = np.full(50, 1.0, np.float32)
    (sure,) = run(parsed(ENTRY, until), [a])
    rng = np.random.default_rng(0)
    given = spread(rng, a, 0.05)
    given.rows[LOW, 0], given.rows[HIGH, 0] = 0.95, 1.05
    (made,) = run(parsed(ENTRY, until), [given])
    assert isinstance(sure, Spread) and isinstance(made, Spread)
    assert np.ptp(made.rows[: HIGH + 1, 0]) > 10 * np.ptp(sure.rows[: HIGH + 1, 0])


def test_an_open_branch_may_be_either() -> None:
    branches = (
        "up {\n  x = f32[4]{0} parameter(0)\n  ROOT y = f32[4]{0} add(x, x)\n}\n\ndown {\n  x = f32[4]{0} "
        "parameter(0)\n  ROOT y = f32[4]{0} negate(x)\n}\n\n"
    )
    body = (
        "  a = f32[4]{0} parameter(0)\n  p = pred[] parameter(1)\n  ROOT c = f32[4]{0} conditional(p, a, a), "
        "true_computation=up, false_computation=down"
    )
    a = np.arange(4, dtype=np.float32)
    p = Spread(np.array([True, False, True, *[True] * 4]))
    (made,) = run(parsed(body, branches), [a, p])
    assert isinstance(made, Spread)
    assert np.array_equal(made.rows[LOW], -a) and np.array_equal(made.rows[HIGH], 2 * a)
    assert isinstance(run(parsed(body, branches), [a, np.True_])[0], np.ndarray)


def test_a_reducer_that_branches_is_bounded_element_by_element() -> None:
    """It cannot be applied to whole arrays, and what its operations give is uncertain."""
    head = """same {
  ROOT a = f32[] parameter(0)
}

twice {
  a = f32[] parameter(0)
  ROOT r = f32[] add(a, a)
}

sum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  z = f32[] constant(0)
  p = pred[] compare(b, z), direction=LT
  c = f32[] conditional(p, b, b), true_computation=twice, false_computation=same
  ROOT r = f32[] add(a, c)
}

"""
    body = """  x = f32[5,3]{1,0} parameter(0)
  z = f32[] constant(0)
  ROOT r = f32[5]{0} reduce(x, z), dimensions={1}, to_apply=sum"""
    x = np.random.default_rng(2).uniform(0.5, 2, (5, 3)).astype(np.float32)
    (made,) = run(parsed(body, head), [x])
    assert isinstance(made, Spread)
    want = x.astype(np.float64).sum(axis=1)
    assert (made.rows[LOW] <= want).all() and (want <= made.rows[HIGH]).all()
