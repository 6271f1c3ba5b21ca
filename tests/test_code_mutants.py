"""Which mistakes scripts/code_mutants.py plants, and that those called equivalent are still among them."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.code_mutants import mutants
from scripts.mutate_code import equivalents

SOURCE = '''
"""Says 1 < 2."""
LIMIT: int = 3
KEYS = {"a", "b"}


def grown(x: int, seen: set[int], most=4) -> int | None:
    """Text of 5."""
    assert x != 6
    for y in range(x):
        if x < LIMIT and not seen:
            continue
    if any(x >= s for s in seen if s):
        raise ValueError(f"{x + 7} is no good")
    return key(x, most, base=x - 1)
'''


def _planted() -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    for mutant in mutants("m.py", SOURCE):
        found.setdefault(mutant.line, []).append(mutant.after)
    return found


@pytest.mark.parametrize(
    ("line", "after"),
    [
        (3, ["LIMIT: int = 2", "LIMIT: int = 4"]),
        (4, ["KEYS = {'a'}", "KEYS = {'b'}"]),
        (7, ["def grown(x: int, seen: set[int], most=5) -> int | None:"]),
        (11, ["if x <= LIMIT and (not seen):", "if x >= LIMIT and (not seen):", "if x < LIMIT or not seen:"]),
        (11, ["if x < LIMIT and seen:", "if x < LIMIT:", "if not seen:"]),
        (12, ["pass"]),
        (13, ["if all((x >= s for s in seen if s)):", "if any((x >= s for s in seen)):"]),
        (14, ["pass"]),
        (
            15,
            [
                "return None",
                "return key(most, x, base=x - 1)",
                "return key(x, most)",
                "return key(x, most, base=1 - x)",
            ],
        ),
    ],
)
def test_the_mistakes_of_a_line(line: int, after: list[str]) -> None:
    assert set(after) <= set(_planted()[line])


def test_left_alone_are_texts_annotations_and_assertions() -> None:
    assert not _planted().keys() & {2, 8, 9}
    assert _planted()[14] == ["pass"]


def test_a_mistake_is_planted_where_it_is_and_nowhere_else() -> None:
    original = SOURCE.split("\n")
    for mutant in mutants("m.py", SOURCE):
        planted = mutant.source.split("\n")
        assert [k for k, (a, b) in enumerate(zip(original, planted, strict=True), 1) if a != b] == [mutant.line]


def test_what_changes_nothing_is_no_mistake() -> None:
    source = (
        "def f(x, y):\n    if x:\n        return None\n    z = max(x, y)\n    if z:\n        return None\n    else:\n  "
        "      return None\n"
    )
    assert [(m.line, m.after) for m in mutants("m.py", source) if "(y" in m.after or m.after == "pass"] == [(3, "pass")]
    source = "def f(x, y):\n    z = max(x, y, x)\n    return None\n"
    assert [(m.line, m.after) for m in mutants("m.py", source)] == [(2, "z = min(x, y, x)"), (2, "z = max(y, x, x)")]


def test_names_of_types_are_annotations() -> None:
    assert not mutants("m.py", "Check = Callable[[int], int]\n_Pair = int | None\n")
    assert mutants("m.py", "LIMIT = KNOWN[1]\nlimit = 1 + 2\n")


def test_what_importing_runs_is_known() -> None:
    source = "LIMIT = 1\n\n\nclass A:\n    x = 2\n\n    def f(self, y=3):\n        return y + 4\n"
    assert {m.line: m.at_import for m in mutants("m.py", source)} == {1: True, 5: True, 7: True, 8: False}


def test_each_mutant_called_equivalent_is_there_and_has_a_reason() -> None:
    root = Path(__file__).resolve().parent.parent
    found = {m.key for file in {key[0] for key in equivalents()} for m in mutants(file, (root / file).read_text())}
    assert not equivalents().keys() - found
    assert all(len(reason) > 10 for reason in equivalents().values())
