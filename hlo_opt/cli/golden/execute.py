"""Running golden files: the commands of each, in this process or a few others, and the comparison with what it
wants."""

from __future__ import annotations

import contextlib
import functools
import io
import multiprocessing
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from pathlib import Path
from types import FrameType
from typing import Literal

from hlo_opt.cli import files
from hlo_opt.cli.golden.commands import (
    GOLDENS,
    HLO_OPT,
    Case,
    RunLine,
    Stage,
    confined,
    default_line,
    first_check,
    first_golden,
    run_lines,
)
from hlo_opt.cli.golden.file_check import file_check
from hlo_opt.diag import EvaluationError, HloOptError, Source, UsageError
from hlo_opt.evaluate.threads import processors


@dataclass(frozen=True)
class Captured:
    """What a command gave: exit status, stdout (with stderr in it where both were merged) and stderr, as text with
    `\\n` ends."""

    status: int
    out: str
    err: str


class TimedOutError(BaseException):
    """A case took too long. Not an Exception, so that nothing on the way takes it for a failure of its own."""


def run_captured(arguments: Sequence[str], stdin: str = "", *, merged: bool = False) -> Captured:
    """Run `hlo-opt` with these arguments. `stdin` is its standard input; `merged` sends stderr the way of stdout."""
    from hlo_opt.cli import files, group

    files.TEXTS_READ.clear()  # what was read up to now has nothing to do with what comes
    out = io.BytesIO()
    err = out if merged else io.BytesIO()
    streams = [_text(io.BytesIO(stdin.encode("utf-8", "surrogateescape"))), _text(out), _text(err)]
    streams_before = sys.stdin, sys.stdout, sys.stderr
    sys.stdin, sys.stdout, sys.stderr = streams
    try:
        status = group.run(list(arguments))
    finally:
        sys.stdin, sys.stdout, sys.stderr = streams_before
        for stream in streams:
            stream.detach()
    return Captured(status, _decoded(out), "" if merged else _decoded(err))


def _text(stream: io.BytesIO) -> io.TextIOWrapper:
    return io.TextIOWrapper(stream, encoding="utf-8", errors="backslashreplace", newline="\n", write_through=True)


def _decoded(stream: io.BytesIO) -> str:
    return stream.getvalue().decode("utf-8", "backslashreplace").replace("\r\n", "\n")


@contextlib.contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """Raise TimedOutError when what is inside takes longer. 0 sets no limit, nor do systems and threads without timer
    signals."""
    if seconds <= 0 or not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        raise TimedOutError

    before = signal.signal(signal.SIGALRM, stop)
    started = time.monotonic()
    others, _ = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        if others > 0:  # somebody else's limit, of the test that this one is
            signal.setitimer(signal.ITIMER_REAL, max(others - (time.monotonic() - started), 1e-3))


CONTEXT = 3
MOST_COMPARED = 4_000_000
"""Product of both numbers of lines, common ends left out, up to which lines are matched up: that takes quadratic time
at worst."""

MOST_SHOWN = 160
"""Lines that are shown."""


def difference(expected: str, actual: str, expected_name: str, actual_name: str) -> list[str]:
    """The lines of a unified diff; empty when the texts are the same. Lines are not escaped."""
    if expected == actual:
        return []
    old, new = _lines(expected), _lines(actual)
    first = 0
    while first < min(len(old), len(new)) and old[first] == new[first]:
        first += 1
    last = 0
    while last < min(len(old), len(new)) - first and old[-1 - last] == new[-1 - last]:
        last += 1
    start = max(0, first - CONTEXT)
    end = max(0, last - CONTEXT)
    rows = [f"--- {expected_name}", f"+++ {actual_name}"]
    rows += _hunks(old[start : len(old) - end], new[start : len(new) - end], start)
    if len(rows) > MOST_SHOWN:
        rows = [*rows[:MOST_SHOWN], f"... {len(rows) - MOST_SHOWN} more lines"]
    return rows


def _lines(text: str) -> list[str]:
    """The lines; one that lacks its end says so, as in other diffs."""
    lines = text.split("\n")
    return lines[:-1] if not lines[-1] else [*lines, "\\ no newline at the end"]


