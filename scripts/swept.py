"""One program after the other (tests/random_modules/comparable/drawn.py), each against XLA:CPU and through every
preset.

What XLA:CPU computes is what the evaluator must compute: on all devices of a program. What each preset makes of it must
be proved, be read again as it was printed, by XLA's parser too, verify, and give the same bits on the same inputs.
Where a program has effects, the world answers both alike, must be told the same, and nothing may come loose from what
it had to wait for: see `drawn_effects`.
"""

from __future__ import annotations

import collections
import concurrent.futures
import importlib
import math
import multiprocessing
import re
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import hlo_opt
from hlo_opt.ir import Attribute, Instruction, Module, Raw, Shape, edit
from hlo_opt.passes import run
from hlo_opt.runtime.differences import LOOSE_SHARE
from hlo_opt.runtime.rounding.analysis import analyse_devices
from hlo_opt.runtime.rounding.verdict import compared
from hlo_opt.text import print_module
from scripts import drawn_effects
from scripts.minimise import smallest
from scripts.xla_judge import Array, Judge, difference

TESTS = Path(__file__).resolve().parent.parent / "tests"
EFFECTS = (
    "rng", "rng-get-and-update-state", "infeed", "outfeed", "send", "send-done", "recv", "recv-done",
    "custom-call with a side effect", "custom-call", "call that holds an effect", "while that holds an effect",
    "conditional that holds an "
    "effect", "effect that waits for another", "effect whose value is dead", "two effects that look alike",
)  # fmt: skip
"""What is counted of modules with effects."""
DEVICES = tuple(f"{r} replicas x {p} partitions" for r, p in ((2, 1), (4, 1), (1, 2), (2, 2), (1, 4)))
_NESTED = (
    "while, known trip count", "while, computed trip count", "while, trip count that depends on data",
    "conditional, by a truth value",
    "conditional, one branch", "conditional, several branches", "call", "call, made twice", "fusion",
)  # fmt: skip
FORMS = (
    *_NESTED, *(f"{form}, nested" for form in _NESTED), "map, one operation", "map, several operations",
    "reduce, one operation",
    "reduce, several operations", "reduce-window, one operation", "reduce-window, several operations",
    "scatter, one operation",
    "scatter, several operations", "sort, one operation", "sort, several operations", "scan, one operation",
    "select-and-scatter, one operation",
)  # fmt: skip
"""Of control flow, and of computations that other operations call."""
KINDS_OF_PROGRAMS = 6
"""Every program whose number is a multiple of this has effects."""
CHUNK = 24
PARTS = 12
"""Chunks after which a process is started anew, for its memory."""
SHRUNK = 2
"""Failures of one kind that each process makes smaller."""
SMALLER = 40.0
"""Seconds spent on making a failure smaller."""
MOST_STEPS = 100_000
"""Iterations of all loops of a run: what a cut makes endless ends."""
PLANS_OF = 6
"""Of every so many modules, the kernels are planned and their kinds counted."""

_FREE = frozenset({"parameter", "constant", "tuple", "get-tuple-element"})


@dataclass
class Failure:
    """What went wrong with which program, and the smallest that shows it."""

    seed: int
    number: int
    why: str
    text: str


@dataclass
class Counts:
    """What some programs held, and how they fared."""

    outcomes: collections.Counter[str] = field(default_factory=collections.Counter)
    kinds: collections.Counter[str] = field(default_factory=collections.Counter)
    effects: collections.Counter[str] = field(default_factory=collections.Counter)
    devices: collections.Counter[str] = field(default_factory=collections.Counter)
    forms: collections.Counter[str] = field(default_factory=collections.Counter)
    opcodes: collections.Counter[str] = field(default_factory=collections.Counter)
    plans: collections.Counter[str] = field(default_factory=collections.Counter)
    fused: collections.Counter[str] = field(default_factory=collections.Counter)
    refusals: collections.Counter[str] = field(default_factory=collections.Counter)
    failures: list[Failure] = field(default_factory=list)

    def add(self, other: Counts) -> None:
        for name, value in vars(other).items():
            own = getattr(self, name)
            if isinstance(own, list):
                own += value
            else:
                own.update(value)


class InvalidError(Exception):
    """The program itself is none."""


def of_tests(name: str) -> Any:
    """A module of the tests."""
    if str(TESTS) not in sys.path:
        sys.path.append(str(TESTS))
    return importlib.import_module(name)


