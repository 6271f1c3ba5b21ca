"""The verb `reduce`."""

import contextlib
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from cutting_modules import TEXT

import hlo_opt
from hlo_opt.cli.group import run


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.hlo").write_text(TEXT)
    return "m.hlo"


def test_reduce_prints_the_module_and_sums_up_on_stderr(file, capfd):
    assert run(["reduce", file, "--keep", "grep -q sine( {}"]) == 0
    done = capfd.readouterr()
    module = hlo_opt.parse(done.out)
    assert [i.opcode for i in module.entry.instructions] == ["parameter", "sine"]
    assert done.err == "hlo-opt: 32 instructions, now 2: status 0\n"


def test_reduce_writes_a_file(file, capfd):
    assert run(["reduce", file, "--keep", "kernels > 1", "-o", "o.hlo", "--preset", "xla-2023", "--jobs", "1"]) == 0
    assert capfd.readouterr().out == ""
    hlo_opt.verify(hlo_opt.parse(Path("o.hlo").read_text()))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--keep", "kernels > 1000"], "m.hlo: HLO300 the module does not show 'kernels > 1000'"),
        (["--keep", "false {}"], "does not show"),
        (["--keep", "nothing"], "--keep does not take 'nothing'"),
        (["--keep", "FUS999"], "there is no reason 'FUS999'"),
        (["--keep", "kernels > 1", "--preset", "no"], "no"),
        (["--keep", "kernels > 1", "-o", "/nowhere/o"], "cannot write"),
        ([], "HLO362 hlo-opt reduce needs --keep CHECK"),
    ],
)
def test_reduce_says_what_is_wrong(file, arguments, says, capfd):
    assert run(["reduce", file, *arguments]) == 2
    done = capfd.readouterr()
    assert done.out == "" and says in done.err


def test_interrupted_reduce_keeps_the_smallest_so_far(file, tmp_path):
    """On a terminal, where progress is shown; while the fifth module that shows it is looked at, which takes until it
    is interrupted."""
    controller, terminal = pty.openpty()
    keep = "sh -c 'grep -q sine {} || exit 1; echo >> shown; [ $(wc -l < shown) -lt 5 ] || sleep 100'"
    command = [sys.executable, "-m", "hlo_opt", "reduce", file, "--keep", keep, "-o", "o.hlo", "--jobs", "1"]
    child = subprocess.Popen(command, stderr=terminal, stdin=subprocess.DEVNULL)
    os.close(terminal)
    shown, seen = tmp_path / "shown", b""
    end = time.monotonic() + 200
    while not (shown.exists() and shown.read_text().count("\n") == 5) and time.monotonic() < end:
        time.sleep(0.05)
    child.send_signal(signal.SIGINT)
    assert child.wait(30) == 130
    os.set_blocking(controller, False)
    with contextlib.suppress(OSError):
        seen += os.read(controller, 100_000)
    assert b"interrupted" in seen and b"\r" in seen
    module = hlo_opt.parse((tmp_path / "o.hlo").read_text())
    hlo_opt.verify(module)
    assert sum(len(c.instructions) for c in module.computations) < 32
