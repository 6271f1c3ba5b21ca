from __future__ import annotations

import gc
import pickle

import pytest

import hlo_opt
from hlo_opt.diag import ParseError
from hlo_opt.text import decode, parse, parse_file_parts, split_input
from hlo_opt.text.grammar import MAXIMUM_DEPTH

SEVERAL = """HloModule m
add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT s = f32[] add(a, c) }
mul { a = f32[] parameter(0) b = f32[] parameter(1) ROOT s = f32[] multiply(a, b) }
%bad (x: f32[]) -> f32[] {
  x = f32[] parameter(0)
  y = f33[] negate(x)
  ROOT z = f32[] negatte(y
}

ENTRY e {
  p = f32[2] parameter(0)
  q = f32[] constant(0)
  r = reduce(p, q), dimensions={0}, to_apply=add
  c = call(r), to_apply=bad
  d = add(c, f32[] c)
  ROOT e = f32[] negate(f32[] d), to_apply=mul, to_apply=mul
}
"""


def errors(text, **options):
    with pytest.raises(ParseError) as caught:
        parse(text, "m.hlo", **options)
    return caught.value


def test_one_error_is_the_default():
    assert [e.line for e in errors(SEVERAL).errors] == [2]


def test_several_errors_one_per_computation_and_none_that_follows_from_another():
    found = errors(SEVERAL, max_errors=10)
    assert [(e.line, e.message.split()[0]) for e in found.errors] == [(2, "c"), (6, "unknown"), (16, "attribute")]
    assert str(found).count("m.hlo:") == 3 and "did you mean f32?" in str(found)
    assert found.line == 2
    assert str(pickle.loads(pickle.dumps(found))) == str(found)
    assert [e.line for e in errors(SEVERAL, max_errors=2).errors] == [2, 6]


def test_reading_goes_on_after_a_wrong_header_and_garbage_between_computations():
    text = "HloModule m, x={\nf { ROOT p = f32[] parameter(0) }\n!!\nENTRY e {\n ROOT p = f32[] parameter(x)\n}\n"
    assert [e.line for e in errors(text, max_errors=9).errors] == [1, 3, 5]


def test_decode():
    assert decode(b"\xef\xbb\xbfHloModule m") == "HloModule m"
    assert decode("é".encode()) == "é"


@pytest.mark.parametrize(
    "data, line, column", [(b"ab\ncd\xff", 2, 3), (b"\x00", 1, 1), (b"a\n\xc3", 2, 1), (b"\xed\xa0\x80", 1, 1)]
)
def test_bytes_that_are_no_text_are_placed(data, line, column):
    with pytest.raises(ParseError) as caught:
        decode(data, "m.hlo")
    assert (caught.value.line, caught.value.column, caught.value.filename) == (line, column, "m.hlo")
    assert "not text" in str(caught.value)


ONE = "HloModule {name}\nENTRY e {{\n ROOT p = f32[] parameter({number})\n}}\n"


def test_parts_of_a_file():
    text = (
        "// RUN: x\n// -----\n" + ONE.format(name="a", number=0) + "// -----  next\r\n" + ONE.format(name="b", number=0)
    )
    assert [lines for _, lines in split_input(text)] == [0, 2, 7]
    assert "".join(part for part, _ in split_input(text)).count("HloModule") == 2
    assert [m.name for m in parse_file_parts(text, "m.hlo")] == ["a", "b"]
    assert [m.name for m in parse_file_parts(ONE.format(name="c", number=0))] == ["c"]


def test_errors_in_parts_have_the_lines_of_the_file():
    text = "// -----\n".join(ONE.format(name=n, number=x) for n, x in (("a", 0), ("b", "y"), ("c", "z")))
    with pytest.raises(ParseError) as caught:
        parse_file_parts(text, "m.hlo")
    assert (caught.value.line, caught.value.column) == (8, 27)
    assert "ROOT p = f32[] parameter(y)" in str(caught.value)
    with pytest.raises(ParseError) as caught:
        parse_file_parts(text, "m.hlo", max_errors=5)
    assert [e.line for e in caught.value.errors] == [8, 13]


def test_a_file_of_comments_has_no_module():
    with pytest.raises(ParseError):
        parse_file_parts("// nothing\n// -----\n")


def nested(kind, depth):
    if kind == "operands":
        return "p = f32[] parameter(0) ROOT a = f32[] " + "negate(" * depth + "p" + ")" * depth
    if kind == "tuple":
        return "ROOT a = " + "(" * depth + "f32[]" + ")" * depth + " parameter(0)"
    if kind == "literal":
        return "ROOT a = " + "(" * depth + "f32[]" + ")" * depth + " constant(" + "(" * depth + "1" + ")" * depth + ")"
    if kind == "inline":
        return (
            "p = f32[] parameter(0) "
            + "ROOT a = f32[] call(p), to_apply={ p = f32[] parameter(0) " * depth
            + " ROOT b = f32[] negate(p) "
            + "}" * depth
        )
    return "p = f32[] parameter(0) ROOT a = f32[] negate(p), backend_config=" + "{" * depth + "}" * depth


@pytest.mark.parametrize("kind", ["operands", "tuple", "literal", "inline", "config"])
@pytest.mark.parametrize("depth", [5, 17, 40, MAXIMUM_DEPTH - 4])
def test_deep_nesting_is_read(kind, depth):
    module = hlo_opt.parse(f"HloModule m\nENTRY e {{ {nested(kind, depth)} }}")
    hlo_opt.verify(module)
    hlo_opt.verify(hlo_opt.parse(str(module)))


@pytest.mark.parametrize("kind", ["operands", "tuple", "literal", "inline", "config"])
def test_deeper_nesting_is_refused_with_a_code_of_its_own(kind):
    found = errors(f"HloModule m\nENTRY e {{ {nested(kind, 10_000)} }}")
    assert (found.code, found.line) == ("HLO101", 2)


def test_the_collector_is_on_again_after_reading():
    assert gc.isenabled()
    errors("")
    assert gc.isenabled()


@pytest.mark.parametrize("text", ["", " \n\n"])
def test_an_empty_text_is_called_so(text):
    found = errors(text)
    assert (found.message, found.line, found.column) == ("the text is empty", 1, 1)
    assert "^" not in str(found), "there is no line to point into"
