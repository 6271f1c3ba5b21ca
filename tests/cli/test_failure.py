"""Failures of the program itself and of the world around it."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from hlo_opt.cli import failure, files, group
from hlo_opt.cli.failure import interruptible
from hlo_opt.runtime.host.library import has_compiler

MODULE = "HloModule m\n\nENTRY e {\n  ROOT p = f32[] parameter(0)\n}\n"


@pytest.fixture
def module(tmp_path):
    path = tmp_path / "m.hlo"
    path.write_text(MODULE)
    return path


def failing(error):
    def fail(*arguments, **options):
        raise error

    return fail


def test_an_internal_error_leaves_a_reproducer(module, tmp_path, monkeypatch, capfd):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(files, "TEXTS_READ", [])
    monkeypatch.setattr(
        "hlo_opt.cli.showing.read_modules",
        lambda name, **options: (files.read_text(name), failing(KeyError("x\x1b[2J"))())[0],
    )
    assert group.run(["print", str(module)]) == 2
    err = capfd.readouterr().err
    assert err.count("\n") == 1 and "internal error: KeyError" in err and "\x1b" not in err
    (folder,) = tmp_path.glob("hlo-opt-reproducer-*")
    assert str(folder) in err
    assert (folder / "input.hlo").read_text() == MODULE
    assert (folder / "command.txt").read_text() == "hlo-opt print input.hlo\n"
    assert "KeyError" in (folder / "traceback.txt").read_text()
    assert "numpy" in (folder / "versions.txt").read_text()


@pytest.mark.parametrize(
    ("error", "status", "message"),
    [
        (MemoryError(), 2, "hlo-opt: out of memory\n"),
        (KeyboardInterrupt(), 130, "hlo-opt: interrupted\n"),
        (BrokenPipeError(), 141, ""),
        (OSError(28, "No space left on device", "out.hlo"), 2, "out.hlo: HLO300 No space left on device\n"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else None,
)
def test_what_the_world_does(error, status, message, module, monkeypatch, capfd):
    monkeypatch.setattr("hlo_opt.cli.showing.read_modules", failing(error))
    monkeypatch.setattr("os.dup2", lambda *a: None)
    assert group.run(["print", str(module)]) == status
    assert capfd.readouterr().err == message


def test_recursion_is_an_internal_error(module, tmp_path, monkeypatch, capfd):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("hlo_opt.cli.showing.read_modules", failing(RecursionError("deep")))
    assert group.run(["print", str(module)]) == 2
    assert "internal error: RecursionError" in capfd.readouterr().err


def test_a_reader_that_goes_away_is_no_error(tmp_path):
    code = "import sys; sys.argv = ['hlo-opt', 'explain', 'FUS302']; from hlo_opt.cli import main; main()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        process.stdout.close()
        err = process.stderr.read()
        assert process.wait(timeout=60) == 141
    assert err == ""


def test_stdin_is_read_for_a_dash(monkeypatch, capfd):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(MODULE.encode())))
    assert group.run(["print", "-"]) == 0
    assert "parameter(0)" in capfd.readouterr().out


def test_versions_name_the_dependencies():
    text = "\n".join(failure.versions())
    assert "hlo-opt " in text and "Python " in text and "lark " in text


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
    """A program that a shell starts in the background is told to ignore Ctrl-C; the ones that these tests start are
    not."""
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
