"""What is replaced in a module: regions are chosen, fused and proved, compiled, timed, and kept where they win."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from jaxlib import _hlo

from hlo_opt.diag import EvaluationError, HloOptError
from hlo_opt.evaluate import evaluate
from hlo_opt.evaluate.elided import elided_constants
from hlo_opt.ir import Instruction, Module
from hlo_opt.ir.values import Array
from hlo_opt.jax import records
from hlo_opt.jax.handler import handler
from hlo_opt.jax.measure import call_nodes, call_text, can_hand_over, compared, drawn, times
from hlo_opt.jax.records import Chosen, Verdict
from hlo_opt.jax.regions import (
    Candidate,
    are_apart,
    clusters,
    may_be_tried,
    module_of,
    of_known_length,
    pieces,
    simple_form,
    size_of,
    work_of,
)
from hlo_opt.jax.report import Report, line
from hlo_opt.jax.wire import ModuleBytes, Replacement
from hlo_opt.passes import run
from hlo_opt.runtime.host.frozen import Frozen, freeze
from hlo_opt.runtime.host.program import HostProgram
from hlo_opt.runtime.numpy import Reference
from hlo_opt.runtime.schedule import build_schedule
from hlo_opt.text import parse

NS_OF_ELEMENT = 10.0
"""More than an element takes XLA: what a region has less of cannot save much."""

LEAST_US = 2.0
"""What a region must have of it, however little is to be saved."""

MOST_OPERATIONS = 2500
"""Of a region, those in loops and fusions among them."""

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

    def key(self, module: str) -> str:
        """The key of what is chosen in a module."""
        return records.key_of("module", module, self.preset, str(self.min_saving_us))

    def takes(self, verdict: Verdict) -> bool:
        """Whether a region that was timed is replaced."""
        if self.min_saving_us <= 0:
            return verdict.ours_us <= verdict.xla_us
        saved = verdict.xla_us - verdict.ours_us
        return verdict.ours_us <= WIN * verdict.xla_us and saved >= self.min_saving_us


@dataclass
class Decision:
    """A module while it is decided about. `stop` is asked before each region: true ends it with what was found."""

    module: str
    wish: Wish
    report: Report
    stop: Callable[[], bool] = lambda: False
    chosen: list[Chosen] = field(default_factory=list)
    is_whole: bool = True
    """Whether everything was looked at: else the decision is not kept."""

    def __post_init__(self) -> None:
        self._end = time.monotonic() + self.wish.seconds

    def run(self, module: Module) -> None:
        """Decide about the entry. What loops run is replaced with the loop or not at all: the state that a round gets and the one that it gives share their memory, the copies that make that
        safe for XLA's instructions do not make it safe for a call of other ones, and nothing inserts copies after the hook."""
        done: set[Instruction] = set()
        for whole in clusters(module.entry):
            if self._take(whole):
                done.update(whole.members)
                continue
            for piece in pieces(whole):
                if done.isdisjoint(piece.members) and self._take(piece):
                    done.update(piece.members)

    def prove_whole(self, module: Module, message: bytes) -> None:
        """Regions that win by themselves may lose together: they wait for each other, and XLA runs what is left beside them. So the whole module is timed, too, where that can be done, and
        those are dropped that win least until it is not slower."""
        if not self.chosen or not may_be_tried(module) or self._is_one(module):
            return
        given, outputs = [p.shape for p in module.entry.parameters], list(module.entry.root.shape.leaves())
        if not can_hand_over([*given, *outputs]) or sum(map(work_of, module.entry.instructions)) > MOST_WORK:
            return
        inputs = drawn(module)
        kept = self.chosen
        while kept:
            ours_us, xla_us = compared(changed(message, kept), message, given, outputs, inputs)
            if ours_us <= xla_us:
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
        if not region.outputs or region.work * NS_OF_ELEMENT / 1000 < max(self.wish.min_saving_us, LEAST_US):
            return False
        if self.stop() or time.monotonic() > self._end:
            self.is_whole = False
            self._say("JAX206", region)
            return False
        code = self._unfit(region)
        if code:
            self._say(code, region, size=size_of(region.members))
            return False
        own = module_of(region)
        key = records.key_of("region", str(own), self.wish.preset)
        verdict = records.verdict_of(key)
        if verdict is not None and not verdict.why and self.wish.takes(verdict) and not handler().has(key):
            verdict = None  # the cache lost the program
        known = verdict is not None
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
                Chosen(_change(region, key), region.name, region.written, verdict.ours_us, verdict.xla_us)
            )
        return taken

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
        if region.work > MOST_WORK:
            return Verdict(why="JAX203")
        inputs = drawn(own)
        if not of_known_length(region.members) and not _ends(own, inputs):
            return Verdict(why="JAX203")
        try:
            program = build(own, self.wish.preset)
        except HloOptError as fault:
            return Verdict(why="JAX201", text=f"{fault.code} {fault.message}")
        records.keep_frozen(key, program)
        handler().add(key, program)
        given = [p.shape for p in own.entry.parameters]
        results = [o.shape for o in own.entry.root.operands] if len(region.outputs) > 1 else [own.entry.root.shape]
        ours_us, xla_us = times(own, call_text(given, results, key), key, inputs)
        return Verdict(ours_us, xla_us)


def changed(message: bytes, chosen: Iterable[Chosen]) -> bytes:
    """The module with what was chosen in the place of its regions."""
    module = ModuleBytes(message)
    for c in chosen:
        module.replace(c.change, call_nodes(c.change))
    return module.message()


def build(module: Module, preset: str) -> Frozen:
    """The kernels of a region's module. Raises an HloOptError where there are none without NumPy."""
    fused = run(simple_form(module), preset).module
    schedule = build_schedule(fused)
    return freeze(HostProgram(schedule, Reference(fused)))


def _ends(module: Module, inputs: list[Array]) -> bool:
    """Whether loops of unknown length end soon on these inputs."""
    try:
        evaluate(module, inputs, max_steps=MOST_STEPS)
    except EvaluationError:
        return False
    return True


def _change(region: Candidate, key: str) -> Replacement:
    text = call_text([i.shape for i in region.inputs], [i.shape for i in region.outputs], key)
    names = (tuple(i.name for i in members) for members in (region.gone, region.inputs, region.outputs))
    gone, inputs, outputs = names
    return Replacement(region.computation.name, gone, inputs, outputs, text, key)


def read(message: bytes, *, large: bool) -> Module:
    """The module of a message; without `large`, constants of more than a few elements have no values."""
    options = _hlo.HloPrintOptions()
    options.print_large_constants = large
    return parse(_hlo.HloModule.from_serialized_hlo_module_proto(message).to_string(options))
