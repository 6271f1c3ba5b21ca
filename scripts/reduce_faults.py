"""Planted faults: does `bisect` find the exact step, and `reduce` a module of ten instructions in a minute?

    python -m scripts.reduce_faults [--code 20] [--kernels 20] [--dumps 20] [--seed 0] [--jobs N] [--results FILE
    [--resume]]

Three kinds, all drawn by the seed:
  code     mistakes of scripts/mutate_code.py in the passes and in what fuses, planted in a copy of the tree
  kernels  mistakes of scripts/kernel_faults.py in a line of a kernel's text, and in every line of that form
  dumps    one operation that is another from some module of a series on, as if a pass of XLA's had done it

A mistake of code is shown to the dumps of testdata whose fusing reaches its line, the smallest first, until
`fuse --check` fails on one; what fusing gives as it does without the mistake needs no check. One that shows on none is
no fault, and another one is drawn. Then `bisect` names a step, and the steps around it (all of them, where there are
few) are asked one by one: the step is right when it is the first that fails. `reduce` makes the module small. The table
has for each fault the module, the step, whether it is right, the instructions that are left, and the seconds, also
those of processors. Exit code 1 where a step is wrong, more than ten instructions are left, or it takes longer than a
minute.

`--results` appends what comes out of each fault to a file as it comes, a line of JSON each; with `--resume` what the
file has already is not tried again.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from hlo_opt.ir import Module, edit
from scripts.code_mutants import Mutant, mutants
from scripts.code_reach import Reach, reach_of
from scripts.kernel_faults import form, sites
from scripts.mutate_code import ROOT, copy_tree

if TYPE_CHECKING:
    from hlo_opt.cutting.shows import Question

DUMPS = ROOT / "testdata" / "dumps"
KEPT = "REDUCE_FAULTS_KEPT"
"""A folder that the smallest modules are kept in, where the environment names one."""
MOST_INSTRUCTIONS, MOST_SECONDS = 10, 60.0
CODE = ("hlo_opt/passes/**/*.py", "hlo_opt/fusion/*.py", "hlo_opt/analysis/graph/inlining.py")
SHOWN_TO = (
    "softmax", "layer_norm", "branch", "nested", "running_sums", "embed_gradient", "batch_norm", "heat", "window", "rotate_half", "adam_one",
    "cross_entropy", "dice", "huber", "log_sum_exp", "quantize", "shuffle", "write_rows", "join", "mlp_forward",
)  # fmt: skip
"""Dumps of which some are drawn for a mistake of code to be shown to."""
SCANNED = 40
"""So many steps are all asked one by one; of more, those around the one that is found."""
LOOKING = 40.0
"""Seconds for a mistake to show on one module."""
MOST_SHOWN = 6
"""Modules that a mistake is shown to."""
ENDED = 900.0
"""Seconds of a fault's own process."""


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
    cpu: float
    """Seconds of processors that `reduce` took, all processes together."""

    @property
    def is_good(self) -> bool:
        return self.is_right and self.instructions <= MOST_INSTRUCTIONS and self.seconds <= MOST_SECONDS


@dataclass(frozen=True)
class InKernels:
    """A mistake in every line of a form of every kernel's text: at which place of the line, and which of the place's
    other texts."""

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

    emitted: Callable[..., Kernel] = lowering.emit_kernel  # type: ignore[attr-defined]

    def planted(plan: Plan, in_place: Sequence[tuple[int, int]] = ()) -> Kernel:
        made = emitted(plan, in_place)
        return replace(made, source=fault.planted(made.source))

    lowering.emit_kernel = planted  # type: ignore[attr-defined]


# ---- one fault, in the process that has it


def measure(kind: str, fault: str, files: list[Path], known: Mapping[str, str], jobs: int) -> Told | None:
    """Show a planted mistake to modules; where one shows it, find the step and the smallest module. None where none
    does. `known`: what fusing gives without the mistake, by file."""
    from hlo_opt.analysis.targets import target
    from hlo_opt.cli.bisect import rewrites
    from hlo_opt.cli.fusing import Fusing
    from hlo_opt.cutting import shows, turns
    from hlo_opt.cutting.trials import Trials

    fuse = Fusing().outcome
    question = shows.CheckFails(fuse)
    trials = Trials(jobs, LOOKING)
    backend = "host" if kind == "kernels" else "numpy"

    def shown(file: Path) -> str | None:
        module = shows.read(file.read_text(encoding="utf-8"))
        try:
            fused = fuse(module).module
        except Exception as failure:
            return shows.way_of(failure)
        if str(fused) == known.get(file.name):
            return None
        return shows.differs(module, fused, backend, 0, is_quick=True)

    for file in files:
        if trials.one(lambda f=file: shown(f)) is None:  # type: ignore[misc]
            continue
        module = shows.read(file.read_text(encoding="utf-8"))
        series = rewrites(Fusing(), module)
        asks = turns.watched("check", target(Fusing().target))
        bisection = turns.Bisection(series, asks, jobs)
        found = bisection.find()
        if isinstance(found, turns.Stays):  # from the first kernels on
            step, is_right = 0, found.answer != turns.NO
        else:
            step, is_right = found.after, first_of(bisection, found.after, series.last or found.after) == found.after
        made, seconds, cpu = reduced(str(module), question, jobs)
        return Told(kind, fault, file.name, step, is_right, made, seconds, cpu)
    return None


