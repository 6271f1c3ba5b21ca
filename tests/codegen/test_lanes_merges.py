"""The first elements of sorted lines, of which a processor looks for no others."""

from __future__ import annotations

import numpy as np
import pytest

from hlo_opt.runtime.host.library import has_compiler
from tests.host_text import run_on_host

pytestmark = pytest.mark.skipif(not has_compiler(), reason="no C++ compiler")

TOPK = """ENTRY e {{
  p = f32[{lines},{length}] parameter(0)
  t = (f32[{lines},{k}], s32[{lines},{k}]) topk(p), k={k}, largest=true
  ROOT r = s32[{lines},{k}] get-tuple-element(t), index=1
}}
"""


@pytest.mark.parametrize(("length", "k"), [(100, 20), (100, 8), (1000, 50), (256, 128), (64, 60)])
def test_the_first_elements(length: int, k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines that rise, fall, have many equal elements, and any."""
    random = np.random.default_rng(0)
    lines = [np.arange(length), -np.arange(length), random.integers(0, 4, length), np.zeros(length)]
    x = np.stack([*lines, *random.standard_normal((4, length))]).astype(np.float32)
    found, text = run_on_host(TOPK.format(lines=8, length=length, k=k), x, monkeypatch=monkeypatch)
    assert ("hlo::sort_first(" in text) == (2 * k <= length)
    np.testing.assert_array_equal(found, np.argsort(-x, axis=1, kind="stable")[:, :k])
