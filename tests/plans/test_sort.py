"""Which lines a sort has, in a block's memory and outside it."""

from __future__ import annotations

import pytest

from hlo_opt import parse
from hlo_opt.fusion.summary import module_summary
from hlo_opt.ir import Module
from hlo_opt.plans import Region, long_sort, sort
from hlo_opt.plans.choose import plan
from hlo_opt.plans.long_sort import LongLines
from hlo_opt.plans.plan import Plan
from hlo_opt.plans.price import price
from hlo_opt.plans.region import array_roots
from tests.small_modules import H100, module_of

LESS = ("a1 = f32[] parameter(0)", "b1 = f32[] parameter(1)", "c1 = pred[] compare(a1, b1), direction=LT")

LESS_OF_TWO = (*LESS[:2], "x = f32[] parameter(2)", "y = f32[] parameter(3)", f"ROOT {LESS[2]}")
BOTH = "s = (f32[64,100], f32[64,100]) sort(p, q), dimensions={1}, to_apply=less"


def region(module: Module) -> Region:
    entry = module.entry
    return Region(entry.root, entry, tuple(entry.parameters), tuple(array_roots(entry.root)))


@pytest.mark.parametrize(("along", "lines", "length"), [(0, 6, 9000), (1, 9000, 6)])
def test_lines_lie_along_the_dimension_that_is_sorted(along: int, lines: int, length: int) -> None:
    module = module_of("p = f32[9000,6]{1,0} parameter(0)", f"r = f32[9000,6]{{1,0}} sort(p), dimensions={{{along}}}, "
                                                            f"to_apply=less", less=LESS)  # fmt: skip
    assert long_sort.match(region(module)) == LongLines(module.entry.root, (0,), lines, length, 1)
    short = sort.match(region(module))
    assert (short is None) == (along == 0)
    assert short is None or (short.lines, short.length) == (lines, length)


def test_the_largest_are_looked_for_along_the_last_dimension() -> None:
    shape = "(f32[9000,2]{1,0}, s32[9000,2]{1,0})"
    module = module_of("p = f32[9000,6]{1,0} parameter(0)", f"r = {shape} topk(p), k=2, largest=true")
    found = sort.match(region(module))
    assert found is not None and (found.lines, found.length) == (9000, 6)


def test_a_sort_has_a_kernel_of_its_own_and_a_long_one_only_where_no_library_knows_the_comparator() -> None:
    def sorted_lines(length: int) -> Region:
        less = f"r = f32[6,{length}]{{1,0}} sort(p), dimensions={{1}}, to_apply=less"
        return region(module_of(f"p = f32[6,{length}]{{1,0}} parameter(0)", less, less=LESS))

    kinds = {}
    for length in (100, 9000):
        for long_sorts in (False, True):
            found = plan(sorted_lines(length), H100, long_sorts=long_sorts)
            kinds[length, long_sorts] = found.kind if isinstance(found, Plan) else found.code
    assert kinds == {
        (100, False): "sort",
        (100, True): "sort",
        (9000, False): "FUS302",
        (9000, True): "long-sort",
    }


def test_the_largest_of_equal_integers_are_told_apart_by_their_places() -> None:
    shape = "(s32[9,2]{1,0}, s32[9,2]{1,0})"
    found = sort.match(region(module_of("p = s32[9,6]{1,0} parameter(0)", f"r = {shape} topk(p), k=2, largest=true")))
    assert found is not None and not found.breaks_ties
    less = tuple(line.replace("f32", "s32") for line in LESS)
    text = "r = s32[9,6]{1,0} sort(p), dimensions={1}, to_apply=less"
    alone = sort.match(region(module_of("p = s32[9,6]{1,0} parameter(0)", text, less=less)))
    assert alone is not None and alone.breaks_ties


def test_a_sort_of_nothing_has_a_price() -> None:
    module = module_of("p = f32[0]{0} parameter(0)", "r = f32[0]{0} sort(p), dimensions={0}, to_apply=less", less=LESS)
    found = plan(region(module), H100)
    assert isinstance(found, Plan) and price(found, H100).us > 0


@pytest.mark.parametrize(("outputs", "arrays"), [((0, 1), 4), ((0,), 2), ((1,), 3)])
def test_results_that_no_root_holds_are_not_written_and_what_only_they_need_is_not_read(
    outputs: tuple[int, ...], arrays: int
) -> None:
    line = "f32[64,100]"
    elements = [f"g{n} = {line} get-tuple-element(s), index={n}" for n in outputs]
    shape = f"({', '.join([line] * len(outputs))})"
    root = f"ROOT t = {shape} tuple({', '.join(f'g{n}' for n in outputs)})"
    body = (f"p = {line} parameter(0)", f"q = {line} parameter(1)", BOTH, *elements, root)
    entry = (*body[:2], f"ROOT f = {shape} fusion(p, q), kind=kLoop, calls=held")
    parts = {"less": LESS_OF_TWO, "held": body, "ENTRY e": entry}
    text = "\n".join(f"{name} {{\n{chr(10).join(lines)}\n}}" for name, lines in parts.items())
    (kernel,) = module_summary(parse(f"HloModule m\n{text}"), H100).launched
    assert kernel.bytes == arrays * 64 * 100 * 4
