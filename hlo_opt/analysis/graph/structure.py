"""Structural numbers of instructions and kernels, ignoring names: equal numbers imply equal cost, plan and legality.

The signature of a plain instruction leaves out where its operands come from. A deep network, an unrolled loop or a
random generator repeats a few dozen signatures and structures thousands of times; facts that depend on them are
computed once.
"""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Iterable
from hashlib import blake2b

from hlo_opt.analysis.graph.cluster import Cluster, Node
from hlo_opt.analysis.graph.numbering import attribute_key, literal_key
from hlo_opt.ir import Called, Computation, Instruction
from hlo_opt.ir.walk import needed_first, operands_first
from hlo_opt.ops import OpKind, find


def signature(instruction: Instruction) -> Hashable:
    """Opcode, shape, attributes, and operands' opcodes and shapes; the instruction itself where it has a literal or
    calls."""
    spec = find(instruction.opcode)
    is_opaque = spec is not None and spec.kind is OpKind.OPAQUE
    is_leaf = instruction.literal is not None or instruction.parameter_number is not None
    if is_opaque or is_leaf or any(isinstance(value, Called) for value in instruction.attributes.values()):
        return instruction
    return (
        instruction.opcode,
        instruction.shape,
        attribute_key(instruction),
        tuple((o.opcode, o.shape) for o in instruction.operands),
    )


def edge_signature(producer: Instruction, consumer: Instruction, above: Hashable, below: Hashable) -> Hashable:
    """The key of the cost of fusing two instructions: their signatures and the operands they share."""
    numbers: dict[Instruction, int] = {producer: 0}
    return (
        above,
        below,
        tuple(numbers.setdefault(o, len(numbers)) for o in producer.operands),
        tuple(numbers.setdefault(o, len(numbers)) for o in consumer.operands),
    )


class Structures:
    """Numbers for equal structures, valid for all copies of a module."""

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}
        self._last = 0

    def number(self, key: Hashable) -> int:
        """The number of a key: equal for equal keys."""
        known = self._numbers.get(key)
        if known is None:
            known = self._numbers[key] = self.another()
        return known

    def another(self) -> int:
        """A unique number."""
        self._last += 1
        return self._last


class Members:
    """Numbers of single instructions, regardless of their operands."""

    def __init__(self, structures: Structures) -> None:
        self._structures = structures
        self._known: dict[Instruction, int] = {}
        self._called: dict[Computation, bytes] = {}

    def of(self, instruction: Instruction) -> int:
        """The number of opcode, shape, attributes, literal and called computations."""
        known = self._known.get(instruction)
        if known is None:
            called = self._new(instruction.called())
            for body in needed_first(called, lambda c: self._new(c.called)) if called else ():
                self._called[body] = self.of_body(body)
            known = self._known[instruction] = self._structures.number(self._key(instruction))
        return known

    def _key(self, instruction: Instruction) -> Hashable:
        called: tuple[Hashable, ...] = ()
        for name, value in instruction.attributes.items():
            if isinstance(value, Called):
                called = (*called, (name, *[self._called[c] for c in value.computations]))
        return (
            instruction.opcode,
            instruction.shape,
            attribute_key(instruction),
            called,
            instruction.parameter_number,
            literal_key(instruction.literal) if instruction.literal is not None else None,
        )

    def _new(self, called: Iterable[Computation]) -> list[Computation]:
        return [c for c in called if c not in self._called]

    def of_body(self, body: Computation) -> bytes:
        """A digest of a computation without names, in any order. Recomputed each time, as the computation may have
        grown."""
        places: dict[Instruction, int] = {}
        parts: list[int] = []
        for instruction in operands_first([body.root]):
            parts.append(self.of(instruction))
            parts.extend([places[o] for o in instruction.operands])
            parts.append(_END)
            places[instruction] = len(places)
        parts.append(places[body.root])
        return _digest(parts)

    def of_kernel(self, instruction: Instruction) -> Hashable:
        """The same for instructions that one kernel computes: what they are, their operands' shapes, which of these are
        the same value, and the values of constants. Recomputed each time."""
        operands = instruction.operands
        return (
            self.of(instruction),
            tuple([o.shape for o in operands]),
            shared_operands(operands, operands),
            tuple([self.of(o) if o.literal is not None else 0 for o in operands]),
        )

    def of_cluster(self, cluster: Cluster) -> bytes:
        """A digest of a cluster without names, in any order: equal for clusters that compute the same graph."""
        places: dict[Node, int] = {}
        parts: list[int] = []
        for node in operands_first(cluster.roots):
            if node.is_input:
                parts.append(self._structures.number(node.instruction.shape))
            else:
                parts.append(_END)
                parts.append(self.of(node.instruction))
                parts.extend([places[o] for o in node.operands])
            places[node] = len(places)
        parts.append(_END)
        parts.extend([places[r] for r in cluster.roots])
        return _digest(parts)


_END = -1


def _digest(parts: list[int]) -> bytes:
    return blake2b(array("q", parts).tobytes(), digest_size=16).digest()


def places_of(operands: Iterable[Instruction]) -> dict[Instruction, int]:
    """The position of each operand; the last one where it occurs several times."""
    return {operand: number for number, operand in enumerate(operands)}


def shared_operands(one: Iterable[Instruction], other: Iterable[Instruction]) -> tuple[int, ...]:
    """For each operand of one instruction, its position among those of another; -1 for none."""
    places = places_of(other)
    return tuple([places.get(operand, -1) for operand in one])
