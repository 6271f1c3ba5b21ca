"""Names of Python files, for people: which are the user's own, and those below the current folder."""

from __future__ import annotations

import os
import re

_LIBRARY = ("/jax/_src/", "/jax/experimental/", "/site-packages/", "/dist-packages/", "<frozen ", "/lib/python3")


def is_library(file: str) -> bool:
    """Whether a file belongs to JAX or another installed package rather than to the user's program."""
    path = "/" + file.replace("\\", "/")
    return any(part in path for part in _LIBRARY)


def current_folder() -> str:
    """The current folder with a slash behind it; empty where it is the top one, or gone."""
    try:
        folder = os.getcwd()
    except OSError:
        return ""
    return "" if folder == os.path.dirname(folder) else f"{folder}{os.sep}"


def below(folder: str, text: str) -> str:
    """The text with files below a folder, which ends with a slash, named relative to it."""
    if not folder or folder not in text:
        return text
    return re.sub(rf"(?<![\w./-]){re.escape(folder)}(?=[^/])", "", text)
