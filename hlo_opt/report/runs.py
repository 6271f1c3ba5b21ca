"""What ran, what came out, and whether two modules agree."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from hlo_opt.fusion.summary import launched
from hlo_opt.ir import Module
from hlo_opt.ir.values import Array
from hlo_opt.ops.collective.module_devices import counts
from hlo_opt.report.page import Page, Word, count, counted
from hlo_opt.runtime.check.compare import CheckReport, how_they_differ
from hlo_opt.runtime.check.mistakes import UNSEEN
from hlo_opt.runtime.differences import OutputReport
from hlo_opt.runtime.executable import Executable

MOST_LINES = 40
"""Lines of one value that are shown."""


def value_lines(array: Array) -> list[str]:
    """The elements of an array, of a large one in part, as NumPy prints them: at most `MOST_LINES` lines, which may end with `...`."""
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
    """That the interpreter ran, why, and on how many simulated devices."""
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
        texts = f"{counted(len(report['kernels']), 'different text')} of ours, launched {counted(report['launches'], 'time')}"
        page.add(f"{counted(len(launched(executable.module)), 'kernel')}; {texts}")
    graphs = report.get("graphs", {})
    if graphs and (graphs["loops"] or graphs["stretches"]):
        lines = f"{counted(graphs['loops'], 'loop')} and {counted(graphs['stretches'], 'straight line')}"
        page.add(
            f"CUDA graphs of {lines} made {count(graphs['replayed'])} of these, on {counted(graphs['streams'], 'stream')}"
        )
    for title in ("library", "fallbacks"):
        calls: dict[str, int] = report[title]
        if calls:
            page.add(f"{title}: " + ", ".join(f"{name} {number}" for name, number in calls.items()))
    return page


def check_page(result: CheckReport) -> Page:
    """Agreement and how close it is, output by output where they are not equal, or the first difference. Where no kernel of ours could run, this says so."""
    page = Page()
    verdict = Word("agrees", "green") if result.ok else Word("differs", "bold red")
    page.add("check: ", verdict, str(result).removeprefix("agrees").removeprefix("differs"))
    if result.backend == "numpy":
        page.add(
            "  notice: only the NumPy interpreter ran, no kernel did: install a C++ compiler (g++ or clang++) or use a GPU"
        )
    if result.note:
        page.add(f"  notice: {result.note}")
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
    """What the drawn inputs did not make the program do, and mistakes that they would not show, instruction by instruction."""
    if result.trials:
        sets = counted(result.draws, "set") + " of inputs"
        unseen = sum(way.words.startswith(UNSEEN) for way in result.unreached)
        page.add(
            f"  {sets}; of {counted(result.trials, 'mistake')} tried in the original, {count(unseen)} would not be noticed"
        )
    by_words: dict[str, list[str]] = {}
    for way in result.unreached:
        by_words.setdefault(way.words, []).append(way.place())
    for words, places in by_words.items():
        more = f" and {count(len(places) - MOST_NAMES)} more" if len(places) > MOST_NAMES else ""
        page.add(f"  not reached, {words}: {', '.join(places[:MOST_NAMES])}{more}")


def _output_words(output: OutputReport) -> list[str | Word]:
    total = output.elements
    if not output.ok:
        first = "" if output.first is None else f"; first {output.first}"
        return [f"{count(output.differing)} of {count(total)} elements are off{first}"]
    words: list[str | Word] = ["equal"]
    if output.rounded:
        share = f"{output.share:.0%}" if output.share >= 0.01 else "less than 1%"
        words = [
            f"largest difference {output.max_error:.3g} (relative {output.max_relative:.2g}); {share} of the allowed rounding error, "
            f"{counted(output.rounded, 'element')} {how_they_differ(output.rounded, output.max_ulp)}"
        ]
    if output.set_aside:
        words.append(f"; {count(output.set_aside)} of {count(total)} set aside, as they hang on ties")
    if output.weak:
        words += ["; ", Word("weak", "yellow"), f": {output.weak}"]
    return words
