"""Rotations by a constant: an `or` of two shifts, some of them as products."""

from __future__ import annotations

from typing import Any

import pytest


def rotation(kind: str, left: int, right: int, shape: str = "[4096]{0}", other: str = "x") -> str:
    """An entry that adds two turns of its parameter: one after the other, then one of their shifts."""
    whole = f"{kind}{shape}"

    def amount(number: int) -> str:
        return (
            f"  n{number} = {kind}[] constant({number})\n  b{number} = {whole} broadcast(n{number}), dimensions={{}}\n"
        )

    return (
        f"HloModule m\n\nENTRY e {{\n  x = {whole} parameter(0)\n  y = {whole} negate(x)\n"
        f"{''.join(map(amount, dict.fromkeys((left, right))))}"
        f"  l = {whole} shift-left(x, b{left})\n  r = {whole} shift-right-logical({other}, b{right})\n"
        f"  t = {whole} or(l, r)\n  k = {whole} shift-left(t, b{left})\n  m = {whole} shift-right-logical(t, b{right})\n"
        f"  u = {whole} or(m, k)\n  v = {whole} add(u, l)\n  ROOT z = {whole} add(v, t)\n}}\n"
    )


@pytest.mark.parametrize("kind", ["u32", "s32"])
def test_rotations(kind: str, tool: Any) -> None:
    texts = [rotation(kind, by, 32 - by) for by in (1, 13, 16, 31)]
    for text in texts:
        source = tool.kernel(text).source
        assert source.count("hlo_rotated<") - source.count("return hlo_rotated<") == 1
        assert source.count("hlo_rotated_by_product<") == 1
    tool.all_agree([*texts, rotation(kind, 7, 25, "[]")])


@pytest.mark.parametrize(
    ("kind", "left", "right", "other"),
    [("u32", 13, 18, "x"), ("u64", 13, 51, "x"), ("u32", 0, 32, "x"), ("u32", 32, 0, "x"), ("u16", 4, 12, "x")],
)
def test_what_is_no_rotation_of_a_word(kind: str, left: int, right: int, other: str, tool: Any) -> None:
    text = rotation(kind, left, right, other=other)
    assert "hlo_rotated" not in tool.kernel(text).source
    tool.all_agree([text])


def test_shifts_of_different_values(planner: Any) -> None:
    text = rotation("u32", 13, 19, other="y")
    source = planner.kernel(text).source
    assert source.count("hlo_rotated") - source.count("int hlo_rotated") == 1  # of their sum, not of them
