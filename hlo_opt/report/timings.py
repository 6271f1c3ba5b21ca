"""What `run --profile` and `bench` found, as tables and as a plot."""

from __future__ import annotations

import re
from html import escape
from typing import TYPE_CHECKING

from hlo_opt.diag import UsageError
from hlo_opt.report.page import Page, counted, microseconds, size

if TYPE_CHECKING:
    from hlo_opt.runtime.measure.bench import Bench, Timing
    from hlo_opt.runtime.measure.profile import Profile

MOST_ROWS = 30


def profile_page(found: Profile) -> Page:
    """Time, bytes and bandwidth of each kernel, and its share of what a plain copy reaches on the device."""
    page = Page()
    rows = found.rows()
    copied = f"a copy reaches {size(found.copy_bandwidth)}/s"
    page.add(f"{counted(len(found.events), 'event')} in {microseconds(found.microseconds)} on {found.device}; {copied}")
    cells = [("instruction", "kernel", "times", "time", "bytes", "bandwidth", "of copy", "")]
    for row in rows[:MOST_ROWS]:
        name = _without_hash(row.name) if row.kind == "kernel" else f"{row.name} (library)"
        others = f" and {row.others} more" if row.others else ""
        speed = f"{size(row.bandwidth)}/s"
        cells.append(
            (
                row.instruction + others,
                name,
                str(row.launches),
                microseconds(row.microseconds),
                size(row.count),
                speed,
                f"{100 * found.share(row):.0f} %",
                row.source,
            )
        )
    page.table(cells, right=frozenset({2, 3, 4, 5, 6}), indent=2)
    if len(rows) > MOST_ROWS:
        page.add(f"  and {len(rows) - MOST_ROWS} more, which the file lists")
    if found.left_out:
        page.add(f"  {counted(found.left_out, 'later launch')} not timed")
    return page


def _without_hash(symbol: str) -> str:
    """A kernel's kind and root: `loop_multiply` of `loop_multiply_69c8d6a7e2555f58`, which the trace names it by."""
    return re.sub(r"_[0-9a-f]{8,}$", "", symbol)


def bench_page(found: Bench) -> Page:
    """The table of `bench`."""
    page = Page()
    page.add(f"{found.module} on {found.backend} ({found.why}), {found.device}")
    page.add(f"{counted(found.rounds, 'round')}, the variants in turn; median, and the quartiles around it")
    page.add(f"cold: {found.cold}; warm: straight after another run")
    if found.devices > 1:
        page.add(f"{found.devices} simulated devices take turns: launches, bytes and times are those of all together")
    cells = [("", "kernels", "launches", "library", "bytes", "cold", "", "warm", "", "of copy")]
    for v in found.variants:
        counts = (v.name, str(v.kernels), str(v.launches), str(v.library), size(v.count))
        times = (microseconds(v.cold.median), _spread(v.cold), microseconds(v.warm.median), _spread(v.warm))
        cells.append((*counts, *times, f"{100 * found.share(v):.0f} %"))
    page.table(cells, right=frozenset({1, 2, 3, 4, 5, 7, 9}), indent=2)
    page.add(f"a plain copy reads and writes {size(found.copy_bandwidth)}/s")
    if len(found.variants) > 1:
        first, last = found.variants[0].name, found.variants[-1].name
        gains = (f"{found.gain(state):.2f} x {state}" for state in ("cold", "warm"))
        page.add(f"{last} against {first}: {', '.join(gains)}")
        noisy = [state for state in ("cold", "warm") if not found.is_clear(state)]
        if noisy:
            page.add(
                f"  {' and '.join(noisy)}: the quartiles overlap, so the difference may be noise; run it again, or on a quiet machine"
            )
    return page


def _spread(timing: Timing) -> str:
    return f"({microseconds(timing.low)} .. {microseconds(timing.high)})"


def bench_svg(found: Bench) -> str:
    """A bar chart: per variant the median with its quartiles, cold and warm, and the time that a copy of as many bytes takes."""
    width, left, row, top = 760, 150, 26, 64
    bars = _bars(found)
    scale = (width - left - 150) / (max(high for *_, high in bars) or 1.0)
    height = top + len(bars) * row + 40
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" font-size="13">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="12" y="24" font-size="16">{_text(found.module)}</text>',
        f'<text x="12" y="44" fill="#555">{_text(f"{found.backend}, {found.device}; median and quartiles of {found.rounds} rounds")}</text>',
    ]
    for number, (label, colour, middle, low, high) in enumerate(bars):
        y = top + number * row
        out.append(f'<text x="{left - 8}" y="{y + 16}" text-anchor="end">{_text(label)}</text>')
        out.append(f'<rect x="{left}" y="{y + 4}" width="{middle * scale:.1f}" height="{row - 9}" fill="{colour}"/>')
        if high > low:
            line = f'y1="{y + row / 2:.1f}" y2="{y + row / 2:.1f}" stroke="black"'
            out.append(f'<line x1="{left + low * scale:.1f}" x2="{left + high * scale:.1f}" {line}/>')
        at = left + max(middle, high) * scale + 8
        out.append(f'<text x="{at:.1f}" y="{y + 16}">{_text(microseconds(middle))}</text>')
    out.append("</svg>\n")
    return "\n".join(out)


def _bars(found: Bench) -> list[tuple[str, str, float, float, float]]:
    """Label, colour, median, lower and upper end of each bar."""
    bars = []
    for variant in found.variants:
        for state, colour in (("cold", "#1f77b4"), ("warm", "#ff7f0e")):
            timing: Timing = getattr(variant, state)
            bars.append((f"{variant.name}, {state}", colour, timing.median, timing.low, timing.high))
        time = found.at_copy_speed(variant)
        bars.append(("copy of its bytes", "#7f7f7f", time, time, time))
    return bars


def _text(text: str) -> str:
    """Text inside SVG: markup escaped, characters that XML forbids replaced, at most 100 characters."""
    shown = "".join(c if c.isprintable() else "?" for c in text[:100])
    return escape(shown)


def bench_png(found: Bench) -> bytes:
    """The same chart by matplotlib. Raises UsageError where that is not installed."""
    try:
        import matplotlib
    except ImportError:
        raise UsageError(
            "a PNG needs matplotlib",
            code="HLO340",
            hint="pip install 'hlo-opt[plot]', or name a file that ends in .svg",
        ) from None
    import io

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 1.5 + 0.7 * len(found.variants)))
    bars = _bars(found)
    for number, (_, colour, middle, low, high) in enumerate(bars):
        axes.barh(-number, middle, color=colour, xerr=[[middle - low], [high - middle]], capsize=3)
    # a dollar sign would start a formula
    axes.set_yticks([-n for n in range(len(bars))], [label.replace("$", r"\$") for label, *_ in bars])
    axes.set_xlabel("microseconds")
    axes.set_title(f"{found.module[:80]} on {found.device}".replace("$", r"\$"))
    figure.tight_layout()
    stream = io.BytesIO()
    figure.savefig(stream, format="png", dpi=120, metadata={"Software": None})
    pyplot.close(figure)
    return stream.getvalue()
