"""Trying things in processes of their own, several at once: what is tried may crash, hang or keep what it took.

Each try is forked off, so it finds everything in memory as it is, and nothing that it does to a module is seen here.
Where there is no fork, tries run here, one after the other.
"""

from __future__ import annotations

import contextlib
import gc
import os
import pickle
import select
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")

FAULTS = "HLO_OPT_SHOW_TRIES"
"""With this variable in the environment, tries that fail print why: for people who work on the cuts."""


@dataclass
class _Try(Generic[T]):
    """One that runs: the place of its task, where its answer comes from, what came so far, and when it has had its
    time."""

    number: int
    child: int
    pipe: int
    end: float
    data: bytes = b""


class Trials:
    """Runs tasks in `jobs` processes, each for at most `seconds`; one that takes longer, crashes or raises has no
    answer."""

    def __init__(self, jobs: int, seconds: float) -> None:
        self.jobs = max(1, jobs)
        self.seconds = seconds
        self.tried = 0

    @property
    def are_apart(self) -> bool:
        """Whether tries may change what is here: they have copies."""
        return hasattr(os, "fork")

    def one(self, task: Callable[[], T | None]) -> T | None:
        """The answer of a task."""
        found = self.first([task])
        return None if found is None else found[1]

    def first(self, tasks: Sequence[Callable[[], T | None]], ahead: int | None = None) -> tuple[int, T] | None:
        """The number and the answer of the first task, in order, whose answer is not None: the same one with any number
        of processes. The task `ahead` is begun before all others, where there are several processes: it takes long."""
        if not self.are_apart:
            return self._here(tasks)
        running: dict[int, _Try[T]] = {}
        answers: dict[int, T] = {}
        order = list(range(len(tasks)))
        if ahead is not None and self.jobs > 1:
            order.insert(0, order.pop(ahead))
        waiting = iter(order)
        try:
            while True:
                best = min(answers, default=len(tasks))
                for other in [t for t in running.values() if t.number > best]:
                    self._end(running.pop(other.pipe))
                while len(running) < self.jobs and (number := next(waiting, len(tasks))) < best:
                    self._start(number, tasks[number], running)
                if not running:
                    return (best, answers[best]) if answers else None
                self._listen(running, answers)
        finally:
            for other in running.values():
                self._end(other)

    def every(self, tasks: Sequence[Callable[[], T]]) -> list[T | None]:
        """The answers of all tasks; None for those that have none."""
        found: list[T | None] = [None] * len(tasks)
        place = 0
        while place < len(tasks):
            running: dict[int, _Try[T]] = {}
            answers: dict[int, T] = {}
            batch = range(place, min(place + self.jobs, len(tasks)))
            if not self.are_apart:
                made = self._here([tasks[place]])
                found[place] = None if made is None else made[1]
                place += 1
                continue
            try:
                for number in batch:
                    self._start(number, tasks[number], running)
                while running:
                    self._listen(running, answers)
            finally:
                for other in running.values():
                    self._end(other)
            for number, answer in answers.items():
                found[number] = answer
            place = batch.stop
        return found

    def _here(self, tasks: Sequence[Callable[[], T | None]]) -> tuple[int, T] | None:
        for number, task in enumerate(tasks):
            self.tried += 1
            with contextlib.suppress(Exception):
                answer = task()
                if answer is not None:
                    return number, answer
        return None

    def _start(self, number: int, task: Callable[[], T | None], running: dict[int, _Try[T]]) -> None:
        self.tried += 1
        sys.stdout.flush()
        sys.stderr.flush()
        with _undisturbed():
            pipe, theirs = os.pipe()
            child = os.fork()
            if child == 0:
                _answer(task, theirs)
            os.close(theirs)
            running[pipe] = _Try(number, child, pipe, time.monotonic() + self.seconds)

    def _listen(self, running: dict[int, _Try[T]], answers: dict[int, T]) -> None:
        """Take in what tries have to say, and end those whose time is over."""
        left = min(t.end for t in running.values()) - time.monotonic()
        ready, _, _ = select.select(list(running), [], [], max(0.0, left))
        for pipe in ready:
            data = os.read(pipe, 1 << 20)
            running[pipe].data += data
            if not data:
                done = running.pop(pipe)
                self._end(done)
                if done.data:
                    answers[done.number] = pickle.loads(done.data)
        for late in [t for t in running.values() if t.end <= time.monotonic()]:
            self._end(running.pop(late.pipe))

    @staticmethod
    def _end(ended: _Try[T]) -> None:
        """Kill a try with all that it started, and wait for it."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(ended.child, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):
            os.kill(ended.child, signal.SIGKILL)
        os.waitpid(ended.child, 0)
        os.close(ended.pipe)


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Ctrl-C has its effect when this is left. Around a fork it would be lost, as what Python runs there may raise
    nothing, or end what the child is a copy of."""
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGINT) is None:
        yield
        return
    pressed: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: pressed.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if pressed and callable(before):
        before(signal.SIGINT, None)


def _answer(task: Callable[[], T | None], pipe: int) -> None:
    """In the child: run the task, send its answer, and be gone."""
    try:
        os.setsid()
        gc.disable()  # it would touch, and so copy, everything that was made before
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.environ["HLO_OPT_THREADS"] = "1"
        if not os.environ.get(FAULTS):
            nowhere = os.open(os.devnull, os.O_RDWR)
            for number in (0, 1, 2):
                os.dup2(nowhere, number)
        answer = task()
        data = b"" if answer is None else pickle.dumps(answer)
        while data:
            data = data[os.write(pipe, data) :]
    except BaseException:
        if os.environ.get(FAULTS):
            traceback.print_exc()
    finally:
        os._exit(0)
