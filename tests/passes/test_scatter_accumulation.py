"""Scatters into zeros that are added to an array: which become scatters into that array, and that the values stay."""

from __future__ import annotations

import numpy as np
import pytest

import hlo_opt
from hlo_opt.evaluate.inputs import module_inputs

PASSES = "scatter-accumulation,dce"
NUMBERS = "update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1"


def text(*lines: str, kind: str = "f32", start: str = "0", reducer: str = "add") -> str:
    """A scatter `g` into an array of `start`, and further lines; `r` is the result."""
    body = "\n  ".join(lines) or f"ROOT r = {kind}[9,4] add(m, g)"
    return f"""HloModule m
fold {{
  a = {kind}[] parameter(0)
  b = {kind}[] parameter(1)
  ROOT c = {kind}[] {reducer}(a, b)
}}
ENTRY e {{
  m = {kind}[9,4] parameter(0)
  rows = s32[7,1] parameter(1)
  updates = {kind}[7,4] parameter(2)
  start = {kind}[] constant({start})
  starts = {kind}[9,4] broadcast(start), dimensions={{}}
  g = {kind}[9,4] scatter(starts, rows, updates), {NUMBERS}, to_apply=fold
  {body}
}}"""


def opcodes(source: str) -> list[str]:
    made, _ = hlo_opt.fuse(hlo_opt.parse(source), passes=PASSES, simplify="never")
    hlo_opt.verify(made)
    return [i.opcode for i in made.entry.instructions if i.parameter_number is None]


@pytest.mark.parametrize("kind", ["f32", "s32", "u8", "f64"])
@pytest.mark.parametrize("last", ["add(m, g)", "add(g, m)"])
def test_the_updates_are_added_to_the_array(kind: str, last: str) -> None:
    source = text(f"ROOT r = {kind}[9,4] {last}", kind=kind)
    assert opcodes(source) == ["scatter"]
    module = hlo_opt.parse(source)
    inputs = module_inputs(module, 3)
    made, _ = hlo_opt.fuse(module, passes=PASSES, simplify="never")
    (want,), (got,) = hlo_opt.evaluate(module, inputs), hlo_opt.evaluate(made, inputs)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "source",
    [
        text(start="1"),
        text(reducer="maximum"),
        text(kind="bf16"),  # small updates would be lost beside large elements
        text("ROOT r = f32[9,4] subtract(m, g)"),
        text("ROOT r = f32[9,4] add(g, g)"),
        text("s = f32[9,4] add(m, g)", "ROOT r = (f32[9,4], f32[9,4]) tuple(s, g)"),  # read by itself, too
    ],
)
def test_what_is_left(source: str) -> None:
    assert "broadcast" in opcodes(source)
