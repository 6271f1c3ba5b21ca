"""What fusing looks at again and again, computed once per instruction and forgotten when the instruction changes."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import NamedTuple, TypeVar, cast

from hlo_opt.analysis.graph.cluster import Cluster, Follower, Node, cluster_of, merge_clusters, side_by_side
from hlo_opt.analysis.graph.numbering import attribute_key
from hlo_opt.analysis.graph.structure import Members, places_of, shared_operands, signature
from hlo_opt.analysis.memory.forms import fast_form
from hlo_opt.analysis.properties import is_generic_triton
from hlo_opt.analysis.targets import DeviceTarget
from hlo_opt.analysis.xla.heroes import emitter_of, shared_memory
from hlo_opt.analysis.xla.performance import Priced, fused_estimate, makes_reads_jump
from hlo_opt.analysis.xla.tiled_model import TileSizes, best_tiling
from hlo_opt.analysis.xla.timing import KernelEstimate
from hlo_opt.analysis.xla.utilization import Use
from hlo_opt.diag import Reason
from hlo_opt.fusion.decision import ByStructure
from hlo_opt.fusion.grouping import Grouped, Grouping, kernel_operands, operands_beside, repeats
from hlo_opt.fusion.prices import Prices, ReadPaths
from hlo_opt.ir import Computation, Instruction, Module
from hlo_opt.ops import find
from hlo_opt.ops.emission import HEROES, XlaEmitter
from hlo_opt.ops.sets import fused, launches, reuses_elements
from hlo_opt.plans import lowering_reason, plan, region_of
from hlo_opt.plans.cumulative import lines_of
from hlo_opt.plans.kinds import may_share_folds
from hlo_opt.plans.limits import is_direct
from hlo_opt.plans.sketch import Sketch, sketch_of
from hlo_opt.plans.sliding_window import slides

T = TypeVar("T")

_GROWING = ("cluster", "priced_by_xla")
"""What is kept up while a fusion grows."""
_SETTLED = ("traits", "lowering", "structure")
"""What does not change when a fusion's operands do."""
_OF_COPIES = ("traits", "lowering", "structure", "rows")
"""What names no instructions."""


