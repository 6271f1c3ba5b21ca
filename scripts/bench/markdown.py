"""Tables as Markdown, and numbers as they stand in them."""

from __future__ import annotations

from collections.abc import Sequence


def table(titles: Sequence[str], rows: Sequence[Sequence[str]], words: int = 1) -> str:
    """The rows under their titles; columns after the first `words` are flush right. A bar within a cell is escaped, a
    line break is a space."""
    if any(len(row) != len(titles) for row in rows):
        raise ValueError("a row has more or fewer cells than there are titles")
    under = [*["---"] * words, *["--:"] * (len(titles) - words)]
    lines = [titles, under, *rows]
    return "".join(
        "| " + " | ".join(" ".join(cell.replace("|", r"\|").split()) for cell in line) + " |\n" for line in lines
    )


def figures(value: float, digits: int = 3) -> str:
    """A number of a few figures, with thousands apart and no exponent: `0.0123`, `1.5`, `12,345`."""
    rounded = float(f"{value:.{digits}g}")
    if abs(rounded) >= 10 ** (digits - 1):
        return f"{rounded:,.0f}" if abs(rounded) < 10**digits else f"{value:,.0f}"
    return f"{rounded:.12f}".rstrip("0").rstrip(".")


def times(value: float) -> str:
    """How many times as much: `1.74x`."""
    return f"{figures(value)}x"


def per_second(value: float) -> str:
    """A rate: `1.2 billion`, `35 million`, `41,000`."""
    for size, name in ((1e9, "billion"), (1e6, "million")):
        if value >= size:
            return f"{figures(value / size, 2)} {name}"
    return rounded(value)


def rounded(value: float) -> str:
    """A number of two figures, with thousands apart: `2,700,000`."""
    return figures(float(f"{value:.2g}"))


def size(count: float) -> str:
    """Bytes with a decimal unit: `1.23 MB`."""
    for unit, name in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= unit:
            return f"{figures(count / unit)} {name}"
    return f"{count:.0f} B"
