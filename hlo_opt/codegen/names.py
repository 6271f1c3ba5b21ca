"""Names and comments in generated code. No text of the HLO gets there unescaped.

Variables are named after opcodes and positions, not instructions, so that structurally equal fusions give equal texts.
"""

from __future__ import annotations

import re
from functools import lru_cache

_MOST = 40
"""Characters of a name's stem."""


@lru_cache(maxsize=1024)
def identifier(text: str) -> str:
    """The text as the stem of a C++ identifier: at most 40 letters, digits and single underscores, a letter first.

    A stem may be a keyword, so callers append `_` and a number: no keyword or reserved name ends so.
    """
    stem = re.sub(r"_+", "_", re.sub(r"[^A-Za-z0-9]", "_", text))[:_MOST].strip("_")
    return stem if stem[:1].isalpha() else f"v{stem}"


class Names:
    """Hands out unique names."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._next: dict[str, int] = {}

    def copy(self) -> Names:
        """A copy with the same names taken."""
        copy = Names()
        copy._taken, copy._next = set(self._taken), dict(self._next)
        return copy

    def is_taken(self, name: str) -> bool:
        """Whether the name was handed out."""
        return name in self._taken

    def fresh(self, stem: str) -> str:
        """`stem` the first time, then `stem_2`, `stem_3`, ..."""
        return self._first_free(stem, stem, 2, "_")

    def numbered(self, stem: str) -> str:
        """`stem0`, `stem1`, ..."""
        return self._first_free(f"{stem}0", stem, 1, "")

    def _first_free(self, name: str, stem: str, number: int, separator: str) -> str:
        number = self._next.get(stem, number)
        while name in self._taken:
            name = f"{stem}{separator}{number}"
            number += 1
        self._next[stem] = number
        self._taken.add(name)
        return name


def comment(lines: list[str]) -> str:
    """The lines as `//` comments. Control characters, non-ASCII and backslashes (which would join lines) become `?`;
    long lines are cut."""
    shown = []
    for line in lines:
        text = re.sub(r"[^ -~]|\\", "?", line)
        shown.append(f"// {text if len(text) <= 200 else text[:197] + '...'}".rstrip())
    return "".join(f"{line}\n" for line in shown)
