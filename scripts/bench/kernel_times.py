"""The programs of `kernel_limits` on a GPU: python -m scripts.bench.kernel_times [--seconds N]
[--out FILE.json] [NAME...]

Each program is fused for the device, and its kernels run with CuPy on arrays that stay on the GPU, the cache emptied
before each run. JAX's own program runs beside it where JAX has a GPU. All are compiled before the first is timed, ours
in processes without a GPU (`made_apart`). With --dumps DIR, the dumps of DIR instead, without JAX.

us         microseconds of the kernels by events, from a filled queue: the median
price      what the plans of these kernels said they would take, with the copies of arguments that they update in place
off        how far the price lies from the time, in percent of the time
share      of what a plain copy reaches, in percent: least bytes, and those copies, by time by the bandwidth of a copy
ours, XLA  microseconds of a call in a batch of calls, by the wall clock, warm, ours and that of `jax.jit`
ratio      ours by XLA's: below 1 we are faster
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

import hlo_opt
from hlo_opt.analysis.targets import target as find
from hlo_opt.evaluate import module_inputs
from hlo_opt.fusion.summary import module_summary
from hlo_opt.ir import Module
from hlo_opt.runtime.measure.bench import Clock, clock_of
from scripts.bench.gpu import BATCH, agree, inputs_of, is_broken
from scripts.bench.kernel_limits import PARTS, Row, row_of_fused
from scripts.bench.kernel_programs import Program, programs
from scripts.bench.made_apart import ready

ROUNDS = 5
LONGEST = 50e3
"""Microseconds: what takes longer is timed once."""
COMPILING = 10
"""Programs that are compiled at a time."""
HEADER = f"{'program':42s}   n        us     price    off  share      ours       XLA  ratio"
DUMPS_HEADER = f"{'dump':42s}    n calls     price      warm      cold      call"
TARGETS = {"H100": "h100_sxm", "H200": "h200"}


def target_of_device(name: str) -> str:
    """The target of a GPU by a part of its name; the default's where none fits."""
    return next((target for part, target in TARGETS.items() if part in name), "h100_sxm")


def drawn(arguments: Sequence[Any]) -> list[Any]:
    """Arrays for the arguments of a function: standard normal numbers, or integers, which are places of rows of the
    first argument, or smaller where their type is."""
    import ml_dtypes

    leaves = _leaves(arguments)
    rows = leaves[0].shape[0] if leaves[0].shape else 2
    arrays = []
    for argument in leaves:
        if np.dtype(argument.dtype).kind in "iu" or "int" in str(argument.dtype):
            below = min(rows, int(ml_dtypes.iinfo(argument.dtype).max))
            places = np.random.default_rng(1).integers(0, below, min(argument.size, 4_194_301))
            arrays.append(np.resize(places.astype(argument.dtype), argument.shape))
        else:
            arrays += inputs_of([argument.shape], argument.dtype)
    return arrays


def _leaves(arguments: Any) -> list[Any]:
    import jax

    return list(jax.tree_util.tree_leaves(arguments))


def taken(arrays: Sequence[Any], parameters: Sequence[Any]) -> list[Any]:
    """The arrays that a module takes: JAX leaves out the arguments that nothing reads."""
    left, chosen = iter(arrays), []
    for shape in parameters:
        chosen.append(next(a for a in left if a.shape == tuple(shape)))
    return chosen


def of_dump(path: Path, target: str) -> tuple[Module, dict[str, Any]]:
    """As `of_program`, for a dump; its price is that of all that it launches and calls."""
    fused, _ = hlo_opt.fuse(hlo_opt.parse(path.read_text(encoding="utf-8"), filename=path.name), target=target)
    summary = module_summary(fused, find(target))
    return fused, {"price_us": summary.est_us, "bytes": summary.bytes}


