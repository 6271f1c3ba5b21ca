"""Reductions of so many rows or columns that 32 bits do not number them."""

import pytest

import hlo_opt
from hlo_opt.runtime.schedule import build_schedule

TEXT = """HloModule m
largest {{ a = s8[] parameter(0)
  b = s8[] parameter(1)
  ROOT c = s8[] maximum(a, b) }}
ENTRY e {{
  x = s8[{operand}] parameter(0)
  least = s8[] constant(-128)
  ROOT r = s8[{result}] reduce(x, least), dimensions={{{along}}}, to_apply=largest
}}
"""


@pytest.mark.parametrize(
    ("operand", "result", "along", "expected"),
    [
        ("5000000000,64", "5000000000", 1, "const long long row = (long long)blockIdx.x * 32 + i0;"),
        ("5000000001,64", "5000000001", 1, "const long long own_row = (long long)blockIdx.x * 32 + i0;"),
        ("64,5000000001", "5000000001", 0, "const long long columns = own_columns <= 5000000000 ? own_columns : "
                                           "5000000000LL;"),
        ("4992,64", "4992", 1, "const int row = blockIdx.x * 32 + i0;"),
    ],
)  # fmt: skip
def test_places_have_64_bits_where_32_are_too_few(operand: str, result: str, along: int, expected: str) -> None:
    (kernel,) = build_schedule(hlo_opt.parse(TEXT.format(operand=operand, result=result, along=along))).kernels
    assert expected in kernel.source
