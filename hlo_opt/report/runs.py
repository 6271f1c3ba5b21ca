"""What ran, what came out, how long it took, and whether two modules agree; the values of instructions that somebody
asked for, as they come up."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING

import numpy as np

from hlo_opt.analysis.targets import target_of
from hlo_opt.diag import UsageError, did_you_mean
from hlo_opt.evaluate.nans import ValueEvent
from hlo_opt.fusion.summary import kernels_of
from hlo_opt.ir import Module
from hlo_opt.ir.values import Array
from hlo_opt.ops.collective.module_devices import counts
from hlo_opt.ops.values import Dynamic
from hlo_opt.report.page import Page, Word, count, counted, microseconds, size
from hlo_opt.runtime.check.compare import CheckReport, how_they_differ
from hlo_opt.runtime.check.mistakes import BARELY, UNSEEN
from hlo_opt.runtime.differences import OutputReport
from hlo_opt.runtime.executable import Executable

if TYPE_CHECKING:
    from hlo_opt.runtime.measure.bench import Bench, Timing
    from hlo_opt.runtime.measure.profile import RunProfile


MOST_LINES = 40
"""Lines of one value that are shown."""


def value_lines(array: Array) -> list[str]:
    """The elements of an array, of a large one in part, as NumPy prints them: at most `MOST_LINES` lines, which may end
    with `...`."""
    items = 3 if array.ndim < 3 else 2 if array.ndim == 3 else 1
    text = np.array2string(np.asarray(array), threshold=64, edgeitems=items, max_line_width=110)
    lines = [line for line in text.splitlines() if line.strip()]
    return lines if len(lines) <= MOST_LINES else [*lines[: MOST_LINES - 1], "..."]


def outputs_page(outputs: Mapping[str, Array]) -> Page:
    """Each output with its key, type, shape and values; large arrays are shown in part."""
    page = Page()
    for key, array in outputs.items():
        page.add(Word(key, "bold"), f"  {array.dtype.name}[{','.join(map(str, array.shape))}]")
        for line in value_lines(array):
            page.add(f"  {line}")
    return page


def numpy_page(why: str, module: Module, is_free_of_nans: bool) -> Page:
    """The page that says that the interpreter ran, why, and on how many simulated devices."""
    page = Page()
    page.add(f"backend numpy: {why}")
    _add_devices(page, module)
    if is_free_of_nans:
        page.add("no NaN came up")
    return page


def _add_devices(page: Page, module: Module) -> None:
    replicas, partitions = counts(module)
    if replicas * partitions > 1:
        sizes = f"{counted(replicas, 'replica')} x {counted(partitions, 'partition')}"
        page.add(f"simulated {counted(replicas * partitions, 'device')}: {sizes}")


def run_page(executable: Executable) -> Page:
    """The backend and why, launches, library calls and what had to fall back to NumPy."""
    report = executable.report()
    page = Page()
    page.add(f"backend {executable.backend}: {executable.why}")
    _add_devices(page, executable.module)
    if executable.backend != "numpy":
        texts = (
            f"{counted(len(report['kernels']), 'generated kernel text')}, launched "
            f"{counted(report['launches'], 'time')}"
        )
        kernels = kernels_of(executable.module, target_of(executable.module))
        page.add(f"{counted(len(kernels), 'kernel')}; {texts}")
    graphs = report.get("graphs", {})
    if graphs and (graphs["loops"] or graphs["stretches"]):
        lines = f"{counted(graphs['loops'], 'loop')} and {counted(graphs['stretches'], 'straight line')}"
        page.add(
            f"CUDA graphs of {lines} made {count(graphs['replayed'])} of these, on "
            f"{counted(graphs['streams'], 'stream')}"
        )
    for title in ("library", "fallbacks"):
        calls: dict[str, int] = report[title]
        if calls:
            page.add(f"{title}: " + ", ".join(f"{name} {number}" for name, number in calls.items()))
    return page


def check_page(result: CheckReport) -> Page:
    """Agreement and how close it is, output by output where they are not equal, or the first difference. Where no
    kernel of ours could run, this says so."""
    page = Page()
    verdict = Word("agrees", "green") if result.ok else Word("differs", "bold red")
    page.add("check: ", verdict, str(result).removeprefix("agrees").removeprefix("differs"))
    if result.backend == "numpy":
        page.add(
            "  notice: only the NumPy interpreter ran, no kernel did: install a C++ compiler (g++ or clang++) or use a "
            "GPU"
        )
    if result.note:
        page.add(f"  notice: {result.note}")
    if len(result.forms) > 1 and result.wrong == ("lanes",):
        where = f": {result.kernel}" if result.kernel else ""
        page.add(
            f"  notice: the CUDA text is right; wrong is its form for vector units, which run, bench and the JAX hook "
            f"use{where}"
        )
    if result.rewritten:
        page.add("  notice: the two modules compute in different ways; roundings at other places are allowed")
    if result.ok:
        _add_unreached(page, result)
    shown = [o for o in result.outputs if not o.ok or o.weak or o.rounded]
    for output in shown[:MOST_LINES]:
        page.add(f"  out{output.output}: ", *_output_words(output))
    if len(shown) > MOST_LINES:
        page.add(f"  and {counted(len(shown) - MOST_LINES, 'output')} more")
    return page


MOST_NAMES = 6
"""Instructions that are named of those that no inputs drove one way."""


def _add_unreached(page: Page, result: CheckReport) -> None:
    """What the drawn inputs did not make the program do, and mistakes that they would not show, instruction by
    instruction."""
    if result.trials:
        sets = counted(result.draws, "set") + " of inputs"
        unseen = sum(way.words.startswith(UNSEEN) for way in result.unreached)
        page.add(
            f"  {sets}; of {counted(result.trials, 'mistake')} tried in the original, {count(unseen)} would not be "
            f"noticed"
        )
    by_words: dict[str, list[str]] = {}
    for way in result.unreached:
        by_words.setdefault(way.words, []).append(way.place())
    for words, places in by_words.items():
        more = f" and {count(len(places) - MOST_NAMES)} more" if len(places) > MOST_NAMES else ""
        what = words if words.startswith((UNSEEN, BARELY)) else f"not reached, {words}"
        page.add(f"  {what}: {', '.join(places[:MOST_NAMES])}{more}")


def _output_words(output: OutputReport) -> list[str | Word]:
    total = output.elements
    if not output.ok:
        first = "" if output.first is None else f"; first {output.first}"
        return [f"{count(output.differing)} of {count(total)} elements are off{first}"]
    words: list[str | Word] = ["equal"]
    if output.rounded:
        share = f"{100 * output.share:.0f} %" if output.share >= 0.01 else "less than 1 %"
        words = [
            f"largest difference {output.max_error:.3g} (relative {output.max_relative:.2g}); {share} of the allowed "
            f"rounding error, "
            f"{counted(output.rounded, 'element')} {how_they_differ(output.rounded, output.max_ulp)}"
        ]
    if output.set_aside:
        words.append(f"; {count(output.set_aside)} of {count(total)} set aside, as they hang on ties")
    if output.weak:
        words += ["; ", Word("weak", "yellow"), f": {output.weak}"]
    return words


class TracedInstructions:
    """Which instructions of a module are traced, and which of them have been seen.

    A name stands for the instructions of that name in all computations; a `%` before it is left out. Raises UsageError,
    naming the nearest, for a name that the module does not have.
    """

    def __init__(self, module: Module, names: Sequence[str]) -> None:
        known = {i.name for c in module.computations for i in c.instructions}
        self._names: dict[str, bool] = {}
        self._devices = int(np.prod(counts(module)))
        for name in names:
            plain = name.removeprefix("%")
            if plain not in known:
                hint = (
                    did_you_mean(plain, known) or "--trace takes the name of an instruction; hlo-opt print shows them"
                )
                raise UsageError(f"there is no instruction {plain!r}", hint=hint)
            self._names[plain] = False

    def page(self, event: ValueEvent) -> Page | None:
        """What is said about an evaluation; None for an instruction that is not traced."""
        name = event.instruction.name
        if name not in self._names:
            return None
        self._names[name] = True
        page = Page()
        where = event.place() + (f", device {event.device}" if self._devices > 1 else "")
        for path, leaf in _leaves(event.value):
            array = leaf.used if isinstance(leaf, Dynamic) else np.asarray(leaf)
            kind = f"  {array.dtype.name}[{','.join(map(str, array.shape))}]  "
            page.add(Word(f"{name}{path}", "bold"), kind, Word(f"in {where}", "dim"))
            for line in value_lines(array):
                page.add(f"  {line}")
        if not page.lines:
            page.add(Word(name, "bold"), "  ()  ", Word(f"in {where}", "dim"))
        return page

    def rest(self) -> Page:
        """The names that never came up."""
        page = Page()
        for name, is_seen in self._names.items():
            if not is_seen:
                page.add(
                    f"{name} was not evaluated: no output needs it, or its computation runs as one NumPy operation"
                )
        return page


def _leaves(value: object) -> list[tuple[str, object]]:
    """The arrays of a value, each with its place in the tuple: `{1,0}`, as HLO writes it."""
    leaves: list[tuple[str, object]] = []
    todo: list[tuple[tuple[int, ...], object]] = [((), value)]
    while todo:
        place, top = todo.pop()
        if isinstance(top, tuple):
            todo.extend(((*place, k), top[k]) for k in reversed(range(len(top))))
        else:
            leaves.append((f"{{{','.join(map(str, place))}}}" if place else "", top))
    return leaves


MOST_ROWS = 30


def profile_page(profile: RunProfile) -> Page:
    """Time, bytes and bandwidth of each kernel, and its share of what a plain copy reaches on the device."""
    page = Page()
    rows = profile.rows()
    copied = f"a copy reaches {size(profile.copy_bandwidth)}/s"
    page.add(
        f"{counted(len(profile.events), 'event')} in {microseconds(profile.microseconds)} on {profile.device}; {copied}"
    )
    cells = [("instruction", "kernel", "times", "time", "bytes", "bandwidth", "of copy", "")]
    for row in rows[:MOST_ROWS]:
        name = re.sub(r"_[0-9a-f]{8,}$", "", row.name) if row.kind == "kernel" else f"{row.name} (library)"
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
                f"{100 * profile.share(row):.0f} %",
                row.source,
            )
        )
    page.table(cells, right=frozenset({2, 3, 4, 5, 6}), indent=2)
    if len(rows) > MOST_ROWS:
        page.add(f"  and {len(rows) - MOST_ROWS} more, which the file lists")
    if any(profile.share(row) > 1 for row in rows[:MOST_ROWS]):
        page.add("  over 100 %: the data was in a cache; the copy is of an array that fits in none")
    if profile.left_out:
        page.add(f"  {counted(profile.left_out, 'later launch')} not timed")
    return page


def bench_page(timing: Bench) -> Page:
    """The table of `bench`."""
    page = Page()
    page.add(f"{timing.module} on {timing.backend} ({timing.why}), {timing.device}")
    page.add(f"{counted(timing.rounds, 'round')}, the variants in turn; median, and the quartiles around it")
    page.add(f"cold: {timing.cold}; warm: straight after another run")
    if timing.devices > 1:
        page.add(f"{timing.devices} simulated devices take turns: launches, bytes and times are those of all together")
    cells = [("", "kernels", "launches", "library", "bytes", "cold", "", "warm", "", "of copy")]
    for v in timing.variants:
        counts = (v.name, str(v.kernels), str(v.launches), str(v.library), size(v.count))
        times = (microseconds(v.cold.median), _spread(v.cold), microseconds(v.warm.median), _spread(v.warm))
        cells.append((*counts, *times, f"{100 * timing.share(v):.0f} %"))
    page.table(cells, right=frozenset({1, 2, 3, 4, 5, 7, 9}), indent=2)
    page.add(f"a plain copy reads and writes {size(timing.copy_bandwidth)}/s")
    if not timing.speaks_for_target:
        page.add(
            f"  these are times of this CPU and do not speak for {timing.target or 'a GPU'}; `hlo-opt stats` estimates "
            f"those"
        )
    if len(timing.variants) > 1:
        first, last = timing.variants[0].name, timing.variants[-1].name
        gains = (f"{timing.gain(state):.2f} x {state}" for state in ("cold", "warm"))
        page.add(f"{last} against {first}: {', '.join(gains)}")
        noisy = [state for state in ("cold", "warm") if not timing.is_clear(state)]
        if noisy:
            page.add(
                f"  warning: {' and '.join(noisy)}: the quartiles overlap, so the difference may be noise; run it "
                f"again, or on a quiet machine"
            )
    return page


def _spread(timing: Timing) -> str:
    return f"({microseconds(timing.low)} .. {microseconds(timing.high)})"


def bench_svg(bench: Bench) -> str:
    """A bar chart: per variant the median with its quartiles, cold and warm, and the time that a copy of as many bytes
    takes."""
    width, left, row, top = 760, 150, 26, 64
    bars = _bars(bench)
    scale = (width - left - 150) / (max(high for *_, high in bars) or 1.0)
    height = top + len(bars) * row + 40
    below = f"{bench.backend}, {bench.device}; median and quartiles of {bench.rounds} rounds"
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" '
        f'font-size="13">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="12" y="24" font-size="16">{_text(bench.module)}</text>',
        f'<text x="12" y="44" fill="#555">{_text(below)}</text>',
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


def _bars(bench: Bench) -> list[tuple[str, str, float, float, float]]:
    """Label, colour, median, lower and upper end of each bar."""
    bars = []
    for variant in bench.variants:
        for state, colour in (("cold", "#1f77b4"), ("warm", "#ff7f0e")):
            timing: Timing = getattr(variant, state)
            bars.append((f"{variant.name}, {state}", colour, timing.median, timing.low, timing.high))
        time = bench.at_copy_speed(variant)
        bars.append(("copy of its bytes", "#7f7f7f", time, time, time))
    return bars


def _text(text: str) -> str:
    """Text inside SVG: markup escaped, characters that XML forbids replaced, at most 100 characters."""
    shown = "".join(c if c.isprintable() else "?" for c in text[:100])
    return escape(shown)


def bench_png(bench: Bench) -> bytes:
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

    figure, axes = pyplot.subplots(figsize=(8, 1.5 + 0.7 * len(bench.variants)))
    bars = _bars(bench)
    for number, (_, colour, middle, low, high) in enumerate(bars):
        axes.barh(-number, middle, color=colour, xerr=[[middle - low], [high - middle]], capsize=3)
    # a dollar sign would start a formula
    axes.set_yticks([-n for n in range(len(bars))], [label.replace("$", r"\$") for label, *_ in bars])
    axes.set_xlabel("microseconds")
    axes.set_title(f"{bench.module[:80]} on {bench.device}".replace("$", r"\$"))
    figure.tight_layout()
    stream = io.BytesIO()
    figure.savefig(stream, format="png", dpi=120, metadata={"Software": None})
    pyplot.close(figure)
    return stream.getvalue()
