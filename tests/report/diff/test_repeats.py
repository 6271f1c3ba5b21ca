"""Operations that compute again what their module computes, behind a barrier."""

from __future__ import annotations

import hlo_opt
from hlo_opt.analysis.graph.compare.matching import match
from hlo_opt.report.diff.changes import changes
from hlo_opt.report.diff.comparison import diff

ONCE = """HloModule m

ENTRY e {
  p = f32[64,8]{1,0} parameter(0)
  t = f32[64,8]{1,0} tanh(p)
  s = f32[64,8]{1,0} sine(t)
  ROOT r = f32[64,8]{1,0} multiply(s, p)
}
"""
TWICE = ONCE.replace(
    "  ROOT r = f32[64,8]{1,0} multiply(s, p)",
    "  b = (f32[64,8]{1,0}, f32[64,8]{1,0}) tuple(s, p)\n"
    "  barrier = (f32[64,8]{1,0}, f32[64,8]{1,0}) opt-barrier(b)\n"
    "  q = f32[64,8]{1,0} get-tuple-element(barrier), index=1\n"
    "  u = f32[64,8]{1,0} tanh(q)\n"
    "  v = f32[64,8]{1,0} cosine(u)\n"
    "  ROOT r = f32[64,8]{1,0} multiply(s, v)",
)


def again(old: str, new: str) -> dict[str, str | None]:
    """For each operation of one module alone, what computes the same beside it."""
    rows, _ = changes(match(hlo_opt.parse(old), hlo_opt.parse(new)))
    return {c.name: None if c.again is None else c.again.instruction.name for c in rows if c.kind in ("added", "lost")}


def test_what_a_barrier_hides_is_named_on_the_side_that_has_it() -> None:
    assert again(ONCE, TWICE) == {"barrier": None, "u": "t", "v": None}
    assert again(TWICE, ONCE) == {"barrier": None, "u": "t", "v": None}


def test_the_other_element_of_a_barrier_is_another_value() -> None:
    assert again(ONCE, TWICE.replace("index=1", "index=0")) == {"barrier": None, "u": None, "v": None}


def test_a_rounded_value_behind_a_barrier_counts_as_the_value() -> None:
    rounded = TWICE.replace("tuple(s, p)", "tuple(s, o)").replace(
        "  b = ", "  o = f32[64,8]{1,0} reduce-precision(p), exponent_bits=8, mantissa_bits=23\n  b = "
    )
    assert again(ONCE, rounded)["u"] == "t"


def test_nothing_is_named_without_a_barrier() -> None:
    assert again(
        ONCE, ONCE.replace("multiply(s, p)", "multiply(s, u)").replace("  ROOT", "  u = f32[64,8]{1,0} sine(p)\n  ROOT")
    ) == {"u": None}


def test_the_page_counts_them() -> None:
    assert "1 of the added compute again what others compute, behind a barrier" in str(diff(ONCE, TWICE))
    assert "u = f32[64,8]{1,0} tanh(barrier{1}), as t" in str(diff(ONCE, TWICE))
    assert "1 of the lost computed again" in str(diff(TWICE, ONCE))
