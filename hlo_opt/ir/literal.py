"""Constant values. The text of a large constant is decoded on first use."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hlo_opt.ir.shape import Shape

if TYPE_CHECKING:
    import numpy as np

    from hlo_opt.ir.size import Size
    from hlo_opt.ir.values import Array

    LiteralValue = np.ndarray[Any, np.dtype[Any]] | tuple["Literal", ...]


class Literal:
    """A constant value: a NumPy array of the shape's dtype, or a tuple of literals.

    `text` is the value as HLO text writes it (`1.5`, `{1, 2}`), None for a literal that was not read. `origin` is the
    name of the constant it was read for, with `.0`, `.1`, .. appended for tuple elements. An elided literal (`{...}`)
    has no value until the caller supplies one. Literals are equal when shapes and bits are. An elided one without a
    value equals only itself; with a value, only one of the same origin and value."""

    __slots__ = ("_decode", "_value", "is_elided", "origin", "shape", "text")

    def __init__(
        self,
        shape: Shape,
        *,
        value: LiteralValue | None = None,
        text: str | None = None,
        decode: Callable[[Shape, str], LiteralValue] | None = None,
        is_elided: bool = False,
        origin: str = "",
    ) -> None:
        self.shape = shape
        self.text = text
        self.is_elided = is_elided
        self.origin = origin
        self._value = value
        self._decode = decode

    @property
    def value(self) -> LiteralValue:
        """The value. Raises ValueError when the text elides it, ParseError when the text is malformed."""
        if self._value is None:
            if self.is_elided or self._decode is None or self.text is None:
                raise ValueError(f"the value of this {self.shape} constant was elided from the text")
            self._value = self._decode(self.shape, self.text)
            for number, element in enumerate(self._value if isinstance(self._value, tuple) else ()):
                element.origin = f"{self.origin}.{number}"
        return self._value

    @property
    def is_known(self) -> bool:
        """Whether the value is known: written in the text, or supplied for an elided literal."""
        return not self.is_elided or self._value is not None

    def element(self, number: int) -> Literal:
        """Element `number` of an elided tuple."""
        assert self.is_elided and self.shape.elements is not None
        return Literal(self.shape.elements[number], text=self.text, is_elided=True, origin=f"{self.origin}.{number}")

    def key(self) -> tuple[object, ...]:
        """The key of equality and hash: shape without layout, and bits."""
        if not self.is_known:
            return ("elided", id(self))
        value = self.value
        if isinstance(value, tuple):
            return (self.shape.without_layout(), tuple(element.key() for element in value))
        return (self.shape.without_layout(), value.tobytes(), *([self.origin] if self.is_elided else []))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Literal) and (self is other or self.key() == other.key())

    def __hash__(self) -> int:
        return hash(self.key())

    def __repr__(self) -> str:
        return f"Literal({self.shape} {self.text if self.text is not None else self._value!r})"


class SizedLiteral(Literal):
    """A constant that follows the size of a range: the same number everywhere, and `code` is its C++ text; None where
    it has none. Who reads `value` has that of the example, and leaves only the sizes that have the same."""

    __slots__ = ("code", "numbers", "size")

    def __init__(self, shape: Shape, size: Size, numbers: Array, code: str | None = None) -> None:
        """`numbers` has one for each size of the range, in the type of the shape."""
        super().__init__(shape)
        self.size, self.numbers, self.code = size, numbers, code

    @property
    def value(self) -> LiteralValue:
        import numpy as np

        bits = self.numbers.view(f"u{self.numbers.dtype.itemsize}")
        self.size.range.decide(np.unique(bits, return_inverse=True)[1])
        number = self.numbers[self.size.range.at]
        return np.broadcast_to(number, tuple(map(int, self.shape.dimensions)))

    @property
    def is_known(self) -> bool:
        return True

    def key(self) -> tuple[object, ...]:
        return ("sized", self.shape.without_layout(), self.numbers.tobytes())
