"""Which lines a sort has, in a block's memory and outside it."""

from __future__ import annotations

import pytest

from hlo_opt.ir import Module
from hlo_opt.plans import Region, long_sort, sort
from hlo_opt.plans.long_sort import LongLines
from hlo_opt.plans.region import array_roots
from tests.small_modules import module_of

LESS = ("a1 = f32[] parameter(0)", "b1 = f32[] parameter(1)", "c1 = pred[] compare(a1, b1), direction=LT")


def region(module: Module) -> Region:
    entry = module.entry
    return Region(entry.root, entry, tuple(entry.parameters), tuple(array_roots(entry.root)))


@pytest.mark.parametrize(("along", "lines", "length"), [(0, 6, 9000), (1, 9000, 6)])
def test_lines_lie_along_the_dimension_that_is_sorted(along: int, lines: int, length: int) -> None:
    module = module_of("p = f32[9000,6]{1,0} parameter(0)", f"r = f32[9000,6]{{1,0}} sort(p), dimensions={{{along}}}, to_apply=less", less=LESS)  # fmt: skip
    assert long_sort.match(region(module)) == LongLines(module.entry.root, (0,), lines, length, 1)
    short = sort.match(region(module))
    assert (short is None) == (along == 0)
    assert short is None or (short.lines, short.length) == (lines, length)


def test_the_largest_are_looked_for_along_the_last_dimension() -> None:
    shape = "(f32[9000,2]{1,0}, s32[9000,2]{1,0})"
    module = module_of("p = f32[9000,6]{1,0} parameter(0)", f"r = {shape} topk(p), k=2, largest=true")
    found = sort.match(region(module))
    assert found is not None and (found.lines, found.length) == (9000, 6)
