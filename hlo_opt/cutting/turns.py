"""Where something turns: in a series of modules, the first that another answer is given for than for the first of them.

A series is our own rewrites, of which each is a step; the modules that XLA dumps after its passes; or any files in
order. Each module is made and asked in a process of its own, several at once. What cannot be told of a module (it
cannot be run, say) is left out, as `git bisect skip` does.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

from hlo_opt.analysis.targets import DeviceTarget
from hlo_opt.cutting.shows import COMPARED, NAN, Command, HasNan, compares, comparison, differs, way_of
from hlo_opt.cutting.trials import Trials
from hlo_opt.diag import HloOptError, ParseError, UsageError, VerifyError, did_you_mean
from hlo_opt.fusion.summary import module_summary
from hlo_opt.ir import Module
from hlo_opt.jax.conversion import text_of
from hlo_opt.passes.run import Outcome
from hlo_opt.text import parse, print_module, verify
from hlo_opt.text.frames import source_location

NO = "no"
"""The answer where something is not shown."""
CHECK = "check"
LONGEST = 600.0
"""Seconds for one module."""


class Series(Protocol):
    """Modules in order, from number 0."""

    @property
    def last(self) -> int | None:
        """The number of the last one; None where only making them tells."""

    @property
    def is_ours(self) -> bool:
        """Whether we make the modules, so that one that cannot be made, read or run shows a fault."""

    def module(self, number: int) -> Module:
        """One of them. Raises whatever goes wrong."""

    def name(self, number: int) -> str:
        """What a person calls it."""


@dataclass(frozen=True)
class Files:
    """Files in order."""

    files: tuple[Path, ...]
    is_ours: bool = False

    @property
    def last(self) -> int:
        return len(self.files) - 1

    def module(self, number: int) -> Module:
        file = self.files[number]
        module = parse(text_of(file.read_bytes(), str(file)), filename=str(file))
        verify(module, allow_unknown=True)
        return module

    def name(self, number: int) -> str:
        return self.files[number].name


_ENDING = r"\.(?P<ending>txt|hlo|hlo\.pb|pb)(?:\.gz)?"
_DUMPED = re.compile(
    r"(?P<module>module_\d+\..+?)\."
    r"(?:(?P<number>\d{4,})\..+?|(?P<first>before_optimizations)|(?:sm_\d+\.\d+_gpu_|\w*)after_optimizations)" + _ENDING
)
_PASS = re.compile(r"\.\d{4,}\.(?P<pipeline>.+?)\.after_(?P<done>.+?)(?:\.before_(?P<next>.+?))?" + _ENDING + "$")


def dumped(folder: Path, wanted: str = "") -> Files:
    """The modules that XLA dumped into a folder for one program, in the order of the passes; of one that is there as a
    text and as a protobuf, the text. Raises UsageError where
    there are none, or several programs of which none is `wanted`."""
    found: dict[str, dict[tuple[float, str], Path]] = {}
    matches = [(match, path) for path in sorted(folder.iterdir()) if (match := _DUMPED.fullmatch(path.name))]
    for match, path in sorted(matches, key=lambda pair: "pb" in pair[0]["ending"]):
        number = float(match["number"] or ("-inf" if match["first"] else "inf"))
        found.setdefault(match["module"], {}).setdefault((number, path.name[: match.start("ending")]), path)
    if not found:
        hint = "XLA_FLAGS='--xla_dump_to=DIR --xla_dump_hlo_pass_re=.*' makes one"
        raise UsageError("no modules dumped after passes are in the folder", filename=str(folder), hint=hint)
    chosen = [name for name in found if wanted in (name, name.partition(".")[2]) or (not wanted and len(found) == 1)]
    if len(chosen) != 1:
        names = ", ".join(found)
        near = did_you_mean(wanted, found) if wanted else None
        what = f"there is no one program {wanted!r}" if wanted else f"{len(found)} programs are in the folder"
        raise UsageError(what, filename=str(folder), hint=near or f"--module takes one of {names}")
    return Files(tuple(path for _, path in sorted(found[chosen[0]].items())))


def pass_of(name: str) -> str:
    """Which pass of XLA gave a dump, by the name of its file; empty where the name does not say."""
    match = _PASS.search(name)
    return "" if match is None else f"{match['done']} in {match['pipeline']}"


Tell = Callable[[str, Module], None]
"""Is told of each pass, by its name, and what it left."""
Run = Callable[[int | None, Tell | None], Outcome]
"""Fuses the module; with a number, not more than so many rewrites happen."""


@dataclass(frozen=True)
class Rewrites:
    """Our own: after each number of steps."""

    run: Run
    last: int | None
    is_ours: bool = True

    def module(self, number: int) -> Module:
        return self.run(number, None).module

    def name(self, number: int) -> str:
        return f"step {number}"


# ---- what is asked


Asked = Callable[[Module, Module, str], str | None]
"""(first module, module, its text) -> the answer, None where there is none."""


@dataclass(frozen=True)
class Watched:
    """What is asked of each module, in one or several ways, the quicker ones first."""

    title: str
    ways: tuple[Asked, ...]


def watched(text: str, target: DeviceTarget, backend: str = "auto", seed: int = 0, *, is_ours: bool = True) -> Watched:
    """What a user wants to be watched: `check`, `nan` or `kernels > 3`. Raises UsageError."""
    words = " ".join(text.split())
    if words == CHECK:
        backends = [("numpy", True), ("host", True)] if backend == "auto" else [(backend, True)]
        backends.append((backend, False))
        return Watched(CHECK, tuple(partial(_checked, b, seed, q, is_ours) for b, q in backends))
    if words.lower() == NAN:
        return Watched(NAN, (lambda first, module, text: HasNan(seed).ask(module, text) or NO,))
    match = COMPARED.fullmatch(words)
    if match is None:
        near = did_you_mean(words, (CHECK, NAN))
        raise UsageError(f"nothing is known to watch as {text!r}", hint=near or "check, nan, 'kernels > 3', or --run")
    name, test, number = comparison(match[1], match[2], match[3])

    def asked(first: Module, module: Module, text: str) -> str:
        found = (
            sum(len(c.instructions) for c in module.computations)
            if name == "instructions"
            else getattr(module_summary(module, target), name)
        )
        return f"{name} {test} {number:g}" if compares(found, test, number) else NO

    return Watched(words, (asked,))


def by_command(command: Command) -> Watched:
    """What a command of the user's says: whether it ends with status 0."""
    return Watched("the command", (lambda first, module, text: command.ask(module, text) or NO,))


