"""Rows with sums of columns beside them, on the host: single rows and short ones, one pass and several, types, and rows
that do not divide."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.codegen.test_row_reduction import module


def norm(teams: int, stretch: int, columns: int, kind: str = "f32", fold: str = "add") -> str:
    """Sums of rows, what follows them, and of each stretch the sums of two arrays' columns."""
    rows = teams * stretch
    whole, parts = f"{kind}[{rows},{columns}]", f"{kind}[{teams},{columns}]"
    zero = "(0, 0)" if kind[0] == "c" else "0"
    init = {"max": {"f32": "-inf", "s32": "-2147483648"}.get(kind, "0"), "add": zero}[fold]
    return module(
        kind,
        f"""  x = {whole} parameter(0)
  g = {whole} parameter(1)
  w = {kind}[{columns}] parameter(2)
  z = {kind}[] constant({zero})
  i = {kind}[] constant({init})
  sum = {kind}[{rows}] reduce(x, z), dimensions={{1}}, to_apply=add
  many = {whole} broadcast(sum), dimensions={{0}}
  wide = {whole} broadcast(w), dimensions={{1}}
  gw = {whole} multiply(g, wide)
  dx = {whole} subtract(gw, many)
  cut = {kind}[{teams},{stretch},{columns}] reshape(dx)
  first = {parts} reduce(cut, i), dimensions={{1}}, to_apply={fold}
  cutg = {kind}[{teams},{stretch},{columns}] reshape(g)
  second = {parts} reduce(cutg, z), dimensions={{1}}, to_apply=add
  ROOT t = ({whole}, {kind}[{rows}], {parts}, {parts}) tuple(dx, sum, first, second)
""",
    )


@pytest.mark.parametrize(
    ("stretches", "stretch", "columns", "threads", "per_block", "abreast"),
    [
        (132, 2, 2048, 256, 2, 2),
        (132, 6, 1800, 256, 2, 2),
        (140, 3, 2048, 256, 1, 1),  # no halves
        (300, 2, 2048, 256, 1, 1),  # as many threads as are wanted without them
        (267, 3, 500, 64, 2, 1),  # a team of the last block has no rows of its own
        (600, 2, 256, 32, 4, 1),
        (133, 5, 1100, 160, 1, 1),
        (132, 4, 1501, 192, 2, 2),  # no vectors
        (66, 2, 1501, 192, 1, 1),  # half of the device would have nothing to do
        (132, 2, 4100, 288, 1, 1),  # too long for eight columns per thread
    ],
)
@pytest.mark.sweep
def test_sizes(
    tool: Any, stretches: int, stretch: int, columns: int, threads: int, per_block: int, abreast: int
) -> None:
    text = norm(stretches, stretch, columns)
    plan = tool.plan(text)
    (segment,) = plan.segments
    assert segment.kind == "row-and-column-reduction"
    assert (segment.part.teams, segment.part.stretch) == (stretches * abreast, stretch)
    assert (segment.part.threads, segment.part.rows_per_block(plan.launch.block)) == (threads, per_block)
    assert len(segment.folded) == 3
    tool.agrees(text, whole=True)


@pytest.mark.parametrize("kind", ["bf16", "f64", "s32", "s8"])
def test_types(tool: Any, kind: str) -> None:
    assert tool.plan(norm(132, 2, 2048, kind)).kind == "row-and-column-reduction"
    tool.agrees(norm(132, 2, 2048, kind), whole=True)


def test_complex_numbers(tool: Any) -> None:
    text = norm(132, 2, 2048, "c64").replace("maximum", "multiply")
    assert tool.plan(text).kind == "row-and-column-reduction"
    tool.agrees(text, whole=True)


def test_the_next_row_is_asked_for(planner: Any) -> None:
    """Of both arrays that lie as rows do, and not of the one that all rows share; not where a team has one row."""
    assert "hlo_prefetch(in0, ahead" in (source := planner.kernel(norm(132, 6, 2048)).source)
    assert "hlo_prefetch(in1, ahead" in source and "hlo_prefetch(in2" not in source
    assert "hlo_prefetch" not in planner.kernel(norm(132, 2, 2048)).source


def test_registers_hold_the_next_row(planner: Any) -> None:
    """A row of the arrays is read at one place in the loop, into registers, and before it: not once in each pass."""
    source = planner.kernel(norm(132, 6, 2048)).source
    loop = source[source.index("unroll 1") :]
    assert loop.count("= in0[") == loop.count("= in1[") == 1 and "next_x0[k2 * 4 + s6] = in0[row_after * " in loop
    assert source.count("= in0[") == source.count("= in1[") == 2


