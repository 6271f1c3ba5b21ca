"""The placeholder program that XLA is asked to compile to time a module, and what the hook replaces it by."""

from __future__ import annotations

NAME = "hlo_opt_timed"
"""The name of the placeholder module that XLA compiles for timing."""

wanted_modules: list[bytes] = []
"""The module that XLA is to compile instead of the placeholder. A global, because XLA calls the hook from threads of
its own."""


def wanted() -> bytes | None:
    """The module that replaces the placeholder `NAME`; None at the next call."""
    return wanted_modules.pop() if wanted_modules else None
