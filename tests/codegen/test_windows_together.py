"""Small windows over rows of channels: a kernel reads what neighbours need at once, and folds it without a loop."""

from __future__ import annotations

from typing import Any

import pytest

from hlo_opt.codegen.builder import Builder
from hlo_opt.codegen.options import compile_options
from hlo_opt.ops.reduction.table import MOST_UNROLLED
from hlo_opt.plans.price import price
from tests.small_modules import H100


def pool(kind: str, opcode: str, init: str, sizes: str, window: str) -> str:
    rank = sizes.count(",") + 1
    found = {part.split("=")[0]: part.split("=")[1] for part in window.split()}
    ones = "x".join("1" * rank)
    width, stride, apart, inner = (
        list(map(int, found.get(k, ones).split("x"))) for k in ("size", "stride", "rhs_dilate", "lhs_dilate")
    )
    pads = [sum(map(int, p.split("_"))) for p in found.get("pad", "x".join(["0_0"] * rank)).split("x")]
    given = [(int(n) - 1) * low + 1 + p for n, low, p in zip(sizes.split(","), inner, pads, strict=True)]
    made = [(n - (w - 1) * r - 1) // s + 1 for n, w, r, s in zip(given, width, apart, stride, strict=True)]
    return (
        f"HloModule m\n\nf {{\n  a = {kind}[] parameter(0)\n  b = {kind}[] parameter(1)\n  ROOT c = {kind}[] {opcode}(a, b)\n}}\n\n"
        f"ENTRY e {{\n  p = {kind}[{sizes}] parameter(0)\n  z = {kind}[] constant({init})\n"
        f"  ROOT r = {kind}[{','.join(map(str, made))}] reduce-window(p, z), window={{{window}}}, to_apply=f\n}}\n"
    )


LARGE = "size=1x3x3x1 stride=1x2x2x1 pad=0_0x0_1x0_1x0_0"


@pytest.mark.parametrize(
    ("kind", "opcode", "init", "sizes", "window"),
    [
        ("f32", "maximum", "-inf", "2,13,11,16", LARGE),
        ("bf16", "maximum", "-inf", "64,29,29,64", LARGE),  # enough for vectors
        ("f32", "maximum", "-inf", "64,31,31,64", "size=1x3x3x1 pad=0_0x1_1x1_1x0_0"),
        ("f32", "add", "0", "64,31,31,64", "size=1x2x2x1 stride=1x2x2x1 pad=0_0x1_0x0_1x0_0"),
        ("f32", "add", "3", "2,7,9", "size=1x2x3 pad=0_0x1_1x2_2"),  # an init value that counts
        ("s8", "minimum", "127", "9,40,33", "size=1x4x4 stride=1x3x2 pad=0_0x3_3x1_2"),
        ("bf16", "add", "0", "5,6,31", "size=1x3x1 rhs_dilate=1x2x1 pad=0_0x2_2x0_0"),
        ("f32", "maximum", "-inf", "3,5,7", "size=1x3x3 lhs_dilate=1x2x1 pad=0_0x1_1x1_1"),
        ("f32", "multiply", "1", "4,60", "size=1x17 pad=0_0x8_8"),  # a loop
    ],
)
def test_the_values_are_those_of_the_table(
    kind: str, opcode: str, init: str, sizes: str, window: str, tool: Any
) -> None:
    tool.agrees(pool(kind, opcode, init, sizes, window), whole=True)


def test_a_large_window_is_a_loop(planner: Any) -> None:
    small, large = (
        pool("f32", "add", "0", "4,60", f"size=1x{n} stride=1x2") for n in (MOST_UNROLLED, MOST_UNROLLED + 1)
    )
    assert "for (int s" not in planner.kernel(small).source and "for (int s" in planner.kernel(large).source


@pytest.mark.parametrize("kind", ["f32", "bf16"])
def test_channels_are_read_together(kind: str, planner: Any) -> None:
    pytest.importorskip("cupy")
    from cupy.cuda import nvrtc

    text = pool(kind, "maximum", "-inf", "64,28,28,64", LARGE)
    program = nvrtc.createProgram(planner.kernel(text).source, "k.cu", (), ())
    nvrtc.compileProgram(program, ("-arch=compute_90", *compile_options()))
    found = nvrtc.getPTX(program)
    found = found.decode() if isinstance(found, bytes) else found
    wide = sum(found.count(f"ld.global{nc}.v4.{t}") for nc in ("", ".nc") for t in ("f32", "u32", "b32"))
    assert wide >= 8
    lay = price(planner.plan(text), H100).loads
    assert lay == (128, 128)


def test_windows_that_are_always_inside_are_listed_once(planner: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reads without a condition are no likely ones: once each doubled the list of those."""
    counts = []
    likely_loads = Builder.likely_loads

    def counted(builder: Builder) -> Any:
        loads, is_whole = likely_loads(builder)
        counts.append(len(loads))
        return loads, is_whole

    monkeypatch.setattr(Builder, "likely_loads", counted)
    planner.kernel(pool("f32", "add", "0", "64,31,31,64", "size=1x3x3x1"))
    assert counts and max(counts) == 0
