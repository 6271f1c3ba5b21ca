"""What a thread needs again in a later pass over its row stays in its registers."""

from __future__ import annotations

import re
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hlo_opt.analysis.targets import InLanes
from hlo_opt.codegen.host_plain import watched_unit
from hlo_opt.codegen.lanes import as_loops
from hlo_opt.diag import CheckError
from hlo_opt.runtime.host.library import HostLibrary, built, flags_of, has_compiler, units
from hlo_opt.runtime.host.sanitize import WATCHED_FLAGS
from tests.codegen.conftest import Tool, empty
from tests.small_modules import H100

SOFTMAX = """HloModule m
add {{
  a = {t}[] parameter(0)
  b = {t}[] parameter(1)
  ROOT c = {t}[] add(a, b)
}}
max {{
  a = {t}[] parameter(0)
  b = {t}[] parameter(1)
  ROOT c = {t}[] maximum(a, b)
}}
ENTRY e {{
  p = {t}[{rows},{columns}]{{1,0}} parameter(0)
  least = {t}[] constant(-inf)
  m = {t}[{rows}]{{0}} reduce(p, least), dimensions={{1}}, to_apply=max
  mb = {t}[{rows},{columns}]{{1,0}} broadcast(m), dimensions={{0}}
  d = {t}[{rows},{columns}]{{1,0}} subtract(p, mb)
  x = {t}[{rows},{columns}]{{1,0}} exponential(d)
  z = {t}[] constant(0)
  s = {t}[{rows}]{{0}} reduce(x, z), dimensions={{1}}, to_apply=add
  sb = {t}[{rows},{columns}]{{1,0}} broadcast(s), dimensions={{0}}
  ROOT r = {t}[{rows},{columns}]{{1,0}} divide(x, sb)
}}
"""


def softmax(rows: int, columns: int, element_type: str = "f32") -> str:
    return SOFTMAX.format(rows=rows, columns=columns, t=element_type)


def count(source: str, pattern: str) -> int:
    return len(re.findall(pattern, source[source.index('extern "C"') :]))


@pytest.mark.parametrize("columns", [33, 100, 127, 128, 1000, 1001, 4096, 16384])
def test_a_softmax_reads_its_row_once_and_takes_each_exponential_once(planner: Any, columns: int) -> None:
    kernel = planner.kernel(softmax(3, columns))
    times = 1 + (columns == 1001)  # for vectors, and for the ends of what is peeled
    assert count(kernel.source, r"in0\[") == times
    assert count(kernel.source, r"\bexpf\(") == times
    assert as_loops(kernel) is not None


@pytest.mark.parametrize(("rows", "columns", "element_type"), [(5, 140_000, "f32"), (132, 24_000, "f64")])
def test_a_row_that_registers_do_not_hold_is_read_again(
    planner: Any, rows: int, columns: int, element_type: str
) -> None:
    kernel = planner.kernel(softmax(rows, columns, element_type))
    assert count(kernel.source, r"in0\[") == 3
    assert "kept_" not in kernel.source


def test_where_results_do_not_fit_what_was_read_may(tool: Any) -> None:
    text = softmax(3, 1000).replace("ROOT r =", "r =")
    extra = """  y = f32[3,1000]{1,0} sine(p)
  w = f32[3,1000]{1,0} multiply(y, r)
  v = f32[3,1000]{1,0} cosine(p)
  u = f32[3,1000]{1,0} add(w, v)
  ROOT o = (f32[3,1000]{1,0}, f32[3,1000]{1,0}, f32[3,1000]{1,0}) tuple(u, d, y)
}
"""
    kernel = tool.kernel(text.rstrip().removesuffix("}") + extra)
    assert count(kernel.source, r"in0\[") == 1
    tool.agrees(text.rstrip().removesuffix("}") + extra, relative=1e-5)


def test_softmaxes_agree(tool: Any) -> None:
    sizes = [(3, 33), (1, 127), (5, 128), (4, 1000), (9, 1001), (2, 4096), (2, 16388), (1, 40_000), (1, 66_001)]
    tool.all_agree([softmax(rows, columns) for rows, columns in sizes], relative=1e-5)
    tool.all_agree([softmax(3, columns, "f64") for columns in (64, 999, 1000)], relative=1e-12)