class FusionState:
    """Caches over a module that is being fused. `forget` an instruction whenever it, or a fusion's computation,
    changed."""

    def __init__(self, module: Module, target: DeviceTarget, known: ByStructure | None = None) -> None:
        self.module = module
        self.target = target
        self.known = ByStructure() if known is None else known
        """What depends on the structure of kernels only."""
        self._members = Members(self.known.structures)
        self._grouping = Grouping(module, target, self.known, self._members)
        self._caches: dict[str, dict[Instruction, object]] = {"structure": {}, "places": {}}
        self._uses: dict[Instruction, Use] = {}
        self._traits_by_signature: dict[Hashable, Traits] = {}
        self._lowering_by_signature: dict[Hashable, Reason | None] = {}
        self.prices = Prices(self)
        """As we launch kernels; those of `..._by_xla` are of XLA's model, by which the presets `xla-*` decide."""
        self._waited_for: dict[Computation, dict[Instruction, Instruction]] = {}

    def of_copy(self, copy: Module, copies: Mapping[Instruction, Instruction]) -> FusionState:
        """The caches of a copy of the module, with what is known of the kernels' structure."""
        state = FusionState(copy, self.target, self.known)
        for name in _OF_COPIES:
            known = self._caches.get(name, {}).items()
            state._caches.setdefault(name, {}).update({copies[i]: value for i, value in known if i in copies})
        return state

    def cached(self, name: str, instruction: Instruction, compute: Callable[[Instruction], T]) -> T:
        """What `compute` says of an instruction, until the instruction changes."""
        try:
            return self._caches[name][instruction]  # type: ignore[return-value]
        except KeyError:
            value = self._caches.setdefault(name, {})[instruction] = compute(instruction)
            return value

    def forget(self, instruction: Instruction) -> None:
        for cache in self._caches.values():
            cache.pop(instruction, None)

    def forget_readers(self, kernel: Instruction) -> None:
        """Forget what reads a kernel, also through what launches nothing."""
        stack = [kernel]
        while stack:
            for reader in stack.pop().users:
                self.forget(reader)
                if not launches(reader):
                    stack.append(reader)

    def settle(self, fusion: Instruction) -> None:
        """A fusion has stopped growing: forget what was only kept up while it grew. Sums over its members stay
        right."""
        kept = {name: self._caches[name][fusion] for name in _SETTLED if fusion in self._caches.get(name, {})}
        self.forget(fusion)
        for name, value in kept.items():
            self._caches[name][fusion] = value

    def cluster(self, instruction: Instruction) -> Cluster:
        return self.cached("cluster", instruction, cluster_of)

    def priced_by_xla(self, instruction: Instruction) -> Priced:
        """As XLA launches and prices it."""
        return self.cached(
            "priced_by_xla", instruction, lambda i: Priced(i, self.target, cluster=self.cluster(i), known=self._uses)
        )

    def fused_by_xla(self, producer: Instruction, consumer: Instruction) -> KernelEstimate:
        """The producer computed in the consumer's kernel, as XLA prices it; infinite microseconds where a tiled kernel
        cannot hold both."""
        if is_generic_triton(producer) or is_generic_triton(consumer):
            return self._tiled(producer, consumer)[1]
        number = self.structure_of_both(producer, consumer)
        estimate = self.known.estimates.get(number)
        if estimate is None:
            estimate = fused_estimate(self.priced_by_xla(producer), self.priced_by_xla(consumer))
            self.known.estimates[number] = estimate
        return estimate

    def estimate_by_xla(self, instruction: Instruction) -> KernelEstimate:
        """A kernel by itself, as XLA prices it."""
        number = self.structure(instruction)
        estimate = self.known.alone.get(number)
        if estimate is None:
            estimate = self.known.alone[number] = self.priced_by_xla(instruction).estimate
        return estimate

    def best_tiles(self, producer: Instruction, consumer: Instruction) -> TileSizes | None:
        """The tiles that one tiled kernel of both would compute best; None where there are none."""
        return self._tiled(producer, consumer)[0]

    def _tiled(self, producer: Instruction, consumer: Instruction) -> tuple[TileSizes | None, KernelEstimate]:
        number = self.structure_of_both(producer, consumer)
        tiling = self.known.tilings.get(number)
        if tiling is None:
            cluster = merge_clusters(self.cluster(producer), self.cluster(consumer), producer)
            tiling = self.known.tilings[number] = best_tiling(cluster, self.target)
        return tiling

    def emitter(self, instruction: Instruction) -> tuple[XlaEmitter, Node]:
        """The emitter that XLA would choose for the instruction as a kernel of its own, and the hero."""
        return self.cached("emitter", instruction, lambda i: emitter_of(self.cluster(i)))

    def lowering(self, instruction: Instruction) -> Reason | None:
        """Why no kernel can hold the instruction; for a fusion, whether anything in it cannot be held."""
        return self.cached("lowering", instruction, self._lowering)

    def _lowering(self, instruction: Instruction) -> Reason | None:
        key = self.signature(instruction)
        if key is instruction:
            return lowering_reason(instruction, unplanned=True)
        if key not in self._lowering_by_signature:
            self._lowering_by_signature[key] = lowering_reason(instruction, unplanned=True)
        return self._lowering_by_signature[key]

    def waited_for(self, computation: Computation) -> Mapping[Instruction, Instruction]:
        """The instructions that others wait for without reading them, each with the first that does."""
        predecessors = self._waited_for.get(computation)
        if predecessors is None:
            predecessors = {p: i for i in reversed(list(computation.instructions)) for p in i.control_predecessors}
            self._waited_for[computation] = predecessors
        return predecessors

    @cached_property
    def waiting(self) -> Mapping[Computation, Instruction]:
        """The computations in which an instruction waits for one that it does not read, each with the first that does:
        none in most modules. Fusing leaves these instructions where they are."""
        waiting = (
            (c, next((i for i in c.instructions if i.control_predecessors), None)) for c in self.module.computations
        )
        return {computation: first for computation, first in waiting if first is not None}

    def traits(self, instruction: Instruction) -> Traits:
        """What the members of the instruction add up to."""
        return self.cached("traits", instruction, self._traits)

    def _traits(self, instruction: Instruction) -> Traits:
        if fused(instruction) is None:
            return self._traits_of(instruction)
        structure = self.structure(instruction)
        known = self.known.traits.get(structure)
        if isinstance(known, Traits):
            return known
        traits = Traits()
        for node in self.cluster(instruction).members:
            traits = traits.plus(self._traits_of(node.instruction))
        self.known.traits[structure] = traits
        return traits

    def _traits_of(self, member: Instruction) -> Traits:
        key = self.signature(member)
        traits = self._traits_by_signature.get(key)
        if traits is None:
            traits = self._traits_by_signature[key] = Traits.of(member)
        return traits

    def signature(self, instruction: Instruction) -> Hashable:
        return self.cached("signature", instruction, signature)

    def structure(self, instruction: Instruction) -> int:
        """The same number for kernels that differ in names only."""
        return self.cached("structure", instruction, self._structure)

    def _structure(self, instruction: Instruction) -> int:
        structures = self.known.structures
        own: Hashable
        body = fused(instruction)
        if body is None:
            own = (
                self._members.of(instruction),
                makes_reads_jump(instruction),
                tuple([(o.opcode, o.shape) for o in instruction.operands]),
            )
        elif instruction.word("kind") == "kCustom":  # its kernel depends on its backend config, too
            own = self._members.of_body(body), attribute_key(instruction)
        else:
            own = self._members.of_body(body)
        constants = tuple([self._members.of(o) if o.literal is not None else 0 for o in instruction.operands])
        return structures.number((own, shared_operands(instruction.operands, instruction.operands), constants))

    def structure_of_both(self, producer: Instruction, consumer: Instruction) -> int:
        """As `structure`, of both as one kernel. A kernel keeps the number that it had when its fusion was
        considered."""
        numbers = cast("dict[Instruction, int]", self._caches["structure"])  # looked up here: each edge asks
        placed = cast("dict[Instruction, dict[Instruction, int]]", self._caches["places"])
        one = numbers.get(producer) or self.structure(producer)
        other = numbers.get(consumer) or self.structure(consumer)
        places = placed.get(consumer) or placed.setdefault(consumer, places_of(consumer.operands))
        shared = [places.get(operand, -1) for operand in producer.operands]
        return self.known.structures.number(("both", one, other, places.get(producer, -1), *shared))

    def structure_with_producer(self, producer: Instruction, consumer: Instruction) -> int:
        """As `structure_of_both`, where the producer is a result, too."""
        return self.known.structures.number(("kept", self.structure_of_both(producer, consumer)))

    def structure_through(
        self, producer: Instruction, consumer: Instruction, ways: ReadPaths, written: Sequence[Instruction]
    ) -> int:
        """As `structure_of_both`, of a consumer that reads a producer by `ways` (`Prices.sketch_through`). Of what
        hands a value on, it counts what it is and which of these are the same."""
        places = places_of(consumer.operands)
        steps: dict[Instruction, int] = {}

        def number(step: Instruction) -> tuple[int, int]:
            return steps.setdefault(step, len(steps)), self._members.of(step)

        read = tuple([(places[operand], *[number(step) for step in way]) for operand, way in ways.items()])
        kept = tuple([() if value is producer else number(value) for value in written])
        shared = tuple([places.get(operand, -1) for operand in producer.operands])
        both = self.structure(producer), self.structure(consumer)
        return self.known.structures.number(("through", both, shared, read, kept))

    def structure_beside(self, one: Instruction, other: Instruction) -> int:
        """As `structure`, of two that do not read each other as one kernel."""
        shared = shared_operands(one.operands, other.operands)
        return self.known.structures.number(("beside", self.structure(one), self.structure(other), shared))

    def sketch(self, structure: int, cluster: Callable[[], Cluster]) -> Sketch | Reason:
        """What the plan of a kernel of a structure would be; `cluster` says what the kernel holds."""
        known = self.known.sketches.get(structure)
        if known is not None:
            return known
        sketch = self.sketch_of(cluster())
        if not isinstance(sketch, Reason):  # it names instructions
            self.known.sketches[structure] = sketch
        return sketch

    def sketch_of(self, members: Cluster) -> Sketch | Reason:
        """What the plan of a kernel that holds just this would be."""
        digest = self._members.of_cluster(members)
        known = self.known.plans.get(digest)
        if known is None:
            planned = self._grouping.sketch_of(members, digest) or sketch_of(self.module, members, self.target)
            if isinstance(planned, Reason):
                return planned
            known = self.known.plans[digest] = planned
        return known

    def sketch_beside(self, one: Instruction, other: Instruction) -> Sketch | Reason:
        """What the plan of two kernels that do not read each other would be as one."""
        number = self.structure_beside(one, other)
        known = self.known.sketches.get(number)
        if known is not None:
            return known
        grouping, operands = self._grouping, (kernel_operands(one), kernel_operands(other))
        groups = grouping.beside(*operands, (self._groups(one), self._groups(other)))
        both = operands_beside(*operands)
        sketch = grouping.sketch(groups, both)
        if sketch is None:
            return self.sketch(number, lambda: side_by_side(self.cluster(one), self.cluster(other)))
        self.known.grouped[number, repeats(both)] = groups
        self.known.sketches[number] = sketch
        return sketch

    def _groups(self, instruction: Instruction) -> Grouped:
        operands, grouped = kernel_operands(instruction), self.known.grouped
        key = self.structure(instruction), repeats(operands)
        if key not in grouped:
            grouped[key] = self._grouping.of_cluster(self.cluster(instruction), operands)
        return grouped[key]

    def kind_of(self, fusion: Instruction, *, with_folds: bool = False) -> str | Reason:
        """The kinds of the plan of a fusion as it is, or the reason why it has no plan. `with_folds`: only of a fusion
        that may hold folds whose results threads combine, nothing of another, whose plan is then not made."""
        sketch = self.sketch(self.structure(fusion), lambda: self.cluster(fusion))
        if isinstance(sketch, Reason):  # by what the fusion's own instructions are called
            region = region_of(self.module, fusion)
            planned = plan(region, self.target, lowered=region.computation is fusion.called_by("calls"))
            return planned if isinstance(planned, Reason) else planned.kind
        return "" if with_folds and not self.traits(fusion).folds else sketch.kind

    def emissions(self, instruction: Instruction) -> Emissions:
        """How often each operand would be computed if it were fused into the instruction."""
        return self.cluster(instruction).following("emissions", Emissions)

    def below(self, instruction: Instruction) -> Below:
        """What lies between the operands of the instruction and its results."""
        return self.cluster(instruction).following("below", Below)

    def row_reductions(self, instruction: Instruction) -> int:
        """How many reductions the threads of a block share, where the instruction is a row-reduction kernel of its
        own."""
        return self.cached("rows", instruction, self._row_reductions)

    def _row_reductions(self, instruction: Instruction) -> int:
        if not self.traits(instruction).folds or self.lowering(instruction) is not None:
            return 0
        sketch = self.sketch(self.structure(instruction), lambda: self.cluster(instruction))
        return 0 if isinstance(sketch, Reason) else sketch.row_reductions

    def started(self, fusion: Instruction, traits: Traits) -> None:
        """A fusion holds one instruction so far, of these traits."""
        self._caches.setdefault("traits", {})[fusion] = traits

    def absorbed(
        self, producer: Instruction, fusion: Instruction, structure: int
    ) -> Callable[[Mapping[Instruction, Instruction]], None]:
        """Call before a producer is moved into a fusion (the consumer, or what was started from it), and call what it
        returns after, with what its instructions became: what is known of the fusion's members is kept up, everything
        else is forgotten. `structure` is what both become."""
        traits = self.traits(producer).plus(self.traits(fusion))
        clusters = self._caches.get("cluster", {})
        cluster, above = clusters.get(fusion), clusters.get(producer)
        if isinstance(above, Cluster) and above.outweighs(self.traits(fusion).members):
            cluster = self.cluster(fusion)  # else what is known of the larger part would have to be found out again
        above = self.cluster(producer) if cluster is not None else None
        operands = list(producer.operands)

        def after(moved: Mapping[Instruction, Instruction]) -> None:
            for old, new in moved.items():
                if old in self._uses:
                    self._uses[new] = self._uses[old]
            known = {name: self._caches[name][fusion] for name in _GROWING if fusion in self._caches.get(name, ())}
            self.forget(fusion)
            self.forget(producer)
            if isinstance(cluster, Cluster) and above is not None and cluster.absorb(producer, above, moved):
                for name, value in known.items():
                    self._caches[name][fusion] = value
                    if isinstance(value, Priced):
                        value.absorbed(producer, operands)
            self._caches["traits"][fusion] = traits
            self._caches.setdefault("lowering", {})[fusion] = None
            if fusion.word("kind") != "kCustom":
                self._caches.setdefault("structure", {})[fusion] = structure

        return after

    def replaced(self, old: Instruction, new: Instruction, user: Instruction) -> None:
        """Another instruction gives an operand's value, and the user reads that one already."""
        known = {name: self._caches[name][user] for name in _GROWING if user in self._caches.get(name, ())}
        kept = {name: self._caches[name][user] for name in _SETTLED if user in self._caches.get(name, ())}
        self.forget(user)
        if fused(user) is None:
            return
        cluster = known.get("cluster")
        if isinstance(cluster, Cluster):
            if old not in cluster.inputs:
                return
            cluster.rename(old, new)
        for name, value in (known | kept).items():
            self._caches[name][user] = value
            if isinstance(value, Priced):
                value.renamed(old, new)

    def joined(
        self, other: Instruction, host: Instruction, known: Mapping[str, object] = MappingProxyType({})
    ) -> Callable[[Instruction], None]:
        """Call before an instruction becomes a further output of a kernel, and call what it returns after with the
        fusion. `known` is what `cached` need not compute again."""
        traits = self.traits(other).plus(self.traits(host))

        def after(fusion: Instruction) -> None:
            for changed in (other, host, fusion):
                self.forget(changed)
            self._caches["traits"][fusion] = traits
            self._caches.setdefault("lowering", {})[fusion] = None
            for name, value in known.items():
                self._caches.setdefault(name, {})[fusion] = value

        return after


