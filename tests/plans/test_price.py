"""Prices stay above what is possible, and move the way that kernels do."""

from __future__ import annotations

from dataclasses import replace

import pytest

import hlo_opt
from hlo_opt.analysis.targets import DeviceTarget, target
from hlo_opt.fusion.state import FusionState
from hlo_opt.plans import Launch, Plan
from hlo_opt.plans.price import ENDS, Price, price, resident_blocks
from tests.plans.price_modules import NAMES, planned
from tests.small_modules import H100

BY_AGE = ("p100", "v100", "a100_sxm_40", "a100_sxm_80", "h100_sxm", "h200", "b200", "b300")

STRIDED = (
    " x = f32[{rows},{wide}] parameter(0)\n ROOT r = f32[{rows},{columns}] slice(x), slice={[0:{rows}],[0:{wide}:16]}"
)
DIVIDED_BY_COLUMN_SUMS = (
    " x = f32[{rows},{columns}] parameter(0)\n z = f32[] constant(0)\n s = f32[{columns}] reduce(x, z), "
    "dimensions={0}, to_apply=sum\n"
    " b = f32[{rows},{columns}] broadcast(s), dimensions={1}\n ROOT r = f32[{rows},{columns}] divide(x, b)"
)

CHAIN = " x = {t}[{rows},{columns}] parameter(0)\n" + "\n".join(
    f" {'ROOT ' if n == 11 else ''}y{n} = {{t}}[{{rows}},{{columns}}] add({'x' if n == 0 else f'y{n - 1}'}, x)"
    for n in range(12)
)


def share_of_copy(made: Plan, device: DeviceTarget = H100) -> float:
    found = price(made, device)
    return found.least / (device.copied_per_second / 1e6) / found.us


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("device", ["p100", "h100_sxm", "b200"])
def test_no_price_is_below_the_limit(name: str, device: str) -> None:
    on = target(device)
    made = planned(name, 1000, 1200, target=on)
    found = price(made, on)
    flops = 2 * 1000 * 1000 * 1200 if name == "matmul" else 0
    fastest = max(
        found.least / (on.memory_bandwidth / 1e6),
        flops / (2e3 * on.fpus_per_core * on.core_count * on.clock_rate_ghz),
    )
    parts = (found.memory, found.cache, found.instructions, found.slow, found.way)
    assert found.us >= found.launch + max(fastest, *parts)
    assert found.bytes >= found.least * (1 - 1e-9) > 0


@pytest.mark.parametrize("name", NAMES)
def test_what_has_to_move_is_operands_and_results(name: str) -> None:
    made = planned(name, 1024, 1024)
    sizes = [shape.byte_size for shape in (*made.region.inputs, *made.region.outputs)]
    found = price(made, H100).least
    if name == "dynamic-update-slice":
        assert 2 * 4096 <= found <= 2 * 4096 + 8  # the update, read and written, and where it goes
    elif name == "scatter":
        assert (
            found == 3 * 4 * 1024 * 1024 + 4 * 1024
        )  # what is changed is read and written; the operand is not read besides
    else:
        assert 0.98 * sum(sizes) <= found <= sum(sizes)


CHAINS = ("scan", "long-sort", "block-loop", "grid-loop")
"""Kinds whose time is cycles one after another: an A100 has fewer in a second than a V100."""


@pytest.mark.parametrize("name", [n for n in NAMES if n not in CHAINS])
def test_a_newer_device_is_not_slower(name: str) -> None:
    prices = [price(planned(name, 4096, 2048, target=target(device)), target(device)).us for device in BY_AGE]
    assert prices == sorted(prices, reverse=True)


@pytest.mark.parametrize(
    ("change", "faster"),
    [
        ({"memory_bandwidth": 2 * H100.memory_bandwidth}, True),
        ({"l2_cache_size": 64 * H100.l2_cache_size}, False),
        ({"clock_rate_ghz": 2 * H100.clock_rate_ghz}, True),
    ],
)
def test_more_of_anything_never_hurts(change: dict[str, float], faster: bool) -> None:
    made = planned("row-reduction", 8192, 4096)
    before, after = price(made, H100).us, price(made, replace(H100, **change)).us  # type: ignore[arg-type]
    assert after < before if faster else after == before


