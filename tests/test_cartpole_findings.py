"""What kept the paper's CartPole from being one kernel shows in the explanations of our dumps, with the lines of the
program that they come from."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import hlo_opt
from hlo_opt.passes import preset_names, report_on, run
from hlo_opt.report import explain

ROOT = Path(__file__).resolve().parent.parent

SHOWN_BY = {
    "concatenate with several users": ("cartpole_scan_unrolled", r"jnp\.concatenate"),
    "random numbers": ("cartpole_custom_call", r"random0, random1 = call"),
    "tuples": ("cartpole_precomputed", r"outside \| fallen"),
    "loop boundary": ("cartpole_scan", r"lax\.scan"),
}
"""The dump that shows each finding under XLA's presets, and what a line of the program that it names has."""
GONE = tuple(SHOWN_BY)
"""Those that `default` has an answer to: all."""
LOOSENED = ("concatenate with several users", "loop boundary")
"""Those that only the preset of the paper tells."""


@pytest.mark.parametrize(
    ("title", "preset"),
    [(t, p) for t in SHOWN_BY for p in preset_names() if p != "default" and (t not in LOOSENED or p == "xla-2023")],
)
def test_the_finding_is_told_with_its_line(title: str, preset: str) -> None:
    dump, expected = SHOWN_BY[title]
    path = ROOT / "testdata" / "dumps" / f"{dump}.hlo"
    report = report_on(run(hlo_opt.parse(path.read_text(), filename=path.name), preset))
    (found,) = [f for f in explain.findings(report) if f.title == title]
    lines = [line_of(place.source) for place in found.places]
    assert any(re.search(expected, line) for line in lines), lines
    page = str(explain.as_page(report, explain.select(report, []), most=explain.EDGES_SHOWN))
    told = page[page.index(f"  {title}: ") :].splitlines()
    assert re.match(rf"  {title}: \d+ edges? \(FUS\d\d\d", told[0])
    assert re.match(r"    scripts/programs/\w+\.py:\d+ ", told[1])


@pytest.mark.parametrize("title", GONE)
def test_default_leaves_nothing_of_the_finding(title: str) -> None:
    path = ROOT / "testdata" / "dumps" / f"{SHOWN_BY[title][0]}.hlo"
    report = report_on(run(hlo_opt.parse(path.read_text(), filename=path.name)))
    assert title not in [f.title for f in explain.findings(report)]


def line_of(source: str) -> str:
    file, _, number = source.rpartition(":")
    return (ROOT / file).read_text().splitlines()[int(number) - 1]


@pytest.mark.parametrize("preset", preset_names())
def test_the_form_without_all_four_has_no_finding(preset: str) -> None:
    path = ROOT / "testdata" / "dumps" / "cartpole_separate.hlo"
    report = report_on(run(hlo_opt.parse(path.read_text()), preset))
    assert [f.title for f in explain.findings(report)] == []
    assert "what stands in the way" not in str(explain.as_page(report, []))
