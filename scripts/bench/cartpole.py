"""The case study of *Operator Fusion in XLA: Analysis and Evaluation*: python -m scripts.bench.cartpole [--environments N,...] [--steps N] [--rounds N] [--json OUT] [--out FILE] [--doc FILE]

Rollouts of CartPole in the paper's forms: random numbers from a call that no compiler looks into, drawn by `jax.random`, and drawn before; the state as one concatenated array and as four; the
loop unrolled by ten; one under a controller, with nothing random; and one in which a small network chooses the push. For each number of environments: launches of a rollout and its estimated microseconds on an H100 as XLA fuses it (preset
xla-2026) and as we do (default), then milliseconds and environment steps per second on this machine's CPU, by backend `host` and by XLA:CPU in the same run, medians of alternating runs. XLA:CPU has no
such custom call: there its arithmetic twin is timed. Prints a Markdown table; `--doc` writes the case study around it (docs/case-study.md).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
from jax import lax

import hlo_opt
from hlo_opt.analysis.targets import DEFAULT_TARGET
from hlo_opt.analysis.targets import target as find
from hlo_opt.fusion.summary import ModuleSummary, module_summary
from hlo_opt.passes import report_on, run
from hlo_opt.report import explain
from scripts.bench.host_vs_xla_cpu import Result, Work, measure, of_case
from scripts.programs import cartpole
from scripts.programs.case import Case, f32, s32, words
from scripts.programs.random_bits import arithmetic_block, custom_call_block

Make = Callable[[int, int], Case]


def _joined(n: int, steps: int, unroll: int = 1) -> Case:
    fresh = f32(steps, n, 4, low=-cartpole.RESET_RANGE, high=cartpole.RESET_RANGE)
    state = f32(n, 4, low=-0.3, high=0.3)
    return Case("joined", partial(cartpole.scan_joined, unroll=unroll), (state, s32(steps, n), fresh))


def _separate(n: int, steps: int, unroll: int = 1) -> Case:
    column = f32(n, low=-0.3, high=0.3)
    fresh = f32(steps, n, low=-cartpole.RESET_RANGE, high=cartpole.RESET_RANGE)
    state = cartpole.State(column, column, column, column)
    return Case("separate", partial(cartpole.scan_separate, unroll=unroll), (state, s32(steps, n), cartpole.State(fresh, fresh, fresh, fresh)))  # fmt: skip


def _random(n: int, steps: int) -> Case:
    return Case("random", partial(cartpole.scan_random, steps=steps), (f32(n, 4, low=-0.3, high=0.3), words(2)))


def _call(n: int, steps: int) -> Case:
    state = f32(n, 4, low=-0.3, high=0.3)
    return Case("call", partial(cartpole.scan_block, block=custom_call_block), (state, s32(steps, n), words(2)))


def _arithmetic(n: int, steps: int) -> Case:
    state = f32(n, 4, low=-0.3, high=0.3)
    return Case("arithmetic", partial(cartpole.scan_block, block=arithmetic_block), (state, s32(steps, n), words(2)))


def _controlled(n: int, steps: int) -> Case:
    near = f32(n, low=-0.1, high=0.1)
    return Case("controlled", partial(cartpole.controlled, steps=steps), (cartpole.State(near, near, near, near),))


def _with_policy(state: jax.Array, first: jax.Array, second: jax.Array, *, steps: int) -> jax.Array:
    """Many steps in which a small network sees the state and chooses the push."""

    def body(_: int, state: jax.Array) -> jax.Array:
        votes = jnp.tanh(state @ first) @ second
        columns = cartpole.State(state[:, 0], state[:, 1], state[:, 2], state[:, 3])
        moved = cartpole.advance(columns, cartpole.force_of(jnp.where(votes[:, 1] > votes[:, 0], 1, 0)))
        return jnp.stack(moved, axis=1)

    last: jax.Array = lax.fori_loop(0, steps, body, state)
    return last


def _policy(n: int, steps: int) -> Case:
    arguments = f32(n, 4, low=-0.1, high=0.1), f32(4, 16), f32(16, 2)
    return Case("policy", partial(_with_policy, steps=steps), arguments)


FORMS: dict[str, tuple[Make, Make]] = {
    "random numbers by a custom call": (_call, _arithmetic),
    "random numbers by jax.random": (_random, _random),
    "random numbers before, joined state": (_joined, _joined),
    "four arrays": (_separate, _separate),
    "four arrays, unrolled by 10": (partial(_separate, unroll=10), partial(_separate, unroll=10)),
    "under a controller": (_controlled, _controlled),
    "a network of 16 units chooses": (_policy, _policy),
}
"""What is fused, and what is timed."""


@dataclass(frozen=True)
class Row:
    """A form with a number of environments: launches and microseconds on the device by both presets, and milliseconds on the CPU."""

    form: str
    environments: int
    steps: int
    xla: ModuleSummary
    ours: ModuleSummary
    timed: Result

    @property
    def cells(self) -> list[str]:
        """As the table shows it."""
        done = self.environments * self.steps
        host, cpu = self.timed.host_us, self.timed.xla_us
        return [
            self.form,
            f"{self.environments:,}",
            f"{self.xla.launches:,}",
            f"{self.ours.launches:,}",
            f"{self.xla.est_us:,.0f}",
            f"{self.ours.est_us:,.1f}",
            f"{host / 1e3:.3g}",
            f"{cpu / 1e3:.3g}",
            f"{self.timed.ratio:.2f}",
            f"{done / host * 1e6:.2g}",
            f"{done / cpu * 1e6:.2g}",
        ]


TITLES = [
    "form",
    "environments",
    "launches, XLA",
    "ours",
    "us on the device, XLA",
    "ours",
    "ms on the CPU, host",
    "XLA:CPU",
    "times quicker",
    "steps a second, host",
    "XLA:CPU",
]


def row_of(form: str, environments: int, steps: int, rounds: int, seconds: float) -> Row:
    """Count, price and time a form."""
    fused, timed = FORMS[form]
    text = of_case(fused(environments, steps)).text
    device = find(DEFAULT_TARGET)
    xla, ours = (
        module_summary(hlo_opt.fuse(hlo_opt.parse(text), preset=p)[0], device) for p in ("xla-2026", "default")
    )
    found = of_case(timed(environments, steps))
    work = Work(form, found.text, found.parameters)
    return Row(form, environments, steps, xla, ours, measure(work, rounds, seconds))


def table(rows: Sequence[Row]) -> str:
    """Markdown."""
    lines = [TITLES, ["---"] * len(TITLES), *(row.cells for row in rows)]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


STORY = """# The case study: CartPole

