import numpy as np
import pytest

from .spreads import holds

RNG = np.random.default_rng(4)


@pytest.mark.parametrize(
    "line",
    [
        "f32[4,6,3]{2,1,0} broadcast(a), dimensions={0,1}",
        "f32[6,4]{1,0} broadcast(a), dimensions={1,0}",
        "f32[8,3]{1,0} reshape(a)",
        "f32[6,4]{1,0} transpose(a), dimensions={1,0}",
        "f32[2,3]{1,0} slice(a), slice={[1:3], [0:6:2]}",
        "f32[4,6]{1,0} reverse(a), dimensions={1}",
        "f32[4,12]{1,0} concatenate(a, b), dimensions={1}",
        "f32[6,9]{1,0} pad(a, k), padding=1_1x2_1",
        "f32[24]{0} bitcast(a)",
    ],
)
def test_bounds_move_with_the_elements(line: str) -> None:
    body = "  a = f32[4,6]{1,0} parameter(0)\n  b = f32[4,6]{1,0} parameter(1)\n  k = f32[] constant(1)\n"
    a, b = (RNG.normal(size=(4, 6)).astype(np.float32) for _ in range(2))
    holds(body + f"  ROOT c = {line}", a, b, radius=0.2)
