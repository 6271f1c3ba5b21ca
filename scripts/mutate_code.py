"""Mistakes planted in the program's own code: which of them do the tests of their room let pass?

    python -m scripts.mutate_code [--files GLOB]... [--all | --count 300] [--seed 0] [--jobs 1] [--tests PATH]...
    [--list]

A mutant is one mistake in one file of hlo_opt (scripts/code_mutants.py says which there are). Tests mirror hlo_opt: a
mutant of hlo_opt/ROOM/ is run against tests/ROOM, and against `--tests`. One run of these under coverage says which
test executes which line, and how long each takes; a mutant is run against the tests that execute its line, quickest
first, for at most two minutes, and is killed by the first that fails. Without `--files`, the places are those where a
mistake makes a wrong program (PLACES). `--all` takes every mutant of the files, `--count` draws lines that tests
execute, and one mutant of each.

Mutants are planted in copies of the tree, never in the tree itself. What survives is printed, unless
scripts/mutants_equivalent.toml says why no test can tell it from the original. Exit code 1 where anything survived.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import fnmatch
import hashlib
import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from scripts.code_mutants import Mutant, mutants
from scripts.code_test_runs import KILLED_BY, record, run_chosen

ROOT = Path(__file__).resolve().parent.parent
EQUIVALENT = Path(__file__).with_name("mutants_equivalent.toml")
SECONDS = 120.0  # for all tests of one mutant, on a machine that does nothing else
MEMORY = (
    20 << 30
)  # bytes of data of one mutant's process; every library of kernels that it loads counts with the stacks of its threads
# Where a mistake makes a wrong program: files, and what a statement there must hold to count.
PLACES = {
    "hlo_opt/fusion/*.py": r"",
    "hlo_opt/passes/*.py": r"",
    "hlo_opt/analysis/graph/numbering.py": r"",
    "hlo_opt/plans/*.py": r"^(if|elif|while|return) |\bif\b|\bassert\b",
    "hlo_opt/codegen/*.py": r"(?i)barrier|sync|bound|guard|fence|limit|atomic|[^-<]<[^<]",
    "hlo_opt/runtime/check/compare.py": r"",
    "hlo_opt/runtime/differences.py": r"",
    "hlo_opt/runtime/rounding/*.py": r"",
}


@dataclass(frozen=True)
class Run:
    """What one run of a room's tests without a mistake showed: seconds of each test that passed, and which tests
    execute a line (0: the file at all)."""

    seconds: dict[str, float]
    executed: dict[str, dict[int, list[str]]]

    def tests(self, mutant: Mutant) -> list[str]:
        """The tests that execute the mutant's line, quickest first; where importing the file executes it, those that
        touch the file."""
        lines = self.executed.get(mutant.file, {})
        wanted = [0] if mutant.at_import else [*mutant.lines, mutant.line]
        found = {test for line in wanted for test in lines.get(line, [])}
        own = f"test_{Path(mutant.file).stem}"
        return sorted(found, key=lambda test: (self.seconds[test] * (0.2 if own in test else 1), test))


@dataclass(frozen=True)
class Verdict:
    """How a mutant ended: `killed` and by which test, `survived`, or `unseen` where no test executes its line."""

    mutant: Mutant
    outcome: str
    test: str
    seconds: float


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--files", action="append", default=[], metavar="GLOB", help="hlo_opt/fusion/*.py; again for more"
    )
    parser.add_argument(
        "--all", action="store_true", help="every mutant of the files, also of lines that no test executes"
    )
    parser.add_argument("--count", type=int, default=300, help="how many to draw")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument(
        "--tests", action="append", default=[], metavar="PATH", help="tests to run beside those of the room"
    )
    parser.add_argument(
        "--within",
        action="append",
        default=[],
        metavar="PATH",
        help="tests to run instead: quicker, but what survives them may not survive the room's",
    )
    parser.add_argument("--only", default="", metavar="WORD", help="mutants whose statement or function holds the word")
    parser.add_argument("--list", action="store_true", help="print the mutants and run nothing")
    options = parser.parse_args(arguments)
    found = [m for m in _places(options.files) if options.only in m.function + m.before]
    if options.list:
        for mutant in found:
            print(f"{mutant.file}:{mutant.line}: {mutant.before}  ->  {mutant.after}")
        return 0
    reasons = equivalents()
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        trees = [Path(folder) / f"tree{k}" for k in range(max(1, options.jobs))]
        copy_tree(trees[0])
        _import_others()
        rooms = sorted({room(m.file) for m in found})
        runs = {r: _run_of(r, options.within or [*_tests_of(r, trees[0]), *options.tests], trees[0]) for r in rooms}
        for tree in trees[1:]:
            shutil.copytree(trees[0], tree, symlinks=True)
        if not options.all:
            found = drawn(found, runs, options.count, options.seed)
        known = [m for m in found if m.key in reasons]
        verdicts = list(_verdicts([m for m in found if m.key not in reasons], runs, trees))
    return _tell(verdicts, known, found if options.all else None, reasons)


def _tell(
    verdicts: list[Verdict], known: list[Mutant], complete: list[Mutant] | None, reasons: dict[tuple[str, ...], str]
) -> int:
    counts = collections.Counter((v.mutant.file, v.outcome) for v in verdicts)
    for file in sorted({v.mutant.file for v in verdicts} | {m.file for m in known}):
        equal = sum(m.file == file for m in known)
        numbers = ", ".join(f"{counts[file, o]} {o}" for o in ("killed", "survived", "unseen") if counts[file, o])
        print(f"{file}: {numbers}{f', {equal} equivalent' if equal else ''}")
    if complete is not None:
        files, keys = {m.file for m in complete}, {m.key for m in complete}
        for key in reasons:
            if key[0] in files and key not in keys:
                print(f"no longer there, in {EQUIVALENT.name}: {key[0]}: {key[1]}: {key[2]}  ->  {key[3]}")
    killed = sum(v.outcome == "killed" for v in verdicts)
    print(
        f"{killed} of {len(verdicts)} killed ({100 * killed / max(1, len(verdicts)):.1f} %), {len(known)} known to be "
        f"equivalent"
    )
    return int(killed < len(verdicts))


def equivalents() -> dict[tuple[str, ...], str]:
    """The mutants that no test can tell from the original, with the reason of each."""
    if not EQUIVALENT.exists():
        return {}
    rows = tomllib.loads(EQUIVALENT.read_text()).get("mutant", [])
    return {(r["file"], r["function"], r["before"], r["after"]): r["reason"] for r in rows}


def drawn(found: list[Mutant], runs: dict[str, Run], count: int, seed: int) -> list[Mutant]:
    """As many as asked for: lines that tests execute, each as likely as any other, and one of the mutants of each
    line."""
    lines = collections.defaultdict(list)
    for mutant in found:
        if runs[room(mutant.file)].tests(mutant):
            lines[mutant.file, mutant.line].append(mutant)
    generator = random.Random(seed)
    chosen = generator.sample(sorted(lines), min(count, len(lines)))
    return [generator.choice(lines[place]) for place in chosen]


def room(file: str) -> str:
    """hlo_opt/analysis/graph/numbering.py -> analysis; "" for files at the top."""
    parts = Path(file).parts
    return parts[1] if len(parts) > 2 else ""


def _places(globs: list[str]) -> list[Mutant]:
    patterns = {glob: PLACES.get(glob, "") for glob in globs} or PLACES
    found = []
    for path in sorted((ROOT / "hlo_opt").rglob("*.py")):
        file = path.relative_to(ROOT).as_posix()
        patterns_here = [p for g, p in patterns.items() if fnmatch.fnmatch(file, g)]
        if patterns_here:
            found += [m for m in mutants(file, path.read_text()) if any(re.search(p, m.before) for p in patterns_here)]
    return found


# ---- copies of the tree, and a run without mistakes


def copy_tree(tree: Path) -> None:
    """Copy what git tracks, and new files that it does not ignore."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    for name in listed.stdout.splitlines():
        if (ROOT / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, tree / name)


