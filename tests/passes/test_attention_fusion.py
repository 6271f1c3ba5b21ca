"""Attention as one kernel: where that pays, and what it leaves alone."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import hlo_opt
from hlo_opt.analysis.targets import DeviceTarget, InLanes, target
from hlo_opt.evaluate.inputs import module_inputs
from hlo_opt.ops.reduction.softmax import attention_products
from tests.attention_modules import LATE, MASKED, SCALED, attention

LONG = attention(2048, 64, t="bf16", scores=MASKED)
SPLIT = (
    *SCALED[:-1],
    "h = {s}[6,{rows},{keys}] reshape(d)",
    "i = {s}[6,{rows},{keys}] abs(h)",
    "x = {w} reshape(i)",
)


def launched(text: str, device: str | DeviceTarget = "h100_sxm") -> list[str]:
    made, _ = hlo_opt.fuse(hlo_opt.parse(text), target=device)
    hlo_opt.verify(made)
    free = ("parameter", "constant", "tuple", "bitcast", "get-tuple-element")
    return [i.opcode for i in made.entry.instructions if i.opcode not in free]


@pytest.mark.parametrize("device", ["a100_sxm_80", "h100_sxm", "b200"])
def test_one_kernel(device: str) -> None:
    assert launched(LONG, device) == ["fusion"]
    assert launched(attention(2048, 64, rows=8), device) == ["fusion"]


def test_layers_after_one_another() -> None:
    """What became one kernel makes the queries of the next layer."""
    text = attention(512, 64, t="bf16")
    first = text.replace("ROOT r", "r")
    second = first[first.index("  d =") : first.rindex("}")].replace("dot(q,", "dot(q_2,")
    names = re.findall(r"^  (\w+) =", second, re.MULTILINE)
    for name in names:
        second = re.sub(rf"\b{name}\b(?![({{=])", f"{name}_2", second)
    queries = "  q_2 = bf16[2,3,1,64] tanh(r)\n"
    both = first[: first.rindex("}")] + queries + second.replace("  r_2 =", "  ROOT r_2 =") + "}\n"
    assert launched(both) == ["fusion", "fusion"]


def test_scores_in_another_shape() -> None:
    assert launched(attention(2048, 64, scores=SPLIT)) == ["fusion"]


@pytest.mark.parametrize(("result", "shape"), [("u", "bf16[2,3,1,2048]"), ("d", "f32[2,3,1,2048]")])
def test_scores_and_weights_that_others_read_stay(result: str, shape: str) -> None:
    before = LONG.replace("ROOT r", "r")
    text = before[: before.rindex("}")] + f"  ROOT both = (bf16[2,3,1,64], {shape}) tuple(r, {result})\n}}\n"
    assert len(launched(text)) > 1


def test_many_queries() -> None:
    """On tensor cores they are one kernel, too; a library multiplies them where their blocks do not fill the device."""
    assert launched(attention(1024, 64, rows=1024, t="bf16")) == ["fusion"]
    assert launched(attention(1024, 40, rows=1024, t="f16")) == ["fusion"]
    assert launched(attention(1024, 32, rows=1024)) == ["fusion"]
    assert "dot" in launched(attention(1024, 64, rows=1024))


@pytest.mark.parametrize("rows", [1, 1024])
def test_results_that_are_divided_by_the_sum(rows: int) -> None:
    """After the product with values there are fewer of them."""
    text = attention(1024, 32, rows=rows, t="bf16", after=LATE)
    assert launched(text) == ["fusion"]
    read = text.replace("ROOT y", "y")
    read = read[: read.rindex("}")] + f"  ROOT both = (bf16[2,3,{rows},32], f32[2,3,{rows}]) tuple(y, total)\n}}\n"
    assert len(launched(read)) > 1


def test_products_beside_a_softmax() -> None:
    def products(text: str) -> set[str]:
        return {i.name for i in attention_products(hlo_opt.parse(text).entry.instructions)}

    assert products(LONG) == {"d", "r"}
    assert not products(LONG.replace("divide(e, totals)", "add(e, totals)"))


def test_a_processor_multiplies_by_routines() -> None:
    """Decided for it, or where the kernel of a device runs on it: two products, and the softmax between them."""
    text = attention(512, 64, t="bf16", scores=MASKED)
    assert "dot" in launched(text, InLanes.of(target("h100_sxm")))
    parsed = hlo_opt.parse(text)
    made, _ = hlo_opt.fuse(parsed)
    given = module_inputs(parsed, seed=4)
    executable = hlo_opt.compile(made, backend="host")
    (want,), (got,) = hlo_opt.evaluate(parsed, given), executable(*given)
    np.testing.assert_allclose(got.astype(np.float32), want.astype(np.float32), rtol=0.02, atol=0.02)
    assert executable.report()["library"] == {"dot": 2}


def test_a_kernel_just_made_may_be_above_the_next_one(dumps: Path) -> None:
    """The first attention of the block, as a kernel, is among what the weights of a later product read."""
    text = (dumps / "transformer_block.hlo").read_text(encoding="utf-8")
    made, _ = hlo_opt.fuse(hlo_opt.parse(text))
    hlo_opt.verify(made)
    both = [c for c in made.computations if len(attention_products(c.instructions)) == 2]
    assert both
