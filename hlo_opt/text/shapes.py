"""Shapes from text: `f32[2,3]{1,0}`, `(f32[8], token[])`, `b(f32[8])`.

Source: xla/hlo/parser/hlo_parser.cc, ParseShape and ParseLayout; grammars/hlo.lark, section 3.
"""

from __future__ import annotations

import functools
import re
from dataclasses import replace

from hlo_opt.diag import ParseError, Source, Span, nearest
from hlo_opt.ir import ELEMENT_TYPES, Layout, Shape
from hlo_opt.text.grammar import EXPLAINED, grammar


@functools.cache
def _patterns() -> tuple[re.Pattern[str], re.Pattern[str], re.Pattern[str]]:
    """Regular expressions: an array shape in its parts; the tokens of a tuple shape; the gaps between tokens."""
    known = grammar()
    tokens = re.compile(f"({known.terminal('ARRAY').pattern})|(b?)[(]|([),])")
    return known.flat("array"), tokens, known.space()


class ShapeTable(dict[str, Shape]):
    """A cache of shapes by text: `table[text]`. Raises ParseError without a position; `read_shape` gives the
    position."""

    def __missing__(self, text: str) -> Shape:
        shape = self[text] = read_shape(text)
        return shape


def read_shape(text: str, source: Source | None = None, offset: int = 0) -> Shape:
    """Parse a shape. Raises ParseError, with a position where `source` and the text's `offset` in it are given."""
    array = _patterns()[0].fullmatch(text)
    if array is not None:
        return _array(array, source, offset)
    shape = _tuple(text, source, offset)
    if shape is not None:
        return shape
    if len(text) <= EXPLAINED:
        grammar().parse("shape", text, source, offset)
    raise ParseError(f"{text[:40]!r} is not a shape", span=_span(source, offset, len(text)))


def read_shapes(text: str) -> tuple[Shape, ...]:
    """Parse a list such as `{f32[2]{0}, s32[]}`. Raises ParseError."""
    if not (text.startswith("{") and text.endswith("}")):
        raise ParseError(f"expected shapes in braces, found {text[:40]!r}")
    return read_shape(f"({text[1:-1]})").elements or ()


def read_entry_layout(text: str) -> tuple[tuple[Shape, ...], Shape]:
    """Parse `{(f32[2]{0}, s32[])->f32[2]{0}}` into parameters and result. Raises ParseError."""
    match = re.fullmatch(r"\{(\(.*?),?\)->(.*)\}", _without_space(text))
    if match is None:
        raise ParseError(f"expected {{(parameters)->result}}, found {text[:40]!r}")
    return read_shape(match[1] + ")").elements or (), read_shape(match[2])


def _span(source: Source | None, offset: int, length: int) -> Span | None:
    return None if source is None else Span(source, offset, offset + length)


def _array(match: re.Match[str], source: Source | None, offset: int) -> Shape:
    name, dimensions_text, layout_text = match.groups()
    element_type = ELEMENT_TYPES.get(name)
    if element_type is None:
        close = nearest(name, ELEMENT_TYPES)
        raise ParseError(
            f"unknown element type {name[:40]!r}",
            span=_span(source, offset + match.start(1), len(name)),
            hint=f"did you mean {close}?" if close else None,
        )
    dimensions: tuple[int, ...] = ()
    dynamic: tuple[bool, ...] = ()
    parts = _without_space(dimensions_text)[1:-1]
    if parts:
        sizes = parts.split(",")
        if "<" in parts or "?" in parts:
            dynamic = tuple(not size.isdigit() for size in sizes)
            dimensions = tuple(-1 if size == "?" else int(size.removeprefix("<=")) for size in sizes)
        else:
            dimensions = tuple(map(int, sizes))
        if max(dimensions) > _LARGEST:
            span = _span(source, offset + match.start(2), len(dimensions_text))
            raise ParseError(f"dimension size {max(dimensions)} is too large", span=span)
    layout = None
    if layout_text is not None:
        layout = _layout(_without_space(layout_text))
        if len(layout.minor_to_major or ()) != len(dimensions):
            raise ParseError(
                f"layout {layout} does not list each of {len(dimensions)} dimensions once",
                span=_span(source, offset + match.start(3), len(layout_text)),
            )
    return Shape(element_type, dimensions, layout, dynamic)


_LARGEST = (1 << 63) - 1


def _without_space(text: str) -> str:
    if " " in text or "/" in text or not text.isprintable():
        return _patterns()[2].sub("", text)
    return text


@functools.lru_cache(maxsize=4096)
def _layout(text: str) -> Layout:
    order, _, tail = text[1:-1].partition(":")
    return Layout(tuple(map(int, order.split(","))) if order else None, tail)


def _tuple(text: str, source: Source | None, offset: int) -> Shape | None:
    """Parse a tuple or buffer shape; None where it is malformed, for the LALR parser to explain."""
    _, tokens, space = _patterns()
    arrays = _patterns()[0]
    open_tuples: list[tuple[str, list[Shape]]] = []
    done: Shape | None = None  # a complete shape that waits for ',' or ')'
    fresh = False  # right after '('
    position = _skip(space, text, 0)
    while position < len(text):
        token = tokens.match(text, position)
        if token is None:
            return None
        array, buffer, mark = token.groups()
        if array is not None:
            match = arrays.fullmatch(array)
            if done is not None or match is None:
                return None
            done = _array(match, source, offset + position)
        elif mark is None:
            if done is not None:
                return None
            open_tuples.append((buffer, []))
        elif mark == ",":
            if done is None or not open_tuples:
                return None
            open_tuples[-1][1].append(done)
            done = None
        else:
            if not open_tuples or (done is None and not fresh):
                return None
            buffer, elements = open_tuples.pop()
            if done is not None:
                elements.append(done)
            if not buffer:
                done = Shape(None, elements=tuple(elements))
            elif len(elements) == 1 and elements[0].elements is None:
                done = replace(elements[0], is_buffer=True)
            else:
                return None
        fresh = array is None and mark is None
        position = _skip(space, text, token.end())
    return None if open_tuples else done


def _skip(space: re.Pattern[str], text: str, position: int) -> int:
    match = space.match(text, position)
    return position if match is None else match.end()
