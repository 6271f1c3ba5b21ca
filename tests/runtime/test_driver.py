import ast
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hlo_opt
from hlo_opt.diag import BackendError
from hlo_opt.evaluate import module_inputs
from hlo_opt.library.arrays import raw_dtype
from hlo_opt.runtime.driver.writer import driver_of
from hlo_opt.runtime.schedule import build_schedule

DUMPS = Path(__file__).parents[2] / "testdata" / "dumps"
RUN = Path(__file__).with_name("run_driver.py")


def run_driver(folder: Path, inputs: list[np.ndarray]) -> tuple[list[np.ndarray], int]:  # type: ignore[type-arg]
    """Outputs and number of launches of an emitted driver, in a process of its own."""
    np.savez(folder.parent / "in.npz", **{f"in{n}": a.view(raw_dtype(a.dtype)) for n, a in enumerate(inputs)})
    command = [sys.executable, str(RUN), str(folder), str(folder.parent / "in.npz"), str(folder.parent / "out.npz")]
    paths = {"PYTHONPATH": str(Path(hlo_opt.__file__).parents[1]), "CUPY_CACHE_DIR": str(folder.parent / "cache")}
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **paths}, check=False)
    assert done.returncode == 0, done.stderr
    with np.load(folder.parent / "out.npz") as archive:
        return [archive[f"out{n}"] for n in range(len(archive.files))], int(done.stdout)


@pytest.mark.parametrize(
    "name",
    [
        "choose",
        "embed_gradient",
        "layer_norm_bf16",
        "mlp_forward",
        "nested",
        "rotate_phase",
        "shuffle",
        "adamw_mixed",
    ],
)
@pytest.mark.sweep
def test_a_driver_gives_what_the_host_backend_gives(name: str, tmp_path: Path) -> None:
    module, _ = hlo_opt.fuse(hlo_opt.parse((DUMPS / f"{name}.hlo").read_text()))
    inputs = module_inputs(module, 5)
    hlo_opt.emit(module, tmp_path / "emitted")
    outputs, launches = run_driver(tmp_path / "emitted", inputs)
    executable = hlo_opt.compile(module, "host", form="plain")
    expected = executable(*inputs)
    counted = 6 if name == "nested" else 0  # iterations whose condition need not be looked at
    assert launches == executable.report()["launches"] - counted
    assert len(outputs) == len(expected)
    for got, want in zip(outputs, expected, strict=True):
        assert got.dtype == raw_dtype(want.dtype) and got.shape == want.shape
        if executable.report()["library"]:
            left, right = got.astype(np.complex128), want.astype(np.complex128)
            atol = 1e-5 * max(1.0, float(np.abs(right).max(initial=0.0)))  # sums of large terms in another order
            assert np.allclose(left, right, rtol=1e-4, atol=atol)
        else:
            assert got.tobytes() == want.tobytes()


def test_a_driver_launches_blocks_together_that_wait_for_each_other(tmp_path: Path) -> None:
    module = hlo_opt.parse((DUMPS.parent / "kernels" / "grid_loop_1.hlo").read_text())
    inputs = module_inputs(module, 5)
    hlo_opt.emit(module, tmp_path / "emitted")
    (kernel,) = json.loads((tmp_path / "emitted" / "manifest.json").read_text())["kernels"]
    assert kernel["cooperative"] and kernel["kept_bytes"] == 8
    outputs, launches = run_driver(tmp_path / "emitted", inputs)
    expected = hlo_opt.compile(module, "host", form="plain")(*inputs)
    assert launches == 1 and [got.tobytes() for got in outputs] == [want.tobytes() for want in expected]


CONSTANTS = """HloModule m
ENTRY e {{
  a = f32[2,40]{{0,1}} parameter(0)
  big = f32[2,40]{{0,1}} constant({{ {{ {first} }}, {{ {second} }} }})
  same = f32[2,40]{{1,0}} constant({{ {{ {ones} }}, {{ {ones} }} }})
  b = f32[2,40]{{1,0}} add(a, big)
  none = f32[0]{{0}} constant({{}})
  ROOT r = (f32[2,40]{{1,0}}, f32[0]{{0}}, f32[2,40]{{1,0}}) tuple(b, none, same)
}}
"""


