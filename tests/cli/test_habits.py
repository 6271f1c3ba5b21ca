"""Colours, quiet and loud, versions, wrapping, and names that the shell offers."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable
from pathlib import Path

import click
import pytest

from hlo_opt.cli import files
from hlo_opt.cli.group import VERBS, group, run
from hlo_opt.cli.habits import ASKED, asked, wants_colour
from hlo_opt.cli.options import offered_instructions, offered_rules
from hlo_opt.cli.progress import Progress, stop_waiting, waiting
from hlo_opt.report.page import Page, Word

SOFTMAX = str(Path(__file__).resolve().parents[2] / "testdata" / "dumps" / "softmax.hlo")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_quiet_leaves_results_only(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["fuse", SOFTMAX]) == 0
    loud = capfd.readouterr()
    assert run(["-q", "fuse", SOFTMAX]) == 0
    quiet = capfd.readouterr()
    assert loud.err and quiet.err == "" and quiet.out == loud.out


def test_quiet_still_tells_errors(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["-q", "fuse", "no.hlo"]) == 2
    assert "no such file" in capfd.readouterr().err


def test_loud_tells_what_it_took(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["-v", "passes"]) == 0
    assert " s of processor, at most " in capfd.readouterr().err


def test_colours_are_asked_for(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["--color", "always", "targets"]) == 0
    assert "\x1b[1m" in capfd.readouterr().out
    assert run(["--color", "never", "targets"]) == 0
    assert "\x1b" not in capfd.readouterr().out


def test_what_was_asked_for_ends_with_the_verb(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    with asked("never", True, False):
        assert not wants_colour(Terminal()) and ASKED.quiet
    assert wants_colour(Terminal()) and not ASKED.quiet


def test_versions(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    first, *others = capfd.readouterr().out.splitlines()
    assert first.startswith("hlo-opt ")
    assert any(line.startswith("Python 3") for line in others) and any(line.startswith("numpy ") for line in others)


def test_no_progress_where_it_is_not_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    with asked("auto", True, False):
        Progress()("half")
    assert terminal.getvalue() == ""
    Progress()("half")
    assert "half" in terminal.getvalue()


def test_a_slow_verb_says_that_it_runs_until_something_is_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setattr("hlo_opt.cli.progress.PATIENCE", 0.01)
    with waiting("fuse"):
        wait_until(lambda: "fuse: " in terminal.getvalue())
        stop_waiting()
        said = terminal.getvalue()
        assert said.endswith("\x1b[K")
    assert terminal.getvalue() == said
    with asked("auto", True, False), waiting("fuse"):
        pass
    assert terminal.getvalue() == said


def wait_until(test: Callable[[], bool], seconds: float = 10.0) -> None:
    end = time.monotonic() + seconds
    while not test():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_lines_are_wrapped_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stdout", terminal)
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("NO_COLOR", "1")
    page = Page()
    page.add("  ", Word("one two three four five six", "bold"), " seven eight nine ten eleven twelve")
    page.add("  short")
    files.show(page)
    lines = terminal.getvalue().splitlines()
    assert len(lines) == 3 and all(len(line) <= 40 for line in lines)
    assert lines[0].startswith("  one") and lines[1].startswith("    ") and lines[2] == "  short"
    assert "".join(lines).split() == str(page).split()


@pytest.mark.parametrize("width", [3, 7, 20])
def test_wrapping_loses_nothing(width: int) -> None:
    page = Page()
    page.add("x" * 50, " ", Word("yy zz", "red"), "  end")
    made = page.wrapped(width)
    assert "".join(str(made).split()) == "".join(str(page).split())
    assert {w.style for line in made.lines for w in line} == {"", "red"}


def test_the_shell_offers_instructions_and_rules() -> None:
    context = click.Context(click.Command("explain"))
    context.params["file"] = SOFTMAX
    parameter = click.Argument(["instruction"])
    names = offered_instructions(context, parameter, "red")
    assert names and all(name.startswith("red") for name in names)
    context.params["file"] = "no.hlo"
    assert offered_instructions(context, parameter, "") == []
    assert "LNT101" in offered_rules(context, parameter, "LNT")


JSON_VERBS = (
    "explain",
    "diff",
    "view",
    "lint",
    "memory",
    "tune",
    "stats",
    "bisect",
    "passes",
    "ops",
    "targets",
    "bench",
    "calibrate",
)


def test_every_verb_that_prints_json_knows_both_spellings() -> None:
    context = click.Context(group)
    for verb in VERBS:
        command = group.get_command(context, verb)
        assert command is not None
        options = {name for p in command.params for name in p.opts}
        assert ({"--json", "--format"} <= options) == (verb in JSON_VERBS), verb


@pytest.mark.parametrize(
    "arguments", [["stats", SOFTMAX], ["memory", SOFTMAX], ["explain", "FUS105"], ["passes", "dce"], ["ops", "sqrt"]]
)
def test_both_spellings_give_the_same(arguments: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    texts = []
    for spelling in (["--json"], ["--format", "json"]):
        assert run([*arguments, *spelling]) == 0
        texts.append(capfd.readouterr().out)
    assert texts[0] == texts[1] and json.loads(texts[0])
    assert run(arguments) == 0
    assert capfd.readouterr().out != texts[0]


def test_an_option_behind_the_verb_that_belongs_before_it(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["fuse", "-v", SOFTMAX]) == 2
    assert "hlo-opt -v fuse" in capfd.readouterr().err
    assert run(["fuse", "--nothing", SOFTMAX]) == 2
    assert "before the verb" not in capfd.readouterr().err
