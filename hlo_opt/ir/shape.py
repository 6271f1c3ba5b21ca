"""Shapes and layouts: immutable values, compared by content.

Source: xla/shape.h, xla/layout.h; the text form is described in grammars/hlo.lark.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from hlo_opt.ir.element_type import ElementType


@dataclass(frozen=True, slots=True)
class Layout:
    """How an array is laid out in memory: dimension numbers from minor (fastest varying) to major.

    `tail` is the text after the colon (tiles, memory space, element size, ...). `minor_to_major` is None where the text
    has only a tail.
    """

    minor_to_major: tuple[int, ...] | None
    tail: str = ""

    def __str__(self) -> str:
        order = "" if self.minor_to_major is None else ",".join(map(str, self.minor_to_major))
        return f"{{{order}{':' + self.tail if self.tail else ''}}}"


@dataclass(frozen=True, slots=True)
class Shape:
    """An array shape (element type, dimensions, layout) or a tuple of shapes.

    `elements` is None for an array, a token and an opaque value. A dynamic dimension has its bound in `dimensions` and
    True in `dynamic`; an unbounded one (`?`) has -1. `dynamic` is empty when all dimensions are static. `is_buffer`
    marks `b(...)` types.
    """

    element_type: ElementType | None
    dimensions: tuple[int, ...] = ()
    layout: Layout | None = None
    dynamic: tuple[bool, ...] = ()
    elements: tuple[Shape, ...] | None = None
    is_buffer: bool = False
    _hash: int = field(default=0, init=False, repr=False, compare=False)
    _count: int = field(default=-1, init=False, repr=False, compare=False)
    _bytes: int = field(default=-1, init=False, repr=False, compare=False)
    _bare: Shape | None = field(default=None, init=False, repr=False, compare=False)

    def __hash__(self) -> int:
        if not self._hash:
            value = hash((self.element_type, self.dimensions, self.layout, self.dynamic, self.elements)) or 1
            object.__setattr__(self, "_hash", value)
        return self._hash

    @staticmethod
    def tuple_of(*elements: Shape) -> Shape:
        """The tuple shape with these elements."""
        return Shape(None, elements=elements)

    @property
    def is_tuple(self) -> bool:
        return self.elements is not None

    @property
    def is_array(self) -> bool:
        return self.element_type is not None and self.element_type.kind not in ("token", "opaque")

    @property
    def type(self) -> ElementType:
        """The element type of an array or token. Raises TypeError for a tuple."""
        if self.element_type is None:
            raise TypeError(f"a tuple has no element type: {self}")
        return self.element_type

    @property
    def rank(self) -> int:
        return len(self.dimensions)

    @property
    def element_count(self) -> int:
        """Number of elements of an array; 0 for a token; the sum over the leaves of a tuple."""
        if self._count < 0:
            if self.elements is not None:
                count = sum(e.element_count for e in self.elements)
            else:
                count = math.prod(self.dimensions) if self.is_array else 0
            object.__setattr__(self, "_count", count)
        return self._count

    @property
    def byte_size(self) -> int:
        """Bytes of all array leaves, unpacked: an element takes at least one byte.

        A dimension without a bound counts as 0; the pointers of a tuple are not counted.
        """
        if self._bytes < 0:
            if self.elements is not None:
                size = sum(e.byte_size for e in self.elements)
            else:
                size = max(0, self.element_count) * self.type.bytes
            object.__setattr__(self, "_bytes", size)
        return self._bytes

    @property
    def stored_bytes(self) -> int:
        """Bytes of all array leaves in device memory, where elements of 1, 2 and 4 bits are packed."""
        if self.elements is not None:
            return sum(e.stored_bytes for e in self.elements)
        return -(-self.element_count * self.type.bytes // self.type.per_byte)

    @property
    def minor_to_major(self) -> tuple[int, ...]:
        """Dimension numbers from minor to major; row-major when the text gives no layout."""
        if self.layout is not None and self.layout.minor_to_major is not None:
            return self.layout.minor_to_major
        return tuple(range(len(self.dimensions) - 1, -1, -1))

    @property
    def is_row_major(self) -> bool:
        return self.minor_to_major == tuple(range(len(self.dimensions) - 1, -1, -1))

    @property
    def strides(self) -> tuple[int, ...]:
        """The distance in elements between neighbours along each dimension, in memory order."""
        strides, step = [0] * len(self.dimensions), 1
        for d in self.minor_to_major:
            strides[d] = step
            step *= self.dimensions[d]
        return tuple(strides)

    def leaves(self) -> Iterator[Shape]:
        """The array and token shapes of a tuple, depth first; the shape itself when it is not a tuple."""
        if self.elements is None:
            yield self
        else:
            for element in self.elements:
                yield from element.leaves()

    def with_type(self, element_type: ElementType) -> Shape:
        """The same dimensions and layout with another element type."""
        return replace(self, element_type=element_type)

    def without_layout(self) -> Shape:
        """The shape without any layout. Use it to compare shapes when only values matter."""
        if self.elements is None and self.layout is None:
            return self
        if self._bare is not None:
            return self._bare
        if self.elements is not None:
            bare = Shape(None, elements=tuple(e.without_layout() for e in self.elements))
        else:
            bare = replace(self, layout=None)
        object.__setattr__(self, "_bare", bare)
        return bare

    def same_values(self, other: Shape) -> bool:
        """Whether both are equal apart from layouts."""
        return self is other or self.without_layout() == other.without_layout()

    def same_bytes(self, other: Shape) -> bool:
        """Whether both are laid out alike in memory. A missing layout means row-major."""
        return self is other or self == other or self.laid_out() == other.laid_out()

    def laid_out(self) -> Shape:
        """The same shape with every layout written out."""
        if self.elements is not None:
            return Shape(None, elements=tuple(e.laid_out() for e in self.elements))
        if not self.dimensions or (self.layout is not None and self.layout.minor_to_major is not None):
            return self
        return replace(self, layout=Layout(self.minor_to_major, "" if self.layout is None else self.layout.tail))

    def __str__(self) -> str:
        if self.elements is not None:
            return f"({', '.join(map(str, self.elements))})"
        dims = ",".join(
            ("?" if size < 0 else f"<={size}") if self.dynamic and self.dynamic[i] else str(size)
            for i, size in enumerate(self.dimensions)
        )
        text = f"{self.element_type}[{dims}]{self.layout if self.layout is not None else ''}"
        return f"b({text})" if self.is_buffer else text


def array(element_type: ElementType, *dimensions: int) -> Shape:
    """An array shape with an explicit row-major layout, as XLA's printer writes it."""
    return Shape(element_type, dimensions, Layout(tuple(range(len(dimensions) - 1, -1, -1))) if dimensions else None)