def test_a_driver_keeps_denormal_numbers(tmp_path: Path) -> None:
    module = hlo_opt.parse(
        """HloModule m
ENTRY e {
  a = f32[4]{0} parameter(0)
  half = f32[] constant(0.5)
  halves = f32[4]{0} broadcast(half), dimensions={}
  ROOT r = f32[4]{0} multiply(a, halves)
}
"""
    )
    hlo_opt.emit(module, tmp_path / "o")
    a = np.array([1e-38, -1.4e-45, 2e-38, 3e-40], np.float32)
    (got,), _ = run_driver(tmp_path / "o", [a])
    assert np.array_equal(got, a * np.float32(0.5)) and got[3] != 0


def test_a_driver_compiles_once_for_all_its_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUPY_CACHE_DIR", str(tmp_path / "cache"))
    module = hlo_opt.parse("HloModule m\nENTRY e {\n  a = f32[4]{0} parameter(0)\n  ROOT r = f32[4]{0} negate(a)\n}\n")
    hlo_opt.emit(module, tmp_path / "o")
    a = np.arange(4, dtype=np.float32)
    for _ in range(2):
        (got,), _ = run_driver(tmp_path / "o", [a])
        assert np.array_equal(got, -a)
    (kept,) = (tmp_path / "cache").iterdir()
    (kernel,) = (tmp_path / "o").glob("**/*.cu")
    assert kept.read_bytes() == kernel.read_bytes()


def test_large_constants_are_in_a_file_and_lie_as_their_layout_says(tmp_path: Path) -> None:
    first, second = (", ".join(str(n + s) for n in range(40)) for s in (0, 100))
    ones = ", ".join(["1.5"] * 40)
    module = hlo_opt.parse(CONSTANTS.format(first=first, second=second, ones=ones))
    hlo_opt.emit(module, tmp_path / "o")
    with np.load(tmp_path / "o" / "constants.npz") as archive:
        assert len(archive.files) == 1
    a = np.arange(80, dtype=np.float32).reshape(2, 40)
    (b, none, same), launches = run_driver(tmp_path / "o", [a])
    assert np.array_equal(b, a + np.stack([np.arange(40), np.arange(40) + 100]))
    assert none.shape == (0,) and np.array_equal(same, np.full((2, 40), 1.5)) and launches == 1


def test_operations_under_way_are_known_by_constants(tmp_path: Path) -> None:
    module = hlo_opt.parse(
        """HloModule m
ENTRY e {
  a = f32[4]{0} parameter(0)
  start = (f32[4]{0}, f32[4]{0}, u32[]) copy-start(a)
  number = u32[] get-tuple-element(start), index=2
  done = f32[4]{0} copy-done(start)
  ROOT r = (f32[4]{0}, u32[]) tuple(done, number)
}
"""
    )
    hlo_opt.emit(module, tmp_path / "o")
    a = np.arange(4, dtype=np.float32)
    (copied, number), _ = run_driver(tmp_path / "o", [a])
    assert np.array_equal(copied, a) and number == 0


HOSTILE = """HloModule m

ENTRY e {
  class = f32[4]{0} parameter(0)
  cupy = f32[4]{0} add(class, class)
  KERNELS = f32[4]{0} multiply(cupy, class)
  import-os = f32[4]{0} negate(KERNELS)
  ROOT run = f32[4]{0} subtract(import-os, cupy)
}
"""


