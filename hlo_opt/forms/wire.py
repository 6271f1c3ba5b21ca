"""Reads and writes protobuf messages, field by field, without the protobuf library. Fields keep their original
bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple


class Field(NamedTuple):
    """A field of a message.

    number  the field's number
    value   the value of a number
    data    the bytes of any field but a varint
    raw     the whole field
    """

    number: int
    value: int
    data: bytes
    raw: bytes

    @property
    def is_bytes(self) -> bool:
        """Whether the field is a text, a message or packed numbers."""
        return self.raw[0] & 7 == 2

    def payload(self) -> bytes:
        """The bytes of a text or a message. Raises ValueError for a number."""
        if not self.is_bytes:
            raise ValueError("a number where a message should be")
        return self.data

    def counted(self) -> int:
        """A number. Raises ValueError for a text or a message."""
        if self.is_bytes:
            raise ValueError("a message where a number should be")
        return self.value


def varint(data: bytes, at: int) -> tuple[int, int]:
    """The varint at an offset, and the offset of its end. Raises ValueError if it does not end."""
    value = shift = 0
    while at < len(data) and shift < 70:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
    raise ValueError(f"a number is cut off at byte {at}")


def written(value: int) -> bytes:
    """A number as a varint."""
    data = bytearray()
    while value > 127:
        data.append(value & 127 | 128)
        value >>= 7
    data.append(value)
    return bytes(data)


def fields(message: bytes) -> Iterator[Field]:
    """The fields of a message, in order. Raises ValueError for bytes that are not a message."""
    at, end = 0, len(message)
    while at < end:
        start = at
        key, at = varint(message, at)
        value, data = 0, b""
        match key & 7:
            case 0:
                value, at = varint(message, at)
            case 2:
                size, at = varint(message, at)
                data, at = message[at : at + size], at + size
            case 1 | 5 as kind:
                size = 8 if kind == 1 else 4
                data, at = message[at : at + size], at + size
                value = int.from_bytes(data, "little")
            case kind:
                raise ValueError(f"a field of wire type {kind} at byte {start}")
        if at > end or key >> 3 == 0:
            raise ValueError(f"a field is cut off at byte {start}")
        yield Field(key >> 3, value, data, message[start:at])


def of_number(number: int, value: int) -> bytes:
    """The bytes of a field with a number."""
    return written(number << 3) + written(value)


def of_bytes(number: int, data: bytes) -> bytes:
    """The bytes of a field with a text or a message."""
    return written(number << 3 | 2) + written(len(data)) + data


def numbers(field: Field) -> list[int]:
    """The values of a repeated number, packed or not. Raises ValueError for other data."""
    if not field.is_bytes:
        return [field.value]
    values, at = [], 0
    while at < len(field.data):
        value, at = varint(field.data, at)
        values.append(value)
    return values


def packed(number: int, values: Sequence[int]) -> bytes:
    """The bytes of a field with packed numbers; none for no numbers."""
    return of_bytes(number, b"".join(map(written, values))) if values else b""
