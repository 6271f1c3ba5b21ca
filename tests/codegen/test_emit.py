"""Texts of kernels: equal for equal structure, safe for hostile names, small for deep chains, readable by NVRTC."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hlo_opt.codegen import Kernel, emit_kernel
from hlo_opt.ir import Attribute, Raw, edit
from hlo_opt.ops import OpSpec, register, unregister
from hlo_opt.ops.lowering import Elementwise
from hlo_opt.ops.spec import Arity, OpKind
from hlo_opt.plans import Plan, plan, region_of
from hlo_opt.plans.limits import DEEPEST
from hlo_opt.runtime.numpy import Reference
from hlo_opt.text import parse
from tests.small_modules import H100


def chain(operations: list[str], shape: str = "f32[64]{0}") -> str:
    lines, last = [f"  p = {shape} parameter(0)"], "p"
    for number, operation in enumerate(operations):
        lines.append(f"  v{number} = {shape} {operation.format(last)}")
        last = f"v{number}"
    lines[-1] = lines[-1].replace("  ", "  ROOT ", 1)
    return "HloModule m\n\nENTRY e {\n" + "\n".join(lines) + "\n}\n"


BIAS = """HloModule m
ENTRY {e} {{
  {a} = f32[6,8]{{1,0}} parameter(0)
  {b} = f32[8]{{0}} parameter(1)
  {c} = f32[6,8]{{1,0}} broadcast({b}), dimensions={{1}}
  ROOT {d} = f32[6,8]{{1,0}} add({a}, {c}), metadata={{op_name="{m}"}}
}}
"""


def test_names_and_metadata_do_not_matter(planner: Any) -> None:
    one = planner.kernel(BIAS.format(e="e", a="a", b="b", c="c", d="d", m="x"))
    other = planner.kernel(BIAS.format(e="main.1", a="int", b="while", c="in0", d="x.9-_", m="*/ #error\\\\"))
    assert one == other
    assert re.fullmatch(r"loop_add_[0-9a-f]{16}", one.symbol)


def test_other_structure_is_another_kernel(planner: Any) -> None:
    text = BIAS.format(e="e", a="a", b="b", c="c", d="d", m="x")
    symbols = {
        planner.kernel(text.replace(*change)).symbol
        for change in (("", ""), ("add", "subtract"), ("6,8", "7,8"), ("{1,0}", "{0,1}"), ("add(a, c)", "add(c, a)"))
    }
    assert len(symbols) == 5


def test_hostile_names_stay_out(planner: Any) -> None:
    region = planner.region(chain(["negate({})"]))
    (root,) = region.roots
    root.name = '*/ system("x"); /* \n#error \\'
    root.operands[0].name = "x;}\n"
    source = emit_kernel(plan(region, H100)).source
    assert "system" not in source and "#error" not in source
    assert source.isascii()


def test_hostile_attributes_stay_in_comments(planner: Any) -> None:
    spec = OpSpec("odd-op", OpKind.ELEMENTWISE, Arity(1, 1), {"note": False}, cuda=Elementwise({"float": "{0} + 1"}))
    register(spec)
    try:
        region = planner.region(chain(["negate({})"]))
        (root,) = region.roots
        root.opcode = "odd-op"
        edit.set_attribute(root, "note", Attribute.of(Raw("a\n#error \\\nint é;")))
        source = emit_kernel(plan(region, H100)).source
    finally:
        unregister("odd-op")
    assert "note=a?#error ??int ?;" in source
    assert all(line.startswith("//") for line in source.splitlines() if "#error" in line)


def test_deep_elementwise_chain(tool: Any) -> None:
    text = chain(["add({0}, {0})", "subtract({0}, p)", "abs({0})", "minimum({0}, p)", "maximum({0}, p)"] * 260)
    tool.agrees(text, inputs=[np.linspace(-2, 2, 64, dtype=np.float32)])


def test_deep_movement_chain(tool: Any) -> None:
    text = chain(["reverse({}), dimensions={{0,1}}", "transpose({}), dimensions={{1,0}}"] * 1500, "f32[8,8]{1,0}")
    tool.agrees(text)


def test_deepest_nesting_of_conditions_and_loops(tool: Any) -> None:
    pads = ["pad({0}, z), padding=1_-2x0_0", "reverse({0}), dimensions={{0,1}}", "pad({0}, z), padding=0_1x0_0"] * 30
    text = chain(pads, "f32[SIZE,3]{1,0}").replace("p = f32", "z = f32[] constant(5)\n  p = f32", 1)
    size, lines = 9, []
    for line in text.splitlines():
        size += {"=1_-2x": -1, "=0_1x0": 1}.get(line[-10:-4] if "padding" in line else "", 0)
        lines.append(line.replace("SIZE", str(size)))
    tool.agrees("\n".join(lines))
    steps = ["broadcast({0}), dimensions={{0}}", "reduce({0}, z), dimensions={{1}}, to_apply=f"] * DEEPEST
    wide = chain(steps, "f32[2]{0}").replace("f32[2]{0} broadcast", "f32[2,2]{1,0} broadcast")
    folds = "f {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT c = f32[] add(a, b)\n}\n"
    wide = wide.replace("ENTRY", f"{folds}ENTRY").replace("p = f32", "z = f32[] constant(0)\n  p = f32", 1)
    assert tool.kernel(wide).source.count("for (") == DEEPEST


def test_shared_values_are_computed_once(planner: Any) -> None:
    source = planner.kernel(chain(["exponential({0})", *["add({0}, {0})"] * 20])).source
    assert source.count("expf(") == 1


def test_wide_arrays_use_64_bit_indices_only_where_needed(planner: Any) -> None:
    big = planner.kernel(chain(["negate({})"], "s8[70000,70000]{1,0}"))
    assert "const long long linear = (long long)thread * 16 + s0;" in big.source
    assert big.launch.grid * big.launch.block * 16 >= 70000**2
    assert "long long" not in planner.kernel(chain(["negate({})"], "s8[7000,7000]{1,0}")).source


def test_indices_of_one_position_join_again(planner: Any) -> None:
    source = planner.kernel(chain(["negate({})"], "f32[3,5,7]{0,2,1}")).source
    assert "in0[linear]" in source and "out0[linear]" in source and "%" not in source.split("{", 1)[1]


def test_vectors_when_the_device_is_full(tool: Any) -> None:
    found = tool.plan(chain(["negate({})"], "f32[1000,1000]{1,0}"))
    assert found.segments[0].vector == 4 and found.launch.grid == 1954
    tool.agrees(chain(["negate({})"], "f32[1000,1000]{1,0}"))


def test_empty_output(tool: Any) -> None:
    kernel = tool.kernel(chain(["negate({})"], "f32[0,3]{1,0}"))
    assert kernel.launch.grid == 0
    tool.agrees(chain(["negate({})"], "f32[0,3]{1,0}"))


@pytest.mark.parametrize(
    "constant",
    [
        "f32[5]{0} constant({0.1, -0, inf, -inf, nan})",
        "f64[5]{0} constant({0.1, -0, 1e300, -inf, nan})",
        "f32[5]{0} constant({1e-45, 3.4028235e38, 16777217, 1e10, -7.25})",
        "bf16[5]{0} constant({0.1, -0, inf, 3e38, nan})",
        "s32[5]{0} constant({-2147483648, 2147483647, 0, -1, 7})",
        "s64[5]{0} constant({-9223372036854775808, 9223372036854775807, 0, -1, 7})",
        "u64[5]{0} constant({18446744073709551615, 0, 1, 2, 3})",
        "s8[5]{0} constant({-128, 127, 0, -1, 7})",
        "u16[5]{0} constant({65535, 0, 1, 2, 3})",
        "pred[5]{0} constant({true, false, true, true, false})",
    ],
)
def test_constants_keep_their_bits(tool: Any, constant: str) -> None:
    element_type, _, rest = constant.partition("[5]{0} constant({")
    scalars = rest.removesuffix("})").split(", ")
    lines = [f"  c = {constant}", f"  p = {element_type}[5]{{0}} copy(c)"]
    for number, value in enumerate(scalars):
        lines.append(f"  k{number} = {element_type}[] constant({value})")
        lines.append(f"  b{number} = {element_type}[1]{{0}} broadcast(k{number}), dimensions={{}}")
    lines.append(f"  q = {element_type}[5]{{0}} concatenate(b0, b1, b2, b3, b4), dimensions={{0}}")
    lines.append(f"  ROOT r = ({element_type}[5]{{0}}, {element_type}[5]{{0}}) tuple(p, q)")
    text = "HloModule m\n\nENTRY e {\n" + "\n".join(lines) + "\n}\n"
    for got, want in zip(tool.run(text, []), Reference(parse(text)).run([]), strict=True):
        nan = want != want
        np.testing.assert_array_equal(got != got, nan)
        assert got[~nan].tobytes() == want[~nan].tobytes()


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
def test_nvrtc_reads_the_texts(planner: Any, architecture: str, dumps: Path) -> None:
    """Every distinct kernel of single operations and of whole small dumps."""
    nvrtc = pytest.importorskip("cupy.cuda").nvrtc
    kernels: dict[str, Kernel] = {}
    for name in ("layer_norm_bf16", "hashes"):
        module = parse((dumps / f"{name}.hlo").read_text())
        for instruction in module.entry.instructions:
            found = plan(region_of(module, instruction), H100)
            if isinstance(found, Plan):
                kernel = emit_kernel(found)
                kernels[kernel.symbol] = kernel
    assert len(kernels) > 30
    for kernel in kernels.values():
        program = nvrtc.createProgram(kernel.source, "k.cu", (), ())
        try:
            nvrtc.compileProgram(program, (f"-arch={architecture}", "-fmad=false"))
        except nvrtc.NVRTCError:
            pytest.fail(f"{nvrtc.getProgramLog(program)}\n{kernel.source}")


def test_outputs_of_several_sizes_have_their_own_blocks(tool: Any) -> None:
    text = """HloModule m
