"""Python identifiers for names that come from HLO text."""

from __future__ import annotations

import builtins
import keyword
import re
from collections.abc import Iterable

_LONGEST = 60  # characters of a name that are kept; what follows tells little and makes lines hard to read
_UNSAFE = re.compile(r"[^A-Za-z0-9_]")


def sanitised(name: str) -> str:
    """ASCII letters, digits and underscores only, beginning with a letter."""
    text = _UNSAFE.sub("_", name)[:_LONGEST].strip("_")
    return text if text[:1].isalpha() else f"v{text}"


class Namespace:
    """Hands out identifiers, each once; none is a keyword, a builtin or reserved."""

    def __init__(self, reserved: Iterable[str] = ()) -> None:
        self._taken = {*keyword.kwlist, *keyword.softkwlist, *dir(builtins), *reserved}
        self._counts: dict[str, int] = {}

    def take(self, wish: str) -> str:
        """The sanitised wish, with a number behind it where it is taken."""
        stem = sanitised(wish)
        name = stem
        while name in self._taken:
            self._counts[stem] = self._counts.get(stem, 1) + 1
            name = f"{stem}_{self._counts[stem]}"
        self._taken.add(name)
        return name
