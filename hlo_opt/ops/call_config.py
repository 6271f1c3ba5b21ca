"""The `backend_config` of library calls."""

from __future__ import annotations

import json
import math
import re
from typing import Any

from hlo_opt.ir import Instruction

_OPTION = r"\b{name}\\?\"?\s*[=:]\s*([\w.+\-]+)"


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


def option(instruction: Instruction, name: str, default: str) -> str:
    """An attribute of a call through XLA's foreign-function interface: `uplo = 76 : ui8`, `lower = true`. JSON (`"top_k": 3`) will do."""
    written = instruction.attributes.get("backend_config")
    found = None if written is None else re.search(_OPTION.format(name=re.escape(name)), written.text)
    return default if found is None else found[1]


def letter(instruction: Instruction, name: str, default: str) -> str:
    """An option of LAPACK, which is written as the number of its letter: `uplo = 76 : ui8` is L."""
    found = option(instruction, name, default)
    return chr(int(found)) if found.isdigit() and 32 <= int(found) < 127 else found


def is_true(instruction: Instruction, name: str, default: bool = False) -> bool:
    """An option that is `true` or `false`, or 1 or 0."""
    return option(instruction, name, "true" if default else "false") in ("true", "1")