def _hunks(old: Sequence[str], new: Sequence[str], start: int) -> list[str]:
    if len(old) * len(new) > MOST_COMPARED:
        return [_header(start, len(old), start, len(new)), *_interleaved(old, new)]
    rows: list[str] = []
    for group in SequenceMatcher(None, old, new, autojunk=False).get_grouped_opcodes(CONTEXT):
        _, a, _, b, _ = group[0]
        _, _, a_end, _, b_end = group[-1]
        rows.append(_header(start + a, a_end - a, start + b, b_end - b))
        for tag, i, i_end, j, j_end in group:
            if tag == "equal":
                rows += [f" {line}" for line in old[i:i_end]]
                continue
            rows += [f"-{line}" for line in old[i:i_end]]
            rows += [f"+{line}" for line in new[j:j_end]]
    return rows


def _interleaved(old: Sequence[str], new: Sequence[str]) -> list[str]:
    """The beginnings of two large texts, without matching their lines up."""
    half = MOST_SHOWN // 2
    return [*(f"-{line}" for line in old[:half]), *(f"+{line}" for line in new[:half])]


def _header(old: int, old_count: int, new: int, new_count: int) -> str:
    return f"@@ -{old + 1},{old_count} +{new + 1},{new_count} @@"


TIMEOUT = 60.0
"""The default limit for one file, in seconds."""

MOST_SAID = 40
"""Lines of what a failed command says that are shown."""

Status = Literal["passed", "failed", "updated"]


@dataclass(frozen=True)
class Result:
    """What came of a case: why it failed, and the difference to its golden. Lines are not escaped; `written` is the
    golden that was written."""

    path: Path
    status: Status
    why: tuple[str, ...] = ()
    difference: tuple[str, ...] = field(default=())
    written: Path | None = None

    def __str__(self) -> str:
        return "\n".join((*self.why, *self.difference))


class _FailedError(Exception):
    """A command or a check of a case failed, for these reasons."""

    def __init__(self, *why: str) -> None:
        super().__init__("\n".join(why))
        self.why = why


def execute(case: Case, *, update: bool = False, timeout: float = TIMEOUT) -> Result:
    """Run a case. With `update` its golden is written anew, whole or not at all, when it differs and every command
    succeeded."""
    try:
        with deadline(timeout):
            return _execute(case, update)
    except _FailedError as failed:
        return Result(case.path, "failed", failed.why)
    except TimedOutError:
        return Result(case.path, "failed", (f"{case.path}: took longer than {timeout:g} s",))
    except HloOptError as error:
        return Result(case.path, "failed", tuple(str(error).splitlines()))
    except OSError as error:
        return Result(case.path, "failed", (f"{error.filename or case.path}: {error.strerror or error}",))


def _execute(case: Case, update: bool) -> Result:
    if case.golden == case.path or case.path.name.endswith(GOLDENS):
        raise _FailedError(f"{case.path}: there is no module for this golden")
    text = files.read_text(str(case.path)).text
    lines = run_lines(Source(text, str(case.path)), case.path, case.root)
    golden = case.golden or (first_golden(case.path) if case.is_named and not lines else None)
    lines = lines or [default_line(case.path)]
    printing = [line for line in lines if not line.is_checked]
    if len(printing) == len(lines) and (unread := first_check(text)) is not None:
        raise _FailedError(f"{case.path}:{unread}: nothing reads this CHECK line: end a RUN line with `| FileCheck %s`")
    if golden is not None and len(printing) != 1:
        raise _FailedError(
            f"{case.path}: {golden.name} holds what one RUN line without FileCheck prints, and there are "
            f"{len(printing)}"
        )
    outputs = [_run(line, text, case) for line in lines]
    if golden is None:
        return Result(case.path, "passed")
    actual = outputs[lines.index(printing[0])]
    if update and golden.is_symlink() and not confined(str(golden), case.root):
        raise _FailedError(f"{golden}: leads out of the folder under test, and is not written")
    return compare(case.path, golden, actual, update)


