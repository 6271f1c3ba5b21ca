import errno
import io
import os
import stat
from pathlib import Path

import pytest

from hlo_opt.cli import files
from hlo_opt.diag import ParseError, UsageError
from hlo_opt.report.page import Page, Word


def left(folder):
    return sorted(p.name for p in folder.iterdir())


@pytest.mark.parametrize(
    ("data", "line", "column"),
    [(b"HloModule m\n\xff\xfe", 2, 1), (b"ok\nHlo\0Module", 2, 4)],
)
def test_what_is_no_text_is_refused_with_its_place(tmp_path, data, line, column):
    path = tmp_path / "m.hlo"
    path.write_bytes(data)
    with pytest.raises(ParseError) as caught:
        files.read_text(str(path))
    assert (caught.value.line, caught.value.column) == (line, column)
    assert str(path) in str(caught.value)


def test_missing_files_and_folders_are_named(tmp_path):
    for name, why in ((tmp_path / "no.hlo", "no such file"), (tmp_path, "is a folder"), ("a\0b", "not a file name")):
        with pytest.raises(UsageError, match=why) as caught:
            files.read_text(str(name))
        assert caught.value.filename == str(name)


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path):
    (tmp_path / "m.hlo").write_bytes(b"\xef\xbb\xbfHloModule m")
    assert files.read_text(str(tmp_path / "m.hlo")).text == "HloModule m"


def test_an_output_is_whole_or_not_there(tmp_path):
    path = tmp_path / "out"
    with pytest.raises(RuntimeError), files.whole_file(str(path)) as stream:
        stream.write(b"half")
        raise RuntimeError
    assert left(tmp_path) == []
    files.write_text(str(path), "whole\n")
    assert path.read_text() == "whole\n" and left(tmp_path) == ["out"]


def test_a_failed_write_leaves_what_was_there(tmp_path):
    path = tmp_path / "out"
    path.write_text("old")
    with pytest.raises(RuntimeError), files.whole_file(str(path)) as stream:
        stream.write(b"half")
        raise RuntimeError
    assert path.read_text() == "old" and left(tmp_path) == ["out"]


def test_replacing_a_file_keeps_its_mode_and_its_link(tmp_path):
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("old")
    target.chmod(0o640)
    link.symlink_to(target)
    files.write_text(str(link), "new")
    assert link.is_symlink() and target.read_text() == "new"
    assert stat.S_IMODE(target.stat().st_mode) == 0o640


def test_a_device_is_written_not_replaced():
    files.write_text(os.devnull, "gone")
    assert stat.S_ISCHR(os.stat(os.devnull).st_mode)


def test_outputs_that_cannot_be_written_are_found_first(tmp_path):
    for name, why in ((tmp_path, "is a folder"), (tmp_path / "no" / "out", "no folder")):
        with pytest.raises(UsageError, match=why):
            files.check_writable(str(name))
    files.check_writable("-")
    files.check_writable(None)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_a_full_disk_names_the_file():
    with pytest.raises(UsageError) as raised:
        files.write_text("/dev/full", "text")
    assert str(raised.value).startswith("/dev/full: HLO300 cannot write: ")


def test_a_folder_that_refuses_names_the_file_and_not_the_partial_one(tmp_path, monkeypatch):
    monkeypatch.setattr(Path, "replace", refuse)
    name = str(tmp_path / "o.hlo")
    with pytest.raises(UsageError) as raised:
        files.write_text(name, "text")
    assert str(raised.value) == f"{name}: HLO300 cannot write: Read-only file system"
    assert list(tmp_path.iterdir()) == []


def refuse(*_):
    raise OSError(errno.EROFS, "Read-only file system", "partial")


def test_a_closed_stdin_is_told(monkeypatch):
    monkeypatch.setattr("sys.stdin", None)
    with pytest.raises(UsageError, match="<stdin>: HLO300 is closed"):
        files.read_text("-")


@pytest.mark.parametrize("plain", [False, True])
def test_a_terminal_never_gets_control_characters_of_the_text(plain, monkeypatch, capfd):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    if plain:
        monkeypatch.setenv("NO_COLOR", "1")
    files.write_module("-", 'HloModule m\n\n%a = f32[] b(), metadata={op_name="x\x1b]0;title\x07"}\n')
    out = capfd.readouterr().out
    assert "\x1b]0" not in out and "\x07" not in out and "\\x1b]0;title\\x07" in out
    assert ("\x1b[" in out) is not plain


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self):
        return True


@pytest.fixture
def page():
    made = Page()
    made.add(Word("[red]%x[/red]", "bold"), " \x1b]0;title\x07")
    return made


def test_colours_on_a_terminal_only(page, monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    terminal = Terminal()
    monkeypatch.setattr("sys.stdout", terminal)
    files.show(page)
    assert terminal.getvalue() == "\x1b[1m[red]%x[/red]\x1b[0m \\x1b]0;title\\x07\n"


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_a_terminal_may_refuse_colours(name, value, page, monkeypatch):
    monkeypatch.setenv(name, value)
    terminal = Terminal()
    monkeypatch.setattr("sys.stdout", terminal)
    files.show(page)
    assert terminal.getvalue() == "[red]%x[/red] \\x1b]0;title\\x07\n"


def test_what_the_stream_cannot_write_is_escaped(monkeypatch):
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr("sys.stderr", stream)
    made = Page()
    made.add("größer")
    files.show(made, err=True)
    stream.flush()
    assert stream.buffer.getvalue() == b"gr\\xf6\\xdfer\n"


def test_a_misspelt_file_is_answered_with_the_one_beside_it(tmp_path):
    (tmp_path / "softmax.hlo").write_text("HloModule m")
    with pytest.raises(UsageError, match="no such file") as caught:
        files.read_bytes(str(tmp_path / "sofmax.hlo"))
    assert caught.value.hint == f"did you mean {tmp_path / 'softmax.hlo'}?"
    for far in ("other.hlo", "nowhere/softmax.hlo"):
        with pytest.raises(UsageError, match="no such file") as caught:
            files.read_bytes(str(tmp_path / far))
        assert caught.value.hint is None
