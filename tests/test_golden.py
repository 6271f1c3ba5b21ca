"""Goldens: the fused text and the explanation of some of our dumps, byte for byte.

`pytest tests/test_golden.py --update-golden` writes them anew; read the difference before you commit it.
"""

from __future__ import annotations

import difflib
import json
from pathlib import Path

import pytest

from hlo_opt.cli.group import run

ROOT = Path(__file__).resolve().parent.parent
GOLDEN = ROOT / "testdata" / "golden"
NAMES = [
    "adam_one",
    "cartpole_precomputed",
    "cartpole_random",
    "cartpole_scan_separate",
    "layer_norm",
    "layer_norm.frames",
    "mlp_train_step",
    "softmax",
    "softmax_bf16",
]


def compare(path: Path, actual: str, update: bool) -> None:
    """Fail with a difference when the golden says something else; write it when asked to."""
    if update:
        path.parent.mkdir(exist_ok=True)
        path.write_text(actual, encoding="utf-8", newline="\n")
        return
    assert path.exists(), f"{path.name} is missing; run pytest --update-golden"
    expected = path.read_text(encoding="utf-8")
    if expected != actual:
        rows = list(difflib.unified_diff(expected.splitlines(), actual.splitlines(), "golden", "now", lineterm="", n=1))
        pytest.fail("\n".join([f"{path.name} (pytest --update-golden writes it anew)", *rows[:60]]), pytrace=False)


@pytest.mark.parametrize("name", NAMES)
def test_fused_text(name: str, update_golden: bool, capfd: pytest.CaptureFixture[str]) -> None:
    status = run(["fuse", str(ROOT / "testdata" / "dumps" / f"{name}.hlo")])
    done = capfd.readouterr()
    assert status == 0, done.err
    compare(GOLDEN / f"{name}.fused.hlo", done.out, update_golden)


@pytest.mark.parametrize("name", NAMES)
def test_explanation(name: str, update_golden: bool, capfd: pytest.CaptureFixture[str]) -> None:
    status = run(["explain", str(ROOT / "testdata" / "dumps" / f"{name}.hlo")])
    done = capfd.readouterr()
    assert status == 0, done.err
    compare(GOLDEN / f"{name}.explain.txt", done.out, update_golden)


def test_every_golden_is_of_a_test() -> None:
    expected = {f"{name}.{kind}" for name in NAMES for kind in ("fused.hlo", "explain.txt")}
    assert {p.name for p in GOLDEN.iterdir()} == expected


def test_explanations_are_versioned_json(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", str(ROOT / "testdata" / "dumps" / "mlp_train_step.hlo"), "--format", "json"]) == 0
    data = json.loads(capfd.readouterr().out)
    assert data["schema"] == 1
    assert sum(data["refused"].values()) >= len(data["edges"]) > 0
    for edge in data["edges"]:
        assert not edge["fused"] and edge["reasons"] and edge["producer"] and edge["consumer"]
        assert all(r["code"] in data["refused"] and r["message"] and r["hint"] for r in edge["reasons"])
