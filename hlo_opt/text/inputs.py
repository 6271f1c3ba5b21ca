"""Entry points of the text room: bytes or text to modules, and files with several modules."""

from __future__ import annotations

import codecs
import contextlib
import gc
import re
from collections.abc import Iterator

from hlo_opt.diag import ParseError, Source, Span
from hlo_opt.ir import Module
from hlo_opt.text.grammar import MAXIMUM_DEPTH, TOO_DEEP, USUAL_DEPTH
from hlo_opt.text.reader import Reader
from hlo_opt.text.single import START, SingleReader

_SEPARATOR = re.compile(r"^// -----[^\n]*\n?", re.MULTILINE)


def parse(text: str, filename: str = "<string>", max_errors: int = 1) -> Module:
    """Parse a module.

    Raises ParseError, with line and column, for text that is not HLO: wrong syntax, an undefined or doubly defined
    name, a type that contradicts the value it stands for. Its `errors` are the first `max_errors` faults, at most one
    per computation. `verify` checks whether operations fit their operands.
    """
    return _read(Source(text, filename), max_errors)


def decode(data: bytes, filename: str = "<bytes>") -> str:
    """Decode UTF-8 without a byte order mark. Raises ParseError, with line and column, at the first byte that is not
    text."""
    try:
        text = data.decode("utf-8-sig")
        strange = data.find(b"\0")
    except UnicodeDecodeError as error:
        text, strange = "", error.start
    if strange < 0:
        return text
    hint = "it is no protobuf and no StableHLO either; `hlo-opt help forms` says what a FILE may be"
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or _is_wide(data):
        hint = "it is UTF-16, as `>` of older PowerShells writes; save it as UTF-8"
    elif b"HloModule" in data and data[strange]:
        hint = "save it as UTF-8, or copy it again if it was damaged"
    before = Source(data[:strange].decode("utf-8-sig", "replace"), filename)
    raise ParseError(
        f"not text: byte 0x{data[strange]:02x} at offset {strange}",
        span=Span(before, len(before.text), len(before.text) + 1),
        hint=hint,
    )


def _is_wide(data: bytes) -> bool:
    """Whether every other byte at the beginning is 0, as in UTF-16 without a byte order mark."""
    halves = data[0:16:2], data[1:16:2]
    return len(data) >= 16 and any(not any(zero) and all(char) for zero, char in (halves, halves[::-1]))


def split_input(text: str) -> list[tuple[str, int]]:
    """Split a text at lines that start with `// -----`. Each part comes with the number of lines before it."""
    parts, start, lines = [], 0, 0
    for separator in [*_SEPARATOR.finditer(text), None]:
        part = text[start:] if separator is None else text[start : separator.start()]
        parts.append((part, lines))
        if separator is not None:
            lines += part.count("\n") + separator[0].count("\n")
            start = separator.end()
    return parts


def parse_file_parts(text: str, filename: str = "<string>", max_errors: int = 1) -> list[Module]:
    """Parse the modules of a text divided by `// -----` lines. Line numbers in errors count from the start of the text.

    Parts with only comments are skipped. Raises ParseError as `parse` does; its `errors` are the first `max_errors`
    faults of all parts.
    """
    modules: list[Module] = []
    errors: list[ParseError] = []
    for part, lines in split_input(text):
        source = Source(part, filename, lines + 1)
        if Reader(source).skip(0) == len(part):
            continue
        try:
            modules.append(_read(source, max_errors - len(errors)))
        except ParseError as error:
            errors.extend(e for e in error.errors if isinstance(e, ParseError))
            if len(errors) >= max_errors:
                break
    if errors:
        for fault in errors:
            fault.others = ()
        errors[0].others = tuple(errors[1:])
        raise errors[0]
    return modules or [_read(Source(text, filename), max_errors)]


def _read(source: Source, max_errors: int) -> Module:
    if not source.text.strip():
        raise ParseError("the text is empty", span=Span(source, 0, 0))
    with _no_collection():
        try:
            return _reader(source, max_errors, USUAL_DEPTH).module()
        except ParseError as error:
            if all(e.code != TOO_DEEP for e in error.errors):
                raise
        return _reader(source, max_errors, MAXIMUM_DEPTH).module()


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Pause Python's cycle collector: it would scan the growing module again and again and find no garbage."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _reader(source: Source, max_errors: int, depth: int) -> Reader:
    reader = Reader(source, max_errors, depth)
    is_single = (
        START.match(source.text, reader.skip(0)) is not None
    )  # a bare instruction, not a module (HloParserImpl::Run)
    return SingleReader(source, max_errors, depth) if is_single else reader
