"""The parts of scripts/gpu_check.sh, over the stand-in for CuPy; and the whole without a GPU."""

import importlib.util
import json
import os
import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
DUMPS = ROOT / "testdata" / "dumps"


def script(name: str) -> types.ModuleType:
    spec = importlib.util.spec_from_file_location(name.replace("/", "_"), ROOT / "scripts" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def checks(fake: types.ModuleType) -> types.ModuleType:
    return script("gpu_checks")


def test_dumps_are_compared_and_faults_counted(
    checks: types.ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "compare.json"
    good = [str(DUMPS / "softmax.hlo"), str(DUMPS / "transpose_add.hlo")]
    assert checks.main(["compare", *good, "--out", str(out)]) == 0
    assert [row["holds"] for row in json.loads(out.read_text())["compare"]] == [True, True]
    bad = tmp_path / "bad.hlo"
    bad.write_text(
        'HloModule m\nENTRY e {\n  a = f32[2]{0} parameter(0)\n  ROOT b = f32[2]{0} custom-call(a), custom_call_target="x"\n}\n'
    )
    assert checks.main(["compare", good[0], str(bad)]) == 1
    assert "1 of 2 dumps hold" in capsys.readouterr().out


def test_drivers_are_emitted_and_run(
    checks: types.ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(checks, "SANITIZED", ("softmax", "layer_norm_bf16", "embed_gradient"))
    assert checks.main(["emit", str(tmp_path)]) == 0
    assert checks.main(["drive", str(tmp_path)]) == 0
    assert "drive: 3 of 3 drivers ran" in capsys.readouterr().out
    assert checks.main(["drive", str(tmp_path / "nothing")]) == 1


def test_every_sanitized_dump_is_there(checks: types.ModuleType) -> None:
    assert [name for name in checks.SANITIZED if not (DUMPS / f"{name}.hlo").exists()] == []


def test_results_are_named_after_the_device(checks: types.ModuleType, tmp_path: Path) -> None:
    part = tmp_path / "part.json"
    part.write_text(json.dumps({"device": "NVIDIA ../H100 80GB", "rows": []}))
    assert checks.main(["merge", str(tmp_path / "out"), str(part), str(tmp_path / "missing.json")]) == 0
    (made,) = (tmp_path / "out").iterdir()
    assert made.name.startswith("nvidia-h100-80gb_20") and json.loads(made.read_text())["rows"] == []


def test_the_device_is_named(checks: types.ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert checks.main(["device"]) == 0
    assert capsys.readouterr().out == "Stand-in GPU\n"


def test_inputs_are_small_numbers(checks: types.ModuleType) -> None:
    specs = [((4,), (0,), "uint16", "bf16"), None, ((3,), (0,), "bool", "pred"), ((), (), "int32", "s32")]
    bf16, pred, number = checks.random_inputs(specs)
    assert bf16.dtype == np.uint16 and np.abs((bf16.astype(np.uint32) << 16).view(np.float32)).max() < 8
    assert pred.dtype == bool and number.shape == () and 0 <= number < 8


def test_a_case_of_the_benchmark(fake: types.ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("jax")
    from hlo_opt.runtime import bench_clock

    monkeypatch.setattr(bench_clock, "COPIED_BYTES", 1 << 16)
    gpu = script("bench/gpu")
    clock = bench_clock.clock_of("cupy")
    cases = gpu.cases(1)
    for name in ("softmax_bf16", "adam"):
        function, shapes, dtype = cases[name]
        small = tuple((64, *s[1:]) for s in shapes)
        row = gpu.measure(name, function, small, dtype, clock, clock.copy_bandwidth(), 1)
        assert not row.fault and row.agrees and row.launches and row.ratio > 0, row
        assert name in str(row)
    broken = gpu.measure("x", lambda x: x.nothing, ((4,),), "float32", clock, 1e9, 1)
    assert "AttributeError" in broken.fault and "AttributeError" in str(broken)


def test_without_a_gpu_it_ends_with_clear_text(tmp_path: Path) -> None:
    (tmp_path / "cupy.py").write_text("raise ImportError('hidden')\n")
    paths = {"PYTHON": sys.executable, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        ["bash", str(ROOT / "scripts" / "gpu_check.sh")],
        capture_output=True,
        text=True,
        env={**os.environ, **paths},
        check=False,
    )
    assert done.returncode == 3, done.stderr
    assert "nothing is checked: HLO520 backend cupy: CuPy cannot be imported (hidden)" in done.stdout
