"""Edges between the kernels of a module, by the names of both ends; and the same edges before kernels that do not read
each other were joined."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from hlo_opt.analysis.properties import inside
from hlo_opt.fusion.context import PassContext
from hlo_opt.fusion.engine import Engine, reader_names, written_by
from hlo_opt.fusion.legality import Edge
from hlo_opt.fusion.outline import HANDS_ON, Origins, computed, original_name
from hlo_opt.ir import Computation, Instruction
from hlo_opt.ir.walk import executed_computations
from hlo_opt.ops.sets import launches, tuple_elements, tuple_index


@dataclass(frozen=True)
class EdgeLeft:
    """A kernel that reads another one.

    edge     both kernels
    through  the consumer and the operand by which it reads the producer: an element of it, or a bitcast
    written  what computes the value: of a kernel with several outputs the member behind the element
    reader   the first member of the consumer that reads it, by its name in the input; empty when none does
    """

    edge: Edge
    through: Edge
    written: Instruction
    reader: str

    @property
    def names(self) -> tuple[str, str]:
        """Both ends, by their names in the input."""
        return original_name(self.written, self.edge.origins), self.reader or self.edge.consumer_name


def edges_into(consumer: Instruction, engine: Engine) -> Iterator[EdgeLeft]:
    """The edges of a kernel from others of its computation, each pair of names once."""
    seen: set[tuple[str, str]] = set()
    for operand in dict.fromkeys(consumer.operands):
        producer = operand
        while producer.opcode in HANDS_ON and producer.operands:
            producer = producer.operands[0]
        if not launches(producer):
            continue
        through = engine.edge(operand, consumer)
        reader = next(iter(reader_names(through)), "")
        left = EdgeLeft(engine.edge(producer, consumer), through, _written(producer, operand), reader)
        if left.names not in seen:  # else two elements of one operation's result
            seen.add(left.names)
            yield left


def _written(producer: Instruction, operand: Instruction) -> Instruction:
    """The instruction that computes an operand: of a kernel with several outputs, the member behind the element that
    the operand takes."""
    body = inside(producer)
    if body is None:
        return producer
    while tuple_index(operand) is None and operand is not producer and operand.operands:
        operand = operand.operands[0]
    number, outputs = tuple_index(operand), tuple_elements(body.root)
    if outputs is None and tuple_index(body.root) is not None:
        return computed(body.root)
    if outputs is None or number is None or operand.operands[0] is not producer:
        return producer
    return computed(outputs[number])


class BeforeJoining:
    """The kernels of a run before kernels that do not read each other were joined, and the kernels that they became."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._edges: dict[Computation, dict[tuple[str, str], list[EdgeLeft]]] = {}
        self._then: dict[Computation, Computation | None] = {}

    @classmethod
    def of(cls, context: PassContext) -> BeforeJoining | None:
        """The earlier kernels of a run; None where nothing was joined."""
        before, apart = context.apart, context.as_apart()
        return None if before is None or apart is None else cls(Engine(before.module, apart))

    @cached_property
    def _computations(self) -> dict[str, Computation]:
        return {c.name: c for c in executed_computations(self.engine.module)}

    def computation(self, now: Computation) -> Computation | None:
        """The earlier form of a computation; None where the same kernels are in it now. Computed once: nothing changes
        any more."""
        if now not in self._then:
            before = self._computations.get(now.name)
            if before is not None:
                names = [{i.name for i in c.instructions if launches(i)} for c in (before, now)]
                before = None if names[0] == names[1] else before
            self._then[now] = before
        return self._then[now]

    def edge(self, computation: Computation, now: EdgeLeft) -> EdgeLeft | None:
        """The earlier form of an edge. Several edges may have its names, for a value may be computed in several
        kernels: it is the one between kernels that wrote what those of now write. None where there was none."""
        if computation not in self._edges:
            by_names = self._edges[computation] = {}
            for kernel in computation.instructions:
                if launches(kernel):
                    for left in edges_into(kernel, self.engine):
                        by_names.setdefault(left.names, []).append(left)
        ends = [written_by(kernel, now.edge.origins) for kernel in (now.edge.producer, now.edge.consumer)]
        for left in self._edges[computation].get(now.names, ()):
            were = [written_by(kernel, left.edge.origins) for kernel in (left.edge.producer, left.edge.consumer)]
            if not any(one.isdisjoint(other) for one, other in zip(ends, were, strict=True)):
                return left
        return None


def kernels_by_output(computation: Computation, origins: Origins) -> dict[str, Instruction]:
    """The kernels of a computation by their outputs."""
    kernels = [i for i in computation.instructions if launches(i)]
    return {name: kernel for kernel in kernels for name in written_by(kernel, origins)}
