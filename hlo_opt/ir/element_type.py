"""HLO's element types: one row each, with width, kind and the NumPy type that holds a value.

Source: xla/xla_data.proto (PrimitiveType) and xla/primitive_util.cc.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import numpy as np

TypeKind = Literal["pred", "signed", "unsigned", "float", "complex", "token", "opaque"]


@dataclass(frozen=True)
class ElementType:
    """An element type. `bits` is the width of a value; `numpy_name` a dtype of NumPy or ml_dtypes, "" where none
    exists."""

    name: str
    kind: TypeKind
    bits: int
    numpy_name: str = ""

    def __str__(self) -> str:
        return self.name

    def __hash__(self) -> int:
        return hash(self.name)

    @property
    def bytes(self) -> int:
        """Bytes of one unpacked element: a type of less than 8 bits takes a whole byte, as in NumPy and XLA's cost
        analysis."""
        return (self.bits + 7) // 8

    @property
    def per_byte(self) -> int:
        """Elements per byte of device memory: two of 4 bits, four of 2, eight of 1; 1 for all other types.

        The first element is in the lowest bits (xla/util.h, PackIntN).
        """
        return 8 // self.bits if self.bits in (1, 2, 4) else 1

    @cached_property
    def stored_bits(self) -> int:
        """Bits of an element in device memory."""
        return 8 * self.bytes // self.per_byte

    @property
    def is_integer(self) -> bool:
        return self.kind in ("signed", "unsigned")

    @property
    def is_float(self) -> bool:
        return self.kind == "float"

    @property
    def is_complex(self) -> bool:
        return self.kind == "complex"

    @property
    def is_narrow_float(self) -> bool:
        """Whether XLA computes this float type in f32 and rounds after every operation."""
        return self.kind == "float" and self.bits < 32

    @property
    def limits(self) -> tuple[int, int]:
        """The smallest and the largest value of an integer type."""
        if self.kind == "unsigned":
            return 0, (1 << self.bits) - 1
        return -(1 << (self.bits - 1)), (1 << (self.bits - 1)) - 1

    @cached_property
    def dtype(self) -> np.dtype[np.generic]:
        """The NumPy dtype. Raises TypeError for types without values (token, opaque) or without a NumPy dtype."""
        import ml_dtypes
        import numpy as np

        if not self.numpy_name:
            raise TypeError(f"{self.name} has no NumPy type")
        return np.dtype(getattr(ml_dtypes, self.numpy_name, self.numpy_name))


def _rows() -> list[ElementType]:
    rows = [
        ElementType("pred", "pred", 8, "bool"),
        ElementType("token", "token", 0),
        ElementType("opaque", "opaque", 0),
    ]
    for bits, name in ((1, ""), (2, "int2"), (4, "int4"), (8, "int8"), (16, "int16"), (32, "int32"), (64, "int64")):
        rows.append(ElementType(f"s{bits}", "signed", bits, name))
        rows.append(ElementType(f"u{bits}", "unsigned", bits, name and f"u{name}"))
    small = (
        *("f4e2m1fn", "f6e2m3fn", "f6e3m2fn", "f8e5m2", "f8e4m3", "f8e4m3fn"),
        *("f8e4m3b11fnuz", "f8e4m3fnuz", "f8e5m2fnuz", "f8e3m4", "f8e8m0fnu"),
    )
    rows += [ElementType(name, "float", int(name[1]), f"float{name[1]}_{name[2:]}") for name in small]
    for name, bits, dtype in (
        ("f16", 16, "float16"),
        ("bf16", 16, "bfloat16"),
        ("f32", 32, "float32"),
        ("f64", 64, "float64"),
    ):
        rows.append(ElementType(name, "float", bits, dtype))
    return [*rows, ElementType("c64", "complex", 64, "complex64"), ElementType("c128", "complex", 128, "complex128")]


ELEMENT_TYPES: dict[str, ElementType] = {row.name: row for row in _rows()}
"""Every element type by its name in HLO text."""

PRED, S32, S64, U32, U64 = (ELEMENT_TYPES[n] for n in ("pred", "s32", "s64", "u32", "u64"))
F16, BF16, F32, F64 = (ELEMENT_TYPES[n] for n in ("f16", "bf16", "f32", "f64"))
TOKEN = ELEMENT_TYPES["token"]
