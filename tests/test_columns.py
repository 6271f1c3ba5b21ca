"""No line of the package, whatever its language, is longer than 120 columns. (Ruff sees only Python.)"""

from __future__ import annotations

from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "hlo_opt"
SUFFIXES = {".py", ".cuh", ".cu", ".h", ".cpp", ".js", ".css", ".html", ".lark"}
FILES = [path for path in sorted(PACKAGE.rglob("*")) if path.suffix in SUFFIXES]
COLUMNS = 120
LINES = 600


def test_every_language_of_the_package_is_looked_at() -> None:
    assert {".py", ".cuh", ".h", ".cpp"} <= {path.suffix for path in FILES}


@pytest.mark.parametrize("suffix", sorted({path.suffix for path in FILES}))
def test_lines_are_short(suffix: str) -> None:
    long = [
        f"{path.relative_to(PACKAGE)}:{number}: {len(line)} columns"
        for path in FILES
        if path.suffix == suffix
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if len(line) > COLUMNS
    ]
    assert long == []


def test_files_are_short() -> None:
    lengths = {str(path.relative_to(PACKAGE)): len(path.read_text(encoding="utf-8").splitlines()) for path in FILES}
    assert {name: length for name, length in lengths.items() if length > LINES} == {}
