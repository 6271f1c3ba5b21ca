"""Neighbouring elements of a thread move together, whatever is computed between."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from hlo_opt.plans import products

LARGE = 1 << 19


def accesses(source: str) -> set[str]:
    """The global loads and stores of the kernel that NVRTC makes of a text."""
    nvrtc = pytest.importorskip("cupy.cuda").nvrtc
    program = nvrtc.createProgram(source, "k.cu", (), ())
    nvrtc.compileProgram(program, ("-arch=compute_90",))
    text = nvrtc.getPTX(program)
    return set(re.findall(r"(?:ld|st)\.global[.\w]*", text.decode() if isinstance(text, bytes) else text))


def module(element_type: str, body: str, size: int = LARGE) -> str:
    return f"HloModule m\nENTRY e {{\n{body.format(t=f'{element_type}[{size}]{{0}}')}}}\n"


ROUNDED = "  p = {t} parameter(0)\n  q = {t} parameter(1)\n  a = {t} add(p, q)\n  ROOT m = {t} multiply(a, q)\n"
BRANCHES = (
    "  p = {t} parameter(0)\n  q = {t} parameter(1)\n  a = {t} sine(p)\n  b = {t} power(a, q)\n  ROOT m = {t} tan(b)\n"
)
LARGER = "  p = {t} parameter(0)\n  q = {t} parameter(1)\n  ROOT m = {t} maximum(p, q)\n"


@pytest.mark.parametrize("body", [ROUNDED, BRANCHES, LARGER])
@pytest.mark.parametrize("element_type", ["f32", "bf16", "f16"])
def test_loads_and_stores_are_joined(planner: Any, element_type: str, body: str) -> None:
    found = accesses(planner.kernel(module(element_type, body)).source)
    assert found and all(re.search(r"\.v\d\.", access) for access in found), found


@pytest.mark.parametrize(("element_type", "size"), [("f32", 519), ("bf16", 1031), ("u8", 2063), ("f64", 514)])
def test_a_rest_that_is_no_vector(tool: Any, element_type: str, size: int) -> None:
    """Each of its elements has a thread: a prime number of them still moves in vectors."""
    few = replace(tool, target=replace(tool.target, core_count=2, threads_per_core_limit=64))
    text = module(element_type, LARGER, size)
    assert few.plan(text).segments[0].vector > 1 and size % few.plan(text).segments[0].vector
    few.agrees(text)


def test_two_stores_to_one_array_are_joined(planner: Any) -> None:
    """Those of a rotary embedding, where a thread has four neighbours of either half."""
    half = "f32[65536,64]{1,0}"
    text = f"""HloModule m
ENTRY e {{
  p = f32[65536,128]{{1,0}} parameter(0)
  q = f32[64]{{0}} parameter(1)
  a = {half} slice(p), slice={{[0:65536], [0:64]}}
  b = {half} slice(p), slice={{[0:65536], [64:128]}}
  angle = {half} broadcast(q), dimensions={{1}}
  aq = {half} multiply(a, angle)
  bq = {half} multiply(b, angle)
  left = {half} subtract(aq, b)
  right = {half} add(bq, a)
  ROOT c = f32[65536,128]{{1,0}} concatenate(left, right), dimensions={{1}}
}}
"""
    kernel = planner.kernel(text)
    assert kernel.source.startswith("// concatenate")
    assert {a for a in accesses(kernel.source) if a.startswith("st")} == {"st.global.v4.f32"}


@pytest.mark.parametrize("element_type", ["s4", "u2", "f4e2m1fn"])
def test_elements_that_share_bytes_move_in_vectors(planner: Any, element_type: str) -> None:
    found = accesses(planner.kernel(module(element_type, LARGER, 8 * LARGE)).source)
    width = "u16" if element_type == "u2" else "u32"  # 32 elements of a thread
    assert found == {f"ld.global.v4.{width}", f"st.global.v4.{width}"}


def test_a_row_is_read_in_vectors(planner: Any) -> None:
    text = """HloModule m