def test_a_plain_chain_is_a_copy() -> None:
    made = planned("loop", 16384, 8192)
    found = price(made, H100)
    assert 0.95 < share_of_copy(made) < 1.04  # a copy's time has its ramp in it
    assert (found.loads, found.stores) == ((128, 128), (128, 128))
    assert found.bytes < 1.01 * found.least == 1.01 * 2 * 4 * 16384 * 8192
    assert found.in_flight == 2048 * 16 and found.resident == 2048
    assert found.waves == made.launch.grid / (132 * 16)


def test_a_small_kernel_costs_its_launch_and_one_trip_to_memory() -> None:
    found = price(planned("loop", 1, 128), H100)
    assert found.launch == pytest.approx(H100.kernel_launch_us + ENDS, rel=1e-3)
    assert 1.7 < found.us < 2.5 and found.way > 10 * found.memory


def test_an_empty_one_costs_its_launch() -> None:
    found = price(planned(" x = f32[0] parameter(0)\n ROOT r = f32[0] negate(x)"), H100)
    assert found.us == found.launch and found.bytes == 0


def test_steps_that_need_each_other_take_their_time_one_by_one() -> None:
    short, long = price(planned("scan", 4096, 1024), H100), price(planned("scan", 8192, 1024), H100)
    assert long.way > 0.99 * (long.us - long.launch)
    assert 1.9 < long.way / short.way < 2.1


def test_lanes_that_lie_apart_waste_sectors() -> None:
    made = planned(STRIDED.replace("{wide}", str(16 * 4096)), 16384, 4096)
    found = price(made, H100)
    assert made.kind == "loop" and found.loads == (32, 32)
    assert found.bytes > 4 * found.least and share_of_copy(made) < 0.25
    small = price(planned(STRIDED.replace("{wide}", str(16 * 512)), 512, 512), H100)  # of which L2 holds all
    assert small.bytes < 1.4 * small.least and small.cache > small.memory
    assert share_of_copy(planned("tiled-transpose", 8192, 8192)) > 0.75


def test_data_that_chooses_among_few_bytes_at_a_time_wastes_no_sectors() -> None:
    """Elements of each row in any order leave the rest of their sectors in L2; those of columns do not."""
    take = """ x = f32[{rows},{columns}] parameter(0)
 i = s32[{rows},{columns},1] parameter(1)
 ROOT r = f32[{rows},{columns}] gather(x, i), offset_dims={}, collapsed_slice_dims={D}, start_index_map={D},
 operand_batching_dims={B}, start_indices_batching_dims={B}, index_vector_dim=2, slice_sizes={1,1}"""
    along, across = (
        planned(take.replace("{D}", f"{{{d}}}").replace("{B}", f"{{{1 - d}}}"), 4096, 8192) for d in (1, 0)
    )
    assert price(along, H100).bytes < 1.01 * price(along, H100).least
    assert price(across, H100).bytes > 3 * price(across, H100).least


def test_rows_that_registers_hold_are_read_once_and_longer_ones_as_often_as_they_are_walked() -> None:
    softmax = (
        " x = f32[{rows},{columns}] parameter(0)\n z = f32[] constant(0)\n e = f32[{rows},{columns}] exponential(x)\n"
        " s = f32[{rows}] reduce(e, z), dimensions={1}, to_apply=sum\n b = f32[{rows},{columns}] broadcast(s), "
        "dimensions={0}\n"
        " ROOT r = f32[{rows},{columns}] divide(e, b)"
    )
    kept, cached, again = (planned(softmax, r, c) for r, c in ((8192, 4096), (40, 131072), (512, 262144)))
    assert price(kept, H100).bytes < 1.01 * price(kept, H100).least
    assert price(cached, H100).bytes < 1.01 * price(cached, H100).least  # 20 MB of rows are still in L2
    assert price(again, H100).bytes > 1.49 * price(again, H100).least
    assert share_of_copy(kept) > 0.9 and share_of_copy(again) < 0.7


