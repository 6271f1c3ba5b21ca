"""The case study of *Operator Fusion in XLA: Analysis and Evaluation*: python -m scripts.bench.cartpole [--environments
N] [--steps N] [--sizes N,...] [--torch PYTHON] [--rounds N] [--seconds S] [--keep-times] [--write] [--page]

Rollouts of CartPole in the paper's forms (`cartpole_forms`): random numbers from a call that no compiler looks into,
drawn by `jax.random`, and drawn before; the state as one concatenated array and as four; the loop unrolled by ten; one
under a controller, with nothing random; and one in which a small network chooses the push. For each form: kernels per
step, launches, bytes and microseconds by price on an H100 as XLA fuses it (preset xla-2026) and as we do (default);
registers and instructions of the machine code, where NVRTC is there (extra `test`); milliseconds on this machine's CPU,
by backend `host` and by XLA:CPU in turns in the same run, and seconds to compile. XLA:CPU has no such custom call:
there its arithmetic twin is timed. Two forms run with 1 to 65,536 environments, for the crossover; then come the other
workloads (`workloads`).

Prints Markdown tables. `--write` also writes `results/cartpole.md`, `results/cartpole.json`, the same of the workloads,
docs/case-study.md and its pictures. `--keep-times` takes what a clock said from the results and makes everything else
anew; `--page` only makes tables, page and pictures of the results.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace

from hlo_opt.analysis.targets import DEFAULT_TARGET, target
from scripts.bench import case_study, workloads
from scripts.bench.cartpole_forms import CROSSOVER, FORMS
from scripts.bench.counted import both, relaxed
from scripts.bench.host_vs_xla_cpu import Work, measure, of_case
from scripts.bench.study import Point, Row, Study
from scripts.programs import cartpole

SIZES = (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536)
SHORT = 100
"""Steps of the runs for the crossover: 65,536 environments take XLA:CPU seconds for more."""


def row_of(form: str, environments: int, steps: int, rounds: int, seconds: float, old: Study | None) -> Row:
    """Count, compile and time a form; with `old`, times are from there."""
    made = FORMS[form]
    counted = both(of_case(made.fused(environments, steps)).text, target(DEFAULT_TARGET), compiled=True)
    known = next((row for row in old.rows if row.form == form), None) if old is not None else None
    if known is not None:
        return Row(form, replace(counted, build_s=known.device.build_s), known.timed)
    found = of_case(made.timed(environments, steps))
    return Row(form, counted, measure(Work(form, found.text, found.parameters), rounds, seconds))


def point_of(form: str, environments: int, rounds: int, seconds: float, old: Study | None) -> Point:
    """The same with few steps, for the crossover."""
    found = of_case(FORMS[form].timed(environments, SHORT))
    counted = both(found.text, target(DEFAULT_TARGET))
    known = {(p.form, p.environments): p for p in old.points} if old is not None else {}
    if (before := known.get((form, environments))) is not None:
        return replace(before, xla_device_us=counted.xla.us, our_device_us=counted.ours.us)
    timed = measure(Work(form, found.text, found.parameters), rounds, seconds)
    return Point(form, environments, SHORT, timed.host_us, timed.xla_us, counted.xla.us, counted.ours.us)


def study(given: argparse.Namespace, shown: str, sizes: Sequence[int], old: Study | None) -> Study:
    """Everything about CartPole."""
    machine = workloads.this_machine()
    environments, steps = (given.environments, given.steps) if old is None else (old.environments, old.steps)
    rows = []
    for form in FORMS:
        rows.append(row_of(form, environments, steps, given.rounds, given.seconds, old))
        print(f"{FORMS[form].title}: done", file=sys.stderr, flush=True)
    points = []
    for form in CROSSOVER:
        for size in sizes if old is None else sorted({p.environments for p in old.points}):
            points.append(point_of(form, size, given.rounds, given.seconds, old))
            print(f"{FORMS[form].title}, {size} environments: done", file=sys.stderr, flush=True)
    joined = of_case(FORMS["joined"].fused(environments, steps)).text
    counted = relaxed(joined, target(DEFAULT_TARGET))
    made = Study(shown, machine, environments, steps, tuple(rows), counted, tuple(points))
    return made if old is None else replace(made, command=old.command, machine=old.machine)


def main() -> int:
    """The command."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--environments", type=int, default=cartpole.ENVIRONMENTS, metavar="N")
    parser.add_argument("--steps", type=int, default=1000, metavar="N")
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)), metavar="N,...", help="for the crossover")
    workloads.options(parser)
    parser.add_argument("--page", action="store_true", help="only make tables, page and pictures of the results anew")
    given = parser.parse_args()
    if given.page:
        kept = case_study.results()
        workloads.save(kept[1])
        case_study.save(*kept)
        return 0
    old, others = case_study.results() if given.keep_times else (None, None)
    with workloads.fresh_cache():
        found = study(given, workloads.command("cartpole", sys.argv[1:]), [int(n) for n in given.sizes.split(",")], old)
        shown = workloads.command("cartpole", sys.argv[1:])
        rest = workloads.made(shown, "", given.torch, given.rounds, given.seconds, others)
    print(case_study.tables(found), workloads.tables(rest), sep="\n", end="")
    if given.write:
        workloads.save(rest)
        case_study.save(found, rest)
    return 0


if __name__ == "__main__":
    sys.exit(main())
