from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hlo_opt.diag import ParseError
from hlo_opt.ir import Attribute, Metadata, PaddingDimension, Quoted, Raw, SliceDimension, Window, WindowDimension
from hlo_opt.text.attributes import decoder, unquote


@pytest.mark.parametrize(
    "name, text, value",
    [
        ("dimensions", "{0,1}", (0, 1)),
        ("dimensions", "{ 0, /*x*/ 1 }", (0, 1)),
        ("dimensions", "{}", ()),
        ("index", "2", 2),
        ("channel_id", "-1", -1),
        ("is_stable", "true", True),
        ("parameter_replication", "{true,false}", (True, False)),
        ("epsilon", "1", 1.0),
        ("epsilon", "1e-05", 1e-05),
        ("direction", "GE", "GE"),
        ("dim_labels", "01bf_01io->01bf", "01bf_01io->01bf"),
        ("custom_call_target", '"a\\"b\\n\\101"', Quoted('a"b\nA')),
        ("slice", "{[0:4], [1:9:2]}", (SliceDimension(0, 4), SliceDimension(1, 9, 2))),
        ("padding", "0_1x-2_0_1", (PaddingDimension(0, 1), PaddingDimension(-2, 0, 1))),
        ("window", "{}", Window(())),
        (
            "window",
            "{size=3x2 stride=2x1 pad=0_1x-1_0 rhs_reversal=1x0}",
            Window((WindowDimension(3, 2, 0, 1, rhs_reversal=True), WindowDimension(2, 1, -1, 0))),
        ),
        ("metadata", '{op_name="f/add" source_file="m.py", source_line=7}', Metadata("", "f/add", "m.py", 7)),
        ("metadata", '{stack_frame_id=3 profile_type={1} scheduling_name="x"}', Metadata(stack_frame_id=3)),
        ("replica_groups", "{{0,1},{2,3}}", Raw("{{0,1},{2,3}}")),
        ("replica_groups", "[2,4]<=[8]", Raw("[2,4]<=[8]")),
        ("backend_config", "{}", Raw("{}")),
        ("backend_config", '"x"', Quoted("x")),
        ("sharding", "{replicated}", Raw("{replicated}")),
        ("no_such_attribute", "{x y}", Raw("{x y}")),
    ],
)
def test_values(name, text, value):
    decoded = decoder(name)(text)
    assert decoded == value
    assert type(decoded) is type(value)


@pytest.mark.parametrize(
    "name, text",
    [
        ("slice", "{[0:4,]}"),
        ("slice", "{0}"),
        ("padding", "0x1"),
        ("window", "{size=3x3 pad=0_1}"),
        ("window", "{size=3, stride=1}"),
        ("window", "{size=3 size=4}"),
        ("metadata", "{foo=1}"),
        ("metadata", '{op_name="a" op_name="b"}'),
        ("metadata", '{op_name="\\q"}'),
        ("epsilon", "GE"),
    ],
)
def test_malformed_values_are_parse_errors(name, text):
    with pytest.raises(ParseError):
        decoder(name)(text)


def test_decoding_is_lazy():
    calls = []
    attribute = Attribute("{0}", lambda text: calls.append(text) or (0,))
    assert attribute.text == "{0}" and not calls
    assert attribute.value == (0,) and attribute.value == (0,)
    assert calls == ["{0}"]


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=40))
@settings(max_examples=100, deadline=None)
def test_strings_survive_quoting(text):
    assert unquote(str(Quoted(text))) == text


windows = st.lists(
    st.builds(
        WindowDimension,
        st.integers(1, 9),
        st.integers(1, 4),
        st.integers(-3, 9),
        st.integers(-3, 9),
        st.integers(1, 3),
        st.integers(1, 3),
        st.booleans(),
    ),
    max_size=4,
).map(lambda d: Window(tuple(d)))


@given(windows)
@settings(max_examples=50, deadline=None)
def test_windows_survive_printing(window):
    assert decoder("window")(Attribute.of(window).text) == window


@given(
    st.lists(
        st.builds(PaddingDimension, st.integers(-9, 9), st.integers(-9, 9), st.integers(0, 3)), min_size=1, max_size=4
    )
)
@settings(max_examples=30, deadline=None)
def test_paddings_survive_printing(dimensions):
    assert decoder("padding")(Attribute.of(tuple(dimensions)).text) == tuple(dimensions)
