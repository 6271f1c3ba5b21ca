"""The parts of scripts/gpu_check.sh that are Python: python -m scripts.gpu_checks device|compare|emit|drive|merge ...

device           names the GPU, or says clearly that there is none (exit status 3)
compare          fuses dumps, runs them with CuPy, and compares with the NumPy interpreter within the tolerances of `hlo-opt check`
emit DIR         writes the drivers of small dumps of every kind below DIR
drive DIR        runs each driver below DIR on random inputs: what compute-sanitizer watches
merge OUT FILE.. one JSON file of the results of all parts, named after device and day
"""

from __future__ import annotations

import argparse
import datetime
import importlib.util
import json
import re
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

import hlo_opt
from hlo_opt.diag import HloOptError

DUMPS = Path(__file__).resolve().parent.parent / "testdata" / "dumps"
NO_GPU = 3
SANITIZED = (
    *("softmax", "layer_norm_bf16", "transpose_add", "embed_gradient", "write_rows", "shuffle", "nested", "largest"),
    *("adamw_mixed", "running_sums", "window", "softmax_columns", "dice", "cartpole_random"),
)
"""Dumps whose kernels compute-sanitizer watches: every kind of plan, small arrays."""


def device(_: argparse.Namespace) -> int:
    from hlo_opt.runtime.bench_clock import clock_of

    try:
        print(clock_of("cupy").device)
    except HloOptError as error:
        print(f"nothing is checked: {error}")
        return NO_GPU
    return 0


def compare(arguments: argparse.Namespace) -> int:
    """A line per dump that does not hold, one of totals."""
    from hlo_opt.runtime.compare import check

    files = sorted(DUMPS.glob("*.hlo")) if not arguments.files else arguments.files
    start = time.monotonic()
    rows: list[dict[str, Any]] = []
    for path in files:
        if time.monotonic() - start > arguments.seconds:
            break
        try:
            module = hlo_opt.parse(path.read_text(encoding="utf-8"), filename=path.name)
            fused, _ = hlo_opt.fuse(module)
            result = check(module, fused, backend=arguments.backend)
            row = {
                "dump": path.stem,
                "holds": result.ok,
                "max_ulp": result.max_ulp,
                "why": "" if result.ok else str(result),
            }
        except HloOptError as error:
            row = {"dump": path.stem, "holds": False, "max_ulp": 0.0, "why": str(error).splitlines()[0]}
        rows.append(row)
        if not row["holds"]:
            print(f"  {path.stem}: {row['why']}", flush=True)
    held = sum(bool(row["holds"]) for row in rows)
    left = len(files) - len(rows)
    print(f"compare: {held} of {len(rows)} dumps hold" + (f", {left} not reached in time" if left else ""))
    _write(arguments.out, {"compare": rows, "not_reached": left})
    return 0 if held == len(rows) and rows else 1


def emit(arguments: argparse.Namespace) -> int:
    made = 0
    for name in SANITIZED:
        path = DUMPS / f"{name}.hlo"
        try:
            fused, _ = hlo_opt.fuse(hlo_opt.parse(path.read_text(encoding="utf-8"), filename=path.name))
            hlo_opt.emit(fused, arguments.folder / name)
            made += 1
        except HloOptError as error:
            print(f"  {name}: {str(error).splitlines()[0]}")
    print(f"emit: {made} of {len(SANITIZED)} drivers")
    return 0 if made == len(SANITIZED) else 1


def drive(arguments: argparse.Namespace) -> int:
    """Imports nothing of hlo_opt into the drivers: each is loaded as the module that it is."""
    start = time.monotonic()
    ran = 0
    folders = sorted(p.parent for p in arguments.folder.glob("*/driver.py"))
    for folder in folders:
        if time.monotonic() - start > arguments.seconds:
            break
        driver = load(folder / "driver.py")
        outputs = driver.run(*random_inputs(driver.INPUTS))
        assert all(a is not None for a in outputs)
        ran += 1
    print(f"drive: {ran} of {len(folders)} drivers ran")
    return 0 if ran else 1


def load(path: Path) -> Any:
    """A Python file as a module of its own."""
    spec = importlib.util.spec_from_file_location(f"driver_{path.parent.name}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def random_inputs(specs: Iterable[tuple[Any, ...] | None]) -> list[np.ndarray[Any, np.dtype[Any]]]:
    """Small numbers for a driver's inputs; raw bits of bf16 are those of numbers below 2, indices are small."""
    random = np.random.default_rng(0)
    arrays = []
    for spec in specs:
        if spec is None:
            continue
        dimensions, _, dtype, hlo_type = spec
        kind = np.dtype(dtype).kind
        if hlo_type == "bf16":
            made: Any = random.standard_normal(dimensions).astype(np.float32).view(np.uint32) >> 16
        elif kind in "fc":
            made = random.standard_normal(dimensions)
        else:
            made = random.integers(0, 2 if kind == "b" else 8, dimensions)
        arrays.append(np.asarray(made).astype(dtype).reshape(dimensions))
    return arrays


def merge(arguments: argparse.Namespace) -> int:
    found: dict[str, Any] = {}
    for path in arguments.parts:
        if path.exists():
            found.update(json.loads(path.read_text(encoding="utf-8")))
    day = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d")
    stem = re.sub(r"[^a-z0-9]+", "-", str(found.get("device", "unknown")).lower()).strip("-") or "unknown"
    arguments.out.mkdir(parents=True, exist_ok=True)
    target = arguments.out / f"{stem}_{day}.json"
    target.write_text(json.dumps({"day": day, **found}, indent=1) + "\n", encoding="utf-8")
    print(f"results: {target}")
    return 0


def _write(path: Path | None, found: dict[str, Any]) -> None:
    if path is not None:
        path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def main(given: list[str] | None = None) -> int:
    """The command."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(required=True)
    verbs.add_parser("device").set_defaults(run=device)
    part = verbs.add_parser("compare")
    part.add_argument("files", nargs="*", type=Path)
    part.add_argument("--backend", default="cupy")
    part.add_argument("--seconds", type=float, default=150.0, help="start no dump after that")
    part.add_argument("--out", type=Path)
    part.set_defaults(run=compare)
    for name, run in (("emit", emit), ("drive", drive)):
        part = verbs.add_parser(name)
        part.add_argument("folder", type=Path)
        part.add_argument("--seconds", type=float, default=60.0, help="start no driver after that")
        part.set_defaults(run=run)
    part = verbs.add_parser("merge")
    part.add_argument("out", type=Path)
    part.add_argument("parts", nargs="*", type=Path)
    part.set_defaults(run=merge)
    arguments = parser.parse_args(given)
    return int(arguments.run(arguments))


if __name__ == "__main__":
    sys.exit(main())
