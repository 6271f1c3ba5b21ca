"""What a call costs beside its kernels, on a GPU: python -m scripts.bench.dispatch [--seconds N] [--out FILE.json]
[--profile NAME] [NAME...]

Small and medium dumps, fused, in microseconds per call of a batch by the wall clock, on arrays that stay on the GPU:

apart    `Executable.resident` without CUDA graphs: each launch from Python
graph    the same as one graph, or as a few with library calls between them
device   `Executable.on_device`, whose results are the caller's, with graphs
kernels  the graph by events, from a filled queue, warm
jax      `jax.jit` of the program that the dump is of, nothing donated
launches, graphs, refused  of the last call with graphs: kernels, those that graphs launched, and what CUDA refused

Results with graphs are compared with those without. At the end the calls of one program are profiled, 200 of each way.
"""

from __future__ import annotations

import argparse
import cProfile
import io
import json
import os
import pstats
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import hlo_opt
from hlo_opt.evaluate import module_inputs
from hlo_opt.library.arrays import raw_dtype
from hlo_opt.runtime.executable import Executable
from hlo_opt.runtime.measure.bench import Clock, clock_of
from scripts.bench.gpu import is_broken
from scripts.bench.kernel_times import target_of_device
from scripts.gpu_checks import close

DUMPS = Path(__file__).parents[2] / "testdata" / "dumps"
NAMES = (
    "mlp_train_step",
    "adamw_mixed",
    "transformer_train_step",
    "autoencoder_step",
    "mlp_forward",
    "attention",
    "transformer_block",
    "transformer_decode",
    "k_means",
    "lstm",
    "layer_norm",
    "adam",
    "sample_tokens",
    "power_iteration",
)
ROUNDS = 7
CALLS = 50
PROFILED = 200
LINES = 25


def measured(name: str, clock: Clock, target: str, rounds: int) -> dict[str, Any]:
    """The row of a program; `fault` says what failed."""
    row: dict[str, Any] = {"case": name}
    try:
        row |= _measured(name, clock, target, rounds)
    except Exception as error:  # whatever CUDA says: the other programs still run
        row |= {"fault": f"{type(error).__name__}: {error}", "trace": traceback.format_exc()[-1500:]}
        row["is_broken"] = is_broken(str(error))
    return row


def built(name: str, target: str) -> tuple[dict[str, Executable], list[Any]]:
    """The executables of a program, by way, and its inputs."""
    module = hlo_opt.parse((DUMPS / f"{name}.hlo").read_text(encoding="utf-8"), filename=f"{name}.hlo")
    fused, _ = hlo_opt.fuse(module, target=target)
    ways = {way: hlo_opt.compile(fused, "cupy", graphs=way == "graph") for way in ("apart", "graph")}
    return ways, module_inputs(module, 0)


def _measured(name: str, clock: Clock, target: str, rounds: int) -> dict[str, Any]:
    import cupy

    ways, given = built(name, target)
    want = ways["apart"](*given)
    agrees = all(
        close(got, expected, 1e-3) for _ in range(4) for got, expected in zip(ways["graph"](*given), want, strict=True)
    )
    on_gpu = [cupy.asarray(a.view(raw_dtype(a.dtype))) for a in given]
    calls: dict[str, Callable[[], Any]] = {way: executable.resident(given) for way, executable in ways.items()}
    calls["device"] = lambda: ways["graph"].on_device(*on_gpu)
    waits: dict[str, Callable[[Any], Any]] = dict.fromkeys(calls, lambda _: cupy.cuda.Device().synchronize())
    theirs = _with_jax(name, given)
    if theirs is not None:
        import jax

        calls["jax"], waits["jax"] = theirs, jax.block_until_ready
    times: dict[str, list[float]] = {way: [] for way in calls}
    for number in range(rounds + 2):  # the first two warm up and capture
        for way, call in calls.items():
            each = batch(call, waits[way])
            if number >= 2:
                times[way].append(each)
    calls["graph"]()
    report = ways["graph"].report()
    kernels = [clock.timed(calls["graph"], report["launches"]) for _ in range(rounds)]
    return {
        "agrees": agrees,
        **{f"{way}_us": float(np.median(found)) for way, found in times.items()},
        "kernels_us": float(np.median(kernels)),
        "launches": report["launches"],
        "library": report["library"],
        "graphs": report["graphs"],
    }


