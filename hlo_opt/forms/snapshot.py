"""The arrays in a snapshot besides its module: the inputs of the recorded run.

Numbers of fields and types: xla/xla_data.proto (LiteralProto, ShapeProto, PrimitiveType).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from hlo_opt.forms.kinds import PARTITIONS, Form, snapshot_parts
from hlo_opt.forms.wire import Field, fields, numbers
from hlo_opt.ir.element_type import ELEMENT_TYPES, ElementType
from hlo_opt.ir.values import Array
from hlo_opt.library.arrays import logical

_TUPLE, _WITHOUT_VALUE = 13, frozenset({14, 17})  # opaque, token
_TYPES = {
    1: ("pred", 2),
    30: ("s1", 30),
    26: ("s2", 26),
    21: ("s4", 21),
    2: ("s8", 15),
    3: ("s16", 17),
    4: ("s32", 4),
    5: ("s64", 5),
    31: ("u1", 31),
    27: ("u2", 27),
    22: ("u4", 22),
    6: ("u8", 3),
    7: ("u16", 16),
    8: ("u32", 6),
    9: ("u64", 7),
    10: ("f16", 11),
    16: ("bf16", 13),
    11: ("f32", 8),
    12: ("f64", 9),
    15: ("c64", 12),
    18: ("c128", 18),
    19: ("f8e5m2", 19),
    28: ("f8e4m3", 28),
    20: ("f8e4m3fn", 20),
    23: ("f8e4m3b11fnuz", 23),
    29: ("f8e3m4", 29),
    24: ("f8e5m2fnuz", 24),
    25: ("f8e4m3fnuz", 25),
    32: ("f4e2m1fn", 32),
    33: ("f8e8m0fnu", 33),
}
"""Primitive types: the name in HLO text, and the number of the field of a literal with its values."""
_VARINTS = frozenset({"pred", "s32", "s64", "u32", "u64"})
_SHAPE, _TUPLE_LITERALS = 1, 10
_ELEMENT_TYPE, _DIMENSIONS, _ELEMENTS, _LAYOUT, _DYNAMIC = 2, 3, 4, 5, 6
_MINOR_TO_MAJOR = 1
_ARGUMENTS = 2
"""The field of HloSnapshot with its inputs."""
_LITERAL, _DESCRIPTOR, _BYTES = 1, 2, 2
"""The fields of HloInputs with an input and with a descriptor, and the field of a descriptor with the input's number of
bytes."""
_INPUTS = frozenset({_LITERAL, _DESCRIPTOR})
MOST = 1 << 31
"""Limit of the elements of an array."""
DEEPEST = 100
"""Limit of nested messages, as in protobuf's own readers."""


def recorded_inputs(data: bytes, form: Form) -> list[list[Array]]:
    """The input arrays of a snapshot for each device, tuples flattened in order. One list for an HloSnapshot; none if
    there are no arrays.

    Raises ValueError for damaged literals, and for types that NumPy lacks.
    """
    if form is Form.SNAPSHOT:
        inputs = [[array for f in fields(data) if f.number == _ARGUMENTS for array in arrays_of(f.payload())]]
    elif form is Form.PARTITIONS:
        inputs = _partitions(data)
    else:
        inputs = []
    return inputs if any(inputs) else []


def _partitions(data: bytes) -> list[list[Array]]:
    """The arrays of an HloUnoptimizedSnapshot: in its message, or after it with descriptors in the message."""
    message, rest = snapshot_parts(data)
    inputs, at = [], 0
    for partition in [f.payload() for f in fields(message) if f.number == PARTITIONS]:
        if any(f.number not in _INPUTS for f in fields(partition)):
            continue  # not inputs: an HloModuleProtoWithConfig has the same fields
        inputs.append(list[Array]())
        for f in fields(partition):
            if f.number == _LITERAL:
                inputs[-1] += arrays_of(f.payload())
                continue
            size = sum(g.counted() for g in fields(f.payload()) if g.number == _BYTES)
            if at + size > len(rest):
                raise ValueError("an input is cut off")
            inputs[-1] += _serialized(rest[at : at + size])
            at += size
    return inputs


