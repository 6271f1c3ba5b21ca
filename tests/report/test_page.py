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
    assert [microseconds(v) for v in (0, 0.125, 812.4, 1200, 3.5e6)] == [
        "0 us",
        "0.125 us",
        "812 us",
        "1.2 ms",
        "3.5 s",
    ]
    assert count(1234567) == "1,234,567"
