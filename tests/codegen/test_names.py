import re

from hypothesis import given
from hypothesis import strategies as st

from hlo_opt.codegen.names import Names, comment, identifier


@given(st.text())
def test_identifiers_hold_only_letters_and_digits(text: str) -> None:
    assert re.fullmatch(r"[A-Za-z][A-Za-z0-9_]{0,40}", identifier(text))
    assert "__" not in identifier(text)


def test_identifier_keeps_what_it_can() -> None:
    assert identifier("get-tuple-element") == "get_tuple_element"
    assert identifier("0 bytes") == "v0_bytes"


@given(st.lists(st.sampled_from(["a", "a_2", "a_2_2", "b", "s1"]), max_size=30))
def test_names_are_given_out_once(stems: list[str]) -> None:
    names = Names()
    made = [name for stem in stems for name in (names.fresh(stem), names.numbered("s"))]
    assert len(set(made)) == len(made)


def test_first_name_is_the_stem() -> None:
    names = Names()
    assert [names.fresh("add_1"), names.fresh("add_1"), names.numbered("i"), names.numbered("i")] == [
        "add_1",
        "add_1_2",
        "i0",
        "i1",
    ]


@given(st.text())
def test_comments_cannot_end(text: str) -> None:
    lines = comment([text]).split("\n")
    assert lines[-1] == "" and len(lines) == 2
    assert lines[0].startswith("//") and lines[0].isascii() and "\\" not in lines[0] and len(lines[0]) <= 203
