"""Places in a table that are computed: vectors find them, and what is there is copied lane after lane."""

from __future__ import annotations

from typing import Any

import pytest

from hlo_opt.codegen.lanes import lanes_unit

TABLE = """HloModule m

ENTRY e {
  t = KIND[40,COLOURS]{1,0} parameter(0)
  x = GIVEN[SHAPE]{1,0} parameter(1)
  FINDING
  ROOT g = KIND[SHAPE,COLOURS]{2,1,0} gather(t, n), offset_dims={2}, collapsed_slice_dims={0}, start_index_map={0},
    index_vector_dim=2, slice_sizes={1,COLOURS}
}
"""
COMPUTED = """k = f32[] constant(3)
  b = f32[SHAPE]{1,0} broadcast(k), dimensions={}
  m = f32[SHAPE]{1,0} multiply(x, b)
  n = s32[SHAPE]{1,0} convert(m)"""


def text(shape: str, kind: str = "u8", colours: int = 3, *, computed: bool = True) -> str:
    made = TABLE.replace("FINDING", COMPUTED if computed else "n = s32[SHAPE]{1,0} copy(x)")
    made = made.replace("GIVEN", "f32" if computed else "s32").replace("SHAPE", shape)
    return made.replace("KIND", kind).replace("COLOURS", str(colours))


@pytest.mark.parametrize("computed", [True, False])
def test_which_places(computed: bool, planner: Any) -> None:
    """What lies in memory as it is needs no vector to find it."""
    made = lanes_unit([planner.kernel(text("64,256", computed=computed))])
    assert ("int hlo_places0[" in made) == computed
    copying = made.rsplit("hlo_places0", 1)[-1] if computed else ""
    assert "float_to_integer" not in copying, "found once for all elements of a run"


def test_values(tool: Any) -> None:
    shapes = ["64,256", "3,100", "33,67", "1,5"]
    tool.all_agree([text(s, kind, n) for s in shapes for kind, n in (("u8", 3), ("bf16", 2), ("f32", 4))])


def test_places_that_differ_within_a_run(tool: Any) -> None:
    """Data say which column of the table each colour has: one name, and a number for each element of a run."""
    tool.all_agree(
        [
            """HloModule m

ENTRY e {
  t = u8[120] parameter(0)
  x = f32[64,256] parameter(1)
  shift = f32[3] parameter(2)
  k = f32[64,256,3] broadcast(x), dimensions={0,1}
  s = f32[64,256,3] broadcast(shift), dimensions={2}
  c = f32[] constant(30)
  b = f32[64,256,3] broadcast(c), dimensions={}
  a = f32[64,256,3] add(k, s)
  m = f32[64,256,3] multiply(a, b)
  n = s32[64,256,3] convert(m)
  ROOT g = u8[64,256,3] gather(t, n), offset_dims={}, collapsed_slice_dims={0}, start_index_map={0},
    index_vector_dim=3, slice_sizes={1}
}
"""
        ]
    )
