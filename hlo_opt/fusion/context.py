"""What decides how a run fuses: its options, choices of plugins among them, and what its passes know and note down.

Choices of plugins are rules that refuse a legal edge because it is not worth fusing, besides those of the passes. An
entry point of the group `hlo_opt.choices` names a function `(Edge) -> Reason | None`. It is asked where
`--choices NAME` asks for it, by every fusion pass, after legality. A choice can only refuse, so it never makes a wrong
program; an edge that the user forces is not put to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from hlo_opt.analysis.graph.loops import NO_TRIP_COUNTS, TripCounts
from hlo_opt.analysis.targets import DEFAULT_TARGET, DeviceTarget
from hlo_opt.analysis.targets import target as find_target
from hlo_opt.diag import HloOptError, Reason, UsageError, did_you_mean, reason_spec
from hlo_opt.diag.plugins import CHOICES, Plugin, error_text, plugins
from hlo_opt.fusion.decision import ByStructure
from hlo_opt.fusion.legality import Edge
from hlo_opt.fusion.state import FusionState
from hlo_opt.ir import Computation, Instruction, Module, edit
from hlo_opt.ir.walk import executed_computations


@dataclass(frozen=True)
class Choice:
    """One rule of a plugin."""

    plugin: Plugin
    function: Callable[[Edge], object]

    @property
    def name(self) -> str:
        return self.plugin.name

    @property
    def purpose(self) -> str:
        """The first sentence of the function's description."""
        text = " ".join((self.function.__doc__ or "").split())
        return text.partition(". ")[0].rstrip(".")

    def against(self, edge: Edge) -> Reason | None:
        """What the rule has against the edge. Raises UsageError, which names the plugin, when it fails or answers with
        something else."""
        try:
            answer = self.function(edge)
        except HloOptError:
            raise
        except Exception as error:
            raise self.plugin.broken(f"failed: {error_text(error)}") from error
        if answer is not None and not isinstance(answer, Reason):
            raise self.plugin.broken(f"answered with {type(answer).__name__}, not with a Reason or None")
        return answer


def choice_names() -> list[str]:
    """The names of all choices that are installed, sorted."""
    return [p.name for p in plugins(CHOICES)]


def find_choices(names: Iterable[str]) -> tuple[Choice, ...]:
    """The choices of these names. Raises UsageError, naming the nearest one, for an unknown name, and naming the plugin
    for one that cannot be used."""
    known = {p.name: p for p in plugins(CHOICES)}
    installed = []
    for name in dict.fromkeys(names):
        if name not in known:
            hint = did_you_mean(name, known) or f"installed: {', '.join(known) or 'none'}"
            raise UsageError(f"there is no choice {name!r}", hint=hint)
        function = known[name].load()
        if not callable(function):
            raise known[name].broken("cannot be called")
        installed.append(Choice(known[name], function))
    return tuple(installed)


@dataclass(frozen=True)
class FuseOptions:
    """What the user may set besides the passes.

    target           the device whose costs and limits count
    disabled         codes of reasons that are switched off
    forced           edges (producer, consumer) that are fused wherever that is legal, by the names that decisions give
                     them
    separated        edges (producer, consumer), by the names of the input, whose ends stay in separate kernels
    choices          rules of plugins that may refuse edges besides the passes' own
    stop_after_step  rewrites that may happen; None for any number
    trip_counts      rounds of loops that the text does not tell, by their names
    """

    target: DeviceTarget
    disabled: frozenset[str] = frozenset()
    forced: frozenset[tuple[str, str]] = frozenset()
    separated: frozenset[tuple[str, str]] = frozenset()
    choices: tuple[Choice, ...] = ()
    stop_after_step: int | None = None
    trip_counts: TripCounts = field(default_factory=lambda: NO_TRIP_COUNTS, hash=False)

    @classmethod
    def of(
        cls,
        target: str | DeviceTarget = DEFAULT_TARGET,
        *,
        what_if: Iterable[str] = (),
        force: Iterable[tuple[str, str]] = (),
        forbid: Iterable[tuple[str, str]] = (),
        choices: Iterable[str] = (),
        stop_after_step: int | None = None,
        trip_counts: TripCounts = NO_TRIP_COUNTS,
    ) -> FuseOptions:
        """The options as users give them, by names. Raises UsageError for unknown targets, codes and choices, and for a
        negative number of steps."""
        if stop_after_step is not None and stop_after_step < 0:
            raise UsageError(f"stop-after-step must not be negative, but is {stop_after_step}")
        return cls(
            find_target(target) if isinstance(target, str) else target,
            frozenset(reason_spec(code).code for code in what_if),
            frozenset((p.lstrip("%"), c.lstrip("%")) for p, c in force),
            frozenset((p.lstrip("%"), c.lstrip("%")) for p, c in forbid),
            find_choices(choices),
            stop_after_step,
            dict(trip_counts),
        )


