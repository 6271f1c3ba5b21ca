"""Programs under `jax.jit` with and without the hook: python -m scripts.bench.jax_hook [--only WORD]
[--rounds N] [--each S] [--seconds S] [--min-saving-us US] [--list LIST] [--jobs N] [--lines] [--out FILE.json]

Each program is compiled twice, by XLA alone and inside `hlo_opt.jax.fusing(wait=True)`; then both run in turns, in
pairs, so that whatever else the machine does hits both alike. Where nothing was replaced and XLA compiled the same
program, its ratio is noise: it counts as 1, and how far such ratios are off is told. Others that seem slow run four
times as often. Prints for each the median times, the median ratio of pairs with its quartiles and that of the quickest
runs (above 1: the hook is quicker), the share of the bytes that kernels outside libraries write which kernels of ours
write, how many regions were replaced, the CPU time of compiling without the hook, the time that the hook adds with an
empty cache and the CPU time that it adds with a warm one, and how far results are apart, of the largest. If that is too
far, XLA also runs with each input a rounding off: results that then move as far are chaotic, and tell nothing.
With `JAX_PLATFORMS=cuda,cpu` programs run on a GPU. With --jobs, and on a GPU, several processes compile, and one at a
time runs. Exits with 1 where a program fails, results are too far apart, or a warm cache adds more than it may: 30 % of
XLA's time, or 100 ms.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import statistics
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from scripts.xla_cpu import Leaf, sample_inputs  # isort: skip  # sets up JAX for the CPU, so it comes first

import jax
import numpy as np

import hlo_opt.jax
from hlo_opt.jax import records
from hlo_opt.jax.regions import kernels_write
from scripts.bench import coupled_loops, loop_programs  # noqa: F401  # the loops of the table
from scripts.bench.host_programs import PROGRAMS
from scripts.bench.loop_table import LOOPS
from scripts.bench.other_programs import OTHERS
from scripts.bench.side_by_side import Queue, started
from scripts.bench.written_programs import WRITTEN
from scripts.programs import all_cases, cartpole
from scripts.programs.case import Arg, Case, f32

STEPS = 500
SLOW = 0.95
"""The ratio below which a program is slower with the hook."""

FAR = 2e-2
"""How far results may be apart, of the largest of an array: programs round to bf16, and threshold."""

DRAWS = 8
"""How often inputs are moved by a rounding, to learn how far results follow."""

ROLLOUT = Case(
    "cartpole_rollout",
    lambda state: jax.lax.scan(rollout_step, cartpole.State(*state), None, length=STEPS)[0],
    (tuple(f32(cartpole.ENVIRONMENTS, low=-0.05, high=0.05) for _ in range(4)),),
)
"""A pole is pushed to where it falls, in 2,048 environments."""


def rollout_step(state: Any, _: None) -> Any:
    """One step; who is over starts again from the middle."""
    fresh = cartpole.State(*(jax.numpy.full_like(column, 0.01) for column in state))
    action = (state.angle > 0).astype(jax.numpy.int32)
    return cartpole.step_separate(state, action, fresh)[0], None


def cases(which: str) -> list[Case]:
    """The programs of a list."""
    loops = [found.case for found in LOOPS]
    programs = [c for c in all_cases().values() if c.mesh is None and c.platform == "cuda" and not c.settings]
    runnable = [c for c in programs if c.skip is None and c.twin is None]
    kernels = [ROLLOUT, *PROGRAMS]
    lists = {"loops": [ROLLOUT, *loops], "programs": runnable, "kernels": kernels, "others": list(OTHERS)}
    return {**lists, "written": list(WRITTEN)}[which]


@dataclass(frozen=True)
class Result:
    """What a row shows."""

    name: str
    xla_us: float
    ours_us: float
    ratio: float
    lower: float
    upper: float
    quickest: float
    share: float
    replaced: int
    compile_ms: float
    first_ms: float
    warm_ms: float
    apart: float
    is_same: bool
    is_chaotic: bool

    @property
    def gain(self) -> float:
        """The ratio; 1 where both are the same program."""
        return 1.0 if self.is_same else self.ratio

    @property
    def is_wrong(self) -> bool:
        """Whether results are further apart than roundings explain."""
        return not (self.apart <= FAR or self.is_chaotic)

    @property
    def is_slow_to_compile(self) -> bool:
        """Whether the hook adds more with a warm cache than it may."""
        return self.warm_ms > max(0.3 * self.compile_ms, 100.0)

    def __str__(self) -> str:
        return (
            f"{self.name:28} XLA {self.xla_us:10.1f} us  hook {self.ours_us:10.1f} us  ratio {self.ratio:6.2f} "
            f"({self.lower:.2f} to {self.upper:.2f}; quickest {self.quickest:.2f})  share {self.share:4.0%}  "
            f"{'the same program' if self.is_same else f'{self.replaced} regions'}  "
            f"compiled in {self.compile_ms:5.0f} ms, +{self.first_ms:6.0f}, warm +{self.warm_ms:4.0f}  apart "
            f"{self.apart:.1e}{' chaotic' if self.is_chaotic else ''}"
        )


def timed(action: Callable[[], object]) -> float:
    """Wall seconds of one call."""
    start = time.perf_counter()
    jax.block_until_ready(action())
    return time.perf_counter() - start


def apart(ours: Sequence[Any], theirs: Sequence[Any]) -> float:
    """The greatest difference, of the largest magnitude in an array; where only one is no number, infinity."""
    worst = 0.0
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        x, y = (np.asarray(v).astype(np.complex128 if np.iscomplexobj(v) else np.float64) for v in (a, b))
        same = (x == y) | (np.isnan(x) & np.isnan(y))
        if not same.all():
            scale = np.abs(y[np.isfinite(y)]).max(initial=0) or 1.0
            difference = np.where(same, 0, np.abs(x - y) / scale)
            worst = max(worst, float(np.where(np.isfinite(difference), difference, np.inf).max()))
    return worst


def is_chaotic(run: Callable[..., Any], given: Sequence[Any], expected: Any, far: float) -> bool:
    """Whether the results of `run` move as far as `far`, by `apart`, where each number of its arguments is a rounding
    off: what computes them in another order may give such results, too."""
    leaves, structure = jax.tree.flatten(given)
    for draw in range(DRAWS if math.isfinite(far) else 0):
        generator = np.random.default_rng(draw)
        moved = [jax.device_put(rounded_off(np.asarray(a), generator)) for a in leaves]
        if apart(run(*jax.tree.unflatten(structure, moved)), expected) >= far:
            return True
    return False


def rounded_off(array: np.ndarray[Any, Any], generator: np.random.Generator) -> np.ndarray[Any, Any]:
    """An array whose floating-point numbers are each a rounding larger or smaller; others stay."""
    if not jax.numpy.issubdtype(array.dtype, jax.numpy.inexact):
        return array
    rounding = float(jax.numpy.finfo(array.dtype).eps)
    wide = array.astype(np.complex128 if np.iscomplexobj(array) else np.float64)
    return (wide * (1 + rounding * generator.choice([-1.0, 1.0], array.shape))).astype(array.dtype)


def measure(
    case: Case,
    rounds: int,
    seconds: float,
    min_saving_us: float,
    lines: bool = False,
    alone: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> Result:
    """One program. `lines`: print what the hook says of it. Runs are `alone`."""
    leaves = case.leaves()
    drawn = sample_inputs([Leaf(a.shape, np.dtype(jax.numpy.dtype(a.dtype)), a.low, a.high) for a in leaves], seed=0)
    with jax.enable_x64(case.x64):
        structure = jax.tree.structure(case.args, is_leaf=lambda x: isinstance(x, Arg))
        given = jax.tree.unflatten(structure, [jax.device_put(a) for a in drawn])

        def compiled() -> tuple[Any, float]:
            lowered = jax.jit(lambda *a: case.function(*a)).lower(*given)
            start = time.process_time()
            return lowered.compile(), (time.process_time() - start) * 1e3

        plain, compile_ms = compiled()
        with hlo_opt.jax.fusing(min_saving_us=min_saving_us, wait=True) as report:
            ours, _ = compiled()
        records.forget()
        with hlo_opt.jax.fusing(min_saving_us=min_saving_us, wait=True) as again:
            compiled()
            hlo_opt.jax.wait()  # for what the first compilation had no time for
        if lines:
            print(report)
        is_same = not report.replaced and _compiled_text(ours) == _compiled_text(plain)
        runs: tuple[Callable[[], Any], Callable[[], Any]] = (lambda: ours(*given)), (lambda: plain(*given))
        with alone():
            results = [jax.block_until_ready(run()) for run in runs]
            pairs = in_turns(*runs, rounds, seconds)
            if not is_same and statistics.median(b / a for a, b in pairs) < SLOW:
                pairs += in_turns(*runs, 4 * rounds, 4 * seconds)
        difference = apart(*results)
        chaotic = difference > FAR and is_chaotic(plain, given, results[1], difference)
        total = kernels_write(hlo_opt.parse(plain.as_text()).entry)
    lower, middle, upper = statistics.quantiles([b / a for a, b in pairs], n=4)
    ours_us, xla_us = (statistics.median(column) * 1e6 for column in zip(*pairs, strict=True))
    quickest = min(b for _, b in pairs) / min(a for a, _ in pairs)
    share = min(1.0, sum(found.written for found in report.replaced) / total) if total else 0.0
    times = (compile_ms, report.added_ms, again.added_cpu_ms)
    return Result(
        case.name,
        xla_us,
        ours_us,
        middle,
        lower,
        upper,
        quickest,
        share,
        len(report.replaced),
        *times,
        difference,
        is_same,
        chaotic,
    )


def in_turns(
    ours: Callable[[], object], plain: Callable[[], object], rounds: int, seconds: float
) -> list[tuple[float, float]]:
    """Wall seconds of runs of both, each first in every other pair: so many, and fewer after so long."""
    pairs: list[tuple[float, float]] = []
    for _ in range(5):
        timed(ours)
    end = time.perf_counter() + seconds
    while len(pairs) < rounds and (len(pairs) < 5 or time.perf_counter() < end):
        if len(pairs) % 2:
            pairs.append((timed(ours), timed(plain)))
        else:
            xla = timed(plain)
            pairs.append((timed(ours), xla))
    return pairs


def _compiled_text(executable: Any) -> str:
    """What XLA compiled, without the places that it comes from."""
    return re.sub(r", metadata=\{[^}]*\}", "", executable.as_text().partition("\n\n%")[2])


def _measured(
    arguments: argparse.Namespace,
    chosen: Sequence[Case],
    numbers: Iterable[int],
    alone: Callable[[], AbstractContextManager[None]],
) -> tuple[list[Result], dict[str, str]]:
    """The results of programs, by number, and the faults of those that fail, by name; both are printed and written."""
    results: list[Result] = []
    failed: dict[str, str] = {}
    end = time.monotonic() + arguments.seconds
    for number in numbers:
        if time.monotonic() >= end:
            break
        case = chosen[number]
        each = (arguments.rounds, arguments.each, arguments.min_saving_us, arguments.lines)
        try:
            results.append(measure(case, *each, alone))
            print(results[-1], flush=True)
        except Exception:  # the other programs still run
            failed[case.name] = traceback.format_exc()
            print(f"{case.name:28} fails: {failed[case.name].splitlines()[-1]}", flush=True)
        _write(arguments.out, results, failed)
    return results, failed


def _jobs() -> int:
    """On a GPU three processes for four processors: runs do not need these. Else one."""
    on_gpu = not os.environ["JAX_PLATFORMS"].startswith("cpu")
    return max(1, 3 * (os.cpu_count() or 1) // 4) if on_gpu else 1


def _write(out: Path | None, results: Sequence[Result], failed: Mapping[str, str]) -> None:
    if out is not None:
        rows: list[dict[str, Any]] = [asdict(found) for found in results]
        rows += [{"name": name, "why": why} for name, why in failed.items()]
        figures = {"hook": rows, "device": str(jax.devices()[0])}
        out.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


def main() -> int:
    """The command."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", choices=("loops", "programs", "kernels", "others", "written"), default="loops")
    parser.add_argument("--only", default="", metavar="WORD", help="programs whose names hold a word")
    parser.add_argument("--rounds", type=int, default=40, help="pairs of runs")
    parser.add_argument("--each", type=float, default=3.0, help="seconds after which runs of a program end")
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin no program after so long")
    parser.add_argument("--lines", action="store_true", help="print what the hook says of each program")
    parser.add_argument("--out", type=Path, metavar="FILE.json", help="the figures, complete after each program")
    parser.add_argument("--min-saving-us", type=float, default=1.0)
    parser.add_argument("--jobs", type=int, default=_jobs(), help="processes, of which one at a time runs its programs")
    parser.add_argument("--beside", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    chosen = [case for case in cases(arguments.list) if arguments.only in case.name]
    if arguments.beside is not None:
        queue = Queue(arguments.beside, len(chosen))
        _measured(arguments, chosen, queue, queue.alone)
        return 0
    print(f"{os.cpu_count()} processors, load {os.getloadavg()[0]:.1f} before the start", flush=True)
    if arguments.jobs > 1:
        with tempfile.TemporaryDirectory() as folder:
            parts = started("scripts.bench.jax_hook", sys.argv[1:], Path(folder), arguments.jobs, arguments.seconds)
        order = [case.name for case in chosen]
        rows = sorted((row for part in parts for row in part["hook"]), key=lambda row: order.index(row["name"]))
        results = [Result(**row) for row in rows if "why" not in row]
        failed = {row["name"]: row["why"] for row in rows if "why" in row}
        _write(arguments.out, results, failed)
        if late := [name for name in order if name not in {row["name"] for row in rows}]:
            print(f"not reached in time, or the process died: {', '.join(late)}")
    else:
        results, failed = _measured(arguments, chosen, range(len(chosen)), nullcontext)
    if failed:
        print(f"{len(failed)} fail: {', '.join(failed)}")
    if not results:
        return 1 if failed else 0
    mean = math.exp(statistics.mean(math.log(r.gain) for r in results))
    half = sum(r.share >= 0.5 for r in results)
    print(
        f"{len(results)} programs: geometric mean of the ratios {mean:.2f}, least {min(r.gain for r in results):.2f}, "
        f"{sum(r.gain < SLOW for r in results)} below {SLOW}; of the quickest runs "
        f"{math.exp(statistics.mean(math.log(r.quickest) for r in results)):.2f}, least "
        f"{min(r.quickest for r in results):.2f}; {half} with at least half of the bytes"
    )
    if same := [r.ratio for r in results if r.is_same]:
        print(f"{len(same)} are the same program: ratios from {min(same):.2f} to {max(same):.2f} are noise")
    slow = [r.name for r in results if r.is_slow_to_compile]
    wrong = [r.name for r in results if r.is_wrong]
    chaotic = [r.name for r in results if r.is_chaotic]
    print(f"a warm cache adds too much to {len(slow)}: {', '.join(slow)}" if slow else "a warm cache adds what it may")
    if chaotic:
        print(f"chaotic, further apart than {FAR}, as XLA with inputs a rounding off: {', '.join(chaotic)}")
    print(f"too far apart: {', '.join(wrong)}" if wrong else f"all{' other' if chaotic else ''} results within {FAR}")
    return 1 if slow or wrong or failed else 0


if __name__ == "__main__":
    sys.exit(main())
