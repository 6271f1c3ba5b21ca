"""A module in four numbers: kernels, launches, bytes, microseconds.

Kernels and launches are counted over the entry and all that control flow reaches from it. Bytes are counted as XLA's
HloCostAnalysis does (xla/service/hlo_cost_analysis.cc): every launched instruction's reads and writes, loop bodies
once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hlo_opt.analysis.graph.loops import NO_TRIP_COUNTS, TripCounts, trip_count
from hlo_opt.analysis.memory.traffic import module_bytes
from hlo_opt.analysis.targets import DeviceTarget
from hlo_opt.diag import Reason
from hlo_opt.fusion.decision import ByStructure
from hlo_opt.fusion.overlap import overlapped_us
from hlo_opt.fusion.state import FusionState
from hlo_opt.ir import Computation, Instruction, Module
from hlo_opt.ir.walk import CONTROL_FLOW
from hlo_opt.ops.sets import fused, launches, looped
from hlo_opt.plans.price import Price


@dataclass(frozen=True, slots=True)
class Launched:
    """An instruction that launches work, by the names of it and of its computation, what one launch takes, and how many
    there are: the rounds of the loops around it."""

    instruction: str
    computation: str
    est_us: float
    bytes: float
    rounds: int = 1


OVERLAPS = 0.95
"""The share of the time that a module may take side by side for it to be worth a word."""


@dataclass(frozen=True, slots=True)
class ModuleSummary:
    """`kernels` counts each launched instruction once, `launches` times the known trip counts of the loops around it,
    `est_us` too; `bytes` counts loop bodies once, and of a conditional the branch that moves most. `unknown_loops` run
    an unknown number of times and are counted as one round. `launched` has what each launch takes. `overlapped_us` is
    the estimate where independent launches run side by side (`fusion.overlap`), `est_us` where one follows another."""

    kernels: int
    launches: int
    bytes: float
    est_us: float
    unknown_loops: tuple[str, ...] = ()
    launched: tuple[Launched, ...] = ()
    overlapped_us: float = 0.0

    @property
    def overlaps(self) -> bool:
        """Whether launches side by side take noticeably less time than one after another."""
        return self.overlapped_us < OVERLAPS * self.est_us

    @property
    def unknown_trips(self) -> int:
        """How many loops run an unknown number of times."""
        return len(self.unknown_loops)


def executions(
    module: Module, trip_counts: TripCounts = NO_TRIP_COUNTS, is_opened: Callable[[Instruction], bool] = lambda i: False
) -> tuple[dict[Computation, int], list[str]]:
    """How often the entry and every computation that control flow reaches runs, as far as trip counts are known or in
    `trip_counts` (branches count as taken); and the loops whose count is not known. A computation that several
    instructions call is counted at its first caller. A fusion that `is_opened` counts as a call."""
    times = {module.entry: 1}
    todo = [module.entry]
    unknown: list[str] = []
    while todo:
        computation = todo.pop()
        for instruction in computation.instructions:
            if instruction.opcode not in CONTROL_FLOW and not is_opened(instruction):
                continue
            factor = 1
            if looped(instruction) is not None:
                count = trip_count(instruction, trip_counts)
                if count is None:
                    unknown.append(instruction.name)
                factor = 1 if count is None else count
            for callee in instruction.called():
                if callee not in times:
                    times[callee] = times[computation] * factor
                    todo.append(callee)
    return times, unknown


def launched(module: Module) -> list[Instruction]:
    """The instructions that launch work, in the order of the text."""
    times, _ = executions(module)
    return [i for c in module.computations if c in times for i in c.instructions if launches(i)]


class _Opened:
    """Fusions that hold a loop and have no plan: what they hold is launched kernel by kernel, in each round again."""

    def __init__(self, state: FusionState) -> None:
        self._state = state

    def __call__(self, instruction: Instruction) -> bool:
        body = fused(instruction)
        if body is None or not any(looped(i) is not None for i in body.instructions):
            return False
        state = self._state
        return isinstance(state.sketch(state.structure(instruction), lambda: state.cluster(instruction)), Reason)


def kernels_of(module: Module, target: DeviceTarget, known: ByStructure | None = None) -> list[Instruction]:
    """The kernels of a module, as every verb counts them: the instructions that launch work, library calls among them,
    each once, in the order of the text. Of a fusion that has no plan and holds a loop, its members count instead."""
    is_opened = _Opened(FusionState(module, target, known))
    times, _ = executions(module, is_opened=is_opened)
    return [i for c in module.computations if c in times for i in c.instructions if launches(i) and not is_opened(i)]


def module_summary(
    module: Module,
    target: DeviceTarget,
    known: ByStructure | None = None,
    trip_counts: TripCounts = NO_TRIP_COUNTS,
    state: FusionState | None = None,
) -> ModuleSummary:
    """Count and price a module, with what is `known` of its structures and the trip counts that the user gave
    (`trip_counts`). `state` is what passes know of the module, where they ran."""
    state = FusionState(module, target, known) if state is None else state
    is_opened = _Opened(state)
    times, unknown = executions(module, trip_counts, is_opened)
    total, microseconds = 0, 0.0
    prices: dict[Instruction, Price] = {}
    kernels: list[Launched] = []
    members = [i for c in module.computations if c in times for i in c.instructions if launches(i)]
    for instruction in members:
        if is_opened(instruction):
            continue
        often = times[instruction.computation]
        price = prices[instruction] = state.prices.of(instruction)
        kernels.append(Launched(instruction.name, instruction.computation.name, price.us, price.bytes, often))
        total += often
        microseconds += often * price.us
    side_by_side = overlapped_us(module, prices, times, lambda loop: trip_count(loop, trip_counts) or 1)
    return ModuleSummary(
        len(kernels), total, module_bytes(module), microseconds, tuple(unknown), tuple(kernels), side_by_side
    )
