"""Sliding windows of all sizes, paddings, types and layouts give what the op table says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hlo_opt.plans import kinds
from hlo_opt.plans.sliding_window import LONGEST_RUN, SHORTEST
from tests.codegen.test_cumulative import SUM_AND_MAXIMUM

TEXT = """HloModule m

f {{
  x = {kind}[] parameter(0)
  y = {kind}[] parameter(1)
  ROOT z = {kind}[] {opcode}(x, y)
}}

ENTRY e {{
  p = {kind}[{sizes}]{{{order}}} parameter(0)
  i = {kind}[] constant({init})
  ROOT s = {kind}[{results}]{{{order}}} reduce-window(p, i), window={{size={window} pad={pad}}}, to_apply=f
}}
"""


def window(
    sizes: tuple[int, ...],
    axis: int,
    size: int,
    pad: tuple[int, int] = (0, 0),
    kind: str = "f32",
    opcode: str = "add",
    init: str = "0",
    order: str = "",
) -> str:
    """An entry with one window."""
    results = [n - size + 1 + sum(pad) if d == axis else n for d, n in enumerate(sizes)]
    return TEXT.format(
        kind=kind,
        opcode=opcode,
        init=init,
        sizes=",".join(map(str, sizes)),
        results=",".join(map(str, results)),
        order=order or ",".join(map(str, reversed(range(len(sizes))))),
        window="x".join(str(size if d == axis else 1) for d in range(len(sizes))),
        pad="x".join("{}_{}".format(*(pad if d == axis else (0, 0))) for d in range(len(sizes))),
    )


@pytest.fixture(autouse=True)
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kind is used where its matcher takes a window, also where a loop is cheaper."""
    every = [replace(kind, has_rivals=kind.has_rivals and kind.name != "sliding-window") for kind in kinds.KINDS]
    monkeypatch.setattr(kinds, "KINDS", every)
    monkeypatch.setattr(kinds, "_BY_NAME", {kind.name: kind for kind in every})


def all_agree(tool: Any, texts: list[str], **how: Any) -> None:
    assert {tool.plan(text).kind for text in texts} == {"sliding-window"}
    tool.all_agree(texts, **how)


def test_rows(tool: Any) -> None:
    sizes = (SHORTEST, SHORTEST + 1, LONGEST_RUN - 1, LONGEST_RUN, 65, 4 * LONGEST_RUN, 4 * LONGEST_RUN + 5, 301)
    texts = [window((rows, size + extra), 1, size) for size in sizes for rows, extra in ((1, 0), (3, 7), (5, 900))]
    texts += [
        window((7, 40), 1, size, pad) for size in (9, 12, 33, 100) for pad in ((40, 41), (70, 0), (0, 70), (80, 90))
    ]
    texts += [window((300, 20), 1, 8), window((2, 9000), 1, 65, (32, 32)), window((70000,), 0, 50)]
    all_agree(tool, texts)


def test_lines_across_memory(tool: Any) -> None:
    texts = [window((150, minor), 0, size, (size // 2, 3)) for size in (8, 65, 140) for minor in (2, 3, 31, 33, 70)]
    texts += [window((3, 100, 5), 1, 17), window((2, 40, 300), 1, 40, (20, 20)), window((2, 40, 33), 0, 9, (8, 8))]
    texts += [window((60, 50), 1, 9, order="0,1"), window((60, 50), 0, 9, order="0,1")]
    all_agree(tool, texts)


@pytest.mark.parametrize("kind", ["f64", "bf16", "f16", "s8", "u8", "s16", "s32", "u64", "pred", "c64"])
@pytest.mark.sweep
def test_types(kind: str, tool: Any) -> None:
    reducers = {"add": "0", "maximum": "-inf", "minimum": "inf"}
    if kind in ("pred", "c64"):
        reducers = {"or": "false", "and": "true"} if kind == "pred" else {"add": "(0, 0)"}
    elif kind[0] in "su":
        lowest = "0" if kind[0] == "u" else str(-(2 ** (int(kind[1:]) - 1)))
        reducers = {"add": "0", "maximum": lowest, "multiply": "1"}
    texts = [
        window(sizes, axis, size, (3, 5), kind, opcode, init)
        for opcode, init in reducers.items()
        for sizes, axis, size in (((3, 90), 1, 20), ((90, 3), 0, 70), ((400,), 0, 200))
    ]
    all_agree(tool, texts)


FUSED = f"""HloModule m

{SUM_AND_MAXIMUM}ENTRY e {{
  p = f32[40,90]{{1,0}} parameter(0)
  v = f32[40]{{0}} parameter(1)
  i = f32[] constant(0)
  low = f32[] constant(-inf)
  n = f32[40,90]{{1,0}} negate(p)
  s = f32[40,90]{{1,0}} reduce-window(n, i), window={{size=1x21 pad=0_0x10_10}}, to_apply=f
  t = f32[40,90]{{1,0}} reduce-window(p, low), window={{size=1x21 pad=0_0x10_10}}, to_apply=g
  b = f32[40,90]{{1,0}} broadcast(v), dimensions={{0}}
  u = f32[40,90]{{1,0}} add(s, b)
  w = f32[40,90]{{1,0}} subtract(u, t)
  h = s8[40,90]{{1,0}} convert(s)
  flat = f32[3600]{{0}} reshape(w)
  ROOT r = (f32[3600]{{0}}, s8[40,90]{{1,0}}, f32[40,90]{{1,0}}) tuple(flat, h, n)
}}
"""


def test_fused_with_what_is_around(tool: Any) -> None:
    all_agree(tool, [FUSED])


ALIKE = "reduce-window(p, low), window={size=1x21 pad=0_0x10_10}"
TWO = FUSED.replace(ALIKE, "reduce-window(p, low), window={size=1x9 pad=0_0x8_0}")


def test_two_sizes_in_one_kernel(tool: Any) -> None:
    all_agree(tool, [TWO])


def test_any_init_value_is_combined_once(tool: Any) -> None:
    all_agree(tool, [window((3, 90), 1, 20, (30, 5), init="3"), window((3, 90), 1, 20, (30, 5), "s32", "and", "7")])


def test_accuracy(tool: Any) -> None:
    """Nothing is subtracted: a large element does not spoil the sums after it."""
    import numpy as np

    given = np.full((1, 400), 1e-3, np.float32)
    given[0, 100] = 1e8
    (sums,) = tool.run(window((1, 400), 1, 65), [given])
    np.testing.assert_allclose(sums[0, 101:], 65e-3, rtol=1e-6)
