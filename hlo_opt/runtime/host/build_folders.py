"""Folders that the compiler works in, beside the libraries that come of it. A process that is killed leaves its own;
the next one that builds takes these away.

The owner holds a lock, which ends with it however it ends, also on another machine or in another container that has
the same cache: process numbers say nothing there.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

_LOCK, _PREFIX = "lock", "build-"
_NAME = re.compile(rf"{_PREFIX}[a-z0-9_]{{8}}")
_HELD = re.compile(r"lock|all\.so|unit\d+\.\w+|cc\w+(\.\w+)*")
"""What such a folder holds: the lock, units and what becomes of them, and the compiler's temporary files."""
STALE_SECONDS = 3600.0
"""The age from which on a folder may be one that was left. One without a lock may be just in the making."""


@contextmanager
def build_folder(parent: Path) -> Iterator[Path]:
    """A new folder in `parent`, which is gone afterwards. Raises OSError."""
    with tempfile.TemporaryDirectory(prefix=_PREFIX, dir=parent) as name:
        folder = Path(name)
        descriptor = os.open(folder / _LOCK, os.O_CREAT | os.O_RDWR, 0o600)
        try:
            _locks(descriptor)
            yield folder
        finally:
            os.close(descriptor)


@cache
def take_away_stale(parent: Path) -> None:
    """Removes the folders of `parent` whose builds were killed, once in a process. What cannot be removed stays."""
    with suppress(OSError):
        for folder in [p for p in parent.iterdir() if _NAME.fullmatch(p.name)]:
            with suppress(OSError):
                if _is_stale(folder):
                    shutil.rmtree(folder)


def _is_stale(folder: Path) -> bool:
    """Whether it is a folder of ours, and old, and nobody holds its lock. Raises OSError."""
    if folder.is_symlink() or time.time() - folder.stat().st_mtime < STALE_SECONDS:
        return False
    if not all(_HELD.fullmatch(path.name) for path in folder.iterdir()):
        return False
    try:
        descriptor = os.open(folder / _LOCK, os.O_RDWR)
    except FileNotFoundError:
        return True
    try:
        return _locks(descriptor)
    finally:
        os.close(descriptor)


def _locks(descriptor: int) -> bool:
    """Whether this process has the lock of a file now: nobody else held it. Where the system or the file's disk has no
    locks, nobody has one."""
    try:
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (ImportError, OSError):
        return False
    return True
