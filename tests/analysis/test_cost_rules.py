"""One small module for each rule of XLA's cost model; the expected times are written out from the rule.

All on an H100: 3352.32 bytes per nanosecond, 132 cores of 128 units at 1.98 GHz, 63.36 bytes per nanosecond at most for
one block.
"""

import math

import pytest

import hlo_opt
from hlo_opt.analysis.targets import target
from hlo_opt.analysis.xla.performance import Priced, fused_estimate
from hlo_opt.ir import Instruction

BANDWIDTH = 3352.32
BLOCK_BANDWIDTH = 1.98 * 32
UNIT = 2 * 1.98
H100 = target("h100_sxm")
SUM = "sum {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT c = f32[] add(a, b)\n}\n"
BIG = "max {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT c = f32[] maximum(a, b)\n}\n"


def together(compute: float, memory: float) -> float:
    """Nanoseconds: 95 % of the shorter hides behind the longer."""
    return compute + memory - 0.95 * min(compute, memory)


def entry(body: str) -> dict[str, Instruction]:
    module = hlo_opt.parse(f"HloModule m\n\n{SUM}\n{BIG}\nENTRY e {{\n{body}\n}}\n")
    return {i.name: i for i in module.entry.instructions}


def alone(body: str, name: str = "r") -> float:
    """Nanoseconds of one instruction as a kernel of its own."""
    return Priced(entry(body)[name], H100).estimate.us * 1000


def fused(body: str, producer: str = "p", consumer: str = "r") -> float:
    """Nanoseconds of the producer computed inside the consumer."""
    found = entry(body)
    return fused_estimate(Priced(found[producer], H100), Priced(found[consumer], H100)).us * 1000


def near(nanoseconds: float) -> object:
    return pytest.approx(nanoseconds, abs=1.0)


MIB = 1 << 20


def test_a_plain_instruction_reads_an_operand_for_each_position():
    body = "x = f32[1024,1024]{1,0} parameter(0)\n p = f32[1024,1024]{1,0} negate(x)\n"
    square = body + "ROOT r = f32[1024,1024]{1,0} multiply(p, p)"
    compute = 3 * MIB / (UNIT * 132 * 128)
    assert alone(square) == near(together(compute, 3 * 4 * MIB / BANDWIDTH))
    # inside the consumer the producer is evaluated for each position, but what it reads is read once
    compute = (2 * 3 + 3) * MIB / (UNIT * 132 * 128)
    assert fused(square) == near(together(compute, 2 * 4 * MIB / BANDWIDTH))


def test_a_bitcast_costs_nothing():
    body = (
        "x = f32[1024,1024]{1,0} parameter(0)\n p = f32[1024,1024]{1,0} negate(x)\nROOT r = f32[1048576]{0} bitcast(p)"
    )
    assert alone(body) == 0
    # fused into it, the producer reads, but the bitcast writes nothing
    assert fused(body) == near(together(3 * MIB / (UNIT * 132 * 128), 4 * MIB / BANDWIDTH))


def test_a_bitcast_of_one_shape_hands_on_where_it_is_read():
    text = """HloModule m
inner {
  a = f32[1024]{0} parameter(0)
  n = s32[1024]{0} bitcast(a)
  c = s32[1024]{0} bitcast(a)
  ROOT s = s32[1024]{0} add(n, c)
}
ENTRY e {
  x = f32[1024]{0} parameter(0)
  ROOT r = s32[1024]{0} fusion(x), kind=kLoop, calls=inner
}
"""
    module = hlo_opt.parse(text)
    assert Priced(module.entry.root, H100).estimate.bytes_read == 4096


def test_a_tiled_transpose_reads_in_order_through_elementwise_operations():
    head = "x = f32[1024,1024]{1,0} parameter(0)\n y = f32[1024,1024]{1,0} parameter(1)\n"
    add = head + "p = f32[1024,1024]{1,0} transpose(x), dimensions={1,0}\nROOT r = f32[1024,1024]{1,0} add(p, y)"
    compute = 7 * MIB / (UNIT * 132 * 128)
    assert fused(add) == near(together(compute, 3 * 4 * MIB / BANDWIDTH))


def test_a_transpose_of_short_rows_makes_reads_jump():
    body = "x = f32[262144,4]{1,0} parameter(0)\nROOT r = f32[4,262144]{1,0} transpose(x), dimensions={1,0}"
    # too short for tiles: a loop, in which each element comes from a transaction of 64 bytes of its own
    assert alone(body) == near((16 + 1) * 4 * MIB / BANDWIDTH)
    iota = "x = f32[262144,4]{1,0} iota(), iota_dimension=0\nROOT r = f32[4,262144]{1,0} transpose(x), dimensions={1,0}"
    assert alone(iota) == near(2 * 4 * MIB / BANDWIDTH)  # what is made up on the spot does not jump


def test_a_reduction_of_a_reduction_makes_reads_jump():
    body = """x = f32[64,1024,64]{2,1,0} parameter(0)
  zero = f32[] constant(0)
  p = f32[64,1024]{1,0} reduce(x, zero), dimensions={2}, to_apply=sum
  ROOT r = f32[64]{0} reduce(p, zero), dimensions={1}, to_apply=sum"""
    found = entry(body)
    producer, consumer = Priced(found["p"], H100), Priced(found["r"], H100)
    assert producer.form.coalesced
    assert consumer.form.coalesced
    # each element of 4 bytes takes a transaction of 64
    size = 64 * 1024 * 64 * 4
    blocks = consumer.form.launch.blocks
    bandwidth = min(BANDWIDTH / 16, blocks * BLOCK_BANDWIDTH)
    assert fused_estimate(producer, consumer).us * 1000 > size / bandwidth