ENTRY e {
  p = f32[300]{0} parameter(0)
  n = f32[300]{0} negate(p)
  s = f32[2]{0} slice(n), slice={[7:9]}
  c = f32[10,30]{0,1} reshape(p)
  ROOT r = (f32[2]{0}, f32[300]{0}, f32[10,30]{0,1}) tuple(s, n, c)
}
"""
    found = tool.plan(text)
    assert [(s.roots, s.blocks) for s in found.segments] == [((0,), 1), ((1, 2), 3)]
    assert found.launch.grid == 4
    tool.agrees(text)


def test_nvrtc_joins_the_loads_of_a_thread(planner: Any) -> None:
    """Up to 16 bytes at a time, because the kernel promises how its buffers are aligned."""
    nvrtc = pytest.importorskip("cupy.cuda").nvrtc
    for element_type, width in (("f32", "v4.f32"), ("s8", "v4.u16"), ("f64", "v2.f64")):
        shape = f"{element_type}[1048576]{{0}}"
        kernel = planner.kernel(chain(["negate({0})"], shape))
        program = nvrtc.createProgram(kernel.source, "k.cu", (), ())
        nvrtc.compileProgram(program, ("-arch=compute_90",))
        text = nvrtc.getPTX(program).decode()
        assert f"ld.global.{width}" in text and f"st.global.{width}" in text, text
    assert "assume_aligned" not in planner.kernel(chain(["negate({0})"], "f32[64]{0}")).source


DISTANCE = """HloModule m

