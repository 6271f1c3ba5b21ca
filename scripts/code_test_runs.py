"""Runs of tests for scripts/mutate_code.py, each in a process of its own: once to see which test executes what, and of
chosen tests in a given order."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

KILLED_BY = 1  # the exit status that says so
_OPTIONS = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-o", "addopts=--import-mode=importlib"]
_LOADING = 30.0  # seconds of processor time until the first test begins
_PATIENCE = (5.0, 10.0)  # a test that takes 5 s and ten times what it took before does not end


class _Recorder:
    """Tells coverage which test is running, and takes the time of each. What fixtures execute counts for all tests of
    the file, as they may share it."""

    def __init__(self, coverage: Any) -> None:
        self.coverage = coverage
        self.seconds: dict[str, float] = {}
        self.failed: set[str] = set()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Iterator[None]:
        self.coverage.switch_context(f"file {item.nodeid.split('::')[0]}")
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        self.coverage.switch_context(f"test {item.nodeid}")
        start = time.process_time()
        try:
            return (yield)
        finally:
            self.seconds[item.nodeid] = time.process_time() - start
            self.coverage.switch_context("between")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not report.passed:
            self.failed.add(report.nodeid)


def record(tree: Path, tests: list[str], kept: Path) -> int:
    """Run `tests` in the copy `tree` and write what was seen to `kept`: seconds of each test, those that failed or were
    skipped, tests by file and line.

    Line 0 of a file stands for any line.
    """
    import coverage

    watch = coverage.Coverage(data_file=None, source=[str(tree / "hlo_opt")], config_file=False)
    watch.start()
    watch.switch_context("import")
    recorder = _Recorder(watch)
    status = int(pytest.main([*_OPTIONS, *tests], plugins=[recorder]))
    watch.stop()
    if status > 1:
        return status
    good = [t for t in recorder.seconds if t not in recorder.failed]
    numbers = {t: k for k, t in enumerate(good)}
    data = watch.get_data()
    executed: dict[str, dict[int, list[int]]] = {}
    for path in data.measured_files():
        lines: dict[int, set[int]] = {0: set()}
        for line, contexts in data.contexts_by_lineno(path).items():
            of_line = {numbers[t] for c in contexts for t in _tests(c, good)}
            lines[line] = of_line
            lines[0] |= of_line
        name = Path(path).resolve().relative_to(tree.resolve()).as_posix()
        executed[name] = {line: sorted(found) for line, found in lines.items()}
    seen = {"seconds": {t: recorder.seconds[t] for t in good}, "failed": sorted(recorder.failed), "executed": executed}
    part = kept.with_suffix(".part")
    part.write_text(json.dumps(seen))
    part.replace(kept)
    return 0


def _tests(context: str, good: list[str]) -> list[str]:
    kind, _, name = context.partition(" ")
    if kind == "file":
        return [t for t in good if t.split("::")[0] == name]
    return [name] if kind == "test" and name in good else []


class _Chosen:
    """Only the chosen tests, in their order; notes which is running, and ends the process where one takes far longer
    than it did."""

    def __init__(self, tests: list[str], seconds: dict[str, float], note: Path) -> None:
        self.order = {test: k for k, test in enumerate(tests)}
        self.seconds, self.note = seconds, note

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = sorted((i for i in items if i.nodeid in self.order), key=lambda i: self.order[i.nodeid])

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        self.note.write_text(item.nodeid)
        signal.setitimer(signal.ITIMER_PROF, _PATIENCE[0] + _PATIENCE[1] * self.seconds[item.nodeid])


def run_chosen(tests: list[str], seconds: dict[str, float], note: Path) -> int:
    """Run these tests in this order until one fails; 0 where none does. `note` is left with the name of the last one
    that ran."""
    signal.setitimer(signal.ITIMER_PROF, _LOADING)
    files = list(dict.fromkeys(test.split("::")[0] for test in tests))
    return int(pytest.main([*_OPTIONS, "-x", *files], plugins=[_Chosen(tests, seconds, note)]))
