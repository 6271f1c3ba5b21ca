"""A pass: a frozen dataclass whose fields are its options; and the base of the passes that fuse.

What such a pass has against an edge is said in one place: a run goes by the first reason, an explanation tells them
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
    """Base of all passes. A pass that changes the graph only by outlining, inlining, merging equal values or dropping
    dead ones preserves "graph", and every run of it is proved; one that preserves "meaning" only is checked by
    evaluation in tests."""

    name: ClassVar[str]
    preserves: ClassVar[Literal["graph", "meaning"]]
    keeps_memory: ClassVar[bool] = False
    """Whether the pass keeps `PassContext.memory` up to date when it changes the module."""

    simplifies: ClassVar[bool] = False
    """Whether the pass rewrites loops or arithmetic before anything is fused: a preset leaves it out where the user
    wants nothing simplified."""

    idempotent: ClassVar[bool] = False
    """Whether the pass finds nothing to do right after itself."""

    def run(self, module: Module, context: PassContext) -> bool:
        """Rewrite the module in place; True when anything changed."""
        raise AssertionError(f"{type(self).__name__} does not define run")


@dataclass(frozen=True)
class RewritingPass(Pass):
    """A pass that goes over computations and rewrites what it finds in each, one place after another; `rewrites` says
    what."""

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
        """Those that are rewritten: all that launch kernels, where a pass says nothing else."""
        return executed_computations(module)

    def rewrites(self, computation: Computation, context: PassContext) -> Iterator[Callable[[], object]]:
        """What is rewritten in a computation. Each is done before the next is asked for, and the computation is sorted
        after the last."""
        raise AssertionError(f"{type(self).__name__} does not define rewrites")

    def tidy(self, module: Module) -> None:
        """What is left to do once something was rewritten; nothing, where a pass does not say."""


@dataclass(frozen=True)
class Refusal:
    """Two kernels of which neither reads the other, and what keeps them apart."""

    first: Instruction
    second: Instruction
    reasons: list[Reason]


@dataclass(frozen=True)
class FusionPass(Pass):
    """A pass over the shared legality and policy layers. One that fuses edges one by one defines `fuse_in`, `looks_at`
    and `policy`."""

    keeps_memory: ClassVar[bool] = True
    kind: ClassVar[str] = "producer"
    """What the pass fuses: producers into consumers (`producer`), or kernels that keep their outputs (`outputs`,
    `horizontal`). Of the passes of a kind the last that takes an edge explains it."""
    takes_any_form: ClassVar[bool] = False
    """Whether it joins kernels that do not read each other whatever they are: then only it explains why two were left
    apart, not the passes of its kind before it."""

    def run(self, module: Module, context: PassContext) -> bool:
        """Go over all computations that launch kernels, and again where a fusion had to be taken apart."""
        changed = False
        while True:
            engine = Engine(module, context, self.name)
            for computation in engine.computations():
                computation.index_users()
                changed |= self.fuse_in(computation, engine)
            if not engine.finish():
                return changed

    def fuse_in(self, computation: Computation, engine: Engine) -> bool:
        """Fuse what the pass wants to in one computation, whose users are numbered; True when anything changed."""
        raise AssertionError(f"{type(self).__name__} does not define fuse_in")

    def looks_at(self, edge: Edge) -> bool:
        """Whether edges of this kind are this pass's business; none are where it joins only kernels that do not read
        each other."""
        return False

    def policy(self, engine: Engine, computation: Computation) -> Policy:
        """What decides on the edges of a computation, besides legality."""
        raise AssertionError(f"{type(self).__name__} does not define policy")

    def decide(self, engine: Engine, producer: Instruction, consumer: Instruction) -> Reason | None:
        """What the pass has against an edge by itself, the first reason; None where it takes it."""
        return next(self.against_edge(engine, engine.edge(producer, consumer)), None)

    def takes(self, engine: Engine, producer: Instruction, consumer: Instruction) -> bool:
        """Whether `decide` has nothing against an edge; edges that are alike are decided on once."""
        return engine.allows(engine.edge(producer, consumer), self.policy(engine, producer.computation))

    def against_edge(self, engine: Engine, edge: Edge) -> Iterator[Reason]:
        """Everything that the pass has against an edge by itself."""
        return engine.reasons(edge, self.policy(engine, edge.producer.computation))

    def against_producer(self, engine: Engine, producer: Instruction) -> Iterator[tuple[Instruction | None, Reason]]:
        """What the pass has against fusing a producer at all, each with the user that is to blame; for passes that fuse
        into all users or into none."""
        return iter(())

    def refusals(self, engine: Engine, edge: Edge) -> Iterator[Reason]:
        """What the pass has against an edge that it left."""
        yield from self.against_edge(engine, edge)
        key = (self, edge.producer)
        if key not in engine.notes:
            engine.notes[key] = list(self.against_producer(engine, edge.producer))
        yield from (reason for user, reason in engine.notes[key] if user is not edge.consumer)

    def sibling_refusals(self, engine: Engine, computation: Computation) -> Iterator[Refusal]:
        """What the pass has against making one kernel of neighbours that do not read each other."""
        return iter(())
