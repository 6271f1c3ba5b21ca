"""Our own dumps against XLA:CPU."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("jaxlib")

import hlo_opt
from hlo_opt.evaluate import module_inputs
from scripts.xla_cpu import Program

NAMES = [
    "attention",
    "batch_norm",
    "branch",
    "cache_update",
    "embed",
    "embed_gradient",
    "heat",
    "join",
    "largest",
    "layer_norm_gradient",
    "lstm",
    "mlp_train_step",
    "nested",
    "running_sums",
    "segment_sums",
    "softmax_bf16",
    "window",
    "write_rows",
]
TOLERANCE = {"float64": 1e-9, "float32": 3e-4, "float16": 6e-3, "bfloat16": 4e-2}


@pytest.mark.parametrize("name", NAMES)
def test_dump(dumps: Path, name: str) -> None:
    text = (dumps / f"{name}.hlo").read_text(encoding="utf-8")
    module = hlo_opt.parse(text)
    inputs = module_inputs(module, 0)
    got, want = hlo_opt.evaluate(module, inputs), Program(text)(inputs)
    assert len(got) == len(want)
    for a, b in zip(got, want, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        tolerance = TOLERANCE.get(a.dtype.name)
        if tolerance is None:
            assert np.array_equal(a, b)
        else:
            wide = b.astype(np.float64)
            np.testing.assert_allclose(
                a.astype(np.float64), wide, tolerance, tolerance * (np.median(np.abs(wide)) + 1e-2)
            )