def _import_others() -> None:
    """Import here what every test process imports and no mutant is in, so that each begins with it."""
    for name in ("pytest", "hypothesis.strategies", "numpy", "ml_dtypes", "lark", "click.testing", "rich.table", "jax"):
        with contextlib.suppress(ImportError):
            __import__(name)


def _tests_of(name: str, tree: Path) -> list[str]:
    return [f"tests/{name}"] if name else sorted(p.relative_to(tree).as_posix() for p in tree.glob("tests/test_*.py"))


def _run_of(name: str, tests: list[str], tree: Path) -> Run:
    digest = hashlib.sha256(repr(tests).encode())
    for path in sorted(p for top in ("hlo_opt", "tests", "testdata", "scripts") for p in (tree / top).rglob("*")):
        if path.is_file() and path.suffix != ".pyc":
            digest.update(path.relative_to(tree).as_posix().encode() + hashlib.sha256(path.read_bytes()).digest())
    kept = Path(tempfile.gettempdir()) / f"mutate-code-{os.getuid()}" / f"{digest.hexdigest()[:20]}.json"
    if not kept.exists():
        print(f"running {' '.join(tests)} once to see which test executes what", file=sys.stderr)
        kept.parent.mkdir(exist_ok=True)
        child = os.fork()
        if child == 0:
            _settle(tree, kept.with_suffix(".log"))
            os._exit(record(tree, tests, kept))
        os.waitpid(child, 0)
        if not kept.exists():
            sys.exit(f"the tests of {name} do not run: see {kept.with_suffix('.log')}")
    read = json.loads(kept.read_text())
    if read["failed"]:
        print(f"left out, as they fail without any mistake: {', '.join(read['failed'])}", file=sys.stderr)
    names = list(read["seconds"])
    executed = read["executed"]
    by_name = {file: {int(line): [names[k] for k in of] for line, of in executed[file].items()} for file in executed}
    return Run(read["seconds"], by_name)


