"""The decision which regions of a module are replaced: they are fused, proved, compiled and timed, and replaced if our
kernels win."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from jaxlib import _hlo

from hlo_opt.diag import BackendError, EvaluationError, HloOptError
from hlo_opt.diag.time_limit import TimeUpError, check_time, time_until
from hlo_opt.evaluate import evaluate
from hlo_opt.evaluate.elided import elided_constants
from hlo_opt.ir import Computation, Instruction, Module
from hlo_opt.ir.values import Array
from hlo_opt.jax import records
from hlo_opt.jax.agreement import disagreement
from hlo_opt.jax.backend import HOST, Backend
from hlo_opt.jax.calls import call_text, changed, replaced
from hlo_opt.jax.endings import Ending, ending_of
from hlo_opt.jax.handler import handler
from hlo_opt.jax.measure import (
    Runnable,
    Times,
    bound,
    can_hand_over,
    compared,
    drawn,
    of_call,
    runnable,
    times,
)
from hlo_opt.jax.memories import Memories
from hlo_opt.jax.options import WIN, HookOptions
from hlo_opt.jax.records import TRIES, Chosen, Verdict
from hlo_opt.jax.regions import (
    Candidate,
    StatePair,
    are_apart,
    bodies_of,
    layers_of,
    may_be_tried,
    module_of,
    of_known_length,
    pieces,
    simple_form,
    size_of,
    state_pairs,
    together,
    work_of,
)
from hlo_opt.jax.report import WHOLE, Report, line
from hlo_opt.jax.wire import Replacement
from hlo_opt.ops.sets import launches, looped
from hlo_opt.passes import run
from hlo_opt.runtime.host.compiler import bounded_compiler
from hlo_opt.runtime.host.freezing import freeze
from hlo_opt.runtime.host.frozen import Frozen
from hlo_opt.runtime.host.lanes_schedule import lanes_schedule
from hlo_opt.runtime.host.program import HostProgram
from hlo_opt.runtime.numpy import Reference
from hlo_opt.text import parse

NS_OF_ELEMENT = 10.0
"""An upper bound of XLA's time per element, to skip regions that cannot save enough."""

LEAST_US = 2.0
"""The least time of a region by that bound, however little the user wants to save."""

MOST_OPERATIONS = 10_000
"""Limit of operations of a region, loops and fusions included."""

SECONDS_OF_OPERATION = 0.004
"""The time to fuse and compile an operation: a region is started only if the remaining time is enough for it."""

COMPILER_SECONDS = 20
"""Limit of the processor time of a run of the C++ compiler. For long kernels with many arrays it may need minutes. What
takes longer is given up for good. On a busy machine that may be minutes, too: `HookOptions.seconds` limits these."""

OF_MACHINE = frozenset({"HLO510", "HLO517", "HLO518"})
"""Codes of faults that say nothing of a region: the compiler does not start, its disk is full, or a signal ends it.
They may be gone at the next compilation, so no verdict is made of them."""

FOR_WHOLE = 0.2
"""The part of the time for a module that is left for timing it as a whole."""

MOST_WORK = 3_000_000_000
"""Limit of elements that a timed region computes: more take XLA seconds."""

SMALL_WORK = 1 << 18
"""Limit of elements of a region that may take XLA no longer than a call: its form is timed before ours is built."""

MOST_STEPS = 1000
"""Limit of steps, on drawn data, of loops with unknown trip counts; longer ones are not timed."""

ESTIMATED_WIN = 0.98
"""`WIN` where times are estimates: these are medians of what was measured, and do not differ from run to run."""

LEAST_GRAPH = 5
"""Launches from which on XLA captures them as one CUDA graph. Source: xla_gpu_graph_min_graph_size in
xla/debug_options_flags.cc."""

BETWEEN_US = 5.0
"""What a call between XLA's launches costs a program that is waited for: on an H200 training steps of small networks
with 2 and 3 calls took 3 to 8 us more, whose kernels were quicker, and a decoder's step with one took 17 us more, 3 of
them in kernels."""

