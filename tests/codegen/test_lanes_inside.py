"""Windows of narrow elements at the edges of an array: conditions that all lanes share stand around their loops."""

from __future__ import annotations

from typing import Any

import pytest

from hlo_opt.codegen.lanes import lanes_unit

WINDOW = """HloModule m

f {
  x = s32[] parameter(0)
  y = s32[] parameter(1)
  ROOT z = s32[] add(x, y)
}

ENTRY e {
  p = KIND[SHAPE]{1,0} parameter(0)
  c = s32[SHAPE]{1,0} convert(p)
  i = s32[] constant(0)
  ROOT s = s32[SHAPE]{1,0} reduce-window(c, i), window={size=5x5 pad=2_2x2_2}, to_apply=f
}
"""


def text(kind: str, shape: str) -> str:
    return WINDOW.replace("KIND", kind).replace("SHAPE", shape)


@pytest.mark.parametrize(("kind", "is_narrow"), [("u8", True), ("s16", True), ("s32", False)])
def test_which_windows(kind: str, is_narrow: bool, planner: Any) -> None:
    """Compilers make vectors of masked reads as wide as the sum, of others none."""
    made = lanes_unit([planner.kernel(text(kind, "64,256"))])
    assert ("(hlo_live - 1)" in made) == is_narrow


def test_values(tool: Any) -> None:
    shapes = ["64,256", "33,200", "7,1024", "5,5", "130,67"]
    tool.all_agree([text(kind, shape) for kind in ("u8", "s16", "pred") for shape in shapes])
