"""Literals, the values in `constant(...)`: decode from text, print to text.

Text is kept and decoded on first use. Decoding is linear: the grammar's terminals check and split the text, and NumPy
converts the numbers. The LALR parser runs only to locate a fault.
Source: xla/hlo/parser/hlo_parser.cc, ParseLiteral, ParseDenseLiteral, CheckParsedValueIsInRange; grammars/hlo.lark,
section 4.
"""

from __future__ import annotations

import functools
import math
import re
from typing import Any

from hlo_opt.diag import ParseError
from hlo_opt.ir import ElementType, Literal, Shape
from hlo_opt.ir.values import Array, DType
from hlo_opt.text.expressions import compiled
from hlo_opt.text.grammar import EXPLAINED, MAXIMUM_DEPTH, grammar

_ELIDED = re.compile(r"\s*\{\s*\.\.\.\s*\}\s*")
_FILLED = 1 << 26  # largest element count of an array literal written as a single value


class _Patterns:
    """Regular expressions built from the grammar's terminals."""

    def __init__(self) -> None:
        known = grammar()
        number, boolean = known.terminal("NUMBER").pattern, known.terminal("BOOLEAN").pattern
        self.comment = known.terminal("COMMENT")
        self.balanced = known.terminal("BALANCED")
        self.token = compiled(f"{number}|{boolean}")
        self.dense = compiled(f"(?:[\\s,{{}}]++|{number}|{boolean})*+")
        self.integers = compiled(r"(?:[\s,{}]++|-?+[0-9]{1,20}+(?![0-9.eE]))*+")
        self.pair = compiled(f"\\(\\s*+({number})[\\s,]++({number})[\\s,]*+\\)")
        self.payload = re.compile(r"(-?)nan\(0x([0-9a-fA-F]+)\)")


@functools.cache
def _patterns() -> _Patterns:
    return _Patterns()


def lazy_literal(shape: Shape, text: str, origin: str = "") -> Literal:
    """A literal decoded on first use. `origin` is the name of its constant, which identifies an elided literal."""
    if text.startswith("{") and "..." in text and _ELIDED.fullmatch(text):
        return Literal(shape, text=text, is_elided=True, origin=origin)
    return Literal(shape, text=text, decode=decode_literal, origin=origin)


def decode_literal(shape: Shape, text: str) -> Array | tuple[Literal, ...]:
    """Decode a value. Raises ParseError when the text is not a literal of the shape."""
    if "/" in text:
        text = _patterns().comment.sub(" ", text)
    if shape.elements is not None:
        parts = _split_tuple(text)
        if len(parts) != len(shape.elements):
            raise ParseError(f"expected a tuple of {len(shape.elements)} literals, found {len(parts)}")
        return tuple(lazy_literal(s, t) for s, t in zip(shape.elements, parts, strict=True))
    if not shape.is_array:
        raise ParseError(f"a value of type {shape} cannot be written as a literal")
    return _decode_array(shape, text)


def _split_tuple(text: str) -> list[str]:
    inner = text.strip()
    if not (inner.startswith("(") and inner.endswith(")")):
        raise ParseError(f"expected a tuple in parentheses, found {inner[:40]!r}")
    parts, position, end = [], 1, len(inner) - 1
    while position < end:
        if inner[position] in " \t\r\n,":
            position += 1
            continue
        known = _patterns()
        match = known.balanced.match(inner, position, end) or known.token.match(inner, position, end)
        if match is None and inner[position] == "(":
            match = grammar(MAXIMUM_DEPTH).terminal("BALANCED").match(inner, position, end)
        if match is None:
            raise _fault(text)
        parts.append(match[0])
        position = match.end()
    return parts


def _fault(text: str) -> ParseError:
    if len(text) <= EXPLAINED:
        try:
            grammar().parse("literal", text)
        except ParseError as error:
            return error
    return ParseError(f"{text.strip()[:40]!r} is not a literal of this shape")


