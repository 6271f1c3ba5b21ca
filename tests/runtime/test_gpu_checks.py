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

import hlo_opt.codegen.kernel
from tests.loops import COUPLED

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


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which other processes find the stand-in as CuPy."""
    folder = tmp_path / "standin"
    folder.mkdir()
    here = str(Path(__file__).parent)
    (folder / "cupy.py").write_text(
        f"import sys\nsys.path.insert(0, {here!r})\nimport fake_cupy\nsys.modules['cupy'] = "
        f"fake_cupy.import_as_cupy()\n"
    )
    paths = [str(folder), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    return folder


UNHEARD = (
    "HloModule m\nENTRY e {\n  a = f32[2]{0} parameter(0)\n  ROOT b = f32[2]{0} custom-call(a), "
    'custom_call_target="x"\n}\n'
)


def test_dumps_are_compared_in_processes_and_faults_counted(
    checks: types.ModuleType, stand_in: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "compare.json"
    bad = tmp_path / "bad.hlo"
    bad.write_text(UNHEARD)
    assert checks.main(["compare", str(DUMPS / "transpose_add.hlo"), str(bad), "--out", str(out)]) == 1
    good, refused = json.loads(out.read_text())["compare"]
    assert good["case"] == "transpose_add" and good["holds"] and good["graphs"]["refused"] == []
    assert refused["case"] == "bad" and not refused["holds"] and "HLO404 b: unknown custom call" in refused["why"]
    assert "compare: 1 of 2 hold" in capsys.readouterr().out


def test_a_dump_runs_with_graphs_and_without(
    checks: types.ModuleType, fake: types.ModuleType, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "sorts.hlo").write_text(COUPLED["sort"])
    assert checks.main(["one", str(tmp_path / "sorts.hlo")]) == 0
    row = json.loads(capsys.readouterr().out)
    assert row["same_bits"] and row["graphs"]["stretches"] == 1 and fake.graphs


def test_a_run_with_graphs_that_differs_does_not_hold(
    checks: types.ModuleType,
    fake: types.ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from hlo_opt.runtime.cupy import graphs as cupy_graphs

    monkeypatch.setattr(cupy_graphs, "LEAST_LAUNCHES", 2)
    monkeypatch.setattr(fake.Graph, "launch", lambda self, stream=None: None)
    module = hlo_opt.parse((DUMPS / "adamw_mixed.hlo").read_text())
    why, row = checks.repeated(module, hlo_opt.fuse(module)[0])
    assert "with CUDA graphs: out" in why and not row["same_bits"]
    assert checks.main(["one", str(DUMPS / "adamw_mixed.hlo")]) == 1
    assert json.loads(capsys.readouterr().out)["why"]


def test_jobs_that_hang_or_crash_cost_their_own_row_only(tmp_path: Path) -> None:
    from scripts.gpu_jobs import Job, Rows, run_jobs

    def job(case: str, text: str, seconds: float = 20) -> Job:
        return Job({"case": case}, (sys.executable, "-c", text), seconds)

    rows = Rows("some", tmp_path / "some.json", [])
    jobs = [
        job("well", 'print(\'noise\'); print(\'{"holds": true, "why": "", "n": 1}\')'),
        job("hangs", "import time; time.sleep(60)", 1),
        job("crashes", "import os; os.abort()"),
        job("says nothing", "pass"),
        job("race", "print('========= TOOL'); print('========= Race at x'); raise SystemExit(99)"),
    ]
    left = run_jobs(jobs, 2, 60, rows.add)
    found = {row["case"]: row for row in json.loads((tmp_path / "some.json").read_text())["some"]}
    assert left == 0 and found["well"]["holds"] and found["well"]["n"] == 1
    assert [case for case, row in found.items() if row["holds"]] == ["well"]
    assert "stopped after 1 s" in found["hangs"]["why"] and "-6" in found["crashes"]["why"]
    assert found["race"]["why"] == "exit status 99: Race at x"
    assert run_jobs([job("late", "import time; time.sleep(60)")], 1, 2, rows.add) == 1 and len(rows.rows) == 5


def test_drivers_are_emitted_run_and_watched(
    checks: types.ModuleType, stand_in: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "SANITIZED", ("gpu/transposes", "layer_norm_bf16"))
    folder, out = tmp_path / "emitted", tmp_path / "out.json"
    assert checks.main(["drivers", str(folder), "--out", str(out), "--jobs", "2"]) == 0
    assert sorted(p.name for p in folder.iterdir()) == ["00_transposes", "01_layer_norm_bf16"]
    tool = tmp_path / "sanitizer"
    tool.write_text(
        '#!/bin/sh\nseen=$2\nwhile [ "${1#--}" != "$1" ]; do shift 2; done\necho "========= $seen"\n'
        'if [ "$seen" = racecheck ]; then echo "========= Race"; exit 99; fi\nexec "$@"\n'
    )
    tool.chmod(0o700)
    assert checks.main(["sanitize", str(folder), "--sanitizer", str(tool), "--out", str(out), "--jobs", "1"]) == 1
    rows = json.loads(out.read_text())["sanitize"]
    assert [row["case"] for row in rows] == [
        f"{t} {n}" for t in checks.TOOLS for n in ("00_transposes", "01_layer_norm_bf16")
    ]
    assert [row["holds"] for row in rows] == [False, False, True, True] and rows[0]["why"] == "exit status 99: Race"


def test_a_driver_that_computes_something_else_does_not_hold(
    checks: types.ModuleType, fake: types.ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert checks.main(["driver", "transpose_add", str(tmp_path / "d")]) == 0
    expected = checks._arrays(tmp_path / "d" / "expected.npz")
    np.savez(tmp_path / "d" / "expected.npz", a0=expected[0] + 1, a1=expected[1])
    assert checks.main(["drive", str(tmp_path / "d")]) == 1
    assert "out0 of the driver differ" in capsys.readouterr().out


def test_random_modules_run_on_the_gpu(
    checks: types.ModuleType,
    fake: types.ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(checks, "DRAWN", 2)
    assert checks.main(["draw", "3"]) == 0
    row = json.loads(capsys.readouterr().out)
    assert row["holds"] and row.get("agreed", 0) + row.get("refused by backend cupy", 0) == 2
    monkeypatch.setattr(fake._Function, "__call__", lambda *_: None)
    monkeypatch.setattr(checks, "DRAWN", 4)
    assert checks.main(["draw", "3"]) == 1
    row = json.loads(capsys.readouterr().out)
    assert row["why"] and row["module"].startswith("HloModule")


def test_programs_of_small_kernels_are_timed(
    checks: types.ModuleType, fake: types.ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "ROUNDS", 3)
    monkeypatch.setattr(checks, "CALLS", 1)
    out = tmp_path / "graphs.json"
    (tmp_path / "sorts.hlo").write_text(COUPLED["sort"])
    monkeypatch.setattr(checks, "path_of", lambda name: tmp_path / f"{name}.hlo")
    assert checks.main(["graphs", "sorts", "--out", str(out)]) == 0
    (row,) = json.loads(out.read_text())["graphs"]
    assert row["with_us"] > 0 and row["without_us"] > 0 and row["graphs"]["replayed"]


def test_kernels_whose_blocks_meet_come_first_and_every_kind_is_there(checks: types.ModuleType) -> None:
    from hlo_opt.codegen.threads import keeps_memory
    from hlo_opt.runtime.schedule import build_schedule

    def kernels(name: str) -> list[hlo_opt.codegen.kernel.Kernel]:
        return list(build_schedule(hlo_opt.fuse(hlo_opt.parse(checks.path_of(name).read_text()))[0]).kernels)

    assert all(any(keeps_memory(k) for k in kernels(name)) for name in checks.SANITIZED[:2])
    kinds = {k.kind for name in (*checks.SANITIZED[:3], "softmax", "nested", "shuffle") for k in kernels(name)}
    assert {"row-reduction", "column-reduction", "tiled-transpose", "loop", "dynamic-update-slice"} <= kinds


def test_every_sanitized_dump_is_there(checks: types.ModuleType) -> None:
    assert [name for name in (*checks.SANITIZED, *checks.GRAPHED) if not checks.path_of(name).exists()] == []


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


@pytest.fixture
def gpu(fake: types.ModuleType, monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    from hlo_opt.runtime.measure import bench as bench_clock

    monkeypatch.setattr(bench_clock, "COPIED_BYTES", 1 << 16)
    return script("bench/gpu")


def small(shapes: tuple[tuple[int, ...], ...]) -> tuple[tuple[int, ...], ...]:
    return tuple((64, *s[1:]) for s in shapes)


def test_a_case_of_the_benchmark(gpu: types.ModuleType) -> None:
    pytest.importorskip("jax")
    clock = gpu.clock_of("cupy")
    cases = gpu.cases(1)
    for name in ("softmax_bf16", "adam"):
        function, shapes, dtype = cases[name]
        row = gpu.measure(name, function, small(shapes), dtype, clock, clock.copy_bandwidth(), 1)
        assert not row.fault and row.agrees and row.launches and row.ratio > 0 and row.program.startswith("jax"), row
        assert name in str(row)
    broken = gpu.measure("x", lambda x: x.nothing, ((4,),), "float32", clock, 1e9, 1)
    assert "AttributeError" in broken.fault and "AttributeError" in str(broken) and not broken.is_broken


def test_a_case_without_jax_is_measured_against_the_copy(
    gpu: types.ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "jax", None)
    saved = gpu.hlo_opt.parse((gpu.PROGRAMS / "row_sum.hlo").read_text().replace("65536", "64"))
    monkeypatch.setattr(gpu, "program_of", lambda *_: (saved, "saved"))
    row = gpu.measure("row_sum", None, ((64, 1024),), "float32", gpu.clock_of("cupy"), 1e9, 1, True)
    assert not row.fault and row.jax is None and row.ratio is None and row.share_of_copy > 0
    assert not gpu.is_bad({**gpu.asdict(row), "ratio": None, "share_of_copy": 0.95})


def test_saved_programs_are_those_of_the_cases(gpu: types.ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jax", None)
    for name, (function, shapes, dtype) in gpu.cases(gpu.MEGABYTES).items():
        module, source = gpu.program_of(name, function, shapes, dtype, True)
        taken = [p.shape for p in module.entry.parameters]
        assert source == "saved" and [s.dimensions for s in taken] == list(shapes)
        assert {s.type.name for s in taken} == {"bf16" if dtype == "bfloat16" else "f32"}


def test_rows_are_written_as_they_come_and_a_broken_context_starts_again(
    gpu: types.ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    out = tmp_path / "bench.json"
    fault = "HLO526 backend cupy: launching: CUDARuntimeError: cudaErrorIllegalAddress: an illegal memory access"
    made: list[str] = []

    def measure(name: str, *_: object) -> object:
        made.append(name)
        bad = name == "softmax"
        return gpu.Row(
            name,
            1,
            1.0,
            share_of_copy=1.0,
            agrees=True,
            fault=fault if bad else "",
            is_broken=gpu.is_broken(fault) and bad,
        )

    class AgainError(Exception):
        pass

    def again(program: str, arguments: list[str]) -> None:
        raise AgainError(arguments)

    monkeypatch.setattr(gpu, "measure", measure)
    monkeypatch.setattr(gpu.os, "execv", again)
    monkeypatch.setattr(gpu, "versions", dict)
    monkeypatch.setattr(sys, "argv", ["gpu", "--out", str(out)])
    with pytest.raises(AgainError, match="'--go-on', '--seconds'"):
        gpu.main()
    assert [row["case"] for row in json.loads(out.read_text())["rows"]] == made and made[-1] == "softmax"
    monkeypatch.setattr(sys, "argv", ["gpu", "--out", str(out), "--go-on"])
    assert gpu.main() == 1
    rows = json.loads(out.read_text())["rows"]
    assert [row["case"] for row in rows] == made == list(gpu.cases(1)) and sum(bool(row["fault"]) for row in rows) == 1


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
