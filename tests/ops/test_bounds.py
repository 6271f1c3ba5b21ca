"""Bounds hold for values that were computed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hlo_opt import evaluate, parse
from hlo_opt.evaluate import ValueEvent, module_inputs
from hlo_opt.evaluate.wanted import known_bounds

DUMPS = Path(__file__).parents[2] / "testdata" / "dumps"


@pytest.mark.parametrize("name", ["cross_entropy", "dropout", "integers", "quantize", "transformer_decode", "life"])
def test_values_lie_within_their_bounds(name: str) -> None:
    module = parse((DUMPS / f"{name}.hlo").read_text())
    bounds = known_bounds(module)
    found: list[str] = []

    def watch(event: ValueEvent) -> None:
        value = event.value
        if event.instruction not in bounds or isinstance(value, tuple) or not np.size(value) or value.dtype.kind == "c":
            return
        low, high = bounds[event.instruction]
        wide = np.asarray(value, np.float64)
        reach = 1e-5 * max(abs(low), abs(high)) if np.isfinite(low) and np.isfinite(high) else 1e-5
        if np.nanmin(wide, initial=np.inf) < low - reach or np.nanmax(wide, initial=-np.inf) > high + reach:
            found.append(f"{event.instruction.name}: {wide.min()}..{wide.max()} beyond {low}..{high}")

    evaluate(module, module_inputs(module, 0), watch=watch)
    assert found == [] and sum(low > -np.inf for low, _ in bounds.values()) > len(bounds) // 10


def test_an_iota_that_wraps_around_has_no_bounds() -> None:
    """Numbers of s8 beyond 127 become negative."""
    module = parse("HloModule m\n\nENTRY e {\n  ROOT i = s8[300] iota(), iota_dimension=0\n}\n")
    assert known_bounds(module)[module.entry.root][0] < 0


def test_uniform_numbers_made_of_bits_are_below_one() -> None:
    text = """HloModule m

ENTRY e {
  bits = u32[8] parameter(0)
  nine = u32[8] constant({9,9,9,9,9,9,9,9})
  mantissa = u32[8] shift-right-logical(bits, nine)
  one = u32[8] constant({1065353216,1065353216,1065353216,1065353216,1065353216,1065353216,1065353216,1065353216})
  word = u32[8] or(mantissa, one)
  ROOT real = f32[8] bitcast-convert(word)
}
"""
    module = parse(text)
    low, high = known_bounds(module)[module.entry.root]
    assert low == 1.0 and 1.9 < high < 2.0