def test_a_cluster_of_blocks_keeps_a_row_and_its_results_are_written_once(tool: Any) -> None:
    text = softmax(3, 16_400).replace("ROOT r =", "r =").rstrip().removesuffix("}")
    text += "  ROOT o = (f32[3,16400]{1,0}, f32[3]{0}, f32[3]{0}) tuple(r, m, s)\n}\n"
    kernel = tool.kernel(text)
    assert kernel.launch.cluster == 8 and "__cluster_dims__(8, 1, 1)" in kernel.source
    assert count(kernel.source, r"in0\[") == 1 and as_loops(kernel) is None
    tool.agrees(text, relative=1e-5)


NARROW_AND_WIDE = """HloModule m
max {
  a = s8[] parameter(0)
  b = s8[] parameter(1)
  ROOT c = s8[] maximum(a, b)
}
add {
  a = s64[] parameter(0)
  b = s64[] parameter(1)
  ROOT c = s64[] add(a, b)
}
or {
  a = pred[] parameter(0)
  b = pred[] parameter(1)
  ROOT c = pred[] or(a, b)
}
ENTRY e {
  p = s8[3,16400]{1,0} parameter(0)
  least = s8[] constant(-128)
  m = s8[3]{0} reduce(p, least), dimensions={1}, to_apply=max
  w = s64[3,16400]{1,0} convert(p)
  z = s64[] constant(0)
  s = s64[3]{0} reduce(w, z), dimensions={1}, to_apply=add
  mb = s8[3,16400]{1,0} broadcast(m), dimensions={0}
  most = s8[] constant(100)
  c = s8[3,16400]{1,0} broadcast(most), dimensions={}
  d = s8[3,16400]{1,0} subtract(mb, p)
  is = pred[3,16400]{1,0} compare(d, c), direction=GT
  no = pred[] constant(false)
  any = pred[3]{0} reduce(is, no), dimensions={1}, to_apply=or
  ab = pred[3,16400]{1,0} broadcast(any), dimensions={0}
  sb = s64[3,16400]{1,0} broadcast(s), dimensions={0}
  sn = s8[3,16400]{1,0} convert(sb)
  ROOT r = s8[3,16400]{1,0} select(ab, sn, d)
}
"""


def test_blocks_of_a_cluster_exchange_narrow_and_wide_numbers(tool: Any) -> None:
    kernel = tool.kernel(NARROW_AND_WIDE)
    assert kernel.launch.cluster == 8
    assert {kind for kind, _ in re.findall(r"__shared__ ([\w ]+) partial(\d)", kernel.source)} == {"int", "long long"}
    assert count(kernel.source, r"hlo_cluster_take") == 2
    tool.agrees(NARROW_AND_WIDE)


@pytest.mark.parametrize(
    ("left_out", "finding"),
    [
        ("", ""),
        ("hlo_cluster_wait();", "blocks wait for others, which do not come"),
        ("hlo_cluster_take(&arrived0[0]);", "read before it is written"),
    ],
)
def test_blocks_of_a_cluster_must_wait_for_each_other(left_out: str, finding: str) -> None:
    if not has_compiler():
        pytest.skip("no C++ compiler")
    kernel = Tool().kernel(softmax(1, 16_400))
    assert left_out in kernel.source
    tried = replace(kernel, source=kernel.source.replace(left_out, "") if left_out else kernel.source)
    path = built(units([tried], watched_unit), (*flags_of("plain"), *WATCHED_FLAGS))
    given, outputs = [np.zeros(16_400, np.float32)], [empty(kernel.outputs[0])]
    with nullcontext() if not left_out else pytest.raises(CheckError, match=finding):
        HostLibrary([tried], str(path)).launch(tried, given, outputs)
        np.testing.assert_allclose(outputs[0], 1 / 16_400, rtol=1e-5)


def test_rows_that_share_a_block(tool: Any) -> None:
    """Threads of several rows in a block, the last row missing, and a last round that only some threads have."""
    for rows in (1, 3, 4, 5):
        tool.agrees(softmax(rows, 36 * 4), relative=1e-5)


@pytest.mark.parametrize(
    ("kind", "columns"), [*(("bf16", n) for n in (17_000, 20_000, 32_768, 40_003)), ("f16", 20_000), ("f16", 40_003)]
)
def test_a_register_keeps_two_narrow_numbers_where_it_must(tool: Any, kind: str, columns: int) -> None:
    small = replace(tool, target=replace(H100, core_count=1))  # of which few blocks are enough
    kernel = small.kernel(softmax(2, columns, kind))
    assert count(kernel.source, r"unsigned int kept_") == 2 and f"hlo_half_{kind}" in kernel.source
    assert count(kernel.source, r"in0\[") == 1 + (columns == 40_003)
    small.agrees(softmax(2, columns, kind), relative=0.02)


