"""A module as it computes: calls and fusions opened, tuples taken apart."""

from __future__ import annotations

import hlo_opt
from hlo_opt.analysis.graph.compare.flat import GROWTH, ROOM, Forms, flatten, grows_too_much

INNER = """
part {
  x = f32[8]{0} parameter(0)
  y = f32[8]{0} parameter(1)
  a = f32[8]{0} add(x, y)
  n = f32[8]{0} negate(x)
  ROOT t = (f32[8]{0}, f32[8]{0}) tuple(a, n)
}
"""
OPEN = """HloModule m

ENTRY e {
  p = f32[8]{0} parameter(0)
  q = f32[8]{0} parameter(1)
  s = f32[8]{0} add(p, q)
  m = f32[8]{0} negate(p)
  ROOT r = f32[8]{0} multiply(s, m)
}
"""
CALLED = f"""HloModule m
{INNER}
ENTRY e {{
  p = f32[8]{{0}} parameter(0)
  q = f32[8]{{0}} parameter(1)
  c = (f32[8]{{0}}, f32[8]{{0}}) WHAT
  s = f32[8]{{0}} get-tuple-element(c), index=0
  m = f32[8]{{0}} get-tuple-element(c), index=1
  ROOT r = f32[8]{{0}} multiply(s, m)
}}
"""


def test_calls_and_fusions_are_what_they_hold():
    forms = Forms()
    numbers = {
        flatten(hlo_opt.parse(text), forms).entry.number
        for text in (
            OPEN,
            CALLED.replace("WHAT", "call(p, q), to_apply=part"),
            CALLED.replace("WHAT", "fusion(p, q), kind=kLoop, calls=part"),
            OPEN.replace("add(p, q)", "add(q, p)"),
        )
    }
    assert len(numbers) == 1
    assert flatten(hlo_opt.parse(OPEN.replace("negate(p)", "negate(q)")), forms).entry.number not in numbers


def test_a_site_knows_its_kernel_its_callers_and_its_readers():
    module = hlo_opt.parse(CALLED.replace("WHAT", "fusion(p, q), kind=kLoop, calls=part"))
    scope = flatten(module, Forms()).entry
    named = {s.instruction.name: s for s in scope.sites}
    assert set(named) == {"p", "q", "a", "n", "r"}
    assert named["a"].fusion is not None and named["a"].fusion.name == "c"
    assert named["r"].fusion is None and named["r"].roots == [0]
    assert [(u.instruction.name, place) for u, place, _ in named["a"].users] == [("r", 0)]


def test_a_computation_that_is_called_twice_stands_there_twice():
    text = (
        CALLED.replace("WHAT", "call(p, q), to_apply=part")
        .replace("index=1", "index=0")
        .replace(
            "  ROOT r",
            "  d = (f32[8]{0}, f32[8]{0}) call(s, m), to_apply=part\n  k = f32[8]{0} get-tuple-element(d), index=0\n  "
            "ROOT r",
        )
    )
    scope = flatten(hlo_opt.parse(text), Forms()).entry
    assert sum(s.instruction.name == "a" for s in scope.sites) == 2


def doubling(depth: int) -> str:
    """Calls nested `depth` deep, each twice."""
    parts = ["f0 {\n  p = f32[] parameter(0)\n  ROOT n = f32[] negate(p)\n}\n"]
    for n in range(1, depth):
        parts.append(
            f"f{n} {{\n  p = f32[] parameter(0)\n  a = f32[] call(p), to_apply=f{n - 1}\n  ROOT b = f32[] call(a), to_apply=f{n - 1}\n}}\n"
        )
    return (
        "HloModule m\n\n"
        + "\n".join(parts)
        + f"\nENTRY e {{\n  p = f32[] parameter(0)\n  ROOT r = f32[] call(p), to_apply=f{depth - 1}\n}}\n"
    )


def test_calls_that_grow_without_end_stay_calls():
    from hlo_opt.report.diff.comparison import diff

    text = doubling(40)
    module = hlo_opt.parse(text)
    assert grows_too_much(module) and not grows_too_much(hlo_opt.parse(doubling(5)))
    flat = flatten(module, Forms(), opens_calls=False)
    assert sum(1 for _ in flat.sites()) < GROWTH * 160 + ROOM
    assert diff(text, text.replace("negate", "abs"), fuse="never").differences[0].changes[0].name == "n"
