"""Random well-typed modules: against XLA:CPU and through every preset, or a fused module against itself.

    python -m scripts.random_modules [--count 2000] [--seed 1] [--first 0] [--jobs 2] [--seconds S] [--preset P]...
    [--keep FOLDER]
    python -m scripts.random_modules --fused [--wide] | --host | --cupy | --simplified [--count 2000] [--seed 1] [--jobs
    2] [--preset P]... [--keep FOLDER]

Modules and inputs are those of tests/random_modules/comparable. Alone, modules are drawn by number: the same seed and
number give the same one. What XLA:CPU computes the evaluator must compute, on all devices; what each preset makes of a
module must be proved, read back by XLA too, and give the same bits. What has an effect is answered by `drawn_effects`.
Prints what the modules held, how many fused something, and a failure's seed, number and smallest module: see `swept`.
Floats may differ from XLA's by a tolerance of their type relative to the median size of the output, all else not at
all; a disagreement where XLA's own outputs move by as much when inputs move by a unit in the last place counts as
ill-conditioned; what our own bounds of rounding explain is counted, too. Exit code 1 where anything is wrong, or
nothing of a kind was drawn.

The other ways draw by Hypothesis. With `--fused`, fusing must be proved, and its result, printed, read again and
verified, must give exactly what the module gives. With `--wide`, each fusion pass alone, its options as wide as they
go, must do so too, and the presets with all rules switched off that can be. With `--host`, kernels, built by the C++
compiler, must give what the evaluator gives, and what no kernel and no library computes is counted; sizes are 0, 1,
primes, and those around tile edges. With `--simplified`, the simplify stage must give nearly what the module gives, and
its certificate must hold; the rules that fired are counted. With `--cupy`, the same on a GPU; what backend cupy refuses
is counted.
"""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import dataclasses
import functools
import math
import multiprocessing
import random
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import hlo_opt
from hlo_opt.diag import reason_specs
from hlo_opt.fusion.context import FuseOptions, PassContext
from hlo_opt.ir import edit
from hlo_opt.passes import preset_names
from hlo_opt.passes.dce import DeadCodeElimination
from hlo_opt.passes.simplified import check_certificate, simplified
from hlo_opt.runtime.executable import NOT_ON_A_GPU
from hlo_opt.text import print_module
from scripts import swept
from scripts.swept import general
from scripts.xla_judge import NUDGES, Array, difference, nudged

CHUNK = 25  # modules that Hypothesis draws in one go; a disagreement ends its chunk
WAYS_OF_A_CHUNK = 4  # ways to fuse its modules, drawn
MOST_STEPS = 10_000  # iterations of all loops of a run: what a wrong kernel makes endless ends
SHRINKING = 30.0  # seconds spent on making a disagreement smaller


@dataclass(frozen=True)
class Way:
    """How a program is fused: by a preset or, where given, by passes; by their rules, or with all switched off that can
    be. A preset leaves out what simplifies: that may add sums up in another order."""

    preset: str = "default"
    passes: str | None = None
    by_rules: bool = True

    def __str__(self) -> str:
        return f"{self.passes or self.preset}{'' if self.by_rules else ' without rules'}"

    def fuse(self, module: hlo_opt.Module) -> hlo_opt.Module:
        off = [] if self.by_rules else [spec.code for spec in reason_specs()]
        how = {"passes": self.passes} if self.passes else {"preset": self.preset, "simplify": "never"}
        return hlo_opt.fuse(module, what_if=off, **how)[0]  # type: ignore[arg-type]


_OUTPUTS = "multi-output-fusion{any-form=true,plain-siblings=true,max-tries=10000}"
_PRICED = "multi-output-fusion{any-form=true,plain-siblings=true,price-siblings=true}"
_HORIZONTAL = (
    "horizontal-loop-fusion{mixed-types=true,max-instructions=10000,max-outputs=10000,max-plain-outputs=10000}"
)
_REDUCTIONS = "horizontal-input-fusion{any-form=true}"
WIDE_PASSES = (
    "instruction-fusion{max-emissions=1000000}",
    "instruction-fusion{may-duplicate=false}",
    "instruction-fusion{may-duplicate=false},fusion-merger{max-emissions=1000000,max-copies=1000000}",
    "variadic-op-splitter{most-operands=2},sort-iota-fusion,priority-fusion,copy-fusion",
    _OUTPUTS,
    _HORIZONTAL,
    _REDUCTIONS,
    f"priority-fusion,cse,dce,{_PRICED},fixpoint({_HORIZONTAL},{_REDUCTIONS},cse,dce)",
    f"inline{{fusions=true}},fixpoint(instruction-fusion,fusion-merger,cse,dce),{_OUTPUTS},copy-fusion,"
    f"fixpoint({_HORIZONTAL},{_REDUCTIONS},cse,dce)",
)