def time_dump(found: dict[str, Any], clock: Clock, rounds: int) -> dict[str, Any]:
    """The row of a dump: microseconds of a run with warm caches and with cold ones by events, and of a call."""
    row: dict[str, Any] = {"case": found["name"], "price_us": found.get("price_us")}
    if "fault" in found:
        return row | {"fault": found["fault"], "trace": found["trace"]}
    try:
        import cupy

        ours = found["ours"]
        run = ours.resident(module_inputs(found["fused"], 0))
        run()
        report = ours.report()
        launches = int(report["launches"]) + sum(report["library"].values())
        warm = [clock.timed(run, launches) for _ in range(rounds)]
        cold = []
        for _ in range(rounds):
            clock.empty_caches()
            cold.append(clock.timed(run, launches))
        call = _batch(run, lambda _: cupy.cuda.Device().synchronize())
        row |= {"launches": report["launches"], "library": report["library"], "bytes": found["bytes"], "call_us": call}
        row |= {"warm_us": float(np.median(warm)), "cold_us": float(np.median(cold)), "kernels": report["kernels"]}
    except Exception as error:
        text = f"{type(error).__name__}: {error}"[:2000]
        row |= {"fault": text, "trace": traceback.format_exc()[-4000:], "is_broken": is_broken(text)}
    return row


def dump_line(row: dict[str, Any]) -> str:
    """The row in words."""
    if "fault" in row:
        return f"{row['case'][:42]:42s} {row['fault'].splitlines()[0][:160]}"
    calls = sum(row["library"].values())
    return (
        f"{row['case'][:42]:42s} {row['launches']:4d} {calls:4d} {row['price_us']:9.2f} {row['warm_us']:9.2f} "
        f"{row['cold_us']:9.2f} {row['call_us']:9.1f}"
    )


def of_program(name: str, target: str) -> tuple[Module, dict[str, Any]]:
    """Fuse a program, by its name: the job of a process without a GPU. Its price, and the parameters it has."""
    program = next(p for p in programs() if p.name == name)
    module = program.made()
    fused, _ = hlo_opt.fuse(module, target=target)
    parameters = [p.shape.dimensions for p in fused.entry.parameters]
    priced: Row = row_of_fused(program, module, fused, find(target))
    row: dict[str, Any] = {"kinds": list(priced.kinds), "least": priced.least + priced.copied}
    row |= {"price_us": priced.us_with_copies, "copied": priced.copied}
    row["parts"] = {part: sum(getattr(p, part) for p in priced.prices) for part in PARTS}
    row["prices"] = [asdict(p) for p in priced.prices]
    return fused, {"row": row, "parameters": parameters}


def prepared(chosen: Sequence[Program], target: str, has_jax: bool, seconds: float) -> list[dict[str, Any]]:
    """The programs' prices, executables and JAX's, not yet run; `fault` says what failed."""

    def of_xla(name: str) -> dict[str, Any]:
        import jax

        program = by_name[name]
        compiled = jax.jit(program.made.function).lower(*program.made.arguments).compile() if has_jax else None
        return {"program": program} | ({} if compiled is None else {"xla": compiled})

    by_name = {program.name: program for program in chosen}
    rows = ready(of_program, list(by_name), target, "cupy", of_xla, COMPILING, seconds)
    return [{"program": program, **row} for program, row in zip(chosen, rows, strict=True)]


def timed(found: dict[str, Any], clock: Clock, bandwidth: float, rounds: int) -> dict[str, Any]:
    """The row of a program that is prepared."""
    program: Program = found["program"]
    row: dict[str, Any] = {"case": program.name, **found.get("row", {})}
    if "fault" in found:
        return row | {"fault": found["fault"], "trace": found["trace"]}
    try:
        row |= _times(found, clock, rounds)
        row["share"] = row["least"] / (row["us"] * 1e-6) / bandwidth
        row["off"] = row["price_us"] / row["us"] - 1
    except Exception as error:
        text = f"{type(error).__name__}: {error}"[:2000]
        row |= {"fault": text, "trace": traceback.format_exc()[-4000:], "is_broken": is_broken(text)}
    return row


