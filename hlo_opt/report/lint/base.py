"""What a rule gets and what it finds; and the pages of the rules, one file each, as those of the codes of refusals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib import resources
from typing import TypeVar

from hlo_opt.analysis.graph.loops import TripCounts
from hlo_opt.analysis.targets import DeviceTarget
from hlo_opt.diag import HloOptError
from hlo_opt.diag.reason import ReasonSpec, read_page
from hlo_opt.fusion.summary import ModuleSummary
from hlo_opt.ir import Instruction, Module, edit
from hlo_opt.passes import ExplainReport
from hlo_opt.report.again import prepared, run_again, summary_of
from hlo_opt.report.view.graph import run_by
from hlo_opt.report.view.kernels import DrawnKernel, launched
from hlo_opt.runtime.driver.emission import source_lines
from hlo_opt.runtime.schedule import EmittedKernels, Schedule, build_schedule
from hlo_opt.text.frames import source_location

PACKAGE = "hlo_opt.report.lint"

LEAST_SHARE = 0.005
"""The share of a module's time below which a finding is not worth a change: it is left out, but for `--all`."""

MOST_TRIED = 16
"""Places at which a rule tries a change, the dearest ones: each try fuses the module again, which takes seconds where
it has thousands of kernels, and such a module may have hundreds of places."""

T = TypeVar("T")


@cache
def rule_specs() -> Mapping[str, ReasonSpec]:
    """The declarations of all rules by code, in their order."""
    folder = resources.files(PACKAGE) / "pages"
    codes = sorted(page.name.removesuffix(".md") for page in folder.iterdir() if page.name.endswith(".md"))
    return {code: read_page(folder, code) for code in codes}


@dataclass(frozen=True)
class Finding:
    """One place that a rule speaks of.

    us       microseconds that it costs, in all iterations of loops; None where it costs memory or time of compilation
    saves    whether a program with the change takes so much less, by the same estimate; else it is what the place takes
             as it is, of which a change saves a part
    is_apart whether the estimate of the module leaves it out, which counts kernels and library calls
    bytes    of memory that it costs, where that is what it costs
    source   `file:line` of the Python program; empty where the dump does not say
    name     the instruction; the module's name for what is about all of it
    file     of the module, where several were looked at
    rewrite  what was changed in the HLO to see whether it helps, and how it is known to be the same program; empty
             where nothing was
    """

    code: str
    numbers: Mapping[str, str]
    source: str
    name: str
    us: float | None = None
    saves: bool = False
    is_apart: bool = False
    bytes: float = 0.0
    rewrite: str = ""
    file: str = ""

    @property
    def spec(self) -> ReasonSpec:
        return rule_specs()[self.code]

    @property
    def message(self) -> str:
        return self.spec.template.format(**self.numbers)

    @property
    def hint(self) -> str:
        return self.spec.hint.format(**self.numbers)


@dataclass(frozen=True)
class FusedProgram:
    """A module and what fusing it gives: rules look at what is left of a thing after fusing, for that is what it
    costs.

    untried  by rule, how many places are worth a try and had none
    emitted  kernels of the program that are known
    """

    report: ExplainReport
    untried: Counter[str] = field(default_factory=Counter)
    emitted: EmittedKernels = field(default_factory=EmittedKernels)
    _sources: dict[str, str] = field(default_factory=dict)

    @property
    def original(self) -> Module:
        return self.report.outcome.original

    @property
    def fused(self) -> Module:
        return self.report.outcome.module

    @property
    def target(self) -> DeviceTarget:
        return self.report.outcome.target

    @property
    def summary(self) -> ModuleSummary:
        return self.report.after

    @cached_property
    def kernels(self) -> list[DrawnKernel]:
        """The kernels of the result with their prices."""
        known = self.report.outcome.context.memory.known
        return launched(self.fused, self.summary, self.target, known)

    def source(self, kernel: DrawnKernel, member: Instruction | None = None) -> str:
        """The Python line of what a kernel holds, else of the kernel, else the first that it has."""
        place = source_location(self.fused, member) if member is not None else ""
        return place or next(iter(source_lines(self.fused, kernel.instruction)), "")

    @cached_property
    def prepared(self) -> Module:
        """The module before fusion, as the passes that fuse it get it. Not to be changed."""
        return prepared(self.report)

    @cached_property
    def schedule(self) -> Schedule:
        """The program that runs the result. Raises EvaluationError for malformed control flow."""
        return build_schedule(self.fused, self.target, self.emitted)

    def copy_with(self, instruction: Instruction) -> tuple[Module, Instruction] | None:
        """A copy of the module before fusion, and in it an instruction of the result, to change; None where passes made
        the instruction."""
        copy = edit.clone_module(self.prepared)
        own = (i for c in copy.computations for i in c.instructions if i.name == instruction.name)
        return next(((copy, i) for i in own if i.opcode == instruction.opcode), None)

    def worth_trying(self, code: str, places: Iterable[tuple[float, T]]) -> list[T]:
        """The places at which a rule tries a change: the dearest ones that take at least `LEAST_SHARE` of the time.
        `places` are pairs of microseconds and a place."""
        least = LEAST_SHARE * self.summary.est_us
        worth = sorted((pair for pair in places if pair[0] >= least), key=lambda pair: -pair[0])
        self.untried[code] += len(worth[MOST_TRIED:])
        return [place for _, place in worth[:MOST_TRIED]]

    def saved(self, changed: Module) -> float | None:
        """Microseconds that a changed module takes less, after the same passes; None where they cannot fuse it, and
        where a loop is gone whose rounds the user said: nothing tells those of its copies. New instructions may stand
        anywhere in their computation."""
        for computation in changed.computations:
            edit.sort(computation)
        edit.sort_computations(changed)
        if not {i.name for c in changed.computations for i in c.instructions}.issuperset(self._trip_counts):
            return None
        try:
            return self._us_before - self._us(changed)
        except HloOptError:
            return None

    @property
    def _trip_counts(self) -> TripCounts:
        return self.report.outcome.context.options.trip_counts

    @cached_property
    def _us_before(self) -> float:
        return self._us(self.prepared)

    def _us(self, module: Module) -> float:
        """The estimate of a module after the passes of the report."""
        return summary_of(run_again(self.report, module)).est_us

    def copying(self, moved: float) -> float:
        """Microseconds that a plain copy takes for `moved` bytes."""
        return moved / (self.target.copied_per_second / 1e6)


def everything(kernel: DrawnKernel) -> Iterator[Instruction]:
    """All that a kernel computes: also what loops and branches in it do."""
    todo = list(kernel.members)
    seen = set(todo)
    while todo:
        member = todo.pop()
        yield member
        for computation in run_by(member):
            fresh = [i for i in computation.instructions if i not in seen]
            seen.update(fresh)
            todo += fresh


def line_within(module: Module, instruction: Instruction) -> str:
    """The Python line of an instruction, else the first in what it calls, such as the body of a loop in a kernel; empty
    where the dump does not say."""
    line = source_location(module, instruction)
    inside = (i for computation in instruction.called() for i in computation.instructions)
    return line or next((line for i in inside if (line := line_within(module, i))), "")
