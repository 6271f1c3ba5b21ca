"""Folds inside a fold that are the same for all its elements."""

from __future__ import annotations

from typing import Any

import hlo_opt
from hlo_opt.ir.index_map import Expression, Variable
from hlo_opt.ops.reduction.beside import folds_beside

TEXT = """HloModule m

most {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] maximum(a, b)
}

ENTRY e {
  x = f32[40,10] parameter(0)
  y = f32[10,7] parameter(1)
  low = f32[] constant(-inf)
  top = f32[40] reduce(x, low), dimensions={1}, to_apply=most
  tops = f32[40,10] broadcast(top), dimensions={0}
  less = f32[40,10] subtract(x, tops)
  of_columns = f32[10] reduce(y, low), dimensions={1}, to_apply=most
  columns = f32[40,10] broadcast(of_columns), dimensions={1}
  ROOT product = f32[40,10] multiply(less, columns)
}
"""


def named(rounds: set[str]) -> list[tuple[str, tuple[Expression, ...]]]:
    entry: Any = hlo_opt.parse(TEXT).entry
    row, column = Variable(0, 39, "row"), Variable(0, 9, "column")
    return [(fold.name, at) for fold, at in folds_beside([(entry.root, (row, column))], rounds)]


def test_folds_are_beside_where_no_index_follows_the_rounds() -> None:
    row, column = Variable(0, 39, "row"), Variable(0, 9, "column")
    assert named({"column"}) == [("top", (row,))]
    assert named({"row"}) == [("of_columns", (column,))]
    assert named({"row", "column"}) == []
    assert named(set()) == [("top", (row,)), ("of_columns", (column,))]
