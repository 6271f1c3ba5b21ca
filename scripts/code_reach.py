"""Which lines of the program's code fusing a module executes, and what it gives: a mistake in a line shows only on a
module that reaches it."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import hlo_opt
from scripts.code_mutants import Mutant
from scripts.mutate_code import ROOT


@dataclass(frozen=True)
class Reach:
    """Of one module: the fused text, and the lines that making it executes, by file."""

    text: str
    lines: dict[str, list[int]]

    def has(self, mutant: Mutant) -> bool:
        """Whether a mistake's lines are among them."""
        return not {mutant.line, *mutant.lines}.isdisjoint(self.lines.get(mutant.file, ()))


def reach_of(files: Sequence[Path], globs: Sequence[str]) -> dict[str, Reach]:
    """By name of the file: what fusing each module reaches of the code that the globs name. Kept for this code and
    these modules."""
    digest = hashlib.sha256(repr(globs).encode())
    for path in (*sorted((ROOT / "hlo_opt").rglob("*.py")), *files):
        digest.update(path.name.encode() + path.read_bytes())
    kept = Path(tempfile.gettempdir()) / f"code-reach-{os.getuid()}" / f"{digest.hexdigest()[:20]}.json"
    if not kept.exists():
        places = {str(p): p.relative_to(ROOT).as_posix() for glob in globs for p in ROOT.glob(glob)}
        found = {file.name: _reach(file, places) for file in files}
        kept.parent.mkdir(exist_ok=True)
        kept.write_text(json.dumps({name: asdict(one) for name, one in found.items()}), encoding="utf-8")
    return {name: Reach(**one) for name, one in json.loads(kept.read_text(encoding="utf-8")).items()}


def _reach(file: Path, places: dict[str, str]) -> Reach:
    """Of one module; `places`: names of files by their paths."""
    module = hlo_opt.parse(file.read_text(encoding="utf-8"))
    lines: dict[str, set[int]] = {}

    def within(frame: FrameType, event: str, argument: Any) -> Any:
        lines.setdefault(places[frame.f_code.co_filename], set()).add(frame.f_lineno)
        return within

    def entered(frame: FrameType, event: str, argument: Any) -> Any:
        return within if frame.f_code.co_filename in places else None

    sys.settrace(entered)
    try:
        fused, _ = hlo_opt.fuse(module)
    finally:
        sys.settrace(None)
    return Reach(str(fused), {name: sorted(found) for name, found in lines.items()})
