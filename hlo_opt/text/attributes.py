"""Decoders of attribute values. The reader decodes nothing: an `Attribute` calls its decoder on first use.

Source: xla/hlo/parser/hlo_parser.cc, ParseAttributeHelper; grammars/hlo.lark, section 5.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from dataclasses import fields

from hlo_opt.diag import ParseError
from hlo_opt.ir import AttributeValue, Metadata, PaddingDimension, Quoted, Raw, SliceDimension, Window, WindowDimension
from hlo_opt.text.grammar import grammar, terminal

_ESCAPE = re.compile(rb"\\(?:x([0-9a-fA-F]{1,2})|([0-7]{1,3})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([\s\S]))")
_SIMPLE_ESCAPES = {
    b"n": b"\n", b"t": b"\t", b"r": b"\r", b"a": b"\a", b"b": b"\b", b"f": b"\f", b"v": b"\v",
    b"\\": b"\\", b"'": b"'", b'"': b'"', b"?": b"?",
}  # fmt: skip


def unquote(text: str) -> str:
    """The string that a quoted text spells, as absl::CUnescape reads it. Raises ParseError for an unknown escape."""
    inner = text[1:-1]
    if "\\" not in inner:
        return inner

    def one(escape: re.Match[bytes]) -> bytes:
        hexadecimal, octal, short, wide, simple = escape.groups()
        if simple is not None:
            if simple not in _SIMPLE_ESCAPES:
                raise ParseError(f"unknown escape '\\{simple.decode('utf-8', 'replace')}' in a string")
            return _SIMPLE_ESCAPES[simple]
        if hexadecimal is not None or octal is not None:
            code = int(hexadecimal, 16) if hexadecimal is not None else int(octal, 8)
            if code > 255:
                raise ParseError(f"escape \\{octal.decode()} in a string is more than one byte")
            return bytes([code])
        code = int(short if short is not None else wide, 16)
        if code > 0x10FFFF or 0xD800 <= code < 0xE000:
            raise ParseError(f"escape \\U{code:08x} in a string is not a character")
        return chr(code).encode("utf-8")

    return _ESCAPE.sub(one, inner.encode("utf-8", "surrogatepass")).decode("utf-8", "replace")


def decode_value(text: str) -> AttributeValue:
    """The value of an attribute without a form of its own, typed by its spelling."""
    for name, decode in _BY_TERMINAL:
        if terminal(name).fullmatch(text):
            return decode(text)
    return Raw(text)


def _items(text: str) -> list[str]:
    inner = terminal("COMMENT").sub("", text)[1:-1].strip()
    return [item.strip() for item in inner.split(",")] if inner else []


def _integers(text: str) -> tuple[int, ...]:
    return tuple(map(int, _items(text)))


_BY_TERMINAL: tuple[tuple[str, Callable[[str], AttributeValue]], ...] = (
    ("INTEGERS", _integers),
    ("INTEGER", int),
    ("BOOLEAN", lambda text: text == "true"),
    ("STRING", lambda text: Quoted(unquote(text))),
    ("NUMBER", lambda text: float(text.partition("(")[0])),
    ("BOOLEANS", lambda text: tuple(item == "true" for item in _items(text))),
    ("WORD", str),
)


def decode_number(text: str) -> AttributeValue:
    """A number as a float, however it is written: `epsilon=1`. Raises ParseError for other text."""
    if terminal("NUMBER").fullmatch(text) is None:
        raise ParseError(f"expected a number, found {text[:40]!r}")
    return float(text.partition("(")[0])


_TOKENS = {
    "metadata": ("METADATA_STRING", "METADATA_NUMBER", "METADATA_OTHER"),
    "padding": ("PAD",),
    "slices": ("SLICE",),
    "window": ("WINDOW_SIZE", "WINDOW_PAD"),
}
"""The terminals of a rule other than punctuation."""


@functools.cache
def _rule(name: str) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """The regular expressions of a whole rule and of its tokens."""
    tokens = "|".join(f"(?P<{t}>{terminal(t).pattern})" for t in _TOKENS[name])
    return grammar().regular(name), re.compile(tokens)


def _tokens(rule: str, text: str) -> list[tuple[str, str]]:
    """The tokens of a rule as (type, text). Raises ParseError where the text does not match the rule."""
    whole, tokens = _rule(rule)
    if whole.fullmatch(text) is not None:
        return [(match.lastgroup or "", match[0]) for match in tokens.finditer(text)]
    tree = grammar().parse(rule, text)
    return [(token.type, str(token)) for token in tree.scan_values(lambda value: True)]


def decode_slices(text: str) -> tuple[SliceDimension, ...]:
    """Decode `{[0:4], [1:9:2]}`. Raises ParseError for anything else."""
    return tuple(SliceDimension(*map(int, _items(token.replace(":", ",")))) for _, token in _tokens("slices", text))


def decode_padding(text: str) -> tuple[PaddingDimension, ...]:
    """Decode `0_1x2_0_1`. Raises ParseError for anything else."""
    return tuple(PaddingDimension(*map(int, token.split("_"))) for _, token in _tokens("padding", text))


_WINDOW = {"size": "1", "stride": "1", "pad": "0_0", "lhs_dilate": "1", "rhs_dilate": "1", "rhs_reversal": "0"}
"""The fields of a window and their defaults."""


def decode_window(text: str) -> Window:
    """Decode `{size=3x3 stride=2x2 pad=0_1x0_1}`. Raises ParseError for anything else, or when fields differ in
    rank."""
    values_by_field: dict[str, list[str]] = {}
    for _, field in _tokens("window", text):
        key, _, value = field.partition("=")
        if key in values_by_field:
            raise ParseError(f"window gives {key} twice")
        values_by_field[key] = value.strip().split("x")
    rank = len(values_by_field.get("size", ()))
    if any(
        len(values) != rank and not (key == "rhs_reversal" and len(values) > rank)
        for key, values in values_by_field.items()
    ):
        raise ParseError("the fields of the window differ in their number of dimensions")

    def column(key: str, default: str) -> list[str]:
        return values_by_field.get(key, [default] * rank)[:rank]

    return Window(
        tuple(
            WindowDimension(int(size), int(stride), int(low), int(high), int(lhs), int(rhs), bool(int(reversal)))
            for size, stride, pad, lhs, rhs, reversal in zip(*(column(*c) for c in _WINDOW.items()), strict=True)
            for low, high in [pad.split("_")]
        )
    )


_METADATA = frozenset(f.name for f in fields(Metadata))
_PROFILE_TYPES = range(5)
"""The values of ProfileType in xla/xla_data.proto."""


def decode_metadata(text: str) -> Metadata:
    """Decode `{op_name="jit(f)/add" source_line=7}`, ignoring keys that `Metadata` lacks. Raises ParseError."""
    entries: dict[str, str | int] = {}
    for kind, token in _tokens("metadata", text):
        key, _, value = token.partition("=")
        if key in entries:
            raise ParseError(f"metadata gives {key} twice")
        if kind == "METADATA_STRING":
            if value[0] not in "\"'":  # white space or a comment comes first
                value = terminal("STRING").search(value)[0]  # type: ignore[index]
            entries[key] = unquote(value)
        elif kind == "METADATA_NUMBER":
            number = entries[key] = int(value) if value.isdecimal() else int(_items(f"({value})")[0])
            if not -(1 << 31) <= number < 1 << 31:
                raise ParseError(f"{key}={value.strip()} is out of range")
        elif any(number not in _PROFILE_TYPES for number in _integers(value.strip())):
            raise ParseError(f"unknown {token}")
    return Metadata(**{name: value for name, value in entries.items() if name in _METADATA})  # type: ignore[arg-type]


DECODERS: dict[str, Callable[[str], AttributeValue]] = {
    "backend_config": lambda text: Quoted(unquote(text)) if text[:1] in "\"'" else Raw(text),
    "epsilon": decode_number,
    "frontend_attributes": Raw,
    "metadata": decode_metadata,
    "origin": Raw,
    "padding": decode_padding,
    "sharding": Raw,
    "slice": decode_slices,
    "statistics": Raw,
    "window": decode_window,
}
"""Decoders by attribute name; `decode_value` handles all others."""


def decoder(name: str) -> Callable[[str], AttributeValue]:
    """The decoder of an attribute."""
    return DECODERS.get(name, decode_value)
