"""The quick functions do what the table says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hlo_opt.evaluate import Interpreter
from hlo_opt.evaluate.drawing import draw
from hlo_opt.evaluate.plain_functions import direct
from hlo_opt.ir import ELEMENT_TYPES, Attribute, Instruction, array
from hlo_opt.ops import spec_of

OPCODES = ("add", "subtract", "multiply", "and", "or", "xor", "maximum", "minimum")
DIRECTIONS = ("EQ", "NE", "LT", "LE", "GT", "GE")


def made(opcode: str, name: str, attributes: dict[str, Any] | None = None) -> Instruction:
    """An operation on two arrays of a type."""
    shape = array(ELEMENT_TYPES[name], 64)
    result = array(ELEMENT_TYPES["pred"], 64) if opcode == "compare" else shape
    operands = [Instruction(n, "parameter", shape) for n in "xy"]
    return Instruction("r", opcode, result, operands, attributes)


def agree(instruction: Instruction) -> None:
    quick, face = direct(instruction), spec_of(instruction).evaluate
    assert quick is not None and face is not None
    shape = instruction.operands[0].shape
    generator = np.random.default_rng(0)
    values = [draw(generator, shape), draw(generator, shape)]
    info = np.iinfo(shape.type.dtype) if shape.type.is_integer else None
    values[0][:3] = [info.max, info.min, 0] if info else [np.nan, np.inf, 0] if shape.type.is_float else [1, 0, 1]
    with np.errstate(all="ignore"):
        got, want = quick(Interpreter(), instruction, values), face(Interpreter(), instruction, values)
    assert got.dtype == want.dtype and np.array_equal(got, want, equal_nan=got.dtype.kind == "f")


@pytest.mark.parametrize("opcode", OPCODES)
@pytest.mark.parametrize("name", ["f32", "f64", "s8", "s32", "u32", "s64", "pred"])
def test_arithmetic(opcode: str, name: str) -> None:
    instruction = made(opcode, name)
    bitwise = opcode in ("and", "or", "xor")
    if (bitwise and name in ("f32", "f64")) or (not bitwise and name == "pred"):
        assert direct(instruction) is None
    else:
        agree(instruction)


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("name", ["f32", "u8", "s64"])
def test_comparisons(direction: str, name: str) -> None:
    agree(made("compare", name, {"direction": Attribute.of(direction)}))


def test_what_needs_more_is_left_to_the_table() -> None:
    assert direct(made("add", "bf16")) is None
    assert direct(made("add", "s4")) is None
    assert direct(made("divide", "f32")) is None
    attributes = {"direction": Attribute.of("LT"), "type": Attribute.of("TOTALORDER")}
    assert direct(made("compare", "f32", attributes)) is None
