"""Running modules: schedules, the backends numpy, host and cupy, the emitted driver, and comparing results.

`compile` and `emit` are public (`hlo_opt.compile`, `hlo_opt.emit`); `hlo_opt.runtime.check.compare.check` is what `--check` runs. Names are loaded when
they are first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hlo_opt.runtime.driver.emission import emit
    from hlo_opt.runtime.executable import BACKENDS, Executable, choose_backend, compile

_HOMES = {
    "BACKENDS": "executable",
    "Executable": "executable",
    "choose_backend": "executable",
    "compile": "executable",
    "emit": "driver.emission",
}

__all__ = ["BACKENDS", "Executable", "choose_backend", "compile", "emit"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'hlo_opt.runtime' has no attribute {name!r}")
    return getattr(importlib.import_module(f"hlo_opt.runtime.{_HOMES[name]}"), name)
