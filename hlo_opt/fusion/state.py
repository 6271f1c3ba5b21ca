"""What fusing looks at again and again, computed once per instruction and forgotten when the instruction changes."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import TypeVar

from hlo_opt.analysis.cluster import Cluster, Node, cluster_of
from hlo_opt.analysis.heroes import shared_memory
from hlo_opt.analysis.performance import Priced
from hlo_opt.analysis.reductions import fast_form
from hlo_opt.analysis.signature import signature
from hlo_opt.analysis.targets import DeviceTarget
from hlo_opt.analysis.utilization import Use
from hlo_opt.diag import Reason
from hlo_opt.fusion.trial import trial_plan
from hlo_opt.ir import Computation, Instruction, Module
from hlo_opt.ops import find
from hlo_opt.plans import Plan, lowering_reason
from hlo_opt.plans.limits import is_direct

T = TypeVar("T")


class FusionState:
    """Caches over a module that is being fused. `forget` an instruction whenever it, or a fusion's computation, changed."""

    def __init__(self, module: Module, target: DeviceTarget) -> None:
        self.module = module
        self.target = target
        self._caches: dict[str, dict[Instruction, object]] = {}
        self._uses: dict[Instruction, Use] = {}
        self._traits_by_signature: dict[Hashable, Traits] = {}
        self._lowering_by_signature: dict[Hashable, Reason | None] = {}
        self._planned: tuple[Instruction, Instruction, int] | None = None
        self._waited_for: dict[Computation, frozenset[Instruction]] = {}

    def _cached(self, name: str, instruction: Instruction, compute: Callable[[Instruction], T]) -> T:
        cache = self._caches.get(name)
        if cache is None:
            cache = self._caches[name] = {}
        try:
            return cache[instruction]  # type: ignore[return-value]
        except KeyError:
            found = cache[instruction] = compute(instruction)
            return found

    def forget(self, instruction: Instruction) -> None:
        for cache in self._caches.values():
            cache.pop(instruction, None)

    def settle(self, fusion: Instruction) -> None:
        """A fusion has stopped growing: forget what was only kept up while it grew. Sums over its members stay right."""
        kept = {
            name: self._caches[name][fusion]
            for name in ("traits", "lowering", "waits")
            if fusion in self._caches.get(name, {})
        }
        self.forget(fusion)
        for name, value in kept.items():
            self._caches[name][fusion] = value

    def cluster(self, instruction: Instruction) -> Cluster:
        return self._cached("cluster", instruction, cluster_of)

    def priced(self, instruction: Instruction) -> Priced:
        return self._cached("priced", instruction, self._priced)

    def _priced(self, instruction: Instruction) -> Priced:
        cluster = self.cluster(instruction)
        return Priced(instruction, self.target, row_local=True, cluster=cluster, known=self._uses)

    def lowering(self, instruction: Instruction) -> Reason | None:
        """Why no kernel can hold the instruction; for a fusion, whether anything in it cannot be held."""
        return self._cached("lowering", instruction, self._lowering)

    def _lowering(self, instruction: Instruction) -> Reason | None:
        key = self.signature(instruction)
        if key is instruction:
            return lowering_reason(instruction)
        if key not in self._lowering_by_signature:
            self._lowering_by_signature[key] = lowering_reason(instruction)
        return self._lowering_by_signature[key]

    def waited_for(self, computation: Computation) -> frozenset[Instruction]:
        """The instructions that others wait for without reading them."""
        found = self._waited_for.get(computation)
        if found is None:
            found = frozenset(p for i in computation.instructions for p in i.control_predecessors)
            self._waited_for[computation] = found
        return found

    def waits_inside(self, fusion: Instruction) -> Instruction | None:
        """A member of a fusion that waits for another; only fusions that came with the input hold any."""
        return self._cached(
            "waits",
            fusion,
            lambda f: next((i for i in f.called_by("calls").instructions if i.control_predecessors), None),
        )

    def traits(self, instruction: Instruction) -> Traits:
        """What the members of the instruction add up to."""
        return self._cached("traits", instruction, self._traits)

    def _traits(self, instruction: Instruction) -> Traits:
        if instruction.opcode != "fusion":
            return self._traits_of(instruction)
        found = Traits()
        for node in self.cluster(instruction).members:
            found = found.plus(self._traits_of(node.instruction))
        return found

    def _traits_of(self, member: Instruction) -> Traits:
        key = self.signature(member)
        found = self._traits_by_signature.get(key)
        if found is None:
            found = self._traits_by_signature[key] = Traits.of(member)
        return found

    def signature(self, instruction: Instruction) -> Hashable:
        return self._cached("signature", instruction, signature)

    def emissions(self, instruction: Instruction) -> Emissions:
        """How often each operand would be computed if it were fused into the instruction."""
        return self._cached("emissions", instruction, lambda i: Emissions(self.cluster(i)))

    def row_reductions(self, instruction: Instruction) -> int:
        """How many reductions the threads of a block share, where the instruction is a row-reduction kernel of its own."""
        return self._cached("rows", instruction, self._row_reductions)

    def _row_reductions(self, instruction: Instruction) -> int:
        if self.lowering(instruction) is not None:
            return 0
        return row_reductions(trial_plan(self.module, self.cluster(instruction), self.target))

    def planned(self, producer: Instruction, consumer: Instruction, found: Plan | Reason) -> None:
        """Remember the plan of both as one kernel until they are fused."""
        self._planned = (producer, consumer, row_reductions(found))

    def absorbed(self, producer: Instruction, fusion: Instruction, consumer: Instruction) -> Callable[[], None]:
        """Call before a producer is moved into a fusion (the consumer, or what was started from it), and call what it returns after: sums are
        kept up, everything else is forgotten."""
        traits = self.traits(producer).plus(self.traits(fusion))
        planned = self._planned
        emissions = self.emissions(fusion) if producer.opcode != "fusion" else None
        if emissions is not None:
            emissions.absorb(producer)

        def after() -> None:
            self.forget(fusion)
            self.forget(producer)
            self._caches["traits"][fusion] = traits
            self._caches.setdefault("lowering", {})[fusion] = None
            self._caches.setdefault("waits", {})[fusion] = None
            if planned is not None and planned[:2] == (producer, consumer):
                self._caches.setdefault("rows", {})[fusion] = planned[2]
            if emissions is not None:
                self._caches["emissions"][fusion] = emissions

        return after


