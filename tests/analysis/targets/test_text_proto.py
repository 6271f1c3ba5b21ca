import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hlo_opt.analysis.targets.text_proto import Message, parse
from hlo_opt.diag import Source, UsageError


def read(text: str) -> Message:
    return parse(Source(text, "device.txtpb"))


def scalar(message: Message, name: str):
    found = message.scalar(name)
    assert found is not None
    return found


def test_scalars_and_messages():
    top = read(
        """# a comment
name: "Some \\"GPU\\"" ' and more'  # another
size: 0x10, speed: 1.5e1f;
negative: -3
word: NONE
inner { size: 7 }
other: < deep { size: 8 } >
[an.extension] { size: 9 }
"""
    )
    assert scalar(top, "name").text() == 'Some "GPU" and more'
    assert scalar(top, "size").integer() == 16
    assert scalar(top, "speed").number() == 15.0
    assert scalar(top, "negative").integer() == -3
    assert scalar(top, "word").written == "NONE"
    inner, other = top.message("inner"), top.message("other")
    assert inner is not None
    assert scalar(inner, "size").integer() == 7
    assert other is not None
    deep = other.message("deep")
    assert deep is not None
    assert scalar(deep, "size").integer() == 8
    assert top.scalar("absent") is None
    assert top.message("absent") is None


@pytest.mark.parametrize(
    ("text", "message", "line", "column"),
    [
        ("a {\n  b: 1\n", "no }", 1, 3),
        ("a: 1\n}", "name of a field is wanted, not }", 2, 1),
        ("a {\n  b 1\n}", "b wants a colon", 2, 5),
        ("a: [1, 2]", "a is a list", 1, 4),
        ("a: {b: <}>", "name of a field is wanted, not }", 1, 9),
        ("a:", "value is wanted", 1, 3),
        ("a: $", "means nothing", 1, 4),
        ('a: "open\nb: 1', "does not end on its line", 1, 4),
        ("1: 2", "name of a field is wanted, not 1", 1, 1),
    ],
)
def test_faults_name_their_place(text: str, message: str, line: int, column: int):
    with pytest.raises(UsageError, match=message) as caught:
        read(text)
    assert (caught.value.line, caught.value.column) == (line, column)


def test_values_of_the_wrong_kind():
    top = read(f"a: word\nb {{ }}\nc: 1\nc: 2\nd: 1.5\ne: {'9' * 5000}\nf: 3")
    for name, wanted, what in (
        ("a", "number", "number is wanted"),
        ("d", "integer", "whole number"),
        ("e", "integer", "number is wanted"),
    ):
        with pytest.raises(UsageError, match=what):
            getattr(scalar(top, name), wanted)()
    with pytest.raises(UsageError, match="not a message"):
        top.scalar("b")
    with pytest.raises(UsageError, match="in braces"):
        top.message("f")
    with pytest.raises(UsageError, match="given twice") as caught:
        top.scalar("c")
    assert caught.value.line == 4
    with pytest.raises(UsageError, match="quoted text"):
        scalar(top, "f").text()


def test_depth_and_length_are_no_trouble():
    assert read("a {" * 20000 + "}" * 20000).message("a") is not None
    with pytest.raises(UsageError, match="longer than"):
        read("#" * (1 << 20) + "\n#")


@settings(max_examples=100, deadline=None)
@given(st.text(alphabet="ab:{}<>,;[]\"'\\\n #1.-ex", max_size=30))
def test_any_text_gives_a_message_or_a_place(text: str):
    try:
        read(text)
    except UsageError as fault:
        assert fault.line is not None
