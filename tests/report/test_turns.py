"""The sentences about the first change in a series."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from hlo_opt.cutting.alone import Alone
from hlo_opt.cutting.bisect import NO, Files, FirstChange, NoChange, StepDifference
from hlo_opt.report.turns import (
    ALONE_SHOWN,
    COLUMNS,
    LINES_SHOWN,
    SOURCES_SHOWN,
    stays_json,
    stays_lines,
    turn_json,
    turn_page,
)

SERIES = Files(tuple(Path(f"{n}.hlo") for n in range(9)))
BISECTION = SimpleNamespace(series=SERIES, watch=SimpleNamespace(title="check"))
STEP = StepDifference(
    "dce", ("a", "b"), ("model.py:7",), tuple(f"-  x{n} = {'long ' * 99}" for n in range(40)), "it failed\nhere"
)
TURN = FirstChange(2, 5, "no", "differs", (3, 4))


def test_the_page_is_short():
    lines = str(turn_page(BISECTION, TURN, STEP)).splitlines()
    assert lines[0] == "5.hlo: dce"
    assert lines[1:4] == [
        "  check: the same results after 2.hlo, other results after this",
        "  it failed",
        "  2 modules between could not be compared: the change may be there",
    ]
    assert lines[4:7] == ["  producer a", "  consumer b", "  model.py:7"]
    assert lines[-1] == f"... {40 - LINES_SHOWN} more lines" and len(lines) == 8 + LINES_SHOWN
    assert max(map(len, lines)) <= COLUMNS


def test_many_python_lines_are_counted():
    step = StepDifference("dce", (), tuple(f"model.py:{n}" for n in range(9)), ())
    lines = str(turn_page(BISECTION, TURN, step)).splitlines()
    assert (
        lines[-1] == f"  and {9 - SOURCES_SHOWN} more Python lines" and lines[-2] == f"  model.py:{SOURCES_SHOWN - 1}"
    )


def test_json_has_every_line():
    found = turn_json(BISECTION, TURN, STEP)
    assert found["unknown"] == ["3.hlo", "4.hlo"] and len(found["lines"]) == 40
    assert (found["step"], found["steps"], found["pass"]) == (5, 8, "dce")


def test_what_every_module_shows_is_no_step_s_fault():
    ours = SimpleNamespace(series=SimpleNamespace(last=4, is_ours=True, name="step {}".format), watch=BISECTION.watch)
    shown = [Alone(f"x{n}", "sine", "model.py:3" * (n == 0), "differs") for n in range(ALONE_SHOWN + 2)]
    lines = stays_lines(ours, NoChange("differs"), shown)
    assert lines[:3] == [
        "nothing changes: check: other results before fusing and after its 4 rewrites",
        "  it holds before the first rewrite, so none is the cause",
        "  x0 (sine) alone: differs  model.py:3",
    ]
    assert lines[-1] == "  and 2 more instructions"
    assert (
        stays_lines(ours, NoChange("differs"), [])[-1]
        == "  no instruction of it shows it alone, on drawn inputs: it takes several of them"
    )
    nan = SimpleNamespace(series=ours.series, watch=SimpleNamespace(title="nan"))
    assert "--check-nans` names the instruction" in stays_lines(nan, NoChange("a NaN"), [])[-1]
    assert "--check-nans" not in stays_lines(nan, NoChange("a NaN"), shown)[-1]
    assert len(stays_lines(ours, NoChange(NO), None)) == 2 and len(stays_lines(ours, NoChange("x"), None)) == 2
    found = stays_json(ours, NoChange("differs"), shown)
    assert found["step"] is None and found["answer"] == "differs" and len(found["alone"]) == len(shown)


@pytest.mark.parametrize(
    ("last", "where"),
    [(4, "before fusing and after its 4 rewrites"), (0, "before fusing, which rewrites nothing here")],
)
def test_where_nothing_changes_fusing_is_not_the_cause(last, where):
    ours = SimpleNamespace(series=SimpleNamespace(last=last, is_ours=True), watch=BISECTION.watch)
    same, not_fusing = stays_lines(ours, NoChange(NO), None)
    assert same == f"nothing changes: check: the same results {where}"
    assert not_fusing.startswith("  so fusing is not the cause; hlo-opt bisect FOLDER")
    kernels = SimpleNamespace(series=ours.series, watch=SimpleNamespace(title="kernels > 3"))
    assert stays_lines(kernels, NoChange(NO), None) == [f"nothing changes: kernels > 3: no {where}"]


def test_both_ends_of_dumps_are_named():
    assert stays_lines(BISECTION, NoChange(NO), None) == [
        "nothing changes: check: the same results in 0.hlo and in 8.hlo"
    ]
