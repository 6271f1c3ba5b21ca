"""What is printed does not depend on the order in which Python's sets hold things."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


@pytest.mark.parametrize(("form", "name"), [("text", "adam_one"), ("json", "cartpole_random")])
def test_an_explanation_is_the_same_for_every_hash_seed(form, name, dumps):
    arguments = ["explain", str(dumps / f"{name}.hlo"), "--all", "--format", form]
    outputs = {
        subprocess.run(
            [sys.executable, "-m", "hlo_opt", *arguments],
            capture_output=True,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1


def test_a_comparison_is_the_same_for_every_hash_seed(dumps):
    arguments = [
        "diff",
        str(dumps / "cartpole_scan.hlo"),
        str(dumps / "cartpole_scan_custom_call.hlo"),
        "--fuse",
        "never",
        "--all",
    ]
    outputs = {
        subprocess.run(
            [sys.executable, "-m", "hlo_opt", *arguments],
            capture_output=True,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1
