"""Scatter kernels: built for the host and compared with `evaluate`, and compiled by NVRTC."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import hlo_opt
from hlo_opt.codegen import Kernel, emit_kernel
from hlo_opt.diag import Reason
from hlo_opt.ir import ELEMENT_TYPES, Module
from hlo_opt.plans import Plan, plan, region_of
from hlo_opt.runtime.host.library import has_compiler
from tests.small_modules import H100

Array = np.ndarray[Any, Any]

TYPES = ("pred", "s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64", "bf16", "f16", "f32", "f64", "c64", "c128")
ROWS = "update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1"
ELEMENTS = "update_window_dims={}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1"

needs_compiler = pytest.mark.skipif(not has_compiler(), reason="needs a C++ compiler")


def combiners(kind: str) -> dict[str, str]:
    """Computations on scalars of a type: what atomic operations do, overwriting, keeping, and one that nobody has an
    instruction for."""
    names = ["add"]
    if kind == "pred" or kind[0] in "su":
        names += ["and", "or", "xor"]
    if kind != "pred":
        names += ["multiply"]
    if kind[0] != "c":
        names += ["maximum", "minimum"]
    head = f"  x = {kind}[] parameter(0)\n  y = {kind}[] parameter(1)\n"
    found = {name: f"{head}  ROOT z = {kind}[] {name}(x, y)\n" for name in names}
    found["replace"] = f"  x = {kind}[] parameter(0)\n  ROOT y = {kind}[] parameter(1)\n"
    found["keep"] = f"  y = {kind}[] parameter(1)\n  ROOT x = {kind}[] parameter(0)\n"
    found["twice"] = f"{head}  t = {kind}[] add(x, x)\n  ROOT z = {kind}[] add(t, y)\n"
    return found


def values(generator: np.random.Generator, kind: str, *shape: int) -> Array:
    """Small whole numbers, whose sums and products come out the same in any order."""
    if kind == "pred":
        return generator.integers(0, 2, shape).astype(bool)
    found = generator.integers(0 if kind[0] == "u" else -2, 3, shape)
    if kind[0] == "c":
        return (found + 1j * generator.integers(-2, 3, shape)).astype(ELEMENT_TYPES[kind].dtype)
    return found.astype(ELEMENT_TYPES[kind].dtype)


def agrees(module: Module, inputs: Sequence[Array]) -> None:
    """The host's kernels give what `evaluate` says, bit for bit."""
    hlo_opt.verify(module)
    executable = hlo_opt.compile(module, backend="host")
    for got, want in zip(executable(*inputs), hlo_opt.evaluate(module, inputs), strict=True):
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got, want)
    assert not executable.report()["fallbacks"] and not executable.report()["library"]


def run(text: str, *inputs: Array) -> None:
    agrees(hlo_opt.parse(text), inputs)


def kernels(text: str) -> list[Kernel]:
    module = hlo_opt.parse(text)
    found = []
    for instruction in module.entry.instructions:
        if instruction.opcode in ("scatter", "fusion"):
            made = plan(region_of(module, instruction), H100)
            assert isinstance(made, Plan), str(made)
            found.append(emit_kernel(made))
    return found


def simple(kind: str, combiner: str, *, size: int = 7, updates: int = 13, more: str = "", root: str = "ROOT s") -> str:
    body = combiners(kind)[combiner]
    return (
        f"HloModule m\n\nf {{\n{body}}}\n\nENTRY e "
        f"{{\n  p = {kind}[{size},5] parameter(0)\n  i = s32[{updates}] parameter(1)\n"
        f"  u = {kind}[{updates},5] parameter(2)\n  {root} = {kind}[{size},5] scatter(p, i, u), {ROWS}, "
        f"{more}to_apply=f\n}}\n"
    )


@needs_compiler
@pytest.mark.parametrize("kind", TYPES)
def test_every_combiner_of_every_type(kind: str) -> None:
    """All in one module: duplicates and rows outside on one side, unique rows on the other."""
    generator = np.random.default_rng(0)
    functions = "".join(f"f_{name} {{\n{body}}}\n\n" for name, body in combiners(kind).items())
    body, roots = "", []
    for number, name in enumerate(combiners(kind)):
        for indices, more in (("i", ""), ("j", "unique_indices=true, ")):
            roots.append(f"s{number}{indices}")
            body += f"  {roots[-1]} = {kind}[7,5] scatter(p, {indices}, u), {ROWS}, {more}to_apply=f_{name}\n"
    shapes = ", ".join([f"{kind}[7,5]"] * len(roots))
    run(
        f"HloModule m\n\n{functions}ENTRY e {{\n  p = {kind}[7,5] parameter(0)\n  i = s32[6] parameter(1)\n  j = s32[6] parameter(2)\n  u = {kind}[6,5] parameter(3)\n"
        f"{body}  ROOT all = ({shapes}) tuple({', '.join(roots)})\n}}\n",
        values(generator, kind, 7, 5),
        np.array([3, 6, 3, -1, 7, 3], np.int32),
        np.array([5, 0, 9, 6, -4, 2], np.int32),
        values(generator, kind, 6, 5),
    )


