"""The loops of the table on a GPU: python -m scripts.bench.loops_gpu [--only WORD] [--most N] [--seconds N]
[--compiling N] [--each N] [--out FILE.json] [NAME...]

Each loop (`loops`) is fused for the device and runs with CuPy, beside the same function under `jax.jit`, in turns. All
are compiled before the first is timed, ours in processes without a GPU (`made_apart`). A process of its own does both;
where a loop breaks or hangs it (`--each` seconds), the row says so and another process goes on with the rest. FILE.json
is complete after each row.

rung      that the loop reaches
n         launches of a call, ours
ours, XLA microseconds of a call in a batch by the wall clock, medians of turns
times     how often ours is quicker
kernels   microseconds of our kernels by events, from a filled queue
price     what their plans said; off: how far that lies from the time, in percent of it
rounds    of the loop, where they are known; a round: nanoseconds by events
meetings  how often the blocks of a launch wait for each other
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import jax
import numpy as np

import hlo_opt
from hlo_opt.analysis.targets import DeviceTarget
from hlo_opt.analysis.targets import target as find
from hlo_opt.fusion.summary import module_summary
from hlo_opt.ir import Module
from hlo_opt.plans import Plan, plan, region_of
from hlo_opt.plans.kinds import kind_of
from hlo_opt.plans.price import price
from hlo_opt.runtime.measure.bench import Clock, clock_of
from hlo_opt.runtime.schedule import build_schedule, ops
from scripts.bench.cartpole_gpu import module_of, per_call, void
from scripts.bench.counted import rounds
from scripts.bench.kernel_times import target_of_device
from scripts.bench.loop_table import LOOPS, chosen
from scripts.bench.loops import RUNGS, reached
from scripts.bench.made_apart import ready
from scripts.programs.case import Arg
from scripts.xla_cpu import Leaf, sample_inputs

Row = dict[str, Any]
TURNS = 7
LEAST_US = 3_000.0
"""A batch takes at least so long."""
COMPILING = 12
"""Programs of XLA that are compiled at a time."""
FEW = 40
"""Loops of a run, unless more are asked for."""
STARTING = 90.0
"""Seconds for a process to start and compile."""
WAITING = 10
"""Launches for which the queue is filled before a run is timed by events: a call from Python takes that long."""


def of_loop(loop: str, target: str) -> tuple[Module, Row]:
    """Fuse a loop, by its name: the job of a process without a GPU."""
    case = next(each.case for each in LOOPS if each.case.name == loop)
    module = module_of(case.function, jax.tree.map(Arg.struct, case.args, is_leaf=lambda x: isinstance(x, Arg)))
    fused, _ = hlo_opt.fuse(module, target=target)
    return fused, {"case": loop, "rung": reached(module, fused).rung, **_planned(fused, find(target))}


def of_xla(loop: str) -> Row:
    """What XLA makes of a loop, by its name, and inputs."""
    case = next(each.case for each in LOOPS if each.case.name == loop)
    arguments = jax.tree.map(Arg.struct, case.args, is_leaf=lambda x: isinstance(x, Arg))
    leaves = jax.tree.leaves(case.args, is_leaf=lambda x: isinstance(x, Arg))
    drawn = sample_inputs([Leaf(a.shape, np.dtype(a.struct().dtype), a.low, a.high) for a in leaves], seed=0)
    given = jax.tree.unflatten(jax.tree.structure(arguments), [jax.device_put(a) for a in drawn])
    return {"inputs": drawn, "given": given, "xla": jax.jit(case.function).lower(*arguments).compile()}


def _planned(fused: Module, target: DeviceTarget) -> Row:
    """What the plans of a program's kernels say: kinds and launches, microseconds of each and all, meetings, rounds."""
    schedule = build_schedule(fused, target.name)
    kernels, meetings, most = [], 0, 0
    for _, op in schedule.ops():
        if isinstance(op, ops.LaunchOp):
            made = plan(region_of(schedule.module, op.instruction), target)
            assert isinstance(made, Plan)
            for segment in made.segments:
                walks = kind_of(segment.part).walks(made.region, segment, made.launch)
                meetings += sum(walk.meetings * walk.times for walk in walks)
            kernels.append([made.kind, made.launch.grid, made.launch.block, price(made, target).us])
            most = max(most, rounds(op.instruction))
    summary = module_summary(fused, target)
    return {"kernels": kernels, "price_us": summary.est_us, "meetings": meetings, "rounds": most}


