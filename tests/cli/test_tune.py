"""The verb `tune`, and the file that it writes."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from hlo_opt.cli.group import run
from hlo_opt.tune import search
from hlo_opt.tune.evaluation import evaluate

DUMPS = Path(__file__).resolve().parent.parent.parent / "testdata" / "dumps"
TEXT = """HloModule m

ENTRY e {
  p = f32[64]{0} parameter(0)
  a = f32[64]{0} negate(p)
  ROOT b = f32[64]{0} tanh(a)
}
"""
ONE = ["--jobs", "1"]


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.hlo").write_text(TEXT)
    return "m.hlo"


def test_the_file_is_replayed(file, capfd) -> None:
    name = str(DUMPS / "sharded_block.hlo")
    assert run(["tune", name, "--trials", "8", "--save", "t.toml", "--json", *ONE]) == 0
    done = capfd.readouterr()
    told = json.loads(done.out)
    assert told["changes"] and told["after"]["est_us"] < told["before"]["est_us"] and told["trials"] == 8
    assert all(f"\n    {change}\n" in done.err for change in told["changes"])
    assert "after 8 trials: from default" in done.err
    assert run(["fuse", name, "--config", "t.toml", "-o", "o.hlo", "--stats", "s.json"]) == 0
    after = json.loads(Path("s.json").read_text())["after"]
    assert after["est_us"] == told["after"]["est_us"] and after["kernels"] == told["after"]["kernels"]


def test_an_edge_kept_apart_is_replayed(file, monkeypatch) -> None:
    """No model prices an edge better apart, so the price here asks 50 us for one that is not forbidden."""

    def dear_together(task, setting):
        figures = evaluate(task, setting)
        return replace(figures, us=figures.us + (0 if ("a", "b") in setting.forbid else 50))

    monkeypatch.setattr(search, "evaluate", dear_together)
    assert run(["tune", file, "--trials", "40", "--save", "t.toml", *ONE]) == 0
    assert 'forbid = [\n    "a:b",\n]' in Path("t.toml").read_text()
    for options, kernels in ([], 1), (["--config", "t.toml"], 2):
        assert run(["fuse", file, *options, "-o", "o.hlo", "--stats", "s.json"]) == 0
        assert json.loads(Path("s.json").read_text())["after"]["kernels"] == kernels


def test_options_go_to_stdout(file, capfd) -> None:
    assert run(["tune", file, "--trials", "4", *ONE]) == 0
    done = capfd.readouterr()
    assert done.out.startswith("# m: estimated at ") and 'target = "h100_sxm"' in done.out
    assert done.err.startswith("m on h100_sxm\n") and "\x1b" not in done.err
    assert run(["-q", "tune", file, "--seconds", "0.01", "--trials", "4", *ONE]) == 0
    assert capfd.readouterr().err == ""


def test_the_file_is_for_one_module_and_one_device(file, tmp_path, capfd) -> None:
    assert run(["tune", file, "--trials", "4", "--save", "t.toml", *ONE]) == 0
    (tmp_path / "other.hlo").write_text(TEXT.replace("negate", "abs"))
    (tmp_path / "named.hlo").write_text(TEXT.replace("a =", "c =").replace("(a)", "(c)"))
    capfd.readouterr()
    for verb in ("fuse", "explain", "check"):
        assert run([verb, "other.hlo", "--config", "t.toml"]) == 2
        done = capfd.readouterr()
        assert done.err.startswith("HLO350 the options of --config are for the module ") and done.out == ""
        assert run([verb, file, "--config", "t.toml", "--target", "v100"]) == 2
        assert capfd.readouterr().err.startswith("t.toml: HLO351 is for h100_sxm, not for v100\n")
    assert run(["fuse", file, "--config", "t.toml", "--target", "h100_sxm"]) == 0
    assert run(["explain", "named.hlo", "--config", "t.toml", "--forbid", "c:b"]) == 0  # names are no part of it


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--trials", "0"], "whole number from 1"),
        (["--seconds", "0"], "'0' is not a number of seconds above 0"),
        (["--json"], "--json and the file of options both go to stdout"),
        (["--save", "/nowhere/t.toml"], "cannot write"),
        (["--target", "h1000"], "did you mean h100?"),
        (["--by", "time", "--backend", "numpy"], "--by time needs kernels"),
        (["--simplify", "no"], "simplify must be auto, always or never"),
    ],
)
def test_what_is_wrong_is_said(file, arguments, says, capfd) -> None:
    assert run(["tune", file, *ONE, *arguments]) == 2
    done = capfd.readouterr()
    assert done.out == "" and says in done.err


def default_interrupts() -> None:
    """A shell in the background starts its children with Ctrl-C ignored."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_ctrl_c_keeps_the_best_so_far(jobs, tmp_path) -> None:
    """On a terminal, where a bar says how far it is."""
    controller, terminal = pty.openpty()
    name = str(DUMPS / "group_norm.hlo")
    command = [sys.executable, "-m", "hlo_opt", "tune", name, "--trials", "100000", "--save", "t.toml", "--jobs", jobs]
    child = subprocess.Popen(
        command, cwd=tmp_path, stderr=terminal, stdin=subprocess.DEVNULL, preexec_fn=default_interrupts
    )
    os.close(terminal)
    os.set_blocking(controller, False)
    seen, end = b"", time.monotonic() + 120
    while not re.search(rb"[3-9]\d/100000", seen) and time.monotonic() < end and child.poll() is None:
        with contextlib.suppress(BlockingIOError):
            seen += os.read(controller, 100_000)
        time.sleep(0.05)
    child.send_signal(signal.SIGINT)
    while child.poll() is None and time.monotonic() < end:
        with contextlib.suppress(OSError):
            seen += os.read(controller, 100_000)
        time.sleep(0.05)
    assert child.wait(30) == 130
    with contextlib.suppress(OSError):
        seen += os.read(controller, 100_000)
    assert b"interrupted" in seen and b"Traceback" not in seen
    shown = [float(us) for us in re.findall(rb" ([\d.]+) us ", seen)]
    kept = re.search(r"estimated at ([\d.]+) us; the preset default: ([\d.]+) us", (tmp_path / "t.toml").read_text())
    assert (
        kept is not None and min(shown) == pytest.approx(float(kept[1]), rel=1e-3) and float(kept[1]) < float(kept[2])
    )