def _settle(tree: Path, log: Path) -> None:
    """In a process of its own: work in the copy, with none of this tree's modules."""
    os.setsid()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.chdir(tree)
    for name in [n for n in sys.modules if n.split(".")[0] in ("hlo_opt", "scripts", "tests")]:
        del sys.modules[name]
    sys.path[:] = [str(tree), *(p for p in sys.path if p and Path(p).resolve() not in (ROOT, tree))]
    os.environ.update(PYTHONPATH=str(tree), PYTHONDONTWRITEBYTECODE="1", XDG_CACHE_HOME=str(tree.with_suffix(".cache")))
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for number in (1, 2):
        os.dup2(output, number)


# ---- mutants


def _verdicts(found: list[Mutant], runs: dict[str, Run], trees: list[Path]) -> Iterator[Verdict]:
    working: dict[int, tuple[Mutant, Path, float]] = {}
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        yield from _run_all(found, runs, trees, working)
    finally:
        for child in working:
            os.killpg(child, signal.SIGKILL)


def _run_all(
    found: list[Mutant], runs: dict[str, Run], trees: list[Path], working: dict[int, tuple[Mutant, Path, float]]
) -> Iterator[Verdict]:
    pending, free = list(reversed(found)), list(trees)
    while pending or working:
        while pending and free:
            mutant = pending.pop()
            tests = runs[room(mutant.file)].tests(mutant)
            if tests:
                tree = free.pop()
                working[_start(mutant, tests, runs[room(mutant.file)].seconds, tree)] = mutant, tree, time.monotonic()
            else:
                yield _told(Verdict(mutant, "unseen", "", 0))
        time.sleep(0.02)
        for child, (mutant, tree, start) in list(working.items()):
            ended, status = os.waitpid(child, os.WNOHANG)
            seconds = time.monotonic() - start
            if not ended and seconds < _limit():
                continue
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)
            if not ended:
                os.waitpid(child, 0)
            del working[child]
            free.append(tree)
            shutil.copy2(ROOT / mutant.file, tree / mutant.file)
            yield _told(_judged(mutant, tree, status if ended else None, seconds))


def _limit() -> float:
    """Seconds for all tests of one mutant; longer where others use the processors, too."""
    return SECONDS * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


def _start(mutant: Mutant, tests: list[str], seconds: dict[str, float], tree: Path) -> int:
    (tree / mutant.file).write_text(mutant.source)
    for stale in (tree / mutant.file).parent.glob(f"__pycache__/{Path(mutant.file).stem}.*.pyc"):
        stale.unlink()
    tree.with_suffix(".killed").unlink(missing_ok=True)
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            _settle(tree, tree.with_suffix(".log"))
            resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
            sys.dont_write_bytecode = True
            os._exit(run_chosen(tests, seconds, tree.with_suffix(".killed")))
        os._exit(KILLED_BY)
    return child


def _judged(mutant: Mutant, tree: Path, status: int | None, seconds: float) -> Verdict:
    note = tree.with_suffix(".killed")
    test = note.read_text() if note.exists() else ""
    if status is None:
        return Verdict(mutant, "survived", f"two minutes were over in {test}", seconds)
    if os.WIFSIGNALED(status):
        return Verdict(mutant, "killed", f"{test} does not end ({signal.Signals(os.WTERMSIG(status)).name})", seconds)
    return Verdict(mutant, "survived" if os.WEXITSTATUS(status) == 0 else "killed", test or "import", seconds)


def _told(verdict: Verdict) -> Verdict:
    mutant = verdict.mutant
    if verdict.outcome == "killed":
        print(f"killed in {verdict.seconds:.1f} s: {mutant.file}:{mutant.line} by {verdict.test}", file=sys.stderr)
        return verdict
    why = {"survived": verdict.test if "two minutes" in verdict.test else "", "unseen": "no test executes this"}[
        verdict.outcome
    ]
    print(
        f"{mutant.file}:{mutant.line}: {verdict.outcome}, in {mutant.function or 'the file'} "
        f"{f'({why})' if why else ''}"
    )
    print(f"  - {mutant.before}\n  + {mutant.after}", flush=True)
    return verdict


if __name__ == "__main__":
    sys.exit(main())