LAUNCH_US = 5.0
"""What a launch costs more outside a CUDA graph: a step of k-means took 66 us with 7 launches in a graph on an H200,
and 87 with 4 outside, whose kernels were quicker."""


@dataclass
class Decision:
    """The decision about a module. `stop` is called before each region: if it returns true, the decision ends with the
    regions chosen so far."""

    module: str
    wish: HookOptions
    report: Report
    stop: Callable[[], bool] = lambda: False
    backend: Backend = HOST
    place: Callable[[str, Iterable[str]], str] = lambda computation, names: ""
    """As `Places.of`, for the lines of the report."""
    chosen: list[Chosen] = field(default_factory=list)
    is_whole: bool = True
    """Whether all regions were considered."""
    found: int = 0
    """The number of regions whose verdicts are new."""
    is_stopped: bool = False
    """Whether `stop` ended it: then the decision is not cached."""
    is_sure: bool = True
    """Whether a busy machine left no verdict to chance."""
    is_of_now: bool = False
    """Whether a region was not built by a fault `OF_MACHINE`: then the decision is not cached either."""

    def __post_init__(self) -> None:
        begun = time.monotonic()
        self._last = begun + self.wish.seconds
        self._end = begun + self.wish.seconds * (1 - FOR_WHOLE if self.backend.is_timed else 1)
        self._memories: Memories | None = None
        self._little: list[Chosen] = []
        self._endings: dict[Computation, Ending] = {}
        self._win = WIN if self.backend.is_timed else ESTIMATED_WIN
        self._named: dict[tuple[str, str], Candidate] = {}
        """The first region of each name in a computation."""

    def run(self, module: Module) -> None:
        """Decides about the regions of the entry, by falling work, and then about those inside loops, branches and
        calls that stay, where the backend may."""
        self._memories = Memories(module)
        with time_until(self._end):
            self._run_in(module.entry, 1, None)

    def settle(self, module: Module, message: bytes) -> None:
        """What is asked of the chosen regions together: `keep_order` and `prove_whole`. If there is no time left for
        that, none is kept; the next decision finds their verdicts, and has time for it."""
        try:
            with time_until(self._last):
                self.keep_order(message)
                self.prove_whole(module, message)
        except TimeUpError:
            for c in self.chosen:
                self._say_of("JAX206", c)
            self.chosen, self.is_whole = [], False

    def _run_in(self, computation: Computation, rounds: int, caller: Instruction | None) -> None:
        """Decides about a computation that runs `rounds` times in a run of the module: the entry, or the body of its
        caller."""
        layers = layers_of(computation, is_entry=caller is None)
        is_loop = caller is not None and looped(caller) is not None
        if caller is not None:
            ending = ending_of(caller, computation, self._endings.get(caller.computation))
            if ending is not None:
                self._endings[computation] = ending
        replaced: set[Instruction] = set()
        for layer in sorted(layers, key=lambda layer: -sum(region.work for region in layer)):
            alone, one = together(layer)
            rest = layer
            if one is not None and self._take(one, rounds, is_loop):
                replaced.update(one.members)
                rest = alone
            for whole in sorted(rest, key=lambda region: -region.work):
                for region in self._and_pieces(whole):
                    if replaced.isdisjoint(region.members) and self._take(region, rounds, is_loop):
                        replaced.update(region.members)
        if not self.backend.may_share:
            return
        for i in sorted((i for i in computation.instructions if i not in replaced), key=work_of, reverse=True):
            for body, times_run in bodies_of(i):
                self._run_in(body, rounds * times_run, i)

    def _and_pieces(self, whole: Candidate) -> Iterator[Candidate]:
        """A region, and its pieces while there is time for these."""
        yield whole
        if time.monotonic() < self._end:
            yield from pieces(whole)

    def prove_whole(self, module: Module, message: bytes) -> None:
        """Times the whole module, if it can be run, and drops the regions that win least until it is not slower.
        Regions that win alone may lose together: they wait for each other, and XLA runs the rest in parallel. If it
        cannot be run, drops small regions in loops. On a GPU, drops regions where XLA would launch the rest without a
        graph."""
        if not self.backend.is_timed:
            self._keep_graph(module)
            return
        if not self.chosen or self._is_one(module):
            return
        inputs = self._tried_inputs(module)
        if inputs is None:
            self._drop_little()
            return
        inputs_of, outputs = [p.shape for p in module.entry.parameters], list(module.entry.root.shape.leaves())
        theirs = Runnable(message, inputs_of, outputs)
        kept = self.chosen
        while kept:
            ours = Runnable(changed(message, kept), inputs_of, outputs)
            wrong = disagreement(module, ours, theirs, inputs)
            if wrong is not None:
                self.report.add(line(wrong.code, self.module, WHOLE, why=wrong.text))
                kept = []
                break
            found = Times(*compared(ours, theirs, inputs))
            ours_us, xla_us = found.ours_us, found.xla_us
            if len({self.wish.keeps(kept, us, xla_us) for us in found.possible_us}) > 1:
                self.is_sure = False
                self.report.add(
                    line("JAX305", self.module, WHOLE, low_us=found.low_us, high_us=found.high_us, xla_us=xla_us)
                )
            if self.wish.keeps(kept, ours_us, xla_us):
                break
            best = sorted(kept, key=lambda c: c.ours_us / c.xla_us)
            kept = [c for c in kept if c in best[: len(kept) // 2]]
            self.report.add(line("JAX208", self.module, WHOLE, ours_us=ours_us, xla_us=xla_us))
        self.chosen = kept

    def _tried_inputs(self, module: Module) -> list[Array] | None:
        """The data that a module is timed with as a whole; None where it cannot be run."""
        entry = module.entry
        shapes = [*(p.shape for p in entry.parameters), *entry.root.shape.leaves()]
        work = sum(map(work_of, entry.instructions))
        if work > MOST_WORK or not may_be_tried(module) or not can_hand_over(shapes):
            return None
        return drawn(module)

    def _drop_little(self) -> None:
        """Drops small regions in loops that could not be timed in their loop: by themselves they take little more than
        a call, so that the times that were compared are nearly all of calls, and chance decides."""
        if self.wish.min_saving_us <= 0:
            return
        for c in self._little:
            self._say_of("JAX203", c)
        self.chosen = [c for c in self.chosen if c not in self._little]

    def _keep_graph(self, module: Module) -> None:
        """Drops regions that save less than a call between XLA's launches costs; and all of them if too few launches
        are left for XLA to capture them, and that costs more than is saved."""
        launched = [i.name for i in module.entry.instructions if launches(i)]
        if self.wish.min_saving_us > 0 and self._launches_left(launched) > 1:
            little = [c for c in self.chosen if c.xla_us - c.ours_us < BETWEEN_US]
            for c in little:
                rule = f"{BETWEEN_US:g} us of it are what a call between XLA's launches costs"
                self._say_of("JAX202", c, ours_us=c.ours_us + BETWEEN_US, xla_us=c.xla_us, rule=rule)
            self.chosen = [c for c in self.chosen if c not in little]
        left = self._launches_left(launched)
        xla_us, ours_us = sum(c.xla_us for c in self.chosen), sum(c.ours_us for c in self.chosen) + left * LAUNCH_US
        if self.chosen and 1 < left < LEAST_GRAPH <= len(launched) and ours_us > xla_us:
            self.report.add(line("JAX210", self.module, WHOLE, ours_us=ours_us, xla_us=xla_us))
            self.chosen = []

    def _launches_left(self, launched: Sequence[str]) -> int:
        """XLA's launches that stay, and the calls of the chosen regions."""
        gone = {name for c in self.chosen for name in c.change.gone}
        return len(self.chosen) + sum(name not in gone for name in launched)

    def keep_order(self, message: bytes) -> None:
        """Drops regions whose calls move what XLA has in order by its schedule alone, where memory is written again."""
        if self._memories is None or not self._memories.is_of_interest:
            return
        if not replaced(message, self.chosen).is_reordered:
            return
        kept: list[Chosen] = []
        for c in self.chosen:
            check_time()
            if replaced(message, [*kept, c]).is_reordered:
                self._say_of("JAX209", c)
            else:
                kept.append(c)
        self.chosen = kept

    def _is_one(self, module: Module) -> bool:
        """Whether one region does all work of the entry, which was then timed with it."""
        return len(self.chosen) == 1 and _does_all(module.entry, self.chosen[0].change.gone)

    def _say(self, code: str, region: Candidate, **numbers: str | int | float) -> None:
        source = self.place(region.computation.name, (region.name, *(i.name for i in region.members)))
        label = self._label(region)
        self.report.add(line(code, self.module, label, bytes_written=region.written, source=source, **numbers))

    def _label(self, region: Candidate) -> str:
        """A region's name in the report: a piece that has the name of what it is a piece of is told by its size."""
        whole = self._named.setdefault((region.computation.name, region.name), region)
        if whole.members == region.members:
            return region.name
        return f"{region.name} ({size_of(region.members)} of its {size_of(whole.members)} operations)"

    def _say_of(self, code: str, c: Chosen, **numbers: str | float) -> None:
        """Reports why a chosen region is dropped."""
        source = c.place(self.place)
        self.report.add(line(code, self.module, c.label, bytes_written=c.written, source=source, **numbers))

    def _take(self, region: Candidate, rounds: int, is_loop: bool) -> bool:
        """Chooses a region of a computation that runs `rounds` times, and may be a loop's body, if that saves time.
        Returns whether it did."""
        longest_us = region.work * NS_OF_ELEMENT / 1000
        little = longest_us < LEAST_US or longest_us * rounds < self.wish.min_saving_us
        if not region.outputs or (self.backend.is_timed and little):
            return False
        self.is_stopped |= self.stop()
        seconds_left = self._end - time.monotonic()
        if self.is_stopped or seconds_left < 0:
            return self._late(region)
        code = self._unfit(region)
        if code:
            self._say(code, region, size=size_of(region.members))
            return False
        own = module_of(region, self._pairs(region) or ())
        is_whole = _does_all(region.computation, [i.name for i in region.gone])
        where = "whole" if is_whole else "part"
        key = records.key_of("region", where, str(own), self.wish.preset, self.backend.name)
        verdict = before = records.verdict_of(key)
        if verdict is not None and verdict.tries and not self.wish.is_sure(verdict, rounds, self._win):
            verdict = None  # the machine was busy, and may be no more
        if (
            verdict is not None
            and not verdict.why
            and self.wish.takes(verdict, rounds, self._win)
            and (verdict.is_bound or not self.backend.handler().has(key))
        ):
            verdict = None  # nothing was built because it could not win elsewhere, or the cache lost the program
        known = verdict is not None
        if verdict is None and size_of(region.members) * SECONDS_OF_OPERATION > seconds_left:
            return self._late(region)
        if verdict is None:
            try:
                verdict = self._verdict(own, key, region, is_whole, rounds)
            except TimeUpError:
                return self._late(region)
            except BackendError as fault:
                if fault.code not in OF_MACHINE:
                    raise
                self.is_of_now = True
                self._say("JAX201", region, why=f"{fault.code} {fault.message}")
                return False
            if not self.wish.is_sure(verdict, rounds, self._win):
                verdict = replace(verdict, tries=before.tries - 1 if before is not None and before.tries else TRIES)
            if verdict.tries:
                self.is_sure = False
                low_us, high_us, xla_us = (us * rounds for us in (verdict.low_us, verdict.high_us, verdict.xla_us))
                self._say("JAX305", region, low_us=low_us, high_us=high_us, xla_us=xla_us)
            records.keep_verdict(key, verdict)
            self.found += 1
        if verdict.why:
            self._say(verdict.why, region, why=verdict.text)
            return False
        is_taken = self.wish.takes(verdict, rounds, self._win)
        ours_us, xla_us = verdict.ours_us * rounds, verdict.xla_us * rounds
        if not is_taken:
            code, rule = "JAX102" if verdict.is_bound else "JAX202", self.wish.rule(verdict, rounds, self._win)
            self._say(code, region, ours_us=ours_us, xla_us=xla_us, rule=rule)
        else:
            if is_loop:
                try:
                    key, wrong = self._in_place(region, own, key)
                except TimeUpError:
                    return self._late(region)
                if wrong is not None:
                    self._say(wrong.why, region, why=wrong.text)
                    return False
            self._say("JAX401" if known else "JAX402", region)
            change = change_of(region, key, self.backend.memory(key))
            self.chosen.append(
                Chosen(change, region.name, region.written * rounds, ours_us, xla_us, self._label(region))
            )
            if is_loop and region.work <= SMALL_WORK:
                self._little.append(self.chosen[-1])
        return is_taken

    def _in_place(self, region: Candidate, own: Module, key: str) -> tuple[str, Verdict | None]:
        """The key of the kernels of a region of a loop's body that write the next state into the memory of the state,
        or of those that it has, where there are none: a call of these copies such results. And what is wrong with them
        where they write there. They are not timed: they save that copy. Raises TimeUpError."""
        pairs = state_pairs(region)
        if not pairs:
            return key, None
        placed = module_of(region, pairs)
        in_place = records.key_of("region", str(placed), self.wish.preset, self.backend.name)
        verdict = records.verdict_of(in_place)
        try:
            if not self.backend.handler().has(in_place):
                verdict = None
                self.backend.build(placed, in_place, self.wish.preset)
        except TimeUpError:
            raise
        except HloOptError as fault:
            self.is_of_now |= fault.code in OF_MACHINE
            in_place = key
        if verdict is None:
            theirs = runnable(own, is_whole=False)
            ours = of_call(_call(own, region, in_place, pairs), theirs, is_whole=False)
            wrong = disagreement(own, ours, theirs, drawn(own))
            verdict = Verdict() if wrong is None else Verdict(why=wrong.code, text=wrong.text)
            if in_place != key:
                records.keep_verdict(in_place, verdict)
        return in_place, verdict if verdict.why else None

    def _pairs(self, region: Candidate) -> list[StatePair] | None:
        """As `Memories.pairs`."""
        return [] if self._memories is None else self._memories.pairs(region)

    def _late(self, region: Candidate) -> bool:
        """Reports that there is no time left for a region. Returns False, as `_take` does for it."""
        self.is_whole = False
        self._say("JAX206", region)
        return False

    def _unfit(self, region: Candidate) -> str:
        """The code of the reason why a region cannot be built; empty if it can."""
        outputs = [leaf for i in region.outputs for leaf in i.shape.leaves()]
        inputs = [i.shape for i in region.inputs]
        if not all(s.is_array for s in inputs) or not can_hand_over([*inputs, *outputs]):
            return "JAX207"
        if any(i.shape.is_tuple and not all(s.is_row_major for s in i.shape.leaves()) for i in region.outputs):
            return "JAX207"
        if not are_apart(region):
            return "JAX207"
        if self._pairs(region) is None:
            return "JAX209"
        ending = self._endings.get(region.computation)
        if ending is not None and not ending.deciding.isdisjoint(region.members):
            return "JAX211"
        return "JAX205" if size_of(region.members) > MOST_OPERATIONS else ""

    def _verdict(self, own: Module, key: str, region: Candidate, is_whole: bool, rounds: int) -> Verdict:
        """Builds, proves and times a region of a computation that is run so often. `is_whole`: it does all work of its
        module."""
        if elided_constants(own):
            return Verdict(why="JAX204")
        if self.backend.is_timed:
            return self._timed(own, key, region, is_whole, rounds)
        least = Verdict(*self.backend.estimate(own), is_bound=True)
        return self._built(own, key) if self.wish.takes(least, rounds, self._win) else least

    def _built(self, own: Module, key: str) -> Verdict:
        """Builds a region. Returns the verdict by estimates. Raises TimeUpError where the time is up, and BackendError
        for faults `OF_MACHINE`."""
        try:
            return Verdict(*self.backend.build(own, key, self.wish.preset))
        except TimeUpError:  # no verdict: it may be quick elsewhere
            raise
        except HloOptError as fault:
            if fault.code in OF_MACHINE:
                raise
            return Verdict(why="JAX201", text=f"{fault.code} {fault.message}")

    def _timed(self, own: Module, key: str, region: Candidate, is_whole: bool, rounds: int) -> Verdict:
        """The verdict by runs. Nothing is built where even kernels that take no time would not win."""
        if region.work > MOST_WORK:
            return Verdict(why="JAX203")
        inputs = drawn(own)
        if not of_known_length(region.members) and not _ends(own, inputs):
            return Verdict(why="JAX203")
        theirs = runnable(own, is_whole=is_whole)
        if self.wish.min_saving_us > 0 and region.work <= SMALL_WORK:
            least = _verdict_of(Times(*bound(theirs, inputs, is_whole=is_whole)), is_bound=True)
            if not self.wish.takes(least, rounds):
                return least
        built = self._built(own, key)
        if built.why:
            return built
        ours = of_call(_call(own, region, key), theirs, is_whole=is_whole)
        wrong = disagreement(own, ours, theirs, inputs)
        if wrong is not None:
            return Verdict(why=wrong.code, text=wrong.text)
        return _verdict_of(Times(*times(ours, theirs, inputs)))


def _call(own: Module, region: Candidate, key: str, in_place: Sequence[StatePair] = ()) -> str:
    """The module of a call for a region's module."""
    results = [o.shape for o in own.entry.root.operands] if len(region.outputs) > 1 else [own.entry.root.shape]
    return call_text([p.shape for p in own.entry.parameters], results, key, in_place=in_place)


def _verdict_of(found: Times, *, is_bound: bool = False) -> Verdict:
    return Verdict(found.ours_us, found.xla_us, is_bound=is_bound, low_us=found.low_us, high_us=found.high_us)


def _does_all(entry: Computation, gone: Iterable[str]) -> bool:
    """Whether these instructions do all work of a computation."""
    return {i.name for i in entry.instructions if work_of(i)} <= set(gone)


def build(module: Module, preset: str) -> Frozen:
    """The kernels of a region's module. Raises an HloOptError if it needs NumPy, and TimeUpError if the time is
    up between two steps."""
    fused = run(simple_form(module), preset).module
    check_time()
    schedule = lanes_schedule(fused)
    check_time()
    return freeze(HostProgram(schedule, Reference(schedule.module)))


def build_for_host(module: Module, key: str, preset: str) -> tuple[float, float]:
    """Builds a region's kernels for the CPU. Returns zeros: times on a CPU are measured."""
    with bounded_compiler(COMPILER_SECONDS):
        program = build(module, preset)
    records.keep_frozen(key, program)
    handler().add(key, program)
    return 0.0, 0.0


def _ends(module: Module, inputs: list[Array]) -> bool:
    """Whether loops with unknown trip counts end soon for these inputs."""
    try:
        evaluate(module, inputs, max_steps=MOST_STEPS)
    except EvaluationError:
        return False
    return True


def change_of(region: Candidate, key: str, memory: int) -> Replacement:
    text = call_text([i.shape for i in region.inputs], [i.shape for i in region.outputs], key, memory)
    names = (tuple(i.name for i in members) for members in (region.gone, region.inputs, region.outputs))
    gone, inputs, outputs = names
    return Replacement(region.computation.name, gone, inputs, outputs, text, key)


def read(message: bytes, *, large: bool) -> Module:
    """The module of a message; without `large`, constants of more than a few elements are elided."""
    options = _hlo.HloPrintOptions()
    options.print_large_constants = large
    return parse(_hlo.HloModule.from_serialized_hlo_module_proto(message).to_string(options))
