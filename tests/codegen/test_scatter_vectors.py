"""Scatter kernels whose threads take neighbours: as many as rows allow and a device has operations for; the values are
the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hlo_opt
from hlo_opt.analysis.targets import target
from hlo_opt.codegen import Kernel, emit_kernel
from hlo_opt.codegen.options import compile_options
from hlo_opt.ir import ELEMENT_TYPES
from hlo_opt.plans import Plan, plan, region_of
from hlo_opt.runtime.host.library import has_compiler

H100, A100, P100 = (target(name) for name in ("h100_sxm", "a100_sxm_80", "p100"))
ROWS = "update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1"


def text(kind: str, width: int, combiner: str = "add", more: str = "", *, order: str = "1,0", rows: int = 9) -> str:
    root = f"ROOT c = {kind}[] add(a, b)" if combiner == "add" else f"ROOT c = {kind}[] copy(b)"
    if combiner == "replace":
        root = f"ROOT b = {kind}[] parameter(1)"
    second = "" if combiner == "replace" else f"  b = {kind}[] parameter(1)\n"
    return (
        f"HloModule m\n\nf {{\n  a = {kind}[] parameter(0)\n{second}  {root}\n}}\n\nENTRY e {{\n"
        f"  p = {kind}[{rows},{width}]{{{order}}} parameter(0)\n  i = s32[21]{{0}} parameter(1)\n"
        f"  u = {kind}[21,{width}]{{{order}}} parameter(2)\n"
        f"  ROOT s = {kind}[{rows},{width}]{{{order}}} scatter(p, i, u), {ROWS}, {more}to_apply=f\n}}\n"
    )


def made(hlo: str, device: Any = H100) -> tuple[Plan, Kernel]:
    module = hlo_opt.parse(hlo)
    found = plan(region_of(module, module.entry.root), device)
    assert isinstance(found, Plan), str(found)
    return found, emit_kernel(found)


@pytest.mark.parametrize(
    ("kind", "width", "device", "vector"),
    [
        ("f32", 64, H100, 4),
        ("f32", 6, H100, 2),
        ("f32", 5, H100, 1),
        ("f32", 64, A100, 1),
        ("bf16", 64, H100, 8),
        ("bf16", 12, H100, 4),
        ("bf16", 6, H100, 2),
        ("bf16", 7, H100, 1),
        ("bf16", 64, A100, 2),
        ("f16", 64, P100, 2),
        ("f16", 8, H100, 8),
        ("f64", 64, H100, 1),
        ("s32", 64, H100, 1),
    ],
)
def test_sums_come_as_wide_as_rows_and_device_allow(kind: str, width: int, device: Any, vector: int) -> None:
    found, kernel = made(text(kind, width), device)
    assert found.segments[0].vector == vector
    assert found.launch.grid * found.launch.block >= 21 * width // vector
    assert (f"hlo_atomic_add_{kind}(" in kernel.source) == (vector > 1)


def test_rows_that_lie_otherwise_come_one_by_one() -> None:
    assert made(text("f32", 64, order="0,1"))[0].segments[0].vector == 1
    elements = (
        text("f32", 64)
        .replace(
            ROWS,
            ROWS.replace("scatter_dims_to_operand_dims={0}", "scatter_dims_to_operand_dims={1}").replace(
                "inserted_window_dims={0}", "inserted_window_dims={1}"
            ),
        )
        .replace("f32[9,64]", "f32[64,64]")
    )
    assert made(elements)[0].segments[0].vector == 1  # neighbours are in other rows of the output
    moved = text("f32", 64).replace("f32[21,64]{1,0} parameter(2)", "f32[21,32]{1,0} parameter(2)")
    moved = moved.replace("s32[21]{0}", "s32[21,2]{1,0}").replace(
        "scatter_dims_to_operand_dims={0}", "scatter_dims_to_operand_dims={0,1}"
    )
    assert made(moved)[0].segments[0].vector == 1  # windows begin anywhere in a row


def test_few_elements_that_are_replaced_come_one_by_one() -> None:
    assert made(text("bf16", 64, "replace"))[0].segments[0].vector == 1
    many = text("bf16", 1 << 20, "replace", rows=3)
    assert made(many)[0].segments[0].vector == 8
    assert made(text("f32", 1 << 18, more="unique_indices=true, ", rows=30))[0].segments[0].vector == 4


@pytest.mark.skipif(not has_compiler(), reason="needs a C++ compiler")
@pytest.mark.parametrize("form", ["plain", "lanes"])
@pytest.mark.parametrize("kind", ["f32", "bf16", "f16"])
def test_the_values_are_the_same(kind: str, form: Any) -> None:
    random = np.random.default_rng(0)
    dtype = ELEMENT_TYPES[kind].dtype
    for width in (2, 4, 8, 24):
        module = hlo_opt.parse(text(kind, width))
        inputs = [random.integers(-4, 5, (9, width)).astype(dtype), random.integers(-2, 11, 21).astype(np.int32)]
        inputs.append(random.integers(-4, 5, (21, width)).astype(dtype))
        for device in (H100, A100):
            (got,) = hlo_opt.compile(module, backend="host", form=form, target=device)(*inputs)
            np.testing.assert_array_equal(got, hlo_opt.evaluate(module, inputs)[0])


@pytest.mark.skipif(not has_compiler(), reason="needs a C++ compiler")
@pytest.mark.parametrize(
    ("kind", "combiner", "more"), [("bf16", "replace", ""), ("f32", "add", "unique_indices=true, ")]
)
def test_wide_stores_give_the_same_values(kind: str, combiner: str, more: str) -> None:
    width = 1 << 17
    module = hlo_opt.parse(text(kind, width, combiner, more, rows=30))
    random = np.random.default_rng(0)
    dtype = ELEMENT_TYPES[kind].dtype
    inputs = [random.integers(-4, 5, (30, width)).astype(dtype), random.permutation(30)[:21].astype(np.int32)]
    inputs.append(random.integers(-4, 5, (21, width)).astype(dtype))
    executable = hlo_opt.compile(module, backend="host", form="plain")
    np.testing.assert_array_equal(executable(*inputs)[0], hlo_opt.evaluate(module, inputs)[0])


@pytest.mark.parametrize(
    ("device", "wanted"),
    [
        (H100, ("red.global.add.v4.f32", "red.global.add.noftz.v4.bf16x2", "red.global.add.noftz.v4.f16x2")),
        (A100, ("atom.global.add.f32", "atom.global.cas.b32", "red.global.add.noftz.f16x2")),
    ],
)
def test_what_nvrtc_makes_of_them(device: Any, wanted: tuple[str, ...]) -> None:
    pytest.importorskip("cupy")
    from cupy.cuda import nvrtc

    for kind, instruction in zip(("f32", "bf16", "f16"), wanted, strict=True):
        program = nvrtc.createProgram(made(text(kind, 64), device)[1].source, "k.cu", (), ())
        nvrtc.compileProgram(program, (f"-arch=compute_{device.compute_capability}", *compile_options()))
        found = nvrtc.getPTX(program)
        found = found.decode() if isinstance(found, bytes) else found
        assert instruction in found.replace("atom.relaxed.global.cas", "atom.global.cas")


def test_updates_are_read_before_the_start_index_is_tested() -> None:
    pytest.importorskip("cupy")
    from cupy.cuda import nvrtc

    for kind in ("f32", "bf16"):
        program = nvrtc.createProgram(made(text(kind, 1024))[1].source, "k.cu", (), ())
        nvrtc.compileProgram(program, ("-arch=compute_90", *compile_options()))
        found = nvrtc.getPTX(program)
        found = found.decode() if isinstance(found, bytes) else found
        assert "ld.global.v4." in found.split("bar.warp.sync")[0]


def test_a_kernel_for_a_newer_device_compiles_for_an_older_one() -> None:
    pytest.importorskip("cupy")
    from cupy.cuda import nvrtc

    for kind in ("f32", "bf16", "f16"):
        program = nvrtc.createProgram(made(text(kind, 64), H100)[1].source, "k.cu", (), ())
        nvrtc.compileProgram(program, ("-arch=compute_80", *compile_options()))
