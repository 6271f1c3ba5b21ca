"""The parts of scripts/gpu_check.sh that are Python: python -m scripts.gpu_checks
device|compare|drivers|sanitize|random|graphs|merge ...

device           names the GPU, or says clearly that there is none (exit status 3)
compare          fuses dumps, runs them with CuPy, with CUDA graphs and without, and compares with the NumPy interpreter
                 within the tolerances of `hlo-opt check`
drivers DIR      writes the drivers of small dumps of every kind below DIR, runs each, and compares its outputs with the
                 interpreter's
sanitize DIR     runs each driver below DIR under compute-sanitizer's memcheck and racecheck, those first whose blocks
                 meet in global memory
random           random modules of all families of operations: their kernels against the interpreter
graphs           microseconds per call of programs of many small kernels, with CUDA graphs and without
merge OUT FILE.. one JSON file of the results of all parts, named after device and day

Each dump and driver has a process of its own; files of results are complete after every row. `one`, `driver`, `drive`
and `draw` are these processes.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import importlib.util
import json
import os
import re
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

import hlo_opt
from hlo_opt.diag import HloOptError
from scripts.gpu_jobs import Job, Rows, run_jobs

ROOT = Path(__file__).resolve().parent.parent
DUMPS = ROOT / "testdata" / "dumps"
LARGER = ROOT / "testdata" / "gpu"
NO_GPU = 3
AT_ONCE = max(1, min(14, (os.cpu_count() or 1) - 2))
"""Processes at once; each holds a context on the GPU and compiles with several threads."""
ONE_SECONDS = 90.0
SANITIZED = (
    *("gpu/sums", "gpu/columns", "gpu/transposes"),
    *("softmax", "layer_norm_bf16", "transpose_add", "embed_gradient", "write_rows", "shuffle", "nested", "largest"),
    *("adamw_mixed", "running_sums", "window", "softmax_columns", "dice", "cartpole_random"),
)
"""Dumps whose kernels compute-sanitizer watches: every kind of plan, small arrays. Those whose blocks meet come
first."""
TOOLS = ("racecheck", "memcheck")
GRAPHED = ("mlp_train_step", "adamw_mixed", "transformer_train_step", "autoencoder_step")
"""Programs of many small kernels."""
DRAWS, DRAWN = 64, 8
"""Processes with random modules, and modules of each."""
ROUNDS, CALLS = 12, 10
"""How often calls of these are timed, and so many at once; the first two rounds warm up."""
RUNS = 4
"""How often a dump runs with CUDA graphs: kernel by kernel, captured, and replayed twice."""


def path_of(name: str) -> Path:
    """A dump by its name, or `gpu/NAME`."""
    folder, _, stem = name.rpartition("/")
    return (LARGER if folder else DUMPS) / f"{stem}.hlo"


def device(_: argparse.Namespace) -> int:
    from hlo_opt.runtime.measure.bench import clock_of

    try:
        print(clock_of("cupy").device)
    except HloOptError as error:
        print(f"nothing is checked: {error}")
        return NO_GPU
    return 0


def compare(arguments: argparse.Namespace) -> int:
    """A line per dump that does not hold, one of totals."""
    files = arguments.files or (_by_size(arguments.more) if arguments.more else [*_by_size(LARGER), *_by_size(DUMPS)])
    rows = Rows(arguments.name, arguments.out, [])
    command = (sys.executable, "-m", "scripts.gpu_checks", "one", "--backend", arguments.backend)
    jobs = [Job({"case": p.stem}, (*command, str(p)), ONE_SECONDS) for p in files]
    return rows.end(run_jobs(jobs, arguments.jobs, arguments.seconds, rows.add), bool(arguments.more))


def _by_size(folder: Path) -> list[Path]:
    """The short ones first, so that most are reached whatever happens; but before them the three longest, which take
    longer than many others together."""
    files = sorted(folder.glob("*.hlo"), key=lambda p: (p.stat().st_size, p.name))
    return [*files[-3:], *files[:-3]] if len(files) > 3 else files


def one(arguments: argparse.Namespace) -> int:
    """A dump: prints its row."""
    from hlo_opt.runtime.check.compare import check

    try:
        module = hlo_opt.parse(arguments.file.read_text(encoding="utf-8"), filename=arguments.file.name)
        fused, _ = hlo_opt.fuse(module)
        result = check(module, fused, backend=arguments.backend)
        why = "" if result.ok else str(result)
        row = {"holds": result.ok, "max_ulp": result.max_ulp, "launches": result.report["launches"]}
        if result.ok and result.backend == "cupy":
            why, more = repeated(module, fused)
            row |= {"holds": not why, **more}
    except HloOptError as error:
        print(error)
        why, row = str(error).splitlines()[0], {"holds": False}
    print(json.dumps({**row, "why": why}))
    return 0 if row["holds"] else 1


def repeated(module: Any, fused: Any) -> tuple[str, dict[str, Any]]:
    """How runs that CUDA graphs make differ from one without (nothing where they do not), and how much graphs did."""
    from hlo_opt.evaluate import module_inputs

    given = module_inputs(module, 1)
    want = hlo_opt.compile(fused, "cupy", graphs=False)(*given)
    executable = hlo_opt.compile(fused, "cupy")
    is_equal, why = True, ""
    for number in range(RUNS):
        for k, (a, b) in enumerate(zip(executable(*given), want, strict=True)):
            if a.tobytes() != b.tobytes():
                is_equal = False
                if not close(a, b, 1e-3):  # atomic additions come in any order
                    why = why or f"run {number} with CUDA graphs: out{k} differs from the run without"
    return why, {"same_bits": is_equal, "graphs": executable.report().get("graphs")}  # several devices have none


def close(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any], tolerance: float) -> bool:
    """Whether arrays agree up to a part of the largest element; infinities and NaNs must be in the same places."""
    left, right = (a.astype(np.complex128 if a.dtype.kind == "c" else np.float64) for a in (one, other))
    finite = np.abs(right[np.isfinite(right)])
    return bool(np.allclose(left, right, tolerance, tolerance * float(finite.max(initial=0.0)), equal_nan=True))


def drivers(arguments: argparse.Namespace) -> int:
    """Emits and runs, one process each."""
    rows = Rows("drivers", arguments.out, [])
    command = (sys.executable, "-m", "scripts.gpu_checks", "driver")
    jobs = [
        Job({"case": name}, (*command, name, str(arguments.folder / f"{n:02d}_{Path(name).name}")), ONE_SECONDS)
        for n, name in enumerate(SANITIZED)
    ]
    return rows.end(run_jobs(jobs, arguments.jobs, arguments.seconds, rows.add))


def driver(arguments: argparse.Namespace) -> int:
    """Emits the driver of a dump with inputs and what the interpreter makes of them beside it, and runs it."""
    module = hlo_opt.parse(path_of(arguments.name).read_text(encoding="utf-8"), filename=f"{arguments.name}.hlo")
    fused, _ = hlo_opt.fuse(module)
    hlo_opt.emit(fused, arguments.folder)
    given = random_inputs(load(arguments.folder / "driver.py").INPUTS)
    shapes = [leaf for p in fused.entry.parameters for leaf in p.shape.leaves() if leaf.is_array]
    arrays = [a.view(s.type.dtype) for a, s in zip(given, shapes, strict=True)]
    wanted = [a.astype(np.float64) if a.dtype.kind == "V" else a for a in hlo_opt.evaluate(module, arrays)]
    for name, values in (("inputs", given), ("expected", wanted)):
        archive: dict[str, Any] = {f"a{n}": a for n, a in enumerate(values)}
        np.savez(arguments.folder / f"{name}.npz", **archive)
    return drive(arguments)


def drive(arguments: argparse.Namespace) -> int:
    """Runs a driver on the inputs beside it; nothing of hlo_opt is imported into it. `--apart` gives each array an
    allocation of its own, so that compute-sanitizer sees where it ends."""
    if arguments.apart:
        import cupy

        # in whole words of 4 bytes: compare-and-swap on a narrower element takes the word in which it lies
        cupy.cuda.set_allocator(lambda size: cupy.cuda.MemoryPointer(cupy.cuda.Memory(-(-size // 4) * 4), 0))
    module = load(arguments.folder / "driver.py")
    given, wanted = (_arrays(arguments.folder / f"{name}.npz") for name in ("inputs", "expected"))
    outputs = module.run(*given)
    bad = []
    specs = [spec for spec in module.OUTPUTS if spec is not None]
    for n, (got, want, spec) in enumerate(zip(outputs, wanted, specs, strict=True)):
        values = (got.astype(np.uint32) << 16).view(np.float32) if spec[3] == "bf16" else got
        if not close(values, want, 4e-2 if spec[3] in ("bf16", "f16") else 1e-3):
            bad.append(f"out{n}")
    why = f"{', '.join(bad)} of the driver differ from the interpreter's" if bad else ""
    print(json.dumps({"holds": not bad, "why": why}))
    return 1 if bad else 0


def _arrays(path: Path) -> list[np.ndarray[Any, Any]]:
    with np.load(path) as archive:
        return [archive[f"a{n}"] for n in range(len(archive.files))]


def sanitize(arguments: argparse.Namespace) -> int:
    """Each driver below a folder under each tool."""
    rows = Rows("sanitize", arguments.out, [])
    jobs = []
    for tool in TOOLS:
        watch = [arguments.sanitizer, "--tool", tool, "--error-exitcode", "99", "--target-processes", "all"]
        if tool == "memcheck":
            watch += ["--padding", "512"]
        for found in sorted(p.parent for p in arguments.folder.glob("*/expected.npz")):
            command = (*watch, sys.executable, "-m", "scripts.gpu_checks", "drive", "--apart", str(found))
            jobs.append(Job({"case": f"{tool} {found.name}", "tool": tool}, command, ONE_SECONDS))
    return rows.end(run_jobs(jobs, arguments.jobs, arguments.seconds, rows.add))


def random(arguments: argparse.Namespace) -> int:
    """Some modules per process, from one seed each."""
    rows = Rows("random", arguments.out, [])
    command = (sys.executable, "-m", "scripts.gpu_checks", "draw")
    jobs = [Job({"case": f"seed {n}"}, (*command, str(n)), arguments.seconds) for n in range(1, DRAWS + 1)]
    return rows.end(run_jobs(jobs, arguments.jobs, arguments.seconds, rows.add), True)


def draw(arguments: argparse.Namespace) -> int:
    """The modules of a seed; the row of one that disagrees holds its text."""
    import functools

    from scripts import random_modules

    random_modules.SHRINKING = 5.0
    check = functools.partial(random_modules.against_host, ["default"], backend=arguments.backend)
    tally = random_modules.chunk(0, DRAWN, arguments.seed, check, tile_edges=True)
    row: dict[str, Any] = {"holds": not tally.disagreements, "why": "", **tally.outcomes}
    for found in tally.disagreements:
        row |= {"why": found.why.splitlines()[0], "module": found.text}
    print(json.dumps(row))
    return 0 if row["holds"] else 1


def graphs(arguments: argparse.Namespace) -> int:
    """Rows of microseconds; a program that cannot run does not hold."""
    import cupy

    rows = Rows("graphs", arguments.out, [])
    end = time.monotonic() + arguments.seconds
    left = 0
    for name in arguments.names or GRAPHED:
        if time.monotonic() > end:
            left += 1
            continue
        try:
            rows.add({"case": name, "holds": True, "why": "", **_graph_times(name, cupy)})
            row = rows.rows[-1]
            print(
                f"  {name}: {row['launches']} launches, {row['without_us']:.0f} us, with graphs {row['with_us']:.0f}; "
                f"estimated {row['est_us']:.0f} us, side by side {row['overlapped_us']:.0f} us"
            )
        except Exception as error:  # whatever CuPy says: the other programs still run
            text = str(error).splitlines()[0] if str(error) else ""
            rows.add({"case": name, "holds": False, "why": f"{type(error).__name__}: {text}"})
    return rows.end(left)


def _graph_times(name: str, cupy: Any) -> dict[str, Any]:
    from hlo_opt.evaluate import module_inputs
    from scripts.bench.kernel_times import target_of_device

    device = target_of_device(cupy.cuda.runtime.getDeviceProperties(0)["name"].decode())
    module = hlo_opt.parse(path_of(name).read_text(encoding="utf-8"), filename=f"{name}.hlo")
    fused, _ = hlo_opt.fuse(module, target=device)
    summary = hlo_opt.stats(fused, target=device).summary
    given = module_inputs(module, 0)
    ways = {way: hlo_opt.compile(fused, "cupy", graphs=way == "with") for way in ("with", "without")}
    times: dict[str, list[float]] = {way: [] for way in ways}
    runs = {way: executable.resident(given) for way, executable in ways.items()}
    for number in range(ROUNDS):
        for way, run in runs.items():
            start = time.perf_counter()
            for _ in range(CALLS):
                run()
            cupy.cuda.Device().synchronize()
            if number >= 2:
                times[way].append((time.perf_counter() - start) / CALLS * 1e6)
    report = ways["with"].report()
    medians = {f"{way}_us": float(np.median(found)) for way, found in times.items()}
    estimates = {"est_us": summary.est_us, "overlapped_us": summary.overlapped_us}
    return {**medians, **estimates, "launches": report["launches"], "graphs": report["graphs"]}


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
        with contextlib.suppress(OSError, ValueError):  # a part that did not come so far
            found.update(json.loads(path.read_text(encoding="utf-8")))
    if arguments.device:
        found["device"] = arguments.device
    day = arguments.day or datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d")
    stem = re.sub(r"[^a-z0-9]+", "-", str(found.get("device", "unknown")).lower()).strip("-") or "unknown"
    arguments.out.mkdir(parents=True, exist_ok=True)
    target = arguments.out / f"{stem}_{day}.json"
    target.write_text(json.dumps({"day": day, **found}, indent=1) + "\n", encoding="utf-8")
    print(f"results: {target}")
    return 0


def main(given: list[str] | None = None) -> int:
    """The command."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(required=True)

    def verb(name: str, run: Any, seconds: float | None = None) -> argparse.ArgumentParser:
        part = verbs.add_parser(name)
        part.set_defaults(run=run)
        if seconds is not None:
            part.add_argument("--seconds", type=float, default=seconds, help="stop after that (default: %(default)s)")
            part.add_argument("--out", type=Path, metavar="FILE.json")
            part.add_argument("--jobs", type=int, default=AT_ONCE, help="processes at once (default: %(default)s)")
        return part

    verb("device", device)
    part = verb("compare", compare, 150.0)
    part.add_argument("files", nargs="*", type=Path)
    part.add_argument("--backend", default="cupy")
    part.add_argument("--more", type=Path, metavar="DIR", help="the dumps of DIR instead of our own")
    part.add_argument("--name", default="compare", help="of the rows in the results")
    part = verb("one", one)
    part.add_argument("file", type=Path)
    part.add_argument("--backend", default="cupy")
    verb("drivers", drivers, 60.0).add_argument("folder", type=Path)
    part = verb("driver", driver)
    part.add_argument("name")
    part.add_argument("folder", type=Path)
    part.set_defaults(apart=False)
    part = verb("drive", drive)
    part.add_argument("folder", type=Path)
    part.add_argument("--apart", action="store_true")
    part = verb("sanitize", sanitize, 120.0)
    part.add_argument("folder", type=Path)
    part.add_argument("--sanitizer", default="compute-sanitizer")
    verb("random", random, 60.0)
    part = verb("draw", draw)
    part.add_argument("seed", type=int)
    part.add_argument("--backend", default="cupy")
    verb("graphs", graphs, 30.0).add_argument("names", nargs="*")
    part = verb("merge", merge)
    part.add_argument("out", type=Path)
    part.add_argument("parts", nargs="*", type=Path)
    part.add_argument("--device")
    part.add_argument("--day")
    arguments = parser.parse_args(given)
    return int(arguments.run(arguments))


if __name__ == "__main__":
    sys.exit(main())
