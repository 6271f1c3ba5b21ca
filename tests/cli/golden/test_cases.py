"""Which files are golden files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hlo_opt.cli.golden.cases import Case, case_of, find_cases
from hlo_opt.diag import UsageError


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, text in {
        "run.hlo": "// RUN: hlo-opt print %s\n",
        "plain.hlo": "HloModule m\n",
        "plain.golden.hlo": "",
        "told.hlo": "HloModule m\n",
        "told.golden.txt": "",
        "dump.hlo": "HloModule m\n",
        "orphan.golden.hlo": "",
        "notes.txt": "// RUN: hlo-opt print %s\n",
        "sub/deep.hlo": "  // RUN: hlo-opt print %s\n",
        ".git/hidden.hlo": "// RUN: hlo-opt print %s\n",
        "-o.hlo": "// RUN: hlo-opt print %s\n",
    }.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return tmp_path


def test_a_folder_is_searched(folder: Path) -> None:
    assert [(str(c.path), c.golden and str(c.golden)) for c in find_cases(["."])] == [
        ("-o.hlo", None),
        ("orphan.golden.hlo", "orphan.golden.hlo"),
        ("plain.hlo", "plain.golden.hlo"),
        ("run.hlo", None),
        ("told.hlo", "told.golden.txt"),
        ("sub/deep.hlo", None),
    ]


def test_a_file_is_a_case_by_being_named_under_either_name(folder: Path) -> None:
    plain = Case(Path("plain.hlo"), Path(), Path("plain.golden.hlo"), is_named=True)
    assert find_cases(["plain.hlo"]) == find_cases(["plain.golden.hlo"]) == [plain]
    assert find_cases(["dump.hlo"]) == [Case(Path("dump.hlo"), Path(), is_named=True)]


def test_what_is_there_twice_is_run_once(folder: Path) -> None:
    assert len(find_cases(["plain.hlo", ".", "."])) == 6


def test_a_pipe_is_never_opened(folder: Path) -> None:
    os.mkfifo(folder / "pipe.hlo")
    assert case_of(folder / "pipe.hlo", folder) is None


@pytest.mark.parametrize(
    ("name", "why"), [("no", "no such file or folder"), ("a\0b", "no such file"), ("empty", "no golden file")]
)
def test_what_cannot_be_tested_is_bad_usage(name: str, why: str, folder: Path) -> None:
    (folder / "empty").mkdir()
    with pytest.raises(UsageError, match=why):
        find_cases([name])
