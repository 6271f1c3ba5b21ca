"""How many elements of a row a thread takes at a time."""

from __future__ import annotations

import pytest

from hlo_opt.plans.row_reduction import Rows
from tests.small_modules import module_of, planned


@pytest.mark.parametrize(
    ("kind", "columns", "vector", "threads"),
    [
        ("f32", 4096, 4, 256),
        ("f64", 4096, 2, 256),
        ("f32", 4098, 4, 288),
        ("f32", 4097, 4, 288),
        ("bf16", 50257, 8, 1024),
        ("bf16", 263, 8, 32),
        ("bf16", 262, 2, 32),  # a thread would have no vector where a row begins badly
        ("f32", 64, 4, 16),
        ("f32", 128, 4, 32),
        ("f32", 8, 4, 2),
        ("f32", 16, 4, 4),
        ("f64", 4, 2, 2),
        ("s8", 16, 8, 2),
    ],
)
def test_vectors(kind: str, columns: int, vector: int, threads: int) -> None:
    reducer = (f"a1 = {kind}[] parameter(0)", f"b1 = {kind}[] parameter(1)", f"c1 = {kind}[] add(a1, b1)")
    lines = (f"p = {kind}[64,{columns}]{{1,0}} parameter(0)", f"z = {kind}[] constant(0)")
    made = planned(module_of(*lines, f"r = {kind}[64]{{0}} reduce(p, z), dimensions={{1}}, to_apply=more", more=reducer))  # fmt: skip
    (segment,) = made.segments
    assert isinstance(segment.part, Rows) and (segment.vector, segment.part.threads) == (vector, threads)