class Traits(NamedTuple):
    """Sums over the members of a kernel.

    members        how many there are
    depth          an upper bound of how deep they nest: those that read operands under conditions or in loops
    scatters, reduces  members of these opcodes
    reductions     reduces that a reduction emitter would take
    significant_reduces  reduces of one array that fold at least `SIGNIFICANT` elements into one
    shared_memory  bytes that all would need as heroes (FusionFitsInBudget)
    windows        cumulative windows of more elements than XLA leaves in one
    slides         sliding windows that threads fold together
    library        the opcode of a member that a library would compute; empty without one
    folds          members whose partial results threads may combine
    """

    members: int = 0
    depth: int = 0
    scatters: int = 0
    reduces: int = 0
    reductions: int = 0
    significant_reduces: int = 0
    shared_memory: int = 0
    windows: int = 0
    slides: int = 0
    library: str = ""
    folds: int = 0

    @classmethod
    def of(cls, member: Instruction) -> Traits:
        spec = find(member.opcode)
        return cls(
            members=1,
            depth=not all(is_direct(member, n) for n in range(len(member.operands))),
            scatters=HEROES.get(member.opcode) is XlaEmitter.SCATTER,
            reduces=HEROES.get(member.opcode) is XlaEmitter.REDUCTION,
            reductions=fast_form(member) is not None,
            significant_reduces=_folds_many(member),
            shared_memory=shared_memory(member),
            windows=_is_long_window(member),
            slides=slides(member),
            library=member.opcode if spec is not None and spec.is_library else "",
            folds=may_share_folds(member),
        )

    def plus(self, other: Traits) -> Traits:
        return Traits(
            self.members + other.members,
            self.depth + other.depth,
            self.scatters + other.scatters,
            self.reduces + other.reduces,
            self.reductions + other.reductions,
            self.significant_reduces + other.significant_reduces,
            self.shared_memory + other.shared_memory,
            self.windows + other.windows,
            self.slides + other.slides,
            self.library or other.library,
            self.folds + other.folds,
        )