def timed(row: Row, clock: Clock) -> Row:
    """The row of a loop that is compiled, with its times."""
    import cupy

    ours, xla, given = row["ours"], row["xla"], row["given"]
    row["agrees"] = agreeing(ours(*row["inputs"]), jax.tree.leaves(xla(*given)))
    run = ours.resident(row["inputs"])
    run()  # the second one is captured
    run()
    report = ours.report()
    row["launches"], row["graphs"] = int(report["launches"]), report["graphs"]
    works = {
        "ours": (run, lambda _: cupy.cuda.Device().synchronize()),
        "xla": (lambda: xla(*given), jax.block_until_ready),
    }
    batches = {}
    for name, (work, wait) in works.items():
        per_call(work, wait, 1)
        batches[name] = min(200, max(1, int(LEAST_US / per_call(work, wait, 1))))
    times: dict[str, list[float]] = {name: [] for name in works}
    events = []
    for _ in range(TURNS):
        for name, (work, wait) in works.items():
            times[name].append(per_call(work, wait, batches[name]))
        events.append(clock.timed(lambda: void(run()), WAITING + row["launches"]))
    row |= {"ours_us": median(times["ours"]), "xla_us": median(times["xla"]), "kernels_us": median(events)}
    return row | {"off": row["price_us"] / row["kernels_us"] - 1}


def agreeing(ours: list[Any], theirs: list[Any]) -> float:
    """The least part of an output's elements that agree."""
    parts = [1.0]
    for one, other in zip(ours, theirs, strict=True):
        got, want = np.asarray(one), np.asarray(other)
        kind = np.result_type(np.complex64 if np.iscomplexobj(want) else np.float64)
        got, want = got.astype(kind).reshape(-1), want.astype(kind).reshape(-1)
        with np.errstate(invalid="ignore"):
            near = (np.abs(got - want) <= 1e-3 + 1e-2 * np.abs(want)) | (got == want) | ((got != got) & (want != want))
        parts.append(float(near.mean()) if near.size else 1.0)
    return min(parts)


PRIVATE = ("ours", "xla", "inputs", "given", "fused")
"""What a row holds only in the process that runs it."""


def work(names: Sequence[str], skipped: set[str], seconds: float, is_on_cpu: bool) -> None:
    """Compile and time what is left, a line of JSON before each and one after."""
    jax.config.update("jax_platforms", "cpu" if is_on_cpu else "cuda,cpu")
    clock = clock_of("host" if is_on_cpu else "cupy")
    target = find("h200" if is_on_cpu else target_of_device(clock.device))
    say({"device": clock.device, "target": target.name})
    left = [name for name in names if name not in skipped]
    rows = ready(of_loop, left, target.name, "host" if is_on_cpu else "cupy", of_xla, COMPILING, seconds)
    for name, row in zip(left, rows, strict=True):
        row["case"] = name
        say({"begins": row["case"]})
        if "fault" not in row:
            try:
                if is_on_cpu:
                    theirs = jax.tree.leaves(row["xla"](*row["given"]))
                    row["agrees"] = agreeing(row["ours"](*row["inputs"]), theirs)
                else:
                    row = timed(row, clock)
            except Exception as error:
                row |= {"fault": f"{type(error).__name__}: {error}"[:1000], "trace": traceback.format_exc()[-3000:]}
        say({key: value for key, value in row.items() if key not in PRIVATE})
        if "cuda" in row.get("fault", "").lower():
            os._exit(3)  # the context may be broken: another process goes on
    os._exit(0)  # what is still compiled is not waited for


def in_turn(only: str, most: int, names: Sequence[str] = ()) -> list[str]:
    """The names of at most so many loops, those of all rungs in turn, the heavy ones of a rung first; or these names,
    where there are any."""
    if names:
        return list(names)
    by_rung = [[each for each in chosen(only) if each.rung == rung] for rung in RUNGS]
    columns = [sorted(loops, key=lambda each: not each.heavy) for loops in by_rung]
    turns = itertools.chain.from_iterable(itertools.zip_longest(*columns))
    return [each.case.name for each in turns if each is not None][:most]


def say(what: Row) -> None:
    """A line for the process that waits."""
    print(json.dumps(what), flush=True)


