"""Fusing moves instructions; where they stood in the text stays known."""

from __future__ import annotations

import pytest
from small_modules import module_of

import hlo_opt
from hlo_opt.fusion.outline import start_fusion

TEXT = """HloModule m

half {
  a = f32[4096]{0} parameter(0)
  c = f32[] constant(0.5)
  b = f32[4096]{0} broadcast(c), dimensions={}
  ROOT h = f32[4096]{0} multiply(a, b)
}

ENTRY e {
  p = f32[4096]{0} parameter(0)
  n = f32[4096]{0} negate(p)
  f = f32[4096]{0} fusion(n), kind=kLoop, calls=half
  g = f32[4096]{0} exponential(f)
  ROOT r = f32[4096]{0} add(g, n)
}
"""


@pytest.mark.parametrize("passes", ["instruction-fusion", "priority-fusion", None])
def test_what_moves_into_a_fusion_keeps_its_line(passes: str | None) -> None:
    fused, _ = hlo_opt.fuse(hlo_opt.parse(TEXT, filename="m.hlo"), passes=passes, simplify="never")
    fusions = [i for i in fused.entry.instructions if i.opcode == "fusion"]
    lines = {"negate": 12, "exponential": 14, "add": 15, "multiply": 7, "broadcast": 6}
    moved = [m for fusion in fusions for m in fusion.called_by("calls").instructions if m.opcode in lines]
    assert len(moved) > 2
    for member in moved:
        span = fused.span(member)
        assert span is not None and span.line == lines[member.opcode], member


def test_a_fusion_says_what_its_first_member_said() -> None:
    said = {"metadata": '{op_name="n"}', "frontend_attributes": '{a="b"}', "sharding": "{replicated}"}
    line = ", ".join(["r = f32[64]{0} reverse(p), dimensions={0}", *(f"{name}={text}" for name, text in said.items())])
    module = module_of("p = f32[64]{0} parameter(0)", line)
    before = {name: attribute.text for name, attribute in module.entry.root.attributes.items()}
    fusion = start_fusion(module.entry.root)
    assert module.entry.root is fusion
    kept = {name: attribute.text for name, attribute in fusion.attributes.items() if name not in ("kind", "calls")}
    assert kept == {name: before[name] for name in said}
