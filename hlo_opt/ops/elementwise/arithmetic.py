"""The exact elementwise operations: arithmetic, bits, comparison and selection.

C++ leaves signed overflow, division by zero and long shifts undefined, HLO defines them. So texts for signed integers
go through unsigned ones, and others through helpers of `hlo_opt/codegen/device`. Types below 32 bits compute in `int`
and are truncated when bound.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from hlo_opt.ir import ELEMENT_TYPES, Instruction, Shape
from hlo_opt.ops import faces, numeric, omitted
from hlo_opt.ops.elementwise.declare import (
    INTEGERS,
    NUMBERS,
    array_operands,
    check_kind,
    elementwise,
    same_dimensions,
    same_type,
)
from hlo_opt.ops.lowering import Elementwise
from hlo_opt.ops.spec import EVERYTHING, ShapeError


def wrapping(operator: str) -> dict[str, str]:
    """C++ texts of an operator with wrapping integers."""
    return {
        **every(f"{{0}} {operator} {{1}}", "float", "complex", *INTEGERS),
        "u16": f"(unsigned int){{0}} {operator} (unsigned int){{1}}",
        "s32": f"(int)((unsigned int){{0}} {operator} (unsigned int){{1}})",
        "s64": f"(long long)((unsigned long long){{0}} {operator} (unsigned long long){{1}})",
    }


def every(text: str, *kinds: str) -> dict[str, str]:
    """One C++ text for several kinds."""
    return dict.fromkeys(kinds, text)


def _second(instruction: Instruction) -> Instruction:
    """The second operand, or the operand of the broadcast that it is."""
    operand = instruction.operands[1]
    return operand.operands[0] if operand.opcode == "broadcast" else operand


def _division_is_expensive(instruction: Instruction) -> bool:
    return not (instruction.shape.type.is_integer and _second(instruction).opcode == "constant")


elementwise(
    "add",
    2,
    lambda call, x, y: x | y if call.type.kind == "pred" else x + y,
    one_step=True,
    ways="ADDITION",
    spread=faces.BY_PARTS.but(integer=faces.interval("add_integers"), rounds=True),
    cuda=Elementwise({**wrapping("+"), "pred": "{0} | {1}", "bf16": "hlo_add_bf16({0}, {1})"}, rounds=("bf16",)),
    commutative=True,
)
elementwise(
    "subtract",
    2,
    lambda call, x, y: x - y,
    one_step=True,
    ways="ADDITION",
    spread=faces.any_type("subtract", rounds=True).but(integer=faces.interval("subtract_integers")),
    accepts=NUMBERS,
    cuda=Elementwise({**wrapping("-"), "bf16": "hlo_subtract_bf16({0}, {1})"}, rounds=("bf16",)),
)
elementwise(
    "multiply",
    2,
    lambda call, x, y: x & y if call.type.kind == "pred" else x * y,
    one_step=True,
    ways="WRAPPING",
    spread=faces.Spreading(
        faces.interval("multiply"), faces.interval("multiply_integers"), faces.interval("complex_multiply"), rounds=True
    ),
    complex_ulp=4,
    cuda=Elementwise({**wrapping("*"), "pred": "{0} & {1}", "bf16": "hlo_multiply_bf16({0}, {1})"}, rounds=("bf16",)),
    commutative=True,
)
elementwise(
    "divide",
    2,
    numeric.divide,
    spread=faces.one("divide", rounds=True),
    complex_ulp=4,
    # CUDA C++ Programming Guide, "Mathematical Functions", with -prec-div=false: 2, plus the reference's rounding; c64
    # has two quotients and a reciprocal
    on_gpu={"f32": 3, "c64": 8},
    accepts=NUMBERS,
    cuda={
        "float": "{0} / {1}",
        **every("hlo_divide_narrow({0}, {1})", "bf16", "f16"),
        "complex": "hlo_complex_divide({0}, {1})",
        **every("hlo_divide<{T}>({0}, {1})", *INTEGERS),
    },
    expensive=_division_is_expensive,
)
elementwise(
    "remainder",
    2,
    numeric.remainder,
    spread=faces.one("remainder", rounds=True),
    slow=True,
    accepts=("signed", "unsigned", "float"),
    cuda={"float": "fmod{F}({0}, {1})", **every("hlo_remainder<{T}>({0}, {1})", *INTEGERS)},
    expensive=_division_is_expensive,
)
for _opcode, _meaning, _operator in (
    ("maximum", lambda call, x, y: numeric.maximum(x, y), "|"),
    ("minimum", lambda call, x, y: numeric.minimum(x, y), "&"),
):
    elementwise(
        _opcode,
        2,
        _meaning,
        one_step=True,
        ways="EXTREME",
        spread=faces.ORDERED,
        cuda={
            "pred": f"{{0}} {_operator} {{1}}",
            **every(f"hlo_{_opcode}<{{T}}>({{0}}, {{1}})", "float", "complex", *INTEGERS),
        },
        commutative=True,
    )
elementwise(
    "negate",
    1,
    lambda call, x: -x,
    one_step=True,
    ways="WRAPPING",
    spread=faces.FALLING.but(complex=faces.FALLING.real, keeps=True),
    accepts=NUMBERS,
    cuda={
        **every("-({0})", "float", "complex", *INTEGERS),
        "s32": "(int)(0u - (unsigned int){0})",
        "s64": "(long long)(0ull - (unsigned long long){0})",
    },
)
elementwise(
    "abs",
    1,
    numeric.absolute,
    one_step=True,
    ways="WRAPPING",
    spread=faces.one("magnitude", complex=faces.interval("complex_magnitude"), keeps=True),
    accepts=NUMBERS,
    result="real",
    by=0,
    cuda={
        "float": "fabs{F}({0})",
        "complex": "hlo_modulus({0})",
        "unsigned": "{0}",
        "signed": "{0} < 0 ? -({0}) : {0}",
        "s32": "{0} < 0 ? (int)(0u - (unsigned int){0}) : {0}",
        "s64": "{0} < 0 ? (long long)(0ull - (unsigned long long){0}) : {0}",
    },
    expensive="complex",
)
elementwise(
    "sign",
    1,
    numeric.sign,
    spread=faces.STEPS,
    complex_ulp=4,
    on_gpu={"c64": 4},
    accepts=("signed", "float", "complex"),
    # the last branch keeps NaN and the sign of zero
    cuda={
        **every("{0} > 0 ? ({T})1 : ({0} < 0 ? ({T})-1 : ({T}){0})", "float", "signed"),
        "complex": "hlo_direction({0})",
    },
    expensive="complex",
)
elementwise(
    "mulhi",
    2,
    numeric.multiply_high,
    accepts=INTEGERS,
    cuda=every("hlo_multiply_high<{W}>({0}, {1})", *INTEGERS),
    commutative=True,
)

for _opcode, _operator, _meaning in (
    ("and", "&", lambda call, x, y: x & y),
    ("or", "|", lambda call, x, y: x | y),
    ("xor", "^", lambda call, x, y: x ^ y),
):
    elementwise(
        _opcode,
        2,
        _meaning,
        spread=faces.UNKNOWN if _opcode == "xor" else faces.RISING,
        ways="" if _opcode == "xor" else "TRUTH",
        one_step=True,
        accepts=("pred", *INTEGERS),
        cuda=every(f"{{0}} {_operator} {{1}}", "pred", *INTEGERS),
        commutative=True,
    )
elementwise(
    "not",
    1,
    lambda call, x: ~x,
    one_step=True,
    spread=faces.FALLING,
    accepts=("pred", *INTEGERS),
    cuda={"pred": "!{0}", **every("~({0})", *INTEGERS)},
)
for _opcode, _count, _helper in (
    ("popcnt", numeric.population_count, "hlo_population_count"),
    ("count-leading-zeros", numeric.count_leading_zeros, "hlo_count_leading_zeros"),
):
    elementwise(_opcode, 1, _count, accepts=INTEGERS, cuda=every(f"{_helper}<{{W}}>({{0}})", *INTEGERS))


def _stays_inside(instruction: Instruction) -> bool:
    """Whether a shift's amount is a constant below the width, as it nearly always is."""
    amount = _second(instruction)
    if amount.literal is None or amount.shape.rank or amount.literal.is_elided:
        return False
    # the value is an array of one integer
    return 0 <= int(amount.literal.value) < instruction.shape.type.bits  # type: ignore[arg-type]


