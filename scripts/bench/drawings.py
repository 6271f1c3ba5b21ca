"""Drawings as SVG, written by hand so that the same data give the same bytes: the kernels of a program, and lines over
two logarithmic axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from scripts.bench.counted import Counts, Group

BOX, GAP, ROW = 150, 8, 24
"""A kernel's width, the room around it, and its height, in pixels."""
SIDE = 2
"""Kernels beside each other."""
MOST = 24
"""Kernels of a group that are drawn one by one."""
COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e")


def _text(x: float, y: float, text: str, more: str = "") -> str:
    return f'<text x="{x:g}" y="{y:g}"{more}>{escape(text, quote=False)}</text>'


def _svg(width: float, height: float, parts: Sequence[str]) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{height:g}" viewBox="0 0 {width:g} '
        f'{height:g}" font-family="sans-serif" font-size="12">'
    )
    return "\n".join([head, f'<rect width="{width:g}" height="{height:g}" fill="white"/>', *parts, "</svg>", ""])


def _name(kernel: str) -> str:
    return kernel if len(kernel) <= 24 else f"{kernel[:23]}…"


def _group(group: Group, x: float, y: float) -> tuple[list[str], float]:
    """The boxes of a group, within a frame where it is a loop's round, and how high they are together."""
    shown = group.kernels[:MOST]
    rows = math.ceil(len(shown) / SIDE)
    is_loop = group.times > 1
    top = y + (22 if is_loop else 0)
    parts = []
    for number, kernel in enumerate(shown):
        left, at = x + GAP + number % SIDE * (BOX + GAP), top + number // SIDE * (ROW + GAP)
        holds_loop = "while" in kernel
        fill = "#cfe8cf" if holds_loop else "#dbe7f3"
        parts.append(f'<rect x="{left:g}" y="{at:g}" width="{BOX}" height="{ROW}" rx="4" fill="{fill}" stroke="#456"/>')
        parts.append(_text(left + BOX / 2, at + 16, _name(kernel), ' text-anchor="middle" font-size="10"'))
    height = rows * (ROW + GAP)
    if len(group.kernels) > MOST:
        parts.append(_text(x + GAP, top + height + 10, f"and {len(group.kernels) - MOST} more"))
        height += 18
    if is_loop:
        height += 22
        size = f'width="{SIDE * (BOX + GAP) + GAP}" height="{height:g}"'
        frame = f'<rect x="{x:g}" y="{y:g}" {size} rx="6" fill="none" stroke="#a33" stroke-dasharray="5 3"/>'
        parts = [frame, _text(x + GAP, y + 15, f"{group.times:,} times", ' fill="#a33"'), *parts]
    return parts, height + GAP


def merged(groups: Sequence[Group]) -> list[Group]:
    """Kernels that are launched equally often as one group, the rarest first: a loop's condition is in its round."""
    together: dict[int, tuple[str, ...]] = {}
    for group in groups:
        together[group.times] = together.get(group.times, ()) + group.kernels
    return [Group(often, together[often]) for often in sorted(together)]


def kernels(title: str, sides: Sequence[tuple[str, Counts]]) -> str:
    """A picture of a program: for each way to fuse it a column, in which each box is a kernel and each dashed frame a
    loop whose round launches what is in it. A green box holds the loop itself."""
    column = SIDE * (BOX + GAP) + GAP + 24
    parts, most = [_text(12, 22, title, ' font-size="15"')], 0.0
    for number, (name, counts) in enumerate(sides):
        x, y = 12 + number * column, 66.0
        plural = "" if counts.launches == 1 else "es"
        parts.append(_text(x, 48, f"{name}: {counts.launches:,} launch{plural}", ' font-weight="bold"'))
        for group in merged(counts.groups):
            made, height = _group(group, x, y)
            parts += made
            y += height
        most = max(most, y)
    return _svg(12 + len(sides) * column, most + 8, parts)


@dataclass(frozen=True)
class Line:
    """Points of one name, joined; `dashed` where they are not measured."""

    name: str
    points: tuple[tuple[float, float], ...]
    dashed: bool = False


@dataclass(frozen=True)
class Panel:
    """Lines over common axes."""

    title: str
    lines: tuple[Line, ...]


