"""Neighbouring elements of a thread move together, whatever is computed between."""

from __future__ import annotations

import re
from typing import Any

import pytest

from hlo_opt.codegen.host_vectors import one_loop

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
def test_loads_and_stores_are_joined(tool: Any, element_type: str, body: str) -> None:
    found = accesses(tool.kernel(module(element_type, body)).source)
    assert found and all(re.search(r"\.v\d\.", access) for access in found), found


def test_a_row_is_read_in_vectors(tool: Any) -> None:
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
    assert accesses(tool.kernel(text).source) == {"ld.global.v4.f32", "st.global.v4.f32"}


def test_a_kernel_that_reads_more_than_registers_hold_reads_one_by_one(tool: Any) -> None:
    many = "".join(f"  p{n} = {{t}} parameter({n})\n" for n in range(20)) + "  y0 = {t} cosine(p0)\n"
    many += "".join(f"  y{n} = {{t}} add(y{n - 1}, p{n})\n" for n in range(1, 20)) + "  ROOT r = {t} sine(y19)\n"
    assert "read0" not in tool.kernel(module("f32", many)).source
    assert "read0" in tool.kernel(module("f16", many)).source


@pytest.mark.parametrize("element_type", ["f32", "bf16", "f16", "s8", "pred"])
def test_vectors_agree(tool: Any, element_type: str) -> None:
    body = LARGER if element_type != "pred" else LARGER.replace("maximum", "xor")
    tool.agrees(module(element_type, body))


@pytest.mark.parametrize("element_type", ["f32", "bf16", "f16"])
def test_vectors_with_branches_agree(tool: Any, element_type: str) -> None:
    tool.agrees(
        module(element_type, BRANCHES.replace("power(a, q)", "add(a, q)").replace("tan(b)", "sine(b)")), relative=2e-2
    )


def test_loops_of_a_thread_become_one() -> None:
    body = """  const int thread = threadIdx.x;
  float read0[4];
  #pragma unroll
  for (int s0 = 0; s0 < 4; ++s0) {
    const int linear = thread * 4 + s0;
    read0[s0] = in0[linear];
  }
  float made0[4];
  #pragma unroll
  for (int s1 = 0; s1 < 4; ++s1) {
    const int linear_2 = thread * 4 + s1;
    const float x0 = read0[s1];
    made0[s1] = sinf(x0) + linear_2;
  }
  if (row < 3) {
    #pragma unroll
    for (int s2 = 0; s2 < 4; ++s2) {
      const int linear_3 = thread * 4 + s2;
      out0[linear_3] = made0[s2];
    }
  }
  const int after = 0;
"""
    wanted = """const int thread = threadIdx.x;
for (int s0 = 0; s0 < 4; ++s0) {
const int linear = thread * 4 + s0;
const float read0 = in0[linear];
const float x0 = read0;
const float made0 = sinf(x0) + linear;
if (row < 3) {
out0[linear] = made0;
}
}
const int after = 0;
"""
    assert re.sub(r"(?m)^ +", "", one_loop(body)) == wanted
