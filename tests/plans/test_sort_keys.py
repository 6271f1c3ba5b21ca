"""Which comparators compare a function of their elements."""

from __future__ import annotations

import pytest

from hlo_opt.plans.sort_keys import ComparatorKey, key_of
from hlo_opt.text import parse

TEXT = """HloModule m

less {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  c = s32[] parameter(2)
  d = s32[] parameter(3)
  zero = f32[] constant(0)
  LINES
}

ENTRY e {
  p = f32[8] parameter(0)
  q = s32[8] parameter(1)
  ROOT s = (f32[8], s32[8]) sort(p, q), dimensions={0}, to_apply=less
}
"""


def key(*lines: str) -> ComparatorKey | None:
    return key_of(parse(TEXT.replace("LINES", "\n  ".join(lines))).entry.root.called_by("to_apply"))


ABS = ("u = f32[] abs(a)", "v = f32[] abs(b)")


@pytest.mark.parametrize(
    ("sides", "direction", "descends"), [("u, v", "LT", False), ("u, v", "GT", True), ("v, u", "LT", True)]
)
def test_a_function_of_floats(sides: str, direction: str, descends: bool) -> None:
    found = key(*ABS, f"ROOT r = pred[] compare({sides}), direction={direction}, type=TOTALORDER")
    assert found is not None and (found.operand, found.descends, found.bytes) == (0, descends, 4)
    assert found.work.slots >= 1 and found.parameter.parameter_number in (0, 1)


def test_a_function_of_integers() -> None:
    found = key("u = s64[] convert(c)", "v = s64[] convert(d)", "ROOT r = pred[] compare(u, v), direction=LT")
    assert found is not None and (found.operand, found.bytes) == (1, 8)


@pytest.mark.parametrize(
    "lines",
    [
        ("ROOT r = pred[] compare(a, b), direction=LT, type=TOTALORDER",),
        (*ABS, "ROOT r = pred[] compare(u, v), direction=LT"),
        (*ABS, "ROOT r = pred[] compare(u, v), direction=LE, type=TOTALORDER"),
        (ABS[0], "v = f32[] negate(b)", "ROOT r = pred[] compare(u, v), direction=LT, type=TOTALORDER"),
        (ABS[0], "ROOT r = pred[] compare(u, b), direction=LT, type=TOTALORDER"),
        ("u = f32[] add(a, b)", "v = f32[] add(b, a)", "ROOT r = pred[] compare(u, v), direction=LT, type=TOTALORDER"),
        (*ABS, "w = f32[] negate(u)", "ROOT r = pred[] compare(u, w), direction=LT, type=TOTALORDER"),
        (*ABS, "w = pred[] compare(u, v), direction=LT, type=TOTALORDER", "ROOT r = pred[] not(w)"),
    ],
)
def test_others(lines: tuple[str, ...]) -> None:
    """Elements as they are; floats of which some are in no order; ties before each other; two functions; functions of
    both elements, or of one; and no comparison at the end."""
    assert key(*lines) is None
