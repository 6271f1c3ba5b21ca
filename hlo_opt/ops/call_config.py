"""Reads the `backend_config` of fusions, loops and library calls.

It is JSON (bare or quoted), the attributes of an FFI call (`uplo = 76 : ui8`), or protobuf text. `configuration` reads
JSON only, `field` all three.
"""

from __future__ import annotations

import functools
import json
import math
import re
from typing import Any

from hlo_opt.ir import Instruction

_VALUE = re.compile(r'"([^"]*)"|\[([^\]]*)\]|([\w.+\-]+)')


def configuration(instruction: Instruction, name: str = "") -> dict[str, Any]:
    """A call's configuration, or the message `name` in it. Raises ValueError unless it is a JSON object, bare or
    quoted."""
    written = instruction.attributes.get("backend_config")
    if written is None:
        return {}
    try:  # a quoted text may contain line breaks
        decoded = json.loads(written.text, strict=False)
        if isinstance(decoded, str):
            decoded = json.loads(decoded, strict=False) if decoded else {}
    except (json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"backend_config is no JSON: {error}") from None
    if not isinstance(decoded, dict):
        raise ValueError("backend_config is no JSON object")
    inner = decoded.get(name, decoded)
    return inner if isinstance(inner, dict) else {}


def number(config: dict[str, Any], name: str, default: float) -> float:
    """A finite number of a message. Raises ValueError for anything else."""
    value = float(config.get(name, default))
    if not math.isfinite(value):
        raise ValueError(f"{name} is {value}")
    return value


def field(instruction: Instruction, *path: str) -> str | None:
    """The text of a field's value in any of the three forms: inside its quotes or brackets, or a word.

    path  names, each searched for after the one before. None where one is missing or has no such value
    """
    written = instruction.attributes.get("backend_config")
    if written is None or path[0] not in written.text:
        return None
    return _field_of(written.text, path)


@functools.lru_cache(maxsize=4096)
def _field_of(written: str, path: tuple[str, ...]) -> str | None:
    """A field of a configuration's text. Cached: fusions of one kind share their text, and every pass asks for it."""
    text, position = written.replace('\\"', '"'), 0
    for name in path:
        match = _name(name).search(text, position)
        if match is None:
            return None
        position = match.end()
    value = _VALUE.match(text, position)
    return None if value is None else next(v for v in value.groups() if v is not None)


@functools.cache
def _name(name: str) -> re.Pattern[str]:
    return re.compile(rf'(?<!\w){re.escape(name)}"?\s*(?:[=:]\s*|(?=[\[{{]))')


def option(instruction: Instruction, name: str, default: str) -> str:
    """An attribute of an FFI call, `uplo = 76 : ui8` or `lower = true`; JSON (`"top_k": 3`) works too."""
    value = field(instruction, name)
    return default if value is None else value


def letter(instruction: Instruction, name: str, default: str) -> str:
    """A LAPACK option, written as a character code: `uplo = 76 : ui8` is L."""
    value = option(instruction, name, default)
    return chr(int(value)) if value.isdigit() and 32 <= int(value) < 127 else value


def is_true(instruction: Instruction, name: str, default: bool = False) -> bool:
    """An option that is `true` or `false`, 1 or 0."""
    return option(instruction, name, "true" if default else "false") in ("true", "1")


def is_lower(instruction: Instruction) -> bool:
    """Whether the lower triangle is meant: `uplo` is L (LAPACK), or `lower` is true (GPU kernels)."""
    return letter(instruction, "uplo", "L" if is_true(instruction, "lower", True) else "U") == "L"


def descends(instruction: Instruction) -> bool:
    """Whether a top-k returns the largest: by its comparator (xla/service/topk_rewriter.cc), or without one by
    `largest`."""
    comparator = next(instruction.called(), None)
    return (
        is_true(instruction, "largest", True)
        if comparator is None
        else comparator.root.word("direction") in ("GT", "GE")
    )


Solved = tuple[bool, bool, str, bool]
"""How a triangular system is solved: a x = b (not x a = b); by the lower triangle; the transposition of a; unit
diagonal."""


def solved_by_trsm(instruction: Instruction) -> Solved:
    """Decode LAPACK's trsm options. Raises KeyError for an unknown transposition."""
    transpose = {"N": "NO_TRANSPOSE", "T": "TRANSPOSE", "C": "ADJOINT"}[letter(instruction, "trans_x", "N")]
    left, lower, unit = (
        letter(instruction, name, default) for name, default in (("side", "L"), ("uplo", "L"), ("diag", "N"))
    )
    return left == "L", lower == "L", transpose, unit == "U"
