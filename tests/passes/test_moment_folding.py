"""Means, squared deviations and deviations by something else in one fold: which sums become one, and that the values
stay, whatever the mean is."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import hlo_opt
from hlo_opt.analysis.targets import DeviceTarget
from hlo_opt.runtime.check.compare import check
from tests.small_modules import H100

SMALL = replace(H100, l2_cache_size=1 << 16)
"""A device whose cache holds none of the arrays here."""
SLOW = replace(SMALL, compute_capability=86)
"""One that calculates in f64 at a sixty-fourth of the rate of f32."""
ROWS, COLUMNS = 600, 64
SUM = "sum {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT c = f32[] add(a, b)\n}\n"


def norm(after: str, result: str, shapes: str, count: str = f"divide(total, many) {ROWS}", rows: int = ROWS) -> str:
    """Columns' means, what deviates from them, and sums of that."""
    whole, row = f"f32[{rows},{COLUMNS}]", f"f32[{COLUMNS}]"
    mean, number = count.rsplit(" ", 1)

    def filled(text: str) -> str:
        return text.replace("WHOLE", whole).replace("ROW", row)

    return f"""HloModule m

{SUM}
ENTRY e {{
  x = {whole} parameter(0)
  g = {whole} parameter(1)
  w = {row} parameter(2)
  zero = f32[] constant(0)
  n = f32[] constant({number})
  many = {row} broadcast(n), dimensions={{}}
  total = {row} reduce(x, zero), dimensions={{0}}, to_apply=sum
  mean = {row} {mean}
  flat = f32[1,{COLUMNS}] reshape(mean)
  back = {row} reshape(flat)
  means = {whole} broadcast(back), dimensions={{1}}
  d = {whole} subtract(x, means)
  ws = {whole} broadcast(w), dimensions={{1}}
{filled(after)}  ROOT t = ({filled(shapes)}) tuple({result})
}}
"""


SQUARES = "  dd = WHOLE multiply(d, d)\n  squares = ROW reduce(dd, zero), dimensions={0}, to_apply=sum\n"
PRODUCTS = """  gw = WHOLE multiply(g, ws)
  dg = WHOLE multiply(d, gw)
  products = ROW reduce(dg, zero), dimensions={0}, to_apply=sum
  less = WHOLE negate(gw)
  others = ROW reduce(less, zero), dimensions={0}, to_apply=sum
  twice = f32[] constant(2)
  twos = WHOLE broadcast(twice), dimensions={}
  d2 = WHOLE multiply(d, twos)
  none = ROW reduce(d2, zero), dimensions={0}, to_apply=sum
"""


def folded(text: str, passes: str | None = "moment-folding,cse,dce", target: DeviceTarget = SMALL) -> hlo_opt.Module:
    simplify = "never" if passes else "auto"
    made, _ = hlo_opt.fuse(hlo_opt.parse(text), passes=passes, target=target, simplify=simplify)
    hlo_opt.verify(made)
    return made


