"""The diff: right, short, and quick where texts are large."""

from __future__ import annotations

import time
from difflib import unified_diff

from hypothesis import given, settings
from hypothesis import strategies as st

from hlo_opt.cli.golden.difference import MOST_SHOWN, difference

LINES = st.lists(st.sampled_from(["a", "b", "c"]), max_size=30)


@settings(max_examples=60, deadline=None)
@given(LINES, LINES)
def test_it_is_a_unified_diff(old: list[str], new: list[str]) -> None:
    texts = ["".join(f"{line}\n" for line in lines) for lines in (old, new)]
    rows = difference(*texts, "x", "y")
    assert bool(rows) == (old != new)
    # which lines are matched up may differ; what is left and what comes in may not
    theirs = list(unified_diff(old, new, lineterm=""))
    for sign in "+-":
        ours = [r for r in rows[2:] if r.startswith(sign)]
        assert (
            len(ours) - len([r for r in theirs[2:] if r.startswith(sign)])
            == (len([r for r in rows[2:] if r[0] in "+-"]) - len([r for r in theirs[2:] if r[0] in "+-"])) / 2
        )
    assert applied(old, rows) == new


def applied(old: list[str], rows: list[str]) -> list[str]:
    """What the diff makes of the old lines."""
    new: list[str] = []
    position = 0
    for row in rows[2:]:
        if row.startswith("@@"):
            start, count = (int(n) for n in row.split()[1][1:].split(","))
            first = start - 1
            new += old[position:first]
            position = first
            assert position + count <= len(old)
        elif row[0] == "+":
            new.append(row[1:])
        else:
            assert old[position] == row[1:]
            position += 1
            if row[0] == " ":
                new.append(row[1:])
    return new + old[position:]


def test_a_missing_end_of_line_is_told() -> None:
    rows = difference("a\nb\n", "a\nb", "x", "y")
    assert rows == ["--- x", "+++ y", "@@ -1,2 +1,3 @@", " a", " b", "+\\ no newline at the end"]


def test_large_texts_take_no_time_and_little_space() -> None:
    old = "".join(f"line {n}\n" for n in range(60_000))
    new = "".join(f"row {n}\n" for n in range(60_000))
    started = time.perf_counter()
    rows = difference(old, new, "x", "y")
    assert time.perf_counter() - started < 2
    assert len(rows) <= MOST_SHOWN + 1
    assert rows[3] == "-line 0" and "+row 0" in rows


def test_one_line_in_the_middle_of_a_large_text() -> None:
    lines = [f"line {n}\n" for n in range(60_000)]
    old = "".join(lines)
    lines[30_000] = "other\n"
    rows = difference(old, "".join(lines), "x", "y")
    assert rows[2] == "@@ -29998,7 +29998,7 @@"
    assert rows[6:8] == ["-line 30000", "+other"] and len(rows) == 11