def drawn(seed: int, number: int) -> tuple[Any, str]:
    """A program of the tests by its number, and its kind."""
    made: tuple[Any, str] = of_tests("random_modules.comparable.drawn").program(seed, number)
    return made


def general(reason: str) -> str:
    """A reason without the names and numbers of one module."""
    line = re.sub(r"%?[\w.\-]+ = .*", "...", reason.strip().split("\n")[0])
    return re.sub(r"\d+", "#", line)[:110]


# ---- one program


def judged(
    program: Any, presets: Sequence[str], judge: Judge | None, counts: Counts, plans: bool = False
) -> str | None:
    """What is wrong with a program; None where nothing is. Raises InvalidError for one that does not verify."""
    text = print_module(program.module)
    try:
        module = hlo_opt.parse(text)
        hlo_opt.verify(module)
    except hlo_opt.HloOptError as error:
        raise InvalidError(str(error)) from error
    inputs = [program.inputs(device) for device in range(math.prod(drawn_effects.counts(module)))]
    try:
        before = drawn_effects.run(module, inputs, max_steps=MOST_STEPS)
    except hlo_opt.EvaluationError as error:
        return f"evaluate: {error}"
    why = None
    if judge is not None and not drawn_effects.has_effects(module):
        why = _against_xla(judge, module, inputs, before.outputs, counts)
    read_by_xla = _xla_reads(text)
    done: set[str] = set()
    for preset in presets if why is None else ():
        try:
            outcome = run(module, preset, own_passes=True)  # the simplify stage may add sums up in another order
            fused = outcome.module
            counts.fused[preset] += fuses(module, fused)
            again = print_module(fused)
            if again in done:
                continue
            done.add(again)
            why = _as_before(before, again, inputs, read_by_xla)
            if why is not None and not outcome.pipeline.preserves_graph:
                why = _rounded_otherwise(module, preset, before, again, inputs, why)
                counts.outcomes["rounded otherwise"] += why is None
            if plans and preset == presets[0]:
                _count_plans(hlo_opt.parse(again), counts)
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
        if why is not None:
            return f"{preset}: {why}"
    return why


def _against_xla(
    judge: Judge, module: Module, inputs: Sequence[Sequence[Array]], outputs: Sequence[Array], counts: Counts
) -> str | None:
    text = text_for_xla(module)
    want = judge(text, inputs)
    if isinstance(want, str):
        counts.outcomes["not computed by XLA:CPU"] += 1
        counts.refusals[general(want)] += 1
        return None
    why = difference(outputs, want)
    if why is not None and (judge.is_unsteady(text, inputs, want) or judge.is_unsteady(*_freed(module, inputs), want)):
        counts.outcomes["ill-conditioned on XLA:CPU"] += 1
        return None
    if why is not None and _explains_rounding(module, inputs, outputs, want):
        counts.outcomes["within the bounds of rounding"] += 1
        return None
    counts.outcomes["compared with XLA:CPU"] += 1
    return None if why is None else f"XLA:CPU: {why}"


def _freed(module: Module, inputs: Sequence[Sequence[Array]]) -> tuple[str, list[list[Array]]]:
    """The module's text with the constants of its entry as parameters, and inputs with their values: a module that
    reads constants only has no input to move."""
    module = edit.clone_module(module)
    module.attributes.pop("entry_computation_layout", None)
    given = [list(own) for own in inputs]
    for i in list(module.entry.instructions):
        if i.literal is None or i.literal.is_elided or not i.shape.type.is_float:
            continue
        stand = edit.create_parameter(module.entry, i.name, i.shape, len(module.entry.parameters))
        edit.replace_all_uses(i, stand)
        edit.remove(i)
        for own in given:
            own.append(np.asarray(i.literal.value))
    edit.sort(module.entry)
    return text_for_xla(module), given


def _rounded_otherwise(
    module: Module, preset: str, before: drawn_effects.Run, text: str, inputs: Sequence[Sequence[Array]], why: str
) -> str | None:
    """What is wrong with a fused module whose outputs differ from the original's where passes of the preset may sum in
    another order: the bounds of rounding must explain it, and without these passes every bit must be the same. A module
    with effects has no such bounds, for nobody answers it there: outputs must be near."""
    after = drawn_effects.run(hlo_opt.parse(text), inputs)
    if len(after.outputs) != len(before.outputs):
        return why
    if drawn_effects.has_effects(module):
        is_near = difference(after.outputs, before.outputs) is None
    else:
        is_near = _explains_rounding(module, inputs, before.outputs, after.outputs)
    if not is_near:
        return why
    return _as_before(
        before, print_module(run(module, preset, simplify="never", own_passes=False).module), inputs, False
    )


