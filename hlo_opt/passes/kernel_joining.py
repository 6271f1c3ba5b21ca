"""The last question: two kernels of which one reads the other become one where that takes less time by the price of the
plan, whatever rule kept them apart.

Rules look at single values, and at what usually pays. What they leave is often a kernel with several results one of
which a short kernel reads: as one, it writes all of them and saves a launch. The joint kernel writes what others read,
or a small producer stays and is computed again, whichever is cheaper (`hlo_opt.fusion.joining`, which `--force` uses,
too). Two kernels that read the same large values, but fold them in ways that no rule joins, read them once. Each pair
that differs has to be planned, so that of large computations only those are tried that may save most.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable, Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

from hlo_opt.analysis.targets import InLanes
from hlo_opt.diag import ProofError, Reason
from hlo_opt.fusion.context import PassContext
from hlo_opt.fusion.decision import CostEstimate
from hlo_opt.fusion.engine import Engine
from hlo_opt.fusion.joining import Union, join, likeness_of, union_beside, union_of
from hlo_opt.fusion.legality import Edge
from hlo_opt.fusion.outline import HANDS_ON
from hlo_opt.fusion.products import WORTH as WORTH_BESIDE_PRODUCT
from hlo_opt.fusion.products import breaks_product, has_long_product, is_beside_product, is_product_kernel
from hlo_opt.ir import Computation, Instruction, Module, edit
from hlo_opt.ir.walk import executed_computations, post_order
from hlo_opt.ops.sets import launches
from hlo_opt.passes.base import Pass
from hlo_opt.plans.sketch import Sketch

WORTH = 0.98
"""The most that the joint kernel may take, relative to both kernels."""
CLOSE = 1.01
"""The same where the joint kernel moves at most `FEW` of their bytes: prices are not known better than that, and it
leaves memory for a value, and the caches, to others."""
FEW = 0.5

COMMON = 0.25
"""The least share of the bytes of two kernels that both read, for kernels that do not read each other."""

ProducerAndConsumer = tuple[Instruction, Instruction]
"""A producer and its consumer."""


@dataclass(frozen=True)
class KernelJoining(Pass):
    """Join kernels with their readers, and with kernels that read the same, where one kernel of both takes less time.

    max_kernels  the most kernels of a computation of which all pairs are tried: each different pair needs a plan
    max_plans    in a larger computation, the most different pairs that are tried: those that may save most
    """

    name: ClassVar[str] = "kernel-joining"
    preserves: ClassVar[Literal["graph", "meaning"]] = "graph"
    keeps_memory: ClassVar[bool] = True

    max_kernels: int = 64
    max_plans: int = 64

    def run(self, module: Module, context: PassContext) -> bool:
        changed = False
        for computation in list(executed_computations(module)):
            changed |= self._join_in(computation, module, context)
        if changed:
            context.memory.distinct.clear()
            edit.sort_computations(module)
        return changed

    def _join_in(self, computation: Computation, module: Module, context: PassContext) -> bool:
        """Join what pays in one computation, the first pair first."""
        computation.index_users()
        is_small = sum(map(launches, computation.instructions)) <= self.max_kernels
        tried = None if is_small else _Tried.of(computation, Engine(module, context), self.max_plans)
        changed, left = False, set[ProducerAndConsumer]()
        orphans: list[Computation] = []
        while True:
            engine = Engine(module, context, self.name)
            engine.orphans = orphans
            union = next(_unions(computation, engine, left, tried), None)
            if union is None or not context.step():
                engine.drop_orphans()
                return changed
            kernel = join(engine, union)
            if isinstance(kernel, Reason):
                names = f"{union.producer.name} and {union.consumer.name}"
                raise ProofError(f"{names} were planned as one kernel, but {kernel.message}")
            changed = True
            if tried is not None:
                tried.known.clear()


@dataclass
class _Tried:
    """The pairs of a large computation that are tried: those with one of the likenesses. `known` are the likenesses of
    pairs since kernels were last joined."""

    likenesses: set[Hashable]
    known: dict[ProducerAndConsumer, Hashable]

    @classmethod
    def of(cls, computation: Computation, engine: Engine, most: int) -> _Tried:
        """The pairs with most at stake, those that are alike together; of equal ones the first."""
        stakes: dict[Hashable, float] = {}
        known = {pair: likeness_of(engine, *pair) for pair in _pairs(computation)}
        for pair, likeness in known.items():
            if likeness is not None:
                stakes[likeness] = stakes.get(likeness, 0.0) + _stake(engine, *pair)
        return cls(set(sorted(stakes, key=lambda likeness: -stakes[likeness])[:most]), known)

    def holds(self, engine: Engine, pair: ProducerAndConsumer) -> bool:
        """Whether a pair is tried."""
        if pair not in self.known:
            self.known[pair] = likeness_of(engine, *pair)
        return self.known[pair] in self.likenesses


def _stake(engine: Engine, producer: Instruction, consumer: Instruction) -> float:
    """Microseconds that one kernel may save, about: a launch, and the way of a value through memory."""
    prices, target = engine.state.prices, engine.state.target
    handed = min(prices.of(producer).written, prices.of(consumer).read)
    return target.kernel_launch_us + handed / target.memory_bandwidth * 1e6


def _unions(
    computation: Computation, engine: Engine, left: set[ProducerAndConsumer], tried: _Tried | None
) -> Iterator[Union]:
    """The pairs that pay, only those that are tried if that is given; else also those that read the same values, and
    these first. The others are added to `left`, and not looked at again."""
    if tried is None:
        for pair in _neighbours(computation, engine, left):
            union = _union_beside(engine, *pair)
            if union is not None:
                yield union
            left.add(pair)
    for pair in _pairs(computation):
        if pair in left:
            continue
        if tried is None or tried.holds(engine, pair):
            union = _union(engine, *pair)
            if union is not None:
                yield union
        left.add(pair)


def _pairs(computation: Computation) -> Iterator[ProducerAndConsumer]:
    """The kernels of which one reads the other, in order of the readers."""
    for consumer in post_order(computation):
        if launches(consumer):
            for producer in dict.fromkeys(map(_kernel, consumer.operands)):
                if launches(producer):
                    yield producer, consumer


def _neighbours(
    computation: Computation, engine: Engine, left: Container[ProducerAndConsumer]
) -> Iterator[ProducerAndConsumer]:
    """The kernels of which much is what both read, but those `left`, in order of the later ones, which stand first: so
    no pair is one of a producer and its consumer."""
    price_of = engine.state.prices.of
    earlier: dict[Instruction, list[int]] = {}
    kernels: list[Instruction] = []
    for second in post_order(computation):
        if not launches(second):
            continue
        read: dict[int, int] = {}
        for operand in dict.fromkeys(second.operands):
            if operand.shape.is_array:
                for number in earlier.get(operand, ()):
                    read[number] = read.get(number, 0) + operand.shape.byte_size
                earlier.setdefault(operand, []).append(len(kernels))
        for number in sorted(read):
            first = kernels[number]
            if (second, first) not in left and read[number] >= COMMON * (
                price_of(first).bytes + price_of(second).bytes
            ):
                yield second, first
        kernels.append(second)


def _kernel(value: Instruction) -> Instruction:
    """What computes a value: the value, or what it is an element or a bitcast of. An element of a tuple that the
    program builds is none: the tuple's first operand need not be that element."""
    while value.opcode in HANDS_ON and not launches(value):
        value = value.operands[0]
    return value


