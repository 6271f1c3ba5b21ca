"""Compiles regular expressions with possessive groups, which Python 3.11.0 to 3.11.4 match wrongly within each other.

Source: CPython issue 106052: where a possessive group ends in a repetition that begins to match and then does not, what that repetition had taken stays taken if it is possessive itself.
Atomic groups around plain repetitions mean the same, and are right in these versions, too.
"""

from __future__ import annotations

import re
import sys

NEEDS_ATOMIC = sys.version_info < (3, 11, 5)

_PIECE = re.compile(r"\\[\s\S]|\[\^?\]?(?:[^\\\]]|\\[\s\S])*\]|\)(?P<often>[*+?]|\{\d+(?:,\d*)?\})\+|[\s\S]")


def compiled(text: str) -> re.Pattern[str]:
    """The expression of a text, as all versions of Python must match it."""
    return re.compile(fitting(text))


def fitting(text: str) -> str:
    """A text that this version of Python matches as it is meant."""
    return with_atomic_groups(text) if NEEDS_ATOMIC else text


def with_atomic_groups(text: str) -> str:
    """A text with `(?>(...)*)` for each `(...)*+`."""
    pieces: list[str] = []
    opened: list[int] = []
    for found in _PIECE.finditer(text):
        piece = found[0]
        if piece == "(":
            opened.append(len(pieces))
        elif piece[0] == ")":
            start = opened.pop()
            if often := found["often"]:
                pieces[start] = f"(?>{pieces[start]}"
                piece = f"){often})"
        pieces.append(piece)
    return "".join(pieces)