def _explains_rounding(
    module: Module, inputs: Sequence[Sequence[Array]], outputs: Sequence[Array], want: Sequence[Array]
) -> bool:
    """Whether XLA's outputs are within the bounds that `check` would grant them, and these say something."""
    analyses = analyse_devices(module, inputs, rewritten=True)
    own = len(outputs) // len(inputs)
    for device, found in enumerate(analyses):
        span = slice(device * own, (device + 1) * own)
        reports = compared(module, outputs[span], want[span], found)
        if not all(r.ok and (not r.rounded or r.loose <= LOOSE_SHARE) for r in reports):
            return False
    return True


def text_for_xla(module: Module) -> str:
    """The text, where there are several partitions as XLA takes it: every value is said to be partitioned already."""
    if drawn_effects.counts(module)[1] == 1:
        return print_module(module)
    module = edit.clone_module(module)
    for computation in module.computations:
        for i in computation.instructions:
            edit.set_attribute(i, "sharding", Attribute.of(Raw(_manual(i.shape))))
    return print_module(module)


def _manual(shape: Shape) -> str:
    if not shape.is_tuple:
        return "{manual}"
    return "{" + ", ".join("{manual}" for _ in shape.leaves()) + "}"


def _xla_reads(text: str) -> bool:
    import jaxlib._hlo as hlo

    try:
        hlo.hlo_module_from_text(text)
    except Exception:
        return False
    return True


def _as_before(before: drawn_effects.Run, text: str, inputs: Sequence[Sequence[Array]], read: bool) -> str | None:
    """Whether the text of a fused module means itself when it is read, and does what the module did."""
    fused = hlo_opt.parse(text)
    hlo_opt.verify(fused)
    if print_module(fused) != text:
        return "reads as another module than was printed"
    if read and not _xla_reads(text):
        return "XLA does not read the result"
    return drawn_effects.differs(before, fused, inputs)


# ---- what it held


def fuses(before: Module, after: Module) -> bool:
    """Whether there is a fusion of several operations that was not there before."""
    old = collections.Counter(_bodies(before))
    return any(len(body) > 1 and count > old[body] for body, count in collections.Counter(_bodies(after)).items())


def _bodies(module: Module) -> list[tuple[str, ...]]:
    found = [i.called_by("calls") for c in module.computations for i in c.instructions if i.opcode == "fusion"]
    return [tuple(sorted(i.opcode for i in body.instructions if i.opcode not in _FREE)) for body in found]


def _count_plans(module: Module, counts: Counts) -> None:
    from hlo_opt.runtime.schedule import build_schedule

    for kernel in build_schedule(module).kernels:
        counts.plans.update({f"kernel of kind {kind}": 1 for kind in kernel.kind.split("+")})


def count_held(program: Any, counts: Counts) -> None:
    """Count what a program holds, each thing once."""
    module = program.module
    counts.forms.update(set(program.forms) | _combiners(module))
    every = [i for c in module.computations for i in c.instructions]
    counts.opcodes.update({i.opcode for i in every})
    replicas, partitions = drawn_effects.counts(module)
    if replicas * partitions > 1:
        counts.devices[f"{replicas} replicas x {partitions} partitions"] += 1
    counts.effects.update(_effects(module, every))


def _combiners(module: Module) -> set[str]:
    """Operations that call computations of several instructions, or compare and combine by one."""
    found = set()
    for c in module.computations:
        for i in c.instructions:
            if i.opcode in ("reduce", "reduce-window", "scatter", "sort", "map", "select-and-scatter", "scan"):
                sizes = [sum(m.opcode not in _FREE for m in called.instructions) for called in i.called()]
                found.add(f"{i.opcode}, {'several operations' if max(sizes, default=0) > 1 else 'one operation'}")
    return found


def _effects(module: Module, every: Sequence[Instruction]) -> set[str]:
    acting = drawn_effects.Acting()
    found = set()
    seen: set[tuple[object, ...]] = set()
    for i in every:
        if not drawn_effects.is_answered(i):
            if i.opcode in ("call", "while", "conditional") and acting.instruction(i):
                found.add(f"{i.opcode} that holds an effect")
            continue
        effect = drawn_effects.acts(i)
        found.add(f"{i.opcode}{' with a side effect' if effect and i.opcode == 'custom-call' else ''}")
        if not effect:
            continue
        if any(drawn_effects.is_answered(p) for p in i.control_predecessors):
            found.add("effect that waits for another")
        if not i.users and not i.is_root:
            found.add("effect whose value is dead")
        key = (i.opcode, i.computation, tuple(map(id, i.operands)), str(i.shape))
        if key in seen:
            found.add("two effects that look alike")
        seen.add(key)
    return found


