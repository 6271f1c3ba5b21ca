"""Inputs for a module when nobody gives any: drawn from a seed, the same on every machine."""

from __future__ import annotations

from hlo_opt.evaluate import module_inputs as sample_inputs

__all__ = ["sample_inputs"]