def _times(found: dict[str, Any], clock: Clock, rounds: int) -> dict[str, Any]:
    import cupy
    import jax

    program: Program = found["program"]
    arrays = drawn(program.made.arguments)
    ours, xla = found["ours"], found.get("xla")
    own = taken(arrays, found["parameters"])
    run = ours.resident(own)
    run()
    launches = int(ours.report()["launches"])
    row: dict[str, Any] = {"launches": launches, "kernels": ours.report()["kernels"]}
    if xla is not None:
        given = jax.tree_util.tree_unflatten(
            jax.tree_util.tree_structure(program.made.arguments), [jax.device_put(a) for a in arrays]
        )
        theirs = jax.tree_util.tree_leaves(xla(*given))
        name = "bfloat16" if any(str(a.dtype) == "bfloat16" for a in theirs) else "float32"
        if sum(a.nbytes for a in theirs) < 1 << 28:  # what is larger takes too long on the host
            row["agrees"] = agree(ours(*own), theirs, name)
            if not row["agrees"]:
                exact = _exact(program, arrays)
                row["errors"] = [_error(values, exact) for values in (ours(*own), theirs)]
        del theirs
    cold: list[float] = []
    mine: list[float] = []
    other: list[float] = []
    for _ in range(rounds):
        clock.empty_caches()
        cold.append(clock.timed(run, launches))
        if cold[0] > LONGEST:
            return row | {"us": cold[0], "cold": cold, "ours_us": cold[0]}
        mine.append(_batch(run, lambda _: cupy.cuda.Device().synchronize()))
        if xla is not None:
            other.append(_batch(lambda: xla(*given), jax.block_until_ready))
    row |= {"us": float(np.median(cold)), "cold": cold, "ours_us": float(np.median(mine))}
    if other:
        row |= {"xla_us": float(np.median(other)), "ratio": float(np.median(mine) / np.median(other))}
    return row


def _exact(program: Program, arrays: Sequence[Any]) -> list[Any]:
    """The results of a program in f64, on the host."""
    import jax

    with jax.enable_x64(True), jax.default_device(jax.devices("cpu")[0]):
        wide = [a if np.dtype(a.dtype).kind in "iub" else a.astype(np.float64) for a in arrays]
        tree = jax.tree_util.tree_structure(program.made.arguments)
        results = program.made.function(*jax.tree_util.tree_unflatten(tree, wide))
        return [np.asarray(result) for result in jax.tree_util.tree_leaves(results)]


def _error(results: Sequence[Any], exact: Sequence[Any]) -> float:
    """The largest error of results, as a part of the largest exact one of the same array."""
    pairs = zip(results, exact, strict=True)
    return max(float(np.abs(np.asarray(r, np.float64) - e).max() / max(1e-30, np.abs(e).max())) for r, e in pairs)


def _batch(work: Callable[[], Any], wait: Callable[[Any], Any]) -> float:
    wait(work())
    start = time.perf_counter()
    for _ in range(BATCH):
        last = work()
    wait(last)
    return (time.perf_counter() - start) / BATCH * 1e6


def line(row: dict[str, Any]) -> str:
    """The row in words."""
    if "fault" in row:
        return f"{row['case'][:42]:42s} {row['fault'].splitlines()[0][:160]}"
    other = f"{row['xla_us']:9.1f} {row['ratio']:6.2f}" if "xla_us" in row else f"{'-':>9s} {'-':>6s}"
    return (
        f"{row['case'][:42]:42s} {row['launches']:3d} {row['us']:9.1f} {row['price_us']:9.1f} {100 * row['off']:+6.0f} "
        f"{100 * row['share']:6.1f} {row['ours_us']:9.1f} {other}{_differs(row)}"
    )


def _differs(row: dict[str, Any]) -> str:
    """Whether results differ from JAX's, and if so, which of both lies nearer to those in f64."""
    if row.get("agrees", True):
        return ""
    errors = row.get("errors")
    return "  differs" if errors is None else f"  differs; from f64 ours {errors[0]:.1e}, XLA {errors[1]:.1e}"


