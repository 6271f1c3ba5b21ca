"""Where stdout or the cache cannot take what is written."""

from __future__ import annotations

import os
import resource
import subprocess
import sys

import pytest

FEW = 4096  # bytes that a file may have
MODULE = "HloModule m\n\nENTRY e {\n  p0 = f32[4]{0} parameter(0)\n%s  ROOT r = f32[4]{0} negate(p0)\n}\n"
LONG = MODULE % "".join(f"  n{k} = f32[4]{{0}} negate(p0)\n" for k in range(500))


def hlo_opt(*arguments, stdout, unbuffered, limit=None):
    return subprocess.run(
        [sys.executable, "-m", "hlo_opt", *map(str, arguments)],
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        # Python 3.11.2 would leave what a short file holds of its byte code, for others to find
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered, "PYTHONDONTWRITEBYTECODE": "1"},
        preexec_fn=limit,
    )


def few_bytes():
    resource.setrlimit(resource.RLIMIT_FSIZE, (FEW, FEW))


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_an_output_that_is_cut_off_is_an_error(unbuffered, tmp_path):
    (tmp_path / "m.hlo").write_text(LONG)
    with (tmp_path / "out").open("wb") as stdout:
        done = hlo_opt("print", tmp_path / "m.hlo", stdout=stdout, unbuffered=unbuffered, limit=few_bytes)
    assert (done.returncode, done.stderr) == (2, "stdout: HLO300 cannot write: File too large\n")
    assert (tmp_path / "out").stat().st_size == FEW


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("arguments", [["print", "m.hlo"], ["passes"], ["--help"], ["stats", "m.hlo"]])
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
def test_a_full_disk_is_one_line(arguments, unbuffered, tmp_path):
    (tmp_path / "m.hlo").write_text(MODULE % "")
    arguments = [tmp_path / a if a == "m.hlo" else a for a in arguments]
    with open("/dev/full", "wb") as stdout:
        done = hlo_opt(*arguments, stdout=stdout, unbuffered=unbuffered)
    assert (done.returncode, done.stderr) == (2, "stdout: HLO300 cannot write: No space left on device\n")


def test_without_a_buffer_all_is_written(tmp_path):
    (tmp_path / "m.hlo").write_text(LONG)
    outputs = []
    for unbuffered in ("", "1"):
        with (tmp_path / "out").open("wb") as stdout:
            done = hlo_opt("print", tmp_path / "m.hlo", stdout=stdout, unbuffered=unbuffered)
        assert (done.returncode, done.stderr) == (0, "")
        outputs.append((tmp_path / "out").read_bytes())
    assert outputs[0] == outputs[1] and outputs[0].count(b"negate") == 501


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
def test_what_belongs_to_an_output_that_failed_is_not_written(tmp_path):
    (tmp_path / "m.hlo").write_text(MODULE % "")
    recorded = ["isolate", tmp_path / "m.hlo", "r", "--recorded", tmp_path / "had.npz"]
    with open("/dev/full", "wb") as stdout:
        done = hlo_opt(*recorded, stdout=stdout, unbuffered="")
    assert (done.returncode, done.stderr) == (2, "stdout: HLO300 cannot write: No space left on device\n")
    assert [p.name for p in tmp_path.iterdir()] == ["m.hlo"]
    done = hlo_opt(*recorded[:-1], "/dev/full", "-o", tmp_path / "part.hlo", stdout=subprocess.PIPE, unbuffered="")
    assert (done.returncode, done.stderr) == (2, "/dev/full: HLO300 cannot write: No space left on device\n")
    assert [p.name for p in tmp_path.iterdir()] == ["m.hlo"]
    same = hlo_opt(*recorded, "-o", tmp_path / "had.npz", stdout=subprocess.PIPE, unbuffered="")
    assert same.returncode == 2 and "need different places" in same.stderr
