"""Scatters of many updates into few elements, combined in shared memory, give what the op table says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import hlo_opt
from hlo_opt.ir import ELEMENT_TYPES
from hlo_opt.plans import kinds
from hlo_opt.runtime.host.library import KernelForm, has_compiler
from hlo_opt.runtime.schedule import build_schedule

pytestmark = pytest.mark.skipif(not has_compiler(), reason="no C++ compiler")

ELEMENTS = "update_window_dims={}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1"
ROWS = "update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1"


def scatter(name: str, kind: str, shape: str, indices: str, updates: str, how: str, opcode: str) -> str:
    """A module of one scatter."""
    combiner = f"c {{ a = {kind}[] parameter(0)\n b = {kind}[] parameter(1)\n ROOT r = {kind}[] {opcode}(a, b) }}\n"
    return (
        f"HloModule {name}\n{combiner}ENTRY e {{\n p = {kind}[{shape}] parameter(0)\n"
        f" i = s32[{indices}] parameter(1)\n u = {kind}[{updates}] parameter(2)\n"
        f" ROOT s = {kind}[{shape}] scatter(p, i, u), {how}, to_apply=c\n}}\n"
    )


CASES = {
    "s32_add": scatter("m", "s32", "7", "3001,1", "3001", ELEMENTS, "add"),
    "u32_xor": scatter("m", "u32", "300", "4096,1", "4096", ELEMENTS, "xor"),
    "s64_max": scatter("m", "s64", "33", "5000,1", "5000", ELEMENTS, "maximum"),
    "f32_add": scatter("m", "f32", "1000", "9000,1", "9000", ELEMENTS, "add"),
    "f32_min": scatter("m", "f32", "1", "999,1", "999", ELEMENTS, "minimum"),
    "f64_add": scatter("m", "f64", "5,4", "500,1", "500,4", ROWS, "add"),
    "f32_rows": scatter("m", "f32", "3,40", "90,1", "90,40", ROWS, "add").replace("f32[3,40]", "f32[3,40]{0,1}"),
    "pairs": scatter(
        "m", "s32", "6,5", "2000,2", "2000",
        "update_window_dims={}, inserted_window_dims={0,1}, scatter_dims_to_operand_dims={1,0}, index_vector_dim=1",
        "and",
    ),
}  # fmt: skip


@pytest.fixture(autouse=True)
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kind is used where its matcher takes a scatter, also where another is cheaper."""
    every = [replace(kind, has_rivals=kind.has_rivals and kind.name != "block-scatter") for kind in kinds.KINDS]
    monkeypatch.setattr(kinds, "KINDS", every)
    monkeypatch.setattr(kinds, "_BY_NAME", {kind.name: kind for kind in every})


@pytest.mark.parametrize("form", ["plain", "lanes"])
@pytest.mark.parametrize("name", CASES)
def test_what_the_op_table_says(name: str, form: KernelForm) -> None:
    module = hlo_opt.parse(CASES[name])
    assert "block-scatter" in {kernel.kind for kernel in build_schedule(module).kernels}
    draw = np.random.default_rng(5)
    operand, indices, updates = module.entry.parameters
    kind = ELEMENT_TYPES[operand.shape.type.name].dtype
    most = max(operand.shape.dimensions)
    low = 0 if operand.shape.type.name[0] == "u" else -4
    given: list[Any] = [
        draw.integers(low, 5, operand.shape.dimensions).astype(kind),
        draw.integers(-1, most + 1, indices.shape.dimensions).astype(np.int32),  # some are out of bounds
        draw.integers(low, 5, updates.shape.dimensions).astype(kind),
    ]
    (got,) = hlo_opt.compile(module, backend="host", form=form)(*given)
    (want,) = hlo_opt.evaluate(module, given)
    np.testing.assert_array_equal(got, want)


def test_nothing_is_added_to_negative_zero() -> None:
    module = hlo_opt.parse(CASES["f32_add"])
    operand = np.full(1000, -0.0, np.float32)
    (got,) = hlo_opt.compile(module, backend="host", form="plain")(
        operand, np.full((9000, 1), -1, np.int32), np.ones(9000, np.float32)
    )
    assert np.signbit(got).all()
