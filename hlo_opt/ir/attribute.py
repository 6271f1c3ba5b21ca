"""Attribute values: what follows `name=` after an instruction's operands or in the module header.

An attribute keeps the text it was read from, so nothing is lost, and decodes it on first use. Passes make
attributes from values with `Attribute.of`. The decoded forms:

    dimensions={0,1}              tuple of int
    index=2, channel_id=7         int
    is_stable=true                bool
    epsilon=0.001                 float
    direction=GE, kind=kLoop      str (a bare word)
    custom_call_target="f"        Quoted
    slice={[0:4], [1:9:2]}        tuple of SliceDimension
    padding=0_1x2_0_1             tuple of PaddingDimension
    window={size=2 stride=2}      Window
    metadata={op_name="x"}        Metadata
    anything else                 Raw (the text itself)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hlo_opt.ir.module import Computation


@dataclass(frozen=True, slots=True)
class SliceDimension:
    """`[start:limit:stride]` of one dimension."""

    start: int
    limit: int
    stride: int = 1

    def __str__(self) -> str:
        return f"[{self.start}:{self.limit}]" if self.stride == 1 else f"[{self.start}:{self.limit}:{self.stride}]"


@dataclass(frozen=True, slots=True)
class PaddingDimension:
    """`low_high_interior` of one dimension; low and high may be negative (they crop)."""

    low: int
    high: int
    interior: int = 0

    def __str__(self) -> str:
        return f"{self.low}_{self.high}" + (f"_{self.interior}" if self.interior else "")


@dataclass(frozen=True, slots=True)
class WindowDimension:
    """One dimension of a window: of reduce-window, select-and-scatter or convolution."""

    size: int
    stride: int = 1
    pad_low: int = 0
    pad_high: int = 0
    lhs_dilate: int = 1
    rhs_dilate: int = 1
    rhs_reversal: bool = False


@dataclass(frozen=True, slots=True)
class Window:
    """`window={size=.. stride=.. pad=..}`."""

    dimensions: tuple[WindowDimension, ...]

    def __str__(self) -> str:
        def join(name: str, values: list[str], default: str) -> str:
            return f" {name}={'x'.join(values)}" if any(v != default for v in values) else ""

        d = self.dimensions
        text = "size=" + "x".join(str(w.size) for w in d) if d else ""
        text += join("stride", [str(w.stride) for w in d], "1")
        text += join("pad", [f"{w.pad_low}_{w.pad_high}" for w in d], "0_0")
        text += join("lhs_dilate", [str(w.lhs_dilate) for w in d], "1")
        text += join("rhs_dilate", [str(w.rhs_dilate) for w in d], "1")
        text += join("rhs_reversal", [str(int(w.rhs_reversal)) for w in d], "0")
        return f"{{{text}}}"


@dataclass(frozen=True, slots=True)
class Metadata:
    """Where an instruction came from. Absent parts are "" or 0; `stack_frame_id` indexes the module's stack-frame
    tables."""

    op_type: str = ""
    op_name: str = ""
    source_file: str = ""
    source_line: int = 0
    source_end_line: int = 0
    source_column: int = 0
    source_end_column: int = 0
    stack_frame_id: int = 0

    def __str__(self) -> str:
        parts = []
        for f in fields(self):
            value = getattr(self, f.name)
            if value:
                parts.append(f"{f.name}={_quote(value) if isinstance(value, str) else value}")
        return f"{{{' '.join(parts)}}}"


@dataclass(frozen=True, slots=True)
class Quoted:
    """A quoted string, with its escapes decoded."""

    text: str

    def __str__(self) -> str:
        return _quote(self.text)


@dataclass(frozen=True, slots=True)
class Raw:
    """Text that the IR does not interpret. It prints back as it was read."""

    text: str

    def __str__(self) -> str:
        return self.text


AttributeValue = (
    bool
    | int
    | float
    | str
    | tuple[int, ...]
    | tuple[SliceDimension, ...]
    | tuple[PaddingDimension, ...]
    | tuple[bool, ...]
    | Window
    | Metadata
    | Quoted
    | Raw
)


def _quote(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
    return f'"{escaped}"'


def render(value: AttributeValue) -> str:
    """The HLO text of an attribute's value."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        if value and isinstance(value[0], PaddingDimension):
            return "x".join(map(str, value))
        separator = ", " if value and isinstance(value[0], SliceDimension) else ","
        return "{" + separator.join(render(v) if isinstance(v, bool) else str(v) for v in value) + "}"
    return str(value)


class Attribute:
    """The text of an attribute's value and its decoded form, computed on first use. Compared by text."""

    __slots__ = ("_decode", "_value", "text")

    def __init__(
        self, text: str, decode: Callable[[str], AttributeValue] | None = None, value: AttributeValue | None = None
    ) -> None:
        self.text = text
        self._decode = decode
        self._value = value

    @classmethod
    def of(cls, value: AttributeValue) -> Attribute:
        """An attribute without a text; its text is rendered from the value."""
        return cls(render(value), value=value)

    @property
    def value(self) -> AttributeValue:
        """The decoded value, or `Raw` for an attribute without a decoder. Raises ParseError for malformed text."""
        if self._value is None:
            self._value = Raw(self.text) if self._decode is None else self._decode(self.text)
        return self._value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Attribute) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"Attribute({self.text})"


class Called:
    """The computations that an attribute names: `to_apply=f`, `calls=f`, `branch_computations={f, g}`. Immutable."""

    __slots__ = ("computations", "is_list")

    def __init__(self, *computations: Computation, is_list: bool = False) -> None:
        self.computations = computations
        self.is_list = is_list

    @property
    def text(self) -> str:
        names = ", ".join(f"%{c.name}" for c in self.computations)
        return f"{{{names}}}" if self.is_list else names

    def __repr__(self) -> str:
        return f"Called({self.text})"