def wide_ways() -> list[Way]:
    """Each fusion pass with its options as wide as they go, and the presets and the passes without rules."""
    alone = [Way(passes=passes) for passes in WIDE_PASSES]
    return [
        *alone,
        *(Way(preset, by_rules=False) for preset in preset_names()),
        Way(passes=WIDE_PASSES[-1], by_rules=False),
    ]


def programs(*, fusible: bool = False, **options: Any) -> Any:
    """A Hypothesis strategy of the tests: programs with a bit of everything, or those of what kernels compute."""
    module = swept.of_tests("random_modules.comparable")
    return (module.fusible_programs if fusible else module.programs)(**options)


# ---- one module


@dataclass
class Disagreement:
    """A module, how it fared, and how large it is."""

    why: str
    text: str

    @property
    def size(self) -> int:
        return len(self.text)


@dataclass
class Tally:
    """What came out of some modules: how many fared how, the opcodes of those that agreed, opcodes that no kernel
    computed on the host, and the smallest disagreement of each chunk."""

    outcomes: collections.Counter[str] = field(default_factory=collections.Counter)
    refusals: collections.Counter[str] = field(default_factory=collections.Counter)
    opcodes: collections.Counter[str] = field(default_factory=collections.Counter)
    fallbacks: collections.Counter[str] = field(default_factory=collections.Counter)
    rules: collections.Counter[str] = field(default_factory=collections.Counter)
    disagreements: list[Disagreement] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        self.outcomes += other.outcomes
        self.refusals += other.refusals
        self.opcodes += other.opcodes
        self.fallbacks += other.fallbacks
        self.rules += other.rules
        self.disagreements += other.disagreements


def against_fused(ways: Sequence[Way], program: Any, tally: Tally) -> str | None:
    """Evaluate a program, what each way of fusing makes of it, and what the next way makes of that; returns how they
    disagree."""
    module, inputs = program.module, program.inputs()
    want = hlo_opt.evaluate(module, inputs, max_steps=MOST_STEPS)
    done: set[str] = set()
    why: str | None = None
    before: Way | None = None
    for way in ways:
        chains = [(way,)] if before is None else [(before, way), (way,)]
        before = way
        for chain in chains:
            try:
                fused = module
                for link in chain:
                    text = print_module(link.fuse(fused))
                    fused = hlo_opt.parse(text)
                if text in done:
                    continue
                done.add(text)
                why = _fused_differs(text, inputs, want)
            except Exception as error:
                why = f"{type(error).__name__}: {error}"
            if why is not None:
                why = f"{', then '.join(map(str, chain))}: {why}"
                _counted(program, tally, why)
                return why
    _counted(program, tally, None)
    return None


def _fused_differs(text: str, inputs: Sequence[Array], want: Sequence[Array]) -> str | None:
    """Whether the text of a fused module does not mean itself when it is read, or gives other values than the module
    did."""
    fused = hlo_opt.parse(text)
    hlo_opt.verify(fused)
    if print_module(fused) != text:
        return "reads as another module than was printed"
    got = hlo_opt.evaluate(fused, inputs)
    same = [_bits(a) == _bits(b) for a, b in zip(got, want, strict=True)]
    return None if all(same) else f"out{same.index(False)} differs when fused"


