"""Updates in place: which regions may, and what they write."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import hlo_opt
from hlo_opt.codegen import Kernel, emit_kernel
from hlo_opt.ir import ELEMENT_TYPES, Module
from hlo_opt.plans import Plan, plan, region_of
from hlo_opt.runtime.host.library import has_compiler
from tests.small_modules import H100

Array = np.ndarray[Any, Any]

needs_compiler = pytest.mark.skipif(not has_compiler(), reason="needs a C++ compiler")


def agrees(module: Module, *inputs: Array) -> None:
    """What `evaluate` says comes out, twice, and the inputs stay as they are."""
    hlo_opt.verify(module)
    before = [a.copy() for a in inputs]
    executable = hlo_opt.compile(module, backend="host")
    for _ in range(2):
        for got, want in zip(executable(*inputs), hlo_opt.evaluate(module, inputs), strict=True):
            np.testing.assert_array_equal(got, want)
    for a, b in zip(inputs, before, strict=True):
        np.testing.assert_array_equal(a, b)
    assert not executable.report()["fallbacks"]


def fused(body: str, parameters: Sequence[str]) -> str:
    """A module whose entry is one fusion with this body."""
    root = body.strip().splitlines()[-1].split(" = ")[1]
    shape = root[: root.index(")") + 1] if root.startswith("(") else root.split(" ")[0]
    given = "".join(f"  a{n} = {p} parameter({n})\n" for n, p in enumerate(parameters))
    inside = "".join(f"  p{n} = {p} parameter({n})\n" for n, p in enumerate(parameters))
    names = ", ".join(f"a{n}" for n in range(len(parameters)))
    return (
        f"HloModule m\n\nfused {{\n{inside}{body}}}\n\nENTRY e {{\n{given}"
        f"  ROOT f = {shape} fusion({names}), kind=kLoop, calls=fused\n}}\n"
    )


def plan_of(text: str) -> Plan:
    module = hlo_opt.parse(text)
    found = plan(region_of(module, module.entry.root), H100)
    assert isinstance(found, Plan), str(found)
    return found


def kernel_of(text: str) -> Kernel:
    return emit_kernel(plan_of(text))


CASES = {
    "alone": ("  ROOT u = f32[7,13] dynamic-update-slice(p0, p1, p2, p2)\n", "dynamic-update-slice"),
    "of what is computed": (
        "  n = f32[3,5] negate(p1)\n  ROOT u = f32[7,13] dynamic-update-slice(p0, n, p2, p2)\n",
        "dynamic-update-slice",
    ),
    "of the same window": (
        "  s = f32[3,5] dynamic-slice(p0, p2, p2), dynamic_slice_sizes={3,5}\n  t = f32[3,5] add(s, p1)\n"
        "  ROOT u = f32[7,13] dynamic-update-slice(p0, t, p2, p2)\n",
        "dynamic-update-slice",
    ),
    "through reshapes": (
        "  s = f32[3,5] dynamic-slice(p0, p2, p2), dynamic_slice_sizes={3,5}\n  r = f32[15] reshape(s)\n  q = f32[15] "
        "reshape(p1)\n"
        "  t = f32[15] multiply(r, q)\n  v = f32[3,5] reshape(t)\n  ROOT u = f32[7,13] dynamic-update-slice(p0, v, p2, "
        "p2)\n",
        "dynamic-update-slice",
    ),
    "under another shape": (
        "  u = f32[7,13] dynamic-update-slice(p0, p1, p2, p2)\n  ROOT r = f32[91] reshape(u)\n",
        "dynamic-update-slice",
    ),
    "of another window": (
        "  c = s32[] constant(1)\n  s = f32[3,5] dynamic-slice(p0, c, p2), dynamic_slice_sizes={3,5}\n  t = f32[3,5] "
        "add(s, p1)\n"
        "  ROOT u = f32[7,13] dynamic-update-slice(p0, t, p2, p2)\n",
        "loop",
    ),
    "of the slice that it overwrites": (
        "  c = s32[] constant(2)\n  d = s32[] constant(100)\n  s = f32[3,5] slice(p0), slice={[2:5], [8:13]}\n"
        "  t = f32[3,5] add(s, p1)\n  ROOT u = f32[7,13] dynamic-update-slice(p0, t, c, d)\n",
        "dynamic-update-slice",
    ),
    "of a slice beside it": (
        "  c = s32[] constant(2)\n  d = s32[] constant(8)\n  s = f32[3,5] slice(p0), slice={[1:4], [8:13]}\n"
        "  t = f32[3,5] add(s, p1)\n  ROOT u = f32[7,13] dynamic-update-slice(p0, t, c, d)\n",
        "loop",
    ),
    "of a slice where data say": (
        "  s = f32[3,5] slice(p0), slice={[2:5], [8:13]}\n  t = f32[3,5] add(s, p1)\n"
        "  ROOT u = f32[7,13] dynamic-update-slice(p0, t, p2, p2)\n",
        "loop",
    ),
    "of the window turned round": (
        "  s = f32[3,5] dynamic-slice(p0, p2, p2), dynamic_slice_sizes={3,5}\n  t = f32[3,5] reverse(s), "
        "dimensions={0}\n"
        "  ROOT u = f32[7,13] dynamic-update-slice(p0, t, p2, p2)\n",
        "loop",
    ),
    "of what another output needs": (
        "  u = f32[7,13] dynamic-update-slice(p0, p1, p2, p2)\n  n = f32[7,13] negate(p0)\n"
        "  ROOT r = (f32[7,13], f32[7,13]) tuple(u, n)\n",
        "loop",
    ),
    "with something after it": (
        "  u = f32[7,13] dynamic-update-slice(p0, p1, p2, p2)\n  ROOT n = f32[7,13] negate(u)\n",
        "loop",
    ),
    "twice the same": (
        "  u = f32[7,13] dynamic-update-slice(p0, p1, p2, p2)\n  ROOT r = (f32[7,13], f32[7,13]) tuple(u, u)\n",
        "loop",
    ),
    "by its own values": (
        "  s = f32[1,1] slice(p0), slice={[0:1], [0:1]}\n  v = f32[] reshape(s)\n  i = s32[] convert(v)\n"
        "  ROOT u = f32[7,13] dynamic-update-slice(p0, p1, i, p2)\n",
        "loop",
    ),
    "beside another size": (
        "  n = f32[3,5] negate(p1)\n  u = f32[7,13] dynamic-update-slice(p0, n, p2, p2)\n"
        "  ROOT r = (f32[3,5], f32[7,13]) tuple(n, u)\n",
        "loop+dynamic-update-slice",
    ),
    "all of it": ("  n = f32[7,13] negate(p0)\n  ROOT u = f32[7,13] dynamic-update-slice(p0, n, p2, p2)\n", "loop"),
    "nothing": (
        "  z = f32[0,5] slice(p1), slice={[0:0], [0:5]}\n  ROOT u = f32[7,13] dynamic-update-slice(p0, z, p2, p2)\n",
        "dynamic-update-slice",
    ),
}
PARAMETERS = ("f32[7,13]", "f32[3,5]", "s32[]")


@pytest.mark.parametrize("case", CASES)
def test_which_kernels_write_only_the_update(case: str) -> None:
    body, kind = CASES[case]
    text = fused(body, PARAMETERS)
    assert plan_of(text).kind == kind
    if not has_compiler():
        pytest.skip("no C++ compiler")
    generator = np.random.default_rng(1)
    for start in (0, 2, -3, 100):
        operand, update = generator.integers(-9, 9, (7, 13)), generator.integers(-9, 9, (3, 5))
        agrees(hlo_opt.parse(text), operand.astype(np.float32), update.astype(np.float32), np.int32(start))


@needs_compiler
@pytest.mark.parametrize("kind", ["pred", "s8", "u16", "s64", "bf16", "f16", "f64", "c64"])
def test_types(kind: str) -> None:
    text = fused(
        f"  ROOT u = {kind}[40,3]{{0,1}} dynamic-update-slice(p0, p1, p2, p3)\n",
        [f"{kind}[40,3]{{0,1}}", f"{kind}[37,1]{{1,0}}", "s64[]", "s64[]"],
    )
    assert plan_of(text).kind == "dynamic-update-slice"
    generator, dtype = np.random.default_rng(1), ELEMENT_TYPES[kind].dtype
    operand, update = (generator.integers(0, 2, shape).astype(dtype) for shape in ((40, 3), (37, 1)))
    agrees(hlo_opt.parse(text), operand, update, np.int64(2), np.int64(1))


@needs_compiler
@pytest.mark.parametrize("sizes", [(1, 1), (1, 2), (127, 128), (128, 129), (3, 1000), (0, 7), (5, 5)])
def test_sizes(sizes: tuple[int, int]) -> None:
    part, whole = sizes
    text = fused(
        "  n = s32[PART] negate(p1)\n  ROOT u = s32[WHOLE] dynamic-update-slice(p0, n, p2)\n".replace(
            "PART", str(part)
        ).replace("WHOLE", str(whole)),
        [f"s32[{whole}]", f"s32[{part}]", "s32[]"],
    )
    for start in (-1, 0, whole // 2, whole):
        agrees(
            hlo_opt.parse(text), np.arange(whole, dtype=np.int32), np.arange(part, dtype=np.int32) + 7, np.int32(start)
        )


def test_large_updates_move_several_elements_together() -> None:
    wide = "  ROOT u = f32[64,65536] dynamic-update-slice(p0, p1, p2, p2)\n"
    found = plan_of(fused(wide, ("f32[64,65536]", "f32[8,65536]", "s32[]")))
    assert [s.vector for s in found.segments] == [4] and found.launch.grid == 8 * 65536 // 4 // 128
    apart = wide.replace("p2, p2)", "p2, p2)")
    found = plan_of(fused(apart, ("f32[64,65536]", "f32[64,65532]", "s32[]")))
    assert [s.vector for s in found.segments] == [1], "neighbours may begin anywhere"


def test_updates_of_one_size_share_their_threads() -> None:
    body = (
        "  e = f32[4] exponential(p2)\n  r = f32[1,4] reshape(e)\n  n = f32[4] negate(e)\n  z = s32[] constant(0)\n"
        "  u = f32[9,4] dynamic-update-slice(p0, r, p3, z)\n  v = f32[20] dynamic-update-slice(p1, n, p3)\n"
        "  ROOT t = (f32[9,4], f32[20]) tuple(u, v)\n"
    )
    text = fused(body, ("f32[9,4]", "f32[20]", "f32[4]", "s32[]"))
    found = plan_of(text)
    assert [(s.kind, s.roots, s.blocks) for s in found.segments] == [("dynamic-update-slice", (0, 1), 1)]
    assert emit_kernel(found).source.count("expf(") == 1


@pytest.mark.parametrize("architecture", ["sm_80", "sm_100"])
def test_nvrtc_reads_the_texts(architecture: str) -> None:
    nvrtc = pytest.importorskip("cupy.cuda").nvrtc
    wide = fused(
        "  ROOT u = bf16[64,65536] dynamic-update-slice(p0, p1, p2, p2)\n",
        ("bf16[64,65536]", "bf16[8,65536]", "s32[]"),
    )
    for kernel in [kernel_of(wide), *(kernel_of(fused(body, PARAMETERS)) for body, _ in CASES.values())]:
        program = nvrtc.createProgram(kernel.source, "k.cu", (), ())
        nvrtc.compileProgram(program, (f"-arch={architecture}", "-fmad=false"))


def test_the_text_of_a_small_one() -> None:
    body, _ = CASES["of the same window"]
    source = kernel_of(fused(body, PARAMETERS)).source
    assert source[source.index(" {\n") :] == TEXT


TEXT = """ {
  const int x2 = in2[0];
  const int r0 = (int)(x2);
  const int i0 = (int)(r0 < 0 ? 0 : (r0 > 4 ? 4 : r0));
  const int r1 = (int)(x2);
  const int i1 = (int)(r1 < 0 ? 0 : (r1 > 8 ? 8 : r1));
  const int linear = blockIdx.x * 15 + threadIdx.x;
  const int i2 = linear / 5;
  const int i3 = linear % 5;
  const float x0 = out0[i0 * 13 + i2 * 13 + i1 + i3];
  const float x1 = in1[linear];
  const float add_4 = x0 + x1;
  out0[i0 * 13 + i2 * 13 + i1 + i3] = add_4;
}
"""
