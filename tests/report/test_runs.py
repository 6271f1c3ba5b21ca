"""What a trace shows of values."""

from __future__ import annotations

import numpy as np
import pytest

from hlo_opt import UsageError, evaluate, parse
from hlo_opt.evaluate import ValueEvent
from hlo_opt.report.runs import MOST_LINES, TracedInstructions, value_lines

TEXT = """HloModule m

ENTRY e {
  p = f32[2]{0} parameter(0)
  n = f32[2]{0} negate(p)
  t = (f32[2]{0}, ((), f32[2]{0})) custom-call(p), custom_call_target="x"
  dead = f32[2]{0} add(p, n)
  ROOT r = f32[2]{0} multiply(n, n)
}
"""


def test_values_with_where_they_come_up() -> None:
    module = parse(TEXT)
    trace = TracedInstructions(module, ["%n", "r", "dead"])
    pages: list[str] = []
    evaluate(module, [[1, 2]], watch=lambda event: pages.append(str(trace.page(event) or "")))
    assert [p for p in pages if p] == [
        "n  float32[2]  in e\n  [-1. -2.]\n",
        "r  float32[2]  in e\n  [1. 4.]\n",
    ]
    assert str(trace.rest()).startswith("dead was not evaluated")


def test_tuples_show_each_array_with_its_place() -> None:
    module = parse(TEXT)
    event = ValueEvent(list(module.entry.instructions)[2], (), (np.ones(2), ((), np.full((), 7))), (), 0)
    assert str(TracedInstructions(module, ["t"]).page(event)) == (
        "t{0}  float64[2]  in e\n  [1. 1.]\nt{1,1}  int64[]  in e\n  7\n"
    )
    assert str(TracedInstructions(module, ["t"]).page(ValueEvent(event.instruction, (), (), (), 0))) == "t  ()  in e\n"


def test_an_unknown_name_names_the_nearest() -> None:
    with pytest.raises(UsageError, match="there is no instruction 'deed'") as caught:
        TracedInstructions(parse(TEXT), ["n", "deed"])
    assert caught.value.hint == "did you mean dead?"


def test_names_cannot_steer_a_terminal() -> None:
    module = parse(TEXT)
    instruction = list(module.entry.instructions)[1]
    instruction.name = "n\x1b[2J"
    page = TracedInstructions(module, ["n\x1b[2J"]).page(ValueEvent(instruction, (), np.ones(2), (), 0))
    assert page is not None and "\x1b" not in str(page) and "n\\x1b[2J" in str(page)


@pytest.mark.parametrize("sizes", [(), (0,), (3,), (1000,), (200, 200), (9, 9, 9), (3,) * 8, (1, 10_000)])
def test_large_values_are_shown_in_part(sizes: tuple[int, ...]) -> None:
    lines = value_lines(np.zeros(sizes, np.float32))
    assert 1 <= len(lines) <= MOST_LINES and max(map(len, lines)) <= 120
