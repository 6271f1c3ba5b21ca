"""Running one golden file: its commands, in this process, and the comparison with what it wants."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from hlo_opt.cli import files
from hlo_opt.cli.golden.capture import Captured, TimedOutError, deadline, run_captured
from hlo_opt.cli.golden.cases import GOLDENS, Case, first_golden
from hlo_opt.cli.golden.commands import HLO_OPT, RunLine, Stage, confined, default_line, run_lines
from hlo_opt.cli.golden.difference import difference
from hlo_opt.cli.golden.file_check import file_check
from hlo_opt.diag import HloOptError, Source, UsageError

TIMEOUT = 60.0
"""Seconds that one file may take, unless told otherwise."""

MOST_SAID = 40
"""Lines of what a failed command says that are shown."""

Status = Literal["passed", "failed", "updated"]


@dataclass(frozen=True)
class Result:
    """What came of a case: why it failed, and the difference to its golden. Lines are not escaped; `written` is the golden that was written."""

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
    """Run a case. With `update` its golden is written anew, whole or not at all, when it differs and every command succeeded."""
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
    if golden is not None and len(printing) != 1:
        raise _FailedError(
            f"{case.path}: {golden.name} holds what one RUN line without FileCheck prints, and there are {len(printing)}"
        )
    outputs = [_run(line, text, case) for line in lines]
    if golden is None:
        return Result(case.path, "passed")
    actual = outputs[lines.index(printing[0])]
    if update and golden.is_symlink() and not confined(str(golden), case.root):
        raise _FailedError(f"{golden}: leads out of the folder under test, and is not written")
    return compare(case.path, golden, actual, update)


def compare(path: Path, golden: Path, actual: str, update: bool) -> Result:
    """Compare what a case at `path` prints with its golden, or write the golden where `update` says so. Raises OSError, UsageError."""
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
    given = ""
    for stage in line.stages:
        place = f"{case.path}:{line.line}: {stage}"
        if stage.program == HLO_OPT:
            done = run_captured(stage.arguments, given, merged=stage.merged)
            _check_status(stage, done, place)
            given = done.out
            continue
        said = file_check(stage.arguments, given, case.path, case.root)
        if bool(said) != stage.negated:
            raise _FailedError(place, *(_indented(said) if said else ["  matches, and should not"]))
    return given


def _check_status(stage: Stage, done: Captured, place: str) -> None:
    if (done.status != 0) == stage.negated:
        return
    if stage.negated:
        raise _FailedError(place, "  succeeded, and should fail")
    raise _FailedError(place, f"  failed with exit status {done.status}", *_indented(done.err or done.out))


def _indented(text: str) -> Sequence[str]:
    lines = text.rstrip("\n").splitlines()
    more = [f"  ... {len(lines) - MOST_SAID} more lines"] if len(lines) > MOST_SAID else []
    return [*(f"  {line}" for line in lines[:MOST_SAID]), *more]


def check_available(cases: Sequence[Case]) -> None:
    """Before anything runs: where some case asks for FileCheck, its package must be there. Raises UsageError, which says how to install it."""
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