def _powers(low: float, high: float) -> list[int]:
    return list(range(math.floor(math.log10(low) + 1e-9), math.ceil(math.log10(high) - 1e-9) + 1))


def _power(exponent: int) -> str:
    names = {3: "thousand", 6: "million", 9: "billion", 12: "trillion"}
    if exponent < 3:
        return f"{10**exponent}"
    whole = max(e for e in names if e <= exponent)
    return f"{10 ** (exponent - whole)} {names[whole]}"


def chart(panels: Sequence[Panel], x_title: str, y_title: str) -> str:
    """Panels beside each other with the same two logarithmic axes, and below them what the colours mean."""
    points = [p for panel in panels for line in panel.lines for p in line.points]
    if not points or min(min(p) for p in points) <= 0:
        raise ValueError("logarithmic axes take positive numbers only")
    xs, ys = (_powers(min(p[k] for p in points), max(p[k] for p in points)) for k in (0, 1))
    xs, ys = (axis if len(axis) > 1 else [axis[0], axis[0] + 1] for axis in (xs, ys))
    width, height, left, top = 330, 260, 90, 50

    def place(x: float, y: float, start: float) -> tuple[float, float]:
        along = (math.log10(x) - xs[0]) / (xs[-1] - xs[0])
        up = (math.log10(y) - ys[0]) / (ys[-1] - ys[0])
        return round(start + along * width, 1), round(top + (1 - up) * height, 1)

    parts = [_text(12, 20, y_title)]
    colours: dict[str, str] = {}
    for number, panel in enumerate(panels):
        start = left + number * (width + 30)
        parts.append(_text(start, top - 10, panel.title, ' font-weight="bold"'))
        parts.append(f'<rect x="{start}" y="{top}" width="{width}" height="{height}" fill="none" stroke="#999"/>')
        for exponent in ys:
            _, y = place(10.0 ** xs[0], 10.0**exponent, start)
            parts.append(f'<line x1="{start}" x2="{start + width}" y1="{y:g}" y2="{y:g}" stroke="#ddd"/>')
            if not number:
                parts.append(_text(start - 6, y + 4, _power(exponent), ' text-anchor="end" font-size="11"'))
        for exponent in xs:
            x, _ = place(10.0**exponent, 10.0 ** ys[0], start)
            parts.append(f'<line x1="{x:g}" x2="{x:g}" y1="{top}" y2="{top + height}" stroke="#ddd"/>')
            parts.append(_text(x, top + height + 16, f"{10**exponent:,}", ' text-anchor="middle" font-size="11"'))
        for line in panel.lines:
            colour = colours.setdefault(line.name, COLOURS[len(colours) % len(COLOURS)])
            path = " ".join("{:g},{:g}".format(*place(x, y, start)) for x, y in line.points)
            dashes = ' stroke-dasharray="6 4"' if line.dashed else ""
            parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"{dashes}/>')
    below = top + height + 36
    parts.append(_text(left, below, x_title))
    dashed = {line.name for panel in panels for line in panel.lines if line.dashed}
    for number, (name, colour) in enumerate(colours.items()):
        x, y = left + number % 2 * 340, below + 22 + number // 2 * 18
        dashes = ' stroke-dasharray="6 4"' if name in dashed else ""
        parts.append(f'<line x1="{x}" x2="{x + 28}" y1="{y - 4}" y2="{y - 4}" stroke="{colour}" '
                     f'stroke-width="2"{dashes}/>')  # fmt: skip
        parts.append(_text(x + 36, y, name))
    return _svg(left + len(panels) * (width + 30), below + 22 + math.ceil(len(colours) / 2) * 18, parts)


def crossing(one: Sequence[tuple[float, float]], other: Sequence[tuple[float, float]]) -> float | None:
    """Where the second of two lines over the same points first comes above the first, straight between points on
    logarithmic axes; nothing where it does not."""
    before: tuple[float, float] | None = None
    for (x, low), (_, high) in zip(one, other, strict=True):
        gap = math.log(high / low)
        if gap >= 0 and before is not None:
            at, was = before
            return math.exp(math.log(at) + (math.log(x) - math.log(at)) * was / (was - gap))
        if gap >= 0:
            return x
        before = (x, gap)
    return None
