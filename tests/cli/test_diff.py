"""`hlo-opt diff` and `stats --hash`: what they print where, and their exit status."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hlo_opt.cli.group import run

TEXT = """HloModule m

ENTRY e {
  p = f32[64,32]{1,0} parameter(0)
  a = f32[64,32]{1,0} tanh(p), metadata={op_name="a" source_file="model.py" source_line=7}
  ROOT b = f32[64,32]{1,0} negate(a)
}
"""
SLOWER = TEXT.replace("negate(a)", "negate(c)").replace("  ROOT", "  c = f32[64,32]{1,0} copy(a)\n  ROOT")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, text in (
        ("old", TEXT),
        ("new", SLOWER),
        ("again", TEXT.replace(" a = ", " zz = ").replace("(a)", "(zz)")),
    ):
        (tmp_path / f"{name}.hlo").write_text(text)
    return tmp_path


def test_it_says_what_changed_and_leaves_with_0(capfd):
    assert run(["diff", "old.hlo", "new.hlo", "--fuse", "never"]) == 0
    out = capfd.readouterr().out
    assert "added c = f32[64,32]{1,0} copy(a)" in out
    assert run(["diff", "old.hlo", "again.hlo"]) == 0
    assert "no difference" in capfd.readouterr().out


def test_a_limit_makes_it_fail(capfd):
    arguments = ["diff", "old.hlo", "new.hlo", "--fuse", "never", "--fail-on-regression"]
    assert run([*arguments, "5%"]) == 1
    done = capfd.readouterr()
    assert done.err.startswith("new.hlo: HLO714 module m: estimated at ") and "added c" in done.out
    assert run([*arguments, "90 %"]) == 0 and run([*arguments, "60"]) == 0
    assert run(["diff", "new.hlo", "old.hlo", "--fuse", "never", "--fail-on-regression", "0%"]) == 0
    assert run(["diff", "old.hlo", "again.hlo", "--fail-on-regression", "0%"]) == 0
    assert run([*arguments, "much"]) == 2


def test_the_forms(capfd, folder):
    arguments = ["diff", "old.hlo", "new.hlo", "--fuse", "never"]
    assert run([*arguments, "--format", "json"]) == 0
    assert json.loads(capfd.readouterr().out)["differences"][0]["changes"][0]["new"]["instruction"] == "c"
    assert run([*arguments, "--format", "github", "--fail-on-regression", "5%"]) == 1
    assert capfd.readouterr().out.startswith("::error file=new.hlo,title=HLO714::")


def test_the_page_is_the_one_of_view(capfd, folder):
    assert run(["diff", "old.hlo", "new.hlo", "--format", "html", "-o", "diff.html"]) == 0
    assert run(["view", "old.hlo", "new.hlo", "-o", "view.html"]) == 0
    assert (folder / "diff.html").read_bytes() == (folder / "view.html").read_bytes() != b""
    assert capfd.readouterr().out == ""


def test_a_series(capfd):
    assert run(["diff", "--across", "old.hlo", "again.hlo", "new.hlo", "--fuse", "never"]) == 0
    lines = capfd.readouterr().out.split("\n")
    assert [line.split()[-1] for line in lines[2:5]] == ["old.hlo", "again.hlo", "new.hlo"]
    assert lines[9] == "2. again.hlo -> new.hlo" and "added c" in lines[10]
    assert (
        run(
            [
                "diff",
                "--across",
                "old.hlo",
                "new.hlo",
                "--fuse",
                "never",
                "--fail-on-regression",
                "5%",
                "--format",
                "json",
            ]
        )
        == 1
    )
    assert json.loads(capfd.readouterr().out)["failed"][0]["code"] == "HLO714"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["old.hlo"], "diff takes two files, OLD and NEW, not 1"),
        (["old.hlo", "new.hlo", "again.hlo"], "--across compares a series"),
        (["--across", "old.hlo"], "--across takes two files and more"),
        (["-", "-"], "only one file can be stdin"),
        (["old.hlo", "new.hlo", "-o", "x"], "-o is for --format html"),
        (["--across", "old.hlo", "new.hlo", "--format", "html"], "--across comes as text or json"),
        (["old.hlo", "none.hlo"], "none.hlo: HLO300 no such file"),
    ],
)
def test_wrong_arguments_are_told(arguments, said, capfd):
    assert run(["diff", *arguments]) == 2
    assert said in capfd.readouterr().err


def test_passes_say_that_both_are_fused(capfd):
    assert run(["diff", "old.hlo", "new.hlo", "--preset", "xla-2026", "--target", "v100"]) == 0
    assert "on v100, both fused by xla-2026" in capfd.readouterr().out
    assert run(["diff", "old.hlo", "new.hlo", "--passes", "dce", "--simplify", "never"]) == 0
    assert "both fused by dce" in capfd.readouterr().out


def test_the_hash_of_stats(capfd):
    found = []
    for name in ("old", "again", "new"):
        assert run(["stats", "--hash", f"{name}.hlo"]) == 0
        found.append(capfd.readouterr().out)
        assert run(["stats", "--json", f"{name}.hlo"]) == 0
        assert json.loads(capfd.readouterr().out)["hash"] + "\n" == found[-1]
    assert found[0] == found[1] != found[2]
