"""Damaged files in binary forms end in a module or in one coded error."""

from __future__ import annotations

from scripts.fuzz_forms import FINE, SECONDS, files, outcome
from scripts.fuzz_text import run_batch


def test_damaged_files_are_one_coded_error_each() -> None:
    found = [result for _, result in run_batch(list(files(7, 60)), outcome, SECONDS)]
    assert [result for result in found if result not in FINE] == []
    assert len(found) == 60 and found.count("UsageError") > 20
