"""What fusing looks at again and again, computed once per instruction and forgotten when the instruction changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from hlo_opt.analysis.accesses import Accesses
from hlo_opt.analysis.cluster import Cluster, Node, cluster_of
from hlo_opt.analysis.heroes import shared_memory
from hlo_opt.analysis.performance import Priced
from hlo_opt.analysis.reductions import fast_form
from hlo_opt.analysis.targets import DeviceTarget
from hlo_opt.diag import Reason
from hlo_opt.fusion.trial import trial_plan
from hlo_opt.ir import Computation, Instruction, Module, Shape
from hlo_opt.ops import find
from hlo_opt.plans import lowering_reason
from hlo_opt.plans.limits import is_direct

T = TypeVar("T")


class FusionState:
    """Caches over a module that is being fused. `forget` an instruction whenever it, or a fusion's computation, changed."""

    def __init__(self, module: Module, target: DeviceTarget) -> None:
        self.module = module
        self.target = target
        self._caches: dict[str, dict[Instruction, object]] = {}
        self._accesses: dict[Instruction, Accesses] = {}
        self._waited_for: dict[Computation, frozenset[Instruction]] = {}

    def _cached(self, name: str, instruction: Instruction, compute: Callable[[Instruction], T]) -> T:
        cache = self._caches.setdefault(name, {})
        if instruction not in cache:
            cache[instruction] = compute(instruction)
        return cache[instruction]  # type: ignore[return-value]

    def forget(self, instruction: Instruction) -> None:
        for cache in self._caches.values():
            cache.pop(instruction, None)

    def cluster(self, instruction: Instruction) -> Cluster:
        return self._cached("cluster", instruction, cluster_of)

    def priced(self, instruction: Instruction) -> Priced:
        return self._cached("priced", instruction, self._priced)

    def _priced(self, instruction: Instruction) -> Priced:
        cluster = self.cluster(instruction)
        return Priced(instruction, self.target, row_local=True, cluster=cluster, known=self._accesses)

    def lowering(self, instruction: Instruction) -> Reason | None:
        """Why no kernel can hold the instruction; for a fusion, whether anything in it cannot be held."""
        return self._cached("lowering", instruction, lowering_reason)

    def waited_for(self, computation: Computation) -> frozenset[Instruction]:
        """The instructions that others wait for without reading them."""
        found = self._waited_for.get(computation)
        if found is None:
            found = frozenset(p for i in computation.instructions for p in i.control_predecessors)
            self._waited_for[computation] = found
        return found

    def depth(self, instruction: Instruction) -> int:
        """An upper bound of how deep the members nest: those that read operands under conditions or in loops."""
        return self._cached(
            "depth", instruction, lambda i: sum(not _is_direct(n.instruction) for n in self.cluster(i).members)
        )

    def scatters(self, instruction: Instruction) -> int:
        """How many members are scatters."""
        return self._cached(
            "scatters", instruction, lambda i: sum(n.opcode == "scatter" for n in self.cluster(i).members)
        )

    def library(self, instruction: Instruction) -> str:
        """The opcode of a member that a library would compute; empty when there is none."""
        return self._cached("library", instruction, self._library)

    def _library(self, instruction: Instruction) -> str:
        for node in self.cluster(instruction).members:
            spec = find(node.opcode)
            if spec is not None and spec.is_library:
                return node.opcode
        return ""

    def shared_memory(self, instruction: Instruction) -> int:
        """Bytes that all members would need as heroes, summed (FusionFitsInBudget)."""
        return self._cached(
            "shared", instruction, lambda i: sum(shared_memory(n.instruction) for n in self.cluster(i).members)
        )

    def reductions(self, instruction: Instruction) -> int:
        """How many members a reduction emitter would take."""
        return self._cached(
            "reductions",
            instruction,
            lambda i: sum(fast_form(n.instruction) is not None for n in self.cluster(i).members),
        )

    def emissions(self, instruction: Instruction) -> Emissions:
        """How often each operand would be computed if it were fused into the instruction."""
        return self._cached("emissions", instruction, lambda i: Emissions(self.cluster(i)))

    def reduces(self, instruction: Instruction) -> int:
        """How many members are reduces, fast or not."""
        return self._cached(
            "reduces", instruction, lambda i: sum(n.opcode == "reduce" for n in self.cluster(i).members)
        )

    def row_reductions(self, instruction: Instruction) -> int:
        """How many reductions the threads of a block share, where the instruction is a row-reduction kernel of its own."""
        return self._cached("rows", instruction, self._row_reductions)

    def _row_reductions(self, instruction: Instruction) -> int:
        found = trial_plan(self.module, self.cluster(instruction), self.target)
        if isinstance(found, Reason):
            return 0
        return sum(len(level) for segment in found.segments for level in segment.levels)

    def absorbed(self, producer: Instruction, fusion: Instruction) -> Callable[[], None]:
        """Call before a producer is moved into a fusion, and call what it returns after: sums are kept up, everything else is forgotten."""
        sums = {
            name: count(producer) + count(fusion)
            for name, count in (
                ("shared", self.shared_memory),
                ("reductions", self.reductions),
                ("reduces", self.reduces),
                ("depth", self.depth),
                ("scatters", self.scatters),
            )
        }
        library = self.library(producer) or self.library(fusion)
        emissions = self.emissions(fusion) if producer.opcode != "fusion" else None
        if emissions is not None:
            emissions.absorb(producer)

        def after() -> None:
            self.forget(fusion)
            self.forget(producer)
            for name, value in sums.items():
                self._caches[name][fusion] = value
            self._caches.setdefault("lowering", {})[fusion] = None
            self._caches.setdefault("library", {})[fusion] = library
            if emissions is not None:
                self._caches["emissions"][fusion] = emissions

        return after


def _is_direct(instruction: Instruction) -> bool:
    return all(is_direct(instruction, n) for n in range(len(instruction.operands)))


class Emissions:
    """How often the code of each operand would be emitted in a kernel if the operand were fused: once for each user inside that computes an index
    of its own, as often as that user is emitted.

    Source: xla/service/fusion_node_indexing_evaluation.cc. Users that keep the shape (and transposes) share their users' indices.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._users: dict[Node | Instruction, dict[Node | Instruction | None, None]] = {}
        self._counts: dict[Node | Instruction | None, int] = {None: 1}
        for node in cluster.nodes:
            self._users[node] = {}
        for root in cluster.roots:
            self._users[root][None] = None
        for node in reversed(cluster.nodes):
            self._counts[node] = sum(self._counts[user] for user in self._users[node])
            for operand in node.operands:
                self._use(operand, operand.shape, node, node.opcode, node.shape)
        for operand_instruction, node in cluster.inputs.items():
            self._users[operand_instruction] = self._users.pop(node)

    def _use(
        self,
        operand: Node | Instruction,
        operand_shape: Shape,
        user: Node | Instruction,
        opcode: str,
        shape: Shape,
    ) -> None:
        users = self._users.setdefault(operand, {})
        if opcode == "transpose" or operand_shape == shape:
            users.update(self._users[user])
        else:
            users[user] = None

    def of(self, operand: Instruction) -> int:
        """The count for an operand of the kernel; 0 for what it does not read."""
        return sum(self._counts[user] for user in self._users.get(operand, ()))

    def absorb(self, producer: Instruction) -> None:
        """The producer, no fusion, becomes a member."""
        self._counts[producer] = self.of(producer)
        for operand in producer.operands:
            self._use(operand, operand.shape, producer, producer.opcode, producer.shape)