class PassMemory:
    """What passes over one module hand on to each other, as long as only fusion passes change the module.

    distinct  executed computations of which all values differed. All arrays still do: kernels that are joined write
              arrays that were there before; only the tuples of them are new
    """

    def __init__(self, known: ByStructure | None = None) -> None:
        self.known = ByStructure() if known is None else known
        self.distinct: set[Computation] = set()
        self._state: FusionState | None = None

    def state(self, module: Module, target: DeviceTarget) -> FusionState:
        state = self._state
        if state is None or state.module is not module or state.target is not target:
            state = self._state = FusionState(module, target, self.known)
        return state

    def clear(self, *, values: bool = True) -> None:
        """Forget what is known of kernels, and unless `values` is false, which values differ."""
        self._state = None
        if values:
            self.distinct.clear()

    def of_copy(self, module: Module, copy: Module, copies: Mapping[Instruction, Instruction]) -> PassMemory:
        """What holds for a copy of the module, too. `copies` are its instructions by those of the module."""
        memory = PassMemory(self.known)
        if self._state is not None and self._state.module is module:
            memory._state = self._state.of_copy(copy, copies)
        return memory

    def merging(self, one: Instruction, other: Instruction) -> None:
        """Call before an instruction gives way to another of the same value: what is known of both, of their operands
        and of their readers is forgotten."""
        state = self._state
        if state is not None:
            for instruction in (one, other):
                state.forget(instruction)
                state.forget_readers(instruction)
                for operand in instruction.operands:
                    state.forget(operand)

    def changed_inside(self, computations: Iterable[Computation], module: Module) -> None:
        """These computations compute the same in another way. What is known of kernels that hold none of them stays
        right."""
        changed = set(computations)
        if self._state is None or not changed:
            return
        kernels: list[Instruction] = []
        executed = set(executed_computations(module))
        for computation in module.computations:
            if changed.isdisjoint(computation.called):
                continue
            for caller in computation.instructions:
                if caller.attributes and not changed.isdisjoint(caller.called()):
                    if caller.opcode != "fusion" or computation not in executed:
                        self.clear()
                        return
                    kernels.append(caller)
        if not executed.isdisjoint(changed):
            self.clear()
            return
        for kernel in kernels:
            self._state.forget(kernel)


@dataclass(frozen=True)
class Rewritten:
    """One rewrite by a rule: its name, those of the instruction that it took the place of and of its computation, and
    those of what it made, in order."""

    rule: str
    computation: str
    instruction: str
    made: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.rule} at {self.instruction}"


@dataclass(frozen=True)
class Earlier:
    """A copy of the module as it was in the middle of a run, and what passes had noted down or knew by then
    (`PassContext` says what)."""

    module: Module
    origins: dict[Instruction, str]
    forbidden: dict[tuple[str, str], Reason]
    left: dict[tuple[str, str], Reason]
    memory: PassMemory


@dataclass
class PassContext:
    """What a pass is given besides the module: the options, and what passes note down for each other.

    options    what the user set
    steps      rewrites that have happened
    origins    what instructions that were copied under other names were called in the input
    forbidden  edges (by those names) that a plan refused after they had been fused
    left       what a pass had against a producer (both by name) when it was done with it, for what comes later may
               change the answer
    fused_by   which pass moved a producer
    about      the producer and the consumer (by those names) of the last rewrite, where it fused an edge
    memory     what fusion passes know about the module, until another pass changes it
    simplified what rules rewrote, in order, a list for each run of the simplifier: its certificate
    apart      the module before the first kernels that do not read each other were joined: a kernel of several says of
               an edge only that it has several outputs, not why the pass before it left the edge
    """

    options: FuseOptions
    steps: int = 0
    origins: dict[Instruction, str] = field(default_factory=dict)
    forbidden: dict[tuple[str, str], Reason] = field(default_factory=dict)
    left: dict[tuple[str, str], Reason] = field(default_factory=dict)
    fused_by: dict[str, str] = field(default_factory=dict)
    memory: PassMemory = field(default_factory=PassMemory)
    about: tuple[str, ...] = ()
    simplified: list[list[Rewritten]] = field(default_factory=list)
    apart: Earlier | None = None

    def go_on(self, before: PassContext, module: Module, copy: Module) -> None:
        """Start with what was noted down about a module of which this context's is a copy."""
        self.steps = before.steps
        self.forbidden.update(before.forbidden)
        self.left.update(before.left)
        self.fused_by.update(before.fused_by)
        self.apart = before.apart
        copies = _copies(module, copy) if before.origins else {}
        self.origins.update((copies[i], name) for i, name in before.origins.items() if i in copies)
        pairs = zip(module.computations, copy.computations, strict=True)
        self.memory.distinct.update(new for old, new in pairs if old in before.memory.distinct)

    def keep_apart(self, module: Module) -> None:
        """Keep a copy of the module as it is, if there is none yet: before kernels are joined that do not read each
        other."""
        if self.apart is None:
            copy = edit.clone_module(module)
            copies = _copies(module, copy)
            origins = {copies[i]: name for i, name in self.origins.items() if i in copies}
            memory = self.memory.of_copy(module, copy, copies)
            self.apart = Earlier(copy, origins, dict(self.forbidden), dict(self.left), memory)

    def as_apart(self) -> PassContext | None:
        """The memory that goes with the copy of the module that is kept; None where there is none."""
        earlier = self.apart
        if earlier is None:
            return None
        return PassContext(
            self.options, self.steps, earlier.origins, earlier.forbidden, earlier.left, memory=earlier.memory
        )

    def step(self) -> bool:
        """Asked before every single rewrite ("fuse producer into consumer"); False means that the limit is reached and
        the rewrite must not happen."""
        if self.exhausted:
            return False
        self.steps += 1
        self.about = ()
        return True

    @property
    def exhausted(self) -> bool:
        """Whether no rewrite may happen any more."""
        limit = self.options.stop_after_step
        return limit is not None and self.steps >= limit


def _copies(module: Module, copy: Module) -> dict[Instruction, Instruction]:
    """The instructions of a copy of a module, by those of the module."""
    copies: dict[Instruction, Instruction] = {}
    for old, new in zip(module.computations, copy.computations, strict=True):
        copies.update(zip(old.instructions, new.instructions, strict=True))
    return copies
