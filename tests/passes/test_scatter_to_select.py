"""Scatters of one update for each row: which become selects, and that the values stay."""

from __future__ import annotations

import numpy as np
import pytest

import hlo_opt

PASSES = "scatter-to-select,dce"
ROWS = (
    "update_window_dims={}, inserted_window_dims={1}, scatter_dims_to_operand_dims={1}, input_batching_dims={0}, "
    "scatter_indices_batching_dims={0}, index_vector_dim=2"
)


def scatter(
    shape: str,
    indices: str,
    updates: str,
    numbers: str,
    *,
    kind: str = "f32",
    index: str = "s32",
    start: str = "3",
    combiner: str = "add(a, b)",
    into: str = "broadcast(start), dimensions={}",
) -> str:
    return f"""HloModule m
fold {{
  a = {kind}[] parameter(0)
  b = {kind}[] parameter(1)
  ROOT c = {kind}[] {combiner}
}}
ENTRY e {{
  indices = {index}[{indices}] parameter(0)
  updates = {kind}[{updates}] parameter(1)
  start = {kind}[] constant({start})
  into = {kind}[{shape}] {into}
  ROOT g = {kind}[{shape}] scatter(into, indices, updates), {numbers}, to_apply=fold
}}"""


def opcodes(source: str) -> set[str]:
    made, _ = hlo_opt.fuse(hlo_opt.parse(source), passes=PASSES, simplify="never")
    hlo_opt.verify(made)
    return {i.opcode for i in made.entry.instructions}


WINDOWS = (
    "update_window_dims={1}, inserted_window_dims={1}, scatter_dims_to_operand_dims={1}, input_batching_dims={0}, "
    "scatter_indices_batching_dims={0}, index_vector_dim=1"
)
TWO = "update_window_dims={0,1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0,2}, index_vector_dim=0"
CASES = [
    scatter("5,9", "5,1,1", "5,1", ROWS),
    scatter("5,9", "5,1,1", "5,1", ROWS, kind="s32", combiner="multiply(b, a)"),
    scatter("5,9", "5,1,1", "5,1", ROWS, kind="bf16", combiner="maximum(a, b)"),
    scatter("5,9", "5,1,1", "5,1", ROWS, index="u8", combiner="parameter(1)").replace("b = f32[] parameter(1)\n", ""),
    scatter("5,9,4", "5,1", "5,4", WINDOWS),
    scatter("7,4,5", "2", "4,1", TWO),
    scatter("7", "", "", "update_window_dims={}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, "
            "index_vector_dim=0"),
]  # fmt: skip


@pytest.mark.parametrize("source", CASES)
def test_the_values_stay_also_where_indices_are_outside(source: str) -> None:
    assert "scatter" not in opcodes(source)
    module = hlo_opt.parse(source)
    made, _ = hlo_opt.fuse(module, passes=PASSES, simplify="never")
    indices, updates = (p.shape for p in module.entry.parameters)
    low = 0 if indices.type.kind == "unsigned" else -2
    rng = np.random.default_rng(0)
    for _ in range(3):
        drawn = [
            rng.integers(low, 11, indices.dimensions).astype(indices.type.dtype),
            rng.integers(-5, 6, updates.dimensions).astype(updates.type.dtype),
        ]
        (want,), (got,) = hlo_opt.evaluate(module, drawn), hlo_opt.evaluate(made, drawn)
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
    "source",
    [
        scatter("5,9", "5,1,1", "5,1", ROWS, into="parameter(2)"),  # nothing has to be written for the rest
        scatter("5,9", "5,2,1", "5,2", ROWS),  # two updates of a row
        scatter("5,900", "5,1,1", "5,1", ROWS, index="u8"),  # places that the indices do not count to
        scatter("5,9", "5,1,1", "5,1", ROWS, combiner="subtract(b, a)"),
        scatter("5,9", "5,1,1", "5,1", ROWS).replace("f32[5,9]", "f32[5,9]{0,1}"),
        scatter("7,4,5", "2", "3,1", TWO),  # a part of a dimension
    ],
)
def test_what_is_left(source: str) -> None:
    assert "scatter" in opcodes(source)


def test_a_cross_entropy_needs_no_kernel_for_it() -> None:
    source = scatter("64,1000", "64,1,1", "64,1", ROWS)
    made, _ = hlo_opt.fuse(source)
    assert hlo_opt.stats(made).summary.kernels == 1
