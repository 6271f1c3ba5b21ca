"""What attention plans match, and the limits of their tiles."""

from __future__ import annotations

import pytest

import hlo_opt
from hlo_opt.ops.reduction.softmax import attention_products
from hlo_opt.plans.attention import Attention
from hlo_opt.plans.columns import SHARED_BYTES
from tests.attention_modules import attention
from tests.codegen.conftest import Tool

TOOL = Tool()


@pytest.mark.parametrize(("columns", "rows", "height"), [(512, 4, 4), (768, 4, 2), (3584, 1, 0)])
def test_shared_memory_holds_the_sums_of_groups(columns: int, rows: int, height: int) -> None:
    """Long values beside short keys: fewer rows of a block, or no kernel of this kind."""
    plan = TOOL.plan(attention(300, 2, columns, rows=rows))
    assert plan.launch.shared_bytes <= SHARED_BYTES
    part = plan.segments[0].part
    assert (part.height if isinstance(part, Attention) else 0) == height


@pytest.mark.parametrize("value", ["e", "total", "weight"])
@pytest.mark.parametrize(("between", "found"), [("bf16", True), ("f8e4m3fn", False)])
def test_codes_of_few_numbers_are_meant(value: str, between: str, found: bool) -> None:
    """Exponentials, their sum or weights that go through a type of 8 bits are not those of the kernel, which keeps
    them as they are."""
    text = attention(70, rows=3)
    line = next(line for line in text.splitlines() if f" {value} = " in line)
    shape = line.split(" = ")[1].split(" ")[0]
    readers = {"e": "reduce({}, zero)", "total": "broadcast({})", "weight": "dot({}, v)"}
    text = text.replace(readers[value].format(value), readers[value].format("back"))
    rounded = f"  narrow = {shape.replace('f32', between)} convert({value})\n  back = {shape} convert(narrow)"
    text = text.replace(line, f"{line}\n{rounded}")
    assert (TOOL.plan(text).kind == "attention") == found
    assert bool(attention_products(hlo_opt.parse(text).entry.instructions)) == found


LATER = ("other = {w} reverse(d), dimensions={{3}}", "x = {w} add(d, other)")
"""Scores that need those of other keys."""


@pytest.mark.parametrize("value", ["top", "total"])
def test_a_softmax_of_other_rows(value: str) -> None:
    """The highest score, or the sum, of the row whose number is the key's."""
    text = attention(4, rows=4)
    own = f"broadcast({value}), dimensions={{0,1,2}}"
    assert TOOL.plan(text).kind == "attention"
    assert own in text
    assert TOOL.plan(text.replace(own, f"broadcast({value}), dimensions={{0,1,3}}")).kind != "attention"


def test_scores_that_need_those_of_other_keys() -> None:
    assert TOOL.plan(attention(70, scores=LATER)).kind != "attention"


def test_the_highest_score_of_a_key() -> None:
    """A maximum over all rows instead of over all keys, of which there are as many."""
    text = attention(4, rows=4)
    by_row = "reduce(x, lowest), dimensions={3}"
    assert by_row in text
    assert TOOL.plan(text.replace(by_row, by_row.replace("3", "2"))).kind != "attention"


def test_queries_that_differ_from_key_to_key() -> None:
    """Heads of the product are keys of the softmax."""
    text = attention(3, rows=4, scores=("x = {w} transpose(d), dimensions={{0,3,2,1}}",))
    assert TOOL.plan(text).kind != "attention"
