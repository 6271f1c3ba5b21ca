"""What a kernel of two products and the softmax between them may leave out."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import hlo_opt
from hlo_opt.ops.spread import full
from hlo_opt.ops.values import HIGH, LOW
from hlo_opt.runtime.rounding import analysis
from tests.attention_modules import attention


def outside(rows: int) -> int:
    """How many results lie outside the bounds if weights are not rounded to the type of the values."""
    module = hlo_opt.parse(attention(70, 32, rows=rows, t="bf16"))
    draw = np.random.default_rng(2)
    shapes = ((2, 3, rows, 32), (2, 70, 3, 32), (2, 70, 3, 32))
    given = [draw.normal(size=shape).astype(ml_dtypes.bfloat16) for shape in shapes]
    q, k, v = (array.astype(np.float64) for array in given)
    scores = np.einsum("bhrd,bshd->bhrs", q, k) / 4
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    result = np.einsum("bhrs,bshd->bhrd", weights, v).astype(ml_dtypes.bfloat16)
    (spread,) = analysis.analyse(module, given).outputs
    bounds = full(spread.rows)
    return int(np.count_nonzero((result < bounds[LOW]) | (result > bounds[HIGH])))


def test_weights_need_not_be_rounded(monkeypatch: pytest.MonkeyPatch) -> None:
    assert outside(40) == 0
    monkeypatch.setattr(analysis, "roundings_between", lambda instructions: set())
    assert outside(40) > 0
