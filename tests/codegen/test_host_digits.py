"""Quotients and remainders of positions on the host."""

from __future__ import annotations

from typing import Any

import pytest

from hlo_opt.codegen.host_digits import taken_apart

HEAD = "  const int linear = blockIdx.x * 128 + threadIdx.x;\n"
VECTOR = "  const int thread = (blockIdx.x - 3) * 64 + threadIdx.x;\n    const int linear = thread * 4 + s0;\n"


@pytest.mark.parametrize(
    ("body", "line"),
    [
        (HEAD + "  const int i0 = linear % 256;\n", "  const int i0 = (blockIdx.x * 128) % 256 + threadIdx.x;"),
        (HEAD + "  const int i0 = linear / 256;\n", "  const int i0 = (blockIdx.x * 128) / 256;"),
        (HEAD + "  const int i0 = linear % 200;\n", "  const int i0 = linear % 200;"),
        (HEAD + "  const int i0 = other % 256;\n", "  const int i0 = other % 256;"),
        (VECTOR + "    const int i0 = linear % 256;\n", "    const int i0 = ((blockIdx.x - 3) * 64 * 4) % 256 + threadIdx.x * 4 + s0;"),
        (VECTOR + "    const int i0 = linear / 128;\n", "    const int i0 = linear / 128;"),
    ],
)  # fmt: skip
def test_which_are_taken_apart(body: str, line: str) -> None:
    assert taken_apart(body).splitlines()[-1] == line
    assert taken_apart(body).splitlines()[:-1] == body.splitlines()[:-1]


@pytest.mark.parametrize(("rows", "columns"), [(5, 128), (3, 256), (7, 384), (1, 512), (2, 130), (33, 64), (1030, 512)])
def test_they_stay_what_they_are(tool: Any, rows: int, columns: int) -> None:
    tool.agrees(
        f"""HloModule m

ENTRY e {{
  p = s32[{rows},{columns}]{{1,0}} parameter(0)
  q = s32[{columns}]{{0}} parameter(1)
  r = s32[{rows}]{{0}} parameter(2)
  a = s32[{rows},{columns}]{{1,0}} broadcast(q), dimensions={{1}}
  b = s32[{rows},{columns}]{{1,0}} broadcast(r), dimensions={{0}}
  c = s32[{rows},{columns}]{{1,0}} add(p, a)
  ROOT d = s32[{rows},{columns}]{{1,0}} subtract(c, b)
}}
"""
    )