max {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] maximum(a, b)
}
ENTRY e {
  p = f32[8,4096]{1,0} parameter(0)
  least = f32[] constant(-inf)
  m = f32[8]{0} reduce(p, least), dimensions={1}, to_apply=max
  mb = f32[8,4096]{1,0} broadcast(m), dimensions={0}
  ROOT d = f32[8,4096]{1,0} subtract(p, mb)
}
"""
    assert accesses(planner.kernel(text).source) == {"ld.global.v4.f32", "st.global.v4.f32"}


def test_a_kernel_that_reads_more_than_registers_hold_reads_one_by_one(planner: Any) -> None:
    many = "".join(f"  p{n} = {{t}} parameter({n})\n" for n in range(20)) + "  y0 = {t} cosine(p0)\n"
    many += "".join(f"  y{n} = {{t}} add(y{n - 1}, p{n})\n" for n in range(1, 20)) + "  ROOT r = {t} sine(y19)\n"
    assert "read0" not in planner.kernel(module("f32", many)).source
    assert "read0" in planner.kernel(module("f16", many)).source


@pytest.mark.parametrize("element_type", ["f32", "bf16", "f16", "s8", "pred"])
def test_vectors_agree(tool: Any, element_type: str) -> None:
    body = LARGER if element_type != "pred" else LARGER.replace("maximum", "xor")
    tool.agrees(module(element_type, body))


@pytest.mark.parametrize("element_type", ["f32", "bf16", "f16"])
def test_vectors_with_branches_agree(tool: Any, element_type: str) -> None:
    tool.agrees(
        module(element_type, BRANCHES.replace("power(a, q)", "add(a, q)").replace("tan(b)", "sine(b)")), relative=2e-2
    )


@pytest.mark.parametrize(
    ("element_type", "vector"), [("f64", 4), ("f32", 4), ("bf16", 8), ("f16", 8), ("s8", 16), ("pred", 16)]
)
def test_a_thread_takes_16_bytes(planner: Any, element_type: str, vector: int) -> None:
    body = (
        "  p = {t} parameter(0)\n  ROOT m = {t} not(p)\n"
        if element_type in ("s8", "pred")
        else "  p = {t} parameter(0)\n  ROOT m = {t} negate(p)\n"
    )
    large = 1 << 21
    assert planner.plan(module(element_type, body, large)).segments[0].vector == vector
    assert planner.plan(module(element_type, body, large + 1)).segments[0].vector == vector
    assert planner.plan(module(element_type, body, 1000)).segments[0].vector == 1


def test_a_wide_operand_keeps_threads_at_four(planner: Any) -> None:
    body = (
        "  p = {t} parameter(0)\n  q = f32[2097152]{{0}} parameter(1)\n  c = {t} convert(q)\n  ROOT m = {t} add(p, c)\n"
    )
    assert planner.plan(module("bf16", body, 1 << 21)).segments[0].vector == 4


BROADCASTS = """HloModule m
ENTRY e {
  p = f32[4096,768]{1,0} parameter(0)
  q = f32[768]{0} parameter(1)
  r = f32[4096]{0} parameter(2)
  b = f32[4096,768]{1,0} broadcast(q), dimensions={1}
  d = f32[4096,768]{1,0} broadcast(r), dimensions={0}
  a = f32[4096,768]{1,0} add(p, b)
  m = f32[4096,768]{1,0} maximum(a, d)
  g = f32[4096,12,64]{2,1,0} reshape(m)
  v = f32[64,12]{0,1} parameter(3)
  vb = f32[4096,12,64]{2,1,0} broadcast(v), dimensions={2,1}
  ROOT z = f32[4096,12,64]{2,1,0} multiply(g, vb)
}
"""


def test_what_repeats_along_rows_is_read_in_vectors_too(tool: Any) -> None:
    kernel = tool.kernel(BROADCASTS)
    assert "const int i0 = thread % 192 * 4 + s0;" in kernel.source and "= thread / 192;" in kernel.source
    assert accesses(kernel.source) == {"ld.global.v4.f32", "ld.global.f32", "st.global.v4.f32"}
    tool.agrees(BROADCASTS)


@pytest.mark.parametrize("sizes", [(2048, 96, 8), (1031, 32, 12), (3001, 5, 20), (700, 400, 3)])
def test_digits_of_vectors_agree(tool: Any, sizes: tuple[int, int, int]) -> None:
    a, b, c = sizes
    tool.agrees(
        f"""HloModule m
ENTRY e {{
  p = s32[{a},{b},{c}]{{2,1,0}} parameter(0)
  q = s32[{b},{c}]{{0,1}} parameter(1)
  r = s32[{a},{c}]{{1,0}} parameter(2)
  x = s32[{a},{b},{c}]{{2,1,0}} broadcast(q), dimensions={{1,2}}
  y = s32[{a},{b},{c}]{{2,1,0}} broadcast(r), dimensions={{0,2}}
  t = s32[{b},{a},{c}]{{2,0,1}} transpose(p), dimensions={{1,0,2}}
  u = s32[{a},{b},{c}]{{2,1,0}} transpose(t), dimensions={{1,0,2}}
  s = s32[{a},{b},{c}]{{2,1,0}} add(u, x)
  ROOT o = s32[{a},{b},{c}]{{2,1,0}} multiply(s, y)
}}
"""
    )


def test_a_long_loop_in_a_thread_spills_nothing(planner: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    nvrtc = pytest.importorskip("cupy.cuda").nvrtc
    monkeypatch.setattr(products, "LEAST", 1 << 60)  # products as loops
    source = planner.kernel(
        """HloModule m
ENTRY e {
  p = f32[32,768]{1,0} parameter(0)
  q = f32[4,96,768]{2,1,0} parameter(1)
  a = f32[32,4,192]{2,1,0} reshape(p)
  s = f32[32,4,96]{2,1,0} slice(a), slice={[0:32], [0:4], [0:96]}
  ROOT d = f32[4,32,768]{2,1,0} dot(s, q), lhs_batch_dims={1}, lhs_contracting_dims={2}, rhs_batch_dims={0}, rhs_contracting_dims={1}
}
"""
    ).source
    program = nvrtc.createProgram(source, "k.cu", (), ())
    nvrtc.compileProgram(program, ("-arch=sm_90", "--ptxas-options=-v"))
    log = nvrtc.getProgramLog(program)
    assert "0 bytes spill stores, 0 bytes spill loads" in log
    assert int(re.findall(r"Used (\d+) registers", log)[0]) < 32
