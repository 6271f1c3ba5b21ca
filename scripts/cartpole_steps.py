"""CartPole step by step on three backends: python -m scripts.cartpole_steps [FORM...] [--environments N] [--steps N]
[--compiled lanes|plain]

For each form of the rollout (`bench/cartpole_forms.py`; those with random numbers inside, where none is named) a loop
of a few rounds is fused with preset `default`, and then cut to one round, so that what runs is the loop's own kernel.
Step by step the three get the same state: NumPy (what the op table says), `host`, and XLA:CPU, which runs the
arithmetic twin of the form with a custom call. NumPy's state after the round is what the next step starts from; actions
and fresh states are drawn anew.

Prints for each two of them the largest distance in ULP over all steps, what the declared tolerance of the operations
allows there (`hlo_opt.runtime.rounding`; XLA:CPU may round at other places, since it contracts products and sums), and
the largest part of the tolerance that is used. Exits 1 where any element is beyond it.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

import hlo_opt
from hlo_opt.evaluate import unflatten
from hlo_opt.ops.spread import leaves
from hlo_opt.runtime.differences import Enclosure, compare_output, ulp_distance
from hlo_opt.runtime.host.library import KernelForm
from hlo_opt.runtime.numpy import Reference
from hlo_opt.runtime.rounding.analysis import Analysis, SpreadInterpreter
from hlo_opt.runtime.rounding.verdict import enclosures

# isort: skip  # needs JAX, which the line above sets up for the CPU
from scripts.bench.cartpole_forms import FORMS, Make
from scripts.bench.host_vs_xla_cpu import Work, of_case
from scripts.xla_cpu import Leaf, Program, sample_inputs

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

ROUNDS = 43
"""Rounds of the loop that is fused: too many to be written out, and a number that nothing else in the texts is."""
LIMIT = re.compile(rf"\bconstant\({ROUNDS}\)")
USUAL = ("random", "call")
CARRIED = {"random": 2, "call": 2, "joined": 1, "separate": 4, "controlled": 4, "policy": 1}
"""How many results of a form, the first ones, are the state that the next round starts from."""
TAKEN = {"call": (0, 2)}
"""Which parameters the state is, where they are not the first."""


@dataclass
class Pair:
    """What two backends differ by over all steps: the largest distance in ULP, what is allowed there, the largest part
    of what is allowed that is used, and how many elements are beyond it, hang on a tie, or were compared."""

    left: str
    right: str
    worst: float = 0.0
    allowed: float = 0.0
    share: float = 0.0
    beyond: int = 0
    open: int = 0
    elements: int = 0
    first: str = ""

    def add(self, step: int, left: Sequence[Array], right: Sequence[Array], bounds: Sequence[Enclosure]) -> None:
        """Compare the results of a step."""
        for number, (a, b, bound) in enumerate(zip(left, right, bounds, strict=True)):
            found = compare_output(number, a, b, bound)
            self.beyond += found.differing
            self.open += found.set_aside
            self.elements += found.elements
            self.share = max(self.share, found.share)
            if found.first is not None and not self.first:
                self.first = f"step {step}: {found.first}"
            if a.dtype.kind == "f":
                self.measure(a, b, bound)

    def measure(self, a: Array, b: Array, bound: Enclosure) -> None:
        """Note the largest distance of elements that have a bound."""
        distance = np.where(bound.set_aside(), 0.0, ulp_distance(a, b))
        if distance.max(initial=0.0) > self.worst:
            place = np.unravel_index(int(distance.argmax()), distance.shape)
            end = bound.high if b[place] > a[place] else bound.low
            self.worst = float(distance[place])
            self.allowed = float(ulp_distance(a[place], end[place]))

    def __str__(self) -> str:
        return (
            f"{self.left} and {self.right}: at most {self.worst:.0f} ULP apart, where {self.allowed:.0f} are declared; "
            f"{self.share:.0%} of the tolerance used; {self.beyond} of {self.elements:,} elements beyond it, "
            f"{self.open} on a tie"
        )


@dataclass
class Steps:
    """A form, compiled for all three."""

    form: str
    module: hlo_opt.Module
    host: hlo_opt.Executable
    program: Program
    parameters: Sequence[Leaf]

    def __post_init__(self) -> None:
        self.numpy = Reference(self.module)
        self.analysts = [SpreadInterpreter(np.random.default_rng(0), rewritten=is_so) for is_so in (False, True)]

    @classmethod
    def of(cls, form: str, environments: int, compiled: KernelForm = "lanes") -> Steps:
        """Fuse the loop, and cut it."""
        work = _work(FORMS[form].fused, environments)
        fused, _ = hlo_opt.fuse(hlo_opt.parse(work.text, filename=work.name))
        executable = hlo_opt.compile(hlo_opt.parse(cut(str(fused))), backend="host", form=compiled)
        assert work.parameters is not None
        twin = cut(_work(FORMS[form].timed, environments).text)
        return cls(form, hlo_opt.parse(cut(work.text)), executable, Program(twin), work.parameters)

    def run(self, steps: int) -> list[Pair]:
        """As many steps, from a drawn state on."""
        pairs = [Pair("numpy", "host"), Pair("numpy", "XLA:CPU"), Pair("host", "XLA:CPU")]
        count = CARRIED[self.form]
        taken = TAKEN.get(self.form, tuple(range(count)))
        state: Sequence[Array] | None = None
        for step in range(steps):
            inputs = sample_inputs(self.parameters, seed=step)
            for place, array in zip(taken, state or (), strict=state is not None):
                inputs[place] = array
            wanted, ours, theirs = self.results(inputs)
            own, moved = (self.allowed(analyst, inputs, wanted) for analyst in self.analysts)
            wanted, ours, theirs = (list(map(written, of)) for of in (wanted, ours, theirs))
            pairs[0].add(step, wanted, ours, own)
            pairs[1].add(step, wanted, theirs, moved)
            pairs[2].add(step, ours, theirs, moved)
            state = wanted[:count]
        return pairs

    def allowed(self, analyst: SpreadInterpreter, inputs: Sequence[Array], wanted: Sequence[Array]) -> list[Enclosure]:
        """What the results of another backend may be."""
        entry = self.module.entry
        value = analyst.call(entry, unflatten([p.shape for p in entry.parameters], inputs))
        found = enclosures(Analysis(list(leaves(value)), analyst.ties()), wanted)
        return [Enclosure(written(bound.low), written(bound.high)) for bound in found]

    def results(self, inputs: Sequence[Array]) -> tuple[list[Array], list[Array], list[Array]]:
        """What NumPy, `host` and XLA:CPU give."""
        wanted = [np.asarray(a) for a in self.numpy.run(list(inputs))]
        ours = [np.asarray(a) for a in self.host(*inputs)]
        launches = self.host.report()["launches"]
        assert launches == 1, f"{self.form}: a round takes {launches} launches"
        return wanted, ours, self.program(inputs)


def _work(make: Make, environments: int) -> Work:
    return of_case(make(environments, ROUNDS))


def written(array: Array) -> Array:
    """The part of a result that the round writes: of what all rounds would write, the first row."""
    return array[:1] if array.shape[:1] == (ROUNDS,) else array


def cut(text: str) -> str:
    """The text with a loop of one round."""
    made, count = LIMIT.subn("constant(1)", text)
    assert count == 1, f"{count} limits of a loop"
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("forms", nargs="*", metavar="FORM", default=USUAL, help=f"of {', '.join(CARRIED)}")
    parser.add_argument("--environments", type=int, default=2048, metavar="N")
    parser.add_argument("--steps", type=int, default=1000, metavar="N")
    parser.add_argument("--compiled", choices=("lanes", "plain"), default="lanes")
    given = parser.parse_args(arguments)
    beyond = 0
    for form in given.forms:
        pairs = Steps.of(form, given.environments, given.compiled).run(given.steps)
        print(f"{FORMS[form].title}: {given.steps} steps of {given.environments} environments")
        for pair in pairs:
            print(f"  {pair}" + (f"\n    {pair.first}" if pair.first else ""), flush=True)
            beyond += pair.beyond
    return int(beyond > 0)


if __name__ == "__main__":
    sys.exit(main())