def _serialized(data: bytes) -> list[Array]:
    """The arrays of a serialized literal: the size of its ShapeProto in eight bytes, the ShapeProto, and the values of
    each array (xla/literal.h, SerializeWithShapeProto)."""
    size = int.from_bytes(data[:8], "little")
    arrays, at = [], 8 + size
    for kind, dimensions, order in _leaves(data[8:at]):
        if kind in _WITHOUT_VALUE:
            continue
        own, count = _type_of(kind), _count(dimensions)
        bits = 1 if own.kind == "pred" else own.bits if own.bits < 8 and own.is_integer else 8 * own.bytes
        end = at + -(-count * bits // 8)
        if end > len(data):
            raise ValueError("an input is cut off")
        raw: Array = np.frombuffer(data[at:end], np.uint8)
        at = end
        if bits < 8:
            raw = (raw[:, None] >> np.arange(0, 8, bits, dtype=np.uint8) & (1 << bits) - 1).reshape(-1)[:count]
        arrays.append(_array(_of_bytes(own, raw), dimensions, order, own))
    return arrays


def _leaves(shape: bytes, depth: int = 0) -> Iterator[tuple[int, tuple[int, ...], tuple[int, ...]]]:
    """Type, dimensions and minor-to-major order of each array of a ShapeProto. Without a layout an array is
    row-major."""
    _check_depth(depth)
    kind, dimensions, order = 0, list[int](), list[int]()
    for f in fields(shape):
        if f.number == _ELEMENT_TYPE:
            kind = f.counted()
        elif f.number == _DIMENSIONS:
            dimensions += numbers(f)
        elif f.number == _ELEMENTS:
            yield from _leaves(f.payload(), depth + 1)
        elif f.number == _DYNAMIC and any(numbers(f)):
            raise ValueError("an input of a dynamic size")
        elif f.number == _LAYOUT:
            order += [n for g in fields(f.payload()) if g.number == _MINOR_TO_MAJOR for n in numbers(g)]
    if kind != _TUPLE:
        yield kind, tuple(dimensions), tuple(order or range(len(dimensions))[::-1])


def _check_depth(depth: int) -> None:
    if depth > DEEPEST:
        raise ValueError(f"messages more than {DEEPEST} deep in each other")


def arrays_of(literal: bytes, depth: int = 0) -> list[Array]:
    """The arrays of a LiteralProto, tuples flattened in order; tokens have none. `depth` is the number of enclosing
    literals. Raises as `recorded_inputs`."""
    _check_depth(depth)
    by_number: dict[int, list[Field]] = {}
    for f in fields(literal):
        by_number.setdefault(f.number, []).append(f)
    if _TUPLE_LITERALS in by_number:
        return [array for f in by_number[_TUPLE_LITERALS] for array in arrays_of(f.payload(), depth + 1)]
    arrays = []
    for kind, dimensions, order in _leaves(b"".join(f.payload() for f in by_number.get(_SHAPE, []))):
        if kind not in _WITHOUT_VALUE:
            own = _type_of(kind)
            arrays.append(_array(_values(own, by_number.get(_TYPES[kind][1], [])), dimensions, order, own))
    return arrays


def _type_of(number: int) -> ElementType:
    """The element type for a primitive type's number. Raises ValueError for a type without values, or that NumPy
    lacks."""
    if number not in _TYPES:
        raise ValueError(f"an array of a type with the number {number}")
    element_type = ELEMENT_TYPES[_TYPES[number][0]]
    if not element_type.numpy_name:
        raise ValueError(f"an array of {element_type}, which NumPy lacks")
    return element_type


def _count(dimensions: Sequence[int]) -> int:
    count = math.prod(dimensions)
    if not all(0 <= d <= MOST for d in dimensions) or count > MOST:
        raise ValueError(f"an array of {count} elements")
    return count


def _array(values: Array, dimensions: Sequence[int], order: Sequence[int], kind: ElementType) -> Array:
    """Flat values, in the order of memory, as an array."""
    count = _count(dimensions)
    if values.size != count:
        raise ValueError(f"an array of {kind} has {values.size} values, and its shape {count}")
    if sorted(order) != list(range(len(dimensions))):
        raise ValueError("a layout that is no order of the dimensions")
    return np.asarray(logical(values, dimensions, order), order="C")


def _values(kind: ElementType, parts: list[Field]) -> Array:
    """The flat values of a literal. Integers of less than a byte have a byte each, with zeros in the upper bits."""
    if kind.name in _VARINTS:
        read = [n for f in parts for n in numbers(f)]
        return np.array([n & (1 << 64) - 1 for n in read], np.uint64).astype(kind.dtype)
    return _of_bytes(kind, np.frombuffer(b"".join(f.payload() for f in parts), np.uint8))


def _of_bytes(kind: ElementType, data: Array) -> Array:
    """Values from their bytes; integers of less than a byte have a byte each."""
    if kind.kind == "pred":
        return data != 0
    if kind.is_integer and kind.bits < 8:
        values: Array = data.astype(np.int8)
        if kind.kind == "signed":
            values = (values << (8 - kind.bits)) >> (8 - kind.bits)
        return values.astype(kind.dtype)
    if data.size % kind.dtype.itemsize:
        raise ValueError(f"an array of {kind} ends in the middle of a value")
    return data.view(kind.dtype)
