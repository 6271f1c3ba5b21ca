import pytest

from hlo_opt.ir import ELEMENT_TYPES, Layout, Shape, array
from hlo_opt.ir.element_type import BF16, F32, S32, TOKEN


def test_text_of_shapes():
    assert str(array(F32, 2, 3)) == "f32[2,3]{1,0}"
    assert str(array(F32)) == "f32[]"
    assert str(Shape.tuple_of(array(S32), array(BF16, 4))) == "(s32[], bf16[4]{0})"
    assert str(Shape(F32, (8, 128), Layout((1, 0), "T(8,128)S(1)"))) == "f32[8,128]{1,0:T(8,128)S(1)}"
    assert str(Shape(F32, (4, -1), dynamic=(True, True))) == "f32[<=4,?]"
    assert str(Shape(F32, (32,), is_buffer=True)) == "b(f32[32])"


def test_strides_follow_the_layout():
    assert array(F32, 2, 3, 4).strides == (12, 4, 1)
    assert Shape(F32, (2, 3, 4), Layout((0, 2, 1))).strides == (1, 8, 2)
    assert Shape(F32, (2, 3)).is_row_major


def test_sizes():
    pair = Shape.tuple_of(array(F32, 2, 3), Shape.tuple_of(array(S32), Shape(TOKEN)))
    assert (pair.element_count, pair.byte_size) == (7, 28)
    assert [str(leaf) for leaf in pair.leaves()] == ["f32[2,3]{1,0}", "s32[]", "token[]"]
    assert array(F32, 2, 0).byte_size == 0


def test_layouts_do_not_count_among_values():
    assert Shape(F32, (2, 3), Layout((0, 1))).same_values(Shape(F32, (2, 3)))
    assert Shape(F32, (2, 3), Layout((0, 1))) != Shape(F32, (2, 3))
    with pytest.raises(TypeError):
        _ = Shape.tuple_of().type


@pytest.mark.parametrize("name", [n for n, t in ELEMENT_TYPES.items() if t.numpy_name])
def test_every_numpy_type_exists_and_has_the_width(name: str):
    element_type = ELEMENT_TYPES[name]
    assert element_type.dtype.itemsize == element_type.bytes


def test_a_layout_that_is_not_written_is_row_major():
    bare, rows = Shape(F32, (2, 3)), Shape(F32, (2, 3), Layout((1, 0)))
    assert bare.same_bytes(rows) and not bare.same_bytes(Shape(F32, (2, 3), Layout((0, 1))))
    assert Shape.tuple_of(bare, array(S32)).same_bytes(Shape.tuple_of(rows, array(S32)))
    assert Shape(F32, (2, 3), Layout(None, "S(1)")).same_bytes(Shape(F32, (2, 3), Layout((1, 0), "S(1)")))
    assert not rows.same_bytes(Shape(F32, (2, 3), Layout((1, 0), "S(1)")))
    assert array(F32).same_bytes(Shape(F32)) and not bare.same_bytes(Shape(S32, (2, 3)))
