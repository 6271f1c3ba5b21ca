"""Attribute values from text. Nothing is decoded while a module is read: an `Attribute` calls these when somebody asks for its value.

Source: xla/hlo/parser/hlo_parser.cc, ParseAttributeHelper; grammars/hlo.lark, section 5.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from dataclasses import fields, replace

from hlo_opt.diag import ParseError
from hlo_opt.ir import Metadata, PaddingDimension, Quoted, Raw, SliceDimension, Value, Window, WindowDimension
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

    def one(found: re.Match[bytes]) -> bytes:
        hexadecimal, octal, short, wide, simple = found.groups()
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


def decode_value(text: str) -> Value:
    """The value of an attribute that has no form of its own: what it is follows from how it is spelled."""
    for name, decode in _BY_TERMINAL:
        if terminal(name).fullmatch(text):
            return decode(text)
    return Raw(text)


def _items(text: str) -> list[str]:
    inner = terminal("COMMENT").sub("", text)[1:-1].strip()
    return [item.strip() for item in inner.split(",")] if inner else []


def _integers(text: str) -> tuple[int, ...]:
    return tuple(map(int, _items(text)))


_BY_TERMINAL: tuple[tuple[str, Callable[[str], Value]], ...] = (
    ("INTEGERS", _integers),
    ("INTEGER", int),
    ("BOOLEAN", lambda text: text == "true"),
    ("STRING", lambda text: Quoted(unquote(text))),
    ("NUMBER", lambda text: float(text.partition("(")[0])),
    ("BOOLEANS", lambda text: tuple(item == "true" for item in _items(text))),
    ("WORD", str),
)


def decode_number(text: str) -> Value:
    """A number that is a real one however it is written: `epsilon=1`."""
    if terminal("NUMBER").fullmatch(text) is None:
        raise ParseError(f"expected a number, found {text[:40]!r}")
    return float(text.partition("(")[0])


_TOKENS = {
    "metadata": ("METADATA_STRING", "METADATA_NUMBER", "METADATA_OTHER"),
    "padding": ("PAD",),
    "slices": ("SLICE",),
    "window": ("WINDOW_SIZE", "WINDOW_PAD"),
}
"""The terminals that a rule is made of, besides punctuation."""


@functools.cache
def _rule(name: str) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """An expression for a whole rule and one for its tokens."""
    tokens = "|".join(f"(?P<{t}>{terminal(t).pattern})" for t in _TOKENS[name])
    return grammar().regular(name), re.compile(tokens)


def _tokens(rule: str, text: str) -> list[tuple[str, str]]:
    """Type and text of the tokens of a rule. Raises ParseError."""
    whole, tokens = _rule(rule)
    if whole.fullmatch(text) is not None:
        return [(found.lastgroup or "", found[0]) for found in tokens.finditer(text)]
    tree = grammar().parse(rule, text)
    return [(token.type, str(token)) for token in tree.scan_values(lambda value: True)]


def decode_slices(text: str) -> tuple[SliceDimension, ...]:
    """`{[0:4], [1:9:2]}`. Raises ParseError for anything else."""
    return tuple(SliceDimension(*map(int, _items(token.replace(":", ",")))) for _, token in _tokens("slices", text))


def decode_padding(text: str) -> tuple[PaddingDimension, ...]:
    """`0_1x2_0_1`. Raises ParseError for anything else."""
    return tuple(PaddingDimension(*map(int, token.split("_"))) for _, token in _tokens("padding", text))


_WINDOW = {"size": "1", "stride": "1", "pad": "0_0", "lhs_dilate": "1", "rhs_dilate": "1", "rhs_reversal": "0"}
"""The fields of a window, with what a dimension has where the text leaves one out."""


def decode_window(text: str) -> Window:
    """`{size=3x3 stride=2x2 pad=0_1x0_1}`. Raises ParseError for anything else, or when the fields differ in rank."""
    given: dict[str, list[str]] = {}
    for _, field in _tokens("window", text):
        key, _, value = field.partition("=")
        if key in given:
            raise ParseError(f"window gives {key} twice")
        given[key] = value.strip().split("x")
    rank = len(given.get("size", ()))
    if any(len(values) != rank and not (key == "rhs_reversal" and len(values) > rank) for key, values in given.items()):
        raise ParseError("the fields of the window differ in their number of dimensions")

    def column(key: str, default: str) -> list[str]:
        return given.get(key, [default] * rank)[:rank]

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
    """`{op_name="jit(f)/add" source_line=7}`. Keys that `Metadata` does not have are passed over. Raises ParseError."""
    given: dict[str, str | int] = {}
    for kind, token in _tokens("metadata", text):
        key, _, value = token.partition("=")
        if key in given:
            raise ParseError(f"metadata gives {key} twice")
        if kind == "METADATA_STRING":
            given[key] = unquote(terminal("STRING").search(value)[0])  # type: ignore[index]
        elif kind == "METADATA_NUMBER":
            number = given[key] = int(_items(f"({value})")[0])
            if not -(1 << 31) <= number < 1 << 31:
                raise ParseError(f"{key}={value.strip()} is out of range")
        elif any(number not in _PROFILE_TYPES for number in _integers(value.strip())):
            raise ParseError(f"unknown {token}")
    return replace(Metadata(), **{name: value for name, value in given.items() if name in _METADATA})  # type: ignore[arg-type]


DECODERS: dict[str, Callable[[str], Value]] = {
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
"""How the value of an attribute is decoded, by its name; `decode_value` for all others."""


def decoder(name: str) -> Callable[[str], Value]:
    """What decodes the attribute of this name."""
    return DECODERS.get(name, decode_value)
