"""The difference between a golden and what is printed now, as a unified diff that stays readable, and quick, for large modules."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher

CONTEXT = 3
MOST_COMPARED = 4_000_000
"""Product of both numbers of lines, common ends left out, up to which lines are matched up: that takes quadratic time at worst."""

MOST_SHOWN = 160
"""Lines that are shown."""


def difference(expected: str, actual: str, expected_name: str, actual_name: str) -> list[str]:
    """The lines of a unified diff; empty when the texts are the same. Lines are not escaped."""
    if expected == actual:
        return []
    old, new = _lines(expected), _lines(actual)
    first = 0
    while first < min(len(old), len(new)) and old[first] == new[first]:
        first += 1
    last = 0
    while last < min(len(old), len(new)) - first and old[-1 - last] == new[-1 - last]:
        last += 1
    start = max(0, first - CONTEXT)
    end = max(0, last - CONTEXT)
    rows = [f"--- {expected_name}", f"+++ {actual_name}"]
    rows += _hunks(old[start : len(old) - end], new[start : len(new) - end], start)
    if len(rows) > MOST_SHOWN:
        rows = [*rows[:MOST_SHOWN], f"... {len(rows) - MOST_SHOWN} more lines"]
    return rows


def _lines(text: str) -> list[str]:
    """The lines; one that lacks its end says so, as in other diffs."""
    lines = text.split("\n")
    return lines[:-1] if not lines[-1] else [*lines, "\\ no newline at the end"]


def _hunks(old: Sequence[str], new: Sequence[str], start: int) -> list[str]:
    if len(old) * len(new) > MOST_COMPARED:
        return [_header(start, len(old), start, len(new)), *_interleaved(old, new)]
    rows: list[str] = []
    for group in SequenceMatcher(None, old, new, autojunk=False).get_grouped_opcodes(CONTEXT):
        _, a, _, b, _ = group[0]
        _, _, a_end, _, b_end = group[-1]
        rows.append(_header(start + a, a_end - a, start + b, b_end - b))
        for tag, i, i_end, j, j_end in group:
            if tag == "equal":
                rows += [f" {line}" for line in old[i:i_end]]
                continue
            rows += [f"-{line}" for line in old[i:i_end]]
            rows += [f"+{line}" for line in new[j:j_end]]
    return rows


def _interleaved(old: Sequence[str], new: Sequence[str]) -> list[str]:
    """The beginnings of two large texts, without matching their lines up."""
    half = MOST_SHOWN // 2
    return [*(f"-{line}" for line in old[:half]), *(f"+{line}" for line in new[:half])]


def _header(old: int, old_count: int, new: int, new_count: int) -> str:
    return f"@@ -{old + 1},{old_count} +{new + 1},{new_count} @@"