def reduced(text: str, question: Question, jobs: int) -> tuple[int, float, float]:
    """Instructions that `reduce` leaves of a module, its seconds, and those of processors."""
    from hlo_opt.cutting.search import Reducer

    started, cpu = time.monotonic(), _cpu_seconds()
    reducer = Reducer(text, question, jobs)
    reducer.run()
    if folder := os.environ.get(KEPT):
        Path(folder, f"{time.time_ns()}.hlo").write_text(reducer.text, encoding="utf-8")
    return reducer.instructions, time.monotonic() - started, _cpu_seconds() - cpu


def _cpu_seconds() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used)


def first_of(bisection: object, found: int, last: int) -> int | None:
    """The first step that gives another answer than no step, asked one by one."""
    from hlo_opt.cutting.turns import Bisection

    assert isinstance(bisection, Bisection)
    numbers = range(last + 1) if last <= SCANNED else range(max(0, found - 6), min(last, found + 2) + 1)
    bisection.known.clear()
    bisection._ask([0, *numbers])
    return next((n for n in numbers if bisection.known[n] != bisection.known[0]), None)


# ---- faults


def in_code(seed: int, reach: Mapping[str, Reach]) -> Iterator[tuple[Mutant, list[Path]]]:
    """Mistakes in the code, and the dumps whose fusing reaches the line, the smallest first."""
    files = sorted({p for glob in CODE for p in ROOT.glob(glob)})
    found = [m for p in files for m in mutants(p.relative_to(ROOT).as_posix(), p.read_text()) if not m.at_import]
    random.Random(seed).shuffle(found)
    for mutant in found:
        near = [DUMPS / name for name in sorted(reach, key=lambda n: len(reach[n].text)) if reach[name].has(mutant)]
        if near:
            yield mutant, near[:MOST_SHOWN]


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
        is_right = isinstance(named, turns.Turn) and named.after == at == seen
        return Told("dumps", victim, name, at, is_right, *reduced(texts[at], command, jobs))


def _spoilt(chance: random.Random) -> tuple[str, str, int, list[str]]:
    """The name of a dump, an operation of it, and the modules after each of our passes, in which it is a cosine from a
    number on."""
    import hlo_opt
    from hlo_opt.passes.run import run

    while True:
        name = chance.choice(SHOWN_TO[:12])
        module = hlo_opt.parse((DUMPS / f"{name}.hlo").read_text(encoding="utf-8"))
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
    r"^ +(?:ROOT )?(%[\w.\-]+) = f32\[[^ ]* "
    r"(?:exponential|tanh|negate|sqrt|rsqrt|log|abs|add|multiply|subtract|divide)\(",
    re.MULTILINE,
)


def _other(text: str, victim: str) -> str:
    """The text where an operation is the cosine of its first operand."""
    row = re.compile(rf"^( +(?:ROOT )?{re.escape(victim)} = \S+ )[a-z-]+\(([^,()]+)(?:, [^()]+)?\)", re.MULTILINE)
    return row.sub(r"\1cosine(\2)", text)


# ---- all of them


@dataclass(frozen=True)
class Tried:
    """A fault that was drawn, by its kind and its number in the order of draws, and what came out: nothing where it
    shows nowhere."""

    kind: str
    number: int
    told: Told | None


