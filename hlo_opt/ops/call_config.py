"""The `backend_config` of fusions, loops and library calls: the one place that reads it.

It is JSON, bare or in quotes, or the attributes of a foreign-function call (`uplo = 76 : ui8`), or a protobuf's text; `configuration` wants JSON, `field` takes all.
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
    """A call's configuration, or the message of a name in it: JSON, bare or in quotes. Raises ValueError when it is no JSON object."""
    written = instruction.attributes.get("backend_config")
    if written is None:
        return {}
    try:  # quoted text may run over lines
        found = json.loads(written.text, strict=False)
        if isinstance(found, str):
            found = json.loads(found, strict=False) if found else {}
    except (json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"backend_config is no JSON: {error}") from None
    if not isinstance(found, dict):
        raise ValueError("backend_config is no JSON object")
    inner = found.get(name, found)
    return inner if isinstance(inner, dict) else {}


def number(config: dict[str, Any], name: str, default: float) -> float:
    """A finite number of a message. Raises ValueError for anything else."""
    found = float(config.get(name, default))
    if not math.isfinite(found):
        raise ValueError(f"{name} is {found}")
    return found


def field(instruction: Instruction, *path: str) -> str | None:
    """The text of a field's value, in whatever form it is written: of a string what is in its quotes, of a list what is in its brackets, else the word.

    path  names, each of which is looked for behind the one before: the first field of the last name counts. None where one of them is missing or has no such value
    """
    written = instruction.attributes.get("backend_config")
    if written is None or path[0] not in written.text:
        return None
    text, position = written.text.replace('\\"', '"'), 0
    for name in path:
        found = _name(name).search(text, position)
        if found is None:
            return None
        position = found.end()
    value = _VALUE.match(text, position)
    return None if value is None else next(v for v in value.groups() if v is not None)


@functools.cache
def _name(name: str) -> re.Pattern[str]:
    return re.compile(rf'(?<!\w){re.escape(name)}"?\s*(?:[=:]\s*|(?=[\[{{]))')


def option(instruction: Instruction, name: str, default: str) -> str:
    """An attribute of a call through XLA's foreign-function interface: `uplo = 76 : ui8`, `lower = true`. JSON (`"top_k": 3`) will do."""
    found = field(instruction, name)
    return default if found is None else found


def letter(instruction: Instruction, name: str, default: str) -> str:
    """An option of LAPACK, which is written as the number of its letter: `uplo = 76 : ui8` is L."""
    found = option(instruction, name, default)
    return chr(int(found)) if found.isdigit() and 32 <= int(found) < 127 else found


def is_true(instruction: Instruction, name: str, default: bool = False) -> bool:
    """An option that is `true` or `false`, or 1 or 0."""
    return option(instruction, name, "true" if default else "false") in ("true", "1")


def is_lower(instruction: Instruction) -> bool:
    """Whether the lower triangle is meant: `uplo` is L (LAPACK), or `lower` is true (the GPU's kernels)."""
    return letter(instruction, "uplo", "L" if is_true(instruction, "lower", True) else "U") == "L"


def descends(instruction: Instruction) -> bool:
    """Whether a top-k gives the greatest: its comparator says so, as xla/service/topk_rewriter.cc writes it; without one `largest` does."""
    comparator = next(instruction.called(), None)
    return (
        is_true(instruction, "largest", True)
        if comparator is None
        else comparator.root.word("direction") in ("GT", "GE")
    )


Solved = tuple[bool, bool, str, bool]
"""How a triangular system is solved: a x = b rather than x a = b; by the lower triangle; how a is transposed; with ones on the diagonal."""


def solved_by_trsm(instruction: Instruction) -> Solved:
    """As the letters of LAPACK's trsm say. Raises KeyError for a transposition that there is not."""
    transpose = {"N": "NO_TRANSPOSE", "T": "TRANSPOSE", "C": "ADJOINT"}[letter(instruction, "trans_x", "N")]
    left, lower, unit = (
        letter(instruction, name, default) for name, default in (("side", "L"), ("uplo", "L"), ("diag", "N"))
    )
    return left == "L", lower == "L", transpose, unit == "U"
