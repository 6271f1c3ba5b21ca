"""Plans of regions whose outputs have several index spaces: which segments they get, and what a block is then."""

from __future__ import annotations

from hlo_opt.diag import Reason
from hlo_opt.plans import Plan, Region, plan, region_of
from hlo_opt.plans.region import array_roots
from hlo_opt.text import parse
from tests.small_modules import H100

SUM = "add {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT c = f32[] add(a, b)\n}\n"


def planned(body: str) -> Plan:
    """The plan of a region that is the whole entry."""
    module = parse(f"HloModule m\n{SUM}\nENTRY e {{\n{body}}}\n")
    entry = module.entry
    found = plan(Region(entry.root, entry, tuple(entry.parameters), tuple(array_roots(entry.root))), H100)
    assert isinstance(found, Plan), found
    return found


def shape_of(found: Plan) -> list[tuple[str, tuple[int, ...], int]]:
    return [(s.kind, s.roots, s.blocks) for s in found.segments]


def test_outputs_of_one_size_with_a_common_input_share_a_loop() -> None:
    found = planned(
        """  p = f32[1000]{0} parameter(0)
  a = f32[1000]{0} negate(p)
  b = f32[1000]{0} tanh(p)
  ROOT r = (f32[1000]{0}, f32[1000]{0}) tuple(a, b)
"""
    )
    assert shape_of(found) == [("loop", (0, 1), 8)]


def test_outputs_with_nothing_in_common_do_not() -> None:
    """The learning rate is one element: reading it twice costs nothing."""
    found = planned(
        """  p = f32[1000]{0} parameter(0)
  q = f32[1000]{0} parameter(1)
  rate = f32[] parameter(2)
  rates = f32[1000]{0} broadcast(rate), dimensions={}
  a = f32[1000]{0} multiply(p, rates)
  b = f32[1000]{0} multiply(q, rates)
  ROOT r = (f32[1000]{0}, f32[1000]{0}) tuple(a, b)
"""
    )
    assert shape_of(found) == [("loop", (0,), 8), ("loop", (1,), 8)]
    assert (found.launch.grid, found.launch.block) == (16, 128)


def test_side_outputs_of_a_row_reduction() -> None:
    found = planned(
        """  p = f32[64,100]{1,0} parameter(0)
  z = f32[] constant(0)
  e = f32[64,100]{1,0} tanh(p)
  s = f32[64]{0} reduce(e, z), dimensions={1}, to_apply=add
  m = f32[64]{0} negate(s)
  ROOT r = (f32[64,100]{1,0}, f32[64]{0}, f32[64]{0}) tuple(e, s, m)
"""
    )
    assert shape_of(found) == [("row-reduction", (0, 1, 2), 2)]
    assert found.row_reductions == 1


def test_reductions_of_other_rows_and_an_output_of_neither_size() -> None:
    found = planned(
        """  p = f32[64,100]{1,0} parameter(0)
  q = f32[5,3000]{1,0} parameter(1)
  z = f32[] constant(0)
  s = f32[64]{0} reduce(p, z), dimensions={1}, to_apply=add
  t = f32[5]{0} reduce(q, z), dimensions={1}, to_apply=add
  h = f32[32]{0} slice(s), slice={[0:32]}
  n = f32[2,100]{1,0} slice(p), slice={[3:5], [0:100]}
  ROOT r = (f32[64]{0}, f32[5]{0}, f32[2,100]{1,0}) tuple(s, t, n)
"""
    )
    kinds = sorted(
        (
            s.kind,
            s.roots,
            getattr(s.part, "threads", 1) if s.folded else 1,
            s.part.rows_per_block(found.launch.block) if s.folded else 1,
        )
        for s in found.segments
    )
    assert kinds == [("loop", (2,), 1, 1), ("row-reduction", (0,), 8, 32), ("row-reduction", (1,), 192, 1)]
    assert found.launch.block == 256 and found.launch.grid == 2 + 5 + 1
    assert found.launch.shared_bytes == 6 * 4
    assert found.row_reductions == 2


def test_a_reduction_that_another_segment_repeats_does_not_count() -> None:
    found = planned(
        """  p = f32[64,100]{1,0} parameter(0)
  z = f32[] constant(0)
  s = f32[64]{0} reduce(p, z), dimensions={1}, to_apply=add
  b = f32[64,7]{1,0} broadcast(s), dimensions={0}
  ROOT r = (f32[64]{0}, f32[64,7]{1,0}) tuple(s, b)
"""
    )
    assert [s.kind for s in found.segments] == ["row-reduction", "loop"]
    assert found.row_reductions == 0


def test_one_space_that_covers_all_comes_before_several() -> None:
    """Both sums end in one element per row; the whole is one row kernel although a larger row exists."""
    found = planned(
        """  p = f32[64,100]{1,0} parameter(0)
  z = f32[] constant(0)
  s = f32[64]{0} reduce(p, z), dimensions={1}, to_apply=add
  x = f32[64,100]{1,0} broadcast(s), dimensions={0}
  d = f32[64,100]{1,0} subtract(p, x)
  t = f32[64]{0} reduce(d, z), dimensions={1}, to_apply=add
  ROOT r = (f32[64,100]{1,0}, f32[64]{0}) tuple(d, t)
"""
    )
    (segment,) = found.segments
    assert [len(level) for level in segment.part.levels] == [1, 1]


def test_empty_outputs_have_no_blocks() -> None:
    found = planned(
        """  p = f32[8]{0} parameter(0)
  n = f32[8]{0} negate(p)
  e = f32[0]{0} slice(p), slice={[3:3]}
  ROOT r = (f32[8]{0}, f32[0]{0}) tuple(n, e)
"""
    )
    assert [s.blocks for s in found.segments] == [1, 0]
    assert found.launch.grid == 1


def test_an_expanded_operation_in_a_fusion() -> None:
    """Random bits and the next state have other sizes."""
    module = parse(
        """HloModule m
bits {
  k = u64[2]{0} parameter(0)
  ROOT g = (u64[2]{0}, u32[300]{0}) rng-bit-generator(k), algorithm=rng_three_fry
}
ENTRY e {
  k = u64[2]{0} parameter(0)
  ROOT f = (u64[2]{0}, u32[300]{0}) fusion(k), kind=kLoop, calls=bits
}
"""
    )
    found = plan(region_of(module, module.entry.root), H100)
    assert not isinstance(found, Reason)
    assert [(s.kind, s.blocks) for s in found.segments] == [("loop", 3), ("concatenate", 1)]
