import numpy as np
import pytest

from hlo_opt.ops.values import HIGH, LOW, Spread

from .spreads import holds, parsed, run

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


def floats(*sizes: int) -> np.ndarray:  # type: ignore[type-arg]
    return RNG.normal(size=sizes).astype(np.float32)


@pytest.mark.parametrize(
    "tail",
    [
        "  ROOT c = f32[3]{0} dynamic-slice(a, i), dynamic_slice_sizes={3}",
        "  u = f32[3]{0} slice(a), slice={[0:3]}\n  ROOT c = f32[30]{0} dynamic-update-slice(a, u, i)",
    ],
)
def test_an_open_place_may_be_any(tail: str) -> None:
    body = "  a = f32[30]{0} parameter(0)\n  i = s32[] parameter(1)\n"
    made = holds(body + tail, floats(30), np.array(10, np.int32), radius=0.3)
    assert isinstance(made[0], Spread)
    certain = run(parsed(body + tail), [floats(30), np.array(10, np.int32)])
    assert isinstance(certain[0], np.ndarray)


def test_rows_of_certain_indices_stay_certain() -> None:
    body = (
        "  a = f32[30,4]{1,0} parameter(0)\n  i = s32[20]{0} parameter(1)\n  ROOT c = f32[20,4]{1,0} gather(a, i), "
        "offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1,4}"
    )
    indices = RNG.integers(0, 30, 20).astype(np.int32)
    holds(body, floats(30, 4), indices, radius=0.1)
    rows = np.stack([indices] * 7)
    rows[HIGH, 3] += 2
    (made,) = run(parsed(body), [floats(30, 4), Spread(rows)])
    assert isinstance(made, Spread)
    open_ = made.rows[LOW] != made.rows[HIGH]
    assert open_[3].all() and not open_[:3].any() and not open_[4:].any()
