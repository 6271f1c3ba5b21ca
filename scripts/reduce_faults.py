"""Planted faults: does `bisect` find the exact step, and `reduce` a module of ten instructions in a minute?

    python -m scripts.reduce_faults [--code 20] [--kernels 20] [--dumps 20] [--seed 0] [--jobs N]

Three kinds, all drawn by the seed:
  code     mistakes of scripts/mutate_code.py in the passes and in what fuses, planted in a copy of the tree
  kernels  mistakes of scripts/kernel_faults.py in a line of a kernel's text, and in every line of that form
  dumps    one operation that is another from some module of a series on, as if a pass of XLA's had done it

A mistake of code or kernels is shown to the dumps of testdata until `fuse --check` fails on one; one that shows on none is no fault, and another one is drawn. Then `bisect` names a step, and
the steps around it (all of them, where there are few) are asked one by one: the step is right when it is the first that fails. `reduce` makes the module small. The table has for each
fault the module, the step, whether it is right, the instructions that are left and the seconds. Exit code 1 where a step is wrong, more than ten instructions are left, or it takes
longer than a minute.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from hlo_opt.ir import Module, edit
from scripts.code_mutants import mutants
from scripts.kernel_faults import form, sites
from scripts.mutate_code import ROOT, copy_tree

MOST_INSTRUCTIONS, MOST_SECONDS = 10, 60.0
CODE = ("hlo_opt/passes/**/*.py", "hlo_opt/fusion/*.py", "hlo_opt/analysis/graph/inlining.py")
SHOWN_TO = (
    "softmax", "layer_norm", "branch", "nested", "running_sums", "embed_gradient", "batch_norm", "heat", "window", "rotate_half", "adam_one",
    "cross_entropy", "dice", "huber", "log_sum_exp", "quantize", "shuffle", "write_rows", "join", "mlp_forward",
)  # fmt: skip
"""Dumps of which some are drawn for a mistake of code to be shown to."""
SCANNED = 40
"""So many steps are all asked one by one; of more, those around the one that is found."""
LOOKING = 150.0
"""Seconds for a mistake to show."""


@dataclass(frozen=True)
class Told:
    """What came out for one fault."""

    kind: str
    fault: str
    module: str
    step: int
    is_right: bool
    instructions: int
    seconds: float

    @property
    def is_good(self) -> bool:
        return self.is_right and self.instructions <= MOST_INSTRUCTIONS and self.seconds <= MOST_SECONDS


@dataclass(frozen=True)
class InKernels:
    """A mistake in every line of a form of every kernel's text: at which place of the line, and which of the place's other texts."""

    line: str
    kind: str
    place: int
    which: int

    def planted(self, source: str) -> str:
        """A kernel's text with it."""
        lines = source.split("\n")
        for number, line in enumerate(lines):
            if form(line) != self.line:
                continue
            places = list(sites(lines, [number]))
            if self.place < len(places) and places[self.place].kind == self.kind:
                place = places[self.place]
                if self.which < len(place.others) and place.others[self.which]:
                    lines[number] = place.planted(line, self.which)
        return "\n".join(lines)


def plant(fault: InKernels) -> None:
    """From now on, kernels of this process have the mistake."""
    from hlo_opt.codegen.kernel import Kernel
    from hlo_opt.plans.plan import Plan
    from hlo_opt.runtime.schedule import lowering

    emitted: Callable[[Plan], Kernel] = lowering.emit_kernel  # type: ignore[attr-defined]

    def planted(plan: Plan) -> Kernel:
        made = emitted(plan)
        return replace(made, source=fault.planted(made.source))

    lowering.emit_kernel = planted  # type: ignore[attr-defined]


# ---- one fault, in the process that has it


def measure(kind: str, fault: str, files: list[Path], jobs: int) -> Told | None:
    """Show a planted mistake to modules; where one shows it, find the step and the smallest module. None where none does."""
    from hlo_opt.cli.bisect import rewrites
    from hlo_opt.cli.fusing import Fusing
    from hlo_opt.cutting import shows, turns
    from hlo_opt.cutting.search import Reducer
    from hlo_opt.cutting.trials import Trials

    question = shows.CheckFails(Fusing().outcome)
    trials = Trials(jobs, LOOKING / 4)
    end = time.monotonic() + LOOKING

    backend = "host" if kind == "kernels" else "numpy"

    def shown(file: Path) -> str | None:
        return question.ask(shows.read(file.read_text(encoding="utf-8")), backend, is_quick=True)

    for file in files:
        if time.monotonic() > end:
            return None
        if trials.one(lambda f=file: shown(f)) is None:  # type: ignore[misc]
            continue
        module = shows.read(file.read_text(encoding="utf-8"))
        series = rewrites(Fusing(), module)
        asks = turns.watched("check", Fusing().outcome(shows.read(SMALL)).target)
        bisection = turns.Bisection(series, asks, jobs)
        found = bisection.find()
        if isinstance(found, turns.Stays):  # from the first kernels on
            step, is_right = 0, found.answer != turns.NO
        else:
            step, is_right = found.after, first_of(bisection, found.after, series.last or found.after) == found.after
        started = time.monotonic()
        reducer = Reducer(str(module), question, jobs)
        reducer.run()
        return Told(kind, fault, file.name, step, is_right, reducer.instructions, time.monotonic() - started)
    return None


