"""The quick reader of pipelines against the grammar's LALR parser."""

from __future__ import annotations

import pytest

from hlo_opt.passes.pipeline import _parser
from hlo_opt.passes.reading import Branch, read
from hlo_opt.passes.table import _PRESETS, SIMPLIFY_RAW

TEXTS = [
    *_PRESETS.values(),
    SIMPLIFY_RAW,
    "",
    " cse , dce ",
    'a{b=-1.5e3,c_d="x y",e=best},fixpoint(f{},fixpoint(g))',
    "best(a|b,c | fixpoint(d))",
    "END",
    "a{b=END}",
]
WRONG = [
    "a,",
    "a b",
    "a END",
    "best(a)",
    "fixpoint()",
    "best",
    "a{b}",
    "a{b=}",
    "(a)",
    "a}",
    "a{b=1",
    "fixpoint(best(a|b))",
    "a;b",
    "1",
]


def told(tree: object) -> object:
    """A tree as nested lists, tokens with their kinds and places."""
    if hasattr(tree, "children"):
        return [str(getattr(tree, "data", "")), *map(told, tree.children)]
    return [str(tree), getattr(tree, "type", ""), getattr(tree, "start_pos", -1), getattr(tree, "end_pos", -1)]


@pytest.mark.parametrize("text", TEXTS)
def test_it_reads_what_the_grammar_reads(text: str) -> None:
    found = read(text)
    assert isinstance(found, Branch) and told(found) == told(_parser().parse(text))


@pytest.mark.parametrize("text", WRONG)
def test_what_does_not_fit_is_left_to_the_grammar(text: str) -> None:
    assert read(text) is None
