"""Planted faults: does `bisect` find the exact step, and `reduce` a module of ten instructions in a minute?

    python -m scripts.reduce_faults [--code 20] [--kernels 20] [--dumps 20] [--seed 0] [--jobs N] [--results FILE
    [--resume]] [--record FOLDER] [--large 0] [--modules FILE...]

Four kinds of faults, all drawn by the seed:
  code     a mutation of scripts/mutate_code.py in the passes or in fusing, in a copy of the tree
  kernels  a mutation of scripts/kernel_faults.py in a line of a kernel's text, and in every line of that form, whatever
           operations its values are of
  dumps    one operation that is another from some module of a series on, as if a pass of XLA's had changed it
  large    one operation at a drawn place among 5,000 that fusing spoils; the step is its place

A fault of code is shown to the dumps of testdata whose fusing reaches its line, the smallest first, until `fuse
--check` fails on one; where fusing gives the same text as without the fault, no check runs. A fault that shows on none
does not count, and another one is drawn. Then `bisect` names a step, and the steps around it (all of them, where there
are few) are asked one by one: the step is right when it is the first that fails. `reduce` makes the module small. A
crash, a kernel without an end and fusing without an end (which has no last step: none is looked for) are faults, too.

The table has for each fault the module, the step, whether it is right, the instructions that are left (all of them,
parameters and those of called computations, too) and how many of them are operations (no parameters), and the seconds
of `reduce`: by the clock, and of processors, which do not depend on what else the machine does. Exit code 1 where a
step is wrong, more than ten instructions are left, or `reduce` takes longer than a minute by the clock and of
processors.

Ten is not enough for a mistake in what a loop does of which the number of rounds is known before the run: it takes the
fifteen of `tests/test_reduce_faults.py`. The condition has its parameter, the counter, the limit and the comparison;
the body its parameter, two elements, a step, the counter's next value, one operation and the tuple; the entry an array,
the counter's start, the tuple and the loop. A loop of an unknown number takes seven: its state is one array, and the
condition asks whether a sum of it is finite. Where `reduce` leaves a loop with a counter, each module without one that
it tried did not show the mistake; fifteen instructions are the least then, and the table says so. A mistake in what is
done of attention alone takes eighteen: an array, its product with itself, a softmax, which has two folds with
computations of three and the starts of both, and the product of that with the array.

`--modules` names the modules whose kernels get faults, such as those of loops; without it, all of testdata/kernels.
`--results` appends each result with the module that is left to a file at once, a line of JSON each; with `--resume` the
faults in the file are not tried again. `--record` keeps every module that `reduce` tries, and XLA judges them at the
end: its parser all of them, its verifier, which runs when XLA:CPU compiles, those that `reduce` went on from. Exit code
1 where XLA refuses one.
"""

from __future__ import annotations

import argparse
import contextlib
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

from hlo_opt.analysis.graph.loops import derived_trip_count
from hlo_opt.ir import Module, edit
from hlo_opt.ops.reduction.softmax import sums_of
from hlo_opt.ops.sets import looped, multiplies_matrices
from hlo_opt.text import parse
from scripts.code_mutants import Mutant, mutants
from scripts.code_reach import Reach, reach_of
from scripts.kernel_faults import InKernels, of_any_value
from scripts.mutate_code import ROOT, copy_tree
from scripts.reduce_records import TAKEN, Recorded, compile_all, judged, record

if TYPE_CHECKING:
    from hlo_opt.cutting.questions import Question

