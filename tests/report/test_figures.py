"""`hlo_opt.stats`: the figures of a module or a text."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import hlo_opt
from hlo_opt.cli.group import run

DUMP = Path(__file__).resolve().parents[2] / "testdata" / "dumps" / "softmax.hlo"


def test_they_are_those_of_the_command_line(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["stats", str(DUMP), "--target", "a100", "--json"]) == 0
    shown = json.loads(capfd.readouterr().out)
    figures = hlo_opt.stats(hlo_opt.parse(DUMP.read_text()), target="a100").summary
    assert (figures.kernels, figures.launches, figures.bytes) == (shown["kernels"], shown["launches"], shown["bytes"])
    assert figures.est_us == pytest.approx(shown["est_us"], abs=1e-3)


def test_a_text_is_read_and_verified() -> None:
    text = DUMP.read_text()
    fused, _ = hlo_opt.fuse(text)
    assert hlo_opt.stats(fused).summary.kernels < hlo_opt.stats(text).summary.kernels
    with pytest.raises(hlo_opt.VerifyError):
        hlo_opt.stats("HloModule m\n\nENTRY e {\n  p = f32[2]{0} parameter(0)\n  ROOT r = f32[3]{0} negate(p)\n}\n")
    with pytest.raises(hlo_opt.UsageError, match="no_such"):
        hlo_opt.stats(text, target="no_such")
    with pytest.raises(hlo_opt.UsageError, match="no_loop"):
        hlo_opt.stats(text, trip_counts={"no_loop": 3})
