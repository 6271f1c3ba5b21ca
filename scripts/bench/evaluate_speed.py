"""The evaluator against XLA:CPU's compiled module: python -m scripts.bench.evaluate_speed [--more] [--only WORD]
[--runs N] [--most X]

Programs: a 1024x1024 softmax, a train step of a 2,048-wide MLP, a 64-channel convolution, and a gather, a scatter and a
sort of a million elements; with `--more` other shapes and types of these, pools, cumulative sums and the like. Both run
in turn, so that what else the machine does slows both down, and each short run is repeated until it takes 5 ms. Prints
the median of N runs of each in milliseconds, the median of the ratios, and their range; exits with 1 when a median
ratio is more than X (10).
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial

import jax

import hlo_opt
from scripts.bench.evaluate_cases import Case, cases
from scripts.xla_cpu import Program

SHORTEST = 5e-3  # seconds that a measurement takes at least


def seconds(run: Callable[[], object]) -> float:
    """Seconds of one run, by as many as take long enough."""
    count, start = 0, time.perf_counter()
    while True:
        run()
        count += 1
        taken = time.perf_counter() - start
        if taken >= SHORTEST:
            return taken / count


def compare(case: Case, runs: int) -> tuple[list[float], list[float]]:
    """Seconds of so many runs of XLA's program and of the evaluator's, taken in turn, after one of each that does not
    count."""
    with jax.enable_x64(False):
        lowered = jax.jit(case.function).lower(*case.inputs).compiler_ir("hlo")
    assert lowered is not None
    text = lowered.as_hlo_text(print_large_constants=True)
    inputs = list(case.inputs)
    both = [partial(Program(text), inputs), partial(hlo_opt.evaluate, hlo_opt.parse(text), inputs)]
    for run in both:
        run()
    found = [[seconds(run) for run in both] for _ in range(runs)]
    return [theirs for theirs, _ in found], [ours for _, ours in found]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--most", type=float, default=10.0)
    parser.add_argument("--more", action="store_true")
    parser.add_argument("--only", default="", metavar="WORD", help="only programs with this in their name")
    options = parser.parse_args()
    worst = 0.0
    for case in cases(options.more):
        if options.only not in case.name:
            continue
        theirs, ours = compare(case, options.runs)
        ratios = [b / a for a, b in zip(theirs, ours, strict=True)]
        ratio = statistics.median(ratios)
        worst = max(worst, ratio)
        print(
            f"{case.name:26} XLA:CPU {statistics.median(theirs) * 1e3:9.2f} ms   evaluate "
            f"{statistics.median(ours) * 1e3:9.2f} ms   "
            f"x{ratio:.1f} ({min(ratios):.1f} to {max(ratios):.1f}){'   TOO SLOW' if ratio > options.most else ''}",
            flush=True,
        )
    return int(worst > options.most)


if __name__ == "__main__":
    sys.exit(main())
