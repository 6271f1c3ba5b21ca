"""Models' own dumps on a GPU, ours beside XLA's: python -m scripts.bench.real_gpu RAW_DIR FUSED_DIR [--only WORD]
[--seconds N] [--out FILE.json]

RAW_DIR holds dumps before optimisation, FUSED_DIR what `hlo-opt fuse --target ...` made of them, under the same names.
XLA compiles the raw dump for the GPU, from its text; ours compiles the fused one. Both run on the same arrays, which
stay on the GPU: small random numbers.

compiled   seconds of XLA's compile, and of ours without the fusing
device     milliseconds of one run of ours by events, from a filled queue where it fits
ours, XLA  milliseconds of a call, of a batch of calls, by the wall clock
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import traceback
from pathlib import Path
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cuda,cpu")
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import numpy as np

import hlo_opt
from hlo_opt.runtime.measure.bench import clock_of
from hlo_opt.runtime.measure.profile import profile

CALLS = 5
ROUNDS = 5
LARGEST = 0.05
"""Standard deviation of the floats."""
SHOWN = 25
"""Kernels and calls of the profile that are kept, the longest first."""


def drawn(shape: Any, dtype: Any) -> Any:
    """An array: small normal numbers, none below 0 in vectors, which may be variances; or integers below 4."""
    count = min(int(np.prod(shape, dtype=np.int64)), 4_194_301)
    generator = np.random.default_rng(0)
    kind = np.dtype(dtype).kind
    if kind == "b" or kind in "iu" or "int" in np.dtype(dtype).name:
        values: Any = generator.integers(0, 2 if kind == "b" else 4, count)
    else:
        values = generator.standard_normal(count, np.float32) * LARGEST
        values = np.abs(values) + LARGEST if len(shape) == 1 else values
    return np.resize(values.astype(dtype), shape)


def xla_program(text: str) -> tuple[Any, Any]:
    """XLA's executable of an HLO text on the GPU, and the device."""
    import jax
    import jaxlib._hlo as hlo
    import jaxlib._jax as xla
    from jaxlib import xla_client

    from scripts.xla_cpu import flat, fusions_to_calls, reshapes

    module = hlo.hlo_module_from_text(flat(fusions_to_calls(reshapes(text))))
    computation = hlo.XlaComputation(module.as_serialized_hlo_module_proto())
    device = jax.local_devices(backend="cuda")[0]
    stablehlo = xla.mlir.xla_computation_to_mlir_module(computation)
    options = xla_client.CompileOptions()
    return device.client.compile_and_load(stablehlo, xla_client.DeviceList((device,)), options), device


def batch(work: Any, wait: Any) -> float:
    """Milliseconds per call."""
    start = time.perf_counter()
    for _ in range(CALLS):
        last = work()
    wait(last)
    return (time.perf_counter() - start) / CALLS * 1e3


def measured(name: str, raw: str, fused_text: str, with_profile: bool) -> dict[str, Any]:
    """The row of a model; a part that fails is told in it."""
    import cupy
    import jax

    row: dict[str, Any] = {"case": name}
    fused = hlo_opt.parse(fused_text, filename=f"{name}.hlo")
    leaves = [leaf for p in fused.entry.parameters for leaf in p.shape.leaves() if leaf.is_array]
    arrays = [drawn(leaf.dimensions, leaf.type.dtype) for leaf in leaves]
    theirs: list[Any] = []
    run_xla = None
    try:
        start = time.perf_counter()
        executable, device = xla_program(raw)
        row["xla_compile_s"] = time.perf_counter() - start
        with jax.enable_x64(True):
            buffers = [jax.device_put(a, device) for a in arrays]
        theirs = [np.asarray(a) for a in executable.execute(buffers)]

        def run_xla() -> Any:
            return executable.execute(buffers)

        row["xla_ms"] = float(np.median([batch(run_xla, jax.block_until_ready) for _ in range(ROUNDS)]))
    except Exception as error:  # ours is still timed
        row["xla_fault"] = f"{type(error).__name__}: {error}"[:1500]
        row["xla_trace"] = traceback.format_exc()[-1500:]
    try:
        start = time.perf_counter()
        ours = hlo_opt.compile(fused, "cupy")
        row["compile_s"] = time.perf_counter() - start
        clock = clock_of("cupy")
        outputs = ours(*arrays)
        row["launches"] = ours.report()["launches"]
        row["library"] = sum(ours.report()["library"].values())
        row["fallbacks"] = ours.report()["fallbacks"]
        if theirs:
            row["apart"] = [apart(a, b) for a, b in zip(outputs, theirs, strict=True)]
        run = ours.resident(arrays)
        run()
        wait = cupy.cuda.Device().synchronize
        row["ours_ms"] = float(np.median([batch(run, lambda _: wait()) for _ in range(ROUNDS)]))
        launches = row["launches"] + row["library"]
        row["device_ms"] = float(np.median([clock.timed(run, launches) for _ in range(ROUNDS)])) / 1e3
        row["graphs"] = ours.report().get("graphs")
        if with_profile:
            _, found = profile(fused, "cupy", [arrays])
            row["profile"] = [
                [r.name, r.kind, r.launches, round(r.microseconds, 1), round(r.est_us * r.launches, 1), r.instruction]
                for r in found.rows()[:SHOWN]
            ]
            row["profile_us"] = sum(r.microseconds for r in found.rows())
            for kind in ("kernel", "library"):
                row[f"{kind}_us"] = sum(r.microseconds for r in found.rows() if r.kind == kind)
            row["kernel_est_us"] = sum(r.est_us * r.launches for r in found.rows() if r.kind == "kernel")
    except Exception as error:
        row["fault"] = f"{type(error).__name__}: {error}"[:1500]
        row["trace"] = traceback.format_exc()[-3000:]
    return row


