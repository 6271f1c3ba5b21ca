"""The table of kernels next to the limit: its model is held to a review by hand, and its rows say what they should."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from hlo_opt.analysis.targets import target
from scripts.bench import kernel_limits
from scripts.bench.kernel_further import further
from scripts.bench.kernel_limits import CLOSE, FAR, Row, row_of, table
from scripts.bench.kernel_programs import least_bytes, programs
from tests.small_modules import H100

PROGRAMS = {program.name: program for program in (*programs(), *further())}
HELD = (
    "chain of 3 f32 8192x4096",
    "softmax f32 1024x32768",
    "row sum f32 16384x4096",
    "column sum f32 8388608x4",
    "transpose f32 8192x8192",
    "concatenate f32",
    "update of a cache of 134 MB bf16",
)
"""Kernels that are as the review saw them."""
BETTER = (
    "bias gradient bf16 16384x4096",
    "argmax bf16 8192x8192",
    "cumsum f32 8192x4096",
    "x.T + y f32 8192x8192",
    "scatter-add bf16 131072x1024",
)
"""Kernels that it found far from the limit, and that have changed."""
REACHED = {
    "softmax bf16 1024x32768": 89,
    "softmax bf16 256x131072": 82,  # of one reading, by clusters of blocks
    "softmax bf16 1024x50257": 85,
    "softmax bf16 32768x1024": 91,
    "layer norm gradient bf16 8192x4096": 79,
    "layer norm gradient f32 8192x4096": 89,
}
ODD = {
    "softmax bf16 3355443x21": 90,
    "softmax f32 1048576x33": 95,
    "row sum f32 1677721x20": 95,
    "row sum bf16 524287x63": 86,
    "max and argmax f32 1048576x33": 94,
    "softmax over 1 f32 4096x10x900": 86,
    "softmax over 1 f32 256x256x512": 90,
    "bias, relu f16 8191x8193": 94,
}
"""As much for short rows, short columns and odd counts, which no review saw."""
"""Percent of a copy that kernels have reached, and are not to fall below."""


@pytest.fixture(scope="module")
def rows() -> dict[str, Row]:
    return {name: row_of(PROGRAMS[name], H100) for name in (*HELD, *BETTER)}


@pytest.mark.parametrize("name", HELD)
def test_the_price_is_near_the_review(rows: dict[str, Row], name: str) -> None:
    row = rows[name]
    assert row.holds and not row.changed
    assert not row.is_far or row.share < FAR


@pytest.mark.parametrize("name", BETTER)
def test_the_price_follows_a_better_kernel(rows: dict[str, Row], name: str) -> None:
    row = rows[name]
    assert row.is_far and row.changed and row.share > 80


@pytest.mark.parametrize("name", REACHED)
def test_what_has_been_reached_is_held(name: str) -> None:
    row = row_of(PROGRAMS[name], H100)
    assert row.share > REACHED[name]
    assert sum(p.bytes for p in row.prices) <= 1.05 * row.least
    assert row.prices[row.dearest].loads == row.prices[row.dearest].stores == (128, 128)


@pytest.mark.parametrize("name", ODD)
def test_odd_sizes_are_near_the_limit(name: str) -> None:
    row = row_of(PROGRAMS[name], H100)
    assert len(row.prices) == 1 and row.share > ODD[name] and not (row.off or row.changed or row.is_far)
    assert 0.99 * row.least < sum(p.bytes for p in row.prices) <= 1.05 * row.least


def test_most_of_the_review_is_there() -> None:
    assert len(PROGRAMS) == len(programs()) + len(further()) and len(programs()) > 60 and len(further()) > 60
    assert {p.finding for p in programs()} >= {"F1", "F2", "F3", "F4", "F5", "F6", "F7", "F9", "F10"}


def test_no_program_moves_less_than_it_must(rows: dict[str, Row]) -> None:
    for row in rows.values():
        assert sum(p.bytes for p in row.prices) > 0.99 * row.least
        assert row.share < 105  # a copy has its ramp in its time, and reads are quicker


def test_packed_parameters_count_as_they_lie() -> None:
    program = PROGRAMS["int4 scaled bf16 8192x8192"]
    assert least_bytes(program, program.made()) == 8192 * 8192 * 4.5 + 2 * 8192


def test_distance_is_from_the_nearer_end_of_what_the_review_gave(rows: dict[str, Row]) -> None:
    row = rows["transpose f32 8192x8192"]
    at = {
        bounds: replace(row, program=replace(row.program, share=bounds))
        for bounds in ((10.0, 20.0), (95.0, 99.0), (0.0, 99.0))
    }
    assert at[10.0, 20.0].off == row.share - 20 > CLOSE and not at[10.0, 20.0].holds
    assert at[95.0, 99.0].off == row.share - 95 < 0
    assert at[0.0, 99.0].off == 0 and at[0.0, 99.0].holds


def test_a_plan_that_is_not_the_one_reviewed_says_so(rows: dict[str, Row]) -> None:
    row = rows["transpose f32 8192x8192"]
    seen = replace(row.program, plan="loop+gather", launches=4, loads=128, since="it did more")
    assert (
        replace(row, program=seen).changed
        == "then loop+gather; then 4 launches; then loads of 128 bits; then it did more"
    )


def test_the_table_counts_what_holds(rows: dict[str, Row], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_limits, "registers", lambda kernel, target: "")
    name = "transpose f32 8192x8192"
    wrong = replace(rows[name], program=replace(PROGRAMS[name], share=(1, 2)))
    shown = [wrong, *(rows[n] for n in ("row sum f32 16384x4096", *BETTER))]
    lines = table(shown, H100).splitlines()
    assert lines[0].split()[:4] == ["program", "plan", "n", "GB"]
    assert lines[1].startswith(name) and " - (24) " in lines[1] and " memory " in lines[1]
    assert lines[-6:] == [
        "1 of 2 programs with kernels as the review saw them within 15 points of it",
        "",
        "0 of 5 programs with kernels that have changed since within 15 points of it",
        "0 of 5 that it found far from the limit (F1, F2, F4, F9) below 25 %",
        "",
        "7 of 7 programs at 85 % of a copy or more, 0 below for the device's reasons",
    ]
    assert "review" not in table([wrong], target("a100_sxm_80"))


def test_the_command_writes_the_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "table.txt"
    monkeypatch.setattr(sys, "argv", ["kernel_limits", "--target", "h200", "--out", str(out), "row sum f32 1048576"])
    assert kernel_limits.main() == 0
    assert capsys.readouterr().out == out.read_text() != ""
    assert out.read_text().startswith(
        "# python -m scripts.bench.kernel_limits --target h200 row sum f32 1048576\n# NVIDIA H200"
    )
    monkeypatch.setattr(sys, "argv", ["kernel_limits", "no such program"])
    with pytest.raises(SystemExit):
        kernel_limits.main()
    assert "no program has such a name" in capsys.readouterr().err


def test_registers_are_those_of_the_compiler() -> None:
    pytest.importorskip("cupy")
    row = row_of(PROGRAMS["row sum f32 1048576x64"], H100)
    assert 8 <= int(kernel_limits.registers(row.kernels[0], H100)) <= 32
