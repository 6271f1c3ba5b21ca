"""Weights that are no numbers, at places of a window where there is no data."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from hlo_opt.evaluate import evaluate
from hlo_opt.runtime.rounding.analysis import analyse
from hlo_opt.runtime.rounding.verdict import compared, enclosures

from .spreads import parsed

NAMES = {"f32": np.float32, "bf16": ml_dtypes.bfloat16, "c64": np.complex64}


def row(window: str, outputs: int, weights: list[float], name: str = "f32") -> tuple[Any, list[Any]]:
    """A convolution along a row; a group of features has its own weights."""
    module = parsed(
        f"  a = {name}[1,5,2] parameter(0)\n  b = {name}[3,1,2] parameter(1)\n"
        f"  ROOT c = {name}[1,{outputs},2] convolution(a, b), window={window}, dim_labels=b0f_0io->b0f, "
        "feature_group_count=2"
    )
    kernel = np.stack([weights, [1.0, 2.0, 3.0]], axis=-1).reshape(3, 1, 2)
    data = np.arange(1.0, 11).reshape(1, 5, 2)
    return module, [data.astype(NAMES[name]), kernel.astype(NAMES[name])]


def set_aside(window: str, outputs: int, weights: list[float], name: str = "f32") -> tuple[list[int], list[int]]:
    """Which elements of each group have no bound."""
    module, inputs = row(window, outputs, weights, name)
    analysis = analyse(module, inputs)
    (found,) = enclosures(analysis, evaluate(module, inputs))
    one, other = np.moveaxis(found.set_aside().reshape(outputs, 2, -1).any(axis=-1), 1, 0)
    return list(map(int, np.flatnonzero(one))), list(map(int, np.flatnonzero(other)))


@pytest.mark.parametrize("name", ["f32", "bf16"])
def test_what_hangs_on_a_weight_in_the_padding_is_open(name: str) -> None:
    assert set_aside("{size=3 pad=1_1}", 5, [np.nan, 2, 3], name) == ([0], [])
    assert set_aside("{size=3 pad=1_1}", 5, [1, 2, np.nan], name) == ([4], [])
    assert set_aside("{size=3 pad=0_2}", 5, [1, np.nan, 3], name) == ([4], [])


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", NAMES)
def test_so_it_is_with_infinite_and_complex_ones(bad: float, name: str) -> None:
    """Sums of infinite terms and complex products have wider bounds elsewhere, too."""
    one, other = set_aside("{size=3 pad=1_1}", 5, [bad, 2, 3], name)
    assert 0 in one and not other


def test_what_lies_between_elements_counts_as_padding() -> None:
    assert set_aside("{size=3 lhs_dilate=2}", 7, [np.nan, 2, 3]) == ([1, 3, 5], [])
    assert set_aside("{size=3 pad=1_1 stride=2}", 3, [1, np.nan, 3]) == ([], [])


@pytest.mark.parametrize("window", ["{size=3}", "{size=3 pad=-1_0}"])
def test_a_weight_that_meets_data_everywhere_is_certain(window: str) -> None:
    assert set_aside(window, 3 - window.count("-1"), [np.nan, np.inf, 3]) == ([], [])
    assert set_aside("{size=3 pad=1_1}", 5, [1, 2, 3]) == ([], [])


def test_other_elements_must_still_agree_and_the_verdict_says_on_what_they_hang() -> None:
    module, inputs = row("{size=3 pad=2_2}", 7, [np.nan, 2, 3])
    (expected,) = evaluate(module, inputs)
    analysis = analyse(module, inputs)
    for at, is_fine in (((0, 0, 0), True), ((0, 4, 0), False), ((0, 0, 1), False)):
        actual = np.array(expected)
        actual[at] = 77
        (report,) = compared(module, [expected], [actual], analysis)
        assert report.ok is is_fine
    (tie,) = analysis.ties
    assert (tie.instruction.name, tie.elements, tie.on) == ("c", 2, "weights at the padding, infinite or NaN,")
