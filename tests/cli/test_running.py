"""The verbs that run modules."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pytest

from hlo_opt.cli.group import run
from hlo_opt.cli.group import run as main
from hlo_opt.runtime.measure import bench as bench_clock

SHARDED = """HloModule m, replica_count=2, num_partitions=2

add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}

ENTRY e {
  p = f32[2]{0} parameter(0), sharding={devices=[2]<=[2]}
  w = f32[2]{0} parameter(1), sharding={replicated}, parameter_replication={true}
  m = f32[2]{0} multiply(p, w)
  s = f32[2]{0} all-reduce(m), replica_groups={{0,1,2,3}}, channel_id=1, use_global_device_ids=true, to_apply=add
  ROOT t = (f32[2]{0}, f32[2]{0}) tuple(s, m)
}
"""
LOOP = """HloModule m

body {
  s = (s32[], f32[4]{0}) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  v = f32[4]{0} get-tuple-element(s), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  l = f32[4]{0} log(v), metadata={source_file="model.py" source_line=13}
  ROOT t = (s32[], f32[4]{0}) tuple(j, l)
}

condition {
  s = (s32[], f32[4]{0}) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(-1)
  ROOT l = pred[] compare(i, n), direction=NE
}

ENTRY e {
  v = f32[4]{0} parameter(0)
  z = s32[] constant(0)
  t = (s32[], f32[4]{0}) tuple(z, v)
  w = (s32[], f32[4]{0}) while(t), condition=condition, body=body
  ROOT r = s32[] get-tuple-element(w), index=0
}
"""


@pytest.fixture
def sharded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sharded.hlo").write_text(SHARDED)
    return "sharded.hlo"


@pytest.fixture
def loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "loop.hlo").write_text(LOOP)
    return "loop.hlo"


@pytest.mark.parametrize("backend", ["numpy", "host"])
def test_each_device_has_its_inputs_and_outputs(backend: str, sharded: str, capfd: pytest.CaptureFixture[str]) -> None:
    arrays = {"in0": np.zeros(2), "in0.d1": np.array([1, 2]), "in0.d3": np.array([10, 20]), "in1": np.array([1, 2])}
    np.savez("in.npz", **{key: value.astype(np.float32) for key, value in arrays.items()})
    assert run(["run", sharded, "--inputs", "in.npz", "--outputs", "out.npz", "--backend", backend]) == 0
    with np.load("out.npz") as stored:
        assert stored.files == ["out0", "out1.d0", "out1.d1", "out1.d2", "out1.d3"]
        assert stored["out0"].tolist() == [11, 44]
        assert [stored[f"out1.d{k}"].tolist() for k in range(4)] == [[0, 0], [1, 4], [0, 0], [10, 40]]
    err = capfd.readouterr().err
    assert f"backend {backend}: asked for\n" in err
    assert "simulated 4 devices: 2 replicas x 2 partitions\n" in err


def test_drawn_inputs_follow_the_shardings(sharded: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["run", sharded, "--trace", "p,w", "--seed", "5"]) == 0
    lines = capfd.readouterr().out.splitlines()
    values = {line: after for line, after in itertools.pairwise(lines) if "  in e, device " in line}
    assert len({v for k, v in values.items() if k.startswith("p ")}) == 4
    assert len({v for k, v in values.items() if k.startswith("w ")}) == 1
    assert [line.split()[0] for line in lines if line.startswith("out")] == [
        "out0", "out1.d0", "out1.d1", "out1.d2", "out1.d3"
    ]  # fmt: skip


def test_a_global_array_is_cut_by_its_sharding(sharded: str, capfd: pytest.CaptureFixture[str]) -> None:
    Path(sharded).write_text(
        SHARDED.replace("replica_count=2, num_partitions=2", "num_partitions=4").replace("[2]<=[2]", "[4]<=[4]")
    )
    whole, weights = np.arange(8, dtype=np.float32), np.ones(2, np.float32)
    np.savez("in.npz", in0=whole, in1=weights)
    assert run(["run", sharded, "--inputs", "in.npz", "--outputs", "out.npz"]) == 0
    with np.load("out.npz") as stored:
        assert stored["out0"].tolist() == [12, 16]
        assert [stored[f"out1.d{k}"].tolist() for k in range(4)] == whole.reshape(4, 2).tolist()
    np.savez("in.npz", **{"in0": whole, "in0.d2": weights, "in1": weights})
    assert run(["run", sharded, "--inputs", "in.npz", "--outputs", "out.npz"]) == 0
    with np.load("out.npz") as stored:
        assert stored["out0"].tolist() == [0 + 2 + 1 + 6, 1 + 3 + 1 + 7]
    for key, sizes, told in (
        ("in0", (9,), "in0.d0, in0.d1, .. for each device its own; in0 may be [8], which its sharding splits"),
        ("in0.d1", (8,), "in0.d1 for one device; in0 may be [8], which its sharding splits"),
        ("in1", (8,), "in1.d0, in1.d1, .. for each device its own; nothing says how a global in1 would be cut"),
    ):
        np.savez("in.npz", **{"in0": whole, "in1": weights, key: np.zeros(sizes, np.float32)})
        capfd.readouterr()
        assert run(["run", sharded, "--inputs", "in.npz"]) == 2
        err = capfd.readouterr().err
        assert err == f"in.npz: HLO401 {key} has dimensions [{sizes[0]}], expected f32[2]\n  hint: {told}\n"


def test_a_profile_is_of_all_devices(sharded: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["run", sharded, "--backend", "host", "--profile", "p.json", "--outputs", "out.npz"]) == 0
    assert len([e for e in json.loads(Path("p.json").read_text())["traceEvents"] if e["ph"] == "X"]) == 4
    with np.load("out.npz") as stored:
        assert len(stored.files) == 5


def test_too_many_devices_are_refused(sharded: str, capfd: pytest.CaptureFixture[str]) -> None:
    Path(sharded).write_text(LOOP.replace("HloModule m", "HloModule m, replica_count=1000000, num_partitions=2"))
    assert run(["run", sharded]) == 2
    assert "HLO402 2000000 devices are more than the 1024 that are simulated" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("keys", "why"),
    [
        (["in0.d0", "in0.d1", "in0.d2", "in1"], "missing: in0.d3"),
        (["in0", "in1", "in0.d4"], "no inputs of the module: in0.d4"),
        (["in0", "in1", "in2"], "no inputs of the module: in2"),
        (["in0", "in1", "in0.d01"], "no inputs of the module: in0.d01"),
        (["in0", "in1", "other"], "no inputs of the module: other"),
    ],
)
def test_keys_that_do_not_fit(keys: list[str], why: str, sharded: str, capfd: pytest.CaptureFixture[str]) -> None:
    np.savez("in.npz", **{key: np.zeros(2, np.float32) for key in keys})
    assert run(["run", sharded, "--inputs", "in.npz", "--outputs", "out.npz"]) == 2
    err = capfd.readouterr().err
    assert err.startswith("in.npz: HLO300 the module takes 2 arrays on 4 devices; ") and why in err
    assert not Path("out.npz").exists()


def test_an_array_of_other_sizes_is_refused_without_reading_it(sharded: str, capfd: pytest.CaptureFixture[str]) -> None:
    np.savez("in.npz", in0=np.zeros((1000, 1000), np.float32), in1=np.zeros(2, np.float32))
    assert run(["run", sharded, "--inputs", "in.npz"]) == 2
    assert "in.npz: HLO401 in0 has dimensions [1000,1000], expected f32[2]" in capfd.readouterr().err


def test_trace_shows_every_iteration(loop: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["run", loop, "--trace", "%j,v", "--trace", "z", "--max-steps", "2"]) == 2
    done = capfd.readouterr()
    assert [line for line in done.out.splitlines() if "  in " in line] == [
        "v  float32[4]  in e",
        "z  int32[]  in e",
        "v  float32[4]  in body, iteration 0 of w",
        "j  int32[]  in body, iteration 0 of w",
        "v  float32[4]  in body, iteration 1 of w",
        "j  int32[]  in body, iteration 1 of w",
    ]
    assert "while w: the loop goes on after 2 iterations" in done.err
    assert run(["run", loop, "--trace", "jj"]) == 2
    assert "HLO300 there is no instruction 'jj'\n  hint: did you mean j?" in capfd.readouterr().err
    assert run(["run", loop, "--trace", "j", "--backend", "host"]) == 2
    assert "--trace and --check-nans look at every value" in capfd.readouterr().err


def test_the_first_nan_is_exit_status_1(loop: str, capfd: pytest.CaptureFixture[str]) -> None:
    np.savez("in.npz", in0=np.array([1, 2, 0.5, 4], np.float32))
    assert run(["run", loop, "--inputs", "in.npz", "--check-nans", "--outputs", "out.npz"]) == 1
    err = capfd.readouterr().err
    assert err.startswith("loop.hlo:9:3: HLO720 the first NaN comes from log l: 1 of 4 elements, the first at [2]; ")
    assert "in body, iteration 1 of w; from model.py:13" in err and "v in [-0.693147, 1.38629]" in err
    assert not Path("out.npz").exists()


def test_a_run_without_nans_says_so(sharded: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["run", sharded, "--check-nans"]) == 0
    assert "no NaN came up" in capfd.readouterr().err


@pytest.mark.parametrize("backend", ["numpy", "host"])
def test_a_module_that_is_too_large_is_refused_before_inputs_are_drawn(
    backend: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    huge = "f32[1048576,1048576,64]{2,1,0}"
    file = tmp_path / "m.hlo"
    file.write_text(f"HloModule m\n\nENTRY e {{\n  p = {huge} parameter(0)\n  ROOT r = {huge} negate(p)\n}}\n")
    assert run(["run", str(file), "--backend", backend]) == 2
    assert "HLO402 " in capfd.readouterr().err
    file.write_text(file.read_text().replace("1048576,1048576,64", "8,8,64"))
    assert run(["run", str(file), "--backend", backend, "--memory-limit", "30 KiB"]) == 2
    assert "the limit is 30 KiB (30720 bytes)" in capfd.readouterr().err
    assert run(["run", str(file), "--backend", backend, "--memory-limit", "1GB"]) == 0


@pytest.mark.parametrize("verb", [["check"], ["fuse", "--check"], ["bench", "--rounds=1"]])
def test_nothing_too_large_is_compared_or_timed(
    verb: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    huge = "f32[1048576,1048576,64]{2,1,0}"
    file = tmp_path / "m.hlo"
    file.write_text(f"HloModule m\n\nENTRY e {{\n  p = {huge} parameter(0)\n  ROOT r = {huge} negate(p)\n}}\n")
    command = [*verb, str(file), "--backend", "numpy"]
    assert run(command) == 2
    assert "HLO402 " in capfd.readouterr().err
    file.write_text(file.read_text().replace("1048576,1048576,64", "8,8,64"))
    assert run([*command, "--memory-limit", "30 KiB"]) == 2
    assert "the limit is 30 KiB (30720 bytes)" in capfd.readouterr().err
    assert run([*command, "--memory-limit", "1GB"]) == 0


def test_an_endless_loop_ends(loop: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["run", loop, "--max-steps", "20", "--backend", "numpy"]) == 2
    assert "HLO402 while w: the loop goes on after 20 iterations" in capfd.readouterr().err


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
