"""What the horizontal passes share: the kernels that a common consumer reads, and joining some of them into one launch.

A candidate is read by its consumer and, besides, at most by the computation's result. That makes cycles impossible: one
candidate can only need another through the consumer. Source: xla/service/gpu/horizontal_loop_fusion.cc and
horizontal_input_fusion.cc, as they were before XLA dropped them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from hlo_opt.analysis.targets import DeviceTarget
from hlo_opt.diag import Reason
from hlo_opt.fusion.compatibility import Beside, PairCheck, structure, without_plan
from hlo_opt.fusion.engine import Engine
from hlo_opt.fusion.order import Order
from hlo_opt.fusion.outline import join, original_name
from hlo_opt.ir import Computation, Instruction
from hlo_opt.ir.walk import post_order
from hlo_opt.ops.sets import launches

POINTER_BYTES = 8


def operand_kernels(consumer: Instruction) -> list[Instruction]:
    """The kernels whose results the consumer reads, elements of tuples looked through, each once."""
    kernels: dict[Instruction, None] = {}
    for operand in consumer.operands:
        while operand.opcode == "get-tuple-element":
            operand = operand.operands[0]
        if launches(operand):
            kernels[operand] = None
    return list(kernels)


def other_users(instruction: Instruction, consumer: Instruction) -> Reason | None:
    """Whoever reads the candidate besides the consumer and the result of the computation."""
    stack = list(instruction.users)
    while stack:
        user = stack.pop()
        if user.opcode == "get-tuple-element" and not user.is_root:
            stack.extend(user.users)
        elif user is not consumer and not user.is_root:
            return Reason.of("FUS141", instruction=instruction.name, consumer=consumer.name, user=user.name)
    return None


def buffer_count(instruction: Instruction) -> int:
    """Operands and outputs: a pointer each among a kernel's arguments."""
    return len(set(instruction.operands)) + sum(1 for _ in instruction.shape.leaves())


def argument_room(target: DeviceTarget) -> int:
    """Bytes of a kernel's arguments on a device. CUDA C++ Programming Guide, "__global__ Function Parameters": 32,764
    since CUDA 12.1 (which devices before Hopper may lack), else 4 KB."""
    return 32_764 if target.compute_capability >= 90 else 4096


def size_of(engine: Engine, instruction: Instruction) -> int:
    """Instructions of a kernel, its operands counted as XLA counts a fusion's parameters."""
    cluster = engine.state.cluster(instruction)
    return 1 if instruction.opcode != "fusion" else len(cluster.nodes) + (len(cluster.roots) > 1)


def impossible(engine: Engine, first: Instruction, second: Instruction) -> Iterator[Reason]:
    """The reasons that keep two kernels from being one, side by side, whatever the options of the pass: what is
    illegal, what an earlier pass refused, and what a plugin's choice refuses."""
    pair = Beside(first, second, engine.state, engine.origins)
    yield from engine.legal(structure(pair))
    yield from engine.refused_before(pair)
    yield from engine.chosen(pair)


def is_forced(engine: Engine, first: Instruction, second: Instruction) -> bool:
    return bool(engine.forced) and engine.is_forced_pair(Beside(first, second, engine.state, engine.origins))


class Joiner:
    """Makes one kernel of several in a computation.

    While only kernels with a single reader are joined, none can need another. With that rule switched
    off the order of the computation is kept up, to see whether one does.
    """

    def __init__(self, engine: Engine, computation: Computation) -> None:
        self.engine = engine
        self.instructions = post_order(computation)
        careless = "FUS141" in engine.disabled
        self._order = Order(computation, self.instructions) if careless else None

    def connected(self, first: Instruction, second: Instruction) -> Iterator[Reason]:
        """Whether one needs the other."""
        if self._order is not None and self._order.connected(first, second):
            needed, user = sorted((first, second), key=self._order.place)
            origins = self.engine.origins
            names = original_name(needed, origins), original_name(user, origins)
            yield from self.engine.legal([Reason.of("FUS132", needed=names[0], user=names[1])])

    def join(self, host: Instruction, other: Instruction) -> Instruction | None:
        """The kernel of both; None when the limit of steps is reached."""
        if not self.engine.context.step():
            return None
        self.engine.context.keep_apart(self.engine.module)
        if self._order is not None:
            self._order.merge(other, host, host)
        fusion = join(self.engine, other, host)
        if self._order is not None:
            self._order.rename(host, fusion)
        return fusion

    def join_all(self, span: Iterable[Instruction], checks: tuple[PairCheck, ...] = ()) -> bool:
        """One kernel of a span's members, as far as plans and the step limit go; a member that `checks` keep from the
        kernel before it begins another. True when anything changed."""
        host: Instruction | None = None
        changed = False
        for instruction in span:
            if host is None:
                host = instruction
                continue
            if next(self.connected(host, instruction), None) is not None:
                continue
            pair = Beside(host, instruction, self.engine.state, self.engine.origins)
            if without_plan(pair) is not None or next(self.engine.forbidding(pair), None) is not None:
                continue
            is_asked = checks and not self.engine.is_forced_pair(pair)
            if is_asked and next(self.engine.against(checks, pair), None) is not None:
                host = instruction
                continue
            host = self.join(host, instruction)
            if host is None:
                return changed
            changed = True
        return changed


def consumers(computation: Computation, order: list[Instruction]) -> Iterator[Instruction]:
    """Instructions with several operands, from the end of the computation to its start. Those removed meanwhile are
    left out."""
    for instruction in reversed(order):
        if instruction.parent is computation and len(instruction.operands) > 1:
            yield instruction
