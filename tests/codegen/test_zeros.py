"""0 is greater than -0, for `maximum`, `minimum` and `clamp`, beside a constant and beside another array."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hlo_opt.runtime.numpy import Reference
from hlo_opt.text import parse

TEXT = """HloModule m

ENTRY e {
  p = TYPE[64]{0} parameter(0)
  q = TYPE[64]{0} parameter(1)
  a = TYPE[] constant(0)
  b = TYPE[] constant(-0)
  c = TYPE[64]{0} broadcast(a), dimensions={}
  d = TYPE[64]{0} broadcast(b), dimensions={}
  r0 = TYPE[64]{0} maximum(p, c)
  r1 = TYPE[64]{0} maximum(d, p)
  r2 = TYPE[64]{0} minimum(c, p)
  r3 = TYPE[64]{0} minimum(p, d)
  r4 = TYPE[64]{0} maximum(p, q)
  r5 = TYPE[64]{0} minimum(p, q)
  r6 = TYPE[64]{0} clamp(a, p, a)
  ROOT r = (TYPE[64]{0}, TYPE[64]{0}, TYPE[64]{0}, TYPE[64]{0}, TYPE[64]{0}, TYPE[64]{0}, TYPE[64]{0}) tuple(r0, r1, r2, r3, r4, r5, r6)
}
"""


@pytest.mark.parametrize("element_type", ["f32", "f64", "bf16"])
def test_signs_of_zero(tool: Any, element_type: str) -> None:
    text = TEXT.replace("TYPE", element_type)
    values = np.array([0.0, -0.0, 1.0, -1.0, np.nan, np.inf, -np.inf, 2.0])
    kind = tool.kernel(text).inputs[0].type.dtype
    given = [np.repeat(values, 8).astype(kind), np.tile(values, 8).astype(kind)]
    for got, want in zip(tool.run(text, given), Reference(parse(text)).run(given), strict=True):
        a, b = got.astype(np.float64), want.astype(np.float64)
        np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(np.signbit(a)[a == 0], np.signbit(b)[a == 0])
