"""`hlo-opt help`: pages on topics, and what verbs do. What a page tells to type exists."""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path

import pytest

from hlo_opt.cli.group import VERBS, group, run
from hlo_opt.cli.help import TOPICS
from hlo_opt.cli.questions import QUESTIONS
from hlo_opt.diag import reason_specs
from hlo_opt.report.page import flowing


def page(topic: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert run(["help", topic]) == 0
    return capsys.readouterr().out


def test_topics_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["help"]) == 0
    shown = capsys.readouterr().out
    assert all(f"  {topic}" in shown and what in shown for topic, what in TOPICS.items())


def test_each_page_has_a_topic() -> None:
    files = {Path(str(p)).stem for p in resources.files("hlo_opt.cli").joinpath("topics").iterdir()}
    assert files == set(TOPICS) - {"questions"}  # made of `QUESTIONS`


@pytest.mark.parametrize("topic", TOPICS)
def test_a_page_is_shown(topic: str, capsys: pytest.CaptureFixture[str]) -> None:
    shown = page(topic, capsys)
    assert shown.startswith("# ") and max(map(len, shown.splitlines())) <= 180


@pytest.mark.parametrize("topic", TOPICS)
def test_verbs_and_options_on_a_page_exist(topic: str, capsys: pytest.CaptureFixture[str]) -> None:
    shown = page(topic, capsys)
    commands = re.findall(r"^ {4}hlo-opt (\w+)(.*)$|`hlo-opt (\w+)([^`]*)`", shown, re.MULTILINE)
    assert commands
    for first, rest, second, more in commands:
        verb = first or second
        assert verb in VERBS
        command = group.get_command(None, verb)  # type: ignore[arg-type]  # reads nothing of it
        assert command is not None
        known = {name for parameter in command.params for name in parameter.opts}
        assert set(re.findall(r"--[a-z-]+", rest + more)) <= known


def test_the_flags_of_xla_exist(capsys: pytest.CaptureFixture[str]) -> None:
    import jaxlib

    (library,) = sorted(Path(jaxlib.__file__).parent.glob("libjax_common.*")) or sorted(
        Path(jaxlib.__file__).parent.glob("_jax*.so")
    )
    known = library.read_bytes()
    flags = set(re.findall(r"--(xla_\w+)", page("dump", capsys)))
    assert len(flags) > 6 and {flag for flag in flags if flag.encode() not in known} == set()


def test_the_help_of_a_verb_is_that_of_the_verb(capsys: pytest.CaptureFixture[str]) -> None:
    shown = page("fuse", capsys)
    assert shown.startswith("Usage: hlo-opt fuse [OPTIONS] FILE") and "--what-if" in shown


def test_a_word_that_people_look_for_names_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert "hlo-opt memory FILE" in page("donation", capsys)
    assert "hlo-opt help LNT108  missed-donation" in page("donations", capsys)


def test_a_word_stands_for_one_question() -> None:
    words = [word for question in QUESTIONS for word in question.words]
    assert len(words) == len(set(words)) and not set(words) & set(VERBS)


def test_the_questions_of_the_readme_are_those_of_the_page() -> None:
    readme = (Path(__file__).parent.parent.parent / "README.md").read_text(encoding="utf-8")
    table = readme.partition("| question | command |\n| --- | --- |\n")[2].partition("\n\n")[0]
    commands = {line.split("`")[1] for line in table.splitlines()}
    assert len(commands) > 9
    assert commands <= {question.command.partition(" (")[0] for question in QUESTIONS}


def test_a_page_that_there_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["help", "dmp"]) == 2
    assert capsys.readouterr().err == "HLO300 there is no topic 'dmp'\n  hint: did you mean dump?\n"
    assert run(["help", "zzzzzz"]) == 2
    assert "topics: codes, dump" in capsys.readouterr().err


def test_the_page_of_a_code_lists_all_reasons(capsys: pytest.CaptureFixture[str]) -> None:
    shown = page("codes", capsys)
    assert all(f"    {spec.code}  {spec.slug}\n" in shown for spec in reason_specs())


@pytest.mark.parametrize(("code", "begins"), [("FUS105", "FUS105 several-outputs"), ("lnt101", "LNT101 concatenate")])
def test_help_of_a_code_is_its_page(code: str, begins: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert page(code, capsys).startswith(begins)


@pytest.mark.parametrize(
    ("code", "hint"),
    [
        ("HLO300", "its message and hint say all"),
        ("LNT999", "hlo-opt lint --list shows all rules"),
        ("FUS106", "near it: FUS105, FUS107; hlo-opt help codes lists all"),
        ("FUS999", "  hint: hlo-opt help codes lists all"),
        ("FSU105", "did you mean FUS105?"),
    ],
)
def test_a_code_without_a_page(code: str, hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["help", code]) == 2
    assert hint in capsys.readouterr().err


def test_a_part_of_a_code_is_no_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", "FUS"]) == 2
    assert "three letters and three digits" in capsys.readouterr().err


@pytest.mark.parametrize("verb", ["", *VERBS])
def test_help_fits_a_narrow_terminal(
    verb: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wide = letters_of(verb, 100, monkeypatch, capsys)
    narrow = letters_of(verb, 40, monkeypatch, capsys)
    assert wide == narrow, "nothing is lost"


def letters_of(verb: str, columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    """A verb's help without spaces and ends of lines."""
    monkeypatch.setenv("COLUMNS", str(columns))
    assert run([*([verb] if verb else []), "--help"]) == 0
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= columns
    return "".join(text.split())


def test_paragraphs_of_a_topic_fill_the_lines_of_a_terminal() -> None:
    text = "# Title\n\nOne two\nthree.\n\n    code\n    more\n\n- an item\n  of two lines\n- another\n"
    assert (
        str(flowing(text)) == "# Title\n\nOne two three.\n\n    code\n    more\n\n- an item of two lines\n- another\n"
    )
