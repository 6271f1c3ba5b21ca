"""Blocks of a processor that share columns: each reads neighbouring rows."""

from __future__ import annotations

import numpy as np
import pytest

import hlo_opt
from hlo_opt.analysis.targets import InLanes
from hlo_opt.plans import Plan, plan, region_of
from hlo_opt.plans.column_reduction import Columns
from tests.small_modules import H100


def sums(rows: int) -> str:
    return f"""HloModule m

plus {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}}

ENTRY e {{
  x = f32[{rows},64] parameter(0)
  z = f32[] constant(0)
  ROOT r = f32[64] reduce(x, z), dimensions={{0}}, to_apply=plus
}}
"""


@pytest.mark.parametrize(("rows", "parts", "in_runs"), [(8192, 16, True), (8190, 15, True), (8191, 15, False)])
def test_blocks_read_neighbouring_rows_where_these_divide(rows: int, parts: int, in_runs: bool) -> None:
    module = hlo_opt.parse(sums(rows))
    made = plan(region_of(module, module.entry.root), InLanes.of(H100))
    assert isinstance(made, Plan)
    (segment,) = made.segments
    assert isinstance(segment.part, Columns)
    assert (segment.part.parts, segment.part.in_runs) == (parts, in_runs)


@pytest.mark.parametrize("rows", [8192, 8190, 8191])
def test_each_row_is_added_once(rows: int) -> None:
    x = np.random.default_rng(0).integers(-8, 8, (rows, 64)).astype(np.float32)
    (got,) = np.asarray(hlo_opt.compile(hlo_opt.parse(sums(rows)), backend="host")(x)).reshape(1, 64)
    assert np.array_equal(got, x.sum(0))
