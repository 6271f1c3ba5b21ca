"""How often a kernel evaluates each member and reads each input, and its code size.

Source: xla/service/gpu/model/gpu_hlo_cost_analysis.cc (FusionCalculateUtilizations).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from hlo_opt.analysis.graph.cluster import Cluster, Follower, Node
from hlo_opt.analysis.memory.traffic import accesses, written_by_root
from hlo_opt.ir import Instruction
from hlo_opt.ops.accesses import Accesses
from hlo_opt.ops.emission import HEROES, XlaEmitter
from hlo_opt.ops.sets import is_elementwise, is_view, tuple_elements, tuple_index

IMMEDIATE_ELEMENTS = 8
"""Constants with at most this many elements are immediates and cost no read."""


class ExactSum:
    """An order-independent sum of floats (Shewchuk's partial sums, as in `math.fsum`), so that incremental and full
    results are equal."""

    __slots__ = ("parts",)

    def __init__(self) -> None:
        self.parts: list[float] = []

    def add(self, x: float) -> None:
        kept = 0
        parts = self.parts
        for y in parts:
            if abs(x) < abs(y):
                x, y = y, x
            high = x + y
            low = y - (high - x)
            if low:
                parts[kept] = low
                kept += 1
            x = high
        parts[kept:] = [x]

    @property
    def value(self) -> float:
        return math.fsum(self.parts)


@dataclass
class Usage:
    """The usage of a cluster. `utilization` per node: 1.0 means the full value is used once. `code_size` counts emitted
    operations."""

    flops: float = 0.0
    code_size: int = 0
    written: float = 0.0
    constant_bytes: float = 0.0
    utilization: dict[Node, float] = field(default_factory=dict)
    emitted: dict[Node, int] = field(default_factory=dict)
    use_roots: dict[Node, dict[Node, None]] = field(default_factory=dict)
    root_utilization: dict[Node, float] = field(default_factory=dict)
    root: Node | None = None
    """The node that represents all results in `use_roots`."""

    def read_of(self, cluster: Cluster, operand: Instruction) -> float:
        """Bytes read of an operand; 0 if it is not an input."""
        node = cluster.inputs.get(operand)
        return 0.0 if node is None else operand.shape.byte_size * self.utilization.get(node, 0.0)

    def common_elementwise(self, left: Node, right: Node) -> float:
        """The share of the uses of `left` that go elementwise to uses of `right` (CommonElementwiseUtilization)."""
        others = self.use_roots.get(right, {})
        return math.fsum([self.root_utilization[r] for r in self.use_roots.get(left, {}) if r in others])


class ClusterUsage(Usage):
    """The usage of a cluster, updated while the cluster grows.

    Elementwise nodes pass their uses on to their operands; others start new uses. `known` caches the accesses of
    instructions.
    """

    def __init__(self, cluster: Cluster, capability: int, *, known: dict[Instruction, Use]) -> None:
        super().__init__()
        self._capability = capability
        self._known = known
        self._results = set(cluster.roots)
        self._flops = ExactSum()
        self._constant_bytes = ExactSum()
        self._used: dict[Node, int] = {}
        """Elements of a use root that its users read, as exact integers."""
        self._emitted: dict[Node, int] = {}
        """How often users emit a use root."""
        self._own = set(cluster.roots)
        """Nodes with an unshared entry in `use_roots`; others share a user's entry until they need more."""
        whole = cluster.roots[0]
        if len(cluster.roots) > 1:
            # XLA's root is the tuple of all results, so elementwise uses by several results count once
            whole = Node(cluster.roots[0].instruction, (), is_input=True)
        self.root = whole
        self.root_utilization[whole] = 1.0
        self._emitted[whole] = 1
        for root in cluster.roots:
            self.use_roots[root] = {whole: None}
        self.written = sum(
            float(r.shape.byte_size) if r.is_input else written_by_root(r.instruction) for r in cluster.roots
        )

    def spread(self, nodes: list[Node], inputs: list[Node]) -> None:
        """Process new members, users first, and new inputs (see `Follower`)."""
        use_roots, used, emitted_roots, own_sets = self.use_roots, self._used, self._emitted, self._own
        utilizations = self.root_utilization
        sums: dict[int, tuple[float, int]] = {}
        touched = dict.fromkeys(inputs)
        for node in nodes:
            roots = use_roots.setdefault(node, {})
            share, emitted = self._settle(node, roots, sums)
            instruction = node.instruction
            use = self._known.get(instruction)
            if use is None:
                use = self._known[instruction] = use_of(instruction, self._capability)
            self._flops.add(share * use.accesses.flops)
            if use.constant_bytes:
                self._constant_bytes.add(share * use.constant_bytes)
            in_place = use.updates and node in self._results
            for number, operand in enumerate(node.operands):
                if operand.is_input:
                    touched[operand] = None
                there = use_roots.get(operand)
                if use.passes_on:
                    if there is None:
                        use_roots[operand] = roots
                    elif there is not roots:
                        if operand not in own_sets:
                            own_sets.add(operand)
                            there = use_roots[operand] = dict(there)
                        there.update(roots)
                    continue
                if there is None:
                    use_roots[operand] = {operand: None}
                    own_sets.add(operand)
                elif operand not in there:
                    if operand not in own_sets:
                        own_sets.add(operand)
                        there = use_roots[operand] = dict(there)
                    there[operand] = None
                elements = operand.shape.element_count
                # an in-place update at the root does not read what it leaves unchanged
                part = 0.0 if in_place and number == 0 else share * use.accesses.utilization[number]
                count = used[operand] = used.get(operand, 0) + (math.ceil(part * elements) if elements else 0)
                utilizations[operand] = count / elements if elements else 0.0
                emitted_roots[operand] = emitted_roots.get(operand, 0) + emitted
        for node in touched:
            self._settle(node, use_roots.setdefault(node, {}), sums)
        self.flops, self.constant_bytes = self._flops.value, self._constant_bytes.value

    def fits(self, above: Follower, place: Node) -> bool:
        """A producer that is evaluated and emitted once is used as on its own, unless it is in place only on its
        own."""
        return (
            isinstance(above, ClusterUsage)
            and self.utilization[place] == 1.0
            and self.emitted[place] == 1
            and above.root is not None
            and above.root.emitter is not XlaEmitter.IN_PLACE
        )

    def adopt(self, above: Follower, root: Node, place: Node, inputs: Mapping[Node, Node]) -> None:
        assert isinstance(above, ClusterUsage)
        below = self.use_roots[place]
        for part in above._flops.parts:
            self._flops.add(part)
        for part in above._constant_bytes.parts:
            self._constant_bytes.add(part)
        self.flops, self.constant_bytes = self._flops.value, self._constant_bytes.value
        self.code_size += above.code_size - 1
        sums: dict[int, tuple[float, int]] = {}
        for old, new in inputs.items():
            mine: dict[Node, None] = {}
            for user in above.use_roots[old]:
                if user is root:
                    mine.update(below)
                    continue
                mine[inputs.get(user, user)] = None
                if user is not old:
                    self.root_utilization[user], self._emitted[user] = (
                        above.root_utilization[user],
                        above._emitted[user],
                    )
            if old in above.use_roots[old]:
                elements = new.shape.element_count
                count = self._used[new] = self._used.get(new, 0) + above._used[old]
                self.root_utilization[new] = count / elements if elements else 0.0
                self._emitted[new] = self._emitted.get(new, 0) + above._emitted[old]
            self.code_size -= above.emitted[old]
            self.use_roots[new] = self.use_roots.get(new, {}) | mine
            self._own.add(new)
            self._settle(new, self.use_roots[new], sums)

    def _settle(self, node: Node, roots: dict[Node, None], sums: dict[int, tuple[float, int]]) -> tuple[float, int]:
        """Set how often a node is evaluated and emitted, once all its users are known. `sums` caches sums over shared
        sets."""
        totals = sums.get(id(roots))
        if totals is None:
            utilizations, emitted_roots = self.root_utilization, self._emitted
            if len(roots) == 1:
                (only,) = roots
                totals = utilizations[only], emitted_roots[only]
            else:
                totals = math.fsum([utilizations[r] for r in roots]), sum([emitted_roots[r] for r in roots])
            sums[id(roots)] = totals
        share, emitted = totals
        self.utilization[node] = share
        self.code_size += emitted - self.emitted.get(node, 0)
        self.emitted[node] = emitted
        return share, emitted


@dataclass(frozen=True, slots=True)
class Use:
    """Facts about an instruction, independent of its place. With `passes_on`, operands are read exactly where it is
    read."""

    accesses: Accesses
    passes_on: bool
    updates: bool
    constant_bytes: int


def use_of(instruction: Instruction, capability: int) -> Use:
    is_large = instruction.literal is not None and instruction.shape.element_count > IMMEDIATE_ELEMENTS
    return Use(
        accesses(instruction, capability),
        _passes_on(instruction),
        HEROES.get(instruction.opcode) is XlaEmitter.IN_PLACE,
        instruction.shape.byte_size if is_large else 0,
    )


def _passes_on(instruction: Instruction) -> bool:
    """Whether operands are read at the indices at which the instruction is read."""
    if is_view(instruction.opcode):
        operand, result = instruction.operands[0].shape, instruction.shape
        return operand.dimensions == result.dimensions and operand.minor_to_major == result.minor_to_major
    return (
        is_elementwise(instruction) or tuple_elements(instruction) is not None or tuple_index(instruction) is not None
    )


def plain_usage(cluster: Cluster, capability: int, known: dict[Instruction, Use]) -> Usage:
    """The usage of an instruction other than a fusion, from its own accesses; of a repeated operand, the first
    position."""
    root = cluster.roots[0]
    instruction = root.instruction
    own = known.get(instruction)
    if own is None:
        own = known[instruction] = use_of(instruction, capability)
    usage = Usage(own.accesses.flops, 1, own.accesses.written, root=root)
    usage.root_utilization[root] = 1.0
    usage.use_roots[root] = {root: None}
    usage.utilization[root] = 1.0
    usage.emitted[root] = 1
    for number, operand in enumerate(root.operands):
        if operand not in usage.utilization:
            usage.utilization[operand] = own.accesses.utilization[number]
            usage.emitted[operand] = 1
            usage.use_roots[operand] = {root if own.passes_on else operand: None}
            usage.root_utilization[operand] = usage.utilization[operand]
    return usage
