"""Gathers of whole slices: which get a plan of their own, and that every element comes from where it should."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import hlo_opt
from hlo_opt.plans import kinds

ROWS = "offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1"


def rows(count: int, width: int, *, kind: str = "f32", whole: int = 0, more: str = "") -> str:
    """Rows of a table of 50, all of their columns or some."""
    whole = whole or width
    root = more or f"  ROOT r = {kind}[{count},{width}]{{1,0}} negate(g)\n"
    return (
        f"HloModule m\n\nENTRY e "
        f"{{\n  p = {kind}[50,{whole}]{{1,0}} parameter(0)\n  i = s32[{count},1]{{1,0}} parameter(1)\n"
        f"  g = {kind}[{count},{width}]{{1,0}} gather(p, i), {ROWS}, slice_sizes={{1,{width}}}\n{root}}}\n"
    )


ODD = "  t = f32[256,2000]{1,0} transpose(g), dimensions={1,0}\n  ROOT r = f32[256,2000]{1,0} negate(t)\n"


@pytest.mark.parametrize(
    ("text", "kind", "vector"),
    [
        (rows(2000, 256), "gather", 4),
        (rows(2000, 256, kind="bf16"), "gather", 4),
        (rows(9000, 256, kind="bf16"), "gather", 8),
        (rows(9000, 250), "loop", 4),
        (rows(90_000, 250, kind="bf16"), "loop", 8),
        (rows(9000, 255), "loop", 4),
        (rows(100, 256), "loop", 1),
        (rows(2000, 256, whole=300), "gather", 4),
    ],
)
def test_which_look_up_a_slice_once(planner: Any, text: str, kind: str, vector: int) -> None:
    (segment,) = planner.plan(text).segments
    assert (segment.kind, segment.vector) == (kind, vector)
    source = planner.kernel(text).source
    assert kind == "loop" or len(re.findall(r"= in1\[", source)) == 1
    assert kind == "loop" or source.index("= in1[") < source.index("for (")


def test_a_loop_that_writes_wider_is_cheaper(planner: Any) -> None:
    """A thread with two elements waits for the index and then for them, as long as a thread with eight."""
    kernel = planner.kernel(rows(90_000, 250, kind="bf16"))
    assert len(re.findall(r"= in1\[", kernel.source)) == 1 and "s0 < 8" in kernel.source


def test_a_gather_at_another_place_is_no_such_plan(planner: Any) -> None:
    assert "gather" not in planner.plan(rows(2000, 256, more=ODD)).kind


@pytest.mark.parametrize("kind", ["f32", "bf16", "s8", "f64"])
@pytest.mark.parametrize(("count", "width", "whole"), [(2111, 256, 256), (4099, 252, 260), (9001, 66, 66)])
def test_they_agree(tool: Any, monkeypatch: pytest.MonkeyPatch, kind: str, count: int, width: int, whole: int) -> None:
    every = [replace(k, has_rivals=k.has_rivals and k.name != "gather") for k in kinds.KINDS]  # also where a loop is
    monkeypatch.setattr(kinds, "KINDS", every)  # cheaper
    monkeypatch.setattr(kinds, "_BY_NAME", {k.name: k for k in every})
    text = rows(count, width, kind=kind, whole=whole)
    assert tool.plan(text).kind == "gather"
    from hlo_opt.evaluate.inputs import module_inputs
    from hlo_opt.text import parse

    table, _ = module_inputs(parse(text), seed=3)
    index = np.random.default_rng(1).integers(-3, 60, (count, 1)).astype(np.int32)  # some lie outside
    tool.agrees(text, inputs=[table, index])


def test_two_gathers_and_what_follows(tool: Any) -> None:
    text = f"""HloModule m

