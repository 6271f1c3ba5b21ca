from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hlo_opt.diag import ParseError
from hlo_opt.ir import ELEMENT_TYPES, Literal
from hlo_opt.text.literals import decode_literal, format_literal, lazy_literal
from hlo_opt.text.shapes import read_shape


def value(shape, text):
    return decode_literal(read_shape(shape), text)


@pytest.mark.parametrize(
    "shape, text, expected",
    [
        ("f32[]", "1.5", 1.5),
        ("f32[]", "3", 3),
        ("f32[]", "5.", 5),
        ("f32[]", "-.5", -0.5),
        ("f32[]", "1E+5", 1e5),
        ("f32[]", "-inf", -np.inf),
        ("f32[]", "3.40282347e+38", np.finfo(np.float32).max),
        ("pred[]", "true", True),
        ("pred[3]", "{1, 0, 2}", [True, False, True]),
        ("s32[2]", "{1, -2,}", [1, -2]),
        ("s32[2]", "{1 /* one */ 2}", [1, 2]),
        ("u64[]", "18446744073709551615", 2**64 - 1),
        ("f32[2,2]", "{\n{1, 2},\n{3, 4}\n}", [[1, 2], [3, 4]]),
        ("f32[0]", "{}", []),
        ("f32[2,0]", "{ {}, {} }", [[], []]),
        ("c64[]", "(1, -2)", 1 - 2j),
        ("c64[2]", "{(1, inf), (3, 4)}", [complex(1, np.inf), 3 + 4j]),
    ],
)
def test_values(shape, text, expected):
    found = value(shape, text)
    assert found.dtype == read_shape(shape).type.dtype
    np.testing.assert_array_equal(found, np.array(expected, dtype=found.dtype))


def test_tuples_nest():
    inner = value("((f32[2], s32[]), pred[])", "(({1, 2}, 5), true)")
    assert inner[0].value[0].value.tolist() == [1, 2]
    assert inner[0].value[1].value == 5
    assert bool(inner[1].value) is True
    assert value("()", "()") == ()


def test_narrow_floats_and_integers():
    assert value("bf16[]", "1.1").dtype == ml_dtypes.bfloat16
    assert float(value("f8e4m3fn[]", "448")) == 448
    assert value("s4[2]", "{-8, 7}").tolist() == [-8, 7]


def test_nan_sign_and_payload():
    assert value("bf16[2]", "{-nan(0x7f), nan}").view(np.uint16).tolist() == [0xFFFF, 0x7FC0]
    assert value("f32[]", "-nan").view(np.uint32) == 0xFFC00000


@pytest.mark.parametrize(
    "shape, text, message",
    [
        ("f32[3]", "{1, 2}", "3 elements"),
        ("c64[2]", "(1, 2)", "2 elements"),
        ("f32[1000000000000000000]", "1", "one value for"),
        ("f32[2,3]", "{{1, 2, 3, 4}, {5, 6}}", "3 elements in each innermost list"),
        ("f32[2,2]", "{{{1, 2}, 3, 4}}", "lists|nest"),
        ("f32[]", "{1}", "0 lists"),
        ("f32[]", "+5", "expected"),
        ("f32[]", "0x10", "expected"),
        ("f32[]", "NaN", "expected"),
        ("f32[]", ".5", "expected"),
        ("f32[]", "true", "not values of f32"),
        ("f16[]", "-65520", "out of range for f16"),
        ("bf16[]", "1e+100", "out of range for bf16"),
        ("f32[]", "1e39", "out of range for f32"),
        ("f64[]", "1e999", "out of range for a double"),
        ("c64[]", "(1e100, 0)", "out of range for c64"),
        ("c64[]", "1", "complex number"),
        ("s32[]", "1.5", "expected an integer"),
        ("s32[]", "inf", "expected an integer"),
        ("u4[]", "16", "out of range for u4"),
        ("s4[]", "-9", "out of range for s4"),
        ("u8[]", "256", "out of range for u8"),
        ("bf16[]", "nan(0x3ff)", "no NaN with this payload"),
        ("f8e4m3fn[]", "nan(0x1)", "no NaN with this payload"),
        ("(f32[], f32[])", "(1)", "tuple of 2"),
        ("token[]", "1", "cannot be written"),
    ],
)
def test_malformed_literals_are_parse_errors(shape, text, message):
    with pytest.raises(ParseError, match=message):
        value(shape, text)


def test_literals_are_decoded_when_asked_for():
    literal = lazy_literal(read_shape("f32[2]"), "{1, 2, 3}")
    assert format_literal(literal) == "{1, 2, 3}"
    with pytest.raises(ParseError):
        _ = literal.value


def test_elided_literals_have_no_value():
    literal = lazy_literal(read_shape("f32[1000]"), "{...}")
    assert literal.is_elided and format_literal(literal) == "{...}"
    with pytest.raises(ValueError, match="elided"):
        _ = literal.value


def test_a_large_literal_decodes_in_time_linear_in_its_length():
    text = "{" + ", ".join(["{1.5}"] * 50_000) + "}"
    assert value("f32[50000,1]", text).sum() == 75_000


TYPES = ["pred", "s4", "u8", "s32", "u64", "f8e5m2", "f8e4m3fn", "f16", "bf16", "f32", "f64", "c64", "c128"]


@given(st.sampled_from(TYPES), st.sampled_from([(), (3,), (2, 2), (0,), (2, 0), (1, 2, 2)]), st.integers(0, 2**32))
@settings(max_examples=150, deadline=None)
def test_values_survive_printing_bit_by_bit(name, dimensions, seed):
    element_type = ELEMENT_TYPES[name]
    shape = read_shape(f"{name}[{','.join(map(str, dimensions))}]")
    generator = np.random.default_rng(seed)
    count = int(np.prod(dimensions, dtype=int))
    if element_type.is_integer and element_type.bits < 8:
        array = generator.integers(-8, 8, count).astype(element_type.dtype)
    elif name == "pred":
        array = generator.integers(0, 2, count).astype(bool)
    else:
        array = np.frombuffer(generator.bytes(count * element_type.bytes), dtype=element_type.dtype)
    array = array.reshape(dimensions)
    text = format_literal(Literal(shape, value=array))
    again = decode_literal(shape, text)
    assert again.shape == array.shape and again.dtype == array.dtype
    if element_type.is_complex or (element_type.is_float and name == "f8e4m3fn"):
        wide = complex if element_type.is_complex else float
        np.testing.assert_array_equal(
            again.astype(wide), array.astype(wide)
        )  # NaNs of these have no bits of their own in the text
    else:
        assert again.tobytes() == array.tobytes()


@pytest.mark.parametrize("text", ["1.5", "-0.0", "nan", "-inf", "1e-45"])
def test_xla_reads_the_same_bits(text):
    jaxlib_hlo = pytest.importorskip("jaxlib._hlo")
    module = jaxlib_hlo.hlo_module_from_text(f"HloModule m\nENTRY e {{ ROOT c = f32[] constant({text}) }}")
    options = jaxlib_hlo.HloPrintOptions()
    options.print_large_constants = True
    printed = module.to_string(options)
    theirs = printed[printed.index("constant(") + 9 : printed.rindex(")")]
    assert value("f32[]", theirs).tobytes() == value("f32[]", text).tobytes()
