"""Measured times are set against today's prices, without a GPU."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("jax")

from scripts.bench import price_error
from scripts.bench.kernel_limits import row_of
from scripts.bench.kernel_programs import programs

NAME = "row sum f32 1048576x64"


@pytest.fixture(scope="module")
def measured() -> dict[str, Any]:
    """A measurement of one program that took twice its price, and of one that failed."""
    (program,) = [p for p in programs() if p.name == NAME]
    row = row_of(program, price_error.find("h200"))
    moved = sum(p.bytes for p in row.prices)
    timed = {
        "case": NAME,
        "us": 2 * row.us,
        "price_us": 5.0,
        "prices": [{"read": moved, "written": 0.0}],
        "kernels": [{"symbol": kernel.symbol} for kernel in row.kernels],
    }
    failed = {"case": "row sum f32 16384x4096", "fault": "it failed"}
    return {"device": "a GPU", "target": "h200", "copy_gb_per_s": moved / 1e3 / row.us, "kernel_times": [timed, failed]}


def test_a_price_of_half_the_time(
    measured: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "times.json"
    file.write_text(json.dumps(measured))
    monkeypatch.setattr(sys, "argv", ["price_error", str(file)])
    assert price_error.main() == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4 and lines[2].startswith(NAME)
    us, then, now, off, over = map(float, lines[2].removeprefix(NAME).split()[:5])
    assert (then, off) == (5.0, -50) and us == pytest.approx(2 * now, abs=0.2) and over == pytest.approx(now, abs=0.2)
    assert lines[3] == (
        "1 of 1 programs with the same kernels: the price is 50.0 % off in the median, 50.0 % on average; 1 by more "
        "than 15 %"
    )


def test_the_time_of_another_kernel_does_not_count(measured: dict[str, Any]) -> None:
    rows = [{**row, "kernels": [{"symbol": "another"}]} for row in measured["kernel_times"]]
    (each,) = price_error.judged({**measured, "kernel_times": rows}, ["row sum"])
    assert not each.is_same and each.line().endswith("  new")
    assert price_error.summary([each]) == "no kernel is still the same"
    assert not price_error.judged(measured, ["column"])
