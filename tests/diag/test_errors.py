import pickle

import pytest

from hlo_opt.diag import (
    CheckError,
    HloOptError,
    ParseError,
    Source,
    Span,
    UsageError,
    VerifyError,
    did_you_mean,
    nearest,
)


def test_an_error_with_a_place_shows_line_carets_and_hint():
    source = Source("HloModule m\n  a = f32[] ad(b)\n", "m.hlo")
    error = ParseError("unknown opcode 'ad'", code="HLO104", span=Span(source, 24, 26), hint="did you mean add?")
    assert str(error).splitlines() == [
        "m.hlo:2:13: HLO104 unknown opcode 'ad'",
        "    a = f32[] ad(b)",
        "              ^^",
        "  hint: did you mean add?",
    ]
    assert (error.line, error.column) == (2, 13)


def test_an_error_without_a_place_names_the_file_if_it_knows_one():
    assert str(UsageError("is a directory", filename="d")) == "d: HLO300 is a directory"
    assert str(UsageError("no preset 'x'")) == "HLO300 no preset 'x'"
    assert UsageError("x").line is None and UsageError("x").column is None


def test_control_characters_never_reach_the_terminal():
    source = Source("a\x1b[31m = f32[] b()", "evil\x07.hlo")
    text = str(ParseError("bad \x1b[2J name", span=Span(source, 0, 6)))
    assert "\x1b" not in text and "\x07" not in text
    assert "\\x1b[31m" in text


def test_a_very_long_line_is_cut_around_the_carets():
    source = Source("x" * 100_000 + "!" + "y" * 100_000)
    text = str(ParseError("odd", span=Span(source, 100_000, 100_001)))
    shown, carets = text.splitlines()[1:3]
    assert len(shown) < 200
    assert shown[carets.index("^")] == "!"


@pytest.mark.parametrize("cls", [ParseError, VerifyError, UsageError, CheckError])
def test_errors_survive_pickling(cls: type[HloOptError]):
    error = cls("no", code="HLO999", span=Span(Source("abc", "f"), 1, 2), hint="h")
    error.others = (cls("nor this", filename="g"),)
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is cls and str(again) == str(error) and again.args == ("no",)


def test_nearest_finds_a_misspelling_and_nothing_far_away():
    assert nearest("multipl", ["add", "multiply", "maximum"]) == "multiply"
    assert nearest("zzzz", ["add", "multiply"]) is None
    assert did_you_mean("multipl", ["add", "multiply"]) == "did you mean multiply?"
    assert did_you_mean("zzzz", ["add", "multiply"]) is None
