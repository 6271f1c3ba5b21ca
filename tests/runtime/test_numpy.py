import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hlo_opt import parse
from hlo_opt.diag import EvaluationError
from hlo_opt.ir import ELEMENT_TYPES, Layout, Shape, array
from hlo_opt.library.arrays import raw_dtype
from hlo_opt.runtime.numpy import Reference, logical, physical

F32, BF16 = ELEMENT_TYPES["f32"], ELEMENT_TYPES["bf16"]


@settings(max_examples=40, deadline=None)
@given(st.permutations([0, 1, 2]), st.tuples(*[st.integers(0, 4)] * 3))
def test_physical_follows_the_strides_and_logical_undoes_it(order: list[int], sizes: tuple[int, ...]) -> None:
    shape = Shape(F32, sizes, Layout(tuple(order)))
    values = np.arange(np.prod(sizes), dtype=np.float32).reshape(sizes)
    flat = physical(values, shape)
    assert np.array_equal(logical(flat, shape), values)
    for index in np.ndindex(*sizes):
        assert flat[sum(i * s for i, s in zip(index, shape.strides, strict=True))] == values[index]


def test_scalars_are_one_element() -> None:
    assert physical(np.array(3.0, np.float32), array(F32)).shape == (1,)
    assert logical(np.array([3.0], np.float32), array(F32)).shape == ()


def test_types_that_numpy_lacks_are_stored_as_their_bits() -> None:
    assert raw_dtype(BF16.dtype) == np.uint16 and raw_dtype(np.dtype(np.float16)) == np.float16
    assert raw_dtype(ELEMENT_TYPES["f8e5m2"].dtype) == np.uint8 and raw_dtype(np.dtype(np.bool_)) == np.bool_


def test_what_an_evaluator_cannot_take_is_an_error_at_its_line() -> None:
    text = (
        "HloModule m\n\nENTRY e {\n  a = f32[9,9] parameter(0)\n  b = f32[9,4] parameter(1)\n"
        '  ROOT s = (f32[9,4], s8[0]) custom-call(a, b), custom_call_target="__cublas$gemm", backend_config="zz"\n}\n'
    )
    module = parse(text)
    operands = [np.zeros(p.shape.dimensions, np.float32) for p in module.entry.parameters]
    with pytest.raises(EvaluationError, match="custom-call s: backend_config is no JSON") as caught:
        Reference(module).leaves_of(module.entry.root, operands)
    assert caught.value.span is not None
