"""The case study: its tables, pictures and page say what the figures of the last run say; nothing is timed here."""

from __future__ import annotations

import argparse
import re
import struct
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest

from scripts.bench import cartpole, case_study, counted, drawings, markdown, study, workloads
from scripts.bench.cartpole_forms import CROSSOVER, EXPERIMENTS, FORMS, Form
from scripts.bench.counted import Counts, Group, both, counts_of, instructions
from scripts.bench.drawings import Line, Panel
from scripts.bench.host_vs_xla_cpu import Result, Work, of_case
from tests.small_modules import H100

ROOT = Path(__file__).resolve().parent.parent
AGAIN = "python -m scripts.bench.cartpole --keep-times --write"
PAGE = "python -m scripts.bench.cartpole --page"
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def found() -> study.Study:
    return case_study.results()[0]


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0.01234, "0.0123"), (1.5, "1.5"), (9.996, "10"), (99.96, "100"), (123.4, "123"), (12345.6, "12,346"), (0.0, "0"),
        (-2.5, "-2.5"), (1e-9, "0.000000001")],
)  # fmt: skip
def test_numbers_have_few_figures_and_no_exponent(value: float, expected: str) -> None:
    assert markdown.figures(value) == expected


def test_units() -> None:
    assert markdown.size(512) == "512 B" and markdown.size(1.5e6) == "1.5 MB" and markdown.size(2e12) == "2 TB"
    assert markdown.per_second(1.26e9) == "1.3 billion" and markdown.per_second(41_234) == "41,000"
    assert markdown.times(1.744) == "1.74x"


def test_a_table_escapes_what_would_end_a_cell() -> None:
    assert markdown.table(["a", "b"], [["x|y", "1\n2"]]) == "| a | b |\n| --- | --: |\n| x\\|y | 1 2 |\n"
    with pytest.raises(ValueError, match="more or fewer cells"):
        markdown.table(["a", "b"], [["x"]])


def counts(*groups: Group) -> Counts:
    launches = sum(g.times * len(g.kernels) for g in groups)
    return Counts(sum(len(g.kernels) for g in groups), launches, launches, 0.0, 0.0, groups)


