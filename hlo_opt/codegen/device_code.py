"""The device helpers in `device/*.cuh`. A kernel includes only those that it needs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import resources

FILES = (
    *("elementwise", "small_floats", "approximate", "complex", "atomics", "packed", "tensor", "grid", "cluster"),
    "depthwise",
)
_NAME = re.compile(r"\bhlo_\w+|\bHLO_(?:PTX|RED|WARP|CLUSTER)(?=_)")


@cache
def definitions() -> Mapping[str, str]:
    """Every helper's definition, by name. A definition uses only helpers before it."""
    folder = resources.files("hlo_opt.codegen") / "device"
    texts = [(folder / f"{name}.cuh").read_text(encoding="utf-8") for name in FILES]
    parts = [part for text in texts for part in text.split("\n// @")[1:]]
    return {name: f"{body.strip()}\n" for name, _, body in (part.partition("\n") for part in parts)}


@cache
def _needed(name: str) -> frozenset[str]:
    """The helpers that a helper uses."""
    known = definitions()
    return frozenset(other for other in _NAME.findall(known[name]) if other in known) - {name}


def helpers(names: Iterable[str]) -> str:
    """The definitions of the helpers among `names`, and of those they use; "" for none."""
    known, needed = definitions(), set[str]()
    todo = [name for name in names if name in known]
    while todo:
        name = todo.pop()
        if name not in needed:
            needed.add(name)
            todo += _needed(name)
    return "".join(definition for name, definition in known.items() if name in needed)
