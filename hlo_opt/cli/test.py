"""`hlo-opt test`: golden and FileCheck files."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import click

from hlo_opt.cli.files import show
from hlo_opt.cli.options import Seconds, Whole

if TYPE_CHECKING:
    from hlo_opt.cli.golden.execute import Result
    from hlo_opt.report.page import Page


LONGEST = 86_400
"""The largest limit for one file, in seconds."""


@click.command("test")
@click.argument("path", metavar="DIR|FILE...", nargs=-1, required=True)
@click.option("--update", is_flag=True, help="Rewrite goldens that differ. CHECK lines stay as they are.")
@click.option(
    "--jobs",
    "-j",
    metavar="N",
    type=Whole(min=1),
    help="Run files in N processes.  [default: as many as processors]",
)
@click.option(
    "--timeout",
    metavar="SECONDS",
    type=Seconds(min=0, max=LONGEST),
    default=60.0,
    show_default=True,
    help="The limit for one file; 0 sets none.",
)
@click.option("-v", "--verbose", is_flag=True, help="Name the files that pass, too.")
def test_command(path: tuple[str, ...], update: bool, jobs: int | None, timeout: float, verbose: bool) -> int:
    """Run the golden files of each DIR, or each FILE, and show where their output differs from the expected one. Exit
    status 1 when one does.

    A golden file has `// RUN: hlo-opt ...` lines, whose output goes to `| FileCheck %s` and is matched with the file's
    CHECK lines, or to a golden next to it: NAME.golden.hlo (.txt, .json) for NAME.hlo. A NAME.hlo with a golden and no
    RUN line stands for `hlo-opt fuse NAME.hlo`.

    RUN lines never reach a shell. They may call the verbs that read and print, on files below DIR, and write nothing.
    """
    from hlo_opt.cli.golden.commands import find_cases
    from hlo_opt.cli.golden.execute import check_available, execute_all

    cases = find_cases(path)
    check_available(cases)
    counts: Counter[str] = Counter()
    for result in execute_all(cases, update=update, timeout=timeout, jobs=jobs):
        counts[result.status] += 1
        if verbose or result.status != "passed":
            show(_page(result))
    show(_summary(counts))
    return 1 if counts["failed"] else 0


_STYLES = {"passed": "green", "updated": "yellow", "failed": "bold red"}
_ROWS = {"+++": "bold", "---": "bold", "@@ ": "cyan"}


def _page(result: Result) -> Page:
    from hlo_opt.report.page import Page, Word

    page = Page()
    shown = result.written if result.written is not None else result.path
    page.add(Word(result.status, _STYLES[result.status]), f" {shown}")
    for line in result.why:
        page.add(f"  {line}")
    for line in result.difference:
        style = _ROWS.get(line[:3]) or {"+": "green", "-": "red"}.get(line[:1], "")
        page.add("  ", Word(line, style))
    return page


def _summary(counts: Counter[str]) -> Page:
    from hlo_opt.report.page import Page, Word, count

    page = Page()
    parts = [Word(f"{count(counts[status])} {status}", _STYLES[status]) for status in _STYLES if counts[status]]
    words: list[str | Word] = []
    for part in parts:
        words += [", ", part] if words else [part]
    page.add(*words)
    return page
