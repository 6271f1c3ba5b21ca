"""The first change in a series of modules: the first module whose answer to a question differs from the answer of
module 0.

A series is the rewrites of our own passes, one step each; the modules that XLA dumps after its passes; or any files in
order. Child processes build and ask the modules, several at once. A module without an answer (one that cannot run, for
example) is skipped, as `git bisect skip` does.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

from hlo_opt.analysis.graph.compare.flat import FlatSite
from hlo_opt.analysis.graph.compare.matching import Matched, match
from hlo_opt.analysis.targets import DeviceTarget
from hlo_opt.cutting.questions import (
    COMPARED,
    ENDED,
    NAN,
    Command,
    HasNan,
    compares,
    comparison,
    differs,
    failure_kind,
    quick_ways,
)
from hlo_opt.cutting.trials import Trials, left_as
from hlo_opt.diag import HloOptError, ParseError, UsageError, VerifyError, did_you_mean
from hlo_opt.fusion.summary import module_summary
from hlo_opt.ir import Module
from hlo_opt.jax.conversion import text_of
from hlo_opt.passes.run import Outcome
from hlo_opt.runtime.check.forms import CheckedForms
from hlo_opt.text import parse, print_module, verify
from hlo_opt.text.frames import source_location

NO, ANOTHER = "no", "another status"
"""The answer of a module that does not show what is watched; that of a command which ends with another status."""
CHECK = "check"
LONGEST = 600.0
"""Limit for one module, in seconds."""
LEAST, ALLOWED = 60.0, 10
"""Limit for one module once the first one has an answer: in seconds, and as a multiple of its time."""


class Series(Protocol):
    """Modules in order, from number 0."""

    @property
    def last(self) -> int | None:
        """The number of the last module; None where it is not known before the modules are built."""

    @property
    def is_ours(self) -> bool:
        """Whether our own passes build the modules, so that an error of building, reading or running one is a fault."""

    def module(self, number: int) -> Module:
        """The module with a number. Raises any error of building it."""

    def name(self, number: int) -> str:
        """The name of a module in messages."""


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
    """The modules that XLA dumped into a folder for one program, in the order of the passes. A text is preferred to a
    protobuf of the same module. Raises UsageError for a folder without modules, and where several programs are there
    and `wanted` names none of them."""
    programs: dict[str, dict[tuple[float, str], Path]] = {}
    matches = [(match, path) for path in sorted(folder.iterdir()) if (match := _DUMPED.fullmatch(path.name))]
    for match, path in sorted(matches, key=lambda pair: "pb" in pair[0]["ending"]):
        number = float(match["number"] or ("-inf" if match["first"] else "inf"))
        programs.setdefault(match["module"], {}).setdefault((number, path.name[: match.start("ending")]), path)
    if not programs:
        hint = "XLA_FLAGS='--xla_dump_to=DIR --xla_dump_hlo_pass_re=.*' makes one"
        raise UsageError("no modules dumped after passes are in the folder", filename=str(folder), hint=hint)
    chosen = [
        name for name in programs if wanted in (name, name.partition(".")[2]) or (not wanted and len(programs) == 1)
    ]
    if len(chosen) != 1:
        names = ", ".join(programs)
        near = did_you_mean(wanted, programs) if wanted else None
        what = f"there is no one program {wanted!r}" if wanted else f"{len(programs)} programs are in the folder"
        raise UsageError(what, filename=str(folder), hint=near or f"--module takes one of {names}")
    return Files(tuple(path for _, path in sorted(programs[chosen[0]].items())))


def pass_of(name: str) -> str:
    """The pass of XLA before a dump, by the name of its file; empty where the name does not say."""
    match = _PASS.search(name)
    return "" if match is None else f"{match['done']} in {match['pipeline']}"


OnPass = Callable[[str, Module], None]
"""A callback for each pass: its name, and the module after it."""
FusingRun = Callable[[int | None, OnPass | None], Outcome]
"""Fuses the module; a number limits the rewrites."""


@dataclass(frozen=True)
class Rewrites:
    """The module after each number of rewrites of our own passes."""

    run: FusingRun
    last: int | None
    is_ours: bool = True

    def module(self, number: int) -> Module:
        return self.run(number, None).module

    def name(self, number: int) -> str:
        return f"step {number}"


# ---- what is watched


WatchFunction = Callable[[Module, Module, str], str | None]
"""(first module, module, its text) -> the answer; None: there is none."""


@dataclass(frozen=True)
class Watch:
    """The question that each module is asked: its title, and the ways of asking, the quicker ones first."""

    title: str
    ways: tuple[WatchFunction, ...]


def watch_of(text: str, target: DeviceTarget, backend: str = "auto", seed: int = 0, *, is_ours: bool = True) -> Watch:
    """The question for the text of an option: `check`, `nan` or `kernels > 3`. Raises UsageError."""
    words = " ".join(text.split())
    if words == CHECK:
        quick = (partial(_checked, *way, seed, True, is_ours) for way in quick_ways(backend))
        return Watch(CHECK, (*quick, partial(_checked, backend, "both", seed, False, is_ours)))
    if words.lower() == NAN:
        return Watch(NAN, (lambda first, module, text: HasNan(seed).ask(module, text) or NO,))
    match = COMPARED.fullmatch(words)
    if match is None:
        near = did_you_mean(words, (CHECK, NAN))
        hint = near or "it takes check, nan or 'kernels > 3'; --run takes a command"
        raise UsageError(f"--watch does not take {text!r}", hint=hint)
    name, test, number = comparison(match[1], match[2], match[3])

    def ask(first: Module, module: Module, text: str) -> str:
        value = (
            sum(len(c.instructions) for c in module.computations)
            if name == "instructions"
            else getattr(module_summary(module, target), name)
        )
        return f"{name} {test} {number:g}" if compares(value, test, number) else NO

    return Watch(words, (ask,))


def by_command(command: Command) -> Watch:
    """The question whether a user's command ends with status 0."""
    return Watch("the command", (lambda first, module, text: command.ask(module, text) or ANOTHER,))