def _union_beside(engine: Engine, later: Instruction, first: Instruction) -> Union | None:
    if engine.is_separated(engine.edge(first, later)):
        return None
    union = union_beside(engine, first, later)
    return None if isinstance(union, Reason) or not pays(union.cost, WORTH) else union


def _union(engine: Engine, producer: Instruction, consumer: Instruction) -> Union | None:
    edge = engine.edge(producer, consumer)
    if engine.is_separated(edge) or next(engine.chosen(edge), None) is not None:
        return None
    is_product = is_beside_product(edge)
    if is_product and isinstance(engine.context.options.target, InLanes):
        return None  # routines that know a processor's caches
    if breaks_product(edge):
        return None
    # computing again what takes long does not pay, and most plans would be for that
    may_copy = engine.state.prices.of(producer).is_small
    union = union_of(engine, producer, consumer, may_copy=may_copy, loses=_losing(edge))
    worth = WORTH_BESIDE_PRODUCT if is_product else WORTH
    return None if isinstance(union, Reason) or not pays(union.cost, worth) else union


def pays(cost: CostEstimate, worth: float) -> bool:
    """Whether the joint kernel takes at most `worth` of the time of both, or as long and moves far less."""
    if cost.bytes_unfused > 0 and cost.bytes_fused <= FEW * cost.bytes_unfused:
        worth = max(worth, CLOSE)
    return cost.us_fused <= worth * cost.us_unfused


def _losing(edge: Edge) -> Callable[[Sketch], bool] | None:
    """Whether a joint kernel is dearer than both for certain, asked before it is priced: single threads add up a long
    product whose terms those of a block shared before. None where no side is one."""
    if not any(has_long_product(edge.state, end) for end in (edge.producer, edge.consumer)):
        return None
    return lambda sketch: not is_product_kernel(sketch)
