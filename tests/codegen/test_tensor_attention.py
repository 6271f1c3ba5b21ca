"""Attention of many queries on tensor cores: every size, type and mask gives what the table says."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from hlo_opt.analysis.targets import DeviceTarget, target
from hlo_opt.plans import Plan, choose
from tests.attention_modules import CAUSAL, LATE, MASKED, attention
from tests.codegen.conftest import Tool


@pytest.fixture(autouse=True)
def cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is used at all sizes: others are cheaper for the small ones that tests can run."""

    def price(plan: Plan, target: DeviceTarget) -> SimpleNamespace:
        return SimpleNamespace(us=float(plan.kind != "tensor-attention"))

    monkeypatch.setattr(choose, "price", price)


def all_agree(tool: Any, texts: list[str], relative: float = 0.02) -> None:
    assert {tool.plan(text).kind for text in texts} == {"tensor-attention"}
    tool.all_agree(texts, relative=relative)


def test_sizes(tool: Any) -> None:
    """Tiles of queries and chunks of keys that are whole or not, and lengths up to what registers hold."""
    sizes = [(64, 64, 64, 64), (70, 64, 64, 70), (16, 16, 8, 16), (100, 128, 128, 20), (130, 32, 80, 65)]
    texts = [attention(keys, depth, columns, rows=rows, t="bf16") for keys, depth, columns, rows in sizes]
    assert [tool.plan(text).segments[0].part.chunk for text in texts] == [64, 64, 64, 32, 64]
    all_agree(tool, texts)


def test_types(tool: Any) -> None:
    all_agree(tool, [attention(70, 32, rows=20, t="f16"), attention(70, 32, rows=20, t="f16", s="f16")], 0.004)
    all_agree(tool, [attention(70, 32, rows=20, t="bf16", s="bf16")])


@pytest.mark.parametrize("least", ["-inf", "-1e9"])
def test_masks(tool: Any, least: str) -> None:
    """Rows of which nothing is left have no result, as weights of 0 / 0, or that of all keys; others ignore them."""
    text = attention(100, rows=17, t="bf16", scores=MASKED, least=least)
    assert tool.plan(text).kind == "tensor-attention"
    draw = np.random.default_rng(5)
    shapes = ((2, 3, 17, 16), (2, 100, 3, 16), (2, 100, 3, 16))
    given = [draw.normal(size=shape).astype(ml_dtypes.bfloat16) for shape in shapes]
    for lengths in ((0, 100), (1, 63)):
        tool.agrees(text, relative=0.02, inputs=[*given, np.array(lengths, np.int32)])


def test_chunks_of_which_a_mask_leaves_nothing(tool: Any) -> None:
    """They are left out where the scores say that their weights are 0."""
    causal = [attention(200, 32, rows=200, t="bf16", scores=CAUSAL, least=least) for least in ("-inf", "-1e9", "-10")]
    assert [tool.plan(text).segments[0].part.mask is not None for text in causal] == [True, True, False]
    assert " break;" in tool.kernel(causal[0]).source
    all_agree(tool, [*causal, attention(100, 32, rows=200, t="bf16", scores=CAUSAL)])


def test_a_row_without_a_high_score_takes_all_chunks(tool: Any) -> None:
    text = attention(200, 32, rows=70, t="bf16", scores=CAUSAL, least="-1e9")
    query, key = np.zeros((2, 3, 70, 32)), np.zeros((2, 200, 3, 32))
    query[..., 0], key[..., 0] = 1e5, -1e5  # scores of -1e10 beside masked ones of -1e9: these have all the weight
    value = np.random.default_rng(3).normal(size=(2, 200, 3, 32))
    given = [array.astype(ml_dtypes.bfloat16) for array in (query, key, value)]
    assert tool.plan(text).segments[0].part.mask is not None
    tool.agrees(text, relative=0.02, inputs=given)


def test_lengths_that_are_no_whole_pieces(tool: Any) -> None:
    """Keys are filled up with zeros, whatever shared memory held before; columns that are none are not written."""
    sizes = [(40, 40), (24, 20), (160, 160), (10, 8), (32, 36)]
    texts = [attention(70, depth, columns, rows=20, t="bf16") for depth, columns in sizes]
    all_agree(tool, texts)
    assert [tool.plan(texts[0]).segments[0].part.depth, tool.plan(texts[1]).segments[0].part.columns] == [48, 24]


def test_f32(tool: Any) -> None:
    """As TF32 where a library may do that, too; a processor takes all bits."""
    sizes = [(64, 64, 64, 64), (70, 32, 32, 20), (16, 20, 12, 16), (100, 96, 64, 70)]
    texts = [attention(keys, depth, columns, rows=rows) for keys, depth, columns, rows in sizes]
    masked = attention(200, 32, rows=200, scores=CAUSAL)
    assert tool.plan(masked).segments[0].part.mask is not None
    all_agree(tool, [*texts, masked], 1e-5)
    assert "hlo_multiply_tf32<" in tool.kernel(texts[0]).source


def test_results_that_are_divided_later(tool: Any) -> None:
    texts = [attention(70, 32, rows=20, t=t, s=s, after=LATE) for t, s in (("bf16", "f32"), ("f16", "f16"))]
    all_agree(tool, [*texts, attention(70, 20, 12, rows=20, after=LATE)])


def test_what_it_leaves_to_others(planner: Tool) -> None:
    """Few queries, long keys, f32 of which all bits count, and devices without such pieces."""
    others = [attention(70, 64, rows=15, t="bf16"), attention(70, 256, rows=16, t="bf16")]
    others += [attention(70, 128, rows=16), attention(8, 64, rows=16, t="bf16")]
    exact = "rhs_contracting_dims={3}, operand_precision={highest,highest}"
    others.append(attention(70, 64, rows=16).replace("rhs_contracting_dims={3}", exact, 1))
    assert {planner.plan(text).kind for text in others} == {"attention"}
    old = Tool(target=target("v100"))
    assert old.plan(attention(70, 64, rows=16, t="bf16")).kind == "attention"
