"""Conversion of modules of all forms to HLO text, and between forms, by jaxlib in another process. This file does not
import JAX."""

from __future__ import annotations

import codecs
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

from hlo_opt.diag import ParseError, Source, Span, UsageError
from hlo_opt.forms.kinds import PROTOS, STABLEHLO, Form, artifact_module, fault_of, form_of, module_message, unzipped
from hlo_opt.ir import Module
from hlo_opt.jax.converter import MISSING, REFUSED
from hlo_opt.text import decode, parse

DAMAGED, NO_JAXLIB, NOT_CONVERTED = "HLO305", "HLO306", "HLO307"

INSTALL = "it is the extra jax: pip install 'hlo-opt[jax]'"

_CONVERTER = Path(__file__).with_name("converter.py")
_NO_PLACE = re.compile(r', metadata=\{source_file="-"(?: source_\w+=\d+)*\}| source_file="-"(?: source_\w+=\d+)*')
"""The metadata that MLIR's parser adds to operations without a location: a line of the text itself."""
_PLACE = re.compile(r"(?:^|[ ;])-:(\d+):(\d+): error: ([^;]*)")
"""The first place that MLIR's parser names: line, column, message."""
SECONDS = 120
"""Limit of the processor time of a conversion."""
_LONGEST = 400
"""Limit of the characters of XLA's message that are shown."""


def unpacked(data: bytes, filename: str) -> tuple[bytes, Form]:
    """A module's bytes without gzip, and their form.

    Raises UsageError (HLO305) for a damaged gzip or protobuf, ParseError for bytes of no known form.
    """
    try:
        data = unzipped(data)
    except ValueError as fault:
        raise UsageError(str(fault), code=DAMAGED, filename=filename) from None
    form = form_of(data)
    if form is not None:
        return data, form
    if why := fault_of(data):
        raise UsageError(
            f"is no module: as a protobuf, {why}", code=DAMAGED, filename=filename, hint="copy or dump it again"
        )
    decode(data, filename)
    raise ParseError("not text")


def hlo_text(data: bytes, form: Form, filename: str) -> str:
    """The HLO text of a module in any form, with the values of constants.

    Raises UsageError if jaxlib is needed and missing (HLO306) or refuses the module (HLO307), ParseError for bytes that
    are not text.
    """
    if form is Form.TEXT:
        return decode(data, filename)
    text = converted(data, form, "hlo", filename).decode("utf-8", "replace")
    return _NO_PLACE.sub("", text) if form is Form.MLIR else text


def text_of(data: bytes, filename: str) -> str:
    """The HLO text of a file's bytes. Raises as `unpacked` and `hlo_text`."""
    content, form = unpacked(data, filename)
    return hlo_text(content, form, filename)


def read(source: str | os.PathLike[str] | bytes, filename: str = "<bytes>") -> Module:
    """The module of a file, or of a file's bytes, in any form: HLO text, a protobuf, a snapshot, StableHLO, an artifact
    of `jax.export`, or gzip of these. `filename` is the name of bytes in messages.

    Raises OSError for a file that cannot be read, UsageError for damaged files (HLO305), if jaxlib is needed and
    missing (HLO306) or refuses the module (HLO307), and ParseError for other bytes.
    """
    if not isinstance(source, bytes):
        filename = os.fspath(source)
        source = Path(source).read_bytes()
    return parse(text_of(source, filename), filename=filename)


def converted(data: bytes, form: Form, target: str, filename: str) -> bytes:
    """A module in another form: `hlo`, `pb` (an HloModuleProto), `mlir` or `mlirbc`. Raises UsageError as
    `hlo_text`."""
    from hlo_opt.evaluate.memory import default_limit  # loads NumPy

    source = "hlo"
    if form in PROTOS:
        source, data = "pb", module_message(data, form)
    elif form in STABLEHLO:
        source, data = "mlir", artifact_module(data) or data
    else:
        data = data.removeprefix(codecs.BOM_UTF8)
    command = [sys.executable, "-P", str(_CONVERTER), source, target, str(default_limit()), str(SECONDS)]
    done = subprocess.run(command, input=data, capture_output=True, check=False)
    if done.returncode == 0:
        return done.stdout
    if done.returncode == MISSING:
        does = (
            f"is {form.value}, and reading it needs jaxlib"
            if target == "hlo"
            else f"jaxlib makes {target}, and there is none"
        )
        raise UsageError(does, code=NO_JAXLIB, filename=filename, hint=INSTALL)
    does = f"is {form.value} that jaxlib refuses" if target == "hlo" else f"jaxlib makes no {target} of it"
    why = _why(done)
    place = _PLACE.search(why) if form is Form.MLIR else None
    if place is None:
        raise UsageError(f"{does}: {why}", code=NOT_CONVERTED, filename=filename)
    text = data.decode("utf-8", "replace")
    before = text.splitlines(keepends=True)[: int(place[1]) - 1]
    start = min(len("".join(before)) + int(place[2]) - 1, len(text))
    span = Span(Source(text, filename), start, start + 1)
    raise UsageError(f"jaxlib refuses this StableHLO: {place[3]}", code=NOT_CONVERTED, span=span)


def _why(done: subprocess.CompletedProcess[bytes]) -> str:
    """XLA's message in one line."""
    if done.returncode == REFUSED:
        lines = [line.strip() for line in done.stdout.decode("utf-8", "replace").splitlines()]
        return "; ".join(line for line in lines if line)[:_LONGEST]
    if done.returncode == -signal.SIGXCPU:
        return f"it takes more than {SECONDS} s"
    lines_of = done.stderr.decode("utf-8", "replace").splitlines()
    fatal = next((line for line in lines_of if line.startswith("F") and "] " in line), "")
    return fatal.partition("] ")[2][:_LONGEST] or f"it ended with status {done.returncode}"
