"""The user's cache folder: compiled libraries and derived expressions that are reused by later runs."""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import json
import os
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path


def kept_folder() -> Path | None:
    """The cache folder: `$HLO_OPT_CACHE`, else `hlo-opt` in `$XDG_CACHE_HOME` or `~/.cache`. It is created if needed.

    Its files are trusted, so it must belong to the user and be writable by no one else. None if it is not.
    """
    chosen = os.environ.get("HLO_OPT_CACHE")
    if chosen:
        folder = Path(chosen)
    else:
        base = os.environ.get("XDG_CACHE_HOME", "")
        folder = (Path(base) if os.path.isabs(base) else Path(os.path.expanduser("~/.cache"))) / "hlo-opt"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.stat()
        private = not hasattr(os, "getuid") or (
            status.st_uid == os.getuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        )
        if private and os.access(folder, os.W_OK | os.X_OK):
            return folder.resolve()
    except OSError:
        pass
    return None


class KeptTexts:
    """Texts by name, cached in a file that is written when the program ends. `of` is everything that they are derived
    from."""

    def __init__(self, name: str, of: str) -> None:
        folder = kept_folder()
        digest = hashlib.sha256(of.encode()).hexdigest()[:16]
        self._file = None if folder is None else folder / f"{name}-{digest}.json"
        self._texts: dict[str, str] = {}
        self._is_new = False
        with contextlib.suppress(OSError, ValueError):
            stored = json.loads(self._file.read_bytes()) if self._file is not None else {}
            self._texts = {str(key): str(value) for key, value in stored.items()} if isinstance(stored, dict) else {}

    def text(self, name: str, derive: Callable[[], str]) -> str:
        """The text of a name."""
        text = self._texts.get(name)
        if text is None:
            text = self._texts[name] = derive()
            if not self._is_new and self._file is not None:
                self._is_new = True
                atexit.register(self._write, self._file)
        return text

    def _write(self, file: Path) -> None:
        """Whole or not at all, whoever else writes it."""
        with contextlib.suppress(OSError):
            handle, name = tempfile.mkstemp(dir=file.parent, prefix=".kept-")
            with os.fdopen(handle, "w", encoding="utf-8") as stream:
                json.dump(self._texts, stream)
            os.replace(name, file)