def compare(path: Path, golden: Path, actual: str, update: bool) -> Result:
    """Compare what a case at `path` prints with its golden, or write the golden where `update` says so. Raises OSError,
    UsageError."""
    expected = golden.read_text(encoding="utf-8", errors="backslashreplace") if golden.is_file() else None
    if expected == actual:
        return Result(path, "passed")
    if update:
        files.write_text(str(golden), actual)
        return Result(path, "updated", written=golden)
    if expected is None:
        return Result(path, "failed", (f"{golden}: there is no golden yet; --update writes it",))
    rows = difference(expected, actual, str(golden), "what is printed now")
    return Result(path, "failed", (f"{path}: prints something else than {golden.name}",), tuple(rows))


def _run(line: RunLine, text: str, case: Case) -> str:
    """What the last command of a line prints. Raises _FailedError, UsageError."""
    stdin = ""
    for stage in line.stages:
        place = f"{case.path}:{line.line}: {stage}"
        if stage.program == HLO_OPT:
            captured = run_captured(stage.arguments, stdin, merged=stage.merged)
            _check_status(stage, captured, place)
            stdin = captured.out
            continue
        message = file_check(stage.arguments, stdin, case.path, case.root)
        if bool(message) != stage.negated:
            raise _FailedError(place, *(_indented(message) if message else ["  matches, and should not"]))
    return stdin


def _check_status(stage: Stage, captured: Captured, place: str) -> None:
    if (captured.status != 0) == stage.negated:
        return
    if stage.negated:
        raise _FailedError(place, "  succeeded, and should fail")
    raise _FailedError(place, f"  failed with exit status {captured.status}", *_indented(captured.err or captured.out))


def _indented(text: str) -> Sequence[str]:
    lines = text.rstrip("\n").splitlines()
    more = [f"  ... {len(lines) - MOST_SAID} more lines"] if len(lines) > MOST_SAID else []
    return [*(f"  {line}" for line in lines[:MOST_SAID]), *more]


def check_available(cases: Sequence[Case]) -> None:
    """Before anything runs: where some case asks for FileCheck, its package must be there. Raises UsageError, which
    says how to install it."""
    from hlo_opt.cli.golden.file_check import require_filecheck

    for case in cases:
        try:
            text = case.path.read_text(encoding="utf-8", errors="replace")
            lines = run_lines(Source(text, str(case.path)), case.path, case.root)
        except (OSError, UsageError):
            continue  # running the case tells why
        if any(line.is_checked for line in lines):
            require_filecheck()
            return


DIED = "HLO342"
FEWEST = 8
"""Cases for which a process of their own pays, unless the user says how many there are."""


def execute_all(cases: Sequence[Case], *, update: bool, timeout: float, jobs: int | None) -> Iterator[Result]:
    """The results in the order of the cases. `jobs` processes run them; when it is None, as many as there are
    processors, and fewer for few cases. With 1 this one does.

    Raises EvaluationError (HLO342) when a process dies, as for want of memory.
    """
    workers = min(jobs, len(cases)) if jobs else min(processors(), len(cases) // FEWEST)
    run = functools.partial(execute, update=update, timeout=timeout)
    if workers < 2:
        yield from map(run, cases)
        return
    method = "fork" if sys.platform == "linux" and threading.active_count() == 1 else "spawn"
    if method == "fork":
        _warm_up()
    share = max(1, min(16, len(cases) // (4 * workers)))
    with ProcessPoolExecutor(workers, multiprocessing.get_context(method)) as pool:
        try:
            yield from pool.map(run, cases, chunksize=share)
        except BrokenProcessPool:
            raise EvaluationError(
                "a process that runs golden files died, perhaps for want of memory",
                code=DIED,
                hint="--jobs 1 runs them one after the other in one process",
            ) from None


def _warm_up() -> None:
    """Load what every case needs, and build the parser, once: processes that part from this one share it."""
    import hlo_opt.passes  # noqa: F401
    from hlo_opt.text import parse

    parse("HloModule m\n\nENTRY e {\n  ROOT p = f32[] parameter(0)\n}\n")
