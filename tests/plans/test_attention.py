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