def against_host(presets: Sequence[str], program: Any, tally: Tally, backend: str = "host") -> str | None:
    """Evaluate a program, and run the kernels of what each preset makes of it on the host or another backend; returns
    how the two disagree."""
    module, inputs = program.module, program.inputs()
    want = hlo_opt.evaluate(module, inputs)
    done: set[str] = set()
    why: str | None = None
    for preset in presets:
        try:
            text = print_module(hlo_opt.fuse(module, preset=preset)[0])
            if text in done:
                continue
            done.add(text)
            executable = hlo_opt.compile(hlo_opt.parse(text), backend=backend, max_steps=MOST_STEPS)
            why = difference(executable(*inputs), want)
            fallbacks = executable.report()["fallbacks"]
        except hlo_opt.HloOptError as error:
            if backend == "cupy" and error.code in NOT_ON_A_GPU:
                tally.refusals[f"{error.code} {general(error.message)}"] += 1
                tally.outcomes["refused by backend cupy"] += 1
                return None
            why, fallbacks = f"{type(error).__name__}: {error}", {}
        except Exception as error:
            why, fallbacks = f"{type(error).__name__}: {error}", {}
        tally.fallbacks.update(fallbacks)
        if why is not None:
            why = f"{preset}: {why}"
            break
    if why is not None and "differ" in why and _is_unsteady(module, inputs, want):
        tally.outcomes["ill-conditioned"] += 1
        return None
    _counted(program, tally, why)
    return why


def _is_unsteady(module: hlo_opt.Module, inputs: Sequence[Array], outputs: Sequence[Array]) -> bool:
    """Whether the outputs move by a quarter of the tolerance when inputs move by a unit in the last place."""
    for seed in range(NUDGES):
        generator = np.random.default_rng(seed)
        moved = hlo_opt.evaluate(module, [nudged(array, generator) for array in inputs])
        if difference(moved, outputs, 0.25) is not None:
            return True
    return False


def against_simplified(program: Any, tally: Tally) -> str | None:
    """Evaluate a program and what the simplify stage makes of it, whose certificate must hold; returns how the two
    disagree."""
    module, inputs = program.module, program.inputs()
    want = hlo_opt.evaluate(module, inputs, max_steps=MOST_STEPS)
    try:
        outcome = simplified(module)
        check_certificate(outcome)
        text = print_module(outcome.module)
        made = hlo_opt.parse(text)
        hlo_opt.verify(made)
        why = "reads as another module than was printed" if print_module(made) != text else None
        why = why or difference(hlo_opt.evaluate(made, inputs, max_steps=MOST_STEPS), want)
        tally.rules.update(step.rule for steps in outcome.context.simplified for step in steps)
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
    if why is not None and "differ" in why and _is_unsteady(module, inputs, want):
        tally.outcomes["ill-conditioned"] += 1
        return None
    _counted(program, tally, why)
    return why


def _bits(array: Array) -> tuple[object, ...]:
    return array.dtype, array.shape, array.tobytes()


def _counted(program: Any, tally: Tally, why: str | None) -> None:
    tally.outcomes["agreed" if why is None else "disagreed"] += 1
    if why is None:
        tally.opcodes.update({i.opcode for c in program.module.computations for i in c.instructions})


# ---- many modules


def chunk(number: int, count: int, seed: int, check: Callable[[Any, Tally], str | None], **options: bool) -> Tally:
    """Draw so many programs and check each; the first disagreement is made small, and ends the chunk."""
    import hypothesis
    from hypothesis import HealthCheck, Phase, given, settings

    tally, found, deadline = Tally(), list[tuple[Disagreement, Any]](), math.inf

    @hypothesis.seed(seed * 100_003 + number)
    @settings(
        max_examples=count, database=None, deadline=None, phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck), report_multiple_bugs=False,
    )  # fmt: skip
    @given(programs(**options))
    def run(program: Any) -> None:
        nonlocal deadline
        if time.monotonic() > deadline:
            return
        why = check(program, Tally() if found else tally)
        if why is not None:
            deadline = min(deadline, time.monotonic() + SHRINKING)
            found.append((Disagreement(why, print_module(program.module)), program))
            raise AssertionError(why)

    try:
        run()
    except (AssertionError, hypothesis.errors.Flaky, BaseExceptionGroup):
        if not found:
            raise
    if found:
        smallest, program = min(found, key=lambda pair: pair[0].size)
        tally.disagreements.append(_cut(program, check) or smallest)
    return tally