DUMPS = ROOT / "testdata" / "dumps"
RECORD = "REDUCE_FAULTS_RECORD"
"""The environment variable with the folder of recorded modules, for the processes of faults."""
CACHE = "HLO_OPT_CACHE"
MOST_INSTRUCTIONS, MOST_SECONDS = 10, 60.0
LEAST_COUNTED = 15
"""Instructions of the least module with a loop of a known number of rounds that does something in each."""
LEAST_ATTENTION = 18
"""Instructions of the least module with attention, whose queries, keys and values are one array."""
CODE = ("hlo_opt/passes/**/*.py", "hlo_opt/fusion/*.py", "hlo_opt/analysis/graph/inlining.py")
SHOWN_TO = (
    "softmax", "layer_norm", "branch", "nested", "running_sums", "embed_gradient", "batch_norm", "heat", "window",
    "rotate_half", "adam_one", "cross_entropy", "dice", "huber", "log_sum_exp", "quantize", "shuffle", "write_rows",
    "join", "mlp_forward",
)  # fmt: skip
"""Dumps of which some are drawn for a mistake of code to be shown to."""
LARGE = 5000
"""Instructions of a large module."""
SCANNED = 40
"""So many steps are all asked one by one; of more, those around the one that is found."""
ENDLESS = 10.0
"""Seconds after which fusing one of these dumps has no end."""
LOOKING = 40.0
"""Seconds for a mistake to show on one module."""
MOST_SHOWN = 6
"""Modules that a mistake is shown to."""
ENDED = 900.0
"""Seconds of a fault's own process."""


@dataclass(frozen=True)
class Result:
    """What `bisect` and `reduce` gave for one fault."""

    kind: str
    fault: str
    module: str
    step: int
    is_right: bool
    instructions: int = 0
    operations: int = 0
    seconds: float = 0.0
    cpu: float = 0.0
    """Seconds of processors that `reduce` took, all processes together."""
    answer: str = ""
    """What the fault does to the module."""
    text: str = ""
    """The module that is left."""

    @property
    def is_least(self) -> bool:
        """Whether it is the least module of a loop that has to count its rounds, or of attention."""
        if self.instructions == LEAST_ATTENTION:
            return attends(self.text)
        return self.instructions == LEAST_COUNTED and counts(self.text)

    @property
    def is_small(self) -> bool:
        return self.instructions <= MOST_INSTRUCTIONS or self.is_least

    @property
    def is_quick(self) -> bool:
        """On a machine that does nothing else, `reduce` takes no more seconds by the clock than of processors."""
        return min(self.seconds, self.cpu) <= MOST_SECONDS

    @property
    def is_good(self) -> bool:
        return self.is_right and self.is_small and self.is_quick


def counts(text: str) -> bool:
    """Whether a module has a loop whose number of rounds is known before the run."""
    instructions = (i for c in parse(text).computations for i in c.instructions)
    return any(looped(i) is not None and derived_trip_count(i) is not None for i in instructions)


def attends(text: str) -> bool:
    """Whether a module has a softmax of a product, and a product of that."""
    entry = list(parse(text).entry.instructions)
    return bool(sums_of(entry)) and sum(map(multiplies_matrices, entry)) > 1


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


def measure(kind: str, fault: str, files: list[Path], known: Mapping[str, str], jobs: int) -> Result | None:
    """Show a planted mistake to modules; where one shows it, find the step and the smallest module. None where none
    does. `known`: what fusing gives without the mistake, by file."""
    from hlo_opt.analysis.targets import target
    from hlo_opt.cli.bisect import rewrites
    from hlo_opt.cli.fusing import Fusing
    from hlo_opt.cutting import bisect, questions
    from hlo_opt.cutting.trials import Trials, leaving, left_as

    fuse = Fusing().outcome
    question = questions.CheckFails(fuse, limit=ENDLESS if kind == "code" else None)
    trials = Trials(jobs, LOOKING)
    backend = "host" if kind == "kernels" else "numpy"

    def shown(file: Path) -> str | None:
        module = questions.read(file.read_text(encoding="utf-8"))
        with left_as(str):  # a crash and what never ends are faults, too
            try:
                with leaving(questions.FUSING_ENDED, ENDLESS):
                    fused = fuse(module).module
            except Exception as failure:
                return questions.failure_kind(failure)
            if str(fused) == known.get(file.name):
                return None
            return questions.differs(module, fused, backend, 0, "plain", is_quick=True)

    for file in files:
        answer = trials.one(lambda f=file: shown(f))  # type: ignore[misc]
        if answer is None:
            continue
        module = questions.read(file.read_text(encoding="utf-8"))
        if answer == questions.FUSING_ENDED:  # without an end there is no last step
            return reduced(Result(kind, fault, file.name, 0, True, answer=answer), str(module), question, jobs)
        series = rewrites(Fusing(), module)
        watch = bisect.watch_of("check", target(Fusing().target))
        bisection = bisect.Bisection(series, watch, jobs)
        turn = bisection.find()
        if isinstance(turn, bisect.NoChange):  # from the first kernels on
            step, is_right = 0, turn.answer != bisect.NO
        else:
            step, is_right = turn.after, first_of(bisection, turn.after, series.last or turn.after) == turn.after
        return reduced(Result(kind, fault, file.name, step, is_right, answer=answer), str(module), question, jobs)
    return None