SMALL = "HloModule m\nENTRY e {\n  p = f32[4]{0} parameter(0)\n  ROOT r = f32[4]{0} negate(p)\n}\n"


def first_of(bisection: object, found: int, last: int) -> int | None:
    """The first step that gives another answer than no step, asked one by one."""
    from hlo_opt.cutting.turns import Bisection

    assert isinstance(bisection, Bisection)
    numbers = range(last + 1) if last <= SCANNED else range(max(0, found - 6), min(last, found + 2) + 1)
    bisection.known.clear()
    bisection._ask([0, *numbers])
    return next((n for n in numbers if bisection.known[n] != bisection.known[0]), None)


# ---- faults


def in_code(seed: int) -> Iterator[tuple[str, dict[str, str]]]:
    """Mistakes in the code: what is told of each, and the files that have it."""
    files = sorted({p for glob in CODE for p in ROOT.glob(glob)})
    found = [m for p in files for m in mutants(p.relative_to(ROOT).as_posix(), p.read_text()) if not m.at_import]
    random.Random(seed).shuffle(found)
    for mutant in found:
        yield f"{mutant.file}:{mutant.line} {mutant.after[:60]}", {mutant.file: mutant.source}


def in_kernels(seed: int) -> Iterator[tuple[InKernels, Path]]:
    """Mistakes in lines of kernels, and a module that has such a line."""
    from scripts.mutate_kernels import Modules

    folder = ROOT / "testdata" / "kernels"
    modules = Modules(sorted(folder.glob("*.hlo")))
    chance = random.Random(seed)
    functions = sorted(modules.reached)
    while True:
        fault = modules.draw(chance, chance.choice(functions))
        if fault is not None:
            yield InKernels(form(fault.old), fault.kind, fault.place, fault.which), folder / fault.module


def in_a_series(seed: int, jobs: int) -> Told:
    """A series of modules, as after passes, in which one operation is another from one of them on."""
    from hlo_opt.analysis.targets import target
    from hlo_opt.cutting import shows, turns
    from hlo_opt.cutting.search import Reducer

    chance = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="reduce-faults-") as folder:
        name, victim, at, texts = _spoilt(chance)
        files = []
        for number, text in enumerate(texts):
            files.append(Path(folder) / f"module_0001.jit_f.{number:04}.all.after_p{number}.before_q.txt")
            files[-1].write_text(text, encoding="utf-8")
        series, command = turns.dumped(Path(folder)), shows.command_of("grep -q cosine( {}")
        named = turns.Bisection(series, turns.by_command(command), jobs).find()
        asked = turns.watched("check", target("h100_sxm"), "numpy", is_ours=False)
        found = turns.Bisection(series, asked, jobs).find()
        seen = at if isinstance(found, turns.Stays) else found.after  # what is masked gives the same results
        started = time.monotonic()
        reducer = Reducer(texts[at], command, jobs)
        reducer.run()
        is_right = isinstance(named, turns.Turn) and named.after == at == seen
        return Told("dumps", f"{victim}", name, at, is_right, reducer.instructions, time.monotonic() - started)


def _spoilt(chance: random.Random) -> tuple[str, str, int, list[str]]:
    """The name of a dump, an operation of it, and the modules after each of our passes, in which it is a cosine from a number on."""
    import hlo_opt
    from hlo_opt.passes.run import run

    while True:
        name = chance.choice(SHOWN_TO[:12])
        module = hlo_opt.parse((ROOT / "testdata" / "dumps" / f"{name}.hlo").read_text(encoding="utf-8"))
        texts = [str(module)]
        run(module, observer=lambda done, made, changed: texts.append(_sorted(made)) if changed else None)  # noqa: B023
        at = chance.randrange(1, len(texts))
        victim = chance.choice(_CHANGED.findall(texts[at]) or [""])
        changed = [_other(text, victim) if n >= at else text for n, text in enumerate(texts)]
        try:
            for text in changed:
                hlo_opt.verify(hlo_opt.parse(text))
        except hlo_opt.HloOptError:
            continue
        if victim and all(" cosine(" in text for text in changed[at:]) and " cosine(" not in texts[at]:
            return name, victim, at, changed


