"""How many elements a thread of a loop has where its lanes read lines apart."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hlo_opt.analysis.targets import DeviceTarget, InLanes
from hlo_opt.plans.loop import Elements
from hlo_opt.plans.price import price
from tests.small_modules import H100, module_of, planned

ROWS = "p = u8[16384,12288] parameter(0)"
THIRDS = (ROWS, "r = u8[16384,4096] slice(p), slice={[0:16384], [2:12288:3]}")
MEANS = (
    "p = u8[256,512,512,3] parameter(0)",
    "w = f32[256,512,512,3] convert(p)",
    "b = f32[256,256,2,256,2,3] reshape(w)",
    "z = f32[] constant(0)",
    "s = f32[256,256,256,3] reduce(b, z), dimensions={2,4}, to_apply=sum",
    "r = u8[256,256,256,3] convert(s)",
)
TRIPLES = (
    "p = f32[1000000,3] parameter(0)",
    "i = s32[4000000,1] parameter(1)",
    "r = f32[4000000,3] gather(p, i), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, "
    "index_vector_dim=1, slice_sizes={1,3}",
)


def part_of(lines: tuple[str, ...], target: DeviceTarget = H100) -> Elements:
    (segment,) = planned(module_of(*lines), target).segments
    assert isinstance(segment.part, Elements)
    return segment.part


@pytest.mark.parametrize(
    ("lines", "vector"),
    [
        ((ROWS, "r = u8[16384,12288] negate(p)"), 16),
        ((ROWS, "r = u8[16384,12288] reverse(p), dimensions={0}"), 16),
        ((ROWS, "r = u8[16383,12288] slice(p), slice={[1:16384], [0:12288]}"), 16),
        (THIRDS, 8),
        (MEANS, 4),
        (TRIPLES, 2),
    ],
)
def test_lanes_that_read_apart_have_fewer_elements(lines: tuple[str, ...], vector: int) -> None:
    assert part_of(lines).vector == vector


def test_a_loop_that_does_not_fill_the_device_stays() -> None:
    most = 16384 * 4096 // 16 // H100.core_count
    assert part_of(THIRDS, replace(H100, threads_per_core_limit=most)).vector == 8
    assert part_of(THIRDS, replace(H100, threads_per_core_limit=most + 1)).vector == 16


def test_lanes_of_a_processor_stay() -> None:
    assert part_of(THIRDS, InLanes.of(H100)).vector == 16


@pytest.mark.parametrize("lines", [THIRDS, MEANS, TRIPLES])
def test_the_price_is_less_than_with_the_widest_stores(lines: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    found = price(planned(module_of(*lines)), H100)
    monkeypatch.setattr("hlo_opt.plans.slices.narrowed", lambda region, part, target: part)
    assert found.us < 0.9 * price(planned(module_of(*lines)), H100).us