def told(command: list[str], seconds: float, each: float) -> Iterator[Row]:
    """What a process says, line by line; {"ends": why} comes last, where it hangs or after it ends."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    lines: queue.Queue[str | None] = queue.Queue()

    def read() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            lines.put(line)
        lines.put(None)

    threading.Thread(target=read, daemon=True).start()
    limit, end = min(STARTING, seconds), time.monotonic() + seconds
    while True:
        try:
            line = lines.get(timeout=max(0.1, min(limit, end - time.monotonic())))
        except queue.Empty:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            yield {"ends": f"stopped after {min(limit, seconds):.0f} s"}
            return
        if line is None:
            yield {"ends": f"exit status {process.wait()}"}
            return
        try:
            found = json.loads(line)
        except ValueError:
            print(line, end="", file=sys.stderr)
            continue
        if "device" not in found:
            limit = each
        yield found


HEAD = (
    f"{'loop':22s} {'rung':8s} {'n':>4s} {'ours':>9s} {'XLA':>10s} {'times':>7s} {'kernels':>9s} {'price':>9s} "
    f"{'off':>5s} {'rounds':>6s} {'a round':>8s} meetings"
)


def line(row: Row) -> str:
    """The row in words."""
    if "fault" in row:
        return f"{row['case']:22s} {row['fault'].splitlines()[0][:150]}"
    differs = "" if row["agrees"] >= 0.99 else f"  agrees {row['agrees']:.3f}"
    if "ours_us" not in row:
        return f"{row['case']:22s} {row['rung']:8s} price {row['price_us']:.1f}, meetings {row['meetings']}{differs}"
    refused = "".join(f"  refused: {why}"[:120] for why in row["graphs"].get("refused", ()))
    return (
        f"{row['case']:22s} {row['rung']:8s} {row['launches']:4d} {row['ours_us']:9.1f} {row['xla_us']:10.1f} "
        f"{row['xla_us'] / row['ours_us']:7.2f} {row['kernels_us']:9.1f} {row['price_us']:9.1f} "
        f"{100 * row['off']:+5.0f} {row['rounds']:6d} {1e3 * row['kernels_us'] / max(1, row['rounds']):8.0f} "
        f"{row['meetings']:5.0f}{differs}{refused}"
    )


def main() -> int:
    """The command; 1 where a row has no figures, differs, or ours is slower."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="of a loop; default: those of --only")
    parser.add_argument("--only", default="", metavar="WORD", help="loops whose names hold a word")
    parser.add_argument("--most", type=int, default=FEW, metavar="N", help=f"loops of all rungs; {FEW}")
    parser.add_argument("--seconds", type=float, default=120.0, help="for all")
    parser.add_argument("--compiling", type=float, default=30.0, help="seconds after which a loop is left out")
    parser.add_argument("--each", type=float, default=10.0, help="seconds after which a loop counts as hanging")
    parser.add_argument("--out", type=Path, metavar="FILE.json")
    parser.add_argument("--on-cpu", action="store_true", help="no times: whether backend host and XLA:CPU agree")
    parser.add_argument("--worker", metavar="NAME,...", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker is not None:
        work(in_turn(given.only, given.most, given.names), set(given.worker.split(",")), given.compiling, given.on_cpu)
    end = time.monotonic() + given.seconds
    names = in_turn(given.only, given.most, given.names)
    results: Row = {"rows": []}
    print(HEAD, flush=True)
    while len(results["rows"]) < len(names) and time.monotonic() < end:
        had = [row["case"] for row in results["rows"]]
        command = [sys.executable, "-m", "scripts.bench.loops_gpu", *given.names, "--only", given.only]
        command += ["--most", str(given.most)]
        command += ["--compiling", str(given.compiling), "--worker", ",".join(had)]
        current = ""
        for found in told(command + ["--on-cpu"] * given.on_cpu, end - time.monotonic(), given.each):
            if "device" in found:
                results |= found
            elif "begins" in found:
                current = found["begins"]
            elif "case" in found or ("ends" in found and current):
                row = found if "case" in found else {"case": current, "fault": found["ends"]}
                results["rows"].append(row)
                current = ""
                print(line(row), flush=True)
                if given.out is not None:
                    given.out.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
            elif len(had) == len(results["rows"]):
                print(f"nothing ran: {found['ends']}")
                return 1
    rows = [row for row in results["rows"] if "fault" not in row]
    slower = [row["case"] for row in rows if row.get("ours_us", 0) > 1.05 * row.get("xla_us", 0)]
    differ = [row["case"] for row in rows if row["agrees"] < 0.99]
    print(f"{len(rows)} of {len(names)} ran; slower than XLA: {', '.join(slower)}; differ: {', '.join(differ)}")
    return 1 if len(rows) < len(names) or slower or differ else 0


if __name__ == "__main__":
    sys.exit(main())
