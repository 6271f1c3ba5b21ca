"""Messages of protobuf, field by field."""

from __future__ import annotations

import pytest

from hlo_opt.forms.wire import fields, numbers, of_bytes, of_number, packed, varint, written


@pytest.mark.parametrize("value", [0, 1, 127, 128, 300, (1 << 32) - 1, (1 << 64) - 1])
def test_numbers(value: int) -> None:
    assert varint(written(value), 0) == (value, len(written(value)))


def test_fields_of_every_kind() -> None:
    data = (
        of_number(1, 300)
        + of_bytes(2, b"abc")
        + written(3 << 3 | 1)
        + bytes([7, *bytes(7)])
        + written(4 << 3 | 5)
        + bytes([5, 0, 0, 0])
    )
    found = [(f.number, f.value, f.data, f.is_bytes) for f in fields(data)]
    assert found == [
        (1, 300, b"", False),
        (2, 0, b"abc", True),
        (3, 7, bytes([7, *bytes(7)]), False),
        (4, 5, bytes([5, 0, 0, 0]), False),
    ]
    assert b"".join(f.raw for f in fields(data)) == data


def test_repeated_numbers_packed_or_not() -> None:
    values = [3, 300, 0]
    (one,) = fields(packed(4, values))
    assert numbers(one) == values
    assert [n for f in fields(b"".join(of_number(4, v) for v in values)) for n in numbers(f)] == values
    assert packed(4, []) == b""


def test_what_a_field_holds_is_asked_for_by_its_kind() -> None:
    number, text = fields(of_number(1, 5) + of_bytes(2, b"a"))
    assert number.counted() == 5 and text.payload() == b"a"
    with pytest.raises(ValueError, match="a number where a message should be"):
        number.payload()
    with pytest.raises(ValueError, match="a message where a number should be"):
        text.counted()


@pytest.mark.parametrize("data", [b"\x0a\x05ab", b"\x0b", b"\xff", b"\x08", b"\x00\x01", b"\x09abc", b"\x80" * 11])
def test_what_is_no_message(data: bytes) -> None:
    with pytest.raises(ValueError):
        list(fields(data))
