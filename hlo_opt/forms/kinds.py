"""The form of a module, recognized by content, and the module inside each form.

Numbers of fields: xla/service/hlo.proto. MLIR's bytecode begins with `ML\\xefR`. An artifact of `jax.export` is a
flatbuffer (jax/_src/export/serialization.fbs) that contains such bytecode.
"""

from __future__ import annotations

import re
import zlib
from enum import Enum

from hlo_opt.forms.wire import fields, varint

LARGEST = 1 << 31
"""Limit of the bytes of a module: protobuf messages are never larger."""

_GZIP, _BYTECODE = b"\x1f\x8b", b"ML\xefR"
_COMPUTATIONS, _INSTRUCTIONS = 3, 2
MODULE_FIELD = 1
"""The field of HloProto, HloSnapshot and HloUnoptimizedSnapshot with the module."""
PARTITIONS = 2
"""The field of HloUnoptimizedSnapshot that describes the inputs of a device."""
_ARTIFACT = 30
"""The offset, in an artifact's table, of its module's offset: the fourteenth entry, after two sizes."""

_MLIR = re.compile(
    r"(?:\s|//[^\n]*(?:\n|\Z)|[#!][\w.$\-]+[ "
    r"\t]*=[^\n]*(?:\n|\Z))*(?:module\b(?!\s*[=,])|\"?builtin\.module\b|\"?func\.func\b|\"?s[dt][a-z]*\.\w+)"
)


class Form(Enum):
    """A form, with its name in messages."""

    TEXT = "HLO text"
    MODULE = "an HloModuleProto"
    PROTO = "an HloProto"
    SNAPSHOT = "an HloSnapshot"
    PARTITIONS = "an HloUnoptimizedSnapshot"
    MLIR = "StableHLO text"
    BYTECODE = "StableHLO bytecode"
    ARTIFACT = "an artifact of jax.export"


PROTOS = frozenset({Form.MODULE, Form.PROTO, Form.SNAPSHOT, Form.PARTITIONS})
STABLEHLO = frozenset({Form.MLIR, Form.BYTECODE, Form.ARTIFACT})


def unzipped(data: bytes) -> bytes:
    """The bytes, decompressed if they are gzip. Raises ValueError for damaged data, and for more than `LARGEST`
    bytes."""
    if not data.startswith(_GZIP):
        return data
    pieces, total = [], 0
    while data:
        reader = zlib.decompressobj(wbits=31)
        try:
            piece = reader.decompress(data, LARGEST - total + 1)
        except zlib.error as fault:
            raise ValueError(f"damaged gzip: {fault}") from None
        total += len(piece)
        if total > LARGEST:
            raise ValueError("unpacks to more than 2 GiB, and no module is larger")
        if not reader.eof:
            raise ValueError("the gzip data is cut off")
        pieces.append(piece)
        data = reader.unused_data if reader.unused_data.startswith(_GZIP) else b""
    return b"".join(pieces)


def form_of(data: bytes) -> Form | None:
    """The form of a module. `TEXT` for all that may be text but StableHLO; None for bytes that are no module."""
    if data.startswith(_BYTECODE):
        return Form.BYTECODE
    if _is_text(data):
        head = data[: 1 << 20].decode("utf-8-sig", "replace")
        return Form.MLIR if _MLIR.match(head) else Form.TEXT
    if artifact_module(data) is not None:
        return Form.ARTIFACT
    return _form_of_message(data)


def _is_text(data: bytes) -> bool:
    try:
        return "\0" not in data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return False


def _form_of_message(data: bytes) -> Form | None:
    message, behind = snapshot_parts(data)
    if behind:
        return Form.PARTITIONS
    inner = inner_message(message)
    if inner is not None and (deeper := inner_message(inner)) is not None and _is_module(deeper):
        return Form.SNAPSHOT
    if inner is not None and _is_module(inner):
        return Form.PARTITIONS if any(f.number == PARTITIONS for f in fields(data)) else Form.PROTO
    return Form.MODULE if _is_module(data) else None


def snapshot_parts(data: bytes) -> tuple[bytes, bytes]:
    """The message of an HloUnoptimizedSnapshot, and the arrays behind it where it does not hold them: then its size
    stands before it.

    Source: SerializeHloUnoptimizedSnapshot in xla/service/hlo_proto_util.cc.
    """
    try:
        size, at = varint(data, 0)
    except ValueError:
        return data, b""
    message = data[at : at + size]
    if len(message) != size or not _is_module(inner_message(message) or b""):
        return data, b""
    return message, data[at + size :]


def inner_message(message: bytes) -> bytes | None:
    """The bytes of field `MODULE_FIELD` of a message; None if it has none, or the data is not a message."""
    try:
        payloads = [f.data for f in fields(message) if f.number == MODULE_FIELD and f.is_bytes]
    except ValueError:
        return None
    return payloads[0] if payloads else None


def _is_module(data: bytes) -> bool:
    """Whether a message has computations, and the first of them instructions."""
    try:
        computations = [f.payload() for f in fields(data) if f.number == _COMPUTATIONS]
        return bool(computations) and any(f.number == _INSTRUCTIONS and f.is_bytes for f in fields(computations[0]))
    except ValueError:
        return False


def module_message(data: bytes, form: Form) -> bytes:
    """The HloModuleProto in a protobuf of one of the forms `PROTOS`."""
    depth = {Form.MODULE: 0, Form.PROTO: 1, Form.PARTITIONS: 1, Form.SNAPSHOT: 2}[form]
    if form is Form.PARTITIONS:
        data = snapshot_parts(data)[0]
    for _ in range(depth):
        data = inner_message(data) or b""
    return data


def fault_of(data: bytes) -> str:
    """Why bytes that begin like a protobuf are none; empty for others, and for one that holds no module."""
    if not data.startswith(bytes([MODULE_FIELD << 3 | 2])):
        return ""  # a name, or a module
    try:
        for _ in fields(data):
            pass
    except ValueError as fault:
        return str(fault)
    return ""


def artifact_module(data: bytes) -> bytes | None:
    """The bytecode in an artifact of `jax.export`; None for other bytes."""

    def number(at: int, size: int) -> int:
        if not 0 <= at <= len(data) - size:
            raise ValueError("no artifact")
        return int.from_bytes(data[at : at + size], "little")

    try:
        table = number(0, 4)
        described = table - ((number(table, 4) ^ 1 << 31) - (1 << 31))
        if number(described, 2) <= _ARTIFACT or not (offset := number(described + _ARTIFACT, 2)):
            return None
        place = table + offset
        place += number(place, 4)
        size = number(place, 4)
    except ValueError:
        return None
    module = data[place + 4 : place + 4 + size]
    return module if len(module) == size and module.startswith(_BYTECODE) else None
