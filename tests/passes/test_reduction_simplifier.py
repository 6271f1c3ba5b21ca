"""Reduces of single elements: which are written by element, and that every bit of the values stays."""

from __future__ import annotations

import numpy as np
import pytest

import hlo_opt
from tests.small_modules import reduce_text

PASSES = "reduction-simplifier,dce"
_ODD = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.5, -3.0, 1e-40]


def folded(kind: str, opcode: str, init: str, dimensions: str = "1", shape: str = "8,1", result: str = "8") -> str:
    return reduce_text(kind, opcode, init, dimensions, shape, result)


def simplified(text: str) -> hlo_opt.Module:
    made, _ = hlo_opt.fuse(hlo_opt.parse(text), passes=PASSES)
    hlo_opt.verify(made)
    return made


def opcodes(module: hlo_opt.Module) -> list[str]:
    return [i.opcode for i in module.entry.instructions if i.opcode not in ("parameter", "constant")]


@pytest.mark.parametrize(
    ("kind", "opcode", "init", "combined"),
    [
        ("f32", "add", "0", True),  # 0 + -0 is 0
        ("f32", "add", "2.5", True),
        ("f32", "multiply", "1", False),
        ("f32", "maximum", "-inf", False),
        ("f32", "maximum", "-1", True),
        ("f32", "minimum", "inf", False),
        ("bf16", "add", "0", True),
        ("c64", "add", "(0, 0)", True),
        ("s32", "add", "0", False),
        ("s32", "and", "-1", False),
        ("u8", "maximum", "7", True),
        ("pred", "or", "false", False),
    ],
)
def test_every_bit_stays(kind: str, opcode: str, init: str, combined: bool) -> None:
    module = hlo_opt.parse(folded(kind, opcode, init))
    made = simplified(str(module))
    assert opcodes(made) == (["reshape", "broadcast", opcode] if combined else ["reshape"])
    dtype = module.entry.root.shape.type.dtype
    given = np.asarray(_ODD if kind[0] in "fbc" else range(8)).astype(dtype).reshape(8, 1)
    (want,), (got,) = hlo_opt.evaluate(module, [given]), hlo_opt.evaluate(made, [given])
    assert got.tobytes() == want.tobytes()


def test_a_sum_that_starts_at_negative_zero_is_its_element() -> None:
    made = simplified(folded("f32", "add", "-0"))
    given = np.asarray(_ODD, np.float32).reshape(8, 1)
    assert opcodes(made) == ["reshape"]
    assert hlo_opt.evaluate(made, [given])[0].tobytes() == given.tobytes()


@pytest.mark.parametrize(
    ("dimensions", "shape", "result"),
    [("0", "1,8", "8"), ("0,2", "1,4,1,2", "4,2"), ("0,1", "1,1", ""), ("1", "0,1", "0")],
)
def test_any_dimensions_of_size_1(dimensions: str, shape: str, result: str) -> None:
    module = hlo_opt.parse(folded("f32", "multiply", "1", dimensions, shape, result))
    made = simplified(str(module))
    assert opcodes(made) == ["reshape"]
    given = np.arange(np.prod(module.entry.parameters[0].shape.dimensions), dtype=np.float32)
    given = given.reshape(module.entry.parameters[0].shape.dimensions)
    np.testing.assert_array_equal(hlo_opt.evaluate(made, [given])[0], hlo_opt.evaluate(module, [given])[0])


def test_a_sum_of_a_sum_needs_no_zero() -> None:
    text = folded("f32", "add", "0", "1", "8,4", "8").replace("ROOT r", "s").rstrip("}\n")
    made = simplified(
        f"{text}\n  t = f32[8,1] reshape(s)\n  ROOT u = f32[8] reduce(t, i), dimensions={{1}}, to_apply=f\n}}\n"
    )
    assert opcodes(made) == ["reduce"]


@pytest.mark.parametrize(
    "text",
    [
        folded("f32", "add", "0", "1", "8,2", "8"),
        folded("f32", "subtract", "0"),
        folded("f32", "add", "0").replace("dimensions={1}", "dimensions={1}, control-predecessors={x}"),
    ],
    ids=["two elements", "an order of its own", "an order of launches"],
)
def test_others_stay(text: str) -> None:
    assert "reduce" in opcodes(simplified(text))