ENTRY e {
  x = f32[2048,ROW] parameter(0)
  a = f32[2048,1] slice(x), slice={[0:2048], [0:1]}
  b = f32[2048,1] slice(x), slice={[0:2048], [AT:END]}
  ROOT sum = f32[2048,1] add(a, b)
}
"""


@pytest.mark.parametrize(("row", "at", "is_promised"), [(4, 1, True), (4, 2, False), (3, 1, False)])
def test_buffers_are_aligned_where_a_thread_accesses_neighbours(
    row: int, at: int, is_promised: bool, planner: Any
) -> None:
    """NVRTC joins the first two elements of a row of 4, though threads have one result each. Elements that are apart,
    and those that start at an odd place in every other row, no wider access moves."""
    text = DISTANCE.replace("ROW", str(row)).replace("AT", str(at)).replace("END", str(at + 1))
    assert ("assume_aligned" in planner.kernel(text).source) is is_promised


@pytest.mark.parametrize(("columns", "is_promised"), [(6, True), (7, False)])
def test_buffers_are_aligned_where_a_loop_reads_neighbours(columns: int, is_promised: bool, planner: Any) -> None:
    """NVRTC unrolls the loop over a row, and joins its loads where each row starts at an even place."""
    text = f"""HloModule m

add {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}}

ENTRY e {{
  x = f32[500000,{columns}] parameter(0)
  zero = f32[] constant(0)
  ROOT sum = f32[500000] reduce(x, zero), dimensions={{1}}, to_apply=add
}}
"""
    kernel = planner.kernel(text)
    assert kernel.symbol.startswith("loop_")
    assert ("assume_aligned" in kernel.source) is is_promised


@pytest.mark.parametrize(("elements", "bounds"), [(108 * 128, "128, 1"), (109 * 128, "128")])
def test_a_block_that_has_a_multiprocessor_for_itself_gets_its_registers(
    elements: int, bounds: str, planner: Any
) -> None:
    text = f"HloModule m\n\nENTRY e {{\n  x = f32[{elements}] parameter(0)\n  ROOT r = f32[{elements}] negate(x)\n}}\n"
    kernel = planner.kernel(text)
    assert kernel.launch.block == 128
    assert f" __launch_bounds__({bounds}) {kernel.symbol}(" in kernel.source
