"""Goldens: the fused text and the explanation of some of our dumps, byte for byte. The golden files of single passes
are in tests/goldens.

`pytest --update-golden` writes them all anew; read the difference before you commit it.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hlo_opt.cli.golden.execute import compare, run_captured
from hlo_opt.passes.table import PASSES

ROOT = Path(__file__).resolve().parent.parent
DUMPS = ROOT / "testdata" / "dumps"
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
KINDS = {"fuse": "fused.hlo", "explain": "explain.txt"}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("verb", KINDS)
def test_printed_text(verb: str, name: str, update_golden: bool) -> None:
    dump = DUMPS / f"{name}.hlo"
    done = run_captured([verb, str(dump)])
    assert done.status == 0, done.err
    result = compare(dump, GOLDEN / f"{name}.{KINDS[verb]}", done.out, update_golden)
    if result.status == "failed":
        pytest.fail(f"{result}\n(pytest --update-golden writes it anew)", pytrace=False)


def test_every_golden_is_of_a_test() -> None:
    expected = {f"{name}.{kind}" for name in NAMES for kind in KINDS.values()}
    assert {p.name for p in GOLDEN.iterdir()} == expected


def test_every_pass_has_a_golden_file() -> None:
    there = {path.stem for path in (ROOT / "tests" / "goldens").glob("*.hlo")}
    assert [name for name in PASSES if name not in there] == []


def test_explanations_are_versioned_json() -> None:
    done = run_captured(["explain", str(DUMPS / "mlp_train_step.hlo"), "--format", "json"])
    assert done.status == 0
    data = json.loads(done.out)
    assert data["schema"] == 1
    assert sum(data["refused"].values()) >= len(data["edges"]) > 0
    for edge in data["edges"]:
        assert not edge["fused"] and edge["reasons"] and edge["producer"] and edge["consumer"]
        assert all(r["code"] in data["refused"] and r["message"] and r["hint"] for r in edge["reasons"])
