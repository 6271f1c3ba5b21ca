"""Promises over a dump: what `scripts.promises` finds, and that a sweep goes on where it stopped."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts import promises

DUMP = Path(__file__).parent.parent / "testdata" / "dumps" / "k_means.hlo"


def test_promises_of_a_dump_are_kept() -> None:
    row = promises.kept(str(DUMP), "default", "h100_sxm", 200)
    found = [promises.Promise(**p) for p in row["promises"]]
    assert found and all(p.kept for p in found) and row["priced"] == row["by_choice"]


@pytest.mark.parametrize(("promised", "forced", "kept"), [(10.0, 9.6, True), (10.0, 9.4, False), (10.0, None, False)])
def test_a_promise_is_kept_within_five_percent(promised: float, forced: float | None, kept: bool) -> None:
    assert promises.Promise("m.hlo", "a", "b", ("k", "l"), promised, forced).kept == kept


def test_a_sweep_goes_on_with_what_its_file_has(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = tmp_path / "results.jsonl"
    arguments = [str(DUMP), "--jobs", "1", "--results", str(results)]
    assert promises.main(arguments) == 0
    first = capsys.readouterr().out
    text = results.read_text()
    assert text.count("\n") == 1 and "promises kept within 5%" in first
    results.write_text(text.replace('"by_choice": ', '"by_choice": 1000'))
    assert promises.main([*arguments, "--resume"]) == 0
    assert f"{first.splitlines()[0]}\n" in (again := capsys.readouterr().out) and " of 1000" in again
