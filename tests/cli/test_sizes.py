"""`--dynamic`: what `fuse` and `check` say and write, and what they refuse."""

from __future__ import annotations

from pathlib import Path

import pytest

from hlo_opt.cli.group import run

MODULE = """HloModule m
ENTRY e {
  p = f32[8,16]{1,0} parameter(0)
  q = f32[8,16]{1,0} parameter(1)
  a = f32[8,16]{1,0} add(p, q)
  ROOT n = f32[8,16]{1,0} tanh(a)
}
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    (tmp_path / "m.hlo").write_text(MODULE)
    return str(tmp_path / "m.hlo")


def test_check_tries_five_sizes(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check", file, "--dynamic", "p0:0=1..40", "--backend", "host"]) == 0
    out = capsys.readouterr().out
    assert "sizes 1 to 40 of p0:0, p1:0" in out
    assert out.count("agrees on host") == 5 and "check at size 39: agrees" in out


def test_fuse_prints_the_module_at_the_size_of_its_price(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["fuse", file, "--dynamic", "p0:0=1..40@24"]) == 0
    captured = capsys.readouterr()
    assert "f32[24,16]{1,0} fusion(%p, %q)" in captured.out and "dynamic: sizes 1 to 40" in captured.err


def test_fuse_writes_the_family(file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["fuse", file, "--dynamic", "p0:0", "--emit", str(tmp_path / "out"), "-o", str(tmp_path / "f.hlo")]) == 0
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["kernels", "manifest.json"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fuse", "--dynamic", "p7:0"], "the entry has 2 parameters"),
        (["check", "--dynamic", "p0:0", "--inputs", "x.npz"], "draws inputs of several sizes"),
        (["fuse", "--dynamic", "p0:0", "--split-input-file"], "for one module"),
    ],
)
def test_what_is_refused(arguments: list[str], message: str, file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([arguments[0], file, *arguments[1:]]) == 2
    assert message in capsys.readouterr().err


def test_explain_shows_the_pages(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", "siz103"]) == 0
    assert capsys.readouterr().out.startswith("SIZ103 literal")
    assert run(["help", "SIZ110"]) == 0
    assert capsys.readouterr().out.startswith("SIZ110 decided-by-size")