def texts(svg: str) -> list[str]:
    return [text.text or "" for text in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def test_a_picture_has_a_box_for_each_kernel_and_a_frame_for_each_loop() -> None:
    side = counts(Group(1000, ("condition",)), Group(1, ("first", "a<b>&c")), Group(1000, ("x", "loop_while_fusion")))
    svg = drawings.kernels("a form", [("as it is", side)])
    boxes = list(ElementTree.fromstring(svg).iter(f"{SVG}rect"))
    assert sum(box.get("rx") == "4" for box in boxes) == 5
    assert sum(box.get("stroke-dasharray") is not None for box in boxes) == 1
    assert {"a<b>&c", "1,000 times", "as it is: 3,002 launches"} <= set(texts(svg))
    assert svg == drawings.kernels("a form", [("as it is", side)])


def test_a_picture_of_many_kernels_counts_the_rest() -> None:
    svg = drawings.kernels("many", [("one by one", counts(Group(1, tuple(f"k{n}" for n in range(100)))))])
    assert f"and {100 - drawings.MOST} more" in texts(svg)


def test_nothing_in_a_picture_lies_outside_it(found: study.Study) -> None:
    for name, svg in case_study.pictures(found).items():
        root = ElementTree.fromstring(svg)
        width, height = float(root.get("width", 0)), float(root.get("height", 0))
        for box in root.iter(f"{SVG}rect"):
            x, y, w, h = (float(box.get(k, 0)) for k in ("x", "y", "width", "height"))
            assert x >= 0 and y >= 0 and x + w <= width and y + h <= height, name
        for text in root.iter(f"{SVG}text"):
            assert 0 < float(text.get("x", 0)) < width and 0 < float(text.get("y", 0)) < height, (name, text.text)


def test_a_chart_goes_up_where_its_numbers_do() -> None:
    line = Line("up", ((1.0, 10.0), (10.0, 100.0), (100.0, 1e6)), True)
    svg = drawings.chart(
        [Panel("one", (line,)), Panel("two", (replace(line, name="other", dashed=False),))], "n", "rate"
    )
    assert svg == drawings.chart(
        [Panel("one", (line,)), Panel("two", (replace(line, name="other", dashed=False),))], "n", "rate"
    )
    first, second = ElementTree.fromstring(svg).iter(f"{SVG}polyline")
    assert first.get("stroke-dasharray") and not second.get("stroke-dasharray")
    points = [tuple(map(float, p.split(","))) for p in (first.get("points") or "").split()]
    assert all(a[0] < b[0] and a[1] > b[1] for a, b in pairwise(points))
    assert {"one", "two", "up", "other", "n", "rate", "1 million", "100"} <= set(texts(svg))


@pytest.mark.parametrize("points", [(), ((1.0, 0.0),)])
def test_a_chart_takes_positive_numbers_only(points: tuple[tuple[float, float], ...]) -> None:
    with pytest.raises(ValueError, match="positive"):
        drawings.chart([Panel("", (Line("", points),))], "", "")


def test_lines_cross_between_points() -> None:
    flat, steep = [(1.0, 10.0), (100.0, 10.0)], [(1.0, 1.0), (100.0, 100.0)]
    assert drawings.crossing(flat, steep) == pytest.approx(10.0)
    assert drawings.crossing(steep, [(1.0, 2.0), (100.0, 3.0)]) == 1.0
    assert drawings.crossing(steep, [(1.0, 0.5), (100.0, 3.0)]) is None


def test_the_words_say_where_the_device_overtakes(found: study.Study) -> None:
    def point(form: str, n: int, *us: float) -> study.Point:
        return study.Point(form, n, 100, *us)

    made = []
    for form in CROSSOVER:
        made += [point(form, 1, 1.0, 10.0, 100.0, 0.5), point(form, 100, 100.0, 1000.0, 100.0, 200.0)]
    told = case_study.crossover_words(replace(found, points=tuple(made)))
    assert told.count("XLA:CPU at about 10 environments; hlo-opt on the device overtakes hlo-opt on the CPU from the "
                      "first point on") == len(CROSSOVER)  # fmt: skip
    never = tuple(replace(p, xla_device_us=1e9) for p in made)
    assert "nowhere" in case_study.crossover_words(replace(found, points=never))


def word(opcode: int, distance: int = 0) -> bytes:
    """A machine instruction: a jump's distance counts words of 4 bytes from the next instruction on."""
    bits = opcode | (distance & 0xFF) << 16 | (distance >> 8 & (1 << 48) - 1) << 34
    return struct.pack("<QQ", bits & (1 << 64) - 1, bits >> 64)


def test_the_longest_loop_is_found_and_what_fills_the_text_up_is_not_counted() -> None:
    other, here, stop = word(0x221), word(counted.BRANCH, -4), word(0x94D)
    text = (
        other * 3 + word(counted.BRANCH, 8) + other + word(counted.BRANCH, -8) + other * 2 + word(counted.BRANCH, -28)
    )
    assert instructions(text + stop + here + other * 6) == (10, 7)
    assert instructions(stop + here) == (1, 0)


def test_machine_code_is_that_of_the_kernels() -> None:
    pytest.importorskip("cupy")
    few = both(of_case(FORMS["controlled"].fused(64, 100)).text, H100, compiled=True)
    many = both(of_case(FORMS["controlled"].fused(64, 200)).text, H100, compiled=True)
    assert few.ours_machine is not None and many.ours_machine is not None and few.xla_machine is not None
    assert 16 <= few.ours_machine.registers <= 255
    assert few.ours_machine.calls == 0 and few.build_s is not None
    # 100 rounds more of all threads: some hundred instructions each
    each = (many.ours_machine.instructions - few.ours_machine.instructions) / 100 / 64
    assert 100 < each < 2000
    assert few.xla_machine.instructions > few.ours_machine.instructions


def test_a_run_is_counted_with_the_rounds_of_its_loops() -> None:
    made = both(of_case(FORMS["controlled"].fused(64, 100)).text, H100)
    assert made.xla.in_loops == made.xla.launches == 100 * sum(len(g.kernels) for g in made.xla.groups)
    assert made.ours.launches == 1 and made.ours.in_loops == 0
    assert made.xla.bytes > 20 * made.ours.bytes
    assert made.xla_machine is None and made.build_s is None


def test_kernels_within_a_fusion_without_a_plan_are_counted_as_often_as_they_run() -> None:
    import hlo_opt

    text = """HloModule m
less { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = pred[] compare(a, b), direction=LT }
body { s = (s32[], f32[8]{0}) parameter(0) n = s32[] get-tuple-element(s), index=0 one = s32[] constant(1) m = s32[] add(n, one)
  x = f32[8]{0} get-tuple-element(s), index=1 y = f32[8]{0} sort(x), dimensions={0}, to_apply=less ROOT t = (s32[], f32[8]{0}) tuple(m, y) }
cond { s = (s32[], f32[8]{0}) parameter(0) n = s32[] get-tuple-element(s), index=0 ten = s32[] constant(10) ROOT c = pred[] compare(n, ten), direction=LT }
inside { x = f32[8]{0} parameter(0) zero = s32[] constant(0) t = (s32[], f32[8]{0}) tuple(zero, x) w = (s32[], f32[8]{0}) while(t), condition=cond, body=body ROOT r = f32[8]{0} get-tuple-element(w), index=1 }
ENTRY e { x = f32[8]{0} parameter(0) ROOT f = f32[8]{0} fusion(x), kind=kLoop, calls=inside }
"""
    made = counts_of(hlo_opt.parse(text), H100)
    assert made.launches > 10 and {g.times for g in made.groups} >= {10}


def timed(us: float) -> Result:
    return Result("it", us, 2 * us, 2.0, 1.9, 2.1, 5, 3.0, 1.0)


def test_the_study_measures_what_it_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    names: list[str] = []

    def measure(work: Work, rounds: int, seconds: float) -> Result:
        names.append(work.name)
        return timed(10.0)

    monkeypatch.setattr(cartpole, "measure", measure)
    monkeypatch.setattr(cartpole, "both", lambda text, device, compiled=False: both(text, device))
    monkeypatch.setattr(cartpole, "SHORT", 300)
    kept = {name: FORMS[name] for name in ("controlled", "joined")}
    monkeypatch.setattr(cartpole, "FORMS", kept)
    monkeypatch.setattr(cartpole, "CROSSOVER", ("controlled",))
    given = argparse.Namespace(environments=64, steps=300, rounds=5, seconds=0.0)
    made = cartpole.study(given, "the command", [1, 32], None)
    assert names == ["controlled", "joined", "controlled", "controlled"]
    assert [p.environments for p in made.points] == [1, 32] and made.points[1].rate(10.0) == 32 * 300 / 10 * 1e6
    assert study.from_json(made.as_json()) == made
    names.clear()
    again = cartpole.study(given, "another", [4], made)
    assert names == [] and again == made


def test_a_form_is_paid_back_after_what_it_saves() -> None:
    assert case_study.paid_back(2.0, 1e4) == "200 rollouts"
    assert case_study.paid_back(-1.0, 1e4) == "at once"
    assert case_study.paid_back(2.0, -1.0) == "never"


def test_the_page_is_made_anew_without_counting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = case_study.results()
    monkeypatch.setattr(case_study, "results", lambda: kept)
    monkeypatch.setattr(cartpole, "study", None)  # nothing is counted: it would be called
    for room in (case_study, workloads):
        monkeypatch.setattr(room, "RESULTS", tmp_path)
    monkeypatch.setattr(case_study, "PAGE", tmp_path / "page.md")
    monkeypatch.setattr(case_study, "PICTURES", tmp_path / "pictures")
    monkeypatch.setattr(sys, "argv", ["cartpole", "--page"])
    assert cartpole.main() == 0
    names = {"page.md", "cartpole.md", "cartpole.json", "workloads.md", "workloads.json", "pictures"}
    assert {path.name for path in tmp_path.iterdir()} == names
    assert (tmp_path / "page.md").read_text().startswith("# The case study")
    assert {path.name for path in (tmp_path / "pictures").iterdir()} == {
        *(f"{form}.svg" for form in FORMS),
        "crossover.svg",
    }


def test_every_form_has_its_row_and_every_experiment_its_form(found: study.Study) -> None:
    assert [row.form for row in found.rows] == list(FORMS)
    assert {p.form for p in found.points} == set(CROSSOVER)
    assert {e.form for e in EXPERIMENTS} - set(FORMS) == {"relaxed", "by hand"}
    assert min(p.environments for p in found.points) == 1 and max(p.environments for p in found.points) == 65536


@pytest.mark.parametrize("form", [FORMS["controlled"], FORMS["joined"]], ids=lambda form: form.name)
def test_the_figures_that_are_kept_are_those_of_today(found: study.Study, form: Form) -> None:
    made = both(of_case(form.fused(found.environments, found.steps)).text, H100)
    kept = found.row(form.name).device
    assert made.xla.launches == kept.xla.launches and made.ours.launches == kept.ours.launches, AGAIN


def test_the_page_is_what_the_figures_say() -> None:
    assert case_study.PAGE.read_text(encoding="utf-8") == case_study.page(*case_study.results()), PAGE


def test_the_pictures_are_what_the_figures_say(found: study.Study) -> None:
    made = case_study.pictures(found)
    there = {path.name: path.read_text(encoding="utf-8") for path in case_study.PICTURES.iterdir()}
    assert there == made, PAGE


def test_the_tables_are_what_the_figures_say(found: study.Study) -> None:
    assert (case_study.RESULTS / "cartpole.md").read_text(encoding="utf-8") == case_study.tables(found), PAGE


def test_the_links_of_the_page_lead_somewhere() -> None:
    text = case_study.PAGE.read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)#\s]+)\)", text)
    assert len(links) > len(FORMS)
    for link in links:
        assert link.startswith("https://") or (case_study.PAGE.parent / link).is_file(), link
    for named in re.findall(r"\btestdata/\S+\.hlo\b", text):
        assert (ROOT / named).is_file(), named
    assert not re.search(r"(?<![\w./])/(?:home|root|tmp|work)/", text)


def test_the_page_says_of_each_figure_where_it_is_from(found: study.Study) -> None:
    text = case_study.PAGE.read_text(encoding="utf-8")
    for experiment in EXPERIMENTS:
        assert f"| {experiment.paper} |" in text
    assert "measured on a GPU" in text and "by price" in text and str(found.machine) in text
    assert found.command in text and found.command.startswith("python -m scripts.bench.cartpole")
