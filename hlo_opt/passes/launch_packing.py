"""Launch packing: kernels that do not depend on each other become one launch, each with blocks of its own, where that
takes less time.

XLA launches them one after another; its horizontal passes, which it has dropped, joined loops or reductions of similar
shapes that one consumer reads. Here the price of the plan decides; forms, shapes, types and consumers may differ.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

from hlo_opt.analysis.properties import is_generic_triton
from hlo_opt.diag import Reason
from hlo_opt.fusion import compatibility
from hlo_opt.fusion.compatibility import Beside
from hlo_opt.fusion.engine import Engine
from hlo_opt.fusion.horizontal import POINTER_BYTES, argument_room, buffer_count
from hlo_opt.fusion.outline import join
from hlo_opt.fusion.state import STRUCTURE
from hlo_opt.ir import Computation, Instruction
from hlo_opt.ir.walk import post_order
from hlo_opt.ops.sets import body_of, launches, looped
from hlo_opt.passes.base import FusionPass, Refusal


@dataclass(frozen=True)
class LaunchPacking(FusionPass):
    """Put kernels that do not depend on each other into one launch.

    max_us      the most microseconds of a kernel that is joined; a longer one gains little
    worth       join where one launch takes at most this share of the time of two
    max_open    the number of launches that a kernel is tried with, the latest ones
    """

    name: ClassVar[str] = "launch-packing"
    preserves: ClassVar[Literal["graph", "meaning"]] = "graph"
    kind: ClassVar[str] = "horizontal"
    takes_any_form: ClassVar[bool] = True

    max_us: float = 20.0
    worth: float = 0.98
    max_open: int = 3

    def fuse_in(self, computation: Computation, engine: Engine) -> bool:
        changed = False
        turns = TurnRanges(computation)
        ready = self._ready(computation, engine, turns)
        waiting: list[Instruction] = []
        for turn, kernels in ready.items():
            begun: list[Instruction] = []
            alone: dict[Instruction, None] = {}
            for kernel in (*kernels, *(k for k in waiting if turns.last[k] >= turn)):
                host = next((h for h in reversed(begun) if self._fits(engine, h, kernel)), None)
                if host is None:
                    begun = [*begun[max(0, len(begun) + 1 - self.max_open) :], kernel]
                    alone[kernel] = None
                    continue
                if not engine.context.step():
                    return changed
                engine.context.keep_apart(engine.module)
                pair = self._pair(engine, host, kernel)
                known = compatibility.joint(pair)
                if all(
                    k.word("kind") != "kCustom" for k in (host, kernel)
                ):  # that of a custom kernel depends on its config, too
                    known[STRUCTURE] = pair.structure()
                alone.pop(host, None)
                begun[begun.index(host)] = join(engine, kernel, host, known)
                changed = True
            waiting = list(alone)
        return changed

    def _fits(self, engine: Engine, host: Instruction, kernel: Instruction) -> bool:
        return next(self._against(engine, host, kernel), None) is None

    def _ready(self, computation: Computation, engine: Engine, turns: TurnRanges) -> dict[int, list[Instruction]]:
        """The kernels that may be joined, by their first turns, in the order of the computation."""
        by_turn: dict[int, list[Instruction]] = {}
        for i in post_order(computation):
            if self._is_candidate(engine, i):
                by_turn.setdefault(turns.first[i], []).append(i)
        return dict(sorted(by_turn.items()))

    def _is_candidate(self, engine: Engine, kernel: Instruction) -> bool:
        state = engine.state
        if not launches(kernel) or _runs_loops(kernel) or state.lowering(kernel) is not None:
            return False
        if state.traits(kernel).library or is_generic_triton(kernel):
            return False
        return state.prices.of(kernel).us <= self.max_us

    def _pair(self, engine: Engine, one: Instruction, other: Instruction) -> Beside:
        return Beside(one, other, engine.state, engine.origins)

    def _against(self, engine: Engine, one: Instruction, other: Instruction) -> Iterator[Reason]:
        """All reasons against one launch of both; cheap checks come first."""
        pair = self._pair(engine, one, other)
        yield from engine.legal(compatibility.structure(pair))
        yield from engine.refused_before(pair)
        if engine.is_forced_pair(pair):
            unplanned = compatibility.without_plan(pair)
            yield from engine.legal([] if unplanned is None else [unplanned])
            return
        yield from engine.switched_on(_too_many_arguments(engine, one, other))
        yield from engine.against((compatibility.updates_wait, *compatibility.BESIDE_DEAR, self._pays), pair)
        yield from engine.chosen(pair)

    def _pays(self, pair: Beside) -> Reason | None:
        return compatibility.pays(pair, self.worth)

    def sibling_refusals(self, engine: Engine, computation: Computation) -> Iterator[Refusal]:
        """Neighbours among the kernels that are ready at the same time."""
        for kernels in self._ready(computation, engine, TurnRanges(computation)).values():
            for one, other in itertools.pairwise(kernels):
                yield Refusal(one, other, list(self._against(engine, one, other)))


class TurnRanges:
    """The range of turns of each instruction, if everything runs as soon as it can. An instruction has a later turn
    than its operands, so two instructions with a common turn do not depend on each other.

    first, last: the turns of each instruction. Kernels and calls take one turn. An instruction may wait until its last
    turn without delaying another.
    """

    def __init__(self, computation: Computation) -> None:
        order = post_order(computation)
        self.first: dict[Instruction, int] = {}
        for i in order:
            needed = itertools.chain(i.operands, i.control_predecessors)
            self.first[i] = max((self.first[o] + launches(o) for o in needed), default=0)
        end = max(self.first[i] for i in order)
        self.last = dict.fromkeys(order, end)
        for i in order:
            for waited_for in i.control_predecessors:
                self.last[waited_for] = min(self.last[waited_for], self.first[i] - launches(waited_for))
        for i in reversed(order):
            for o in i.operands:
                self.last[o] = min(self.last[o], (self.first[i] if launches(i) else self.last[i]) - launches(o))


def _runs_loops(kernel: Instruction) -> bool:
    """Whether a kernel contains a loop: its blocks may have to wait for each other."""
    body = body_of(kernel)
    return looped(kernel) is not None or (body is not None and any(looped(i) is not None for i in body.instructions))


def _too_many_arguments(engine: Engine, one: Instruction, other: Instruction) -> Iterable[Reason]:
    size, room = POINTER_BYTES * (buffer_count(one) + buffer_count(other)), argument_room(engine.context.options.target)
    return [Reason.of("FUS242", bytes=size, limit=room)] if size >= room else []
