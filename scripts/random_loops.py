"""Random loops against XLA:CPU: python -m scripts.random_loops [--count N] [--seed S] [--wild | --cell | --window]
[--always] [--forced KIND [--block N]] [--lanes] [--apart] [--keep FOLDER]

Each loop (`tests/random_loops.py`; with `--wild` `tests/random_wild_loops.py`, with `--cell`
`tests/random_cell_loops.py`, with `--window` `tests/random_window_loops.py`) is fused, run by our kernels in both
forms, and compared bit by bit with what the op table says and with what XLA:CPU makes of the loop as it is (not with
`--apart`, which needs no jaxlib). `--always` fuses each loop that has a plan, whether it pays or not; `--forced` does
so with plans of one kind alone, in blocks of N threads, so that small loops have several; `--lanes` plans for a
processor's vectors. Prints how many became one launch, and each that differs, with its seed; `--keep` saves these.
Exits 1 where one does.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, TypeAlias
from unittest import mock

import numpy as np

import hlo_opt
from hlo_opt.analysis.targets import DEFAULT_TARGET, DeviceTarget, InLanes, target
from hlo_opt.evaluate.inputs import module_inputs
from hlo_opt.ops.sets import LOOPS
from hlo_opt.passes import while_fusion
from hlo_opt.plans import block_loop, block_search, grid_loop, grid_search, kinds
from hlo_opt.runtime.host.library import HostDevice, HostLibrary, KernelForm
from hlo_opt.runtime.numpy import Reference
from hlo_opt.runtime.schedule import Schedule, build_schedule
from hlo_opt.runtime.schedule.executor import Executor

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

PASSES = "while-fusion,dce"
FORMS: tuple[KernelForm, ...] = ("plain", "lanes")
TOGETHER = 40
"""Loops whose kernels are built together, which is quicker than one by one."""


@dataclass
class Loop:
    """A loop, fused, with what it is to give."""

    seed: int
    text: str
    fused: hlo_opt.Module
    schedule: Schedule
    inputs: list[Array]
    wanted: list[Array]

    @classmethod
    def of(cls, seed: int, text: str, device: str | DeviceTarget = DEFAULT_TARGET) -> Loop:
        module = hlo_opt.parse(text)
        inputs = [whole(a) for a in module_inputs(module, seed=seed)]
        fused, _ = hlo_opt.fuse(module, passes=PASSES, target=device)  # type: ignore[arg-type]
        wanted = [np.asarray(a) for a in hlo_opt.evaluate(module, inputs)]
        return cls(seed, text, fused, build_schedule(fused), inputs, wanted)

    @property
    def is_alone(self) -> bool:
        """Whether it became one launch."""
        return any(i.opcode == "fusion" for i in self.fused.entry.instructions)

    def run(self, library: HostLibrary) -> list[Array]:
        """What its kernels give."""
        device = HostDevice(library, Reference(self.fused))
        return [np.asarray(a) for a in Executor(self.schedule, device, None).run(self.inputs)]


def whole(array: Array) -> Array:
    """The array in whole numbers, so that sums come out the same in any order."""
    return array if array.dtype.kind in "biu" else np.rint(array.astype(np.float64) * 4).astype(array.dtype)


def is_same(got: Sequence[Array], wanted: Sequence[Array]) -> bool:
    """Whether arrays are equal, one by one."""
    return all(np.array_equal(g, w) for g, w in zip(got, wanted, strict=True))


def differences(loops: Sequence[Loop]) -> list[str]:
    """What kernels give otherwise than the op table, each with the loop's seed and the kernels' form."""
    kernels = [kernel for loop in loops for kernel in loop.schedule.kernels]
    found = []
    for form in FORMS:
        library = HostLibrary(kernels, form=form)
        found += [f"seed {loop.seed}: {form} differs" for loop in loops if not is_same(loop.run(library), loop.wanted)]
    return found


@contextmanager
def always(kind: str | None = None, block: int | None = None) -> Iterator[None]:
    """Let the pass take each loop that has a plan, whatever it takes: of one kind only where one is named, with blocks
    of so many threads."""
    with ExitStack() as stack:

        def put(where: object, name: str, value: object) -> None:
            stack.enter_context(mock.patch.object(where, name, value))

        put(while_fusion._Candidate, "pays", lambda self, context: self.plan(context) is not None)
        if kind is not None:
            put(kinds, "KINDS", [k for k in kinds.KINDS if k.name == kind or k.heroes != LOOPS])
        if block is not None:
            for module in (block_loop, block_search, grid_loop, grid_search):
                put(module, "BLOCK", block)
        yield


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    forms = parser.add_mutually_exclusive_group()
    for form in ("wild", "cell", "window"):
        forms.add_argument(f"--{form}", dest="form", action="store_const", const=form)
    parser.add_argument("--always", action="store_true")
    parser.add_argument("--forced", metavar="KIND", choices=[k.name for k in kinds.KINDS if k.heroes == LOOPS])
    parser.add_argument("--block", type=int)
    parser.add_argument("--lanes", action="store_true")
    parser.add_argument("--apart", action="store_true")
    parser.add_argument("--keep", type=Path)
    given = parser.parse_args()
    name = f"random_{given.form}_loop" if given.form else "random_loop"
    random_loop = getattr(importlib.import_module(f"tests.{name}s"), name)
    device = InLanes.of(target(DEFAULT_TARGET)) if given.lanes else target(DEFAULT_TARGET)
    alone, wrong = 0, 0
    for first in range(given.seed, given.seed + given.count, TOGETHER):
        seeds = range(first, min(first + TOGETHER, given.seed + given.count))
        with always(given.forced, given.block) if given.always or given.forced else nullcontext():
            loops = [Loop.of(seed, random_loop(Random(seed)), device) for seed in seeds]
        alone += sum(loop.is_alone for loop in loops)
        found = differences(loops)
        if not given.apart:
            from scripts.xla_cpu import Program

            for loop in loops:
                if not is_same(Program(loop.text, optimized=False)(loop.inputs), loop.wanted):
                    found.append(f"seed {loop.seed}: XLA:CPU differs")
        wrong += len(found)
        for line in found:
            print(line, flush=True)
        if given.keep is not None:
            given.keep.mkdir(parents=True, exist_ok=True)
            for loop in loops:
                if any(line.startswith(f"seed {loop.seed}:") for line in found):
                    (given.keep / f"{loop.seed}.hlo").write_text(loop.text, encoding="utf-8")
    against = "the op table" if given.apart else "the op table and XLA:CPU"
    print(f"{given.count} loops, {alone} of them one launch, {wrong} differ from {against}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