FORMS = {
    # overlapping windows along the indexed dimension, several components, a window that lies before the batch
    "windows": (
        "f32[9,8]",
        "s32[5,2]",
        "f32[5,3,2]",
        "update_window_dims={1,2}, inserted_window_dims={}, scatter_dims_to_operand_dims={0,1}, index_vector_dim=1",
    ),
    "window first": (
        "f32[9,8]",
        "s32[2,5]",
        "f32[3,5]",
        "update_window_dims={0}, inserted_window_dims={1}, scatter_dims_to_operand_dims={1,0}, index_vector_dim=0",
    ),
    "batching": (
        "f32[4,9,3]",
        "s32[6,4,1]",
        "f32[6,4,3]",
        "update_window_dims={2}, inserted_window_dims={1}, scatter_dims_to_operand_dims={1}, index_vector_dim=2, "
        "input_batching_dims={0}, scatter_indices_batching_dims={1}",
    ),
    "scalar index": (
        "f32[9,8]",
        "s32[]",
        "f32[8]",
        "update_window_dims={0}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=0",
    ),
    "no index": (
        "f32[4,5]",
        "s32[0]",
        "f32[4,5]",
        "update_window_dims={0,1}, inserted_window_dims={}, scatter_dims_to_operand_dims={}, index_vector_dim=0",
    ),
    "wide indices": ("f32[31]", "s64[40]", "f32[40]", ELEMENTS),
    "unsigned indices": ("f32[31]", "u64[40]", "f32[40]", ELEMENTS),
    "small unsigned indices": ("f32[251]", "u8[40]", "f32[40]", ELEMENTS),
    "one": ("f32[1]", "s32[1]", "f32[1]", ELEMENTS),
    "no updates": ("f32[7]", "s32[0]", "f32[0]", ELEMENTS),
    "nothing to update": ("f32[0]", "s32[3]", "f32[3]", ELEMENTS),
    "many": ("f32[127]", "s32[1009]", "f32[1009]", ELEMENTS),
    "columns": ("f32[9,8]{0,1}", "s32[5,1]{0,1}", "f32[5,8]{0,1}", ROWS),
}


@needs_compiler
@pytest.mark.parametrize("form", FORMS)
def test_dimensions(form: str) -> None:
    operand, indices, update, attributes = FORMS[form]
    functions = "".join(f"f_{name} {{\n{body}}}\n\n" for name, body in combiners("f32").items())
    names = ("add", "replace", "twice")
    body = "".join(f"  s_{n} = {operand} scatter(p, i, u), {attributes}, to_apply=f_{n}\n" for n in names)
    roots, shapes = ", ".join(f"s_{n}" for n in names), ", ".join([operand] * 3)
    module = hlo_opt.parse(
        f"HloModule m\n\n{functions}ENTRY e {{\n  p = {operand} parameter(0)\n  i = {indices} parameter(1)\n  u = {update} parameter(2)\n{body}  ROOT all = ({shapes}) tuple({roots})\n}}\n"
    )
    p, i, u = (parameter.shape for parameter in module.entry.parameters)
    generator = np.random.default_rng(1)
    low, high = (
        (0, 256) if i.type.name == "u8" else (0 if i.type.kind == "unsigned" else -2, 1 + max((*p.dimensions, 2)))
    )
    index = generator.integers(low, high, i.dimensions).astype(i.type.dtype)
    if i.type.name == "u64":
        index[::7] = 2**64 - 1
    agrees(module, [values(generator, "f32", *p.dimensions), index, values(generator, "f32", *u.dimensions)])