def _checked(
    backend: str, form: CheckedForms, seed: int, is_quick: bool, is_ours: bool, first: Module, module: Module, text: str
) -> str | None:
    try:
        verify(parse(text), allow_unknown=not is_ours)
    except (ParseError, VerifyError) as error:
        return failure_kind(error) if is_ours else None
    difference = differs(first, module, backend, seed, form, is_quick=is_quick)
    if difference is not None and difference.startswith("run: HLO") and not is_ours:
        return None
    return difference or NO


# ---- the search


@dataclass(frozen=True)
class FirstChange:
    """The first change: the numbers of the modules before and after it, and their answers. `unknown` are the numbers
    between them, of modules without an answer."""

    before: int
    after: int
    was: str
    became: str
    unknown: tuple[int, ...] = ()


@dataclass(frozen=True)
class NoChange:
    """The first and the last module have the same answer."""

    answer: str


class Bisection:
    """A search by halving for the first change in a series."""

    def __init__(
        self, series: Series, watch: Watch, jobs: int, tell: Callable[[str], None] = lambda line: None
    ) -> None:
        self.series, self.watch, self.tell = series, watch, tell
        self.trials = Trials(jobs, LONGEST)
        self.known: dict[int, str | None] = {}
        self.way = 0
        self.first: Module | None = None
        """The first module; None where building it, and so any other one, ends in an error."""
        try:
            self.first = series.module(0)
        except Exception:
            if not series.is_ours:
                raise

    def find(self) -> FirstChange | NoChange:
        """The first change. Raises UsageError where the first or the last module has no answer."""
        last = self._ends()
        was, became = self.known[0], self.known[last]
        if was is None or became is None:
            first = self.series.name(0)
            raise UsageError(
                f"{first if was is None else self.series.name(last)} has no answer to {self.watch.title}",
                hint=f"it does not run, or takes other inputs than {first}; a figure or a command may have one",
            )
        if was == became:
            return NoChange(was)
        low, high = 0, last
        while True:
            between = [n for n in range(low + 1, high) if self.known.get(n, "") is not None]
            if not between:
                unknown = tuple(range(low + 1, high))
                return FirstChange(low, high, was, self.known[high] or "", unknown)
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
        """Ask the first and the last module; the number of the last. From then on, the way of asking is the quickest
        that gives these two different answers."""
        last = self.series.last
        for way in range(len(self.watch.ways)):
            self.way, self.trials.seconds = way, LONGEST  # no way's time says what the next one takes
            self.known.clear()
            if last is not None:
                self._ask([0])  # its time is the measure of the others
                self._ask([last])
                end = last
            else:
                end = self._grown()
            if self.known[0] != self.known[end] and self.known[end] is not None:
                break
        return end

    def _grown(self) -> int:
        """A number at which building fails, for a series of unknown length: each one asked is twice the last."""
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
        answers = self.trials.every([partial(self._timed, n) for n in wanted])
        for number, answer in zip(wanted, answers, strict=True):
            if answer is None:
                self.known[number] = ENDED if self.series.is_ours else None
                continue
            self.known[number] = answer[0]
            if number == 0:
                self.trials.seconds = min(LONGEST, max(LEAST, ALLOWED * answer[1]))

    def _timed(self, number: int) -> tuple[str | None, float]:
        started = time.monotonic()
        with left_as(lambda text: (text, time.monotonic() - started)):
            return self._answer(number), time.monotonic() - started

    def _answer(self, number: int) -> str | None:
        """In a child process: the answer of a module."""
        try:
            module = self.series.module(number)
        except Exception as error:
            return f"fuse: {failure_kind(error)}" if self.series.is_ours else None
        if self.first is None:
            return None
        try:
            return self.watch.ways[self.way](self.first, module, str(module))
        except HloOptError:
            return None


