"""Modules on the host, with the text of their kernels' form as lanes."""

from __future__ import annotations

from typing import Any

import pytest

import hlo_opt
from hlo_opt.codegen import lanes
from hlo_opt.runtime.host import library


def run_on_host(body: str, *inputs: Any, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, str]:
    """A module's result, or its results, and the text of its kernels."""
    made: list[str] = []

    def unit_of(kernels: Any) -> str:
        made.append(lanes.lanes_unit(kernels))
        return made[-1]

    monkeypatch.setattr(library, "lanes_unit", unit_of)
    module = hlo_opt.parse("HloModule m\n\n" + body)
    found = hlo_opt.compile(hlo_opt.fuse(module)[0], backend="host")(*inputs)
    return found[0] if len(found) == 1 else found, "".join(part.split("namespace kernel_0")[1] for part in made)
