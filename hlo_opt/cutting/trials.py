"""Tasks in child processes, several at once: a task may crash, hang or leak memory.

Each task is forked off, so it sees everything in memory as it is, and its changes to a module stay in the child.
Without fork, tasks run in this process, one after the other.
"""

from __future__ import annotations

import contextlib
import gc
import io
import math
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
from types import FrameType
from typing import Generic, TypeVar

T = TypeVar("T")

FAULTS = "HLO_OPT_SHOW_TRIES"
"""An environment variable: where it is set, tasks that fail print a traceback. For work on the cuts."""


LEAST, ALLOWED = 60.0, 20
"""The limit of what follows `leave`: in seconds by the clock, and as a multiple of the time before it."""
_pipes: list[int] = []
"""In a child process: the pipe for its answers."""
_began: list[float] = []
"""In a child process: when it began, by the clock."""
_forms: list[Callable[[str], object]] = []
"""In a child process: what its task makes of what `leave` is told."""


def leave(text: str, within: float | None = None) -> None:
    """Before something that may crash or never end: what to say if it does. Nothing outside of `left_as` in a task.

    within  the seconds that it may take by the clock; None: a multiple of the time before it
    """
    for pipe in _pipes[: len(_forms)]:
        _send(pipe, pickle.dumps(_forms[-1](text)))
        if within is None:
            within = max(LEAST, ALLOWED * (time.monotonic() - _began[-1]))
        if within != math.inf:  # the end of the process, compiled code or not
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.setitimer(signal.ITIMER_REAL, within)


@contextlib.contextmanager
def leaving(text: str, within: float | None = None) -> Iterator[None]:
    """`leave` for a block: what comes after it has no answer left, and no such limit."""
    leave(text, within)
    yield
    for pipe in _pipes[: len(_forms)]:
        signal.setitimer(signal.ITIMER_REAL, 0)
        _send(pipe, pickle.dumps(None))


@contextlib.contextmanager
def left_as(form: Callable[[str], object]) -> Iterator[None]:
    """In a task: the answer that it leaves is `form` of what `leave` is told."""
    _forms.append(form)
    try:
        yield
    finally:
        _forms.pop()


def _send(pipe: int, data: bytes) -> None:
    while data:
        data = data[os.write(pipe, data) :]


@dataclass
class _Running(Generic[T]):
    """A task in a child process: its number, the child, the pipe and the bytes of its answers, and its deadline."""

    number: int
    child: int
    pipe: int
    end: float
    data: bytes = b""

    @property
    def answer(self) -> T | None:
        """The last of its answers."""
        answer, file = None, io.BytesIO(self.data)
        with contextlib.suppress(EOFError, pickle.UnpicklingError):  # it may be ended while it writes
            while True:
                answer = pickle.load(file)
        return answer


