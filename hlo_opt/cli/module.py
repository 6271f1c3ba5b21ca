"""Getting modules from what the user typed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlo_opt.cli import files

if TYPE_CHECKING:
    from hlo_opt.ir import Module


def read_module(name: str, *, max_errors: int = 1, allow_unknown: bool = False) -> Module:
    """The verified module of a file, or of stdin for `-`. Raises as `read_modules` does."""
    return read_modules(name, max_errors=max_errors, allow_unknown=allow_unknown)[0]


def read_modules(name: str, *, split: bool = False, max_errors: int = 1, allow_unknown: bool = False) -> list[Module]:
    """The verified module of a file, or of stdin for `-`; with `split` all those that `// -----` lines divide.

    Raises ParseError or VerifyError (the first `max_errors` of them in one) with line and column, UsageError with the path for what cannot be opened.
    """
    from hlo_opt.text import parse, parse_file_parts, verify

    source = files.read_text(name)
    if split:
        modules = parse_file_parts(source.text, filename=source.filename, max_errors=max_errors)
    else:
        modules = [parse(source.text, filename=source.filename, max_errors=max_errors)]
    for module in modules:
        verify(module, allow_unknown, max_errors)
    return modules