@dataclass(frozen=True, slots=True)
class Traits:
    """Sums over the members of a kernel.

    depth          an upper bound of how deep they nest: those that read operands under conditions or in loops
    scatters, reduces  members of these opcodes
    reductions     reduces that a reduction emitter would take
    shared_memory  bytes that all would need as heroes (FusionFitsInBudget)
    library        the opcode of a member that a library would compute; empty when there is none
    """

    depth: int = 0
    scatters: int = 0
    reduces: int = 0
    reductions: int = 0
    shared_memory: int = 0
    library: str = ""

    @classmethod
    def of(cls, member: Instruction) -> Traits:
        spec = find(member.opcode)
        return cls(
            depth=not all(is_direct(member, n) for n in range(len(member.operands))),
            scatters=member.opcode == "scatter",
            reduces=member.opcode == "reduce",
            reductions=fast_form(member) is not None,
            shared_memory=shared_memory(member),
            library=member.opcode if spec is not None and spec.is_library else "",
        )

    def plus(self, other: Traits) -> Traits:
        return Traits(
            self.depth + other.depth,
            self.scatters + other.scatters,
            self.reduces + other.reduces,
            self.reductions + other.reductions,
            self.shared_memory + other.shared_memory,
            self.library or other.library,
        )


def row_reductions(found: Plan | Reason) -> int:
    """How many reductions the threads of a block share in a plan; none where there is no plan."""
    if isinstance(found, Reason):
        return 0
    return sum(len(level) for segment in found.segments for level in segment.levels)


_Users = dict[Node | Instruction | None, None]
"""The users that compute an index of their own on the way from a value to the results; None stands for the kernel itself."""


class Emissions:
    """How often the code of each operand would be emitted in a kernel if the operand were fused: once for each user inside that computes an index
    of its own, as often as that user is emitted.

    Source: xla/service/fusion_node_indexing_evaluation.cc. Users that keep the shape (and transposes) share their users' indices.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._users: dict[Instruction, _Users] = {}
        """Of the kernel's operands, and of what was absorbed since."""
        self._counts: dict[Node | Instruction | None, int] = {None: 1}
        users: dict[Node, _Users] = {root: {None: None} for root in cluster.roots}
        own = set(cluster.roots)  # the others share what they have with a user, until they need more
        counts = self._counts
        for node in reversed(cluster.nodes):
            mine = users.setdefault(node, {})
            counts[node] = sum([counts[user] for user in mine])
            shape, is_transpose = node.instruction.shape, node.instruction.opcode == "transpose"
            for operand in node.operands:
                there = users.get(operand)
                given = operand.instruction.shape
                same_index = given is shape or is_transpose or given == shape
                if there is None and same_index:
                    users[operand] = mine
                    continue
                if there is mine and same_index:
                    continue
                if there is None or operand not in own:
                    own.add(operand)
                    there = users[operand] = {} if there is None else dict(there)
                there.update(mine if same_index else {node: None})
        for instruction, node in cluster.inputs.items():
            self._users[instruction] = dict(users[node])

    def of(self, operand: Instruction) -> int:
        """The count for an operand of the kernel; 0 for what it does not read."""
        return sum(self._counts[user] for user in self._users.get(operand, ()))

    def absorb(self, producer: Instruction) -> None:
        """The producer, no fusion, becomes a member."""
        mine = self._users.setdefault(producer, {})
        self._counts[producer] = self.of(producer)
        for operand in producer.operands:
            users = self._users.setdefault(operand, {})
            if producer.opcode == "transpose" or operand.shape == producer.shape:
                users.update(mine)
            else:
                users[producer] = None