def _decode_array(shape: Shape, text: str) -> Array:
    import numpy as np

    known = _patterns()
    element_type = shape.type
    if not element_type.numpy_name:
        raise ParseError(f"a literal of type {element_type} has no NumPy form")
    pairs: list[tuple[str, str]] = []
    if element_type.is_complex:
        pairs = [(m[1], m[2]) for m in known.pair.finditer(text)]
        text = known.pair.sub("0", text)
    if known.dense.fullmatch(text) is None:
        raise _fault(text)
    tokens = known.token.findall(text)
    is_single = len(tokens) == 1 and "{" not in text and not element_type.is_complex
    if is_single and shape.dimensions and shape.element_count > 0:
        if shape.element_count > _FILLED:
            raise ParseError(f"one value for the {shape.element_count} elements of {shape.without_layout()}")
        # XLA reads one value for an array as its first element; the others are zero (ParseDenseLiteral).
        array = np.zeros(shape.dimensions, element_type.dtype)
        array.reshape(-1)[0] = _decode_array(Shape(element_type), text)
        return array
    _check_nesting(shape, text, len(tokens))
    if element_type.is_complex:
        if len(pairs) != len(tokens):
            raise ParseError(f"expected a complex number such as (1, 2) for each {element_type} element")
        part = np.float32 if element_type.bits == 64 else np.float64
        flat = np.empty(len(pairs), element_type.dtype)
        for target, number in ((flat.real, 0), (flat.imag, 1)):
            wide = _floats([p[number] for p in pairs])
            with np.errstate(over="ignore"):
                target[...] = wide.astype(part)
            if (np.isinf(target) & np.isfinite(wide)).any():
                raise ParseError(f"a value is out of range for {element_type}")
        return flat.reshape(shape.dimensions)
    if element_type.is_float:
        values = _to_float(element_type, tokens, "(" in text)
    else:
        values = _to_integer(element_type, tokens, text)
    if len(values) == 1 and not shape.dimensions:
        return values.reshape(())
    return values.reshape(shape.dimensions)


def _check_nesting(shape: Shape, text: str, count: int) -> None:
    """Raises ParseError unless the braces nest as the dimensions require and hold as many elements."""
    dimensions = shape.dimensions
    expected = math.prod(dimensions)
    opening = text.count("{")
    wanted = sum(math.prod(dimensions[:k]) for k in range(len(dimensions)))
    if count != expected or opening != wanted:
        raise ParseError(
            f"a literal of shape {shape.without_layout()} has {expected} elements in {wanted} lists, found "
            f"{count} in {opening}"
        )
    if not dimensions:
        return
    braces = "{}"
    for size in reversed(dimensions[:-1]):
        braces = "{" + braces * size + "}"
    if re.sub(r"[^{}]+", "", text) != braces:
        raise ParseError(f"the braces of the literal do not nest as {shape.without_layout()} says")
    if len(dimensions) > 1 and expected:
        last = dimensions[-1]
        for row in re.findall(r"\{([^{}]*)\}", text):
            if len(row.replace(",", " ").split()) != last:
                raise ParseError(f"expected {last} elements in each innermost list, found {row.strip()[:40]!r}")


def _floats(tokens: list[str]) -> Array:
    """The doubles that tokens spell. Raises ParseError for a finite number that overflows, as XLA does."""
    import numpy as np

    values = np.array([float(t.partition("(")[0]) if t not in _BOOLEAN else float(_BOOLEAN[t]) for t in tokens])
    for position in np.flatnonzero(np.isinf(values)):
        if "inf" not in tokens[position]:
            raise ParseError(f"{tokens[position][:40]} is out of range for a double")
    return values


_BOOLEAN = {"true": True, "false": False}


def _limits(dtype: DType) -> Any:
    import ml_dtypes

    return ml_dtypes.finfo(dtype)


def _to_float(element_type: ElementType, tokens: list[str], has_payloads: bool) -> Array:
    import numpy as np

    if "true" in tokens or "false" in tokens:
        raise ParseError(f"true and false are not values of {element_type}")
    wide = _floats(tokens)
    limits = _limits(element_type.dtype)
    largest = float(limits.max)
    # Up to a quarter ULP above the largest value is rounding in the text: 3.40282347e+38 is the largest f32.
    beyond = np.flatnonzero(np.isfinite(wide) & (np.abs(wide) > largest * (1 + 2.0 ** -(int(limits.nmant) + 2))))
    if beyond.size:
        raise ParseError(f"{tokens[beyond[0]]} is out of range for {element_type}, which ends at {largest:g}")
    with np.errstate(all="ignore"):
        values = wide.astype(element_type.dtype)
    negative = [i for i, t in enumerate(tokens) if t.startswith("-nan")] if np.isnan(wide).any() else []
    if negative or has_payloads:
        _set_nans(element_type, values, tokens, negative)
    return values


def _set_nans(element_type: ElementType, values: Array, tokens: list[str], negative: list[int]) -> None:
    """Write the signs and payloads of NaNs into the bits of `values`."""
    import numpy as np

    bits = values.view(np.dtype(f"u{values.dtype.itemsize}"))
    mantissa = int(_limits(element_type.dtype).nmant)
    sign = bits.dtype.type(1 << (element_type.bits - 1))
    has_payload = element_type.name in _WITH_PAYLOAD
    for i in negative:
        if has_payload:
            bits[i] |= sign
    for i, token in enumerate(tokens):
        match = _patterns().payload.fullmatch(token)
        if match is None:
            continue
        payload = int(match[2][:32], 16)
        if not has_payload or not 0 < payload < 1 << mantissa or len(match[2]) > 16:
            raise ParseError(f"{token[:40]}: {element_type} has no NaN with this payload")
        clear = bits.dtype.type((1 << mantissa) - 1)
        bits[i] = (bits[i] & ~clear) | bits.dtype.type(payload)


