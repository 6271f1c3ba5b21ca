"""Operations that no rule is known of, where digits are lost, and what is said of an output's bounds."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from compared_modules import output_report

from hlo_opt.ir import ELEMENT_TYPES, Instruction
from hlo_opt.ops.spread import aside
from hlo_opt.ops.values import HIGH, LOW, MOVED, ROWS, VALUE, Loss, Spread
from hlo_opt.runtime.differences import Enclosure, compare_output, over_devices, over_draws
from hlo_opt.runtime.rounding import analysis, verdict
from hlo_opt.runtime.rounding.analysis import Analysis, SpreadInterpreter, TiedOperation

from .spreads import parsed, run

F64 = ELEMENT_TYPES["f64"]


def rows(value: Any, moved: list[Any], dtype: Any = np.float64) -> Spread:
    first = np.asarray(value, dtype)
    return Spread(np.stack([first] * 3 + [np.asarray(m, dtype) for m in moved]))


def test_bounds_from_moved_values_alone() -> None:
    """Eight times as far as an element moved, and as far as all did in the mean."""
    made = analysis._sampled(rows([10.0, 20.0], [[10.1, 20.0], [10.0, 20.3], [9.8, 20.0], [10.0, 20.0]]))
    assert made.rows[LOW] == pytest.approx([10 - 8 * 0.25, 20 - 8 * 0.3]) and made.rows[HIGH] == pytest.approx(
        [10 + 8 * 0.25, 20 + 8 * 0.3]
    )
    still = analysis._sampled(rows([1.0], [[1.0]] * 4))
    assert isinstance(still, np.ndarray)
    forward = analysis._sampled(rows([[1.0, 4.0]], [[[1.0, 4.0]]] * 4), 64.0)
    assert forward.rows[HIGH] - forward.rows[VALUE] == pytest.approx(np.full((1, 2), 64 * 2.0**-52 * 4), rel=1e-2)
    narrow = analysis._sampled(rows([[1.0, 4.0]], [[[1.0, 4.0]]] * 4, np.float32), 64.0)
    assert narrow.rows[VALUE] - narrow.rows[LOW] == pytest.approx(np.full((1, 2), 64 * 2.0**-23 * 4), rel=1e-2)
    alone = analysis._sampled(np.array([[1.0, 4.0]]), 64.0)
    assert isinstance(alone, Spread) and analysis._sampled(np.array([1.0])) is not None


def test_each_matrix_has_a_scale_of_its_own() -> None:
    value = np.array([[[1.0, 2.0]], [[100.0, 1.0]]])
    made = analysis._sampled(rows(value, [value] * 4), 1.0)
    wide = (made.rows[HIGH] - made.rows[VALUE]) / 2.0**-52
    assert wide == pytest.approx(np.array([[[2.0, 2.0]], [[100.0, 100.0]]]), rel=0.3)


def test_lost_values_are_set_aside_and_whole_ones_hulled() -> None:
    lost = analysis._sampled(rows([1.0, 2.0], [[math.inf, 2.0], *[[1.0, 2.0]] * 3]))
    assert list(aside(lost.rows)) == [True, False]
    nan = analysis._sampled(rows([math.nan, 2.0], [[math.nan, 2.5], *[[math.nan, 2.0]] * 3]))
    assert np.isnan(nan.rows[LOW][0]) and nan.rows[HIGH][1] > 2
    whole = analysis._sampled(rows([5, 7], [[3, 7], [6, 7], [5, 7], [5, 7]], np.int32))
    assert (list(whole.rows[LOW]), list(whole.rows[HIGH])) == ([3, 7], [6, 7])
    assert isinstance(analysis._sampled(rows([5], [[5]] * 4, np.int32)), np.ndarray)
    parts = analysis._sampled(rows([1 + 1j], [[1 + 1.5j], *[[1 + 1j]] * 3], np.complex128))
    assert (parts.rows[LOW][0], parts.rows[HIGH][0]) == (-3 - 3j, 5 + 5j)
    pair = analysis._sampled((rows([1.0], [[1.5]] * 4), np.array([2.0])))
    assert isinstance(pair, tuple) and pair[0].rows[HIGH][0] == 5.0 and pair[1][0] == 2.0


class Halves:
    def noise(self, shape: tuple[int, ...]) -> Any:
        return np.full(shape, 0.5)


def test_operands_of_libraries_are_nudged() -> None:
    assert analysis._nudged(Halves(), np.array([2.0])) == [2.0 * (1 + 4 * 2.0**-52)]  # type: ignore[arg-type]
    nudged = analysis._nudged(Halves(), np.array([2.0], np.float32))  # type: ignore[arg-type]
    assert nudged == [np.float32(2.0 * (1 + 4 * 2.0**-23))]
    for kept in (np.array([2]), np.array([2.0], np.float16)):
        assert analysis._nudged(Halves(), kept) is kept  # type: ignore[arg-type]
    first, second = analysis._nudged(Halves(), (np.array([1.0]), np.array([3])))  # type: ignore[arg-type]
    assert first > 1 and second == [3]


def test_noise_is_between_a_half_and_one_of_both_signs() -> None:
    analyst = SpreadInterpreter(np.random.default_rng(0))
    for shape in ((1000,), (3, 400), (200_000,)):
        found = analyst.noise(shape)
        size = np.abs(found)
        assert found.shape == shape and size.min() >= 0.5 and size.max() <= 1 and 0.4 < np.mean(found > 0) < 0.6
        assert not np.array_equal(found, analyst.noise(shape))
    assert np.shape(analyst.noise(())) == ()


@pytest.mark.parametrize(
    ("body", "uncertain"),
    [
        ("  ROOT r = f32[4,4]{1,0} cholesky(a), lower=true", True),
        ("  ROOT r = (f32[4,2]{1,0}, s32[4,2]{1,0}) topk(a), k=2, largest=true", False),
        ("  ROOT r = c64[4,3]{1,0} fft(a), fft_type=RFFT, fft_length={4}", True),
    ],
)
def test_what_libraries_compute_is_uncertain_of_certain_operands(body: str, uncertain: bool) -> None:
    a = np.eye(4, dtype=np.float32) * 4 + np.float32(0.5)
    made = run(parsed(f"  a = f32[4,4]{{1,0}} parameter(0)\n{body}"), [a])
    assert any(isinstance(m, Spread) for m in made) == uncertain


def test_a_tie_is_told_with_the_most_elements_that_it_had() -> None:
    analyst = SpreadInterpreter(np.random.default_rng(0))
    instruction = parsed("  ROOT a = f32[] parameter(0)").entry.root
    for elements in (3, 7, 5):
        analyst.tie(instruction, elements)
    assert analyst.ties() == [TiedOperation(instruction, 7)]


def test_where_digits_are_lost() -> None:
    """The difference of what is nearly equal is as uncertain as both, and much smaller."""
    body = (
        "  a = f64[1]{0} parameter(0)\n  b = f64[1]{0} parameter(1)\n  s = f64[1]{0} subtract(a, b)\n  ROOT m = "
        "f64[1]{0} multiply(s, b)"
    )
    a = Spread(np.array([1001.0, 1000.9, 1001.1, 1000.9, 1001.1, 1001.0, 1001.0]).reshape(ROWS, 1))
    (made,) = run(parsed(body), [a, np.array([1000.0])])
    assert isinstance(made, Spread) and made.loss is not None
    assert made.loss.instruction.name == "s" and made.loss.gain == pytest.approx(0.1 / (0.1 / 1001), rel=1e-6)
    assert (
        analysis._width(a) == pytest.approx(0.1 / 1001)
        and analysis._width(Spread(np.zeros((ROWS, 2), np.int32))) == 1.0
    )
    far = Spread(np.array([1.0, -math.inf, math.inf, 1, 1, 1, 1]).reshape(ROWS, 1))
    assert analysis._width(far) == 1.0 and analysis._width(Spread(np.zeros((ROWS, 2)))) == 1.0


# ---- verdicts


MODULE = "  a = f64[4]{0} parameter(0)\n  f = f64[4]{0} floor(a)\n  ROOT s = f64[4]{0} subtract(f, a)"


def test_why_bounds_are_wide() -> None:
    module = parsed(MODULE)
    floor, root = module.entry.root.operands[0], module.entry.root
    ties = [TiedOperation(root, 1), TiedOperation(floor, 3)]
    lines = [module.span(i).line for i in (floor, root)]  # type: ignore[union-attr]
    plain = Spread(np.zeros((ROWS, 4)))
    lossy = Spread(np.zeros((ROWS, 4)), loss=Loss(root, 123.4))
    assert (
        verdict._lost(module, Analysis([plain], ties), output_report(set_aside=3))
        == f"3 of 4 elements hang on ties of floor f (line {lines[0]})"
    )
    for few in (output_report(set_aside=2, loose=0.75), output_report(loose=0.75)):
        assert verdict._lost(module, Analysis([plain], ties), few) == "bounds above 5 % of the value on 75 % of it"
    assert verdict._lost(module, Analysis([lossy], []), output_report(set_aside=4, loose=1.0)) == (
        f"bounds above 5 % of the value on 100 % of it: subtract s (line {lines[1]}) makes relative differences 1.2e+02 "
        f"times larger"
    )
    assert (
        verdict._lost(module, Analysis([np.zeros(4)], []), output_report(loose=0.6))
        == "bounds above 5 % of the value on 60 % of it"
    )


def test_an_instruction_of_no_text_has_no_line() -> None:
    module = parsed(MODULE)
    made = Instruction("made", "floor", module.entry.root.shape, [module.entry.root])
    assert verdict._named(module, made) == "floor made"


@pytest.mark.parametrize(
    ("expected", "free", "weak"),
    [
        ([], True, None),
        ([1.0, 2.0], True, "it does not depend on the inputs"),
        ([1.0, 2.0], False, None),
        ([math.nan, math.nan], False, "all elements are NaN"),
        ([math.nan], False, "it is NaN"),
        ([math.nan, 1.0], False, None),
        ([3.0, 3.0], False, "all elements are 3.0"),
        ([3.0], False, None),
    ],
)
def test_what_an_output_says_about_itself(expected: list[float], free: bool, weak: str | None) -> None:
    assert verdict._plain(np.array(expected), free) == weak


def test_agreement_is_weak_where_bounds_are_wide() -> None:
    module = parsed("  ROOT a = f64[2]{0} parameter(0)")
    expected = np.array([1.0, 2.0])
    for far, weak in ((0.04, False), (0.2, True)):
        spread = Spread(np.stack([expected, expected * (1 - far), expected * (1 + far), *[expected] * 4]))
        (found,) = verdict.compared(module, [expected], [expected], Analysis([spread], []))
        assert found.ok and bool(found.weak) == weak
        (off,) = verdict.compared(module, [expected], [expected * 2], Analysis([spread], []))
        assert not off.ok and not off.weak
    (exact,) = verdict.compared(module, [expected], [expected * 1.01], None)
    assert not exact.ok
    (box,) = verdict.enclosures(Analysis([Spread(np.zeros((ROWS, 3)))], []), [expected])
    assert box.low is box.high or np.array_equal(box.low, box.high)


# ---- reports


def test_reports_of_several_devices_are_one() -> None:
    off = compare_output(0, np.array([1.0, 2.0]), np.array([1.0, 3.0]))
    one = output_report(
        max_ulp=1.0,
        max_error=5.0,
        max_relative=0.1,
        share=0.5,
        rounded=1,
        differing=0,
        set_aside=2,
        loose=0.3,
        weak="x",
    )
    other = output_report(
        max_ulp=2.0,
        max_error=4.0,
        max_relative=0.2,
        share=0.4,
        rounded=3,
        differing=1,
        set_aside=1,
        loose=0.2,
        weak=None,
        first=off.first,
    )
    assert over_devices([one]) is one
    both = over_devices([one, other])
    assert (both.max_ulp, both.max_error, both.max_relative, both.share) == (2.0, 5.0, 0.2, 0.5)
    assert (both.rounded, both.differing, both.set_aside, both.loose, both.devices, both.elements) == (
        4,
        1,
        3,
        0.3,
        2,
        8,
    )
    assert both.weak is None and both.first is not None and both.first.device == 1 and not both.ok
    assert str(both.first).startswith("out0.d1[1]: expected 2.0, got 3.0")
    assert over_devices([one, one]).weak == "x" and over_devices([one, one]).first is None
    draws = over_draws([one, other])
    assert (draws.rounded, draws.differing, draws.set_aside, draws.loose, draws.devices) == (3, 1, 2, 0.2, 1)
    assert (draws.max_ulp, draws.weak, draws.first) == (2.0, None, off.first)


def test_how_much_of_its_bound_an_element_uses_up() -> None:
    expected = np.array([10.0, 0.0, 4.0, 5.0])
    box = Enclosure(np.array([8.0, -1.0, 4.0, -math.inf]), np.array([11.0, 1.0, 4.0, math.inf]))
    found = compare_output(1, expected, np.array([9.0, 0.25, 4.0, 77.0]), box)
    assert found.ok and found.share == 0.5 and found.rounded == 3 and found.set_aside == 1
    assert found.max_error == 72.0 and found.max_relative == 72 / 5
    assert found.loose == pytest.approx(15 / 19)
    for actual, place in (([7.5, 0, 4, 5], 0), ([10, 1.5, 4, 5], 1), ([10, 0, 4.5, 5], 2)):
        off = compare_output(1, expected, np.array(actual), box)
        assert off.differing == 1 and off.first is not None and off.first.index == (place,)
    low = compare_output(1, expected, np.array([7.5, 0, 4, 5]), box).first
    assert (
        low is not None
        and low.bound == 2.0 / np.spacing(10.0)
        and low.ulp == pytest.approx(2.5 / np.spacing(10.0), rel=0.6)
    )
    high = compare_output(1, expected, np.array([11.5, 0, 4, 5]), box).first
    assert high is not None and high.bound == 1.0 / np.spacing(10.0)
    assert "ULP apart (bound" in str(high) and MOVED == 3
    gone = compare_output(3, np.zeros((2, 0)), np.zeros((0, 2)))
    assert (
        gone.differing == 1 and str(gone.first) == "out3[]: expected float64[2, 0], got float64[0, 2] (must be equal)"
    )
