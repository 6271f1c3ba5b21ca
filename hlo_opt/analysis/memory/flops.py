"""Floating-point operations per element, as XLA's cost model counts them: measured clock cycles, used as if they were operations.

Source: xla/service/gpu/model/hlo_op_profiles_data.h. The key of a table is `type` and the compute capability; an operation that is not listed costs 3.
"""

from __future__ import annotations

from hlo_opt.ir import Instruction

DEFAULT = 3
FALLBACK_CAPABILITY = 86

_COLUMNS = (
    "90 f32", "86 f32", "100 f32", "80 f32", "90 f64", "86 f64", "90 f16", "90 bf16", "90 s32", "90 u32", "90 s64", "90 c64",
)  # fmt: skip
_ROWS = """
add 7 - 7 - 15 97 7 - - - - 7
atan2 431 486 373 - 930 3747 451 - - - - 6462
cbrt 178 867 180 - 586 6339 201 - - - - -
cosine 978 662 1002 - 558 1717 997 - - - - 2415
divide 19 - 23 - 526 2016 43 - 297 122 685 498
erf - - 161 - - - - - - - - -
exponential 79 86 82 - 376 1652 102 - - - - 641
exponential-minus-one 190 381 196 - 712 1900 217 - - - - 2055
log 166 244 165 259 815 608 182 - - - - 756
log-plus-one 229 262 200 - 1259 2073 245 - - - - 633
logistic - 176 176 - - 2412 - - - - - -
multiply 3 - 7 - 15 97 7 - 3 3 11 79
power 510 925 463 1221 2205 5511 526 - 71 71 253 5532
rsqrt 75 75 74 - 277 698 95 - - - - 3148
sine 958 662 990 - 554 1789 993 - - - - 2324
sqrt 75 75 74 - 332 986 95 - - - - 4344
subtract 7 - 7 - 15 97 7 - - - - 7
tanh 467 190 137 504 431 1609 502 - - - - 2379
"""


def _read() -> dict[tuple[int, str, str], int]:
    table: dict[tuple[int, str, str], int] = {}
    for line in _ROWS.strip().splitlines():
        opcode, *cells = line.split()
        for column, cell in zip(_COLUMNS, cells, strict=True):
            if cell != "-":
                capability, element_type = column.split()
                table[int(capability), element_type, opcode] = int(cell)
    return table


_TABLE = _read()
_KNOWN = (80, 86, 90, 100)
_SAME_AS = {103: 100}


def per_element(instruction: Instruction, capability: int) -> int:
    """Operations for one element of an elementwise result, by its type. A device without a profile of its own is counted as sm_86, as XLA does."""
    capability = _SAME_AS.get(capability, capability)
    if capability not in _KNOWN:
        capability = FALLBACK_CAPABILITY
    shape = instruction.shape
    return _TABLE.get((capability, shape.type.name if shape.is_array else "", instruction.opcode), DEFAULT)