BELOW_MOST = """HloModule m
max {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] maximum(a, b)
}
ENTRY e {
  p = bf16[2,40003]{1,0} parameter(0)
  x = f32[2,40003]{1,0} convert(p)
  least = f32[] constant(-inf)
  m = f32[2]{0} reduce(x, least), dimensions={1}, to_apply=max
  mb = f32[2,40003]{1,0} broadcast(m), dimensions={0}
  d = f32[2,40003]{1,0} subtract(x, mb)
  ROOT r = bf16[2,40003]{1,0} convert(d)
}
"""


def test_a_narrow_number_alone_in_its_register_is_kept(tool: Any) -> None:
    """The ends of a peeled row: the last column of a thread has no neighbour."""
    assert "hlo_half_bf16" in tool.kernel(BELOW_MOST).source
    tool.agrees(BELOW_MOST, relative=0.02)


def test_a_processor_keeps_f16_one_by_one(planner: Any) -> None:
    """It widens them in several steps: once for each pass over a row would be slower than to read the row again."""
    lanes = replace(planner, target=InLanes.of(planner.target))
    assert "hlo_half_f16" in planner.kernel(softmax(1024, 40_003, "f16")).source
    assert "hlo_half_f16" not in lanes.kernel(softmax(1024, 40_003, "f16")).source


def test_shorter_rows_keep_one_in_a_register(planner: Any) -> None:
    assert "hlo_half_bf16" not in planner.kernel(softmax(2, 4096, "bf16")).source


@pytest.mark.parametrize(("kind", "columns"), [("bf16", 32_768), ("f16", 32_768), ("f16", 24_000), ("f16", 40_003)])
def test_two_in_a_register_spill_nothing(planner: Any, kind: str, columns: int) -> None:
    """512 threads of two blocks have 64 registers each, which half of the row fills halfway."""
    pytest.importorskip("cupy")
    from scripts.compile_kernels import compiled

    found = compiled(planner.kernel(softmax(1024, columns, kind)), "", "sm_90")
    assert found.registers <= 64 and not found.spills


def over_columns(batch: int, rows: int, columns: int, kind: str) -> str:
    """A softmax over the middle one of three dimensions."""
    text = softmax(rows, columns, kind).replace(f"[{rows},{columns}]{{1,0}}", f"[{batch},{rows},{columns}]{{2,1,0}}")
    return text.replace(f"[{rows}]{{0}}", f"[{batch},{columns}]{{1,0}}").replace("dimensions={0}", "dimensions={0,2}")


def test_columns_of_a_large_block_keep_two_narrow_numbers_in_a_register(planner: Any) -> None:
    """A thread of 1,024 has 64 registers: 32 elements of which each has its own spilled some."""
    kernel = planner.kernel(over_columns(64, 1001, 333, "bf16"))
    assert kernel.launch.block == 1024 and "unsigned int kept_x0[16]" in kernel.source
    assert "float kept_x0[32]" in planner.kernel(over_columns(64, 1001, 333, "f32")).source
    pytest.importorskip("cupy")
    from scripts.compile_kernels import compiled

    for architecture in ("sm_80", "sm_90", "sm_100"):
        found = compiled(kernel, "", architecture)
        assert found.registers <= 64 and not found.spills


def test_two_narrow_numbers_of_a_column_in_a_register_agree(tool: Any) -> None:
    tool.agrees(over_columns(40, 1001, 333, "bf16"), relative=0.02)


