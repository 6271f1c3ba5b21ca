"""A pass: a frozen dataclass whose fields are its options; and the base of the passes that fuse.

The reasons of such a pass against an edge come from one place: a run stops at the first reason, an explanation shows
all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

from hlo_opt.diag import Reason
from hlo_opt.fusion.context import PassContext
from hlo_opt.fusion.engine import Engine, Policy
from hlo_opt.fusion.legality import Edge
from hlo_opt.ir import Computation, Instruction, Module, edit
from hlo_opt.ir.walk import executed_computations

__all__ = ["Pass", "PassContext"]


@dataclass(frozen=True)
class Pass:
    """Base of all passes. A pass preserves "graph" if it only outlines, inlines, merges equal values or drops dead
    ones: every run of it is proved. Any other pass preserves "meaning": tests check it by evaluation."""

    name: ClassVar[str]
    preserves: ClassVar[Literal["graph", "meaning"]]
    keeps_memory: ClassVar[bool] = False
    """Whether the pass keeps `PassContext.memory` up to date when it changes the module."""

    only_removes: ClassVar[bool] = False
    """Whether all values after the pass were there before: those that differed still do."""

    simplifies: ClassVar[bool] = False
    """Whether the pass rewrites loops or arithmetic before fusion: a preset leaves it out where the user wants nothing
    simplified."""

    idempotent: ClassVar[bool] = False
    """Whether a second run right after the first changes nothing."""

    def run(self, module: Module, context: PassContext) -> bool:
        """Rewrite the module in place; True when anything changed."""
        raise AssertionError(f"{type(self).__name__} does not define run")


@dataclass(frozen=True)
class RewritingPass(Pass):
    """A pass that rewrites one place after another in each computation; `rewrites` says which."""

    def run(self, module: Module, context: PassContext) -> bool:
        changed = False
        for computation in list(self.computations(module)):
            here = False
            for rewrite in self.rewrites(computation, context):
                if not context.step():
                    break
                rewrite()
                here = True
            if here:
                edit.sort(computation)
            changed |= here
        if changed:
            self.tidy(module)
            edit.sort_computations(module)
        return changed

    def computations(self, module: Module) -> Iterable[Computation]:
        """The computations to rewrite; by default all that launch kernels."""
        return executed_computations(module)

    def rewrites(self, computation: Computation, context: PassContext) -> Iterator[Callable[[], object]]:
        """The rewrites of a computation, one function each. Each is done before the next is asked for; the computation
        is sorted after the last."""
        raise AssertionError(f"{type(self).__name__} does not define rewrites")

    def tidy(self, module: Module) -> None:
        """Clean up after the last rewrite; by default nothing."""


@dataclass(frozen=True)
class Refusal:
    """Two kernels that do not read each other, and the reasons why they stay apart."""

    first: Instruction
    second: Instruction
    reasons: list[Reason]


@dataclass(frozen=True)
class FusionPass(Pass):
    """A pass over the shared legality and policy layers. A pass that decides edge by edge defines `fuse_in`, `looks_at`
    and `policy`."""

    keeps_memory: ClassVar[bool] = True
    kind: ClassVar[str] = "producer"
    """What the pass fuses: producers into consumers (`producer`), or kernels that keep their outputs (`outputs`,
    `horizontal`). Of several passes of one kind, the last that looks at an edge explains it."""
    takes_any_form: ClassVar[bool] = False
    """Whether it joins kernels of any form that do not read each other. Then it alone explains why two stayed apart,
    not the earlier passes of its kind."""

    def run(self, module: Module, context: PassContext) -> bool:
        """Fuse in all computations that launch kernels; again where a fusion had to be taken apart."""
        changed = False
        while True:
            engine = Engine(module, context, self.name)
            for computation in engine.computations():
                computation.index_users()
                changed |= self.fuse_in(computation, engine)
            if not engine.finish():
                return changed

    def fuse_in(self, computation: Computation, engine: Engine) -> bool:
        """Fuse in one computation, whose users are indexed; True when anything changed."""
        raise AssertionError(f"{type(self).__name__} does not define fuse_in")

    def looks_at(self, edge: Edge) -> bool:
        """Whether the pass considers edges of this kind; False for a pass that only joins kernels that do not read each
        other."""
        return False

    def policy(self, engine: Engine, computation: Computation) -> Policy:
        """The policy for the edges of a computation: what decides besides legality."""
        raise AssertionError(f"{type(self).__name__} does not define policy")

    def decide(self, engine: Engine, producer: Instruction, consumer: Instruction) -> Reason | None:
        """The first reason of the pass against an edge by itself; None where it fuses it."""
        return next(self.against_edge(engine, engine.edge(producer, consumer)), None)

    def takes(self, engine: Engine, producer: Instruction, consumer: Instruction) -> bool:
        """Whether `decide` has no reason against an edge; edges that are alike are decided once."""
        return engine.allows(engine.edge(producer, consumer), self.policy(engine, producer.computation))

    def against_edge(self, engine: Engine, edge: Edge) -> Iterator[Reason]:
        """All reasons of the pass against an edge by itself."""
        return engine.reasons(edge, self.policy(engine, edge.producer.computation))

    def against_producer(self, engine: Engine, producer: Instruction) -> Iterator[tuple[Instruction | None, Reason]]:
        """The reasons of the pass against fusing a producer at all, each with the user that causes it; for passes that
        fuse into all users or into none."""
        return iter(())

    def refusals(self, engine: Engine, edge: Edge) -> Iterator[Reason]:
        """The reasons of the pass against an edge that it left."""
        yield from self.against_edge(engine, edge)
        key = (self, edge.producer)
        if key not in engine.notes:
            engine.notes[key] = list(self.against_producer(engine, edge.producer))
        yield from (reason for user, reason in engine.notes[key] if user is not edge.consumer)

    def sibling_refusals(self, engine: Engine, computation: Computation) -> Iterator[Refusal]:
        """The reasons of the pass against joining neighbours that do not read each other."""
        return iter(())
