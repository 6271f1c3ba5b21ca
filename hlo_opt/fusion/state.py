"""What fusing looks at again and again, computed once per instruction and forgotten when the instruction changes."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType

from hlo_opt.analysis.graph.cluster import Cluster, Node, cluster_of, merge_clusters, side_by_side
from hlo_opt.analysis.graph.numbering import attribute_key
from hlo_opt.analysis.graph.structure import Members, places_of, shared_operands, signature
from hlo_opt.analysis.properties import is_generic_triton
from hlo_opt.analysis.targets import DeviceTarget
from hlo_opt.analysis.xla.heroes import emitter_of
from hlo_opt.analysis.xla.performance import Priced, fused_estimate, makes_reads_jump
from hlo_opt.analysis.xla.tiled_model import TileSizes, best_tiling
from hlo_opt.analysis.xla.timing import KernelEstimate
from hlo_opt.analysis.xla.utilization import Use
from hlo_opt.diag import Reason
from hlo_opt.fusion.caches import Cache, Caches
from hlo_opt.fusion.decision import ByStructure
from hlo_opt.fusion.followers import Below, Emissions
from hlo_opt.fusion.grouping import Grouped, Grouping, kernel_operands, operands_beside, repeats
from hlo_opt.fusion.prices import Prices, ReadPaths
from hlo_opt.fusion.traits import Traits
from hlo_opt.ir import Computation, Instruction, Module
from hlo_opt.ops.emission import XlaEmitter
from hlo_opt.ops.sets import fused, launches
from hlo_opt.plans import lowering_reason, plan, region_of
from hlo_opt.plans.sketch import Sketch, sketch_of


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
        self.caches = Caches(self)
        self._structures = self.caches.table(STRUCTURE)
        self._places = self.caches.table(PLACES)
        self._uses: dict[Instruction, Use] = {}
        self._traits_by_signature: dict[Hashable, Traits] = {}
        self._lowering_by_signature: dict[Hashable, Reason | None] = {}
        self.prices = Prices(self)
        """As we launch kernels; those of `..._by_xla` are of XLA's model, by which the presets `xla-*` decide."""
        self._waited_for: dict[Computation, dict[Instruction, Instruction]] = {}

    def of_copy(self, copy: Module, copies: Mapping[Instruction, Instruction]) -> FusionState:
        """The caches of a copy of the module, with what is known of the kernels' structure."""
        state = FusionState(copy, self.target, self.known)
        state.caches.copy_from(self.caches, copies)
        return state

    def forget(self, instruction: Instruction) -> None:
        """The instruction, or a fusion's computation, has changed."""
        self.caches.forget(instruction)

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
        self.caches.keep(fusion, settled=True)

    def cluster(self, instruction: Instruction) -> Cluster:
        return self.caches.of(CLUSTER, instruction)

    def priced_by_xla(self, instruction: Instruction) -> Priced:
        """As XLA launches and prices it."""
        return self.caches.of(PRICED_BY_XLA, instruction)

    def _priced_by_xla(self, instruction: Instruction) -> Priced:
        return Priced(instruction, self.target, cluster=self.cluster(instruction), known=self._uses)

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
        return self.caches.of(EMITTER, instruction)

    def lowering(self, instruction: Instruction) -> Reason | None:
        """Why no kernel can hold the instruction; for a fusion, whether anything in it cannot be held."""
        return self.caches.of(LOWERING, instruction)

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
        return self.caches.of(TRAITS, instruction)

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
        return self.caches.of(SIGNATURE, instruction)

    def structure(self, instruction: Instruction) -> int:
        """The same number for kernels that differ in names only."""
        return self.caches.of(STRUCTURE, instruction)

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
        numbers, placed = self._structures, self._places  # looked up here: each edge asks
        one = numbers.get(producer) or self.structure(producer)
        other = numbers.get(consumer) or self.structure(consumer)
        places = placed.get(consumer) or self.caches.of(PLACES, consumer)
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
        return self.cluster(instruction).following(Emissions, Emissions)

    def below(self, instruction: Instruction) -> Below:
        """What lies between the operands of the instruction and its results."""
        return self.cluster(instruction).following(Below, Below)

    def row_reductions(self, instruction: Instruction) -> int:
        """How many reductions the threads of a block share, where the instruction is a row-reduction kernel of its
        own."""
        return self.caches.of(ROWS, instruction)

    def _row_reductions(self, instruction: Instruction) -> int:
        if not self.traits(instruction).folds or self.lowering(instruction) is not None:
            return 0
        sketch = self.sketch(self.structure(instruction), lambda: self.cluster(instruction))
        return 0 if isinstance(sketch, Reason) else sketch.row_reductions

    def started(self, fusion: Instruction, traits: Traits) -> None:
        """A fusion holds one instruction so far, of these traits."""
        self.caches.take(fusion, {TRAITS: traits})

    def absorbed(
        self, producer: Instruction, fusion: Instruction, structure: int
    ) -> Callable[[Mapping[Instruction, Instruction]], None]:
        """Call before a producer is moved into a fusion (the consumer, or what was started from it), and call what it
        returns after, with what its instructions became: what is known of the fusion's members is kept up, everything
        else is forgotten. `structure` is what both become."""
        traits = self.traits(producer).plus(self.traits(fusion))
        clusters = self.caches.table(CLUSTER)
        cluster, above = clusters.get(fusion), clusters.get(producer)
        if above is not None and above.outweighs(self.traits(fusion).members):
            cluster = self.cluster(fusion)  # else what is known of the larger part would have to be found out again
        above = self.cluster(producer) if cluster is not None else None
        operands = list(producer.operands)

        def after(moved: Mapping[Instruction, Instruction]) -> None:
            for old, new in moved.items():
                if old in self._uses:
                    self._uses[new] = self._uses[old]
            self.forget(producer)
            grown = cluster is not None and above is not None and cluster.absorb(producer, above, moved)
            self.caches.keep(fusion, growing=grown)
            priced = self.caches.table(PRICED_BY_XLA).get(fusion)
            if priced is not None:
                priced.absorbed(producer, operands)
            self.caches.take(fusion, {TRAITS: traits, LOWERING: None})
            if fusion.word("kind") != "kCustom":
                self._structures[fusion] = structure

        return after

    def replaced(self, old: Instruction, new: Instruction, user: Instruction) -> None:
        """Another instruction gives an operand's value, and the user reads that one already."""
        cluster = self.caches.table(CLUSTER).get(user)
        if fused(user) is None or (cluster is not None and old not in cluster.inputs):
            self.forget(user)
            return
        self.caches.keep(user, growing=True, settled=True)
        if cluster is not None:
            cluster.rename(old, new)
        priced = self.caches.table(PRICED_BY_XLA).get(user)
        if priced is not None:
            priced.renamed(old, new)

    def joined(
        self, other: Instruction, host: Instruction, known: Mapping[Cache[object], object] = MappingProxyType({})
    ) -> Callable[[Instruction], None]:
        """Call before an instruction becomes a further output of a kernel, and call what it returns after with the
        fusion. `known` is what need not be computed again."""
        traits = self.traits(other).plus(self.traits(host))

        def after(fusion: Instruction) -> None:
            for changed in (other, host, fusion):
                self.forget(changed)
            self.caches.take(fusion, {TRAITS: traits, LOWERING: None, **known})

        return after


CLUSTER: Cache[Cluster] = Cache(lambda _, instruction: cluster_of(instruction), grows=True)
PRICED_BY_XLA: Cache[Priced] = Cache(FusionState._priced_by_xla, grows=True)
EMITTER: Cache[tuple[XlaEmitter, Node]] = Cache(lambda state, instruction: emitter_of(state.cluster(instruction)))
LOWERING: Cache[Reason | None] = Cache(FusionState._lowering, settled=True, in_copies=True)
TRAITS: Cache[Traits] = Cache(FusionState._traits, settled=True, in_copies=True)
SIGNATURE: Cache[Hashable] = Cache(lambda _, instruction: signature(instruction))
STRUCTURE: Cache[int] = Cache(FusionState._structure, settled=True, in_copies=True)
PLACES: Cache[dict[Instruction, int]] = Cache(lambda _, instruction: places_of(instruction.operands))
"""The numbers of the operands."""
ROWS: Cache[int] = Cache(FusionState._row_reductions, in_copies=True)
