"""The grammar file, and that reading by flat rules agrees with the LALR parser."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import hlo_opt
from hlo_opt.text.grammar import MAXIMUM_DEPTH, USUAL_DEPTH, grammar, grammar_text

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


@pytest.mark.parametrize("limit", [USUAL_DEPTH, MAXIMUM_DEPTH])
@pytest.mark.parametrize("more, fits", [(0, True), (1, False)])
def test_brackets_nest_to_a_depth(limit, more, fits):
    depth = limit + more
    found = grammar(limit).terminal("BALANCED").fullmatch("(" * depth + ")" * depth)
    assert (found is not None) == fits


@pytest.mark.parametrize(
    "rule, texts",
    [
        ("window", ["{}", "{size=3x3 pad=0_0x0_1}"]),
        ("metadata", ['{op_name="a" source_line=3}', '{op_name="a", op_type="b"}']),
        ("aliases", ["{ {0}: (1, {}, must-alias), {1,0}: (0, {2}) }", "{{}:(0,{}),}", "{}"]),
        ("donors", ["{ (0, {}), (1, {0}) }"]),
        ("accuracy", ["{mode=highest}", "{tolerance={rtol=0.5, atol=1, ulps=2}}"]),
        ("device_list", ["{{0,1},{2,3}}", "[2,4]<=[4,2]T(1,0)", "mesh['a'=2] {'a'}", "{}"]),
        ("frontend", ['{a="b",c={d [}}', "{}"]),
        ("sharding", ["{replicated}", '{devices=[2,1]<=[2] metadata={op_name="a"}}', "{{manual}, {maximal device=0}}"]),
    ],
)
def test_regular_rules_agree_with_the_lalr_parser(rule, texts):
    quick = grammar().regular(rule)
    for text in texts:
        assert quick.fullmatch(text), text
        assert grammar().parse(rule, text).data == rule
        for broken in (text[:-1], text[1:], text + "}", text.replace("=", ":")):
            if quick.fullmatch(broken):
                grammar().parse(rule, broken)


@pytest.mark.parametrize("rule", ["shape", "literal", "typed_literal"])
def test_regular_refuses_rules_that_come_back_to_themselves(rule):
    with pytest.raises(ValueError, match="is recursive"):
        grammar().regular(rule)


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
