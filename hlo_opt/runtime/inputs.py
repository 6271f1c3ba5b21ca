"""Inputs for a module when nobody gives any: drawn from a seed, the same on every machine."""

from __future__ import annotations

from hlo_opt.evaluate import module_inputs as sample_inputs
from hlo_opt.evaluate.reach import MOST_DRAWS, MOST_TRIED, Draw, Reached, reaching_inputs
from hlo_opt.evaluate.ways import Way

__all__ = ["MOST_DRAWS", "MOST_TRIED", "Draw", "Reached", "Way", "reaching_inputs", "sample_inputs"]
