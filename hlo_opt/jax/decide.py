"""What is replaced in a module: regions are chosen, fused and proved, compiled, timed, and kept where they win."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from jaxlib import _hlo

from hlo_opt.diag import EvaluationError, HloOptError
from hlo_opt.evaluate import evaluate
from hlo_opt.evaluate.elided import elided_constants
from hlo_opt.ir import Instruction, Module
from hlo_opt.ir.values import Array
from hlo_opt.jax import records
from hlo_opt.jax.handler import handler
from hlo_opt.jax.measure import Runnable, call_nodes, call_text, can_hand_over, compared, drawn, times
from hlo_opt.jax.records import Chosen, Verdict
from hlo_opt.jax.regions import (
    Candidate,
    are_apart,
    layers_of,
    may_be_tried,
    module_of,
    of_known_length,
    pieces,
    simple_form,
    size_of,
    together,
    work_of,
)
from hlo_opt.jax.report import Report, line
from hlo_opt.jax.wire import ModuleBytes, Replacement
from hlo_opt.passes import run
from hlo_opt.runtime.host.frozen import Frozen, freeze
from hlo_opt.runtime.host.lanes_schedule import lanes_schedule
from hlo_opt.runtime.host.program import HostProgram
from hlo_opt.runtime.numpy import Reference
from hlo_opt.text import parse

NS_OF_ELEMENT = 10.0
"""More than an element takes XLA: what a region has less of cannot save much."""

LEAST_US = 2.0
"""What a region must have of it, however little is to be saved."""

MOST_OPERATIONS = 10_000
"""Of a region, those in loops and fusions among them."""

SECONDS_OF_OPERATION = 0.004
"""That fusing and compiling one of them takes: a region is begun where the time that is left is enough for it."""

MOST_WORK = 3_000_000_000
"""Elements that a region computes which is timed: more take XLA seconds."""

MOST_STEPS = 1000
"""Of loops whose length is not known, on drawn data: who goes on longer is not timed."""

WIN = 0.9
"""What ours may take of XLA's time; where any saving is asked for, it is not to be slower."""


@dataclass(frozen=True)
class Wish:
    """What the user asked for: see `hlo_opt.jax.install`."""

    preset: str = "default"
    min_saving_us: float = 1.0
    seconds: float = 60.0

    def key(self, module: str, backend: str) -> str:
        """The key of what is chosen in a module."""
        return records.key_of("module", module, self.preset, str(self.min_saving_us), backend)

    def takes(self, verdict: Verdict) -> bool:
        """Whether a region that was timed is replaced."""
        if self.min_saving_us <= 0:
            return verdict.ours_us <= verdict.xla_us
        saved = verdict.xla_us - verdict.ours_us
        return verdict.ours_us <= WIN * verdict.xla_us and saved >= self.min_saving_us

    def keeps(self, chosen: Sequence[Chosen], ours_us: float, xla_us: float) -> bool:
        """Whether a module wins by a tenth, or saves half of what its regions promise: XLA runs some of them beside
        each other, and each was timed with what a call of a module costs. Where any saving is asked for, it is not to
        be slower."""
        promised = sum(c.xla_us - c.ours_us for c in chosen)
        return xla_us - ours_us >= (min(promised / 2, (1 - WIN) * xla_us) if self.min_saving_us > 0 else 0)


class _Handler(Protocol):
    def has(self, key: str) -> bool: ...


@dataclass(frozen=True)
class Backend:
    """Where regions run.

    name      with what else their keys must hold
    handler   what knows them by their keys
    made      builds a region's kernels by a preset, under a key, and gives the microseconds that a run is estimated to
              take by them and by XLA; raises an HloOptError where there are none
    is_timed  whether verdicts come from runs on drawn data instead
    memory    bytes of one more result of a region's call
    """

    name: str
    handler: Callable[[], _Handler]
    made: Callable[[Module, str, str], tuple[float, float]]
    is_timed: bool = True
    memory: Callable[[str], int] = lambda _: 0