def test_a_column_tile_of_one_sector_is_dearer_than_a_wide_one() -> None:
    narrow, wide = (planned(DIVIDED_BY_COLUMN_SUMS, r, c) for r, c in ((65536, 1000), (1024, 65536)))
    assert [made.kind for made in (narrow, wide)] == ["column-reduction"] * 2
    one, other = price(narrow, H100), price(wide, H100)
    assert one.memory / one.least > 1.15 * other.memory / other.least


def test_updates_of_parts_of_words_are_dearer_than_of_whole_ones() -> None:
    whole, part = (price(planned("scatter", 65536, 1023, t), H100) for t in ("f32", "bf16"))
    assert part.least < 0.6 * whole.least and part.us > 2 * whole.us
    assert part.cache > part.memory and whole.cache < whole.memory


def test_neighbours_that_come_together_are_cheaper() -> None:
    for t in ("f32", "bf16"):
        together, apart = (price(planned("scatter", 65536, columns, t), H100) for columns in (1024, 1023))
        assert together.us < 0.75 * apart.us and together.cache < together.memory


def test_narrow_floats_go_through_the_slow_pipe() -> None:
    wide, narrow = (price(planned(CHAIN, 8192, 4096, t), H100) for t in ("f32", "f16"))
    assert wide.slow == 0 and narrow.slow > narrow.memory
    assert 0.9 * 12 * 8192 * 4096 / (16 * 132 * 1.98e3) < narrow.slow < 1.3 * 12 * 8192 * 4096 / (16 * 132 * 1.98e3)


@pytest.mark.parametrize(("device", "is_slow"), [("h100_sxm", False), ("a6000", True), ("b300", True)])
def test_f64_is_dear_where_its_units_are_few(device: str, is_slow: bool) -> None:
    on = target(device)
    wide = price(planned(CHAIN, 8192, 4096, "f64", target=on), on)
    narrow = price(planned(CHAIN, 8192, 4096, "f32", target=on), on)
    assert (wide.us > 3 * narrow.us) == is_slow == (wide.instructions > wide.memory)


def test_registers_that_a_compiler_counts_replace_the_guess() -> None:
    made = planned("row-reduction", 1024, 32768)
    guess, few, many = price(made, H100), price(made, H100, registers=32), price(made, H100, registers=128)
    assert (few.registers, few.resident) == (32, 2048)
    assert few.waves < guess.waves == many.waves and few.us < guess.us
    assert price(planned("loop"), H100, registers=255).us > price(planned("loop"), H100).us


@pytest.mark.parametrize(
    ("launch", "registers", "blocks"),
    [
        (Launch(1, 1024), 64, 1),
        (Launch(1, 1024), 33, 1),
        (Launch(1, 1024), 32, 2),
        (Launch(1, 128), 32, 16),
        (Launch(1, 128), 40, 12),
        (Launch(1, 1), 20, 32),
        (Launch(1, 128, 48 * 1024), 32, 4),
        (Launch(1, 1024), 255, 1),
    ],
)
def test_blocks_of_a_multiprocessor(launch: Launch, registers: int, blocks: int) -> None:
    assert resident_blocks(launch, registers, H100) == blocks


def test_outputs_side_by_side_cost_what_both_move() -> None:
    both = planned(
        " x = f32[{rows},{columns}] parameter(0)\n y = f32[{columns}] parameter(1)\n n = f32[{rows},{columns}] "
        "negate(x)\n"
        " m = f32[{columns}] abs(y)\n ROOT t = (f32[{rows},{columns}], f32[{columns}]) tuple(n, m)"
    )
    assert len(both.segments) == 2
    one, two = price(planned("loop"), H100), price(both, H100)
    assert two.least == one.least + 2 * 4 * 4096 and one.us < two.us < 1.05 * one.us


