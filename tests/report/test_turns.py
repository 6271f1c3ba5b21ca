"""What is told of where something turned."""

from pathlib import Path
from types import SimpleNamespace

from hlo_opt.cutting.turns import Files, Step, Turn
from hlo_opt.report.turns import COLUMNS, LINES_SHOWN, turn_json, turn_page

SERIES = Files(tuple(Path(f"{n}.hlo") for n in range(9)))
BISECTION = SimpleNamespace(series=SERIES, asks=SimpleNamespace(title="check"))
STEP = Step(
    "dce", ("a", "b"), ("model.py:7",), tuple(f"-  x{n} = {'long ' * 99}" for n in range(40)), "it failed\nhere"
)
TURN = Turn(2, 5, "no", "differs", (3, 4))


def test_the_page_is_short():
    lines = str(turn_page(BISECTION, TURN, STEP)).splitlines()
    assert lines[0] == "5.hlo: dce"
    assert lines[1:4] == [
        "  check: no after 2.hlo, differs after this",
        "  it failed",
        "  nothing can be told of 2 modules between: it may have turned there",
    ]
    assert lines[4:7] == ["  producer a", "  consumer b", "  model.py:7"]
    assert lines[-1] == f"... {40 - LINES_SHOWN} lines more" and len(lines) == 8 + LINES_SHOWN
    assert max(map(len, lines)) <= COLUMNS


def test_json_has_every_line():
    found = turn_json(BISECTION, TURN, STEP)
    assert found["unknown"] == ["3.hlo", "4.hlo"] and len(found["lines"]) == 40
    assert (found["step"], found["steps"], found["pass"]) == (5, 8, "dce")
