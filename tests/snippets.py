"""Snippets of Python that use the hook, each in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

HEAD = """
import sys
import jax
import jax.numpy as jnp
import numpy as np
import hlo_opt.jax
from hlo_opt.jax import decide
decide.times = decide.compared = lambda *_, **_kind: (1.0, 100.0)
"""
"""What snippets begin with: kernels of ours win, as it is said."""


def run(code: str, head: str = HEAD, **environment: str) -> str:
    """What a snippet prints to stderr, and its exit status where that is not 0; empty when all is well."""
    variables = {**os.environ, "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT), **environment}
    done = subprocess.run(
        [sys.executable, "-c", head + textwrap.dedent(code)],
        env=variables,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    return done.stderr + (f"exit {done.returncode}" if done.returncode else "")