def reduced(found: Result, text: str, question: Question, jobs: int) -> Result:
    """A result with what `reduce` leaves of a module, its seconds, and those of processors."""
    from hlo_opt.cutting.search import Reducer

    folder = os.environ.get(RECORD)
    asked = Recorded(question, folder) if folder else question
    started, cpu = time.monotonic(), _cpu_seconds()
    reducer = Reducer(text, asked, jobs, lambda line: record(folder, reducer.text, TAKEN))
    reducer.run()
    return replace(
        found,
        instructions=reducer.instructions,
        operations=reducer.operations,
        seconds=time.monotonic() - started,
        cpu=_cpu_seconds() - cpu,
        text=reducer.text,
    )


def _cpu_seconds() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used)


def first_of(bisection: object, found: int, last: int) -> int | None:
    """The first step that gives another answer than no step, asked one by one."""
    from hlo_opt.cutting.bisect import Bisection

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


def in_kernels(seed: int, files: Sequence[Path]) -> Iterator[tuple[InKernels, Path]]:
    """Mistakes in lines of these modules' kernels, and a module that has such a line."""
    from scripts.mutate_kernels import Modules

    modules, named = Modules(files), {file.name: file for file in files}
    chance = random.Random(seed)
    functions = sorted(modules.reached)
    while True:
        fault = modules.draw(chance, chance.choice(functions))
        if fault is not None:
            yield InKernels(of_any_value(fault.old), fault.kind, fault.place, fault.which), named[fault.module]


def in_a_series(seed: int, jobs: int) -> Result:
    """A series of modules, as after passes, in which one operation is another from one of them on."""
    from hlo_opt.analysis.targets import target
    from hlo_opt.cutting import bisect, questions

    chance = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="reduce-faults-") as folder:
        name, victim, at, texts = _spoilt(chance)
        files = []
        for number, text in enumerate(texts):
            files.append(Path(folder) / f"module_0001.jit_f.{number:04}.all.after_p{number}.before_q.txt")
            files[-1].write_text(text, encoding="utf-8")
        series, command = bisect.dumped(Path(folder)), questions.command_of("grep -q cosine( {}")
        named = bisect.Bisection(series, bisect.by_command(command), jobs).find()
        asked = bisect.watch_of("check", target("h100_sxm"), "numpy", is_ours=False)
        found = bisect.Bisection(series, asked, jobs).find()
        seen = at if isinstance(found, bisect.NoChange) else found.after  # what is masked gives the same results
        is_right = isinstance(named, bisect.FirstChange) and named.after == at == seen
        return reduced(Result("dumps", victim, name, at, is_right), texts[at], command, jobs)


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


def in_a_large(seed: int, jobs: int) -> Result:
    """A module of 5,000 operations, of which one, the only `atan2`, has another operand after fusing."""
    from hlo_opt.cutting import questions
    from hlo_opt.passes.run import Outcome, run

    def fuse(module: Module) -> Outcome:
        outcome = run(module)
        for computation in outcome.module.computations:
            for i in computation.instructions:
                if i.opcode == "atan2":
                    edit.replace_operand(i, 0, i.operands[1])
        return outcome

    chance = random.Random(seed)
    at = chance.randrange(8, LARGE)
    lines, values = ["HloModule large", "ENTRY e {", "  v0 = f32[64,8]{1,0} parameter(0)"], ["v0"]
    for n in range(1, LARGE):
        opcode = "atan2" if n == at else chance.choice(("add", "multiply", "negate", "tanh", "sine"))
        recent = values[-6:]
        operands = chance.sample(recent, min(len(recent), 2 if opcode in ("add", "atan2", "multiply") else 1))
        operands *= 1 if opcode in ("negate", "tanh", "sine") or len(operands) == 2 else 2
        lines.append(f"  {'ROOT ' * (n == LARGE - 1)}v{n} = f32[64,8]{{1,0}} {opcode}({', '.join(operands)})")
        values.append(f"v{n}")
    text = "\n".join([*lines, "}", ""])
    return reduced(Result("large", "atan2", "", at, True), text, questions.CheckFails(fuse, "numpy"), jobs)


