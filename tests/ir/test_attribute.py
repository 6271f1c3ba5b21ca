import pytest

from hlo_opt.ir import Attribute, Metadata, PaddingDimension, Quoted, Raw, SliceDimension, Window, WindowDimension
from hlo_opt.ir.attribute import AttributeValue


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ((), "{}"),
        ((0, 12), "{0,12}"),
        (7, "7"),
        (True, "true"),
        ((True, False), "{true,false}"),
        ("GE", "GE"),
        (Quoted('a"b\\c'), '"a\\"b\\\\c"'),
        ((SliceDimension(0, 4), SliceDimension(1, 9, 2)), "{[0:4], [1:9:2]}"),
        ((PaddingDimension(0, -1), PaddingDimension(2, 3, 1)), "0_-1x2_3_1"),
        (
            Window((WindowDimension(2, stride=2), WindowDimension(3, pad_low=1, pad_high=1))),
            "{size=2x3 stride=2x1 pad=0_0x1_1}",
        ),
        (
            Metadata(op_name="jit(f)/add", source_file="a.py", source_line=3),
            '{op_name="jit(f)/add" source_file="a.py" source_line=3}',
        ),
        (Raw("{[8,1]<=[8]}"), "{[8,1]<=[8]}"),
    ],
)
def test_values_render_as_hlo_writes_them(value: AttributeValue, text: str):
    assert Attribute.of(value).text == text
    assert Attribute.of(value) == Attribute(text)


def test_text_is_decoded_once_and_only_on_demand():
    calls: list[str] = []

    def decode(text: str) -> AttributeValue:
        calls.append(text)
        return int(text)

    attribute = Attribute("7", decode)
    assert calls == []
    assert (attribute.value, attribute.value, calls) == (7, 7, ["7"])
    assert Attribute("{x}").value == Raw("{x}")
