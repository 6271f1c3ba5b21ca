"""What is kept from run to run, and when it is not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hlo_opt.diag.kept import KeptTexts, kept_folder


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HLO_OPT_CACHE", str(tmp_path / "kept"))
    return tmp_path / "kept"


def refuse() -> str:
    raise AssertionError("it is derived again")


def test_a_text_is_derived_once(folder: Path) -> None:
    first = KeptTexts("n", "of this")
    assert first.text("a", lambda: "A") == "A" and first.text("a", refuse) == "A"
    assert first._file is not None and first._file.parent == folder
    first._write(first._file)
    assert KeptTexts("n", "of this").text("a", refuse) == "A"
    assert KeptTexts("n", "of that").text("a", lambda: "B") == "B"


@pytest.mark.parametrize("content", ["", "[1]", '{"a"', "\x00"])
def test_a_broken_file_is_as_none(folder: Path, content: str) -> None:
    kept = KeptTexts("n", "x")
    assert kept._file is not None
    kept._file.write_text(content, encoding="utf-8")
    assert KeptTexts("n", "x").text("a", lambda: "A") == "A"


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="no owners")
def test_a_folder_that_others_may_write_is_not_trusted(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o777)
    assert kept_folder() is None
    kept = KeptTexts("n", "x")
    assert kept.text("a", lambda: "A") == "A" and kept._file is None
