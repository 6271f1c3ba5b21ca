"""Getting a module from what the user typed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlo_opt.cli import files

if TYPE_CHECKING:
    from hlo_opt.ir import Module


def read_module(name: str) -> Module:
    """The verified module of a file, or of stdin for `-`.

    Raises ParseError or VerifyError with line and column, UsageError with the path for what cannot be opened.
    """
    from hlo_opt.text import parse, verify

    source = files.read_text(name)
    module = parse(source.text, filename=source.filename)
    verify(module)
    return module