def _measured(
    kind: str, fault: str, tree: Path, files: list[str], jobs: int, kernels: InKernels | None, known: Mapping[str, str]
) -> Told | None:
    """`measure` in a process of its own, with the hlo_opt of a tree. What fails there is told on stderr."""
    wanted = {"kind": kind, "fault": fault, "files": files, "jobs": jobs, "kernels": None if kernels is None else asdict(kernels), "known": dict(known)}  # fmt: skip
    command = [sys.executable, "-m", "scripts.reduce_faults", "--worker"]
    with tempfile.TemporaryDirectory(prefix="reduce-faults-") as cache:  # what a mistake compiles is kept apart
        more = {"PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1", "HLO_OPT_CACHE": cache}
        try:
            done = subprocess.run(
                command, cwd=tree, env={**os.environ, **more}, input=json.dumps(wanted), capture_output=True, text=True, timeout=ENDED, check=False
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            print(f"{kind}: {fault}: not at an end after {ENDED:.0f} s", file=sys.stderr, flush=True)
            return None
    try:
        last = json.loads(done.stdout.strip().splitlines()[-1])
    except (IndexError, ValueError):
        why = "\n  ".join(done.stderr.strip().splitlines()[-4:])
        print(f"{kind}: {fault}: its process ended with {done.returncode}\n  {why}", file=sys.stderr, flush=True)
        return None
    return None if last is None else Told(**last)


def _worker() -> None:
    wanted = json.load(sys.stdin)
    if wanted["kernels"] is not None:
        plant(InKernels(**wanted["kernels"]))
    told = measure(wanted["kind"], wanted["fault"], [Path(f) for f in wanted["files"]], wanted["known"], wanted["jobs"])
    print(json.dumps(None if told is None else asdict(told)))


Try = Callable[[], Told | None]


def _dump_tries(seed: int, jobs: int) -> Iterator[Try]:
    for number in itertools.count(seed * 1000):
        yield partial(in_a_series, number, jobs)


def _kernel_tries(seed: int, jobs: int) -> Iterator[Try]:
    for fault, file in in_kernels(seed):
        what = f"{fault.kind}: {fault.line.strip()[:60]}"
        yield partial(_measured, "kernels", what, ROOT, [str(file)], jobs, fault, {})


def _code_tries(seed: int, jobs: int, tree: Path) -> Iterator[Try]:
    reach = reach_of([DUMPS / f"{name}.hlo" for name in SHOWN_TO], CODE)
    known = {name: found.text for name, found in reach.items()}

    def tried(mutant: Mutant, near: list[Path]) -> Told | None:
        file = tree / mutant.file
        kept = file.read_text(encoding="utf-8")
        file.write_text(mutant.source, encoding="utf-8")
        what = f"{mutant.file}:{mutant.line} {mutant.after[:60]}"
        try:
            return _measured("code", what, tree, list(map(str, near)), jobs, None, known)
        finally:
            file.write_text(kept, encoding="utf-8")

    for mutant, near in in_code(seed, reach):
        yield partial(tried, mutant, near)


def all_tried(counts: Mapping[str, int], seed: int, jobs: int, done: Sequence[Tried] = ()) -> Iterator[Tried]:
    """Faults of each kind, as many that show as asked for, and those that do not show; none of those that are done."""
    with tempfile.TemporaryDirectory(prefix="reduce-faults-") as folder:
        tree = Path(folder) / "tree"
        copy_tree(tree)
        tries: dict[str, Callable[[int, int], Iterator[Try]]] = {
            "dumps": _dump_tries,
            "kernels": _kernel_tries,
            "code": partial(_code_tries, tree=tree),
        }
        for kind, count in counts.items():
            before = {t.number: t for t in done if t.kind == kind}
            left = count - sum(t.told is not None for t in before.values())
            if left <= 0:
                continue
            for number, attempt in enumerate(tries[kind](seed, jobs)):
                if number in before:
                    continue
                told = attempt()
                yield Tried(kind, number, told)
                left -= told is not None
                if left <= 0:
                    break


def read_results(file: Path) -> list[Tried]:
    """What a file of results has."""
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()] if file.exists() else []
    return [Tried(r["kind"], r["number"], None if r["told"] is None else Told(**r["told"])) for r in rows]


def main(arguments: list[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--code", type=int, default=20)
    parser.add_argument("--kernels", type=int, default=20)
    parser.add_argument("--dumps", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--results", type=Path, metavar="FILE", help="append what comes out to FILE")
    parser.add_argument("--resume", action="store_true", help="leave out what FILE has")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.worker:
        _worker()
        return 0
    if options.resume and options.results is None:
        parser.error("--resume needs --results")
    counts = {"dumps": options.dumps, "kernels": options.kernels, "code": options.code}
    done = read_results(options.results) if options.resume else []
    if options.results is not None and not options.resume:
        options.results.write_text("", encoding="utf-8")
    found = [t.told for t in done if t.told is not None]
    for told in found:
        print(_row(told), flush=True)
    for tried in all_tried(counts, options.seed, options.jobs, done):
        if options.results is not None:
            with options.results.open("a", encoding="utf-8") as file:
                file.write(f"{json.dumps(asdict(tried))}\n")
        if tried.told is not None:
            found.append(tried.told)
            print(_row(tried.told), flush=True)
    good = sum(told.is_good for told in found)
    steps = sum(told.is_right for told in found)
    print(
        f"{good} of {len(found)}: the right step ({steps}), at most {MOST_INSTRUCTIONS} instructions, at most "
        f"{MOST_SECONDS:.0f} s"
    )
    return int(good < len(found))


def _row(told: Told) -> str:
    right = "right" if told.is_right else "WRONG"
    size = f"{told.instructions:3} instructions {told.seconds:6.1f} s, {told.cpu:6.1f} s of processors"
    return f"{told.kind:8}{told.module:24}step {told.step:4} {right}  {size}  {told.fault}"


if __name__ == "__main__":
    sys.exit(main())