def _shift_left_texts(instruction: Instruction) -> Mapping[str, str]:
    if _stays_inside(instruction):
        plain = "({T})({0} << {1})"
        # a u16 is promoted to int, which must not overflow
        return {"signed": "hlo_shift_left<{W}>({0}, {1})", "unsigned": plain, "u16": "({T})((unsigned int){0} << {1})"}
    return every("hlo_shift_left<{W}>({0}, {1})", *INTEGERS)


def _shift_right_texts(own: str, instruction: Instruction) -> Mapping[str, str]:
    """C++ itself shifts integers of the `own` kind this way, for amounts below the width."""
    call = f"hlo_shift_right_{'logical' if own == 'unsigned' else 'arithmetic'}<{{W}}>({{0}}, {{1}})"
    return {**every(call, *INTEGERS), **({own: "({T})({0} >> {1})"} if _stays_inside(instruction) else {})}


for _opcode, _meaning, _texts in (
    ("shift-left", lambda call, x, n: numeric.shift(call, call.np.left_shift, x, n), _shift_left_texts),
    (
        "shift-right-logical",
        lambda call, x, n: numeric.shift(call, call.np.right_shift, x, n),
        partial(_shift_right_texts, "unsigned"),
    ),
    ("shift-right-arithmetic", numeric.shift_right_arithmetic, partial(_shift_right_texts, "signed")),
):
    elementwise(_opcode, 2, _meaning, ways="SHIFT", accepts=INTEGERS, cuda=Elementwise(_texts))