def _checked(
    backend: str, seed: int, is_quick: bool, is_ours: bool, first: Module, module: Module, text: str
) -> str | None:
    try:
        verify(parse(text), allow_unknown=not is_ours)
    except (ParseError, VerifyError) as error:
        return way_of(error) if is_ours else None
    found = differs(first, module, backend, seed, is_quick=is_quick)
    if found is not None and found.startswith("run: HLO") and not is_ours:
        return None
    return found or NO


# ---- the search


@dataclass(frozen=True)
class Turn:
    """Where it turns: the number of the last module before and of the first after, and what was said of both. `unknown`
    are between them."""

    before: int
    after: int
    was: str
    became: str
    unknown: tuple[int, ...] = ()


@dataclass(frozen=True)
class Stays:
    """It does not turn: the answer for the first and the last."""

    answer: str


class Bisection:
    """Asks modules of a series."""

    def __init__(
        self, series: Series, asks: Watched, jobs: int, tell: Callable[[str], None] = lambda line: None
    ) -> None:
        self.series, self.asks, self.tell = series, asks, tell
        self.trials = Trials(jobs, LONGEST)
        self.known: dict[int, str | None] = {}
        self.way = 0
        self.first: Module | None = None
        """None where making it ends in an error, and so does making any other."""
        try:
            self.first = series.module(0)
        except Exception:
            if not series.is_ours:
                raise

    def find(self) -> Turn | Stays:
        """Halve until it is found. Raises UsageError where nothing can be told of the first or of the last module."""
        last = self._ends()
        was, became = self.known[0], self.known[last]
        if was is None or became is None:
            raise UsageError(f"nothing can be told of {self.series.name(0 if was is None else last)}")
        if was == became:
            return Stays(was)
        low, high = 0, last
        while True:
            between = [n for n in range(low + 1, high) if self.known.get(n, "") is not None]
            if not between:
                unknown = tuple(range(low + 1, high))
                return Turn(low, high, was, self.known[high] or "", unknown)
            count = min(len(between), self.trials.jobs)
            self._ask([between[(k + 1) * len(between) // (count + 1)] for k in range(count)])
            for n in sorted(n for n in between if n in self.known):
                if self.known[n] == was:
                    low = n
                elif self.known[n] is not None:
                    high = n
                    break
            self.tell(f"between {self.series.name(low)} and {self.series.name(high)}")

    def _ends(self) -> int:
        """Ask the first and the last module; the quickest way to ask that tells them apart is gone on with."""
        last = self.series.last
        for way in range(len(self.asks.ways)):
            self.way = way
            self.known.clear()
            if last is not None:
                self._ask([0, last])
                end = last
            else:
                end = self._grown()
            if self.known[0] != self.known[end] and self.known[end] is not None:
                break
        return end

    def _grown(self) -> int:
        """Of a series whose end nobody knows, for making it fails: ask twice as far each time until that shows."""
        self._ask([0])
        end = 1
        while end < 1 << 20:
            self._ask([end])
            if self.first is None:
                break
            if self.known[end] != self.known[0]:
                break
            end *= 2
        return end

    def _ask(self, numbers: Iterable[int]) -> None:
        wanted = [n for n in dict.fromkeys(numbers) if n not in self.known]
        found = self.trials.every([partial(self._answer, n) for n in wanted])
        self.known.update(zip(wanted, found, strict=True))

    def _answer(self, number: int) -> str | None:
        """In a process of its own."""
        try:
            module = self.series.module(number)
        except Exception as error:
            return f"fuse: {way_of(error)}" if self.series.is_ours else None
        if self.first is None:
            return None
        try:
            return self.asks.ways[self.way](self.first, module, str(module))
        except HloOptError:
            return None


# ---- what a step did


@dataclass(frozen=True)
class Step:
    """What happened between two modules: the pass, what it was about, the Python lines of that, and the lines of text
    that went and came."""

    done_by: str
    about: tuple[str, ...]
    sources: tuple[str, ...]
    lines: tuple[str, ...]
    error: str = ""


def rewrite(series: Rewrites, number: int) -> Step:
    """What one of our own steps did."""
    before, after = _Traced(series.run, number - 1), _Traced(series.run, number)
    seen = {text for _, text in before.passes}
    # What it left is in no run that stops before it. Where it ended in an error, the run that stops says which pass
    # came next.
    done_by = next((name for name, text in after.passes if text not in seen), "")
    if not done_by and len(after.passes) < len(before.passes):
        done_by = before.passes[len(after.passes)][0]
    lines = changed_lines(before.text, after.text)
    about = after.outcome.context.about if after.outcome is not None else ()
    module = before.outcome.original if before.outcome is not None else parse(before.text)
    return Step(done_by, about, _sources(module, about or _names(lines)), lines, after.error)


class _Traced:
    """A run, and what each pass left."""

    def __init__(self, run: Run, number: int) -> None:
        self.passes: list[tuple[str, str]] = []
        self.outcome: Outcome | None = None
        self.error = ""
        try:
            self.outcome = run(number, lambda name, module: self.passes.append((name, print_module(module, "short"))))
        except Exception as error:
            self.error = str(error) or type(error).__name__

    @property
    def text(self) -> str:
        """What the last pass left."""
        return self.passes[-1][1] if self.passes else ""


def between(series: Files, turn: Turn) -> Step:
    """What happened between two files."""
    texts = [print_module(series.module(n), "short") for n in (turn.before, turn.after)]
    lines = changed_lines(*texts)
    return Step(pass_of(series.name(turn.after)), (), _sources(series.module(turn.after), _names(lines)), lines)


def changed_lines(before: str, after: str) -> tuple[str, ...]:
    """The lines that went (`-`), then those that came (`+`), wherever they stood."""
    old, new = before.split("\n"), after.split("\n")
    return (*_only(old, new, "-"), *_only(new, old, "+"))


def _only(lines: Sequence[str], others: Sequence[str], sign: str) -> Iterator[str]:
    left = Counter(others)
    for line in lines:
        left[line] -= 1
        if left[line] < 0 and line.strip(" }"):
            yield f"{sign}{line}"


_DEFINED = re.compile(r"^[-+]\s+(?:ROOT )?%?([\w.\-]+) = ")


def _names(lines: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(m[1] for line in lines if (m := _DEFINED.match(line)) is not None))


def _sources(module: Module, names: Sequence[str]) -> tuple[str, ...]:
    by_name = {i.name: i for c in module.computations for i in c.instructions}
    found = (source_location(module, by_name[name]) for name in names if name in by_name)
    return tuple(dict.fromkeys(place for place in found if place))