# ---- all of them


@dataclass(frozen=True)
class Tried:
    """A fault that was drawn, by its kind and its number in the order of draws, and what came out: nothing where it
    shows nowhere."""

    kind: str
    number: int
    result: Result | None


def _measured(
    kind: str, fault: str, tree: Path, files: list[str], jobs: int, kernels: InKernels | None, known: Mapping[str, str]
) -> Result | None:
    """`measure` in a process of its own, with the hlo_opt of a tree. Failures there are reported on stderr."""
    wanted = {
        "kind": kind,
        "fault": fault,
        "files": files,
        "jobs": jobs,
        "kernels": None if kernels is None else asdict(kernels),
        "known": dict(known),
    }
    with tempfile.TemporaryDirectory(prefix="reduce-faults-") as own:
        # a fault in a kernel is in its text, which is the key of what is compiled; one in the code may be anywhere
        cache = own if kernels is None else os.environ.get(CACHE, own)
        more = {"PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1", CACHE: cache}
        try:
            done = subprocess.run(
                [sys.executable, "-m", "scripts.reduce_faults", "--worker"], cwd=tree, env=os.environ | more,
                input=json.dumps(wanted), capture_output=True, text=True, timeout=ENDED, check=False,
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
    return None if last is None else Result(**last)


def _worker() -> None:
    wanted = json.load(sys.stdin)
    if wanted["kernels"] is not None:
        plant(InKernels(**wanted["kernels"]))
    result = measure(
        wanted["kind"], wanted["fault"], [Path(f) for f in wanted["files"]], wanted["known"], wanted["jobs"]
    )
    print(json.dumps(None if result is None else asdict(result)))


Try = Callable[[], Result | None]


def _dump_tries(seed: int, jobs: int) -> Iterator[Try]:
    for number in itertools.count(seed * 1000):
        yield partial(in_a_series, number, jobs)


def _large_tries(seed: int, jobs: int) -> Iterator[Try]:
    for number in itertools.count(seed * 1000):
        yield partial(in_a_large, number, jobs)


def _kernel_tries(seed: int, jobs: int, files: Sequence[Path]) -> Iterator[Try]:
    for fault, file in in_kernels(seed, files):
        what = f"{fault.kind}: {fault.line.strip()[:60]}"
        yield partial(_measured, "kernels", what, ROOT, [str(file)], jobs, fault, {})


def _code_tries(seed: int, jobs: int, tree: Path) -> Iterator[Try]:
    reach = reach_of([DUMPS / f"{name}.hlo" for name in SHOWN_TO], CODE)
    known = {name: found.text for name, found in reach.items()}

    def tried(mutant: Mutant, near: list[Path]) -> Result | None:
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


def all_tried(
    counts: Mapping[str, int], seed: int, jobs: int, files: Sequence[Path], done: Sequence[Tried] = ()
) -> Iterator[Tried]:
    """Faults of each kind, as many that show as asked for, and those that do not show; none of those that are done."""
    with tempfile.TemporaryDirectory(prefix="reduce-faults-") as folder:
        tree = Path(folder) / "tree"
        copy_tree(tree)
        tries: dict[str, Callable[[int, int], Iterator[Try]]] = {
            "dumps": _dump_tries,
            "large": _large_tries,
            "kernels": partial(_kernel_tries, files=files),
            "code": partial(_code_tries, tree=tree),
        }
        for kind, count in counts.items():
            before = {t.number: t for t in done if t.kind == kind}
            left = count - sum(t.result is not None for t in before.values())
            if left <= 0:
                continue
            for number, attempt in enumerate(tries[kind](seed, jobs)):
                if number in before:
                    continue
                result = attempt()
                yield Tried(kind, number, result)
                left -= result is not None
                if left <= 0:
                    break


def read_results(file: Path) -> list[Tried]:
    """What a file of results has."""
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()] if file.exists() else []
    return [Tried(r["kind"], r["number"], None if r["result"] is None else Result(**r["result"])) for r in rows]


