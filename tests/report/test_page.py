from __future__ import annotations

from pathlib import Path

import pytest

from hlo_opt.report.page import Page, Word, count, microseconds, size


def test_a_table_aligns_its_columns():
    page = Page()
    page.table([["", "before", "after"], ["kernels", "12", Word("3", "bold")]], right=frozenset({1, 2}), indent=2)
    assert str(page) == "           before  after\n  kernels      12      3\n"


def test_control_characters_are_escaped_and_count_as_shown():
    page = Page()
    page.table([["a\x1b[2J", "x"], ["bbbbbbbbbbbb", "y"]])
    assert str(page) == "a\\x1b[2J      x\nbbbbbbbbbbbb  y\n"


def test_a_word_longer_than_a_line_is_broken_behind_commas():
    page = Page()
    page.add("  first-pass,second-pass{option=true},third")
    assert str(page.wrapped(30)) == "  first-pass,\n    second-pass{option=true},\n    third\n"


def test_no_spaces_are_left_at_the_end_of_a_line():
    page = Page()
    page.table([["name", "a place"], ["n" * 12, ""], ["b", "p" * 18]])
    for line in (*page.lines, *page.wrapped(16).lines):
        text = "".join(word.text for word in line)
        assert text == text.rstrip()


def test_markup_is_text():
    page = Page()
    page.add("[red]name[/red]")
    assert str(page) == "[red]name[/red]\n"


def test_numbers_keep_three_figures():
    assert [size(v) for v in (0, 999, 1000, 123456, 9.996e8, 2.5e12)] == [
        "0 B",
        "999 B",
        "1 kB",
        "123 kB",
        "1 GB",
        "2.5 TB",
    ]
    assert [microseconds(v) for v in (2.81e-6, -2.81e-6, 1e-3)] == ["0 us", "0 us", "0.001 us"]
    assert [microseconds(v) for v in (0, 0.125, 812.4, 1200, 3.5e6)] == [
        "0 us",
        "0.125 us",
        "812 us",
        "1.2 ms",
        "3.5 s",
    ]
    assert count(1234567) == "1,234,567"


def test_files_below_the_current_folder_are_named_relative_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    page = Page()
    page.table([[f"{tmp_path}/model/a.py:3", "x"], ["b", f"at {tmp_path}/a.py, not {tmp_path}2/a.py"]])
    assert str(page) == f"model/a.py:3  x\nb             at a.py, not {tmp_path}2/a.py\n"
    page = Page()
    page.add(f"/other{tmp_path}/a.py in {tmp_path}")
    assert str(page) == f"/other{tmp_path}/a.py in {tmp_path}\n", "a folder of that name elsewhere"
    monkeypatch.chdir("/")
    page = Page()
    page.add("/a.py")
    assert str(page) == "/a.py\n"
