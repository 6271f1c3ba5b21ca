"""What is told on a terminal while something takes long."""

from __future__ import annotations

import sys


class Progress:
    """One line on a terminal that is written over and over; nothing elsewhere."""

    def __init__(self) -> None:
        self.is_shown = sys.stderr.isatty()
        self.width = 0

    def __call__(self, line: str) -> None:
        if self.is_shown:
            sys.stderr.write(f"\r{line[:100].ljust(self.width)}")
            sys.stderr.flush()
            self.width = len(line[:100])

    def end(self) -> None:
        self("")
        if self.is_shown:
            sys.stderr.write("\r")