@dataclass
class Decision:
    """A module while it is decided about. `stop` is asked before each region: true ends it with what was found."""

    module: str
    wish: Wish
    report: Report
    stop: Callable[[], bool] = lambda: False
    backend: Backend = field(default_factory=lambda: HOST)
    chosen: list[Chosen] = field(default_factory=list)
    is_whole: bool = True
    """Whether everything was looked at."""
    is_stopped: bool = False
    """Whether `stop` ended it: then the decision is not kept."""

    def __post_init__(self) -> None:
        self._end = time.monotonic() + self.wish.seconds

    def run(self, module: Module) -> None:
        """Decide about the entry, what does most first. What loops run is replaced with the loop or not at all: the
        state that a round gets and the one that it gives share their memory, the copies that make that safe for XLA's
        instructions do not make it safe for a call of other ones, and nothing inserts copies after the hook."""
        for layer in sorted(layers_of(module.entry), key=lambda layer: -sum(region.work for region in layer)):
            alone, one = together(layer)
            rest = alone if one is not None and self._take(one) else layer
            for whole in sorted(rest, key=lambda region: -region.work):
                done: set[Instruction] = set()
                for region in [whole, *pieces(whole)]:
                    if done.isdisjoint(region.members) and self._take(region):
                        done.update(region.members)

    def prove_whole(self, module: Module, message: bytes) -> None:
        """Regions that win by themselves may lose together: they wait for each other, and XLA runs what is left beside
        them. So the whole module is timed, too, where that can be done, and those are dropped that win least until it
        is not slower."""
        if not self.chosen or not self.backend.is_timed or not may_be_tried(module) or self._is_one(module):
            return
        given, outputs = [p.shape for p in module.entry.parameters], list(module.entry.root.shape.leaves())
        if not can_hand_over([*given, *outputs]) or sum(map(work_of, module.entry.instructions)) > MOST_WORK:
            return
        inputs, theirs = drawn(module), Runnable(message, given, outputs)
        kept = self.chosen
        while kept:
            ours_us, xla_us = compared(changed(message, kept), theirs, inputs)
            if self.wish.keeps(kept, ours_us, xla_us):
                break
            best = sorted(kept, key=lambda c: c.ours_us / c.xla_us)
            kept = [c for c in kept if c in best[: len(kept) // 2]]
            self.report.add(line("JAX208", self.module, "all", ours_us=ours_us, xla_us=xla_us))
        self.chosen = kept

    def _is_one(self, module: Module) -> bool:
        """Whether one region is all that the entry does: it was timed."""
        works = [i.name for i in module.entry.instructions if work_of(i)]
        return len(self.chosen) == 1 and set(works) <= set(self.chosen[0].change.gone)

    def _say(self, code: str, region: Candidate, **numbers: str | int | float) -> None:
        self.report.add(line(code, self.module, region.name, bytes_written=region.written, **numbers))

    def _take(self, region: Candidate) -> bool:
        """Replace a region where that pays; whether it was."""
        little = region.work * NS_OF_ELEMENT / 1000 < max(self.wish.min_saving_us, LEAST_US)
        if not region.outputs or (self.backend.is_timed and little):
            return False
        self.is_stopped |= self.stop()
        left = self._end - time.monotonic()
        if self.is_stopped or left < 0:
            return self._late(region)
        code = self._unfit(region)
        if code:
            self._say(code, region, size=size_of(region.members))
            return False
        own = module_of(region)
        key = records.key_of("region", str(own), self.wish.preset, self.backend.name)
        verdict = records.verdict_of(key)
        if verdict is not None and not verdict.why and self.wish.takes(verdict) and not self.backend.handler().has(key):
            verdict = None  # the cache lost the program
        known = verdict is not None
        if verdict is None and size_of(region.members) * SECONDS_OF_OPERATION > left:
            return self._late(region)
        if verdict is None:
            verdict = self._verdict(own, key, region)
            records.keep_verdict(key, verdict)
        if verdict.why:
            self._say(verdict.why, region, why=verdict.text)
            return False
        taken = self.wish.takes(verdict)
        if not taken:
            self._say("JAX202", region, ours_us=verdict.ours_us, xla_us=verdict.xla_us)
        else:
            self._say("JAX401" if known else "JAX402", region)
            self.chosen.append(
                Chosen(
                    _change(region, key, self.backend.memory(key)),
                    region.name,
                    region.written,
                    verdict.ours_us,
                    verdict.xla_us,
                )
            )
        return taken

    def _late(self, region: Candidate) -> bool:
        """There is no time left for a region: it is not replaced."""
        self.is_whole = False
        self._say("JAX206", region)
        return False

    def _unfit(self, region: Candidate) -> str:
        """The code of why a region is not even built; empty if it is."""
        outputs = [leaf for i in region.outputs for leaf in i.shape.leaves()]
        inputs = [i.shape for i in region.inputs]
        if not all(s.is_array for s in inputs) or not can_hand_over([*inputs, *outputs]):
            return "JAX207"
        if any(i.shape.is_tuple and not all(s.is_row_major for s in i.shape.leaves()) for i in region.outputs):
            return "JAX207"
        if not are_apart(region):
            return "JAX207"
        return "JAX205" if size_of(region.members) > MOST_OPERATIONS else ""

    def _verdict(self, own: Module, key: str, region: Candidate) -> Verdict:
        """Build, prove and time a region."""
        if elided_constants(own):
            return Verdict(why="JAX204")
        if self.backend.is_timed and region.work > MOST_WORK:
            return Verdict(why="JAX203")
        if self.backend.is_timed and not of_known_length(region.members) and not _ends(own, drawn(own)):
            return Verdict(why="JAX203")
        try:
            estimated = self.backend.made(own, key, self.wish.preset)
        except HloOptError as fault:
            return Verdict(why="JAX201", text=f"{fault.code} {fault.message}")
        if not self.backend.is_timed:
            return Verdict(*estimated)
        given = [p.shape for p in own.entry.parameters]
        results = [o.shape for o in own.entry.root.operands] if len(region.outputs) > 1 else [own.entry.root.shape]
        return Verdict(*times(own, call_text(given, results, key), key, drawn(own)))


def changed(message: bytes, chosen: Iterable[Chosen]) -> bytes:
    """The module with what was chosen in the place of its regions."""
    module = ModuleBytes(message)
    now: dict[str, str] = {}
    """The names of calls that are one result themselves, by what they stand for: others read them."""
    for c in chosen:
        change = replace(c.change, inputs=tuple(now.get(name, name) for name in c.change.inputs))
        call = call_nodes(change)
        module.replace(change, call)
        if len(change.outputs) == 1:
            now[change.outputs[0]] = call[-1].name
    return module.message()


def build(module: Module, preset: str) -> Frozen:
    """The kernels of a region's module. Raises an HloOptError where there are none without NumPy."""
    schedule = lanes_schedule(run(simple_form(module), preset).module)
    return freeze(HostProgram(schedule, Reference(schedule.module)))


def made_for_host(module: Module, key: str, preset: str) -> tuple[float, float]:
    """A region's kernels for the CPU, about which nothing is estimated."""
    program = build(module, preset)
    records.keep_frozen(key, program)
    handler().add(key, program)
    return 0.0, 0.0


HOST: Backend = Backend("host", handler, made_for_host)


def _ends(module: Module, inputs: list[Array]) -> bool:
    """Whether loops of unknown length end soon on these inputs."""
    try:
        evaluate(module, inputs, max_steps=MOST_STEPS)
    except EvaluationError:
        return False
    return True


def _change(region: Candidate, key: str, memory: int) -> Replacement:
    text = call_text([i.shape for i in region.inputs], [i.shape for i in region.outputs], key, memory)
    names = (tuple(i.name for i in members) for members in (region.gone, region.inputs, region.outputs))
    gone, inputs, outputs = names
    return Replacement(region.computation.name, gone, inputs, outputs, text, key)


def read(message: bytes, *, large: bool) -> Module:
    """The module of a message; without `large`, constants of more than a few elements have no values."""
    options = _hlo.HloPrintOptions()
    options.print_large_constants = large
    return parse(_hlo.HloModule.from_serialized_hlo_module_proto(message).to_string(options))