ARGMAX = """  x = f32[] parameter(0)
  i = s32[] parameter(1)
  y = f32[] parameter(2)
  j = s32[] parameter(3)
  first = pred[] compare(x, y), direction=GE
  value = f32[] select(first, x, y)
  index = s32[] select(first, i, j)
  ROOT pair = (f32[], s32[]) tuple(value, index)
"""
SEPARATE = """  x = f32[] parameter(0)
  i = s32[] parameter(1)
  y = f32[] parameter(2)
  j = s32[] parameter(3)
  value = f32[] add(x, y)
  ROOT pair = (f32[], s32[]) tuple(value, j)
"""


def variadic(combiner: str, attributes: str, updates: str) -> str:
    return (
        f"HloModule m\n\nf {{\n{combiner}}}\n\nENTRY e "
        f"{{\n  p = f32[9,4] parameter(0)\n  q = s32[9,4] parameter(1)\n  i = s32[11,1] parameter(2)\n"
        f"  u = f32{updates} parameter(3)\n  v = s32{updates} parameter(4)\n  ROOT s = (f32[9,4], s32[9,4]) scatter(p, "
        f"q, i, u, v), {attributes}, to_apply=f\n}}\n"
    )


@needs_compiler
@pytest.mark.parametrize("combiner", [ARGMAX, SEPARATE], ids=["argmax", "separate"])
@pytest.mark.parametrize("windows", [False, True], ids=["rows", "windows"])
def test_several_results(combiner: str, windows: bool) -> None:
    attributes = (
        ROWS
        if not windows
        else ROWS.replace("{1}", "{1,2}").replace("inserted_window_dims={0}", "inserted_window_dims={}")
    )
    generator = np.random.default_rng(2)
    shape = (11, 2, 4) if windows else (11, 4)
    run(
        variadic(combiner, attributes, str(list(shape)).replace(" ", "")),
        values(generator, "f32", 9, 4),
        values(generator, "s32", 9, 4),
        generator.integers(-1, 9, (11, 1)).astype(np.int32),
        values(generator, "f32", *shape),
        generator.integers(0, 100, shape).astype(np.int32),
    )


FUSED = """HloModule m

f {
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT z = f32[] add(x, y)
}

scattered {
  p = f32[40] parameter(0)
  i = s32[90] parameter(1)
  u = f32[90] parameter(2)
  one = s32[] constant(1)
  ones = s32[90] broadcast(one), dimensions={}
  j = s32[90] add(i, ones)
  v = f32[90] multiply(u, u)
  ROOT s = f32[40] scatter(p, j, v), update_window_dims={}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=f
}

ENTRY e {
  p = f32[40] parameter(0)
  i = s32[90] parameter(1)
  u = f32[90] parameter(2)
  ROOT s = f32[40] fusion(p, i, u), kind=kInput, calls=scattered
}
"""


def fused_inputs() -> list[Array]:
    generator = np.random.default_rng(3)
    return [values(generator, "f32", 40), generator.integers(-3, 42, 90).astype(np.int32), values(generator, "f32", 90)]


@needs_compiler
def test_producers_of_indices_and_updates_are_part_of_the_kernel() -> None:
    run(FUSED, *fused_inputs())
    (kernel,) = kernels(FUSED)
    assert kernel.kind == "scatter" and kernel.aliases == ((0, 0),) and kernel.own == (0,)
    assert "atomicAdd(&out0[" in kernel.source and "in0[" not in kernel.source


@needs_compiler
def test_an_operand_that_updates_read_stays_apart() -> None:
    """Updates that gather from the operand must see it as it was."""
    text = FUSED.replace(
        "  v = f32[90] multiply(u, u)\n",
        "  w = f32[90] gather(p, i), offset_dims={}, collapsed_slice_dims={0}, start_index_map={0}, "
        "index_vector_dim=1, slice_sizes={1}\n  v = f32[90] multiply(u, w)\n",
    )
    text = text.replace(
        "ENTRY e {\n  p = f32[40] parameter(0)", "ENTRY e {\n  o = f32[40] parameter(0)\n  p = f32[40] negate(o)"
    )
    (kernel,) = kernels(text)
    assert kernel.aliases == ((0, 0),) and kernel.own == ()
    run(text, *fused_inputs())


@needs_compiler
@pytest.mark.parametrize("combiner", ["add", "replace"])
def test_an_operand_made_inside_takes_one_block(combiner: str) -> None:
    """No other block could wait for it. What overwrites comes in order."""
    text = FUSED.replace("  v = f32[90]", "  n = f32[40] negate(p)\n  v = f32[90]").replace("scatter(p,", "scatter(n,")
    if combiner == "replace":
        text = (
            text.replace("ROOT z = f32[] add(x, y)", "ROOT z = f32[] copy(y)")
            .replace("  ROOT z = f32[] copy(y)\n", "")
            .replace("  y = f32[]", "  ROOT y = f32[]")
        )
    (kernel,) = kernels(text)
    assert kernel.launch.grid == 1 and not kernel.aliases and "__syncthreads();" in kernel.source
    run(text, *fused_inputs())


