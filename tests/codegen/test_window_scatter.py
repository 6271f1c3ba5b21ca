"""Overlapping windows of select-and-scatter, a box of elements for each thread, give what the op table says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hlo_opt.plans import kinds
from tests.codegen.test_select_and_scatter import SCATTERS, scatter_of

POOL = scatter_of(
    "f32[2,10,12,3]{3,2,1,0} f32[2,5,6,3]{3,2,1,0}",
    "window={size=1x3x3x1 stride=1x2x2x1 pad=0_0x0_1x1_0x0_0}",
    "GE",
    "add",
)
PADDED = """HloModule m
choose { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = pred[] compare(a, b), direction=GE }
combine { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }
ENTRY e {
  x = f32[2,9,12]{2,1,0} parameter(0)
  g = f32[2,4,6]{2,1,0} parameter(1)
  low = f32[] constant(-inf)
  z = f32[] constant(0)
  p = f32[2,10,14]{2,1,0} pad(x, low), padding=0_0x0_1x1_1
  s = f32[2,10,14]{2,1,0} select-and-scatter(p, g, z), window={size=1x3x4 stride=1x2x2}, select=choose, scatter=combine
  c = f32[2,9,12]{2,1,0} slice(s), slice={[0:2], [0:9], [1:13]}
  zs = f32[2,9,12]{2,1,0} broadcast(z), dimensions={}
  m = pred[2,9,12]{2,1,0} compare(x, zs), direction=GT
  ROOT r = f32[2,9,12]{2,1,0} select(m, c, zs)
}
"""


@pytest.fixture(autouse=True)
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kind is used where its matcher takes an output, also where a loop is cheaper."""
    every = [replace(kind, has_rivals=kind.has_rivals and kind.name != "window-scatter") for kind in kinds.KINDS]
    monkeypatch.setattr(kinds, "KINDS", every)
    monkeypatch.setattr(kinds, "_BY_NAME", {kind.name: kind for kind in every})


def all_agree(tool: Any, texts: list[str]) -> None:
    assert {tool.plan(text).kind for text in texts} == {"window-scatter"}
    tool.all_agree(texts)


def test_pooling(tool: Any) -> None:
    wide = POOL.replace("f32", "bf16"), POOL.replace("f32", "s32")
    across = POOL.replace("{3,2,1,0}", "{1,2,0,3}")
    all_agree(
        tool, [POOL, *wide, across, scatter_of(*SCATTERS["overlapping"]), scatter_of(*SCATTERS["overlapping"], "b, a")]
    )


def test_sizes(tool: Any) -> None:
    texts = []
    for size, stride, low, high in (
        (2, 1, 0, 0),
        (3, 1, 1, 1),
        (3, 2, -3, 0),
        (5, 2, 2, 4),
        (5, 3, 4, -2),
        (7, 6, 0, 3),
    ):
        count = (17 + low + high - size) // stride + 1
        window = f"window={{size={size} stride={stride} pad={low}_{high}}}"
        texts.append(scatter_of(f"f32[17]{{0}} f32[{count}]{{0}}", window, "GE", "add"))
    all_agree(tool, texts)


def test_a_padded_operand_and_a_masked_part(tool: Any) -> None:
    all_agree(tool, [PADDED])


def test_no_number_and_infinities(tool: Any) -> None:
    draw = np.random.default_rng(2)
    x = draw.choice([-np.inf, np.inf, np.nan, 0.0, -0.0, 1.0], (2, 9, 12)).astype(np.float32)
    tool.agrees(PADDED, inputs=[x, draw.integers(-3, 4, (2, 4, 6)).astype(np.float32)])


@pytest.mark.parametrize(
    "text",
    [
        scatter_of(*SCATTERS["pooling"]),  # windows do not overlap
        scatter_of("f32[40,40]{1,0} f32[32,32]{1,0}", "window={size=9x9}", "GE", "add"),  # too many elements
        PADDED.replace("ROOT r = f32[2,9,12]{2,1,0} select(m, c, zs)",
            "ROOT r = f32[2,9,12]{2,1,0} reverse(c), dimensions={2}"),
    ],
)  # fmt: skip
def test_other_outputs_are_loops(text: str, planner: Any) -> None:
    assert planner.plan(text).kind == "loop"