def test_the_parts_are_those_of_the_whole() -> None:
    found = price(planned("row-reduction"), H100)
    parts = (found.memory, found.cache, found.instructions, found.slow, found.way)
    assert isinstance(found, Price)
    assert max(parts) < found.us - found.launch < sum(parts)


def test_a_product_of_no_terms_reads_nothing_and_has_a_price() -> None:
    entry = (
        "x = f32[5,0] parameter(0)\n y = f32[0,5] parameter(1)\n"
        " ROOT r = f32[5,5] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    )
    made = price(planned(entry), H100)
    assert made.read == 0 and made.us > made.launch


ARGMAX_OF_WINDOWS = """HloModule m

larger {{
  a = f32[] parameter(0)
  i = s32[] parameter(1)
  b = f32[] parameter(2)
  j = s32[] parameter(3)
  g = pred[] compare(a, b), direction=GE
  x = f32[] select(g, a, b)
  y = s32[] select(g, i, j)
  ROOT t = (f32[], s32[]) tuple(x, y)
}}

f {{
  p = f32[512,2048]{{1,0}} parameter(0)
  n = s32[512,2048]{{1,0}} iota(), iota_dimension=1
  z = f32[] constant(-inf)
  k = s32[] constant(0)
  {root}
}}

ENTRY e {{
  p = f32[512,2048]{{1,0}} parameter(0)
  ROOT r = (f32[256,1024]{{1,0}}, s32[256,1024]{{1,0}}) fusion(p), kind=kLoop, calls=f
}}
"""
WINDOWS = "w = (f32[256,1024], s32[256,1024]) reduce-window(p, n, z, k), window={size=2x2 stride=2x2}, to_apply=larger"
ONE_BY_ONE = f"""{WINDOWS}
  v = f32[256,1024]{{1,0}} get-tuple-element(w), index=0
  l = s32[256,1024]{{1,0}} get-tuple-element(w), index=1
  ROOT t = (f32[256,1024], s32[256,1024]) tuple(v, l)"""


def test_results_that_are_handed_on_one_by_one_are_computed_once() -> None:
    prices = []
    for root in (f"ROOT {WINDOWS}", ONE_BY_ONE):
        module = hlo_opt.parse(ARGMAX_OF_WINDOWS.format(root=root))
        prices.append(FusionState(module, H100).prices.of(module.entry.root))
    assert prices[0] == prices[1]


UPDATED_AND_READ = """HloModule m

sum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}

body {
  x = f32[65536,256] parameter(0)
  at = s32[100,1] parameter(1)
  rows = f32[100,256] parameter(2)
  g = f32[100,256] gather(x, at), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1,256}
  s = f32[65536,256] scatter(x, at, rows), update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=sum
  ROOT t = (f32[100,256], f32[65536,256]) tuple(g, s)
}

ENTRY e {
  x = f32[65536,256] parameter(0)
  at = s32[100,1] parameter(1)
  rows = f32[100,256] parameter(2)
  ROOT f = (f32[100,256], f32[65536,256]) fusion(x, at, rows), kind=kLoop, calls=body
}
"""  # fmt: skip


def test_what_is_updated_in_place_and_read_beside_is_copied_first() -> None:
    module = hlo_opt.parse(UPDATED_AND_READ)
    found = FusionState(module, H100).prices.of(module.entry.root)
    copied = 2 * 65536 * 256 * 4
    assert copied < found.bytes < 1.01 * copied
    assert found.us > copied / (H100.memory_bandwidth / 1e6)


def test_kernels_stay_apart_where_one_updates_in_place_what_the_other_reads() -> None:
    """The gather runs first; then the scatter may have the memory."""
    fused = UPDATED_AND_READ.split("body {")
    text = fused[0] + "ENTRY e {" + fused[1].split("ENTRY")[0]
    text = text.replace("HloModule m", "HloModule m, input_output_alias={ {1}: (0, {}, may-alias) }")
    made, _ = hlo_opt.fuse(hlo_opt.parse(text))
    assert hlo_opt.stats(made).summary.kernels == 2