def main(arguments: list[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--code", type=int, default=20)
    parser.add_argument("--kernels", type=int, default=20)
    parser.add_argument("--dumps", type=int, default=20)
    parser.add_argument("--large", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--results", type=Path, metavar="FILE", help="append what comes out to FILE")
    parser.add_argument("--resume", action="store_true", help="leave out what FILE has")
    parser.add_argument("--modules", type=Path, nargs="+", metavar="FILE", help="whose kernels get faults")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--record", type=Path, metavar="FOLDER", help="keep every module tried there, and judge them")
    parser.add_argument("--judge", type=Path, metavar="FOLDER", help="only judge the modules of --record")
    parser.add_argument("--compile", type=Path, nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.compile is not None:
        compile_all(options.compile)
        return 0
    if options.judge is not None:
        return _judge(options.judge)
    if options.worker:
        _worker()
        return 0
    if options.resume and options.results is None:
        parser.error("--resume needs --results")
    files = [f.resolve() for f in options.modules or sorted((ROOT / "testdata" / "kernels").glob("*.hlo"))]
    counts = {"dumps": options.dumps, "large": options.large, "kernels": options.kernels, "code": options.code}
    done = read_results(options.results) if options.resume else []
    if options.results is not None and not options.resume:
        options.results.write_text("", encoding="utf-8")
    results = [t.result for t in done if t.result is not None]
    for result in results:
        print(_row(result), flush=True)
    with contextlib.ExitStack() as stack:
        if CACHE not in os.environ:
            os.environ[CACHE] = stack.enter_context(tempfile.TemporaryDirectory(prefix="reduce-faults-"))
        if options.record is not None:
            options.record.mkdir(parents=True, exist_ok=True)
            os.environ[RECORD] = str(options.record.resolve())
        for tried in all_tried(counts, options.seed, options.jobs, files, done):
            if options.results is not None:
                with options.results.open("a", encoding="utf-8") as file:
                    file.write(f"{json.dumps(asdict(tried))}\n")
            if tried.result is not None:
                results.append(tried.result)
                print(_row(tried.result), flush=True)
    good = sum(result.is_good for result in results)
    print(
        f"{good} of {len(results)}: the exact step ({sum(r.is_right for r in results)}), at most {MOST_INSTRUCTIONS} "
        f"instructions ({sum(r.is_small for r in results)}), at most {MOST_SECONDS:.0f} s "
        f"({sum(r.is_quick for r in results)}; by the clock {sum(r.seconds <= MOST_SECONDS for r in results)})"
    )
    return max(int(good < len(results)), 0 if options.record is None else _judge(options.record))


def _judge(folder: Path) -> int:
    """Print what XLA says of recorded modules; 1 where it refuses one."""
    (tried, taken), refused = judged(folder)
    print(f"XLA's parser was given {tried} modules that were tried, its verifier {taken} that were gone on from")
    print(f"{len(refused)} of them are refused" if refused else "none is refused")
    for line in refused:
        print(f"  {line}")
    return int(bool(refused))


def _row(result: Result) -> str:
    right = "right" if result.is_right else "WRONG"
    how = f" ({result.answer})" if result.answer.endswith("no end") else ""
    least = ", the least" if result.is_least else ""
    size = f"{result.instructions:3} instructions{least}, {result.operations:2} operations"
    duration = f"{result.seconds:6.1f} s, {result.cpu:6.1f} s of processors"
    return f"{result.kind:8}{result.module:24}step {result.step:4} {right}  {size}  {duration}  {result.fault}{how}"


if __name__ == "__main__":
    sys.exit(main())
