"""Reads a profile; its form follows from its first bytes."""

from __future__ import annotations

from pathlib import Path

from hlo_opt.diag import UsageError
from hlo_opt.report.measured import chrome, nsys, xplane
from hlo_opt.report.measured.events import Profile

NOT_READ = "HLO730"

FORMS = (
    "a `*.xplane.pb` or `*.trace.json.gz` of jax.profiler, a Perfetto trace in JSON, or a table by `nsys stats "
    "--report cuda_gpu_kern_sum --format csv`"
)

_GZIP = b"\x1f\x8b"


def read_profile(name: str) -> Profile:
    """The events of a profile's file. Raises UsageError, with the path, for what cannot be read."""
    path = Path(name)
    try:
        if path.is_dir():
            raise UsageError("is a folder, not a profile", code=NOT_READ, filename=name, hint=_inside(path))
        data = path.read_bytes()
    except (OSError, ValueError) as error:
        why = "no such file" if isinstance(error, FileNotFoundError) else getattr(error, "strerror", None) or str(error)
        raise UsageError(why, code=NOT_READ, filename=name) from None
    try:
        profile = _read(data)
    except ValueError as error:
        raise UsageError(f"is no profile: {error}", code=NOT_READ, filename=name, hint=f"it takes {FORMS}") from None
    if not profile.events:
        raise UsageError("holds no event of a kernel", code=NOT_READ, filename=name, hint=f"it takes {FORMS}")
    return profile


def _read(data: bytes) -> Profile:
    if not data:
        raise ValueError("it is empty")
    if data.startswith(_GZIP):
        data = chrome.unpacked(data)
    if data.lstrip()[:1] in (b"{", b"["):
        return chrome.read(data)
    try:
        text = data.decode("utf-8-sig")
        has_text = "\0" not in text and "," in text
    except UnicodeDecodeError:
        has_text = False
    return nsys.read(text) if has_text else xplane.read(data)


def _inside(folder: Path) -> str:
    """What to name instead of a folder: the newest profile in it."""
    files = [p for pattern in ("*.xplane.pb", "*.trace.json.gz") for p in folder.glob(f"**/{pattern}")]
    newest = max(files, key=lambda p: (p.stat().st_mtime, p.name.endswith(".pb")), default=None)
    return f"name a profile in it: {newest}" if newest is not None else f"name a file: {FORMS}"