# ---- many


_judge: Judge | None = None
_seen: collections.Counter[str] = collections.Counter()


def chunk(seed: int, numbers: Sequence[int], presets: Sequence[str]) -> Counts:
    """Judge the programs with these numbers, in a process of the pool; XLA lives on for the next ones."""
    global _judge
    _judge = _judge or Judge()
    counts = Counts()
    for number in numbers:
        program, kind = drawn(seed, number)
        counts.kinds[kind] += 1
        count_held(program, counts)
        own = Counts()
        why = judged(program, presets, _judge, own, plans=number % PLANS_OF == 2)
        own.fused["any preset"] += any(own.fused.values())
        counts.add(own)
        counts.outcomes["right" if why is None else "wrong"] += 1
        if why is not None:
            _seen[general(why)] += 1
            shrunk = program if _seen[general(why)] > SHRUNK else _smaller(program, why, presets, _judge)
            counts.failures.append(Failure(seed, number, why, print_module(shrunk.module)))
    return counts


def _smaller(program: Any, why: str, presets: Sequence[str], judge: Judge) -> Any:
    """The smallest program that goes wrong in the same preset, or against XLA."""
    who = why.split(":")[0]
    presets = [p for p in presets if p == who]

    def fails(part: Any) -> bool:
        try:
            found = judged(part, presets, None if presets else judge, Counts())
        except Exception:
            return False
        return found is not None and found.split(":")[0] == who

    return smallest(program, fails, SMALLER)


def sweep(
    seed: int, numbers: Sequence[int], presets: Sequence[str], jobs: int, seconds: float, keep: Path | None = None
) -> Counts:
    """Judge the programs with these numbers in several processes. Failures are printed, and kept in a folder, as they
    are found."""
    counts, end = Counts(), time.monotonic() + seconds
    parts = iter([numbers[at : at + CHUNK] for at in range(0, len(numbers), CHUNK)])
    with concurrent.futures.ProcessPoolExecutor(
        jobs, multiprocessing.get_context("spawn"), max_tasks_per_child=PARTS
    ) as pool:
        running: set[concurrent.futures.Future[Counts]] = set()
        while True:
            while len(running) < jobs and time.monotonic() < end and (part := next(parts, None)) is not None:
                running.add(pool.submit(chunk, seed, part, presets))
            if not running:
                return counts
            done, running = concurrent.futures.wait(running, return_when=concurrent.futures.FIRST_COMPLETED)
            for future in done:
                found = future.result()
                counts.add(found)
                for failure in found.failures:
                    print(f"seed {failure.seed}, number {failure.number}: {failure.why}\n{failure.text}", flush=True)
                    if keep is not None:
                        keep.mkdir(parents=True, exist_ok=True)
                        (keep / f"{failure.seed}.{failure.number}.hlo").write_text(failure.text, encoding="utf-8")
            told = f"{sum(counts.kinds.values())} modules: {_listed(counts.outcomes)}"
            print(f"{told}; fused something {counts.fused['any preset']}", file=sys.stderr, flush=True)


def _listed(counter: collections.Counter[str]) -> str:
    return ", ".join(f"{name} {number}" for name, number in counter.most_common())


def report(counts: Counts) -> int:
    """Print what came out; 1 where something is wrong, or was never drawn."""
    missing = []
    for title, counter, wanted in (
        ("modules by kind", counts.kinds, ()),
        ("with effects", counts.effects, EFFECTS),
        ("on several devices", counts.devices, DEVICES),
        ("with control forms", counts.forms, FORMS),
        ("with opcodes", counts.opcodes, of_tests("random_modules.comparable").FAMILIES),
        ("kernels planned, of one in six modules", counts.plans, ()),
        ("fused something", counts.fused, ()),
        ("not computed by XLA:CPU", counts.refusals, ()),
        ("modules", counts.outcomes, ()),
    ):
        missing += [name for name in wanted if not counter[name]]
        print(f"{title}: {_listed(counter)}")
    if missing:
        print(f"never drawn: {', '.join(missing)}")
    few = counts.fused["any preset"] * 2 < sum(counts.kinds.values())
    if few:
        print("less than half of the modules fused something")
    return int(bool(counts.failures or missing or few))
