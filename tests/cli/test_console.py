import io

import pytest

from hlo_opt.cli import console
from hlo_opt.report.page import Page, Word


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
    console.show(page)
    assert terminal.getvalue() == "\x1b[1m[red]%x[/red]\x1b[0m \\x1b]0;title\\x07\n"


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_a_terminal_may_refuse_colours(name, value, page, monkeypatch):
    monkeypatch.setenv(name, value)
    terminal = Terminal()
    monkeypatch.setattr("sys.stdout", terminal)
    console.show(page)
    assert terminal.getvalue() == "[red]%x[/red] \\x1b]0;title\\x07\n"


def test_what_the_stream_cannot_write_is_escaped(monkeypatch):
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr("sys.stderr", stream)
    made = Page()
    made.add("größer")
    console.show(made, err=True)
    stream.flush()
    assert stream.buffer.getvalue() == b"gr\\xf6\\xdfer\n"
