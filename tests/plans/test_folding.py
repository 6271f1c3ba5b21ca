"""Which outputs go along with the reductions of a space."""

from __future__ import annotations

import pytest
from small_modules import SUM_AND_LARGEST, module_of, planned

from hlo_opt.ir.index_map import variable
from hlo_opt.plans import folding

WIDE, ROW = "f32[64,96]{1,0}", "f32[64]{0}"
ROWS = "dimensions={1}, to_apply=sum"
SUM = (f"p = {WIDE} parameter(0)", "z = f32[] constant(0)", f"s = {ROW} reduce(p, z), {ROWS}")


def kinds(*lines: str, **kernels: tuple[str, ...]) -> list[tuple[str, tuple[int, ...]]]:
    return sorted((s.kind, s.roots) for s in planned(module_of(*lines, **kernels)).segments)


@pytest.mark.parametrize(
    ("line", "shape", "fits"),
    [
        (f"o = {ROW} negate(s)", ROW, True),
        (f"o = {WIDE} broadcast(s), dimensions={{0}}", WIDE, True),
        (f"o = {WIDE} tanh(p)", WIDE, True),
        ("o = f32[8,8]{1,0} reshape(s)", "f32[8,8]{1,0}", True),
        ("o = f32[6144]{0} reshape(p)", "f32[6144]{0}", True),
        (f"o = {ROW} reverse(s), dimensions={{0}}", ROW, False),
        ("o = f32[96,64]{1,0} transpose(p), dimensions={1,0}", "f32[96,64]{1,0}", False),
        ("o = f32[32]{0} slice(s), slice={[0:32]}", "f32[32]{0}", False),
    ],
)
def test_what_goes_along_with_a_sum_of_rows(line: str, shape: str, fits: bool) -> None:
    """What reads a sum at another thread's place does not, nor what tiles do better."""
    found = kinds(*SUM, line, f"r = ({ROW}, {shape}) tuple(s, o)")
    assert (found == [("row-reduction", (0, 1))]) == fits
    assert ("row-reduction", (0,)) in found or fits


def test_sums_are_read_through_tuples() -> None:
    pair = (*SUM[:2], f"s = ({ROW}, {ROW}) reduce(p, p, z, z), dimensions={{1}}, to_apply=pick")
    element = f"g = {ROW} get-tuple-element(s), index=1"
    assert kinds(*pair, element, f"r = {ROW} negate(g)", pick=SUM_AND_LARGEST) == [("row-reduction", (0,))]
    again = (f"n = {ROW} abs(g)", f"t = ({ROW}, {ROW}) tuple(n, g)", f"h = {ROW} get-tuple-element(t), index=0")
    assert kinds(*pair, element, *again, f"r = {ROW} negate(h)", pick=SUM_AND_LARGEST) == [("row-reduction", (0,))]


def test_sums_are_written_in_the_order_in_which_rows_are_read() -> None:
    """Rows of the operand lie along its second dimension first, the sums along their first."""
    lines = (
        "p = f32[4,8,96]{2,0,1} parameter(0)",
        "z = f32[] constant(0)",
        "s = f32[4,8]{1,0} reduce(p, z), dimensions={2}, to_apply=sum",
    )
    module = module_of(*lines, "r = f32[4,8]{1,0} negate(s)")
    made = planned(module)
    assert [s.kind for s in made.segments] == ["row-reduction"]
    reduce, kept = made.segments[0].hero, variable("kept", 32)
    space = folding.Space(32, 96)
    at = folding.root_index(space, [reduce], module.entry.root, kept, None)
    assert at == folding.result_index(reduce, kept) != folding.physical_index(reduce.shape, kept)
