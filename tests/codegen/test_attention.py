"""Attention as one kernel: every size, type and mask gives what the table says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.attention_modules import MASKED, attention
from tests.small_modules import H100


def all_agree(tool: Any, texts: list[str], relative: float = 1e-4) -> None:
    assert {tool.plan(text).kind for text in texts} == {"attention"}
    tool.all_agree(texts, relative=relative)


def test_numbers_of_keys(tool: Any) -> None:
    """Rounds that are full or not, groups without keys, and blocks that share them."""
    texts = [attention(keys) for keys in (3, 31, 129, 1000, 1024)]
    assert {tool.plan(text).segments[0].part.parts > 1 for text in texts} == {False, True}
    all_agree(tool, texts)


def test_blocks_that_share_nothing(tool: Any) -> None:
    alone = replace(tool, target=replace(H100, core_count=1))
    texts = [attention(keys, rows=rows) for keys, rows in ((300, 1), (512, 12))]
    assert {alone.plan(text).segments[0].part.parts for text in texts} == {1}
    all_agree(alone, texts)


def test_lengths_of_keys_and_values(tool: Any) -> None:
    """Lanes that have nothing of a key, or several pieces of it, and values that are longer or shorter."""
    texts = [attention(70, *lengths) for lengths in ((2, 2), (6, 6), (80, 80), (256, 256), (8, 64), (96, 32))]
    parts = [tool.plan(text).segments[0].part for text in texts]
    assert [p.lanes for p in parts] == [1, 4, 32, 32, 16, 32]
    assert [p.pieces for p in parts] == [(1, 1), (1, 1), (1, 1), (2, 2), (1, 1), (1, 1)]
    all_agree(tool, texts)


def test_rows(tool: Any) -> None:
    """A block has up to eight rows; tiles of rows that are no whole number; fewer where registers would not do."""
    texts = [attention(70, 32, rows=rows) for rows in (2, 8, 11)] + [attention(70, 256, rows=8)]
    assert [tool.plan(text).segments[0].part.height for text in texts] == [2, 8, 6, 8]
    all_agree(tool, texts)


@pytest.mark.parametrize(("t", "s"), [("bf16", "f32"), ("f16", "f32"), ("bf16", "bf16"), ("f16", "f16")])
def test_types(tool: Any, t: str, s: str) -> None:
    relative = 0.02 if t == "bf16" else 0.004
    all_agree(tool, [attention(170, 80, rows=4, t=t, s=s)], relative)


@pytest.mark.parametrize("least", ["-inf", "-1e9"])
def test_masks(tool: Any, least: str) -> None:
    """Rows of which nothing is left have no result, as weights of 0 / 0, or that of all keys; others ignore them."""
    text = attention(200, rows=2, scores=MASKED, least=least)
    assert tool.plan(text).kind == "attention"
    draw = np.random.default_rng(5)
    shapes = ((2, 3, 2, 16), (2, 200, 3, 16), (2, 200, 3, 16))
    given = [draw.normal(size=shape).astype(np.float32) for shape in shapes]
    for lengths in ((0, 200), (1, 63), (150, 0)):
        tool.agrees(text, relative=1e-4, inputs=[*given, np.array(lengths, np.int32)])


def test_what_is_no_number(tool: Any) -> None:
    """Infinite scores, and values that no weight or a weight of 0 meets."""
    text = attention(70)
    draw = np.random.default_rng(6)
    query, key, value = (
        draw.normal(size=shape).astype(np.float32) for shape in ((2, 3, 1, 16), (2, 70, 3, 16), (2, 70, 3, 16))
    )
    key[0, 5, 0, 0], key[0, 6, 1, 0], value[1, 69, 2, 3] = np.inf, np.nan, np.inf
    tool.agrees(text, relative=1e-4, inputs=[query, key, value])


def test_what_follows(tool: Any) -> None:
    after = (
        "y = {t}[2,3,{rows},{columns}] negate(r)",
        "z = {t}[2,{rows},3,{columns}] transpose(y), dimensions={{0,2,1,3}}",
        "ROOT b = (bf16[2,3,{rows},{columns}], {t}[2,{rows},3,{columns}]) tuple(c, z)",
    )
    narrow = ("c = bf16[2,3,{rows},{columns}] convert(r)",)
    all_agree(tool, [attention(70, rows=2, after=(*narrow, *after))], 0.01)
