"""What a search found as a file of options, which `hlo-opt fuse --config` replays."""

from __future__ import annotations

import json
from collections.abc import Sequence

from hlo_opt.tune.search import Tuned

FINGERPRINT = "fingerprint"
"""The key under which the file says which module it is for."""


def toml(tuned: Tuned) -> str:
    """The file: every key is an option of `fuse`, but for the module's fingerprint."""
    unit = "estimated" if tuned.task.backend is None else f"measured on {tuned.task.backend}"
    lines = [
        f"# {_comment(tuned.module)}: {unit} at {tuned.after.us:.6g} us; the preset default: {tuned.before.us:.6g} us",
        f"# From {tuned.start}{''.join(f'; {_comment(change)}' for change in tuned.changes)}.",
        f"{FINGERPRINT} = {json.dumps(tuned.fingerprint)}",
        f"target = {json.dumps(tuned.target)}",
        f"simplify = {json.dumps(tuned.task.simplify)}",
        f"passes = {_several(tuned.setting.pipeline.spelt())}",
    ]
    for key, edges in (("forbid", tuned.setting.forbid), ("force", tuned.setting.force)):
        if edges:
            lines.append(f"{key} = {_several([':'.join(ends) for ends in edges])}")
    if tuned.task.trip_counts:
        lines.append(f"trip-count = {_several([f'{name}={n}' for name, n in tuned.task.trip_counts.items()])}")
    return "\n".join(lines) + "\n"


def _several(texts: Sequence[str]) -> str:
    return "[\n" + "".join(f"    {json.dumps(text)},\n" for text in texts) + "]"


def _comment(text: str) -> str:
    """A name as it may stand in a comment."""
    return json.dumps(text)[1:-1]
