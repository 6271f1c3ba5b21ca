"""Ctrl-C ends the program with one line, whatever it is doing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from hlo_opt.cli.interrupt import interruptible
from hlo_opt.runtime.host.library import has_compiler

pytestmark = [
    pytest.mark.skipif(os.name != "posix", reason="signals are those of a Unix"),
    pytest.mark.usefixtures("ctrl_c"),
]

ENDLESS = """HloModule m{}

body {{
  i = s32[] parameter(0)
  one = s32[] constant(1)
  ROOT j = s32[] add(i, one)
}}

condition {{
  i = s32[] parameter(0)
  n = s32[] constant(-1)
  ROOT l = pred[] compare(i, n), direction=NE
}}

ENTRY e {{
  z = s32[] parameter(0)
  ROOT w = s32[] while(z), condition=condition, body=body
}}
"""
STARTED = """
import sys
import hlo_opt.evaluate.interpreter as interpreter
import hlo_opt.runtime.host.program as host_program

def telling(function):
    def run(*arguments):
        print("started", flush=True)
        return function(*arguments)
    return run

interpreter.Interpreter.call = telling(interpreter.Interpreter.call) if sys.argv[1] == "numpy" else interpreter.Interpreter.call
host_program._Run.__call__ = telling(host_program._Run.__call__)
from hlo_opt.cli import main
sys.argv = ["hlo-opt", "run", sys.argv[2], "--backend", sys.argv[1], "--outputs", "out.npz"]
main()
"""


def listen() -> None:
    """A program that a shell starts in the background is told to ignore Ctrl-C; the ones that these tests start are not."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def stopped(process: subprocess.Popen[str]) -> tuple[str, int]:
    """What a program says on stderr after Ctrl-C, and its exit code."""
    process.send_signal(signal.SIGINT)
    try:
        _, told = process.communicate(timeout=60)
    finally:
        process.kill()
    return told, process.returncode


@pytest.mark.parametrize(
    ("backend", "header"),
    [("numpy", ""), ("numpy", ", num_partitions=2"), ("host", ""), ("host", ", num_partitions=2")],
    ids=["numpy", "devices", "host", "devices on the host"],
)
def test_an_endless_loop_is_left(backend: str, header: str, tmp_path: Path) -> None:
    if backend == "host" and not has_compiler():
        pytest.skip("no C++ compiler")
    (tmp_path / "m.hlo").write_text(ENDLESS.format(header))
    command = [sys.executable, "-c", STARTED, backend, "m.hlo"]
    with subprocess.Popen(
        command,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=listen,
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == "started\n"
        assert stopped(process) == ("hlo-opt: interrupted\n", 130)
    assert [p.name for p in tmp_path.iterdir()] == ["m.hlo"]


def test_what_was_there_before_is_there_afterwards() -> None:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    before = signal.set_wakeup_fd(writer)
    try:
        with interruptible(lambda: None):
            assert signal.set_wakeup_fd(writer) not in (-1, writer)
        assert signal.set_wakeup_fd(writer) == writer
    finally:
        signal.set_wakeup_fd(before)
        os.close(reader)
        os.close(writer)


def test_a_main_thread_that_goes_by_itself_is_let_go() -> None:
    said: list[str] = []
    with pytest.raises(KeyboardInterrupt), interruptible(lambda: said.append("interrupted"), patience=60):
        signal.raise_signal(signal.SIGINT)
    assert not said


def test_other_threads_have_no_signals() -> None:
    entered: list[bool] = []

    def work() -> None:
        with interruptible(lambda: None):
            entered.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert entered