*Operator Fusion in XLA: Analysis and Evaluation* (Snider and Liang, 2023) asks what keeps XLA from making one kernel of a simulation, and takes CartPole, many environments at once. It finds four things in the
way: a call for random numbers that the compiler cannot look into, a `concatenate` whose result several kernels read, kernels with several results, and the loop, which no kernel outlives. The authors
then write the program anew, step by step: random numbers before the loop, four arrays in the place of one, ten rounds unrolled.

This page is what `hlo-opt` does to the first form by itself. It is made by `{command}`.

## What stands in the way

`hlo-opt explain {dump} --preset xla-2026`: XLA's passes on the naive form, with the lines of the Python program.

```
{before}
```

## What becomes of it

`hlo-opt fuse {dump}`: the loop is one kernel. A thread takes all rounds of an environment, keeps its state in registers, computes the random words where the call stood, and writes the reward of each
round. The fusion keeps the loop, and the proof covers it.

```
{after}
```

## The paper's forms

Launches of a rollout and microseconds on an {device} by price, as XLA fuses it and as we do; then milliseconds on a CPU with {processors} processors, ours and XLA:CPU's in the same run.

{table}
Every form but the unrolled one ends as one launch, the naive ones too: what the authors did by hand is what the kernel does. Unrolling keeps kernels of its own for the arrays that JAX cuts into pieces
of ten rounds.
"""
DUMP = "testdata/dumps/cartpole_scan_custom_call.hlo"


def story(rows: Sequence[Row]) -> str:
    """The case study as a page."""
    module = hlo_opt.parse((Path(__file__).resolve().parents[2] / DUMP).read_text(encoding="utf-8"), filename=DUMP)
    pages = []
    for preset in ("xla-2026", "default"):
        report = report_on(run(module, preset))
        pages.append(str(explain.as_page(report, [], most=0)).rstrip())
    command = "python -m scripts.bench.cartpole " + " ".join(sys.argv[1:])
    return STORY.format(
        command=command,
        dump=DUMP,
        before=pages[0],
        after=pages[1],
        device=find(DEFAULT_TARGET).title,
        processors=os.cpu_count(),
        table=table(rows),
    )


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--environments", default=str(cartpole.ENVIRONMENTS), metavar="N,...")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=30, help="pairs of runs")
    parser.add_argument("--seconds", type=float, default=20.0, help="stop a row after so long")
    parser.add_argument("--json", type=Path, metavar="OUT")
    parser.add_argument("--out", type=Path, metavar="FILE", help="also write the table to it")
    parser.add_argument("--doc", type=Path, metavar="FILE", help="also write the case study around the table")
    given = parser.parse_args()
    sizes = [int(n) for n in given.environments.split(",")]
    rows = []
    for form in FORMS:
        for environments in sizes:
            rows.append(row_of(form, environments, given.steps, given.rounds, given.seconds))
            print(f"{form}, {environments} environments: done", file=sys.stderr, flush=True)
    head = f"# python -m scripts.bench.cartpole {' '.join(sys.argv[1:])}\n# {os.cpu_count()} processors; {given.steps} steps; the device is {find(DEFAULT_TARGET).title}, by price\n\n"
    made = head + table(rows)
    print(made, end="")
    if given.out is not None:
        given.out.write_text(made, encoding="utf-8")
    if given.doc is not None:
        given.doc.write_text(story(rows), encoding="utf-8")
    if given.json is not None:
        given.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
