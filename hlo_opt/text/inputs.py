"""From what a user hands over to modules: bytes, texts, and texts with several modules."""

from __future__ import annotations

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
    """The module that a text describes.

    Raises ParseError, with line and column, when the text is not HLO: wrong syntax, a name that is not defined or defined twice, a type that contradicts
    what it stands for. Its `errors` are the first `max_errors` faults, at most one per computation. Whether operations fit their operands is for `verify` to
    say.
    """
    return _read(Source(text, filename), max_errors)


def decode(data: bytes, filename: str = "<bytes>") -> str:
    """The text that bytes spell in UTF-8, without a byte order mark. Raises ParseError, with line and column, at the first byte that is no text."""
    try:
        text = data.decode("utf-8-sig")
        strange = data.find(b"\0")
    except UnicodeDecodeError as error:
        text, strange = "", error.start
    if strange < 0:
        return text
    before = Source(data[:strange].decode("utf-8-sig", "replace"), filename)
    raise ParseError(
        f"not text: byte 0x{data[strange]:02x} at offset {strange}",
        span=Span(before, len(before.text), len(before.text) + 1),
        hint="hlo-opt reads textual HLO; XLA writes it with --xla_dump_hlo_as_text",
    )


def split_input(text: str) -> list[tuple[str, int]]:
    """The parts of a text between lines that start with `// -----`, each with the number of lines before it."""
    parts, start, lines = [], 0, 0
    for found in [*_SEPARATOR.finditer(text), None]:
        part = text[start:] if found is None else text[start : found.start()]
        parts.append((part, lines))
        if found is not None:
            lines += part.count("\n") + found[0].count("\n")
            start = found.end()
    return parts


def parse_file_parts(text: str, filename: str = "<string>", max_errors: int = 1) -> list[Module]:
    """The modules of a text that `// -----` lines divide. Lines in errors count from the start of the whole text.

    Parts with nothing but comments are left out. Raises ParseError as `parse` does: for the first part that is wrong, or, where more errors are asked for,
    for all that are.
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
        for found in errors:
            found.others = ()
        errors[0].others = tuple(errors[1:])
        raise errors[0]
    return modules or [_read(Source(text, filename), max_errors)]


def _read(source: Source, max_errors: int) -> Module:
    with _no_collection():
        try:
            return _reader(source, max_errors, USUAL_DEPTH).module()
        except ParseError as error:
            if all(e.code != TOO_DEEP for e in error.errors):
                raise
        return _reader(source, max_errors, MAXIMUM_DEPTH).module()


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Without Python's cycle collector: it would look through all that was read again and again, and nothing of it is garbage."""
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
    )  # an instruction rather than a module (HloParserImpl::Run)
    return SingleReader(source, max_errors, depth) if is_single else reader