SIGNIFICANT = 16
"""Smaller reductions are loops in any kernel (CanFuse in xla/backends/gpu/transforms/priority_fusion.cc)."""


LEFT = 16
"""Elements of the cumulative windows that XLA:GPU makes of longer ones before it fuses
(xla/service/gpu/gpu_compiler.cc, ReduceWindowRewriter)."""


def _is_long_window(member: Instruction) -> bool:
    lines = lines_of(member)
    return lines is not None and lines.length > LEFT


def _folds_many(member: Instruction) -> bool:
    if (
        HEROES.get(member.opcode) is not XlaEmitter.REDUCTION
        or not member.shape.is_array
        or not member.shape.element_count
    ):
        return False
    return member.operands[0].shape.element_count // member.shape.element_count >= SIGNIFICANT


_Users = dict[Node | None, None]
"""The users that compute an index of their own on the way from a value to the results; None stands for the kernel
itself."""


class Emissions:
    """How often the code of each operand would be emitted in a kernel if the operand were fused: once for each user
    inside that computes an index of its own, as often as that user is emitted.

    Source: xla/service/fusion_node_indexing_evaluation.cc. Users that keep the shape (and transposes) share their
    users' indices.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._users: dict[Node, _Users] = {root: {None: None} for root in cluster.roots}
        self._counts: dict[Node | None, int] = {None: 1}
        self._own = set(cluster.roots)  # the others share what they have with a user, until they need more

    def of(self, operand: Instruction) -> int:
        """The count for an operand of the kernel; 0 for what it does not read."""
        node = self._cluster.inputs.get(operand)
        return 0 if node is None else sum([self._counts[user] for user in self._users.get(node, ())])

    def spread(self, nodes: list[Node], inputs: list[Node]) -> None:
        users, own, counts = self._users, self._own, self._counts
        for node in nodes:
            mine = users.setdefault(node, {})
            counts[node] = sum([counts[user] for user in mine])
            shape, is_transpose = node.instruction.shape, HEROES.get(node.instruction.opcode) is XlaEmitter.TRANSPOSE
            for operand in node.operands:
                there = users.get(operand)
                operand_shape = operand.instruction.shape
                same_index = operand_shape is shape or is_transpose or operand_shape == shape
                if there is None and same_index:
                    users[operand] = mine
                    continue
                if there is mine and same_index:
                    continue
                if there is None or operand not in own:
                    own.add(operand)
                    there = users[operand] = {} if there is None else dict(there)
                there.update(mine if same_index else {node: None})

    def fits(self, above: Follower, place: Node) -> bool:
        """What is emitted once is emitted as it is by itself."""
        return sum([self._counts[user] for user in self._users.get(place, ())]) == 1

    def adopt(self, above: Follower, root: Node, place: Node, inputs: Mapping[Node, Node]) -> None:
        assert isinstance(above, Emissions)
        below = self._users[place]
        self._counts[place] = 1
        for old, new in inputs.items():
            mine: _Users = {}
            for user in above._users.get(old, ()):
                if user is None:
                    mine.update(below)
                elif user is root:
                    mine[place] = None
                else:
                    mine[user] = None
                    self._counts[user] = above._counts[user]
            self._users[new] = self._users.get(new, {}) | mine
            self._own.add(new)


class Below:
    """What lies between each node of a kernel and its results, kept up while the kernel grows."""

    def __init__(self, cluster: Cluster) -> None:
        self.reusing: dict[Node, Node | None] = {}
        """A user, direct or not, that reads an element of its operand several times."""
        self.reusing_once_per_row: dict[Node, Node | None] = {}
        """The same, where no way leads through a reduction: a row kernel computes its result once."""
        self.enlarging: dict[Node, Node | None] = {}
        """A user, direct or not, that makes more elements out of fewer."""

    def spread(self, nodes: list[Node], inputs: list[Node]) -> None:
        for node in nodes:
            instruction = node.instruction
            beyond = self.reusing.get(node), self.reusing_once_per_row.get(node), self.enlarging.get(node)
            for position, operand in enumerate(node.operands):
                reuses = reuses_elements(instruction, position) and not _is_long_window(instruction)
                direct = node if reuses else None
                if self.reusing.get(operand) is None:
                    self.reusing[operand] = direct or beyond[0]
                if self.reusing_once_per_row.get(operand) is None:
                    self.reusing_once_per_row[operand] = direct or (
                        None if HEROES.get(instruction.opcode) is XlaEmitter.REDUCTION else beyond[1]
                    )
                if self.enlarging.get(operand) is None:
                    self.enlarging[operand] = node if _enlarges(node, operand) else beyond[2]

    def fits(self, above: Follower, place: Node) -> bool:
        """Where a way from the producer's operands to its result leads through a reduction is not kept."""
        return self.reusing_once_per_row.get(place) is None

    def adopt(self, above: Follower, root: Node, place: Node, inputs: Mapping[Node, Node]) -> None:
        assert isinstance(above, Below)
        for name in ("reusing", "reusing_once_per_row", "enlarging"):
            mine, theirs = getattr(self, name), getattr(above, name)
            for old, new in inputs.items():
                if old in theirs and mine.get(new) is None:
                    mine[new] = theirs[old] or mine.get(place)


def _enlarges(user: Node, operand: Node) -> bool:
    if user.opcode in ("broadcast", "gather"):
        return user.shape.element_count > operand.shape.element_count
    return user.opcode == "reduce-window"