def batch(call: Callable[[], Any], wait: Callable[[Any], Any]) -> float:
    """Microseconds per call of a batch."""
    wait(call())
    start = time.perf_counter()
    last = None
    for _ in range(CALLS):
        last = call()
    wait(last)
    return (time.perf_counter() - start) / CALLS * 1e6


def _with_jax(name: str, given: Sequence[Any]) -> Callable[[], Any] | None:
    """A call of the program as JAX compiles it; None where JAX has no GPU or does not know the dump."""
    try:
        import jax

        from scripts.programs import all_cases
        from scripts.programs.case import Arg
    except ImportError:
        return None
    case = all_cases().get(name)
    if case is None or not any(d.platform == "gpu" for d in jax.devices()):
        return None
    leaves, structure = jax.tree_util.tree_flatten(
        jax.tree.map(lambda _: 0, case.args, is_leaf=lambda x: isinstance(x, Arg))
    )
    arrays = [jax.device_put(a) for a in given]
    if len(leaves) != len(arrays):
        return None  # the dump has no parameters that its program does not use
    arguments = jax.tree_util.tree_unflatten(structure, arrays)
    compiled = jax.jit(case.function)
    compiled(*arguments)
    return lambda: compiled(*arguments)


def profiled(name: str, target: str) -> str:
    """The functions that take longest in calls of a program, by their own time: launch by launch, and results for the
    caller with graphs."""
    import cupy

    ways, given = built(name, target)
    on_gpu = [cupy.asarray(a.view(raw_dtype(a.dtype))) for a in given]
    parts = []
    for label, call in (
        ("resident, without graphs", ways["apart"].resident(given)),
        ("resident, as a graph", ways["graph"].resident(given)),
        ("on_device, with graphs", lambda: ways["graph"].on_device(*on_gpu)),
    ):
        for _ in range(10):
            call()
        cupy.cuda.Device().synchronize()
        profile = cProfile.Profile()
        profile.enable()
        for _ in range(PROFILED):
            call()
        profile.disable()
        cupy.cuda.Device().synchronize()
        text = io.StringIO()
        pstats.Stats(profile, stream=text).strip_dirs().sort_stats("tottime").print_stats(LINES)
        lines = [line for line in text.getvalue().splitlines() if line.strip()]
        parts.append(f"{name}, {PROFILED} calls, {label}\n" + "\n".join(lines))
    return "\n\n".join(parts)


def line(row: dict[str, Any]) -> str:
    """The row in words."""
    if "fault" in row:
        return f"{row['case']:24s} {row['fault'].splitlines()[0][:160]}"
    times = "".join(f"{row[key]:9.1f}" if key in row else f"{'-':>9s}" for key in COLUMNS)
    graphs = row["graphs"]
    refused = f"  refused: {'; '.join(graphs['refused'])[:160]}" if graphs["refused"] else ""
    return (
        f"{row['case']:24s}{times}{row['launches']:6d}{graphs['replayed']:6d}"
        f"{'' if row['agrees'] else '  differs'}{refused}"
    )


COLUMNS = ("apart_us", "graph_us", "device_us", "kernels_us", "jax_us")


def main() -> int:
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of a dump; default: {' '.join(NAMES)}")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--seconds", type=float, default=120.0, help="time no program after that")
    parser.add_argument("--profile", default=NAMES[0], metavar="NAME", help="profile the calls of this one")
    parser.add_argument("--out", type=Path, metavar="FILE.json")
    given = parser.parse_args()
    start = time.monotonic()
    clock = clock_of("cupy")
    target = target_of_device(clock.device)
    print(f"{clock.device}: microseconds per call", flush=True)
    print(f"{'program':24s}" + "".join(f"{key.removesuffix('_us'):>9s}" for key in COLUMNS) + "     n graph")
    rows: list[dict[str, Any]] = []
    for name in given.names or NAMES:
        if time.monotonic() - start > given.seconds:
            print(f"{name}: not reached in time")
            continue
        rows.append(measured(name, clock, target, given.rounds))
        print(line(rows[-1]), flush=True)
        if given.out is not None:
            given.out.write_text(json.dumps({"device": clock.device, "rows": rows}, indent=1) + "\n", encoding="utf-8")
        if rows[-1].get("is_broken"):
            return 1
    print(profiled(given.profile, target))
    return 0 if all(row.get("agrees") for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
