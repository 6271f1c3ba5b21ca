"""The device that a module is fused for is the one that its kernels are made for: in the schedule, the manifest, under
the sanitizers and beside another module."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hlo_opt
from hlo_opt.analysis.targets import DEFAULT_TARGET, target, target_of
from hlo_opt.ir import Module, edit
from hlo_opt.runtime.executable import Executable, compile
from hlo_opt.runtime.measure import bench as benchmarks
from hlo_opt.runtime.schedule import build_schedule

SUMS = """HloModule m

add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b)
}

ENTRY e {
  p = f32[4,4194304]{1,0} parameter(0)
  z = f32[] constant(0)
  n = f32[4,4194304]{1,0} negate(p)
  ROOT s = f32[4]{0} reduce(n, z), dimensions={1}, to_apply=add
}
"""
BLOCKS = {"p100": 112, "h100_sxm": 264, "b200": 296}
"""Two blocks for each multiprocessor, in equal shares for the four rows."""


def fused_for(name: str) -> Module:
    return hlo_opt.fuse(hlo_opt.parse(SUMS), target=name)[0]


@pytest.mark.parametrize("name", BLOCKS)
def test_kernels_and_manifest_are_for_the_device_of_the_fusion(name: str, tmp_path: Path) -> None:
    module = fused_for(name)
    (kernel,) = build_schedule(module).kernels
    assert kernel.launch.grid == BLOCKS[name]
    hlo_opt.emit(module, tmp_path / "o")
    manifest = json.loads((tmp_path / "o" / "manifest.json").read_text())
    assert manifest["target"] == name and manifest["kernels"][0]["grid"] == BLOCKS[name]
    assert target(name).title in (tmp_path / "o" / "README.md").read_text()


def test_whoever_asks_for_another_device_gets_it(tmp_path: Path) -> None:
    module = fused_for("b200")
    assert [build_schedule(module, t).kernels[0].launch.grid for t in ("p100", target("p100"), None)] == [112, 112, 296]
    hlo_opt.emit(module, tmp_path / "o", target="p100")
    assert json.loads((tmp_path / "o" / "manifest.json").read_text())["target"] == "p100"
    assert hlo_opt.compile(module, "host", target="p100").report()["kernels"][0]["grid"] == 112


def test_a_module_that_nobody_fused_is_for_the_default_device() -> None:
    module = hlo_opt.parse(SUMS)
    assert module.target is None and target_of(module).name == DEFAULT_TARGET
    copy = edit.clone_module(fused_for("b200"))
    assert target_of(copy).name == "b200" and target_of(module, "p100").name == "p100"


def test_an_unknown_device_is_told_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(hlo_opt.UsageError, match="there is no target 'b2000'"):
        hlo_opt.emit(hlo_opt.parse(SUMS), tmp_path / "o", target="b2000")
    assert list(tmp_path.iterdir()) == []


ELEMENTS = "HloModule m\nENTRY e {\n  p = f32[270336]{0} parameter(0)\n  ROOT r = f32[270336]{0} negate(p)\n}\n"


def test_sanitizers_run_the_kernels_of_the_device() -> None:
    fused = hlo_opt.fuse(hlo_opt.parse(ELEMENTS), target="b200")[0]
    (wide,), (narrow,) = (build_schedule(fused, t).kernels for t in ("h100_sxm", None))
    assert (wide.launch.grid, narrow.launch.grid) == (528, 2112)
    given = np.ones(270336, np.float32)
    assert (hlo_opt.compile(fused, "host", sanitize=True)(given)[0] == -1).all()


def test_a_benchmark_makes_both_modules_for_the_device_of_the_fusion(monkeypatch: pytest.MonkeyPatch) -> None:
    fused, plain = hlo_opt.fuse(hlo_opt.parse(ELEMENTS), target="b200")[0], hlo_opt.parse(ELEMENTS)
    grids: list[int] = []

    def compiled(*arguments: Any, **options: Any) -> Executable:
        made = compile(*arguments, **options)
        grids.extend(kernel["grid"] for kernel in made.report()["kernels"])
        return made

    monkeypatch.setattr(benchmarks, "compile", compiled)
    benchmarks.bench({"unfused": plain, "fused": fused}, "host", [[np.ones(270336, np.float32)]], rounds=1)
    assert grids == [2112, 2112]