_DIRECTIONS = {"EQ": "==", "NE": "!=", "GE": ">=", "GT": ">", "LE": "<=", "LT": "<"}


def _infer_compare(instruction: Instruction) -> Shape:
    shapes = array_operands(instruction)
    element_type = same_type("compare", shapes)
    direction = instruction.word("direction")
    if direction not in _DIRECTIONS:
        raise ShapeError(f"compare has direction {direction or 'missing'}; there are {', '.join(_DIRECTIONS)}")
    check_kind("compare", element_type, EVERYTHING)
    if element_type.is_complex and direction not in ("EQ", "NE"):
        raise ShapeError(f"{element_type} values have no order; compare direction={direction} takes real values")
    return same_dimensions("compare", shapes, ELEMENT_TYPES["pred"])


def _compare_texts(instruction: Instruction) -> Mapping[str, str]:
    operator = _DIRECTIONS[instruction.word("direction")]
    texts = every(f"{{0}} {operator} {{1}}", "pred", "float", "complex", *INTEGERS)
    if instruction.word("type") == "TOTALORDER":
        texts["float"] = f"hlo_total_order({{0}}) {operator} hlo_total_order({{1}})"
    return texts


elementwise(
    "compare",
    2,
    numeric.compare,
    one_step=True,
    precision="own",
    ways="COMPARE",
    spread=faces.any_type("compare", decides=faces.always),
    infer=_infer_compare,
    cuda=Elementwise(_compare_texts, by=0),
    attributes={"direction": True, "type": False},
)


def _infer_select(instruction: Instruction) -> Shape:
    predicate, *choices = array_operands(instruction)
    if predicate.type.kind != "pred":
        raise ShapeError(f"the first operand of select must be pred, not {predicate.type}")
    shape = same_dimensions("select", choices, same_type("select", choices))
    if predicate.rank and predicate.dimensions != shape.dimensions:
        raise ShapeError(f"the predicate of select is neither a scalar nor of the operands' dimensions: {predicate}")
    return shape


elementwise(
    "select",
    3,
    lambda call, predicate, x, y: call.np.where(predicate, x, y),
    ways="SELECT",
    omitted=omitted.select,
    spread=faces.any_type("select", keeps=True),
    infer=_infer_select,
    precision="own",
    cuda={**every("{0} ? {1} : {2}", "pred", "float", *INTEGERS), "complex": "hlo_select({0}, {1}, {2})"},
)


_ORDERED = ("pred", "signed", "unsigned", "float")


def _infer_clamp(instruction: Instruction) -> Shape:
    low, value, high = array_operands(instruction)
    check_kind("clamp", value.type, _ORDERED)
    element_type = same_type("clamp", [value, low, high])
    for bound in (low, high):
        if bound.rank and bound.dimensions != value.dimensions:
            raise ShapeError(f"a bound of clamp is neither a scalar nor of the operand's dimensions: {bound}")
    return same_dimensions("clamp", [value], element_type)


elementwise(
    "clamp",
    3,
    lambda call, low, x, high: numeric.minimum(numeric.maximum(x, low), high),  # bounds may be scalars
    ways="CLAMP",
    omitted=omitted.as_operand(1),
    spread=faces.ORDERED,
    accepts=_ORDERED,
    infer=_infer_clamp,
    cuda=every("hlo_minimum<{T}>(hlo_maximum<{T}>({1}, {0}), {2})", "pred", "float", *INTEGERS),
)