def test_an_update_in_place_writes_the_update_only():
    head = (
        "x = f32[64,4096]{1,0} parameter(0)\n u = f32[1,4096]{1,0} parameter(1)\n i = s32[] parameter(2)\n zero = "
        "s32[] constant(0)\n"
    )
    update = head + "ROOT r = f32[64,4096]{1,0} dynamic-update-slice(x, u, i, zero)"
    # 4096 elements in 32 blocks; 16 KiB read and written
    assert alone(update) == near(16384 / min(BANDWIDTH, 32 * BLOCK_BANDWIDTH) + 16384 / BANDWIDTH)
    # a buffer computed in the kernel is no place to write into: the launch covers the whole result
    whole = head + "p = f32[64,4096]{1,0} negate(x)\nROOT r = f32[64,4096]{1,0} dynamic-update-slice(p, u, i, zero)"
    found = entry(whole)
    joined = fused_estimate(Priced(found["p"], H100), Priced(found["r"], H100))
    kept = 63 * 4096  # the elements that the update leaves alone
    assert joined.bytes_read == 4 * kept + 16384 + 8
    compute = 3 * kept / (UNIT * 132 * 128)
    assert joined.us * 1000 == near(together(compute, (4 * kept + 2 * 16384) / BANDWIDTH))


def test_a_fused_kernel_reads_an_operand_for_each_position_of_the_consumer():
    body = """zero = s32[] parameter(0)
  x = s32[32,1,1984]{2,1,0} parameter(1)
  i = s32[] parameter(2)
  p = s32[1,1,1984]{2,1,0} broadcast(zero), dimensions={}
  ROOT r = s32[32,1,1984]{2,1,0} dynamic-update-slice(x, p, i, zero, zero)"""
    # zero stands at two places of the consumer: what the broadcast reads of it counts twice, from the cache as fast as
    # 16 blocks can ask
    again = 1984 * 4 / (16 * BLOCK_BANDWIDTH)
    assert fused(body) == near(2 * again + 1984 * 4 / BANDWIDTH)


def test_a_cumulative_window_counts_as_a_reduction():
    body = (
        "x = f32[1024]{0} parameter(0)\n zero = f32[] constant(0)\n"
        "ROOT r = f32[1024]{0} reduce-window(x, zero), window={size=2047 pad=1023_1023}, to_apply=sum"
    )
    found = Priced(entry(body)["r"], H100).estimate
    assert found.flops == 7 * (1 + 1023)
    other = body.replace("2047 pad=1023_1023", "1023 pad=511_511")
    found = Priced(entry(other)["r"], H100).estimate
    assert found.flops == 7 * 1022 * 1024


def test_a_dimension_without_a_bound_costs_nothing():
    body = "x = f32[?,784]{1,0} parameter(0)\nROOT r = f32[?,784]{1,0} negate(x)"
    assert alone(body) == 0


SOFTMAX = """HloModule m

{big}
body {{
  x = f32[4,128,128]{{2,1,0}} parameter(0)
  low = f32[] constant(-inf)
  top = f32[4,128]{{1,0}} reduce(x, low), dimensions={{2}}, to_apply=max
  wide = f32[4,128,128]{{2,1,0}} broadcast(top), dimensions={{0,1}}
  ROOT s = f32[4,128,128]{{2,1,0}} subtract(x, wide)
}}

ENTRY e {{
  x = f32[4,128,128]{{2,1,0}} parameter(0)
  f = f32[4,128,128]{{2,1,0}} fusion(x), kind=kCustom, calls=body, backend_config={{"fusion_backend_config":{{"kind":"__triton","block_level_fusion_config":{{"num_warps":"4","output_tiles":[{{"sizes":["1","{rows}","128"]}}],"num_ctas":1}}}}}}
  ROOT r = f32[4,128,128]{{2,1,0}} exponential(f)
}}
"""


def softmax(rows: int) -> dict[str, Instruction]:
    module = hlo_opt.parse(SOFTMAX.format(big=BIG, rows=rows))
    return {i.name: i for i in module.entry.instructions}


def test_a_triton_fusion_costs_what_its_tiles_cost():
    found = Priced(softmax(16)["f"], H100)
    # 32 blocks, each 16 rows: 16 maxima of 127 steps of 3 operations, 2048 differences of 7; the input's tile is read
    # once for both
    flops = 32 * (16 * 127 * 3 + 2048 * 7)
    assert found.estimate.flops == flops
    size = 4 * 128 * 128 * 4
    compute = flops / int(UNIT * 32 * 128)
    assert found.estimate.us * 1000 == near(together(compute, size / (32 * BLOCK_BANDWIDTH) + size / BANDWIDTH))


def test_fusing_into_a_triton_fusion_looks_for_the_best_tiles():
    found = softmax(16)
    producer, consumer = Priced(found["f"], H100), Priced(found["r"], H100)
    best = fused_estimate(producer, consumer)
    # one row to a block: 512 blocks of 128 elements, one warp each
    flops = 512 * (1 * 127 * 3 + 128 * (7 + 79))
    size = 4 * 128 * 128 * 4
    one_row = together(flops / int(UNIT * 132 * 32), 2 * size / BANDWIDTH)
    assert best.us * 1000 <= one_row + 0.5
    assert best.bytes_read == size


def test_a_row_that_no_register_file_holds_has_no_tiles():
    text = SOFTMAX.format(big=BIG, rows=1).replace("128]", "65536]").replace('"128"', '"65536"')
    module = hlo_opt.parse(text)
    by_name = {i.name: i for i in module.entry.instructions}
    joined = fused_estimate(Priced(by_name["f"], H100), Priced(by_name["r"], H100))
    assert joined.us == math.inf
    # the kernel itself is there, and is priced like any other
    assert 0 < Priced(by_name["f"], H100).estimate.us < math.inf
