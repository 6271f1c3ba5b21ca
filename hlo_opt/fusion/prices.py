"""What kernels take as we launch them: those that are there, and those that two of them would become. Read from their
plans (`Sketch`), each structure planned once; what has no plan is priced as what runs it. Every price that a user sees,
and that anything but an `xla-*` preset decides by, comes from here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from hlo_opt.analysis.graph.cluster import Cluster, merge_clusters, merge_elements
from hlo_opt.diag import Reason
from hlo_opt.fusion.caches import Cache
from hlo_opt.ir import Instruction
from hlo_opt.ops.calls.call import call_of
from hlo_opt.ops.sets import fused, is_product, launches
from hlo_opt.ops.spec import find
from hlo_opt.plans import lowering_reason, region_of
from hlo_opt.plans.calls import price_of_call
from hlo_opt.plans.choose import is_left_to_library, separate_plans
from hlo_opt.plans.price import FREE, Price, one_after_another, price
from hlo_opt.plans.sketch import Sketch

if TYPE_CHECKING:
    from hlo_opt.fusion.state import FusionState


LEFT_TO_LIBRARY: Cache[bool] = Cache(lambda _, instruction: is_left_to_library(instruction))

ReadPaths = Mapping[Instruction, Sequence[Instruction]]
"""The ways on which a consumer reads a producer: of each operand, what hands the value on."""


class Prices:
    """The prices of the kernels of a module."""

    def __init__(self, plans: FusionState) -> None:
        """`plans` plans kernels and knows which differ in names only."""
        self._plans = plans

    def of(self, instruction: Instruction) -> Price:
        """The price of an instruction as it is launched or called; zero for one that launches no work."""
        if not launches(instruction):
            return FREE
        plans = self._plans
        number = plans.structure(instruction)
        known = plans.known.prices.get(number)
        if known is None:
            known = plans.known.prices[number] = self._alone(instruction, number)
        return known

    def _alone(self, instruction: Instruction, number: int) -> Price:
        plans = self._plans
        if self._is_left(instruction):
            return price_of_call(instruction, plans.target)
        spec = find(instruction.opcode)
        is_planned = spec is not None and (spec.own_kernel or spec.is_planned)
        if is_planned or plans.lowering(instruction) is None:
            sketch = plans.sketch(number, lambda: plans.cluster(instruction))
            if isinstance(sketch, Sketch):
                return sketch.price
        body = fused(instruction)
        if body is not None:
            if call_of(instruction) is None:  # its operations, one after another
                return one_after_another([self.of(member) for member in body.instructions if launches(member)])
        elif lowering_reason(instruction) is None:
            separate = separate_plans(region_of(plans.module, instruction), plans.target)
            if not isinstance(separate, Reason):
                return one_after_another([price(plan, plans.target) for plan in separate])
        return price_of_call(instruction, plans.target)

    def planned(self, kernel: Instruction) -> Sketch | Reason:
        """What the plan of a kernel would be, which need not be in the module, or the reason why it has none. Kernels
        of one structure are planned once. What is known of the kernel itself is forgotten: it may have changed."""
        plans = self._plans
        plans.forget(kernel)
        refusal = plans.lowering(kernel)
        return plans.sketch(plans.structure(kernel), lambda: plans.cluster(kernel)) if refusal is None else refusal

    def apart(self, producer: Instruction, consumer: Instruction) -> float:
        """Microseconds of both, launched one after the other."""
        return self.of(producer).us + self.of(consumer).us

    def takes_longer(self, producer: Instruction, consumer: Instruction, us: float, *, strictly: bool = False) -> bool:
        """Whether `apart` is at least `us`, or more (`strictly`). A kernel takes its launch at least, so that often not
        both have to be priced."""
        first = self.of(producer).us
        least = first + (self._plans.target.kernel_launch_us if launches(consumer) else 0.0)
        if us < least:
            return True
        apart = first + self.of(consumer).us
        return us < apart if strictly else us <= apart

    def joined(self, producer: Instruction, consumer: Instruction) -> Price | Reason:
        """The price of a consumer that computes a producer in its own kernel; or the reason why there is no such
        kernel."""
        return _price_of(self.sketch_joined(producer, consumer))

    def with_producer(self, producer: Instruction, consumer: Instruction) -> Price | Reason:
        """As `joined`, for a kernel that writes the producer's value, too."""
        return _price_of(self.sketch_with_producer(producer, consumer))

    def beside(self, one: Instruction, other: Instruction) -> Price | Reason:
        """The price of two instructions that do not read each other as one kernel."""
        return _price_of(self.sketch_beside(one, other))

    def through(
        self, producer: Instruction, consumer: Instruction, ways: ReadPaths, written: Sequence[Instruction]
    ) -> Price | Reason:
        """The price of a consumer that reads a producer by `ways`, which `sketch_through` explains."""
        return _price_of(self.sketch_through(producer, consumer, ways, written))

    def sketch_joined(self, producer: Instruction, consumer: Instruction) -> Sketch | Reason:
        """The kernel of `joined`, without its price."""
        state = self._plans
        left = [i for i in (producer, consumer) if self._is_left(i)]
        return self._one_kernel(
            (producer, consumer),
            lambda: state.structure_of_both(producer, consumer),
            lambda: merge_clusters(state.cluster(producer), state.cluster(consumer), producer),
            beside_product=len(left) == 1 and is_product(left[0]),
        )

    def sketch_with_producer(self, producer: Instruction, consumer: Instruction) -> Sketch | Reason:
        """The kernel of `with_producer`, without its price."""
        state = self._plans
        return self._one_kernel(
            (producer, consumer),
            lambda: state.structure_with_producer(producer, consumer),
            lambda: merge_clusters(state.cluster(producer), state.cluster(consumer), producer, keep_producer=True),
        )

    def sketch_beside(self, one: Instruction, other: Instruction) -> Sketch | Reason:
        """The kernel of `beside`, without its price."""
        return self.refusal(one) or self.refusal(other) or self._plans.sketch_beside(one, other)

    def sketch_through(
        self, producer: Instruction, consumer: Instruction, ways: ReadPaths, written: Sequence[Instruction]
    ) -> Sketch | Reason:
        """The sketch of a consumer that reads a producer by `ways`: for each such operand the element of a tuple and
        the bitcasts through which it reads, from the producer on. `written` are the elements of the producer that
        others read, or the producer."""
        state = self._plans
        refusal = self.refusal(producer) or self.refusal(consumer)
        if refusal is not None:
            return refusal
        return state.sketch(
            state.structure_through(producer, consumer, ways, written),
            lambda: merge_elements(state.cluster(producer), state.cluster(consumer), ways, written),
        )

    def refusal(self, instruction: Instruction) -> Reason | None:
        """Why no kernel can hold an instruction together with another."""
        if self._is_left(instruction):
            spec = find(instruction.opcode)
            return Reason.of("FUS302", opcode=instruction.opcode, runs_as="" if spec is None else spec.runs_as)
        return self._plans.lowering(instruction)

    def _is_left(self, instruction: Instruction) -> bool:
        return self._plans.caches.of(LEFT_TO_LIBRARY, instruction)

    def _one_kernel(
        self,
        parts: tuple[Instruction, Instruction],
        number: Callable[[], int],
        cluster: Callable[[], Cluster],
        *,
        beside_product: bool = False,
    ) -> Sketch | Reason:
        """A kernel takes a product in that a library runs (`beside_product`), where it computes nothing like it
        besides."""
        state = self._plans
        for part in parts:
            refusal = state.lowering(part) if beside_product else self.refusal(part)
            if refusal is not None:
                return refusal
        return state.sketch(number(), cluster)


def _price_of(sketch: Sketch | Reason) -> Price | Reason:
    return sketch if isinstance(sketch, Reason) else sketch.price
