"""A hash of a module that ignores names, metadata, ids and order, but not operations, shapes, layouts, fusions,
constants or control dependencies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable
from hashlib import blake2b

from hlo_opt.analysis.graph.numbering import is_commutative
from hlo_opt.analysis.graph.spelling import config, constant_key, plain_attributes, sharding
from hlo_opt.ir import Called, Computation, Instruction, Module, Shape
from hlo_opt.ir.walk import needed_first

SIZE = 16
"""Bytes of a digest."""

HEADER = ("num_partitions", "replica_count", "input_output_alias", "buffer_donor")
"""Header attributes that change what runs."""


def header(module: Module, name: str) -> str:
    """A header attribute as written, without white space; "" for the default."""
    text = "".join(module.attributes[name].text.split()) if name in module.attributes else ""
    return "" if text in ("1", "{}") else text


def may_be_alike(one: Module, other: Module) -> bool:
    """Whether two modules may have one hash: their entries have equal counts of each opcode and shape. A cheap test
    that tells most modules apart."""
    return _results(one) == _results(other)


def _results(module: Module) -> Counter[tuple[str, Shape]]:
    counts = Counter[tuple[str, Shape]]()
    for (opcode, shape), count in Counter([(i.opcode, i.shape) for i in module.entry.instructions]).items():
        counts[opcode, shape.laid_out()] += count
    return counts


def module_digest(module: Module) -> str:
    """The hash of a module, in hexadecimal. Uncalled computations are ignored."""
    digests = _Digests()
    bodies: dict[Computation, bytes] = {}
    for computation in needed_first([module.entry], lambda c: list(dict.fromkeys(c.called))):
        bodies[computation] = digests.of(computation, bodies)
    said = [f"{name}={header(module, name)}".encode() for name in HEADER]
    return _digest((bodies[module.entry], *said)).hex()


class _Digests:
    def __init__(self) -> None:
        self._shapes: dict[Shape, str] = {}
        self._own: dict[tuple[object, ...], bytes] = {}
        self._commutes: dict[str, bool] = {}

    def of(self, computation: Computation, bodies: dict[Computation, bytes]) -> bytes:
        """The digest of a computation: its operations, each by what it computes and by its uses, and the root."""
        above: dict[Instruction, bytes] = {}
        own: dict[Instruction, bytes] = {}
        for instruction in computation.instructions:
            mine = own[instruction] = self._key(instruction, bodies)
            operand_digests = [above[o] for o in instruction.operands]
            if self._sorts(instruction):
                operand_digests.sort()
            above[instruction] = _digest((mine, *operand_digests))
        uses: dict[Instruction, list[bytes]] = {i: [] for i in computation.instructions}
        parts: list[bytes] = []
        for instruction in reversed(own):
            used_by = uses[instruction]
            used_by.sort()
            root = (b"root",) if instruction.is_root else ()
            below = _digest((own[instruction], b"to", *used_by, *root))
            sorts = self._sorts(instruction)
            for place, operand in enumerate(instruction.operands):
                uses[operand].append(below if sorts else below + str(place).encode())
            parts.append(above[instruction] + below)
            if instruction.control_predecessors:
                waits_for = sorted(above[p] for p in instruction.control_predecessors)
                parts.append(_digest((above[instruction], b"after", *waits_for)))
        parts.sort()
        thread = computation.attributes.get("execution_thread")
        return _digest((above[computation.root], *parts, *(() if thread is None else (thread.text.encode(),))))

    def _sorts(self, instruction: Instruction) -> bool:
        """Whether the order of operands is irrelevant."""
        opcode = instruction.opcode
        commutes = self._commutes.get(opcode)
        if commutes is None:
            commutes = self._commutes[opcode] = is_commutative(opcode)
        return commutes and len(instruction.operands) == 2

    def _key(self, instruction: Instruction, bodies: dict[Computation, bytes]) -> bytes:
        """The digest of an instruction without its operands."""
        shape = instruction.shape
        attributes = instruction.attributes
        called = sorted(
            (name, *[bodies[c] for c in value.computations])
            for name, value in attributes.items()
            if isinstance(value, Called)
        )
        literal = instruction.literal
        key: tuple[object, ...] = (
            instruction.opcode,
            shape,
            instruction.parameter_number,
            plain_attributes(instruction) if attributes else (),
            tuple(called),
            sharding(instruction) if "sharding" in attributes else "",
            config(instruction) if "backend_config" in attributes else "",
            None if literal is None else constant_key(literal),
        )
        own = self._own.get(key)
        if own is None:
            text = repr((*key[:1], self._shape(shape), *key[2:7], _plain(key[7])))
            own = self._own[key] = _digest((text.encode("utf-8", "surrogatepass"),))
        return own

    def _shape(self, shape: Shape) -> str:
        text = self._shapes.get(shape)
        if text is None:
            text = self._shapes[shape] = str(shape.laid_out())
        return text


def _plain(key: Hashable) -> Hashable:
    """A constant's key in a form that is equal across processes."""
    if isinstance(key, tuple):
        return tuple(_plain(part) for part in key)
    return key if isinstance(key, str | bytes) or key is None else str(key)


def _digest(parts: Iterable[bytes]) -> bytes:
    data = b"".join([len(part).to_bytes(4, "little") + part for part in parts])
    return blake2b(data, digest_size=SIZE).digest()