def _cut(program: Any, check: Callable[[Any, Tally], str | None]) -> Disagreement | None:
    """The program up to the first instruction of its entry at which a disagreement shows, without what that does not
    need; None where it shows at none."""
    count = len(program.module.entry.instructions)
    for place in range(count):
        module = edit.clone_module(program.module)
        root = list(module.entry.instructions)[place]
        if root.parameter_number is not None or not root.shape.is_array:
            continue
        edit.set_root(module.entry, root)
        DeadCodeElimination().run(module, PassContext(FuseOptions.of()))
        part = dataclasses.replace(program, module=module)
        why = check(part, Tally())
        if why is not None:
            return Disagreement(why, print_module(module))
    return None


def _work(number: int, count: int, seed: int, way: str, presets: Sequence[str], wide: bool) -> Tally:
    """One chunk, in a process of the pool."""
    if way == "fused":
        ways = [*map(Way, presets), *(wide_ways() if wide else ())]
        ways = random.Random(seed * 100_003 + number).sample(ways, min(WAYS_OF_A_CHUNK, len(ways)))
        return chunk(number, count, seed, functools.partial(against_fused, ways), fusible=number % 2 == 1)
    if way == "simplified":
        return chunk(number, count, seed, against_simplified)
    check = functools.partial(against_host, presets, backend=way)
    return chunk(number, count, seed, check, tile_edges=True)


def report(tally: Tally) -> None:
    """Print what came out."""
    families: dict[str, str] = swept.of_tests("random_modules.comparable").FAMILIES
    by_family: dict[str, list[str]] = {}
    for opcode, family in families.items():
        by_family.setdefault(family, []).append(opcode)
    print("modules that agreed, by what is in them:")
    for family, opcodes in by_family.items():
        print(f"  {family}: " + ", ".join(f"{opcode} {tally.opcodes[opcode]}" for opcode in opcodes))
    for reason, number in tally.refusals.most_common():
        print(f"refused {number}: {reason}")
    if tally.rules:
        print("rules that fired: " + ", ".join(f"{rule} {n}" for rule, n in tally.rules.most_common()))
    if tally.fallbacks:
        print("neither kernel nor library: " + ", ".join(f"{o} {n}" for o, n in tally.fallbacks.most_common()))
    for found in tally.disagreements:
        print(f"\ndisagreement: {found.why}\n{found.text}")
    print(", ".join(f"{number} {outcome}" for outcome, number in tally.outcomes.most_common()))


def main() -> int:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    ways = parser.add_mutually_exclusive_group()
    ways.add_argument("--fused", dest="way", action="store_const", const="fused")
    ways.add_argument("--host", dest="way", action="store_const", const="host")
    ways.add_argument("--simplified", dest="way", action="store_const", const="simplified")
    ways.add_argument("--cupy", dest="way", action="store_const", const="cupy")
    parser.add_argument(
        "--preset",
        action="append",
        choices=preset_names(),
        help="all where none is named",
    )
    parser.add_argument("--first", type=int, default=0, help="the number of the first module")
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin with no further modules after so long")
    parser.add_argument("--wide", action="store_true", help="of --fused: more than what presets do")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="save the disagreements there")
    options = parser.parse_args()
    if options.way is None:
        numbers = range(options.first, options.first + options.count)
        presets = options.preset or preset_names()
        counts = swept.sweep(options.seed, numbers, presets, options.jobs, options.seconds, options.keep)
        return swept.report(counts)
    tally = Tally()
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(options.jobs, context) as pool:
        futures = [
            pool.submit(
                _work,
                number,
                min(CHUNK, options.count - number * CHUNK),
                options.seed,
                options.way,
                options.preset or preset_names(),
                options.wide,
            )
            for number in range(-(-options.count // CHUNK))
        ]
        for future in futures:
            tally.add(future.result())
    report(tally)
    if options.keep is not None:
        options.keep.mkdir(parents=True, exist_ok=True)
        for number, found in enumerate(tally.disagreements):
            (options.keep / f"{number}.hlo").write_text(found.text, encoding="utf-8")
    return int(bool(tally.disagreements))


if __name__ == "__main__":
    sys.exit(main())
