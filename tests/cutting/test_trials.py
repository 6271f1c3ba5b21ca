"""Tries in processes of their own."""

import os
import signal
import subprocess
import time
from functools import partial
from pathlib import Path

import pytest

from hlo_opt.cutting import trials as trials_module
from hlo_opt.cutting.trials import Trials


@pytest.mark.parametrize("jobs", [1, 2, 4])
def test_the_first_in_order_that_answers_is_taken_whichever_ends_first(jobs):
    def slow():
        time.sleep(0.3)
        return "slow"

    trials = Trials(jobs, 30)
    assert trials.first([lambda: None, slow, lambda: "quick"]) == (1, "slow")
    assert trials.first([lambda: None, slow, lambda: "quick"], ahead=2) == (1, "slow")
    assert trials.first([lambda: None]) is None and trials.first([]) is None


def test_what_crashes_hangs_or_raises_has_no_answer():
    begun = time.monotonic()
    trials = Trials(2, 0.5)
    tasks = [
        lambda: os.kill(os.getpid(), signal.SIGKILL),
        lambda: time.sleep(60),
        lambda: 1 / 0,
        lambda: os._exit(3),
        lambda: "x" * 1_000_000,
    ]
    found = trials.first(tasks)
    assert found is not None and found[0] == 4 and len(found[1]) == 1_000_000
    assert time.monotonic() - begun < 20 and trials.tried == 5


def test_a_limit_in_seconds_of_a_processor_ends_what_computes_and_not_what_waits():
    def computes():
        while True:
            pass

    def waits():
        time.sleep(1.5)
        return "waited"

    def says_so():
        try:
            computes()
        except TimeoutError:
            return "too long"

    trials = Trials(2, 60, cpu_seconds=1)
    assert trials.first([computes, waits]) == (1, "waited")
    assert trials.one(says_so) == "too long"


def test_what_a_task_left_is_its_answer_where_it_crashes_or_does_not_end(monkeypatch):
    monkeypatch.setattr(trials_module, "LEAST", 0.5)
    monkeypatch.setattr(trials_module, "ALLOWED", 0)

    def crashes():
        os.kill(os.getpid(), signal.SIGKILL)

    def hangs():
        time.sleep(60)

    def computes():
        while True:
            pass

    def after(end, form=str.upper):
        with trials_module.left_as(form):
            trials_module.leave("left")
            end()

    begun = time.monotonic()
    trials = Trials(1, 60)
    for end in (crashes, hangs, computes):
        assert trials.one(partial(after, end)) == "LEFT"
    assert Trials(1, 60, cpu_seconds=1).one(partial(after, computes)) == "LEFT"
    assert time.monotonic() - begun < 20
    assert trials.one(partial(after, lambda: None)) is None  # it came to its end
    assert trials.one(partial(after, lambda: 1 / 0)) is None
    assert trials.one(partial(after, crashes, lambda text: None)) is None
    assert trials.one(lambda: trials_module.leave("left") or crashes()) is None  # nobody asked for it


def test_what_comes_after_a_block_has_no_answer_left_and_not_its_limit():
    def after(end):
        with trials_module.left_as(str.upper):
            with trials_module.leaving("left", 0.3):
                pass
            time.sleep(0.6)
            return end()

    def within():
        with trials_module.left_as(str.upper), trials_module.leaving("left", 0.3):
            time.sleep(60)

    trials = Trials(1, 60)
    assert trials.one(partial(after, lambda: "said")) == "said"
    assert trials.one(partial(after, lambda: os.kill(os.getpid(), signal.SIGKILL))) is None
    begun = time.monotonic()
    assert trials.one(within) == "LEFT" and time.monotonic() - begun < 20


def test_programs_have_a_limit_of_their_own():
    trials = Trials(1, 60, cpu_seconds=0.2)
    trials.beside = 0.5
    ends = trials.one(lambda: subprocess.run(["sh", "-c", "while :; do :; done"], check=False).returncode)
    assert ends == -signal.SIGXCPU


def test_what_a_try_starts_ends_with_it(tmp_path):
    file = tmp_path / "pid"
    trials = Trials(1, 1.0)
    assert trials.one(lambda: os.system(f"sleep 60 & echo $! > {file}; wait")) is None
    child = int(file.read_text())
    for _ in range(50):
        try:
            if Path(f"/proc/{child}/stat").read_text().split()[2] == "Z":
                return
            os.kill(child, 0)
        except (OSError, FileNotFoundError):
            return
        time.sleep(0.1)
    pytest.fail("it still runs")


def test_a_try_changes_nothing_here():
    held = [1]
    assert Trials(1, 30).one(lambda: held.append(2) or len(held)) == 2
    assert held == [1]


def test_where_there_is_no_fork_tries_run_one_after_the_other(monkeypatch):
    monkeypatch.delattr(os, "fork")
    assert Trials(4, 30).first([lambda: None, lambda: 1 / 0, lambda: "a", lambda: "b"]) == (2, "a")


ARMED: list[bool] = []
"""Whether Ctrl-C is pressed while a process is forked off."""
os.register_at_fork(after_in_parent=lambda: os.kill(os.getpid(), signal.SIGINT) if ARMED else None)


def test_ctrl_c_while_a_try_is_begun_is_not_lost_and_leaves_none(monkeypatch):
    children: list[int] = []  # of these tries only: other tests of this process may have left theirs

    def fork(begin=os.fork) -> int:
        children.append(begin())
        return children[-1]

    monkeypatch.setattr(os, "fork", fork)
    ARMED.append(True)
    try:
        with pytest.raises(KeyboardInterrupt):
            Trials(2, 30).first([lambda: time.sleep(60)])
    finally:
        ARMED.clear()
    (child,) = children
    with pytest.raises(ChildProcessError):
        os.waitpid(child, os.WNOHANG)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
