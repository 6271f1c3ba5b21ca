"""Kernels with several segments, run on the host: each output has the blocks that its size needs."""

from __future__ import annotations

from typing import Any

import pytest

SUM = "add {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT c = f32[] add(a, b)\n}\n"


def module(body: str) -> str:
    return f"HloModule m\n{SUM}\nENTRY e {{\n{body}}}\n"


def updates(sizes: list[int]) -> str:
    """p -= rate * g, for parameters of several sizes."""
    lines, roots = ["  rate = f32[] parameter(0)\n"], []
    for number, size in enumerate(sizes):
        lines.append(f"  p{number} = f32[{size}]{{0}} parameter({2 * number + 1})\n")
        lines.append(f"  g{number} = f32[{size}]{{0}} parameter({2 * number + 2})\n")
        lines.append(f"  r{number} = f32[{size}]{{0}} broadcast(rate), dimensions={{}}\n")
        lines.append(f"  step{number} = f32[{size}]{{0}} multiply(r{number}, g{number})\n")
        lines.append(f"  new{number} = f32[{size}]{{0}} subtract(p{number}, step{number})\n")
        roots.append(f"new{number}")
    shapes = ", ".join(f"f32[{size}]{{0}}" for size in sizes)
    return module("".join(lines) + f"  ROOT t = ({shapes}) tuple({', '.join(roots)})\n")


def test_one_launch_updates_parameters_of_all_sizes(tool: Any) -> None:
    sizes = [1, 127, 128, 129, 0, 256, 257, 1031, 2]
    text = updates(sizes)
    found = tool.plan(text)
    assert [s.blocks for s in found.segments] == [-(-size // 128) for size in sizes]
    tool.agrees(text)


def test_vectors_beside_single_elements(tool: Any) -> None:
    text = updates([270336, 3, 270338])
    assert [s.vector for s in tool.plan(text).segments] == [4, 1, 4]
    tool.agrees(text)


@pytest.mark.parametrize(("rows", "columns"), [(1, 32), (9, 33), (3, 2500), (31, 600)])
def test_a_row_reduction_beside_loops(tool: Any, rows: int, columns: int) -> None:
    """The threads of a block do not all have a row, or a position: those without must not keep the others waiting."""
    text = module(
        f"""  p = f32[{rows},{columns}]{{1,0}} parameter(0)
  q = f32[{rows + 3},{2 * columns}]{{1,0}} parameter(1)
  z = f32[] constant(0)
  n = f32[{rows},{columns}]{{1,0}} abs(p)
  s = f32[{rows}]{{0}} reduce(n, z), dimensions={{1}}, to_apply=add
  t = f32[{rows + 3}]{{0}} reduce(q, z), dimensions={{1}}, to_apply=add
  h = f32[{rows},17]{{1,0}} slice(n), slice={{[0:{rows}], [3:20]}}
  k = f32[{rows},{columns}]{{1,0}} negate(p)
  ROOT r = (f32[{rows}]{{0}}, f32[{rows},17]{{1,0}}, f32[{rows},{columns}]{{1,0}}, f32[{rows + 3}]{{0}}) tuple(s, h, k, t)
"""
    )
    found = tool.plan(text)
    assert sorted((s.kind, s.roots) for s in found.segments) == [
        ("loop", (1,)),
        ("row-reduction", (0, 2)),
        ("row-reduction", (3,)),
    ]
    tool.agrees(text, whole=True)


def test_a_row_reduction_in_blocks_that_are_larger_than_its_rows(tool: Any) -> None:
    """One row of 33 columns in blocks of 128 threads: three warps have nothing to do."""
    text = module(
        """  p = f32[1,33]{1,0} parameter(0)
  q = f32[1000]{0} parameter(1)
  z = f32[] constant(0)
  s = f32[1]{0} reduce(p, z), dimensions={1}, to_apply=add
  n = f32[1000]{0} negate(q)
  ROOT r = (f32[1]{0}, f32[1000]{0}) tuple(s, n)
"""
    )
    assert tool.plan(text).launch.block == 128
    assert "if (threadIdx.x >= 32) return;" in tool.kernel(text).source
    tool.agrees(text, whole=True)


def test_rows_of_a_softmax_beside_a_sum_of_all(tool: Any) -> None:
    text = module(
        """  p = f32[12,90]{1,0} parameter(0)
  z = f32[] constant(0)
  x = f32[12,90]{1,0} exponential(p)
  s = f32[12]{0} reduce(x, z), dimensions={1}, to_apply=add
  b = f32[12,90]{1,0} broadcast(s), dimensions={0}
  d = f32[12,90]{1,0} divide(x, b)
  a = f32[] reduce(p, z), dimensions={0,1}, to_apply=add
  ROOT r = (f32[12,90]{1,0}, f32[]) tuple(d, a)
"""
    )
    found = tool.plan(text)
    assert [(s.kind, (s.part.rows, s.part.columns)) for s in found.segments] == [
        ("row-reduction", (1, 1080)),
        ("row-reduction", (12, 90)),
    ]
    tool.agrees(text, relative=1e-5)
