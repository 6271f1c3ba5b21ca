import json
from pathlib import Path

import numpy as np
import pytest

from hlo_opt.cli.group import run as main
from hlo_opt.runtime.measure import clock as bench_clock

DUMP = str(Path(__file__).parents[2] / "testdata" / "dumps" / "softmax.hlo")


@pytest.fixture(autouse=True)
def small_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_clock, "HOST_COPIED_BYTES", 1 << 16)


def test_bench_prints_json_and_draws(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    plot = tmp_path / "plot.svg"
    assert main(["bench", DUMP, "--backend", "host", "--rounds", "2", "--json", "--plot", str(plot)]) == 0
    found = json.loads(capfd.readouterr().out)
    assert [v["name"] for v in found["variants"]] == ["unfused", "fused"] and found["rounds"] == 2
    assert plot.read_text().startswith("<svg")


def test_bench_prints_a_table(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", DUMP, "--backend", "host", "--rounds", "1"]) == 0
    shown = capfd.readouterr().out
    assert "fused against unfused" in shown and "of copy" in shown


def test_a_plot_is_svg_or_png(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", DUMP, "--plot", "x.pdf"]) == 2
    assert "HLO341" in capfd.readouterr().err


def test_run_profiles(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    trace = tmp_path / "trace.json"
    assert main(["run", DUMP, "--backend", "host", "--profile", str(trace)]) == 0
    shown = capfd.readouterr()
    assert "of copy" in shown.err and "out0" in shown.out
    assert any(e["ph"] == "X" for e in json.loads(trace.read_text())["traceEvents"])
    assert main(["run", DUMP, "--backend", "numpy", "--profile", str(trace)]) == 2
    assert "HLO342" in capfd.readouterr().err


def test_all_devices_run(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    dump = str(Path(DUMP).with_name("sharded_step.hlo"))
    weights = np.zeros((32, 10), np.float32)
    given = {"in0": weights, "in1": weights[0], "in2": np.ones((64, 32), np.float32), "in3": np.zeros(64, np.int32)}
    np.savez(tmp_path / "in.npz", **given)
    command = ["bench", dump, "--backend", "host", "--rounds", "1", "--inputs", str(tmp_path / "in.npz")]
    assert main(command) == 0
    assert "4 simulated devices take turns" in capfd.readouterr().out
    assert main([*command, "--json"]) == 0
    found = json.loads(capfd.readouterr().out)
    assert found["devices"] == 4 and found["variants"][0]["launches"] % 4 == 0