def reduces(module: hlo_opt.Module) -> list[int]:
    """How many arrays each reduce of the entry folds."""
    return [len(i.operands) // 2 for i in module.entry.instructions if i.opcode == "reduce"]


def inputs(mean: float, rows: int = ROWS) -> list[Any]:
    random = np.random.default_rng(7)
    x = random.standard_normal((rows, COLUMNS)) * 2 + mean
    return [
        np.asarray(a, np.float32) for a in (x, random.standard_normal((rows, COLUMNS)), random.standard_normal(COLUMNS))
    ]


BOTH = (SQUARES + PRODUCTS, "mean, squares, products, others, none", ", ".join(["ROW"] * 5))


def test_sums_that_wait_for_means_are_one_fold() -> None:
    assert reduces(hlo_opt.parse(norm(*BOTH))) == [1] * 5
    assert reduces(folded(norm(*BOTH))) == [4]
    assert reduces(folded(norm(SQUARES, "mean, squares", "ROW, ROW"))) == [2]


def test_slow_f64_and_f64_itself_are_joined_by_moments() -> None:
    """Count, mean, squares and sum; sums of f64 have no wider type."""
    text = norm(SQUARES, "mean, squares", "ROW, ROW")
    assert reduces(folded(text, target=SLOW)) == [4]
    assert reduces(folded(norm(*BOTH), target=SLOW)) == [6]
    assert reduces(folded(text.replace("f32", "f64"))) == [4]


def test_an_element_far_from_the_others_costs_no_digits() -> None:
    """The first element of a column is the one that others are measured from; here it is nearly all of the variance,
    then all of the rest's."""
    text = norm(SQUARES, "mean, squares", "ROW, ROW")
    x, g, w = inputs(3.0)
    x[0] = 1e6
    x[:, 1], x[:, 2] = 1e6, np.where(np.arange(ROWS) == 0, 1e6, 1e6 + 1)
    wide = x.astype(np.float64)
    want = np.square(wide - wide.mean(0)).sum(0)
    for got in (hlo_opt.evaluate(folded(text), [x, g, w]), hlo_opt.compile(folded(text), backend="host")(x, g, w)):
        np.testing.assert_allclose(got[0], wide.mean(0), rtol=2e-7)
        np.testing.assert_allclose(got[1], want, rtol=1e-6)
    assert want[1] == 0
    (mean, _), known = (
        hlo_opt.evaluate(folded(text, target=SLOW), [x, g, w]),
        hlo_opt.evaluate(hlo_opt.parse(text), [x, g, w]),
    )
    np.testing.assert_allclose(mean, known[0], rtol=1e-5)


@pytest.mark.parametrize("kind", ["f32", "f64"])
def test_the_sum_is_as_good_as_alone(kind: str) -> None:
    """By the bounds of `check`, whose inputs lie around 0."""
    module = hlo_opt.parse(norm(SQUARES, "total, squares", "ROW, ROW").replace("f32", kind))
    made, _ = hlo_opt.fuse(module, target=SLOW)
    assert str(check(module, made, backend="numpy").first) == "None"


@pytest.mark.parametrize("target", [SMALL, SLOW], ids=["f64", "moments"])
@pytest.mark.parametrize("mean", [0.0, 3.0, 1000.0, -1e5])
def test_nothing_cancels(mean: float, target: DeviceTarget) -> None:
    """Against sums in f64: the mean of squares less the square of the mean would have no digit left of the last
    ones."""
    text = norm(*BOTH)
    made, given = folded(text, None, target), inputs(mean)
    x, g, w = (a.astype(np.float64) for a in given)
    d = x - x.mean(0)
    want = [x.mean(0), (d * d).sum(0), (d * g).sum(0) * w, -(g.sum(0) * w), 0 * w]
    scales = [np.abs(x).max(), (d * d).sum(), np.abs(d * g).sum() / 8, np.abs(g).sum() / 8, 10 * np.abs(x).max()]
    for run in (hlo_opt.evaluate(made, given), hlo_opt.compile(made, backend="host")(*given)):
        for got, wanted, scale in zip(run, want, scales, strict=True):
            np.testing.assert_allclose(got, wanted, rtol=2e-4, atol=1e-6 * scale)


@pytest.mark.parametrize("target", [SMALL, SLOW], ids=["f64", "moments"])
def test_infinities_and_nan_come_out_where_they_did(target: DeviceTarget) -> None:
    text = norm(*BOTH)
    x, g, w = inputs(1.0)
    x[5, 0], x[-1, 1], x[0, 2], x[7, 3], g[3, 4] = np.inf, np.inf, -np.inf, np.nan, np.inf
    module = hlo_opt.parse(text)
    for got, want in zip(
        hlo_opt.compile(folded(text, None, target), backend="host")(x, g, w),
        hlo_opt.evaluate(module, [x, g, w]),
        strict=True,
    ):
        np.testing.assert_array_equal(np.isfinite(got), np.isfinite(want))
        np.testing.assert_array_equal(np.isnan(got[:4]), np.isnan(want[:4]))  # what is beside may be none for infinite


def test_a_mean_by_a_product_is_one_too() -> None:
    text = norm(SQUARES, "mean, squares", "ROW, ROW", f"multiply(total, many) {1 / 512}", rows=512)
    assert reduces(folded(text)) == [2]


OTHER = (
    "  m = WHOLE multiply(d, g)\n  mm = WHOLE multiply(m, d)\n  odd = ROW reduce(mm, zero), dimensions={0}, "
    "to_apply=sum\n"
)
AFTER = "  r = WHOLE broadcast(total), dimensions={1}\n  rd = WHOLE multiply(r, g)\n  rr = WHOLE exponential(rd)\n  p = WHOLE multiply(rr, d)\n  late = ROW reduce(p, zero), dimensions={0}, to_apply=sum\n"


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (norm(SQUARES, "mean, squares", "ROW, ROW", "divide(total, many) 599"), 2),
        (norm(OTHER, "mean, odd", "ROW, ROW"), 2),
        (norm(AFTER, "mean, late", "ROW, ROW"), 2),
        (norm(SQUARES, "mean, squares", "ROW, ROW", rows=16, count="divide(total, many) 16"), 2),
        (norm("", "mean, d", "ROW, WHOLE"), 1),
    ],
    ids=["no mean", "deviations twice by something", "by something that waits", "in the cache", "nothing waits"],
)
def test_others_stay(text: str, left: int) -> None:
    assert reduces(folded(text)) == [1] * left


