"""`hlo-opt memory`: what it prints."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hlo_opt.cli.group import run

STEP = str(Path(__file__).resolve().parents[2] / "testdata" / "dumps" / "mlp_train_step.hlo")


def test_the_page(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["memory", STEP]) == 0
    said = capfd.readouterr().out
    assert "peak" in said and "temporaries" in said and "more buffers" in said
    assert run(["memory", STEP, "--all"]) == 0
    assert "more buffers" not in capfd.readouterr().out


def test_the_json_form(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["memory", STEP, "--format", "json"]) == 0
    data = json.loads(capfd.readouterr().out)
    assert data["schema"] == 1
    for side in ("before", "after"):
        assert sum(data[side]["bytes"].values()) == sum(h["bytes"] for h in data[side]["holders"])
        assert data[side]["peak"] >= data[side]["bytes"]["inputs"]
