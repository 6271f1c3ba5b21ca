"""Sums of lanes along rows of memory."""

from __future__ import annotations

from typing import Any

import pytest

from hlo_opt.codegen.emit import emit_kernel
from hlo_opt.codegen.lanes import as_loops
from hlo_opt.codegen.lanes_folds import row_read, stride, sums_along
from hlo_opt.codegen.tree import Assign, For, Let
from hlo_opt.ir.index_map import Expression, Variable, add, constant, divide, multiply
from hlo_opt.ops.code import NOTHING, Cell, Code, Name, call, code
from hlo_opt.plans import Plan
from tests.loops import loop
from tests.plans.test_block_loop import POWER
from tests.plans.test_lane_loop import planned

LANE, TERM = Variable(0, 63, "lane"), Variable(0, 31, "term")
ROW, COLUMN = add(multiply(LANE, 32), TERM), add(multiply(TERM, 64), LANE)
TOTAL = Name("total")


def fold(*places: Expression | None, value: Code | None = None) -> For:
    """A loop that adds products of what lies at these places."""
    lets = [
        Let("float", Name(f"x{k}"), Code((Cell(Name("in0"), Code(("?",), place=p)),))) for k, p in enumerate(places)
    ]
    made = value or call("fmaf", Name("x0"), Name(f"x{len(places) - 1}"), TOTAL)
    return For("int", Name("term"), NOTHING, NOTHING, NOTHING, body=[*lets, Assign(code("{}", TOTAL), made)])


def along(loop: For, lanes: int = 64, kind: str = "float") -> bool:
    found = sums_along(loop, {}, "lane", lanes, {TOTAL.text: kind})
    assert found in ([], [TOTAL])
    return bool(found)


def test_reads_in_steps_that_compilers_do_not_permute() -> None:
    """Of arrays that nobody writes, where nothing else is done."""

    def read(step: int, *, array: str = "in0", of: str = "{}") -> Name | None:
        element = Code(
            (Cell(Name(array), Code((Name("linear"), " + 1"), place=add(multiply(LANE, step), constant(1)))),)
        )
        return row_read(Let("float", Name("x"), code(of, element)), {"linear": LANE}, "lane", {"in0"})

    assert [read(step) for step in (5, 12)] == [Name("in0")] * 2
    assert [read(step) for step in (0, 1, 2, 3, 4, 16)] == [None] * 6
    assert read(12, array="out0") is None and read(12, of="{} + 1.0f") is None


def test_rows_and_what_all_lanes_read() -> None:
    assert along(fold(ROW)) and along(fold(ROW, TERM)) and along(fold(ROW, LANE))
    assert along(fold(TERM), lanes=1)
    assert not along(fold(ROW), kind="hlo_complex<float>")


def test_columns_stay_side_by_side() -> None:
    assert not along(fold(COLUMN)) and not along(fold(ROW, COLUMN)) and not along(fold(TERM)) and not along(fold(LANE))


def test_what_is_not_known() -> None:
    assert not along(fold(ROW, None)) and not along(fold(add(ROW, divide(TERM, 2))))
    assert not along(fold(add(multiply(LANE, 8), Variable(0, 7, "term"))))  # few terms


@pytest.mark.parametrize(
    "value",
    [
        code("hlo_maximum<float>({}, {})", TOTAL, Name("x0")),
        code("{} * {}", TOTAL, Name("x0")),
        code("{} - {}", TOTAL, Name("x0")),
        code("{} + {}", TOTAL, TOTAL),
        call("fmaf", TOTAL, Name("x0"), Name("x0")),
        code("{}", Name("x0")),
    ],
)
def test_what_is_no_sum(value: Code) -> None:
    assert not along(fold(ROW, value=value))


@pytest.mark.parametrize("value", [code("{} + {}", TOTAL, Name("x0")), code("{} + {}", Name("x0"), TOTAL)])
def test_what_is_one(value: Code) -> None:
    assert along(fold(ROW, value=value))


def test_a_sum_that_is_read_in_each_term() -> None:
    made = fold(ROW)
    made.body.append(Assign(code("{}", Name("other")), code("{} + {}", TOTAL, Name("x0"))))
    assert not along(made)


def test_a_matrix_and_a_vector(tool: Any) -> None:
    text = loop(["f32[64]", "f32[64,64]"], POWER, ["y", "x2"], rounds=20)
    plan = planned(text)
    assert isinstance(plan, Plan)
    assert as_loops(emit_kernel(plan)) is not None
    tool.all_agree([text], relative=1e-5)


def test_digits_of_other_variables_leave_a_stride() -> None:
    block = Variable(0, 15, "block")
    place = add(multiply(divide(block, 2), 64), multiply(LANE, 3))
    assert stride(place, "lane") == 3 and stride(place, "term") == 0 and stride(place, "block") is None
