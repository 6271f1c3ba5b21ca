"""Text for people: lines of words with styles. Plain by default; a terminal may show the styles.

Names from HLO text are shown only through here: control characters are escaped and nothing is read as markup. Files
below the current folder are named relative to it, as a user names them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal

from hlo_opt.diag.errors import printable
from hlo_opt.diag.python_files import below, current_folder


@dataclass(frozen=True, slots=True)
class Word:
    """A piece of a line. `style` is a rich style such as `bold red`, empty for none."""

    text: str
    style: str = ""


@dataclass
class Page:
    """Lines, top to bottom."""

    lines: list[tuple[Word, ...]] = field(default_factory=list)
    _folder: str = field(default_factory=current_folder, init=False, repr=False, compare=False)

    def add(self, *words: str | Word) -> None:
        """Append a line; its control characters are escaped here."""
        self.lines.append(tuple(map(self._shown, words)))

    def _shown(self, word: str | Word) -> Word:
        """The word as it stands on the page."""
        text, style = (word.text, word.style) if isinstance(word, Word) else (word, "")
        return Word(printable(below(self._folder, text)), style)

    def extend(self, other: Page) -> None:
        self.lines.extend(other.lines)

    def table(
        self, rows: Iterable[Sequence[str | Word]], *, right: frozenset[int] = frozenset(), indent: int = 0
    ) -> None:
        """Append rows as aligned columns; the columns in `right` are flush right."""
        cells = [[self._shown(word) for word in row] for row in rows]
        for row in cells:
            while row and not row[-1].text:
                row.pop()  # no spaces behind the last word
        widths = [0] * max(map(len, cells), default=0)
        for row in cells:
            for column, word in enumerate(row):
                widths[column] = max(widths[column], len(word.text))
        for row in cells:
            line: list[str | Word] = [" " * indent]
            for column, word in enumerate(row):
                gap = " " * (widths[column] - len(word.text))
                last = column == len(row) - 1
                line += [gap, word] if column in right else [word, "" if last else gap]
                line.append("" if last else "  ")
            self.add(*line)

    def wrapped(self, width: int) -> Page:
        """The page with longer lines broken at spaces, and carried on two columns further in than they begin; a word
        that is longer than a line is broken behind a comma, or anywhere if it has none."""
        page = Page()
        for line in self.lines:
            page.lines += _wrapped(line, width)
        return page

    def __str__(self) -> str:
        """Plain text, each line ended."""
        return "".join("".join(w.text for w in line).rstrip() + "\n" for line in self.lines)


def flowing(text: str) -> Page:
    """A page of a text in Markdown, each paragraph and each item of a list on one line, however the text breaks them.
    Indented lines stay as they are."""
    rows: list[str] = []
    for line in text.splitlines():
        goes_on = rows and rows[-1].strip() and not rows[-1].startswith(("    ", "#"))
        if goes_on and line.strip() and not line.startswith(("    ", "#", "- ")):
            rows[-1] += f" {line.strip()}"
        else:
            rows.append(line)
    page = Page()
    for row in rows:
        page.add(Word(row, "bold") if row.startswith("#") else row)
    return page


def _wrapped(line: tuple[Word, ...], width: int) -> list[tuple[Word, ...]]:
    text = "".join(word.text for word in line)
    if len(text.rstrip()) <= width:
        return [line]
    indent = min(len(text) - len(text.lstrip()) + 2, width // 2)
    styles = [word.style for word in line for _ in word.text]
    rows: list[tuple[Word, ...]] = []
    start = 0
    while start < len(text):
        room = width - (indent if rows else 0)
        end = min(len(text), start + room)
        if end < len(text):
            space, comma = text.rfind(" ", start, end + 1), text.rfind(",", start, end)
            if space > start and text[start:space].strip():
                end = space
            elif comma > start:
                end = comma + 1
        row: list[Word] = [Word(" " * indent)] if rows else []
        for at in range(start, start + len(text[start:end].rstrip())):
            if row and row[-1].style == styles[at] and at > start:
                row[-1] = Word(row[-1].text + text[at], styles[at])
            else:
                row.append(Word(text[at], styles[at]))
        rows.append(tuple(row))
        start = end
        while start < len(text) and text[start] == " ":
            start += 1
    return rows


def count(value: float) -> str:
    """A whole number with a comma before each group of three digits."""
    return f"{value:,}" if isinstance(value, int) else f"{value:,.0f}"


def most_first(counts: Mapping[str, int]) -> dict[str, int]:
    """The names that are counted most first, equals by name."""
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def counted(value: int, noun: str, several: str = "") -> str:
    """A number of things: `1 edge`, `2 edges`; `several` is the plural where it is not the noun with an `s`."""
    return f"{count(value)} {noun if value == 1 else several or noun + 's'}"


def size(value: float) -> str:
    """Bytes in decimal units, three figures: `1.23 MB`."""
    unit = 0
    names = ("B", "kB", "MB", "GB", "TB", "PB")
    while abs(value) >= 999.5 and unit < len(names) - 1:
        value /= 1000
        unit += 1
    return f"{value:.0f} B" if unit == 0 else f"{value:.3g} {names[unit]}"


LEAST = 1e-3
"""Microseconds below which a time counts as 0."""


def microseconds(value: float) -> str:
    """A time given in microseconds, three figures, in the unit that suits: `8.12 us`, `1.2 ms`; `0 us` below LEAST."""
    if abs(value) < LEAST:
        return "0 us"
    for limit, factor, unit in ((999.5, 1.0, "us"), (999.5e3, 1e3, "ms")):
        if abs(value) < limit:
            return f"{value / factor:.3g} {unit}"
    return f"{value / 1e6:.3g} s"


_SIZE = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,9})?)\s*(?:([kmgtp])(i?))?b?", re.IGNORECASE)


def parse_size(text: str) -> int:
    """Bytes from what people write: `4096`, `12MB` (12,000,000), `12 MiB` (12 x 1,048,576), `1.5G`. Raises
    ValueError."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a size such as 12MB or 512 KiB")
    number, unit, binary = match.groups()
    power = " KMGTP".index(unit.upper()) if unit else 0
    return int(Decimal(number) * (1024 if binary else 1000) ** power)