def totals(rows: Sequence[dict[str, Any]]) -> str:
    """What all rows say together."""
    good = [row for row in rows if "us" in row]
    ratios = [row["ratio"] for row in good if "ratio" in row]
    off = np.median([abs(row["off"]) for row in good]) if good else 0.0
    faster = float(np.exp(np.mean(np.log(ratios)))) if ratios else 0.0
    return (
        f"{len(good)} of {len(rows)} timed; {sum(row['share'] >= 0.9 for row in good)} at 90 % of a copy or more; the "
        f"price is {100 * off:.0f} % off in the median; of XLA's time {faster:.2f} in the geometric mean of "
        f"{len(ratios)}, more than 1.05 in {sum(ratio > 1.05 for ratio in ratios)}"
    )


def show(found: dict[str, Any]) -> int:
    """Print the rows of an earlier run."""
    if "dumps" in found:
        print(f"{found['device']}\n{DUMPS_HEADER}", *map(dump_line, found["dumps"]), sep="\n")
        return 0
    print(f"{found['device']}: a copy reaches {found['copy_gb_per_s']:.0f} GB/s\n{HEADER}")
    print(*map(line, found["kernel_times"]), totals(found["kernel_times"]), sep="\n")
    return 0


def dumps(given: argparse.Namespace, clock: Clock, target: str, start: float) -> int:
    """Time the dumps of a folder."""
    paths = sorted(given.dumps.glob("*.hlo"))
    found = ready(of_dump, paths, target, "cupy", lambda path: {}, COMPILING, given.compiling)
    print(f"compiled in {time.monotonic() - start:.0f} s", flush=True)
    print(DUMPS_HEADER)
    rows: list[dict[str, Any]] = []
    for path, each in zip(paths, found, strict=True):
        if time.monotonic() - start > given.seconds:
            print(f"{path.stem}: not reached in time")
            continue
        rows.append(time_dump(each | {"name": path.stem}, clock, given.rounds))
        print(dump_line(rows[-1]), flush=True)
        if rows[-1].get("is_broken"):
            break
    if given.out is not None:
        given.out.write_text(json.dumps({"device": clock.device, "dumps": rows}, indent=1) + "\n", encoding="utf-8")
    return int(any("fault" in row for row in rows))


def main() -> int:
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="part of a program's name; default: all")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--seconds", type=float, default=120.0, help="time no program after that")
    parser.add_argument("--compiling", type=float, default=40.0, help="seconds after which a program is left out")
    parser.add_argument("--out", type=Path, metavar="FILE.json")
    parser.add_argument("--dumps", type=Path, metavar="DIR", help="time the dumps of DIR instead")
    parser.add_argument("--show", type=Path, metavar="FILE.json", help="print what an earlier run wrote; needs no GPU")
    parser.add_argument("--without-jax", action="store_true", help="time ours only")
    given = parser.parse_args()
    if given.show is not None:
        return show(json.loads(given.show.read_text(encoding="utf-8")))
    start = time.monotonic()
    clock = clock_of("cupy")
    target = target_of_device(clock.device)
    bandwidth = clock.copy_bandwidth()
    chosen = [p for p in programs() if not given.names or any(name in p.name for name in given.names)]
    print(f"{clock.device}: a copy reaches {bandwidth / 1e9:.0f} GB/s; target {target}", flush=True)
    if given.dumps is not None:
        return dumps(given, clock, target, start)
    import jax

    has_jax = not given.without_jax and any(d.platform == "gpu" for d in jax.devices())
    found = prepared(chosen, target, has_jax, given.compiling)
    print(f"compiled in {time.monotonic() - start:.0f} s", flush=True)
    print(HEADER)
    rows: list[dict[str, Any]] = []
    for each in found:
        if time.monotonic() - start > given.seconds:
            print(f"{each['program'].name}: not reached in time")
            continue
        rows.append(timed(each, clock, bandwidth, given.rounds))
        print(line(rows[-1]), flush=True)
        if given.out is not None:
            told = {"device": clock.device, "copy_gb_per_s": bandwidth / 1e9, "target": target, "kernel_times": rows}
            given.out.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
        if rows[-1].get("is_broken"):
            return 1
    print(totals(rows), flush=True)
    return 0 if all("us" in row for row in rows) and len(rows) == len(chosen) else 1


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    os._exit(status)  # what is still compiled is not waited for
