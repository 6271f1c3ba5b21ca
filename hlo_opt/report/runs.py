"""What ran, what came out, and whether two modules agree."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hlo_opt.report.page import Page, Word, count, counted
from hlo_opt.runtime.compare import CheckReport
from hlo_opt.runtime.executable import Executable
from hlo_opt.runtime.memory import Array


def outputs_page(outputs: Sequence[Array]) -> Page:
    """Each output with its type, shape and values; large arrays are shown in part, as NumPy prints them."""
    page = Page()
    for number, array in enumerate(outputs):
        page.add(Word(f"out{number}", "bold"), f"  {array.dtype.name}[{','.join(map(str, array.shape))}]")
        for line in np.array2string(np.asarray(array), threshold=64, max_line_width=110).splitlines():
            page.add(f"  {line}")
    return page


def run_page(executable: Executable) -> Page:
    """The backend and why, launches, library calls and what had to fall back to NumPy."""
    report = executable.report()
    page = Page()
    page.add(f"backend {executable.backend}: {executable.why}")
    if executable.backend != "numpy":
        page.add(f"{counted(len(report['kernels']), 'kernel')}, launched {counted(report['launches'], 'time')}")
    for title in ("library", "fallbacks"):
        calls: dict[str, int] = report[title]
        if calls:
            page.add(f"{title}: " + ", ".join(f"{name} {number}" for name, number in calls.items()))
    return page


def check_page(result: CheckReport) -> Page:
    """Agreement and how close, or the first difference. Where no kernel of ours could run, this says so."""
    page = Page()
    verdict = Word("agrees", "green") if result.ok else Word("differs", "bold red")
    page.add("check: ", verdict, str(result).removeprefix("agrees").removeprefix("differs"))
    if result.backend == "numpy":
        page.add(
            "  notice: only the NumPy interpreter ran, no kernel did: install a C++ compiler (g++ or clang++) or use a GPU"
        )
    for output in result.outputs:
        if not output.ok and output.first is not None:
            total = int(np.prod(output.dimensions, dtype=np.int64))
            page.add(
                f"  out{output.output}: {count(output.differing)} of {count(total)} elements are off; first {output.first}"
            )
    return page
