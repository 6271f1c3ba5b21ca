"""The faces that an elementwise entry gets: inference, index maps, wrapping, cost, and the entry for a new op."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hlo_opt.evaluate.interpreter import Interpreter
from hlo_opt.ir import ELEMENT_TYPES, Attribute, Called, Computation, Instruction, Literal, Module, Shape, array, edit
from hlo_opt.ops import OpKind, ShapeError, find, spec_of, table, unregister
from hlo_opt.ops.elementwise.declare import REALS, elementwise
from hlo_opt.ops.lowering import Elementwise, compute_type

Array = np.ndarray[Any, Any]


def made(opcode: str, result: Shape, *operands: Shape, **attributes: Any) -> Instruction:
    parameters = [Instruction(f"p{k}", "parameter", s, parameter_number=k) for k, s in enumerate(operands)]
    return Instruction("r", opcode, result, parameters, {k: Attribute.of(v) for k, v in attributes.items()})


def of(name: str, *dimensions: int) -> Shape:
    return array(ELEMENT_TYPES[name], *dimensions)


def inferred(instruction: Instruction) -> Shape:
    infer = spec_of(instruction).infer
    assert infer is not None
    return infer(instruction)


def evaluated(instruction: Instruction, *inputs: Any) -> Array:
    evaluate = spec_of(instruction).evaluate
    assert evaluate is not None
    return np.asarray(evaluate(Interpreter(), instruction, list(inputs)))


@pytest.fixture
def softsign() -> Iterator[None]:
    elementwise(
        "softsign",
        1,
        lambda call, x: x / (1 + call.np.abs(x)),
        accepts=REALS,
        cuda={"float": "{0} / (({T})1 + fabs{F}({0}))"},
        ulp=1,
        expensive="always",
    )
    yield
    unregister("softsign")


@pytest.mark.usefixtures("softsign")
def test_a_new_op_is_one_entry() -> None:
    instruction = made("softsign", of("f32", 3), of("f32", 3))
    assert inferred(instruction).same_values(of("f32", 3))
    np.testing.assert_array_equal(evaluated(instruction, np.float32([1, -3, 0])), np.float32([0.5, -0.75, 0]))
    spec = spec_of(instruction)
    assert spec.index is not None and spec.flops is not None and spec.tolerance is not None
    identity = spec.index(instruction, 0)
    assert identity is not None and identity.is_identity
    assert spec.flops(instruction) == 3
    assert spec.arity.accepts(1) and not spec.arity.accepts(2)
    assert spec.tolerance(ELEMENT_TYPES["f32"]) == 1
    assert spec.is_expensive(instruction)
    assert isinstance(spec.cuda, Elementwise) and spec.cuda.text_for(instruction) is not None
    narrow = made("softsign", of("bf16", 1), of("bf16", 1))
    assert evaluated(narrow, np.ones(1, ELEMENT_TYPES["bf16"].dtype)).dtype == ELEMENT_TYPES["bf16"].dtype
    with pytest.raises(ShapeError, match="softsign takes float or complex values, not s32"):
        inferred(made("softsign", of("s32", 3), of("s32", 3)))


def test_an_opcode_is_declared_once() -> None:
    with pytest.raises(ValueError, match="add is declared twice"):
        elementwise("add", 2, lambda call, x, y: x + y, accepts=REALS)


REFUSED = [
    (made("add", of("f32", 3), of("f32", 3), of("f32", 4)), "differ in dimensions"),
    (made("add", of("f32", 3), of("f32", 3), of("f32")), "differ in dimensions"),
    (made("add", of("f32", 3), of("f32", 3), of("s32", 3)), "differ in type: f32 and s32"),
    (made("subtract", of("pred", 3), of("pred", 3), of("pred", 3)), "not pred"),
    (made("floor", of("s32", 3), of("s32", 3)), "floor takes float values, not s32"),
    (made("sign", of("u32", 3), of("u32", 3)), "not u32"),
    (made("and", of("f32", 3), of("f32", 3), of("f32", 3)), "not f32"),
    (made("negate", of("f32", 3), Shape.tuple_of(of("f32", 3))), "must be an array"),
    (made("compare", of("pred", 3), of("f32", 3), of("f32", 3), direction="LQ"), "direction LQ"),
    (made("compare", of("pred", 3), of("c64", 3), of("c64", 3), direction="LT"), "no order"),
    (made("select", of("f32", 3), of("s32", 3), of("f32", 3), of("f32", 3)), "must be pred"),
    (made("select", of("f32", 3), of("pred", 2), of("f32", 3), of("f32", 3)), "neither a scalar"),
    (made("clamp", of("f32", 3), of("f32", 2), of("f32", 3), of("f32")), "neither a scalar"),
    (made("convert", of("f32", 3), of("c64", 3)), "c64 to f32"),
    (made("complex", of("c64", 3), of("f16", 3), of("f16", 3)), "f32 or f64"),
    (made("reduce-precision", of("f32", 3), of("f32", 3), exponent_bits=0, mantissa_bits=3), "at least 1"),
    (made("stochastic-convert", of("s8", 3), of("f32", 3), of("u16", 3)), "u32 random bits"),
    (made("bitcast-convert", of("u32", 3), of("u64", 4)), None),
    (made("bitcast-convert", of("u64", 3), of("u32", 3)), "last dimension of 2"),
    (made("bitcast-convert", of("c64", 3), of("u64", 3)), "bitcast-convert cannot take"),
]


@pytest.mark.parametrize(("instruction", "message"), REFUSED, ids=lambda v: getattr(v, "opcode", None))
def test_operands_that_do_not_fit(instruction: Instruction, message: str | None) -> None:
    if message is None:
        assert not inferred(instruction).same_values(instruction.shape)
        return
    with pytest.raises(ShapeError, match=message):
        inferred(instruction)


def test_inferred_shapes() -> None:
    assert inferred(made("abs", of("f32", 2), of("c64", 2))).same_values(of("f32", 2))
    assert inferred(made("is-finite", of("pred", 2), of("f16", 2))).same_values(of("pred", 2))
    assert inferred(made("add", of("f32", 2), of("f32", 2), of("bf16", 2))).same_values(of("f32", 2))
    assert inferred(made("bitcast-convert", of("u8", 3), of("u32", 3))).same_values(of("u8", 3, 4))
    assert inferred(made("bitcast-convert", of("f64", 3), of("u8", 3, 8))).same_values(of("f64", 3))
    dynamic = Shape(ELEMENT_TYPES["f32"], (4,), dynamic=(True,))
    assert inferred(made("add", dynamic, of("f32", 4), dynamic)).dynamic == (True,)


def test_index_maps() -> None:
    select = made("select", of("f32", 2, 3), of("pred"), of("f32", 2, 3), of("f32", 2, 3))
    index = spec_of(select).index
    assert index is not None
    predicate, value = index(select, 0), index(select, 1)
    assert predicate is not None and predicate.results == ()
    assert value is not None and value.is_identity and len(value.results) == 2
    thin = made("bitcast-convert", of("u32", 3, 2), of("u64", 3))
    wide = made("bitcast-convert", of("u64", 3), of("u32", 3, 2))
    index = spec_of(thin).index
    assert index is not None
    from_wide, from_thin = index(thin, 0), index(wide, 0)
    assert from_wide is not None and [str(e) for e in from_wide.results] == ["d0"]
    assert from_thin is not None and [str(e) for e in from_thin.results] == ["d0", "s0"]
    assert from_thin.symbols == (2,)


@given(
    st.integers(), st.integers(), st.sampled_from(["s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64", "s4", "u4"])
)
@settings(max_examples=200, deadline=None)
def test_integers_wrap_as_hlo_says(x: int, y: int, name: str) -> None:
    element_type = ELEMENT_TYPES[name]
    bits, signed = element_type.bits, element_type.kind == "signed"

    def cut(value: int) -> int:
        value %= 1 << bits
        return value - (1 << bits) if signed and value >> (bits - 1) else value

    x, y = cut(x), cut(y)
    amount = y % (1 << bits)
    quotient = -1 if not y else abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)
    expected = {
        "add": x + y,
        "subtract": x - y,
        "multiply": x * y,
        "mulhi": (x * y) >> bits,
        "divide": quotient,
        "remainder": x - y * quotient if y else x,
        "shift-left": x << amount if amount < bits else 0,
        "shift-right-logical": (x % (1 << bits)) >> amount if amount < bits else 0,
        "shift-right-arithmetic": (x - (1 << bits) if x % (1 << bits) >> (bits - 1) and x > 0 else x)
        >> min(amount, bits - 1),
    }
    for opcode, value in expected.items():
        instruction = made(opcode, of(name), of(name), of(name))
        found = evaluated(instruction, np.array(x, element_type.dtype), np.array(y, element_type.dtype))
        assert int(found) == cut(value), f"{opcode}({x}, {y}) of {name}"
    for opcode, value in {
        "popcnt": (x % (1 << bits)).bit_count(),
        "count-leading-zeros": bits - (x % (1 << bits)).bit_length(),
        "not": ~x,
        "negate": -x,
        "abs": abs(x),
    }.items():
        if not (opcode == "abs" and not signed):
            found = evaluated(made(opcode, of(name), of(name)), np.array(x, element_type.dtype))
            assert int(found) == cut(value), f"{opcode}({x}) of {name}"


def test_stochastic_convert() -> None:
    values = np.float32([1.25, -1.25, 2.0, 300.0, -300.0, np.inf, -np.inf, np.nan, 0.75])
    instruction = made("stochastic-convert", of("s8", 9), of("f32", 9), of("u32", 9))
    below, above = np.full(9, 2**30 - 1, np.uint32), np.full(9, 2**30, np.uint32)
    assert evaluated(instruction, values, below).tolist() == [2, -2, 2, 127, -128, 127, -128, 0, 1]
    assert evaluated(instruction, values, above).tolist() == [1, -1, 2, 127, -128, 127, -128, 0, 1]


def test_narrow_floats_round_once() -> None:
    dtype = ELEMENT_TYPES["bf16"].dtype
    x = np.array([256.0], dtype)
    total = evaluated(made("add", of("bf16", 1), of("bf16", 1), of("bf16", 1)), x, np.array([1.0], dtype))
    assert float(total[0]) == 256.0
    squared = evaluated(
        made("multiply", of("f16", 1), of("f16", 1), of("f16", 1)), np.float16([300]), np.float16([300])
    )
    assert np.isinf(squared[0])


def test_copies_and_choices_keep_the_bits_of_nan() -> None:
    bits = np.array([0x7F81, 0xFFC1], np.uint16)
    value = bits.view(ELEMENT_TYPES["bf16"].dtype)
    copied = evaluated(made("copy", of("bf16", 2), of("bf16", 2)), value)
    chosen = evaluated(made("select", of("bf16", 2), of("pred"), of("bf16", 2), of("bf16", 2)), np.True_, value, value)
    assert copied.view(np.uint16).tolist() == bits.tolist() == chosen.view(np.uint16).tolist()


def _mapper(is_elementwise: bool) -> Computation:
    module = Module("m")
    mapper = edit.new_computation(module, "mapper")
    x = edit.create(mapper, "x", "parameter", of("f32"), parameter_number=0)
    y = edit.create(mapper, "y", "parameter", of("f32"), parameter_number=1)
    if not is_elementwise:
        spread = edit.create(mapper, "b", "broadcast", of("f32", 1), [x], {"dimensions": Attribute.of(())})
        x = edit.create(mapper, "s", "reshape", of("f32"), [spread])
    half = edit.create(mapper, "h", "constant", of("f32"), literal=Literal(of("f32"), value=np.array(0.5, np.float32)))
    scaled = edit.create(mapper, "m", "multiply", of("f32"), [x, half])
    edit.create(mapper, "r", "add", of("f32"), [scaled, y], root=True)
    return mapper


@pytest.mark.parametrize("is_elementwise", [True, False])
def test_map(is_elementwise: bool) -> None:
    instruction = made("map", of("f32", 2, 2), of("f32", 2, 2), of("f32", 2, 2))
    instruction.attributes["to_apply"] = Called(_mapper(is_elementwise))
    assert inferred(instruction).same_values(of("f32", 2, 2))
    x, y = np.arange(4, dtype=np.float32).reshape(2, 2), np.ones((2, 2), np.float32)
    np.testing.assert_array_equal(evaluated(instruction, x, y), x / 2 + 1)
    instruction.operands.pop()
    with pytest.raises(ShapeError, match="1 operands and mapper 2 parameters"):
        inferred(instruction)


def test_what_is_expensive() -> None:
    for opcode in ("add", "select", "convert", "compare", "copy", "floor"):
        assert not spec_of(made(opcode, of("f32", 1), of("f32", 1))).is_expensive(
            made(opcode, of("f32", 1), of("f32", 1))
        )
    for name, costly in (("f32", False), ("c64", True)):
        for opcode in ("sine", "cosine", "tan", "sinh", "abs", "sign"):
            instruction = made(opcode, of(name, 1), of(name, 1))
            assert spec_of(instruction).is_expensive(instruction) is costly, opcode
    for opcode in ("exponential", "log", "tanh", "sqrt", "power", "erf"):
        instruction = made(opcode, of("f32", 1), of("f32", 1))
        assert spec_of(instruction).is_expensive(instruction)
    for name, divisor, costly in (("s32", "constant", False), ("s32", "parameter", True), ("f32", "constant", True)):
        below = Instruction("c", divisor, of(name))
        spread = Instruction("b", "broadcast", of(name, 1), [below])
        instruction = made("divide", of(name, 1), of(name, 1))
        instruction.operands.append(spread)
        assert spec_of(instruction).is_expensive(instruction) is costly


def test_every_type_that_a_register_holds_has_a_text() -> None:
    """A hole in the coverage must be meant: these are all."""
    holes = {(opcode, name) for opcode in ("acos", "acosh", "asin", "asinh", "atanh") for name in ("c64", "c128")}
    for spec in table():
        if spec.kind is not OpKind.ELEMENTWISE or not isinstance(spec.cuda, Elementwise):
            continue
        for name in ("f32", "f64", "bf16", "f16", "s8", "u8", "s32", "u64", "pred", "c64", "c128"):
            extra: dict[str, Any] = {"direction": "EQ"} if spec.opcode == "compare" else {}
            if spec.opcode == "reduce-precision":
                extra = {"exponent_bits": 5, "mantissa_bits": 2}
            operands = [of(name, 1)] * spec.arity.least
            if spec.opcode == "select":
                operands[0] = of("pred", 1)
            if spec.opcode == "stochastic-convert":
                continue
            result = of("pred", 1) if spec.opcode in ("compare", "is-finite") else of(name, 1)
            if spec.opcode == "complex":
                result = of("c128" if name == "f64" else "c64", 1)
            instruction = made(spec.opcode, result, *operands, **extra)
            try:
                inferred(instruction)
            except ShapeError:
                continue
            if (spec.opcode, name) in holes:
                assert spec.cuda.text_for(instruction) is None
                holes.remove((spec.opcode, name))
                continue
            assert compute_type(ELEMENT_TYPES[name]) and spec.cuda.text_for(instruction), f"{spec.opcode} of {name}"
    assert not holes
    assert find("complex") is not None


def test_shifts_by_a_constant_below_the_width_are_plain() -> None:
    def text(amount: int, name: str, opcode: str) -> str | None:
        shift = made(opcode, of(name, 4), of(name, 4))
        value = np.array(amount).astype(ELEMENT_TYPES[name].dtype)
        constant = Instruction("c", "constant", of(name), literal=Literal(of(name), value=value))
        shift.operands.append(Instruction("b", "broadcast", of(name, 4), [constant]))
        lowering = spec_of(shift).cuda
        assert isinstance(lowering, Elementwise)
        return lowering.text_for(shift)

    assert text(31, "u32", "shift-left") == "({T})({0} << {1})"
    assert text(3, "u32", "shift-right-logical") == text(3, "s64", "shift-right-arithmetic") == "({T})({0} >> {1})"
    for amount in (32, -1):
        assert text(amount, "u32", "shift-left") == "hlo_shift_left<{W}>({0}, {1})"
        assert text(amount, "s32", "shift-right-arithmetic") == "hlo_shift_right_arithmetic<{W}>({0}, {1})"
