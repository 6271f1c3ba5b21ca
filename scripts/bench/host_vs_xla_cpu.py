"""Backend `host` against XLA:CPU on the same programs: python -m scripts.bench.host_vs_xla_cpu [FILE...] [--only WORD]
[--rounds N] [--seconds S] [--json OUT]

Without FILE: programs that people would compare (`host_programs.py`, `host_further.py`), the CartPole dumps with 2,048
environments and the MLP's training step. Each is fused with preset `default` and compiled by both before anything is
timed. Then both run in turns, in pairs, so that whatever else the machine does hits both alike; the ratio of a pair is
XLA's time over ours (above 1: `host` is quicker). Times are of whole calls: arguments in NumPy arrays or XLA buffers to
finished outputs. Each gets new copies of its arguments right before its clock starts: both may overwrite those that a
program gives away, and what was just written is in the cache for both alike (the copies of one would push those of the
other out of it).
Prints the median time of both, the median ratio with its quartiles, the ratio of the quickest runs, which says more on
a busy machine, and seconds to compile.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import hlo_opt

from scripts.xla_cpu import Leaf, Program, sample_inputs  # isort: skip  # sets up JAX for the CPU, so it comes first

import jax
import numpy as np

from scripts.bench.host_further import FURTHER
from scripts.bench.host_programs import PROGRAMS
from scripts.dump import lower, render
from scripts.programs.case import Arg, Case

DUMPS = Path(__file__).resolve().parent.parent.parent / "testdata" / "dumps"
USUAL = ("cartpole_controlled", "cartpole_scan", "mlp_train_step")


@dataclass(frozen=True)
class Result:
    """Microseconds of a call (medians), how often ours is quicker (quartiles; `quickest`: of the quickest runs of both,
    which other work on the machine changes least; 0 in results that were kept without), seconds to compile."""

    name: str
    host_us: float
    xla_us: float
    ratio: float
    lower: float
    upper: float
    pairs: int
    host_compile_s: float
    xla_compile_s: float
    quickest: float = 0.0


def timed(action: Callable[[], object]) -> float:
    """Wall seconds of one call."""
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


@dataclass(frozen=True)
class Work:
    """A module's text, and what its inputs are drawn from where its shapes do not say it."""

    name: str
    text: str
    parameters: Sequence[Leaf] | None = None


def of_file(path: Path) -> Work:
    """A dump."""
    return Work(path.stem, path.read_text(encoding="utf-8"))


def of_case(case: Case) -> Work:
    """A program."""
    leaves = jax.tree.leaves(case.args, is_leaf=lambda x: isinstance(x, Arg))
    parameters = [Leaf(a.shape, np.dtype(jax.numpy.dtype(a.dtype)), a.low, a.high) for a in leaves]
    return Work(case.name, render(lower(case), "short"), parameters)


def measure(work: Work, rounds: int, seconds: float) -> Result:
    """Time one program."""
    start = time.perf_counter()
    program = Program(work.text)
    xla_compile = time.perf_counter() - start
    inputs = sample_inputs(work.parameters or program.parameters, seed=0)
    start = time.perf_counter()
    fused, _ = hlo_opt.fuse(hlo_opt.parse(work.text, filename=work.name))
    executable = hlo_opt.compile(fused, backend="host")
    host_compile = time.perf_counter() - start

    def put() -> list[jax.Array]:
        with jax.enable_x64(True):
            return [jax.block_until_ready(jax.device_put(array.copy(), program.device)) for array in inputs]

    def xla(buffers: Sequence[jax.Array]) -> None:
        jax.block_until_ready(program.executable.execute(buffers))

    def timed_host() -> float:
        arrays = [array.copy() for array in inputs]
        return timed(lambda: executable(*arrays, donate=True))

    def timed_xla() -> float:
        buffers = put()
        return timed(lambda: xla(buffers))

    for _ in range(5):
        executable(*inputs)
        xla(put())
    ours: list[float] = []
    theirs: list[float] = []
    end = time.perf_counter() + seconds
    while len(ours) < rounds and (len(ours) < 5 or time.perf_counter() < end):
        if len(ours) % 2:
            ours.append(timed_host())
            theirs.append(timed_xla())
        else:
            theirs.append(timed_xla())
            ours.append(timed_host())
    ratios = [b / a for a, b in zip(ours, theirs, strict=True)]
    lower, middle, upper = statistics.quantiles(ratios, n=4)
    medians = statistics.median(ours) * 1e6, statistics.median(theirs) * 1e6
    quickest = min(theirs) / min(ours)
    return Result(work.name, *medians, middle, lower, upper, len(ours), host_compile, xla_compile, quickest)


def main() -> int:
    """The command."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE")
    parser.add_argument("--only", default="", metavar="WORD", help="programs whose names hold a word")
    parser.add_argument("--rounds", type=int, default=200, help="pairs of runs of each file")
    parser.add_argument("--seconds", type=float, default=10.0, help="stop a file after so long")
    parser.add_argument("--json", type=Path, metavar="OUT")
    arguments = parser.parse_args()
    works = [of_file(path) for path in arguments.files or [DUMPS / f"{name}.hlo" for name in USUAL]]
    works += [] if arguments.files else [of_case(case) for case in (*PROGRAMS, *FURTHER)]
    works = [work for work in works if arguments.only in work.name]
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    print(f"{os.cpu_count()} processors, load {load:.1f} before the start")
    width = max(len(work.name) for work in works)
    results = []
    for work in works:
        result = measure(work, arguments.rounds, arguments.seconds)
        results.append(result)
        print(
            f"{result.name:{width}}  host {result.host_us:10.1f} us  XLA:CPU {result.xla_us:10.1f} us  "
            f"ratio {result.ratio:6.2f} ({result.lower:.2f} to {result.upper:.2f}, {result.pairs} pairs; "
            f"of the quickest {result.quickest:.2f})  "
            f"compiled in {result.host_compile_s:.2f} s and {result.xla_compile_s:.2f} s",
            flush=True,
        )
    mean = math.exp(statistics.mean(math.log(r.ratio) for r in results))
    slower = sum(r.ratio < 1 for r in results)
    print(
        f"{len(results)} programs: geometric mean of the ratios {mean:.2f}, least {min(r.ratio for r in results):.2f}, "
        f"{slower} below 1"
    )
    if arguments.json is not None:
        arguments.json.write_text(json.dumps([asdict(r) for r in results], indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