MEAN_OF_Y = """  y = WHOLE multiply(x, vs)
  total2 = ROW reduce(y, zero), dimensions={0}, to_apply=sum
  mean2 = ROW divide(total2, many)
  means2 = WHOLE broadcast(mean2), dimensions={1}
  d2 = WHOLE subtract(y, means2)
"""
SECOND_NORM = f"""{SQUARES}  vs = WHOLE broadcast(squares), dimensions={{1}}
{MEAN_OF_Y}  dd2 = WHOLE multiply(d2, d2)
  squares2 = ROW reduce(dd2, zero), dimensions={{0}}, to_apply=sum
"""
FED_BY_A_SUM = f"""  gs = ROW reduce(g, zero), dimensions={{0}}, to_apply=sum
  vs = WHOLE broadcast(gs), dimensions={{1}}
{MEAN_OF_Y}  dg2 = WHOLE multiply(d2, g)
  products2 = ROW reduce(dg2, zero), dimensions={{0}}, to_apply=sum
"""


@pytest.mark.parametrize(
    ("after", "result", "left"),
    [(SECOND_NORM, "mean, squares, mean2, squares2", [2, 2]), (FED_BY_A_SUM, "mean, gs, mean2, products2", [1, 1, 3])],
    ids=["each of two norms", "not the sum that an array depends on"],
)
def test_arrays_that_depend_on_other_sums(after: str, result: str, left: list[int]) -> None:
    text = norm(after, result, "ROW, ROW, ROW, ROW")
    assert sorted(reduces(folded(text))) == left
    given = inputs(3.0)
    for got, want in zip(
        hlo_opt.evaluate(folded(text), given), hlo_opt.evaluate(hlo_opt.parse(text), given), strict=True
    ):
        np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-4 * np.abs(want).max())


def test_a_limit_of_steps_is_kept() -> None:
    text = norm(*BOTH)
    made, _ = hlo_opt.fuse(
        hlo_opt.parse(text), passes="moment-folding", target=SMALL, simplify="never", stop_after_step=0
    )
    assert reduces(made) == [1] * 5


def variance(dimensions: tuple[int, ...], axes: tuple[int, ...], *, keepdims: bool = False) -> str:
    """Sums of squared deviations of x[dimensions] from its means over the axes, which stay as 1 with `keepdims`."""
    kept = [d for d in range(len(dimensions)) if d not in axes]
    shape, few = (",".join(map(str, sizes)) for sizes in (dimensions, [dimensions[d] for d in kept]))
    mean = ",".join("1" if d in axes else str(size) for d, size in enumerate(dimensions)) if keepdims else few
    dropped, back = (",".join(map(str, numbers)) for numbers in (axes, kept))
    return f"""HloModule m

{SUM}
ENTRY e {{
  x = f32[{shape}] parameter(0)
  zero = f32[] constant(0)
  n = f32[] constant({math.prod(dimensions[d] for d in axes)})
  many = f32[{mean}] broadcast(n), dimensions={{}}
  total = f32[{few}] reduce(x, zero), dimensions={{{dropped}}}, to_apply=sum
  kept = f32[{mean}] reshape(total)
  mean = f32[{mean}] divide(kept, many)
  flat = f32[{few}] reshape(mean)
  means = f32[{shape}] broadcast(flat), dimensions={{{back}}}
  d = f32[{shape}] subtract(x, means)
  dd = f32[{shape}] multiply(d, d)
  ROOT squares = f32[{few}] reduce(dd, zero), dimensions={{{dropped}}}, to_apply=sum
}}
"""


@pytest.mark.parametrize(
    ("dimensions", "axes", "keepdims", "cache", "folds"),
    [
        ((2, 10, 15, 32), (1, 2), True, 1 << 12, [2]),
        ((2, 600, 4, 8), (1, 3), True, 1 << 12, [2, 2]),
        ((300, 400), (0, 1), False, 1 << 16, [2]),
        ((9, 2, 100, 80), (0, 2, 3), False, 1 << 16, [2]),
        ((2, 3, 100, 80), (0, 2, 3), False, 1 << 16, [1, 1]),
    ],
    ids=["images", "groups: sums of channels, then of these", "everything", "channels first", "kept in registers"],
)
def test_variances(
    dimensions: tuple[int, ...], axes: tuple[int, ...], keepdims: bool, cache: int, folds: list[int]
) -> None:
    """What does not fit a block's registers is one fold, and its values stay."""
    text = variance(dimensions, axes, keepdims=keepdims)
    made = folded(text, target=replace(H100, l2_cache_size=cache))
    assert reduces(made) == folds
    x = (np.random.default_rng(3).standard_normal(dimensions) + 50).astype(np.float32)
    wide = x.astype(np.float64)
    want = np.square(wide - wide.mean(axes, keepdims=True)).sum(axes)
    for got in (hlo_opt.evaluate(made, [x])[0], hlo_opt.compile(made, backend="host")(x)[0]):
        np.testing.assert_allclose(got, want, rtol=1e-4)