ENTRY e {{
  p = f32[50,256]{{1,0}} parameter(0)
  i = s32[2000,1]{{1,0}} parameter(1)
  j = s32[2000,1]{{1,0}} parameter(2)
  b = f32[256]{{0}} parameter(3)
  g = f32[2000,256]{{1,0}} gather(p, i), {ROWS}, slice_sizes={{1,256}}
  h = f32[2000,256]{{1,0}} gather(p, j), {ROWS}, slice_sizes={{1,256}}
  s = f32[2000,256]{{1,0}} add(g, h)
  c = f32[2000,256]{{1,0}} broadcast(b), dimensions={{1}}
  t = f32[2000,256]{{1,0}} multiply(s, c)
  ROOT r = (f32[2000,256]{{1,0}}, f32[2000,256]{{1,0}}) tuple(t, g)
}}
"""
    found = tool.plan(text)
    assert [(s.kind, s.roots) for s in found.segments] == [("gather", (0, 1))]
    tool.agrees(text)


@pytest.mark.parametrize("architecture", ["sm_80", "sm_100"])
def test_slices_move_sixteen_bytes_at_a_time(planner: Any, architecture: str) -> None:
    nvrtc = pytest.importorskip("cupy.cuda").nvrtc
    for text in (rows(2000, 256), rows(9000, 256, kind="bf16")):
        program = nvrtc.createProgram(planner.kernel(text).source, "k.cu", (), ())
        nvrtc.compileProgram(program, (f"-arch={architecture.replace('sm', 'compute')}", "-fmad=false"))
        made = nvrtc.getPTX(program)
        machine = made if isinstance(made, str) else made.decode()
        assert (
            len(re.findall(r"ld\.global\S*\.v4", machine)) == 1 and len(re.findall(r"st\.global\S*\.v4", machine)) == 1
        )


def test_the_text_of_a_small_one(planner: Any) -> None:
    source = planner.kernel(rows(2000, 256)).source
    assert source[source.index("  const int thread") :] == TEXT


TEXT = """  const int thread = blockIdx.x * 128 + threadIdx.x;
  const int i0 = thread / 64;
  const int x1 = in1[i0];
  const int r0 = (int)(x1);
  const int i1 = (int)(r0 < 0 ? 0 : (r0 > 49 ? 49 : r0));
  #pragma unroll
  for (int s0 = 0; s0 < 4; ++s0) {
    const int linear = thread * 4 + s0;
    const int i2 = thread % 64 * 4 + s0;
    const float x0 = in0[i1 * 256 + i2];
    const float negate_3 = -(x0);
    out0[linear] = negate_3;
  }
}
"""


def test_a_gather_of_one_element_is_an_element_of_a_loop() -> None:
    text = """HloModule m

ENTRY e {
  p = f32[4]{0} parameter(0)
  i = s32[1]{0} parameter(1)
  n = f32[4]{0} negate(p)
  ROOT g = f32[] gather(n, i), offset_dims={}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=0, slice_sizes={1}
}
"""
    fused, _ = hlo_opt.fuse(hlo_opt.parse(text), passes="instruction-fusion", simplify="never")
    assert [i.opcode for i in fused.entry.instructions] == ["parameter", "parameter", "fusion"]


@pytest.mark.parametrize(
    "line",
    [
        "f32[3,2] gather(p, i), offset_dims={1}, collapsed_slice_dims={}, start_index_map={0}, index_vector_dim=1, "
        "slice_sizes={2}",
        "f32[2] dynamic-slice(p, j), dynamic_slice_sizes={2}",
        "f32[9] dynamic-update-slice(b, q, j)",
    ],
)
def test_starts_that_are_larger_than_an_index(line: str, tool: Any) -> None:
    text = f"HloModule m\n\nENTRY e {{\n  p = f32[9] parameter(0)\n  i = u64[3] parameter(1)\n  q = f32[2] parameter(2)\n  b = f32[9] negate(p)\n  k = u64[1] slice(i), slice={{[0:1]}}\n  j = u64[] reshape(k)\n  ROOT r = {line}\n}}\n"
    starts = np.array([(1 << 63) + 1, 4, (1 << 64) - 1], np.uint64)
    tool.agrees(text, inputs=[np.arange(9, dtype=np.float32), starts, np.full(2, 20, np.float32)])
