"""Named source texts and positions in them."""

from __future__ import annotations

import bisect
from dataclasses import dataclass, field


@dataclass(eq=False)
class Source:
    """One input text. `filename` is shown to people and never opened.

    `first_line` is the line number of the text's first line: above 1 where the text is part of a file.
    """

    text: str
    filename: str = "<string>"
    first_line: int = 1
    _starts: list[int] | None = field(default=None, repr=False)

    def _line_starts(self) -> list[int]:
        if self._starts is None:
            self._starts = [0] + [i + 1 for i, c in enumerate(self.text) if c == "\n"]
        return self._starts

    def position(self, offset: int) -> tuple[int, int]:
        """The 1-based line and column of a character offset."""
        starts = self._line_starts()
        line = bisect.bisect_right(starts, offset)
        return line + self.first_line - 1, offset - starts[line - 1] + 1

    def line_text(self, line: int) -> str:
        """The text of a line, numbered as by `position`, without its line ending."""
        starts = self._line_starts()
        line -= self.first_line - 1
        end = starts[line] - 1 if line < len(starts) else len(self.text)
        return self.text[starts[line - 1] : end].rstrip("\r")


@dataclass(frozen=True, slots=True)
class Span:
    """Characters `start` (inclusive) to `end` (exclusive) of a source."""

    source: Source
    start: int
    end: int

    @property
    def line(self) -> int:
        return self.source.position(self.start)[0]

    @property
    def column(self) -> int:
        return self.source.position(self.start)[1]
