from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hlo_opt.diag import ParseError, Source
from hlo_opt.ir import ELEMENT_TYPES, Layout, Shape
from hlo_opt.ops.shapes import compatible
from hlo_opt.text import parse
from hlo_opt.text.shapes import ShapeTable, read_shape


@pytest.mark.parametrize(
    "text, printed",
    [
        ("f32[]", "f32[]"),
        ("f32[2,3]{1,0}", "f32[2,3]{1,0}"),
        ("bf16[ 2 , /*x*/3 ] {1, 0:T(8,128)(2,1)S(1)}", "bf16[2,3]{1,0:T(8,128)(2,1)S(1)}"),
        ("u32[]{:T(128)}", "u32[]{:T(128)}"),
        ("s32[<=4,?]", "s32[<=4,?]"),
        ("()", "()"),
        ("(f32[8], /*index=1*/ (s32[], ()), token[])", "(f32[8], (s32[], ()), token[])"),
        ("b(f32[8]{0})", "b(f32[8]{0})"),
        ("f32[2,2]{1,0:D(D,C)T(8,128)(2,1)L(4)#(u32)*(u32)E(32)S(5)SC(0:1)M(8)}",) * 2,
    ],
)
def test_shapes_read_and_print(text, printed):
    assert str(read_shape(text)) == printed


def test_the_parts_of_a_shape():
    shape = read_shape("s32[<=4,5]{0,1:S(1)}")
    assert shape == Shape(ELEMENT_TYPES["s32"], (4, 5), Layout((0, 1), "S(1)"), (True, False))
    assert read_shape("f32[?]").dimensions == (-1,)


@pytest.mark.parametrize(
    "text, column, message",
    [
        ("f33[2]", 1, "unknown element type 'f33'"),
        ("(f32[2], f33[2])", 10, "unknown element type 'f33'"),
        ("f32[2]{1,0}", 7, "does not list each of 1 dimensions"),
        ("f32[2,2]{:T(8)}", 9, "does not list each of 2 dimensions"),
        ("f32[9223372036854775808]", 4, "is too large"),
        ("(f32[2]", 8, "expected ')' or ','"),
        ("(f32[2],)", 9, "expected '(' or a shape"),
        ("b(f32[2],f32[2])", 9, "expected ')'"),
    ],
)
def test_malformed_shapes_are_placed(text, column, message):
    with pytest.raises(ParseError) as caught:
        read_shape(text, Source(text), 0)
    assert (caught.value.line, caught.value.column) == (1, column)
    assert message in caught.value.message


def test_a_table_reads_each_spelling_once():
    table = ShapeTable()
    assert table["(f32[2], s32[])"] is table["(f32[2], s32[])"]


def test_compatible_passes_over_layouts_and_dynamic_dimensions():
    assert compatible(read_shape("(s32[4]{0})"), read_shape("(s32[<=4])"))
    assert not compatible(read_shape("s32[4]"), read_shape("s32[5]"))
    assert not compatible(read_shape("(s32[4])"), read_shape("s32[4]"))


array = st.builds(
    lambda t, dims: Shape(ELEMENT_TYPES[t], tuple(dims), Layout(tuple(range(len(dims)))) if dims else None),
    st.sampled_from(["f32", "bf16", "pred", "c64", "s4", "u8"]),
    st.lists(st.integers(0, 10**6), max_size=5),
)
shapes = st.recursive(array, lambda inner: st.lists(inner, max_size=4).map(lambda e: Shape.tuple_of(*e)), max_leaves=12)


@given(shapes)
@settings(max_examples=60, deadline=None)
def test_every_shape_is_read_back(shape):
    assert read_shape(str(shape)) == shape


@pytest.mark.parametrize(
    ("shape", "column", "found"),
    [
        ("f32[-4]", 11, "'-4'"),
        ("f32[3, 4.5]{1,0}", 14, "'4.5'"),
        ("f32[n]", 11, "'n'"),
        ("(f32[3], s32[-1])", 20, "'-1'"),
    ],
)
def test_a_size_that_is_none_is_named(shape, column, found):
    text = f"HloModule m\n\nENTRY e {{\n  p = {shape} parameter(0)\n  ROOT n = f32[4] negate(p)\n}}\n"
    with pytest.raises(ParseError, match=f"expected a dimension size of 0 or more, found {found}") as caught:
        parse(text)
    assert (caught.value.line, caught.value.column) == (4, column)
