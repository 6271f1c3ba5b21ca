"""Flattening, checking and drawing inputs."""

from __future__ import annotations

from typing import ClassVar

import ml_dtypes
import numpy as np
import pytest

from hlo_opt import EvaluationError, evaluate, parse
from hlo_opt.evaluate import flatten, input_shapes, module_inputs, output_shapes, unflatten
from hlo_opt.evaluate.drawing import draw
from hlo_opt.evaluate.inputs import checked, is_raw, raw_dtype
from hlo_opt.ir import ELEMENT_TYPES, Shape, array

TEXT = """HloModule m

ENTRY e {
  p = (f32[3], (s32[2], token[])) parameter(0)
  q = bf16[4] parameter(1)
  ROOT r = (bf16[4], (f32[3], (s32[2], token[]))) tuple(q, p)
}
"""


def test_shapes_leave_tokens_out() -> None:
    module = parse(TEXT)
    assert [str(s) for s in input_shapes(module)] == ["f32[3]", "s32[2]", "bf16[4]"]
    assert [str(s) for s in output_shapes(module)] == ["bf16[4]", "f32[3]", "s32[2]"]


def test_unflatten_is_the_inverse_of_flatten() -> None:
    shapes = [Shape.tuple_of(array(ELEMENT_TYPES["f32"], 1), Shape.tuple_of()), array(ELEMENT_TYPES["f32"])]
    arrays = [np.ones(1, np.float32), np.float32(2)]
    values = unflatten(shapes, arrays)
    assert values[0][1] == () and flatten(tuple(values))[0] is arrays[0] and len(flatten(tuple(values))) == 2


def test_the_same_seed_draws_the_same() -> None:
    module = parse(TEXT)
    first, again, other = module_inputs(module, 1), module_inputs(module, 1), module_inputs(module, 2)
    assert all(a.tobytes() == b.tobytes() for a, b in zip(first, again, strict=True))
    assert any(a.tobytes() != b.tobytes() for a, b in zip(first, other, strict=True))
    assert [a.dtype for a in first] == [np.float32, np.int32, np.dtype(ml_dtypes.bfloat16)]
    evaluate(module, first)


@pytest.mark.parametrize("name", [n for n, t in ELEMENT_TYPES.items() if t.numpy_name])
def test_every_type_can_be_drawn(name: str) -> None:
    element_type = ELEMENT_TYPES[name]
    drawn = draw(np.random.default_rng(0), Shape(element_type, (50,)))
    assert drawn.dtype == element_type.dtype and drawn.shape == (50,)
    if element_type.is_integer:
        assert drawn.astype(np.int64).min() >= (0 if element_type.kind == "unsigned" else -4)
        assert drawn.astype(np.int64).max() <= 7 and len(set(drawn.astype(np.int64).tolist())) > 1


def test_raw_bits_are_taken_for_types_that_numpy_lacks() -> None:
    module = parse("HloModule m\n\nENTRY e {\n  ROOT q = bf16[2] parameter(0)\n}\n")
    bits = np.array([1.5, -2], ml_dtypes.bfloat16).view(np.uint16)
    assert evaluate(module, [bits])[0].tolist() == [1.5, -2]
    assert is_raw(ELEMENT_TYPES["bf16"]) and not is_raw(ELEMENT_TYPES["f16"])
    assert raw_dtype(ELEMENT_TYPES["f8e5m2"]) == np.uint8


def test_operations_say_what_they_like_to_be_given() -> None:
    module = parse("HloModule m\n\nENTRY e {\n  x = f32[200] parameter(0)\n  ROOT y = f32[200] log(x)\n}\n")
    (x,) = module_inputs(module, 0)
    assert (x > 0).all()


def test_nothing_is_drawn_for_an_open_size() -> None:
    module = parse(
        "HloModule m\n\nENTRY e {\n  p = (f32[2], f32[?,3]) parameter(0)\n  ROOT g = f32[2] get-tuple-element(p), index=0\n}\n"
    )
    with pytest.raises(EvaluationError, match="of any size") as caught:
        module_inputs(module)
    assert caught.value.code == "HLO401" and caught.value.line == 4


class OnGpu:
    """An array of CuPy: NumPy gets it by `get` only."""

    __cuda_array_interface__: ClassVar[dict[str, object]] = {}

    def __init__(self, values: np.ndarray) -> None:  # type: ignore[type-arg]
        self.values = values

    def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray:  # type: ignore[type-arg]
        raise TypeError("Implicit conversion to a NumPy array is not allowed. Please use `.get()`")

    def get(self) -> np.ndarray:  # type: ignore[type-arg]
        return self.values


class OnOtherGpu(OnGpu):
    """An array of a library that has no `get`."""

    get = property()  # type: ignore[assignment]


def test_arrays_of_cupy_are_copied() -> None:
    module = parse("HloModule m\nENTRY e {\n  a = bf16[2] parameter(0)\n  ROOT r = bf16[2] negate(a)\n}\n")
    (got,) = checked(module, [OnGpu(np.array([0x3F80, 0x4000], np.uint16))])
    assert got.dtype == ml_dtypes.bfloat16 and got.tolist() == [1.0, 2.0]
    with pytest.raises(EvaluationError, match=r"in0 is no array of bf16: Implicit conversion"):
        checked(module, [OnOtherGpu(np.zeros(2, np.uint16))])
