"""Compile regular expressions with possessive groups, which Python 3.11.0 to 3.11.4 match wrongly when nested.

Source: CPython issue 106052. Where a possessive group ends in a possessive repetition that starts to match and fails,
the characters it had consumed are not given back. Atomic groups around plain repetitions mean the same and work in
these versions.
"""

from __future__ import annotations

import re
import sys

NEEDS_ATOMIC = sys.version_info < (3, 11, 5)

_PIECE = re.compile(r"\\[\s\S]|\[\^?\]?(?:[^\\\]]|\\[\s\S])*\]|\)(?P<often>[*+?]|\{\d+(?:,\d*)?\})\+|[\s\S]")


def compiled(text: str) -> re.Pattern[str]:
    """Compile an expression so that every version of Python matches it alike."""
    return re.compile(fitting(text))


def fitting(text: str) -> str:
    """The expression in a form that this version of Python matches correctly."""
    return with_atomic_groups(text) if NEEDS_ATOMIC else text


def with_atomic_groups(text: str) -> str:
    """The expression with `(?>(...)*)` for each `(...)*+`."""
    pieces: list[str] = []
    opened: list[int] = []
    for match in _PIECE.finditer(text):
        piece = match[0]
        if piece == "(":
            opened.append(len(pieces))
        elif piece[0] == ")":
            start = opened.pop()
            if often := match["often"]:
                pieces[start] = f"(?>{pieces[start]}"
                piece = f"){often})"
        pieces.append(piece)
    return "".join(pieces)
