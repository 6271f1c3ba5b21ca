"""Failures of the program itself and of the world around it."""

import io
import subprocess
import sys

import pytest

from hlo_opt.cli import failure, files, group

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
    monkeypatch.setattr(files, "_READ", [])
    monkeypatch.setattr(
        "hlo_opt.cli.print.read_modules",
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
        (OSError(28, "No space left on device", "out.hlo"), 2, "hlo-opt: out.hlo: No space left on device\n"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else None,
)
def test_what_the_world_does(error, status, message, module, monkeypatch, capfd):
    monkeypatch.setattr("hlo_opt.cli.print.read_modules", failing(error))
    monkeypatch.setattr("os.dup2", lambda *a: None)
    assert group.run(["print", str(module)]) == status
    assert capfd.readouterr().err == message


def test_recursion_is_an_internal_error(module, tmp_path, monkeypatch, capfd):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("hlo_opt.cli.print.read_modules", failing(RecursionError("deep")))
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
