"""`hlo-opt fuse --jobs N DIR`: all modules of a folder, several at once, and one table at the end."""

from __future__ import annotations

import collections
import contextlib
import itertools
import json
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from pathlib import Path

from hlo_opt.cli import failure, files
from hlo_opt.cli.folders import every
from hlo_opt.cli.fusing import Fusing
from hlo_opt.cli.progress import bar
from hlo_opt.diag import HloOptError, UsageError
from hlo_opt.passes.run import collector_paused
from hlo_opt.report.page import Page, Word, count, counted, microseconds, size
from hlo_opt.report.summary import stats_json
from hlo_opt.text import parse, verify
from hlo_opt.tune.workers import StartedCall, cluster, processes

AHEAD = 64
"""Modules that a scheduler is sent before the first one is done: more would only lie in memory."""


@dataclass(frozen=True)
class FleetTask:
    """How each module is read and fused, and whether its text is wanted."""

    fusing: Fusing
    max_errors: int
    allow_unknown: bool
    wants_text: bool


@dataclass
class Fused:
    """What came of a file: the figures that `--stats` writes, the fused text where it is wanted, and errors."""

    file: str
    stats: dict[str, object] = field(default_factory=dict)
    text: str = ""
    errors: list[HloOptError] = field(default_factory=list)
    seconds: float = 0.0
    fault: str = ""
    """An internal error."""


def fuse_text(name: str, text: str, order: FleetTask) -> Fused:
    """Fuse a module, in any process. What fails is told in the result."""
    started = time.perf_counter()
    result = Fused(name)
    try:
        with collector_paused():
            module = parse(text, filename=name, max_errors=order.max_errors)
            verify(module, order.allow_unknown, order.max_errors)
            report = order.fusing.run(module)
            result.stats = stats_json(report)
            result.text = str(report.outcome.module) if order.wants_text else ""
            result.errors = list(order.fusing.budget.exceeded(report))
    except HloOptError as error:
        result.errors.append(error)
    except Exception as error:  # a fault of ours in one module does not stop the others
        result.fault = f"{type(error).__name__}: {error}"
    result.seconds = time.perf_counter() - started
    return result


def fuse_folder(
    folder: str, output: str | None, order: FleetTask, jobs: int | None, scheduler: str | None, stats_file: str | None
) -> int:
    """Fuse the modules of a folder, write each into a folder as soon as it is done, and show the table. Returns the
    exit status, that of the worst file; Ctrl-C ends it with what is done."""
    names = every(Path(folder))
    places = {} if output is None else _places(names, folder, output)
    done: list[Fused] = []
    is_stopped = False
    jobs = min(jobs or os.cpu_count() or 1, len(names))
    with failure.saving():
        try:
            with _workers(jobs, scheduler) as executor, bar("fuse", len(names)) as step:
                ahead = 1 if executor is None else AHEAD if scheduler is not None else 2 * jobs
                for result in _in_order(executor, names, order, ahead):
                    if output is not None and result.text:
                        files.write_text(str(places[result.file]), result.text)
                    result.text = ""
                    done.append(result)
                    step(len(done), Path(result.file).name)
        except KeyboardInterrupt:
            is_stopped = True
    status = max(itertools.chain(map(_told, done), (failure.INTERRUPTED,) * is_stopped), default=0)
    files.show(table(folder, done, len(names)))
    if stats_file is not None:
        files.write_text(stats_file, json.dumps(list(map(_json, done)), indent=2) + "\n")
    return status


def _workers(jobs: int, scheduler: str | None) -> contextlib.AbstractContextManager[Executor | None]:
    if scheduler is not None:
        return cluster(scheduler)
    return processes(jobs) if jobs > 1 else contextlib.nullcontext(None)


def _in_order(executor: Executor | None, names: Sequence[Path], order: FleetTask, ahead: int) -> Iterator[Fused]:
    """The results in the order of the files; a file is read when its module is soon wanted."""
    waiting = collections.deque[StartedCall[Fused]]()
    for path in names:
        waiting.append(_begun(executor, path, order))
        if len(waiting) >= ahead:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


def _begun(executor: Executor | None, path: Path, order: FleetTask) -> StartedCall[Fused]:
    try:
        source = files.read_text(str(path))
    except HloOptError as error:
        failed = Fused(str(path), errors=[error])
        return StartedCall(lambda: failed)
    finally:
        files.TEXTS_READ.clear()
    return StartedCall.of(executor, fuse_text, str(path), source.text, order)


def _places(names: Iterable[Path], folder: str, output: str) -> dict[str, Path]:
    """Where each module is written. Makes the folder. Raises UsageError for a place that cannot be one."""
    into = Path(output)
    if output == files.STANDARD or (into.exists() and not into.is_dir()):
        raise UsageError("-o takes a folder for the modules of a folder", filename=output)
    if os.path.realpath(output) == os.path.realpath(folder):
        raise UsageError("-o needs another folder: the modules would be overwritten", filename=output)
    try:
        into.mkdir(exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot write: {error.strerror or error}", filename=output) from None
    places: dict[str, Path] = {}
    for path in names:
        stem = path.name.partition(".hlo")[0] if ".hlo" in path.name else path.stem
        place = into / f"{stem}.hlo"
        places[str(path)] = place if place not in places.values() else into / f"{path.name}.hlo"
    return places


def _told(result: Fused) -> int:
    """Say what failed. Returns the exit status of the file."""
    if result.fault:
        failure.say(f"{result.file}: internal error: {result.fault}; hlo-opt fuse on this file alone saves a report")
        return 2
    statuses = []
    for error in result.errors:
        if error.filename is None:
            error.filename = result.file
        statuses.append(failure.report_error(error))
    return max(statuses, default=0)


def _figures(result: Fused, side: str) -> dict[str, float]:
    stats = result.stats[side]
    assert isinstance(stats, dict)
    return stats


def table(folder: str, done: Sequence[Fused], total: int) -> Page:
    """A row for each file, with its figures before and after, or the code of its error; and all of them together."""
    page = Page()
    page.add(Word(folder, "bold"), f": {counted(len(done), 'module')}{f' of {total}' * (len(done) < total)}")
    rows: list[list[str | Word]] = [
        ["", "kernels", "fused", "bytes", "fused", "estimated", "fused", "seconds", ""],
    ]
    fused = [result for result in done if result.stats]
    for result in done:
        codes = ", ".join(dict.fromkeys(error.code for error in result.errors))
        figures = _row([result]) if result.stats else [""] * 6
        wrong = Word("internal error" if result.fault else codes, "red")
        rows.append([Path(result.file).name, *figures, f"{result.seconds:.2f}", wrong])
    if len(fused) > 1:
        seconds = f"{sum(result.seconds for result in done):.2f}"
        failed = sum(bool(result.errors or result.fault) for result in done)
        rows.append(["together", *_row(fused), seconds, f"{count(failed)} with errors" if failed else ""])
    page.table(rows, right=frozenset(range(1, 8)), indent=2)
    return page


def _row(results: Sequence[Fused]) -> list[str | Word]:
    """Kernels, bytes and microseconds before and after, added up."""
    row: list[str | Word] = []
    for key, shown in (("kernels", count), ("bytes", size), ("est_us", microseconds)):
        before, after = (sum(_figures(result, side)[key] for result in results) for side in ("before", "after"))
        row += [shown(before), Word(shown(after), "bold")]
    return row


def _json(result: Fused) -> dict[str, object]:
    errors = [{"code": error.code, "message": error.message} for error in result.errors]
    return {"file": result.file, **result.stats, "errors": errors, "fault": result.fault or None}