def test_a_register_holds_two_of_bf16(tool: Any) -> None:
    text = norm(132, 4, 2048, "bf16")
    source = tool.kernel(text).source
    assert "unsigned int next_x0[8];" in source and "unsigned int held_x0[8];" in source
    assert "hlo_join_bf16(" in source and "hlo_half_bf16(held_x0[" in source
    tool.agrees(text, whole=True)


def test_registers_hold_what_all_rows_share(tool: Any) -> None:
    """A vector along the columns is read before the loop over rows, and not where a team has one row."""
    for kind, array in (("f32", "float all_x2[8];"), ("bf16", "unsigned int all_x2[8];")):
        text = norm(132, 4, 2048, kind)
        source = tool.kernel(text).source
        before, loop = source.split("unroll 1\n")
        assert array in before and before.count("in2[") == 1 and "in2[" not in loop
        tool.agrees(text, whole=True)
    assert "all_x2" not in tool.kernel(norm(132, 2, 2048)).source


def test_rows_for_whose_columns_registers_do_not_suffice_are_read_in_each_pass(planner: Any) -> None:
    """16 columns of f64 per thread, in three sums and two arrays."""
    plan = planner.plan(norm(132, 4, 6144, "f64"))
    assert plan.kind == "row-and-column-reduction" and not plan.segments[0].part.ahead
    assert "next_" not in planner.kernel(norm(132, 4, 6144, "f64")).source


def test_other_folds(tool: Any) -> None:
    for kind in ("f32", "s32"):
        text = norm(132, 2, 2048, kind, "max")
        assert tool.plan(text).kind == "row-and-column-reduction"
        tool.agrees(text, whole=True)


def test_two_levels_and_no_output_of_rows(tool: Any) -> None:
    whole = "f32[264,2048]"
    text = module(
        "f32",
        f"""  x = {whole} parameter(0)
  z = f32[] constant(0)
  m = f32[] constant(-inf)
  top = f32[264] reduce(x, m), dimensions={{1}}, to_apply=max
  tops = {whole} broadcast(top), dimensions={{0}}
  less = {whole} subtract(x, tops)
  sum = f32[264] reduce(less, z), dimensions={{1}}, to_apply=add
  sums = {whole} broadcast(sum), dimensions={{0}}
  both = {whole} add(less, sums)
  cut = f32[132,2,2048] reshape(both)
  ROOT p = f32[132,2048] reduce(cut, z), dimensions={{1}}, to_apply=add
""",
    )
    plan = tool.plan(text)
    assert plan.kind == "row-and-column-reduction" and [len(level) for level in plan.segments[0].part.levels] == [1, 1]
    tool.agrees(text, whole=True)


@pytest.mark.parametrize(
    ("changed", "to"),
    [
        (
            "dx = f32[264,2048] subtract(gw, many)",
            "dx = f32[264,2048] add(gw, wide)",
        ),  # nothing needs a row's sum but itself
        ("i = f32[] constant(0)", "i = f32[] constant(1)"),  # each part would have it
    ],
)
def test_what_is_left_to_other_kinds(tool: Any, changed: str, to: str) -> None:
    text = norm(132, 2, 2048)
    assert changed in text
    found = tool.plan(text.replace(changed, to))
    if "constant(1)" in to:
        assert found.kind != "row-and-column-reduction"
    tool.agrees(text.replace(changed, to), whole=True)


@pytest.mark.parametrize(("teams", "columns"), [(2, 4096), (132, 16), (132, 65536)])
def test_too_few_blocks_short_rows_and_too_many_registers(planner: Any, teams: int, columns: int) -> None:
    assert planner.plan(norm(teams, 2, columns)).kind != "row-and-column-reduction"


def test_a_sum_that_needs_another_sum_of_columns_is_none_beside(tool: Any) -> None:
    text = norm(132, 2, 2048).replace("ROOT t = (f32[264,2048], f32[264], f32[132,2048], f32[132,2048]) tuple(dx, sum, "
                                      "first, second)", "")  # fmt: skip
    more = """  back = f32[132,2,2048] broadcast(first), dimensions={0,2}
  flat = f32[264,2048] reshape(back)
  less = f32[264,2048] subtract(dx, flat)
  ROOT t = (f32[264,2048], f32[132,2048]) tuple(less, first)
"""
    text = text.rstrip().rstrip("}") + more + "}\n"
    assert tool.plan(text).kind != "row-and-column-reduction"
    given = [np.ones((264, 2048), np.float32), np.ones((264, 2048), np.float32), np.ones(2048, np.float32)]
    tool.agrees(text, inputs=given)
