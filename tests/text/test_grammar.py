"""The grammar file, and that reading by flat rules agrees with the LALR parser."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import hlo_opt
from hlo_opt.text.grammar import MAXIMUM_DEPTH, grammar, grammar_text

DUMPS = Path(__file__).resolve().parents[2] / "testdata" / "dumps"


def test_the_grammar_file_is_found_and_cites_its_sources():
    text = grammar_text()
    assert "start: header? computation+" in text
    assert "hlo_lexer.cc" in text and "hlo_parser.cc" in text


def test_importing_the_text_room_does_not_load_lark():
    code = "import sys, hlo_opt.text; sys.exit('lark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_flat_gives_one_group_per_terminal():
    found = grammar().flat("instruction_head").match("ROOT %a = f32[2]{0} /* c */ add ( %x, y)")
    assert found is not None
    assert found.groups() == ("ROOT", "%a", "f32[2]{0}", "add", "( %x, y)")
    found = grammar().flat("instruction_head").match("a = add(x)")
    assert found is not None
    assert found.groups() == (None, "a", None, "add", "(x)")


@pytest.mark.parametrize("rule", ["computation", "operands", "shape", "operand"])
def test_flat_refuses_rules_that_need_a_parser_stack(rule):
    with pytest.raises(ValueError, match=rule):
        grammar().flat(rule)


@pytest.mark.parametrize("depth, fits", [(MAXIMUM_DEPTH, True), (MAXIMUM_DEPTH + 1, False)])
def test_brackets_nest_to_the_maximum_depth(depth, fits):
    found = grammar().terminal("BALANCED").fullmatch("(" * depth + ")" * depth)
    assert (found is not None) == fits


def test_strings_and_comments_hide_brackets():
    balanced = grammar().terminal("BALANCED")
    for text in ('{"}"}', "{/*}*/}", "{//}\n}", '{"\\"}"}', "{it's}", "{'}'}"):
        assert balanced.fullmatch(text), text


@pytest.mark.parametrize(
    "name", ["softmax.hlo", "softmax.frames.hlo", "softmax.classic.hlo", "branch.hlo", "cartpole_scan.hlo"]
)
def test_flat_reading_agrees_with_the_lalr_parser(name):
    text = (DUMPS / name).read_text()
    tree = grammar().parse("start", text)
    expected = []
    for computation in tree.find_data("computation"):
        rows = []
        for head in (c.children[0] for c in computation.find_data("instruction")):
            parts = {t.type: str(t) for t in head.children}
            rows.append((parts["NAME"].removeprefix("%"), parts["OPCODE"], "ROOT" in parts))
        expected.append(rows)
    module = hlo_opt.parse(text)
    assert [[(i.name, i.opcode, i.is_root) for i in c.instructions] for c in module.computations] == expected