_WITH_PAYLOAD = frozenset({"f16", "bf16", "f32", "f64", "f8e5m2", "f8e4m3", "f8e3m4"})
"""Float types with IEEE NaNs, which have a sign and a payload."""


def _to_integer(element_type: ElementType, tokens: list[str], text: str) -> Array:
    import numpy as np

    if element_type.kind == "pred":
        numbers = [_BOOLEAN.get(t, t) for t in tokens]
        if any(isinstance(n, str) and not n.lstrip("-").isdigit() for n in numbers):
            raise ParseError("expected true, false or an integer for pred")
        return np.array([bool(int(n[:20])) if isinstance(n, str) else n for n in numbers], dtype=np.bool_)
    if _patterns().integers.fullmatch(text) is None:
        wrong = next((t for t in tokens if not re.fullmatch(r"-?\d{1,20}", t)), text.strip())
        raise ParseError(f"expected an integer for {element_type}, found {wrong[:40]!r}")
    signed = element_type.kind == "signed"
    # XLA accepts the 64 bits of either signedness
    takes_any = signed or element_type.bits == 64
    if takes_any and any(len(t) >= 19 if signed else t[0] == "-" for t in tokens):
        tokens = [str(_wrapped(int(t), signed)) for t in tokens]
    low, high = element_type.limits
    integers = list(map(int, tokens))
    if integers and (min(integers) < low or max(integers) > high):
        wrong = next(t for t in tokens if not low <= int(t) <= high)
        raise ParseError(f"{wrong} is out of range for {element_type}, namely [{low}, {high}]")
    return np.array(integers, dtype=np.int64 if signed else np.uint64).astype(element_type.dtype)


def _wrapped(number: int, signed: bool) -> int:
    """A 64-bit number reinterpreted with the other signedness, where it only fits there."""
    if signed and 1 << 63 <= number < 1 << 64:
        return number - (1 << 64)
    return number + (1 << 64) if not signed and -(1 << 63) <= number < 0 else number


def format_literal(literal: Literal) -> str:
    """The HLO text of a literal: as read, or printed so that it reads back to the same bits."""
    if literal.text is not None:
        return literal.text
    value = literal.value
    if isinstance(value, tuple):
        return f"( {', '.join(format_literal(element) for element in value)} )" if value else "()"
    element_type = literal.shape.type
    return _nested([format_element(element_type, v) for v in value.reshape(-1)], value.shape)


def _nested(items: list[str], dimensions: tuple[int, ...]) -> str:
    if not dimensions:
        return items[0]
    rows = items
    count = len(items)
    for depth in range(len(dimensions) - 1, -1, -1):
        size = dimensions[depth]
        count = math.prod(dimensions[:depth])
        rows = ["{" + ", ".join(rows[i * size : (i + 1) * size]) + "}" for i in range(count)]
    return rows[0]


def format_element(element_type: ElementType, value: Any) -> str:
    """The HLO text of one element. `value` is a scalar of the type's dtype."""
    import numpy as np

    if element_type.kind == "pred":
        return "true" if value else "false"
    if element_type.is_complex:
        part = np.float32 if element_type.bits == 64 else np.float64
        f = _F32_NAMES[element_type.bits]
        return f"({_format_float(f, part(value.real))}, {_format_float(f, part(value.imag))})"
    if element_type.is_float:
        return _format_float(element_type.name, value)
    return str(int(value))


_F32_NAMES = {64: "f32", 128: "f64"}


def _format_float(name: str, value: Any) -> str:
    import numpy as np

    number = float(value)
    if math.isinf(number):
        return "-inf" if number < 0 else "inf"
    if not math.isnan(number):
        return str(value) if name == "f32" else repr(number)
    if name not in _WITH_PAYLOAD:
        return "nan"
    array = np.asarray(value)
    bits = int(array.view(np.dtype(f"u{array.dtype.itemsize}")))
    mantissa = int(_limits(array.dtype).nmant)
    sign = "-" if bits >> (array.dtype.itemsize * 8 - 1) else ""
    payload = bits & ((1 << mantissa) - 1)
    return f"{sign}nan" if payload == 1 << (mantissa - 1) else f"{sign}nan(0x{payload:x})"