def _sorted(module: Module) -> str:
    """The text of a module between two passes, whose computations may be in any order."""
    copy = edit.clone_module(module)
    edit.sort_computations(copy)
    return str(copy)


_CHANGED = re.compile(
    r"^ +(?:ROOT )?(%[\w.\-]+) = f32\[[^ ]* (?:exponential|tanh|negate|sqrt|rsqrt|log|abs|add|multiply|subtract|divide)\(",
    re.MULTILINE,
)


def _other(text: str, victim: str) -> str:
    """The text where an operation is the cosine of its first operand."""
    row = re.compile(rf"^( +(?:ROOT )?{re.escape(victim)} = \S+ )[a-z-]+\(([^,()]+)(?:, [^()]+)?\)", re.MULTILINE)
    return row.sub(r"\1cosine(\2)", text)


# ---- all of them


def _measured(kind: str, fault: str, tree: Path, files: list[str], jobs: int, kernels: InKernels | None) -> Told | None:
    """`measure` in a process of its own, with the hlo_opt of a tree."""
    wanted = {"kind": kind, "fault": fault, "files": files, "jobs": jobs, "kernels": None if kernels is None else asdict(kernels)}  # fmt: skip
    command = [sys.executable, "-m", "scripts.reduce_faults", "--worker", json.dumps(wanted)]
    with tempfile.TemporaryDirectory(prefix="reduce-faults-") as cache:  # what a mistake compiles is kept apart
        more = {"PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1", "HLO_OPT_CACHE": cache}
        try:
            done = subprocess.run(
                command, cwd=tree, env={**os.environ, **more}, capture_output=True, text=True, timeout=900, check=False
            )
        except subprocess.TimeoutExpired:
            return None
    try:
        last = json.loads(done.stdout.strip().splitlines()[-1])
    except (IndexError, ValueError):
        return None
    return None if last is None else Told(**last)


def _worker(wanted: dict[str, object]) -> None:
    kernels = wanted["kernels"]
    if isinstance(kernels, dict):
        plant(InKernels(**kernels))
    files, jobs = wanted["files"], wanted["jobs"]
    assert isinstance(files, list) and isinstance(jobs, int)
    told = measure(str(wanted["kind"]), str(wanted["fault"]), [Path(f) for f in files], jobs)
    print(json.dumps(None if told is None else asdict(told)))


def all_told(code: int, kernels: int, dumps: int, seed: int, jobs: int) -> Iterator[Told]:
    """Faults of each kind, as many as asked for."""
    for number in range(dumps):
        yield in_a_series(seed * 1000 + number, jobs)
    if kernels:
        drawn = in_kernels(seed)
        for _ in range(kernels):
            told = None
            while told is None:
                fault, file = next(drawn)
                told = _measured("kernels", f"{fault.kind}: {fault.line.strip()[:60]}", ROOT, [str(file)], jobs, fault)
            yield told
    if code:
        with tempfile.TemporaryDirectory(prefix="reduce-faults-") as folder:
            tree = Path(folder) / "tree"
            copy_tree(tree)
            made, chance = in_code(seed), random.Random(seed)
            for _ in range(code):
                told = None
                while told is None and (found := next(made, None)) is not None:
                    fault_text, files = found
                    kept = {name: (tree / name).read_text() for name in files}
                    for name, text in files.items():
                        (tree / name).write_text(text)
                    dumps_shown = [ROOT / "testdata" / "dumps" / f"{n}.hlo" for n in chance.sample(SHOWN_TO, 8)]
                    told = _measured("code", fault_text, tree, list(map(str, dumps_shown)), jobs, None)
                    for name, text in kept.items():
                        (tree / name).write_text(text)
                if told is not None:
                    yield told


def main(arguments: list[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--code", type=int, default=20)
    parser.add_argument("--kernels", type=int, default=20)
    parser.add_argument("--dumps", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.worker:
        _worker(json.loads(options.worker))
        return 0
    found = []
    for told in all_told(options.code, options.kernels, options.dumps, options.seed, options.jobs):
        found.append(told)
        right = "right" if told.is_right else "WRONG"
        row = f"{told.kind:8}{told.module:24}step {told.step:4} {right}  {told.instructions:3} instructions {told.seconds:6.1f} s  {told.fault}"
        print(row, flush=True)
    good = sum(told.is_good for told in found)
    steps = sum(told.is_right for told in found)
    print(
        f"{good} of {len(found)}: the right step ({steps}), at most {MOST_INSTRUCTIONS} instructions, at most {MOST_SECONDS:.0f} s"
    )
    return int(good < len(found))


if __name__ == "__main__":
    sys.exit(main())