class Trials:
    """Runs tasks in `jobs` child processes. A task that crashes, raises, or exceeds a limit has no answer, or the one
    that it left (`leave`).

    seconds      limit of a task, by the clock
    cpu_seconds  limit of a task, in seconds of a processor; None: no limit
    beside       what each program that a task starts may take beyond that
    tried        tasks started so far
    """

    def __init__(self, jobs: int, seconds: float, cpu_seconds: float | None = None) -> None:
        self.jobs = max(1, jobs)
        self.seconds = seconds
        self.cpu_seconds = cpu_seconds
        self.beside = 1.0
        self.tried = 0

    @property
    def are_apart(self) -> bool:
        """Whether tasks have a copy of the memory, so that they may change modules."""
        return hasattr(os, "fork")

    def one(self, task: Callable[[], T | None]) -> T | None:
        """The answer of a task."""
        first = self.first([task])
        return None if first is None else first[1]

    def first(self, tasks: Sequence[Callable[[], T | None]], ahead: int | None = None) -> tuple[int, T] | None:
        """The number and the answer of the first task, in order, that has one: the same with any number of processes.
        With several processes, the task `ahead` starts before all others: for a long one."""
        if not self.are_apart:
            return self._here(tasks)
        running: dict[int, _Running[T]] = {}
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
        results: list[T | None] = [None] * len(tasks)
        place = 0
        while place < len(tasks):
            running: dict[int, _Running[T]] = {}
            answers: dict[int, T] = {}
            batch = range(place, min(place + self.jobs, len(tasks)))
            if not self.are_apart:
                first = self._here([tasks[place]])
                results[place] = None if first is None else first[1]
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
                results[number] = answer
            place = batch.stop
        return results

    def _here(self, tasks: Sequence[Callable[[], T | None]]) -> tuple[int, T] | None:
        for number, task in enumerate(tasks):
            self.tried += 1
            with contextlib.suppress(Exception):
                answer = task()
                if answer is not None:
                    return number, answer
        return None

    def _start(self, number: int, task: Callable[[], T | None], running: dict[int, _Running[T]]) -> None:
        self.tried += 1
        sys.stdout.flush()
        sys.stderr.flush()
        with _undisturbed():
            pipe, end = os.pipe()
            child = os.fork()
            if child == 0:
                _answer(task, end, self.cpu_seconds, self.beside)
            os.close(end)
            now = time.monotonic()
            running[pipe] = _Running(number, child, pipe, now + self.seconds)

    def _listen(self, running: dict[int, _Running[T]], answers: dict[int, T]) -> None:
        """Read the answers of tasks, and end those past their deadline."""
        left = min(t.end for t in running.values()) - time.monotonic()
        ready, _, _ = select.select(list(running), [], [], max(0.0, left))
        for pipe in ready:
            data = os.read(pipe, 1 << 20)
            task = running[pipe]
            task.data += data
            if not data:
                task.end = time.monotonic()
        for task in [t for t in running.values() if t.end <= time.monotonic()]:
            self._end(running.pop(task.pipe))
            answer = task.answer
            if answer is not None:
                answers[task.number] = answer

    @staticmethod
    def _end(task: _Running[T]) -> None:
        """Kill a child with all its processes, and wait for it."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(task.child, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):
            os.kill(task.child, signal.SIGKILL)
        os.waitpid(task.child, 0)
        os.close(task.pipe)


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Delays Ctrl-C to the end of the block. Python ignores exceptions in its callbacks around a fork, and in the child
    one would end a copy of the caller."""
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


def _limit(seconds: float, beside: float) -> None:
    """Limit the processor time of this process: a TimeoutError. With `beside` more, that is the limit of each program
    that it starts, and of compiled code that does not return to Python: the end of the process."""
    import resource  # there is none on systems without fork

    def stop(number: int, frame: FrameType | None) -> None:
        raise TimeoutError

    signal.signal(signal.SIGPROF, stop)
    signal.signal(signal.SIGXCPU, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    most = math.ceil(seconds + beside)
    resource.setrlimit(resource.RLIMIT_CPU, (most, most + 1))


def _answer(task: Callable[[], T | None], pipe: int, cpu_seconds: float | None, beside: float) -> None:
    """In the child: run the task, send its answer, and exit."""
    try:
        os.setsid()
        gc.disable()  # it would write to, and so copy, all memory shared with the parent
        if cpu_seconds is not None:
            _limit(cpu_seconds, beside)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.environ["HLO_OPT_THREADS"] = "1"
        if not os.environ.get(FAULTS):
            null = os.open(os.devnull, os.O_RDWR)
            for number in (0, 1, 2):
                os.dup2(null, number)
        _pipes.append(pipe)
        _began.append(time.monotonic())
        _send(pipe, pickle.dumps(task()))
    except TimeoutError:  # what it left is its answer
        pass
    except BaseException:
        _send(pipe, pickle.dumps(None))
        if os.environ.get(FAULTS):
            traceback.print_exc()
    finally:
        os._exit(0)
