"""How alike two operations are."""

from __future__ import annotations

import hlo_opt
from hlo_opt.analysis.graph.compare.matching import match
from hlo_opt.analysis.graph.compare.similarity import Similar

TEXT = """HloModule m

ENTRY e {
  p = f32[8]{0} parameter(0)
  a = f32[8]{0} tanh(p), metadata={op_name="jit(f)/a" source_file="m.py" source_line=3}
  ROOT r = f32[8]{0} negate(a)
}
"""


def test_a_place_is_what_the_program_calls_it_and_its_line():
    found = match(hlo_opt.parse(TEXT), hlo_opt.parse(TEXT.replace("source_line=3", "source_line=4")))
    similar = Similar(found.old.module, found.new.module)
    places = [{s.instruction.name: similar.place(s) for s in flat.sites()} for flat in (found.old, found.new)]
    assert [p["a"] for p in places] == [("jit(f)/a", "m.py:3"), ("jit(f)/a", "m.py:4")]
    assert places[0]["p"] == places[1]["r"] == ()


def test_another_opcode_must_stand_between_the_same():
    between = match(hlo_opt.parse(TEXT), hlo_opt.parse(TEXT.replace("tanh", "sine")))
    assert {s.instruction.name for s in between.old.sites() if s.partner is None} == set()
    elsewhere = TEXT.replace("tanh(p)", "sine(q)").replace(
        "f32[8]{0} parameter(0)", "f32[8]{0} parameter(0)\n  q = f32[8]{0} exponential(p)"
    )
    apart = match(hlo_opt.parse(TEXT), hlo_opt.parse(elsewhere))
    assert {s.instruction.name for s in apart.new.sites() if s.partner is None} <= {"a", "q"}