@needs_compiler
def test_beside_other_outputs() -> None:
    """A scatter, a loop over the updates and a second scatter of the same operand are segments of one launch."""
    text = FUSED.replace("  ROOT s = f32[40] scatter(p, j, v)", "  s = f32[40] scatter(p, j, v)").replace(
        "to_apply=f\n}\n\nENTRY",
        "to_apply=f\n  t = f32[40] scatter(p, i, v), update_window_dims={}, inserted_window_dims={0}, "
        "scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=f\n"
        "  ROOT both = (f32[40], f32[90], f32[40]) tuple(s, v, t)\n}\n\nENTRY",
    )
    text = text.replace("ROOT s = f32[40] fusion", "ROOT s = (f32[40], f32[90], f32[40]) fusion")
    (kernel,) = kernels(text)
    assert kernel.aliases == ((0, 0), (2, 0)) and kernel.own == ()
    run(text, *fused_inputs())


def test_what_reads_a_scatter_has_no_plan() -> None:
    text = FUSED.replace("  ROOT s = f32[40] scatter(p, j, v)", "  t = f32[40] scatter(p, j, v)").replace(
        "to_apply=f\n}\n\nENTRY", "to_apply=f\n  ROOT s = f32[40] negate(t)\n}\n\nENTRY"
    )
    module = hlo_opt.parse(text)
    made = plan(region_of(module, module.entry.root), H100)
    assert isinstance(made, Reason) and made.code == "FUS609"


@pytest.mark.parametrize(
    ("kind", "combiner", "more", "wanted"),
    [
        ("f32", "add", "", "atomicAdd(&out0["),
        ("s32", "add", "", "atomicAdd((unsigned int*)&out0["),
        ("s64", "xor", "", "atomicXor((unsigned long long*)&out0["),
        ("s64", "minimum", "", "atomicMin(&out0["),
        ("c64", "add", "", "hlo_atomic_add(&out0["),
        ("bf16", "add", "", "hlo_swapped("),
        ("f32", "maximum", "", "hlo_extreme<true>(&out0["),
        ("bf16", "maximum", "", "hlo_swapped("),
        ("c64", "multiply", "", "hlo_swapped("),
        ("f32", "add", "unique_indices=true, ", "] = add_"),
        ("f32", "replace", "", "] = x2"),
    ],
)
def test_how_elements_change(kind: str, combiner: str, more: str, wanted: str) -> None:
    (kernel,) = kernels(simple(kind, combiner, more=more))
    text = kernel.source.split("__global__")[1]
    assert wanted in text
    assert any(name in text for name in ("atomic", "hlo_swapped", "hlo_extreme")) == (
        not more and combiner != "replace"
    )
    assert kernel.in_order == (not more and "atomic" not in text and "hlo_extreme" not in text)


def test_16_bytes_come_in_turns() -> None:
    """No compare-and-swap is as wide on every GPU: a thread has all updates of its elements, in order."""
    (kernel,) = kernels(simple("c128", "multiply"))
    assert "for (int" in kernel.source and kernel.launch == type(kernel.launch)(1, 5) and not kernel.in_order


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90", "sm_100"])
def test_nvrtc_compiles_every_form(architecture: str) -> None:
    pytest.importorskip("cupy")
    from cupy.cuda import nvrtc

    found: dict[str, str] = {}
    for kind in TYPES:
        for name in combiners(kind):
            for kernel in kernels(simple(kind, name)):
                found[kernel.symbol] = kernel.source
    for text in (FUSED, variadic(ARGMAX, ROWS, "[11,4]"), variadic(SEPARATE, ROWS, "[11,4]")):
        for kernel in kernels(text):
            found[kernel.symbol] = kernel.source
    # helpers of equal names are equal: one program takes all kernels
    whole = "".join(f"namespace n{k} {{\n{source}}}\n" for k, source in enumerate(found.values()))
    program = nvrtc.createProgram(whole, "scatters.cu", (), ())
    try:
        nvrtc.compileProgram(program, (f"-arch={architecture}", "-fmad=false", "--std=c++17"))
    except nvrtc.NVRTCError:
        pytest.fail(nvrtc.getProgramLog(program)[:2000])
    assert len(found) > 60