# ---- what a step did


@dataclass(frozen=True)
class StepDifference:
    """The difference between two modules of a series: the pass, the instructions that it changed, their Python lines,
    and the lines of text that it removed and added."""

    done_by: str
    about: tuple[str, ...]
    sources: tuple[str, ...]
    lines: tuple[str, ...]
    error: str = ""


def rewrite(series: Rewrites, number: int) -> StepDifference:
    """What a rewrite of our own passes changed."""
    before, after = _Traced(series.run, number - 1), _Traced(series.run, number)
    seen = {text for _, text in before.passes}
    # The pass is the first whose result the shorter run does not have. Where it ends in an error, it has no result,
    # and the shorter run says which pass comes next.
    done_by = next((name for name, text in after.passes if text not in seen), "")
    if not done_by and len(after.passes) < len(before.passes):
        done_by = before.passes[len(after.passes)][0]
    lines = changed_lines(before.text, after.text)
    about = after.outcome.context.about if after.outcome is not None else ()
    module = before.outcome.original if before.outcome is not None else parse(before.text)
    return StepDifference(done_by, about, _sources(module, about or _names(lines)), lines, after.error)


class _Traced:
    """A run, with the module after each pass."""

    def __init__(self, run: FusingRun, number: int) -> None:
        self.passes: list[tuple[str, str]] = []
        self.outcome: Outcome | None = None
        self.error = ""
        try:
            self.outcome = run(number, lambda name, module: self.passes.append((name, print_module(module, "short"))))
        except Exception as error:
            self.error = str(error) or type(error).__name__

    @property
    def text(self) -> str:
        """The module after the last pass."""
        return self.passes[-1][1] if self.passes else ""


def between(series: Files, turn: FirstChange) -> StepDifference:
    """What changed between two files: by the names of instructions, or where these say little, as in dumps of two
    programs, by what is computed."""
    old, new = (series.module(n) for n in (turn.before, turn.after))
    lines = changed_lines(*(print_module(module, "short") for module in (old, new)))
    sources = _sources(new, _names(lines))
    if len(lines) > MOST_BY_NAME:
        alone = _without_equal(old, new)
        kept = tuple(line for line in lines if (names := _names([line])) and names[0] in alone[line[0]])
        if len(kept) < len(lines):
            lines = kept
            sources = tuple(dict.fromkeys((*_sources(new, alone["+"]), *_sources(old, alone["-"]))))
    return StepDifference(pass_of(series.name(turn.after)), (), sources, lines)


MOST_BY_NAME = 24
"""The most lines of text between two files that are taken for what changed."""


def _without_equal(old: Module, new: Module) -> dict[str, list[str]]:
    """The instructions that the old module has alone (`-`), and the new one (`+`): another operation, or one that
    reads something else."""
    matched = match(old, new)
    names: dict[str, list[str]] = {"-": [], "+": []}
    for sign, flat in (("-", matched.old), ("+", matched.new)):
        for site in flat.sites():
            twin = site.partner
            one, other = (site, twin) if sign == "-" else (twin, site)
            if one is not None and other is not None and one.key == other.key and _agree(matched, one, other):
                continue
            if twin is not None or site.instruction.literal is None:
                names[sign].append(site.instruction.name)
    return {sign: list(dict.fromkeys(found)) for sign, found in names.items()}


def _agree(matched: Matched, one: FlatSite, other: FlatSite) -> bool:
    """Whether two operations read the same, in either order where that does not matter."""
    mine, theirs = one.inputs, other.inputs
    if len(mine) != len(theirs):
        return False
    orders = [theirs, theirs[::-1]] if len(mine) == 2 and matched.forms.commutes(one.opcode) else [theirs]
    return any(all(matched.agree(x, y) for x, y in zip(mine, order, strict=True)) for order in orders)


def changed_lines(before: str, after: str) -> tuple[str, ...]:
    """The lines that only the first text has (`-`), then those that only the second has (`+`), in any place."""
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
    places = (source_location(module, by_name[name]) for name in names if name in by_name)
    return tuple(dict.fromkeys(place for place in places if place))
