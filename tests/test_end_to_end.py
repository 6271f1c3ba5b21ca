"""Our dumps through the whole program, judged by XLA's own parser and its CPU backend."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hlo_opt
from hlo_opt.ops.collective.module_devices import counts

ROOT = Path(__file__).resolve().parent.parent
DUMPS = sorted((ROOT / "testdata" / "dumps").glob("*.hlo"))
PROGRAMS = [p for p in DUMPS if p.name.count(".") == 1]
"""One dump per program; NAME.frames.hlo and NAME.classic.hlo are the same program in another dress."""

SLOW = frozenset({"cartpole_scan_random_unrolled"})
"""XLA:CPU needs a minute to compile what we make of these; `.ci/run` has them evaluated."""

TOLERANCE = {"float64": 1e-8, "float32": 3e-4, "float16": 6e-3, "bfloat16": 4e-2}


def name_of(path: Path) -> str:
    return path.name.removesuffix(".hlo")


@functools.cache
def fused_text(path: Path) -> str:
    """The fused module of a dump."""
    module = hlo_opt.parse(path.read_text(encoding="utf-8"), filename=path.name)
    hlo_opt.verify(module)
    return str(hlo_opt.fuse(module)[0])


@pytest.mark.parametrize("path", [p for p in DUMPS if p not in PROGRAMS or name_of(p) in SLOW], ids=name_of)
@pytest.mark.sweep
def test_xla_reads_every_fused_module(path: Path) -> None:
    """Those that it does not run; of the others see below."""
    is_read(path)


def is_read(path: Path) -> None:
    hlo = pytest.importorskip("jaxlib._hlo")
    ours = hlo_opt.parse(fused_text(path))
    theirs = hlo.hlo_module_from_text(fused_text(path))
    assert theirs.name == ours.name
    assert len(theirs.computations()) == len(ours.computations)
    again = hlo_opt.parse(theirs.to_string())
    opcodes = [sorted(i.opcode for i in c.instructions) for c in ours.computations]
    assert sorted(opcodes) == sorted(sorted(i.opcode for i in c.instructions) for c in again.computations)


def close(expected: np.ndarray[Any, Any], actual: np.ndarray[Any, Any]) -> bool:
    """Whether two outputs of XLA:CPU agree: exactly for integers, within what other rounding explains for floats."""
    if expected.dtype != actual.dtype or expected.shape != actual.shape:
        return False
    if expected.dtype.name not in TOLERANCE:
        return expected.tobytes() == actual.tobytes()
    tolerance = TOLERANCE[expected.dtype.name]
    a, b = expected.astype(np.float64), actual.astype(np.float64)
    scale = float(np.median(np.abs(a[np.isfinite(a)]))) if np.isfinite(a).any() else 0.0
    return bool(np.allclose(a, b, rtol=tolerance, atol=tolerance * (scale + 1e-2), equal_nan=True))


@pytest.mark.parametrize("path", [p for p in PROGRAMS if name_of(p) not in SLOW], ids=name_of)
@pytest.mark.sweep
def test_xla_computes_the_same_of_the_fused_module(path: Path) -> None:
    is_read(path)
    from scripts.evaluate import case_of, parameters_of
    from scripts.xla_cpu import Program, sample_inputs

    text = path.read_text(encoding="utf-8")
    if "cu_threefry2x32" in text:
        pytest.skip("XLA:CPU has no such custom call; its twin with the arithmetic written out is another dump")
    if counts(hlo_opt.parse(text)) != (1, 1):
        pytest.skip("for several devices, which XLA:CPU is not set up for here")
    made = fused_text(path)
    if "__cublas$lt$matmul" in made:
        pytest.skip("XLA:CPU has no such custom call; ours run it on the host")
    original = Program(text)
    inputs = sample_inputs(parameters_of(case_of(path), original), 0)
    expected = original(inputs)
    actual = Program(made)(inputs)
    assert len(expected) == len(actual)
    assert [n for n, (a, b) in enumerate(zip(expected, actual, strict=True)) if not close(a, b)] == []


def test_output_does_not_depend_on_hash_seeds() -> None:
    path = ROOT / "testdata" / "dumps" / "mlp_train_step.hlo"
    texts = set()
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(Path(hlo_opt.__file__).parent.parent)}
        command = [sys.executable, "-m", "hlo_opt", "explain", str(path), "--format", "json"]
        fuse = [sys.executable, "-m", "hlo_opt", "fuse", str(path)]
        for part in (command, fuse):
            done = subprocess.run(part, env=environment, capture_output=True, text=True, timeout=120, check=True)
            texts.add((part[3], done.stdout))
    assert len(texts) == 2


def test_fusing_does_not_change_its_argument() -> None:
    text = (ROOT / "testdata" / "dumps" / "softmax.hlo").read_text(encoding="utf-8")
    module = hlo_opt.parse(text)
    before = str(module)
    hlo_opt.fuse(module)
    assert str(module) == before
