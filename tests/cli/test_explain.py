"""`hlo-opt explain --as`: what another type would save."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hlo_opt.cli.group import run

DUMP = str(Path(__file__).parents[2] / "testdata" / "dumps" / "layer_norm.hlo")


def test_another_type_is_compared_with_the_module_as_it_is(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", DUMP, "--as", "f32=bf16"]) == 0
    text = capfd.readouterr().out
    assert "what if: with bf16 for f32" in text and "results are not looked at" in text
    assert run(["explain", DUMP, "--as", "f32=bf16", "--format", "json"]) == 0
    found = json.loads(capfd.readouterr().out)["what_if"]
    assert found["types"] == "f32=bf16" and found["what_if"]["bytes"] < found["as_it_is"]["bytes"]


def test_what_is_no_type_is_one_error(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", DUMP, "--as", "bf16"]) == 2
    assert "--as takes two types, and not 'bf16'" in capfd.readouterr().err
