"""Dimensions whose size changes: what follows them, the module at another size, and the pages of what cannot."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import resources

from hlo_opt.diag.reason import ReasonSpec, read_page

__all__ = ["size_specs"]


@cache
def size_specs() -> Mapping[str, ReasonSpec]:
    """The pages of all codes of sizes, by code, in their order."""
    folder = resources.files(__name__) / "pages"
    codes = sorted(page.name.removesuffix(".md") for page in folder.iterdir() if page.name.endswith(".md"))
    return {code: read_page(folder, code) for code in codes}
