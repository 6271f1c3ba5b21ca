from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from pygments.token import Error, Keyword, Name, Number, String

from hlo_opt.text.lexer import HloLexer

DUMPS = Path(__file__).resolve().parents[2] / "testdata" / "dumps"


def tokens(text):
    return [(kind, value) for kind, value in HloLexer().get_tokens(text) if value.strip()]


def test_parts_of_an_instruction():
    found = tokens('  ROOT %a.1 = f32[2]{0} fusion(%p, q), kind=kLoop, calls=%body, metadata={op_name="x"}')
    for expected in [
        (Keyword, "ROOT"),
        (Name.Variable, "%a.1"),
        (Keyword.Type, "f32"),
        (Number.Integer, "2"),
        (Name.Builtin, "fusion"),
        (Name.Variable, "%p"),
        (Name, "q"),
        (Name.Attribute, "kind"),
        (Name, "kLoop"),
        (Name.Function, "%body"),
        (String.Double, '"x"'),
    ]:
        assert expected in found, expected


def test_heads():
    found = tokens("HloModule jit_f, is_scheduled=true\n%body (p: f32[]) -> f32[] {\n}\nENTRY main {\n}")
    assert (Name.Namespace, "jit_f") in found
    assert (Name.Function, "%body") in found and (Name.Function, "main") in found
    assert (Keyword.Constant, "true") in found


@pytest.mark.parametrize("path", sorted(DUMPS.glob("*.hlo"))[::5], ids=lambda p: p.stem)
def test_dumps_have_no_unknown_tokens(path):
    text = path.read_text()
    found = list(HloLexer(ensurenl=False, stripnl=False).get_tokens(text))
    assert "".join(value for _, value in found) == text
    assert not [value for kind, value in found if kind is Error]


def test_any_text_is_taken():
    for text in ("\0\x80{[(", '"never closed', "/* never closed", "'", "%", "=" * 50):
        assert "".join(v for _, v in HloLexer(ensurenl=False, stripnl=False).get_tokens(text)) == text


def test_pygments_finds_it_by_its_text():
    assert HloLexer.analyse_text("// a dump\nHloModule m\n") > 0.5 > HloLexer.analyse_text("module @m {")


def test_the_entry_point_is_declared():
    project = tomllib.loads((Path(__file__).resolve().parents[2] / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pygments.lexers"]["hlo"] == "hlo_opt.text.lexer:HloLexer"
