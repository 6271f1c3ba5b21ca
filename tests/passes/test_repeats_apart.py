"""Values that a kernel computes many times, as kernels of their own on a processor."""

from __future__ import annotations

import numpy as np
import pytest

import hlo_opt
from hlo_opt.analysis.targets import target
from hlo_opt.fusion.proof import prove_same_graph
from hlo_opt.ir import Module
from hlo_opt.passes.for_kernels import IN_LANES, expanded
from hlo_opt.runtime.host.library import has_compiler

H100 = target("h100_sxm")


def blur(value: str, *, rows: int, columns: int, taps: int) -> Module:
    """A fusion that adds up windows of a value that it computes of its parameter."""
    lines, total = [], ""
    height, width = rows - taps + 1, columns - taps + 1
    for k, (row, column) in enumerate((r, c) for r in range(taps) for c in range(taps)):
        window = f"[{row}:{row + height}], [{column}:{column + width}]"
        lines.append(f"  w{k} = f32[{height},{width}] slice(v), slice={{{window}}}")
        if k:
            root = "ROOT " * (k == taps**2 - 1)
            lines.append(f"  {root}t{k} = f32[{height},{width}] add({total}, w{k})")
        total = f"t{k}" if k else "w0"
    body = "\n".join(lines)
    return hlo_opt.parse(f"""HloModule m
f {{
  x = f32[{rows},{columns}] parameter(0)
  {value}
{body}
}}
ENTRY e {{
  x = f32[{rows},{columns}] parameter(0)
  ROOT k = f32[{height},{width}] fusion(x), kind=kLoop, calls=f
}}
""")


def kernels(module: Module) -> int:
    return sum(i.opcode == "fusion" for i in module.entry.instructions)


@pytest.mark.parametrize(
    ("module", "count"),
    {
        "a function of nine neighbours": (blur("v = f32[400,500] tanh(x)", rows=400, columns=500, taps=3), 2),
        "cheap values": (blur("v = f32[400,500] add(x, x)", rows=400, columns=500, taps=3), 1),
        "few elements": (blur("v = f32[20,30] tanh(x)", rows=20, columns=30, taps=3), 1),
        "read twice": (blur("v = f32[400,500] negate(x)", rows=400, columns=500, taps=2), 1),
    }.values(),
)
def test_what_is_computed_often_stands_alone(module: Module, count: int) -> None:
    before = str(module)
    made = expanded(module, H100, IN_LANES)
    assert str(module) == before
    assert kernels(made) == count
    hlo_opt.verify(made)
    prove_same_graph(module, made)


def test_values_of_one_shape_share_a_kernel() -> None:
    text = str(blur("u = f32[400,500] cosine(x)\n  v = f32[400,500] tanh(x)", rows=400, columns=500, taps=3))
    shape, more = "f32[398,498]", ""
    for k in range(3):
        more += f"  %n{k} = {shape} slice(%u), slice={{[{k}:{398 + k}], [0:498]}}\n"
    more += f"  %a = {shape} add(%n0, %n1)\n  %b = {shape} multiply(%a, %n2)\n"
    last = text.index("  %w8 = ")
    text = text[:last] + more + text[last:].replace("add(%t7, %w8)", "add(%t7, %b)").replace(", %b)", ", %c)", 1)
    text = text.replace("  ROOT %t8", f"  %c = {shape} add(%b, %w8)\n  ROOT %t8")
    made = expanded(hlo_opt.parse(text), H100, IN_LANES)
    assert kernels(made) == 2


def test_values_within_a_nested_fusion_stay() -> None:
    """The plan is of the kernel with nested fusions inlined: its values are in no computation of the module."""
    inner = "HloModule m\ng {\n  y = f32[400,500] parameter(0)\n  ROOT t = f32[400,500] tanh(y)\n}\n"
    text = str(blur("v = f32[400,500] negate(x)", rows=400, columns=500, taps=3))
    text = text.replace("negate(%x)", "fusion(%x), kind=kLoop, calls=g").replace("HloModule m\n", inner)
    module = hlo_opt.parse(text)
    assert kernels(expanded(module, H100, IN_LANES)) == 1


@pytest.mark.skipif(not has_compiler(), reason="needs a C++ compiler")
def test_results_stay_the_same() -> None:
    module = blur("v = f32[400,500] tanh(x)", rows=400, columns=500, taps=3)
    x = np.random.default_rng(0).uniform(-1, 1, (400, 500)).astype(np.float32)
    found = hlo_opt.compile(module, backend="host")(x)
    want = hlo_opt.compile(module, backend="numpy")(x)
    np.testing.assert_allclose(found, want, rtol=1e-6, atol=1e-6)
