"""What lines, functions and operations cost: the rows add up to the module, and the listing reads nothing outside of
its folder."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

import hlo_opt
from hlo_opt.passes.run import report_on, run
from hlo_opt.report.totals import (
    By,
    Total,
    Totals,
    _short,
    by_page,
    listing_page,
    source_text,
    totals,
    totals_json,
    totals_page,
)

TEXT = """HloModule m

ENTRY e {
  p = f32[64,8]{1,0} parameter(0)
  q = f32[64,8]{1,0} parameter(1)
  a = f32[64,8]{1,0} add(p, q), metadata={op_name="jit(f)/g/add" source_file="lib/model.py" source_line=2}
  t = f32[64,8]{1,0} tanh(a), metadata={op_name="jit(f)/g/tanh" source_file="lib/model.py" source_line=3}
  d = c64[64,5]{1,0} fft(t), fft_type=RFFT, fft_length={8}, metadata={op_name="jit(f)/fft" source_file="lib/model.py" source_line=9}
  ROOT n = c64[64,5]{1,0} negate(d)
}
"""


@pytest.fixture(scope="module")
def report():
    return report_on(run(hlo_opt.parse(TEXT)))


@pytest.mark.parametrize(
    ("by", "keys"),
    [
        ("line", {"lib/model.py:2", "lib/model.py:3", "lib/model.py:9", "(no Python line)"}),
        ("function", {"jit(f)/g", "jit(f)", "(no function)"}),
        ("op", {"add", "tanh", "fft", "negate"}),
    ],
)
def test_the_rows_add_up_to_the_module(report, by: By, keys) -> None:
    found = totals(report, by)
    assert set(found.rows) == keys
    assert sum(row.us for row in found.rows.values()) == pytest.approx(report.after.est_us) == found.us
    assert sum(row.bytes for row in found.rows.values()) == pytest.approx(found.bytes)
    assert found.kernels == report.after.kernels == 3
    assert sum(row.edges for row in found.rows.values()) == len(report.refused)
    assert [row.us for row in found.rows.values()] == sorted((row.us for row in found.rows.values()), reverse=True)


def test_a_kernel_is_shared_among_its_lines(report) -> None:
    rows = totals(report, "line").rows
    first, second = rows["lib/model.py:2"], rows["lib/model.py:3"]
    assert first.us == second.us > 0 and first.kernels == second.kernels == 1  # one kernel, equally many elements
    assert rows["lib/model.py:9"].refused == {"FUS302": 2} and rows["lib/model.py:9"].kernels == 1


def test_measured_times_are_those_of_the_module_as_it_was_given(report) -> None:
    found = totals(report, "op", {"add": 1.0, "a": 5.0, "t": 3.0, "d": 2.0})
    assert {key: row.us for key, row in found.rows.items()} == {"add": 5.0, "tanh": 3.0, "fft": 2.0, "negate": 0.0}
    assert found.measured and found.us == 10.0 and found.kernels == 4


def test_rounds_of_loops_count() -> None:
    from tests.report.test_explain import LOOP

    looped = report_on(run(hlo_opt.parse(LOOP), passes="dce", simplify="never"))
    found = totals(looped, "op")
    assert found.us == pytest.approx(looped.after.est_us)


def test_the_page_and_the_json_have_the_rows(report) -> None:
    found = totals(report, "op")
    page = str(totals_page(found)).splitlines()
    assert page[0].startswith("by operation: estimated ") and page[0].endswith(" moved, 3 kernels")
    assert page[1].split() == ["time", "share", "bytes", "kernels", "refused", "saving", "operation"]
    assert {line.split()[-1] for line in page[2 : 2 + len(found.rows)]} == set(found.rows)
    data = totals_json(found)
    assert data["by"] == "op" and not data["measured"]
    assert [row["place"] for row in data["rows"]] == list(found.rows)


def test_two_counts_of_bytes_are_told_apart() -> None:
    """An array that is both operands is read once in both counts; where they differ, a note says so."""
    text = "HloModule m\n\nENTRY e {\n  p = f32[4096,1024] parameter(0)\n  ROOT a = f32[4096,1024] add(p, p)\n}\n"
    report = report_on(run(hlo_opt.parse(text)))
    sums = totals(report, "op")
    assert sums.bytes == report.after.bytes == 2 * 4 * 4096 * 1024
    for shown, differs in ((sums, False), (replace(sums, bytes=sums.bytes / 2), True)):
        page = str(by_page(report, shown, None, None))
        assert ("bytes: as priced, to and from memory" in page) == differs and max(map(len, page.splitlines())) <= 100


def test_kernels_of_several_places_are_said_to_count_for_each() -> None:
    rows = {"a": Total(us=1.0, kernels=2), "b": Total(us=1.0, kernels=1)}
    for kernels, is_said in ((3, False), (2, True)):
        page = str(totals_page(Totals("op", rows, 2.0, 0.0, kernels)))
        assert ("one of several places counts for each" in page) == is_said


@pytest.mark.parametrize("by", ["line", "function", "op"])
def test_long_places_fit_a_line(by: By) -> None:
    row = Total(us=123.4, bytes=5e9, kernels=1234, edges=1234, saving=55.5, refused=Counter({"FUS302": 7, "FUS105": 1}))
    found = Totals(by, {"jit(step)/" + "transpose(" * 20 + f" (/a/{'b/' * 40}model.py:7)": row}, 123.4, 5e9, 1234)
    assert max(map(len, str(totals_page(found)).splitlines())) <= 100


def test_the_program_is_listed_with_its_figures(report, tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "model.py").write_text("".join(f"line {n}\n" for n in range(1, 8)))
    page = str(listing_page(totals(report, "line"), str(tmp_path)))
    lines = page.splitlines()
    assert lines[1] == "lib/model.py"
    assert [line.rpartition("| ")[2] for line in lines if "| " in line] == [
        "line 1",
        "line 2",
        "line 3",
        "line 4",
        "line 5",
    ]
    (second,) = [line for line in lines if line.endswith("2  | line 2")]
    assert second.split()[1] == "us"
    assert lines[-1] == "  line 9 is not in it: the file is another version"
    assert "not found below" in str(listing_page(totals(report, "line"), str(tmp_path / "lib" / "...")))


def test_nothing_outside_of_the_folder_is_read(tmp_path: Path) -> None:
    inside, outside = tmp_path / "in", tmp_path / "secret.py"
    inside.mkdir()
    outside.write_text("secret")
    (inside / "model.py").write_text("a\nb\n")
    (inside / "link.py").symlink_to(outside)
    for name in (str(outside), "../secret.py", "x/../../secret.py", "link.py", "no.py", "a\0b", ""):
        assert source_text(name, inside) is None
    for name in ("model.py", "/elsewhere/project/model.py", "C:\\project\\model.py", str(inside / "model.py")):
        assert source_text(name, inside) == ["a", "b"]


@pytest.mark.parametrize(
    ("function", "shown"),
    [
        ("step.<locals>.loss", "step.loss (/home/me/code/model.py)"),
        ("CausalSelfAttention.__call__", "CausalSelfAttention.__call__ (.../code/model.py)"),
        ("Transformer.CausalSelfAttention.__call__", "...r.CausalSelfAttention.__call__ (.../model.py)"),
    ],
)
def test_a_function_is_named_by_its_last_parts(function: str, shown: str) -> None:
    assert _short(f"{function} (/home/me/code/model.py)", "function", 48) == shown