def test_names_of_the_text_never_become_code(tmp_path: Path) -> None:
    module = hlo_opt.parse(HOSTILE)
    module.name = '"""\nimport subprocess\nsubprocess.run()\n"""'
    module.entry.name = "e\n    import subprocess; subprocess.run(1)"
    for instruction in module.entry.instructions:
        instruction.name += "\n    import subprocess; subprocess.run(1) #"
    hlo_opt.emit(module, tmp_path / "o")
    tree = ast.parse((tmp_path / "o" / "driver.py").read_text())
    imported = {a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
    assert imported == {"cupy", "hashlib", "numpy", "os", "pathlib", "sys"}
    a = np.arange(4, dtype=np.float32)
    outputs, _ = run_driver(tmp_path / "o", [a])
    assert np.array_equal(outputs[0], -(a + a) * a - (a + a))


def test_a_driver_refuses_wrong_arrays(tmp_path: Path) -> None:
    module = hlo_opt.parse(HOSTILE)
    hlo_opt.emit(module, tmp_path / "o")
    with pytest.raises(AssertionError, match=r"expected f32 \(4,\) stored as float32, got float64 \(4,\)"):
        run_driver(tmp_path / "o", [np.zeros(4)])
    with pytest.raises(AssertionError, match="expected 1 arrays, got 2"):
        run_driver(tmp_path / "o", [np.zeros(4, np.float32)] * 2)


def test_what_cupy_lacks_is_named(tmp_path: Path) -> None:
    module = hlo_opt.parse(
        """HloModule m
ENTRY e {
  a = f32[4]{0} parameter(0)
  ROOT b = f32[4]{0} custom-call(a), custom_call_target="unheard"
}
"""
    )
    schedule = build_schedule(module)
    with pytest.raises(BackendError, match=r"HLO530.*unheard \(1, first b\)"):
        driver_of(schedule, {})
    with pytest.raises(BackendError):
        hlo_opt.emit(module, tmp_path / "o")
    assert list(tmp_path.iterdir()) == []


ELIDED = """HloModule m

ENTRY e {
  p = f32[2,3]{1,0} parameter(0)
  w = f32[2,3]{0,1} constant({...})
  k = (bf16[3], s32[2]) constant(({...}, {1, 2}))
  h = bf16[3] get-tuple-element(k), index=0
  m = f32[2,3]{1,0} multiply(p, w)
  ROOT t = (f32[2,3]{1,0}, bf16[3]) tuple(m, h)
}
"""


def test_constants_that_the_text_leaves_out_are_arguments(tmp_path: Path, fake: Any) -> None:
    hlo_opt.emit(hlo_opt.fuse(hlo_opt.parse(ELIDED))[0], tmp_path / "out")
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["elided"] == [
        {"name": "w", "type": "f32", "dimensions": [2, 3]},
        {"name": "k.0", "type": "bf16", "dimensions": [3]},
    ]
    space: dict[str, Any] = {"__name__": "driver", "__file__": str(tmp_path / "out" / "driver.py")}
    exec((tmp_path / "out" / "driver.py").read_text(), space)
    p = np.arange(6, dtype=np.float32).reshape(2, 3)
    with pytest.raises(TypeError, match="constant w"):
        space["run"](p)
    for factor in (2, 3):
        given = {"w": p + factor, "k.0": np.full(3, factor, np.uint16)}
        product, bits = space["run"](p, elided=given)
        np.testing.assert_array_equal(product, p * (p + factor))
        np.testing.assert_array_equal(bits, given["k.0"])


def test_a_driver_takes_and_gives_arrays_of_the_gpu(tmp_path: Path) -> None:
    """Without a copy; what its module may overwrite stays as it is unless it is donated."""
    hlo_opt.emit(
        hlo_opt.parse(
            "HloModule m, input_output_alias={ {0}: (0, {}, may-alias) }\n\nENTRY e {\n  p = f32[100] parameter(0)\n"
            "  u = f32[3] parameter(1)\n  k = s32[] parameter(2)\n  s = f32[100] dynamic-update-slice(p, u, k)\n"
            "  ROOT r = (f32[100], s32[]) tuple(s, k)\n}\n"
        ),
        tmp_path / "emitted",
    )
    text = f"""
import sys
sys.path[:0] = [{str(Path(__file__).parent)!r}, {str(tmp_path / "emitted")!r}]
import fake_cupy, numpy
fake_cupy.import_as_cupy()
import driver
p, u, k = (fake_cupy.asarray(a) for a in (numpy.arange(100, dtype="float32"), numpy.ones(3, "float32"), numpy.int32(7)))
want = numpy.arange(100, dtype="float32")
want[7:10] = 1
for donate in (False, True):
    s, same = driver.run_on_device(p, u, k, donate=donate)
    assert isinstance(s, fake_cupy.ndarray) and numpy.array_equal(s, want) and same == 7
    assert numpy.may_share_memory(s, p) == donate and not numpy.may_share_memory(same, k)
    assert numpy.array_equal(p, want if donate else numpy.arange(100))
assert [type(a) for a in driver.run(p, u, k)] == [numpy.ndarray] * 2
"""
    paths = {"PYTHONPATH": str(Path(hlo_opt.__file__).parents[1]), "CUPY_CACHE_DIR": str(tmp_path / "cache")}
    subprocess.run([sys.executable, "-c", text], check=True, env={**os.environ, **paths})


def test_a_counted_loop_of_a_driver_looks_at_its_condition_once(tmp_path: Path) -> None:
    hlo_opt.emit(hlo_opt.parse((DUMPS / "nested.hlo").read_text()), tmp_path / "emitted")
    text = (tmp_path / "emitted" / "driver.py").read_text()
    assert "for _ in range(6):  # as its condition will find" in text
