"""`hlo-opt fuse --jobs N DIR`: a folder of modules."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import hlo_opt
from hlo_opt.cli import fleet, folders
from hlo_opt.cli.group import run
from hlo_opt.diag import EvaluationError

TEXT = """HloModule m

ENTRY e {
  p = f32[64]{0} parameter(0)
  a = f32[64]{0} negate(p)
  ROOT b = f32[64]{0} tanh(a)
}
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made = tmp_path / "d"
    made.mkdir()
    (made / "one.hlo").write_text(TEXT)
    (made / "two.hlo").write_text(TEXT.replace("tanh", "sine"))
    (made / "module_0001.jit_f.before_optimizations.txt").write_text(TEXT.replace("negate", "abs"))
    (made / "module_0001.jit_f.sm_9.0_gpu_after_optimizations.txt").write_text(TEXT)
    (made / "notes.txt").write_text("no module")
    return "d"


def rows(table: str) -> dict[str, list[str]]:
    return {words[0]: words[1:] for line in table.splitlines()[1:] if (words := line.split())}


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_every_program_is_fused_into_a_folder(folder, jobs, capfd) -> None:
    assert (
        run(["fuse", folder, "--jobs", jobs, "-o", "out", "--stats", "s.json", "--passes", "instruction-fusion"]) == 0
    )
    done = capfd.readouterr()
    assert done.err == "" and done.out.startswith("d: 3 modules\n")
    found = rows(done.out)
    assert found["one.hlo"][:2] == ["2", "1"] and found["together"][:2] == ["6", "3"]
    names = ["module_0001.jit_f.before_optimizations.hlo", "one.hlo", "two.hlo"]
    assert sorted(os.listdir("out")) == names
    for name in names:
        text = Path("out", name).read_text()
        assert "fusion(" in text
        hlo_opt.verify(hlo_opt.parse(text))
    told = json.loads(Path("s.json").read_text())
    assert [Path(one["file"]).stem for one in told] == [n.removesuffix(".hlo") for n in names]
    assert all(one["errors"] == [] and one["after"]["kernels"] == 1 for one in told)
    assert run(["fuse", "d/one.hlo", "-o", "alone.hlo", "--passes", "instruction-fusion"]) == 0
    assert Path("alone.hlo").read_text() == Path("out", "one.hlo").read_text()


def test_a_file_that_fails_does_not_stop_the_others(folder, capfd) -> None:
    Path(folder, "bad.hlo").write_text("HloModule m\n nothing")
    Path(folder, "odd.hlo").write_text(TEXT.replace("f32[64]{0} negate", "f32[65]{0} negate"))
    assert run(["fuse", folder, "-j", "1", "-o", "out"]) == 2
    done = capfd.readouterr()
    found = rows(done.out)
    assert found["bad.hlo"][-1].startswith("HLO1") and found["odd.hlo"][-1].startswith("HLO2")
    assert found["together"][-3:] == ["2", "with", "errors"] and len(os.listdir("out")) == 3
    assert "d/bad.hlo:2:" in done.err and "d/odd.hlo" in done.err


def test_a_budget_is_for_each_file(folder, capfd) -> None:
    assert run(["fuse", folder, "-j", "1", "--max-kernels", "1", "--passes", "dce", "-o", "out"]) == 1
    done = capfd.readouterr()
    assert len(os.listdir("out")) == 3 and "d/one.hlo: HLO7" in done.err
    assert all(row[-1].startswith("HLO7") for name, row in rows(done.out).items() if name.endswith(".hlo"))


def test_a_fault_of_ours_stays_with_its_file(folder, monkeypatch, capfd) -> None:
    real = fleet.stats_json

    def fails(report):
        if "sine" in str(report.outcome.original):
            raise KeyError("some table")
        return real(report)

    monkeypatch.setattr(fleet, "stats_json", fails)
    assert run(["fuse", folder, "-j", "1"]) == 2
    done = capfd.readouterr()
    assert "d/two.hlo: internal error: KeyError: 'some table'" in done.err
    assert rows(done.out)["two.hlo"][-2:] == ["internal", "error"] and rows(done.out)["together"][0] == "4"


def test_a_process_that_dies_is_told(folder, monkeypatch, capfd) -> None:
    def died(self) -> None:
        raise EvaluationError("a process died", code="HLO342")

    monkeypatch.setattr(fleet.StartedCall, "result", died)
    assert run(["fuse", folder, "-j", "1"]) == 2
    assert "HLO342" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["d/one.hlo"], "--jobs and --scheduler are for a folder"),
        (["d", "--check"], "takes no --check"),
        (["d", "--emit", "e"], "takes no --check, --emit"),
        (["d", "-o", "d"], "-o needs another folder"),
        (["d", "-o", "d/one.hlo"], "-o takes a folder"),
        (["d", "-o", "nowhere/out"], "cannot write"),
        (["empty"], "is a folder without a module"),
    ],
)
def test_what_is_wrong_is_said(folder, arguments, says, capfd) -> None:
    Path("empty").mkdir()
    assert run(["fuse", *arguments, "--jobs", "1"]) == 2
    done = capfd.readouterr()
    assert done.out == "" and says in done.err
    assert sorted(os.listdir(folder))[-2:] == ["one.hlo", "two.hlo"]


def test_files_of_one_stem_are_written_apart(tmp_path) -> None:
    for name in ("m.hlo", "m.hlo.pb"):
        (tmp_path / name).write_text(TEXT)
    places = fleet._places(folders.every(tmp_path), str(tmp_path), str(tmp_path / "out"))
    assert [p.name for p in places.values()] == ["m.hlo", "m.hlo.pb.hlo"]


def default_interrupts() -> None:
    """A shell in the background starts its children with Ctrl-C ignored."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def test_ctrl_c_ends_it_with_what_is_done(tmp_path) -> None:
    """The last file is long, and takes until it is interrupted."""
    folder, out = tmp_path / "d", tmp_path / "out"
    folder.mkdir()
    for name in ("a", "b"):
        (folder / f"{name}.hlo").write_text(TEXT)
    big = TEXT.replace(
        "  ROOT", "".join(f"  x{n} = f32[64]{{0}} sine({f'x{n - 1}' if n else 'a'})\n" for n in range(4000)) + "  ROOT"
    )
    (folder / "z.hlo").write_text(big.replace("tanh(a)", "tanh(x3999)"))
    command = [sys.executable, "-m", "hlo_opt", "fuse", str(folder), "--jobs", "2", "-o", str(out)]
    child = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=default_interrupts
    )
    end = time.monotonic() + 100
    while not (out.is_dir() and len(os.listdir(out)) >= 2) and time.monotonic() < end and child.poll() is None:
        time.sleep(0.02)
    child.send_signal(signal.SIGINT)
    printed, said = child.communicate(timeout=60)
    assert child.returncode == 130, said
    assert f"{folder}: 2 modules of 3" in printed and "Traceback" not in said
    assert sorted(os.listdir(out)) == ["a.hlo", "b.hlo"]
