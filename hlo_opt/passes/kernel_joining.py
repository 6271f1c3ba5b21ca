"""The last question of a small module: two kernels of which one reads the other become one where that takes less time
by the price of the plan, whatever rule kept them apart.

Rules look at single values, and at what usually pays. What they leave is often a kernel with several results one of
which a short kernel reads: as one, it writes all of them and saves a launch. The joint kernel writes what others read,
or the producer stays and is computed again, whichever is cheaper (`hlo_opt.fusion.joining`, which `--force` uses, too).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

from hlo_opt.analysis.targets import InLanes
from hlo_opt.diag import ProofError, Reason
from hlo_opt.fusion.context import PassContext
from hlo_opt.fusion.engine import Engine
from hlo_opt.fusion.joining import Union, join, union_of
from hlo_opt.fusion.products import WORTH as WORTH_BESIDE_PRODUCT
from hlo_opt.fusion.products import is_beside_product
from hlo_opt.ir import Computation, Instruction, Module, edit
from hlo_opt.ir.walk import executed_computations, post_order
from hlo_opt.ops.sets import launches
from hlo_opt.passes.base import Pass

WORTH = 0.98
"""The most that the joint kernel may take, relative to both kernels."""


@dataclass(frozen=True)
class KernelJoining(Pass):
    """Join kernels with their readers where one kernel of both takes less time.

    max_kernels  computations that launch more kernels are left as they are: each pair has to be planned
    """

    name: ClassVar[str] = "kernel-joining"
    preserves: ClassVar[Literal["graph", "meaning"]] = "graph"

    max_kernels: int = 64

    def run(self, module: Module, context: PassContext) -> bool:
        changed = False
        for computation in list(executed_computations(module)):
            changed |= self._join_in(computation, module, context)
        if changed:
            edit.sort_computations(module)
        return changed

    def _join_in(self, computation: Computation, module: Module, context: PassContext) -> bool:
        """Join what pays in one computation, the first pair first."""
        if sum(map(launches, computation.instructions)) > self.max_kernels:
            return False
        changed, left = False, set[tuple[Instruction, Instruction]]()
        while True:
            engine = Engine(module, context, self.name)
            computation.index_users()
            union = next(_unions(computation, engine, left), None)
            if union is None or not context.step():
                return changed
            kernel = join(engine, union)
            if isinstance(kernel, Reason):
                names = f"{union.producer.name} and {union.consumer.name}"
                raise ProofError(f"{names} were planned as one kernel, but {kernel.message}")
            changed = True


def _unions(computation: Computation, engine: Engine, left: set[tuple[Instruction, Instruction]]) -> Iterator[Union]:
    """The pairs that pay, in order of the readers. Those that do not are added to `left`, and not tried again."""
    for consumer in post_order(computation):
        if not launches(consumer):
            continue
        for producer in dict.fromkeys(map(_kernel, consumer.operands)):
            if not launches(producer) or (producer, consumer) in left:
                continue
            union = _union(engine, producer, consumer)
            if union is not None:
                yield union
            left.add((producer, consumer))


def _kernel(value: Instruction) -> Instruction:
    """What computes a value: the value, or what it is an element or a bitcast of."""
    while value.operands and not launches(value):
        value = value.operands[0]
    return value


def _union(engine: Engine, producer: Instruction, consumer: Instruction) -> Union | None:
    edge = engine.edge(producer, consumer)
    if engine.is_separated(edge) or next(engine.chosen(edge), None) is not None:
        return None
    is_product = is_beside_product(edge)
    if is_product and isinstance(engine.context.options.target, InLanes):
        return None  # routines that know a processor's caches
    union = union_of(engine, producer, consumer)
    worth = WORTH_BESIDE_PRODUCT if is_product else WORTH
    if isinstance(union, Reason) or union.cost.us_fused > worth * union.cost.us_unfused:
        return None
    return union
