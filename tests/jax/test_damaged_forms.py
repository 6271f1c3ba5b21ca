"""Damaged files in binary forms end in a module or in one coded error."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_damaged_files_are_one_coded_error_each() -> None:
    """In a process of its own: the script's limit of memory counts what a test worker holds already."""
    command = [sys.executable, "-m", "scripts.fuzz_forms", "--count", "60", "--seed", "7"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=500, check=False)
    assert run.returncode == 0 and "60 of 60 files" in run.stdout, run.stdout[-2000:] + run.stderr[-2000:]