def apart(one: Any, other: Any) -> float:
    """The largest difference, of the largest number; infinity where one of them has a number and the other has none."""
    a, b = (np.asarray(x).astype(np.complex128 if np.iscomplexobj(x) else np.float64) for x in (one, other))
    if (np.isfinite(a) != np.isfinite(b)).any():
        return float("inf")
    both = np.isfinite(a)
    scale = float(np.abs(b[both]).max(initial=0.0)) or 1.0
    return float(np.abs(a[both] - b[both]).max(initial=0.0)) / scale


def line(row: dict[str, Any]) -> str:
    """The row in words."""
    told = [f"{row['case'][:34]:34s}"]
    for key, width in (
        ("launches", 5),
        ("library", 5),
        ("xla_compile_s", 7),
        ("compile_s", 7),
        ("device_ms", 9),
        ("ours_ms", 9),
        ("xla_ms", 9),
    ):
        value = row.get(key)
        told.append(f"{'-' if value is None else f'{value:.2f}' if isinstance(value, float) else value:>{width}}")
    if row.get("ours_ms") and row.get("xla_ms"):
        told.append(f"{row['ours_ms'] / row['xla_ms']:6.2f}")
    if row.get("apart"):
        told.append(f"apart {max(row['apart']):.1e}")
    for key in ("fault", "xla_fault"):
        if key in row:
            told.append(f"{key}: {row[key].splitlines()[0][:200]}")
    return " ".join(told)


def main() -> int:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("raw", type=Path, metavar="RAW_DIR")
    parser.add_argument("fused", type=Path, metavar="FUSED_DIR")
    parser.add_argument("--only", action="append", metavar="WORD", help="in a file's name")
    parser.add_argument("--seconds", type=float, default=120.0, help="start no model after that")
    parser.add_argument("--no-profile", action="store_true")
    parser.add_argument("--out", type=Path, metavar="FILE.json")
    given = parser.parse_args()
    start = time.monotonic()
    rows: list[dict[str, Any]] = []
    print(f"{'model':34s} {'n':>5s} {'calls':>5s} {'XLA s':>7s} {'ours s':>7s} {'device':>9s} {'ours':>9s} {'XLA':>9s}")
    for path in sorted(given.raw.glob("*.hlo"), key=lambda p: p.stat().st_size):
        other = given.fused / path.name
        if not other.exists() or (given.only and not any(word in path.name for word in given.only)):
            continue
        if time.monotonic() - start > given.seconds:
            print(f"{path.stem}: not reached in time")
            continue
        raw, fused = (p.read_text(encoding="utf-8") for p in (path, other))
        rows.append(measured(path.stem, raw, fused, not given.no_profile))
        print(line(rows[-1]), flush=True)
        if given.out is not None:
            given.out.write_text(json.dumps({"real": rows}, indent=1) + "\n", encoding="utf-8")
    return 0 if rows and all("fault" not in row for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