LOSS_GRADIENT = """HloModule m
add {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}}
max {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] maximum(a, b)
}}
ENTRY e {{
  p = bf16[{rows},{columns}]{{1,0}} parameter(0)
  label = s32[{rows}]{{0}} parameter(1)
  x = f32[{rows},{columns}]{{1,0}} convert(p)
  least = f32[] constant(-inf)
  m = f32[{rows}]{{0}} reduce(x, least), dimensions={{1}}, to_apply=max
  mb = f32[{rows},{columns}]{{1,0}} broadcast(m), dimensions={{0}}
  d = f32[{rows},{columns}]{{1,0}} subtract(x, mb)
  e = f32[{rows},{columns}]{{1,0}} exponential(d)
  z = f32[] constant(0)
  s = f32[{rows}]{{0}} reduce(e, z), dimensions={{1}}, to_apply=add
  sb = f32[{rows},{columns}]{{1,0}} broadcast(s), dimensions={{0}}
  q = f32[{rows},{columns}]{{1,0}} divide(e, sb)
  column = s32[{rows},{columns}]{{1,0}} iota(), iota_dimension=1
  lb = s32[{rows},{columns}]{{1,0}} broadcast(label), dimensions={{0}}
  is = pred[{rows},{columns}]{{1,0}} compare(column, lb), direction=EQ
  o = f32[] constant(1)
  ob = f32[{rows},{columns}]{{1,0}} broadcast(o), dimensions={{}}
  zb = f32[{rows},{columns}]{{1,0}} broadcast(z), dimensions={{}}
  one = f32[{rows},{columns}]{{1,0}} select(is, ob, zb)
  g = f32[{rows},{columns}]{{1,0}} subtract(q, one)
  ROOT r = bf16[{rows},{columns}]{{1,0}} convert(g)
}}
"""


@pytest.mark.parametrize("columns", [32_000, 30_001, 50_257])
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90", "sm_100"])
def test_passes_with_full_registers_have_nothing_in_common(planner: Any, columns: int, architecture: str) -> None:
    """The assembler for sm_100 kept the exponentials of one pass for the next, in memory."""
    kernel = planner.kernel(LOSS_GRADIENT.format(rows=8192, columns=columns))
    assert kernel.source.count("= hlo_unseen_zero()") == 2  # for the sum, and for the result
    pytest.importorskip("cupy")
    from scripts.compile_kernels import compiled

    found = compiled(kernel, "", architecture)
    assert found.registers <= 64 and not found.spills


@pytest.mark.parametrize("columns", [32_000, 30_001])
def test_passes_that_have_nothing_in_common_agree(tool: Any, columns: int) -> None:
    tool.agrees(LOSS_GRADIENT.format(rows=2, columns=columns), relative=0.02)


def test_more_blocks_keep_a_row_that_begins_anywhere(planner: Any) -> None:
    """The registers of four have no place for the ends of such a row beside its vectors: they read it one by one."""
    kernel = planner.kernel(softmax(2048, 128_257, "bf16"))
    assert kernel.launch.cluster == 8 and "first_vector" in kernel.source


def squares(arrays: int, kind: str) -> str:
    """The norm of arrays of one shape."""
    shape = f"{kind}[1024,1031]{{1,0}}"
    lines = [f"  p{n} = {shape} parameter({n})" for n in range(arrays)]
    lines += [f"  x{n} = f32[1024,1031]{{1,0}} convert(p{n})" for n in range(arrays)]
    lines += [f"  m{n} = f32[1024,1031]{{1,0}} multiply(x{n}, x{n})" for n in range(arrays)]
    lines += [f"  r{n} = f32[] reduce(m{n}, z), dimensions={{0,1}}, to_apply=add" for n in range(arrays)]
    lines += [f"  t{n} = f32[] add({'r0' if n == 1 else f't{n - 1}'}, r{n})" for n in range(1, arrays)]
    body = "\n".join(lines)
    adds = "add {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT c = f32[] add(a, b)\n}\n"
    return f"HloModule m\n{adds}ENTRY e {{\n  z = f32[] constant(0)\n{body}\n  ROOT t = f32[] sqrt(t{arrays - 1})\n}}\n"


@pytest.mark.parametrize(("arrays", "block"), [(4, 1024), (30, 512), (100, 256)])
def test_a_thread_has_a_register_for_each_result(planner: Any, arrays: int, block: int) -> None:
    """A thread of 1,024 has 64 registers, which the sums of 30 arrays and their elements do not fit into."""
    kernel = planner.kernel(squares(arrays, "bf16"))
    assert kernel.launch.block == block
    pytest.importorskip("cupy")
    from scripts.compile_kernels import compiled

    for architecture in ("sm_80", "sm_90", "sm_100"):
        assert not compiled(kernel, "", architecture).spills


def test_sums_of_many_arrays_agree(tool: Any) -> None:
    tool.agrees(squares(30, "bf16"), relative=1e-3)
