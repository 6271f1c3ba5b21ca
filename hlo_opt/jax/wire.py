"""A serialized HloModuleProto, parsed only as far as needed to replace instructions by calls. All else stays as bytes.

Constants are therefore never printed as text, and the rest of the module is exactly XLA's. Field numbers are those of
xla/service/hlo.proto.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hlo_opt.forms.wire import fields, numbers, of_bytes, of_number, packed, varint

NAME = 1  # of a module, a computation and an instruction alike

COMPUTATIONS, MODULE_NUMBER, ENTRY, SCHEDULE, STACK_FRAMES = 3, 5, 6, 7, 17
ALIASES, DONORS = 8, 18

SEQUENCES, KEY, VALUE, SCHEDULED = 1, 1, 2, 1  # of a schedule, of a sequence in it, and of that sequence's message

OPCODE = 2  # of an instruction

INSTRUCTIONS, COMPUTATION_NUMBER, ROOT = 2, 5, 6

METADATA, NUMBER, OPERANDS, WAITS, CALLED = 7, 35, 36, 37, 38

_LOCAL = 32  # bits of a number that count the instructions of one computation


@dataclass(slots=True)
class WireInstruction:
    """An instruction: its name, number, operands, control predecessors and callees, and the bytes of all else."""

    name: str = ""
    number: int = 0
    operands: list[int] = field(default_factory=list)
    waits: list[int] = field(default_factory=list)
    called: list[int] = field(default_factory=list)
    metadata: bytes = b""
    rest: bytes = b""

    @classmethod
    def of(cls, message: bytes) -> WireInstruction:
        """Parses a message. Raises ValueError if it is damaged."""
        node, rest = cls(), []
        for f in fields(message):
            match f.number:
                case 1:
                    node.name = f.data.decode()
                case 7:
                    node.metadata = f.raw
                case 35:
                    node.number = f.value
                case 36:
                    node.operands += numbers(f)
                case 37:
                    node.waits += numbers(f)
                case 38:
                    node.called += numbers(f)
                case _:
                    rest.append(f.raw)
        node.rest = b"".join(rest)
        return node

    @property
    def is_view(self) -> bool:
        """Whether the instruction only names memory of its operands."""
        from hlo_opt.ops.sets import is_free  # takes as long to import as all else here

        return not self.called and any(f.number == OPCODE and is_free(f.data.decode()) for f in fields(self.rest))

    def message(self) -> bytes:
        """The bytes of the instruction."""
        return b"".join(
            [
                of_bytes(NAME, self.name.encode()),
                self.rest,
                self.metadata,
                of_number(NUMBER, self.number),
                packed(OPERANDS, self.operands),
                packed(WAITS, self.waits),
                packed(CALLED, self.called),
            ]
        )


class Body:
    """A computation; its instructions are parsed at the first use."""

    def __init__(self, message: bytes) -> None:
        """Raises ValueError if the message is damaged."""
        self.name = ""
        self.number = self.root = 0
        self.raw = message
        self._messages: list[bytes] = []
        self._nodes: list[WireInstruction] | None = None
        self._called: set[int] | None = None
        rest = []
        for f in fields(message):
            match f.number:
                case 1:
                    self.name = f.data.decode()
                case 2:
                    self._messages.append(f.data)
                case 5:
                    self.number = f.value
                case 6:
                    self.root = f.value
                case _:
                    rest.append(f.raw)
        self._rest = b"".join(rest)

    @property
    def size(self) -> int:
        """The number of instructions."""
        return len(self._messages if self._nodes is None else self._nodes)

    @property
    def nodes(self) -> list[WireInstruction]:
        """Its instructions."""
        if self._nodes is None:
            self._nodes = [WireInstruction.of(message) for message in self._messages]
        return self._nodes

    @nodes.setter
    def nodes(self, nodes: list[WireInstruction]) -> None:
        self._nodes = nodes

    def called(self) -> set[int]:
        """The numbers of the computations that its instructions call. Does not parse the instructions."""
        if self._nodes is not None:
            return {c for node in self._nodes for c in node.called}
        if self._called is None:
            calls = (f for message in self._messages for f in fields(message) if f.number == CALLED)
            self._called = {c for f in calls for c in numbers(f)}
        return self._called

    def message(self) -> bytes:
        """The bytes of the computation."""
        if self._nodes is None:
            return self.raw
        nodes = [of_bytes(INSTRUCTIONS, node.message()) for node in self._nodes]
        numbers = of_number(COMPUTATION_NUMBER, self.number) + of_number(ROOT, self.root)
        return b"".join([of_bytes(NAME, self.name.encode()), *nodes, self._rest, numbers])


@dataclass(frozen=True)
class Replacement:
    """A call that replaces instructions of a computation, all by name.

    gone     the replaced instructions; others read only those that are `outputs`
    inputs   the call's operands
    outputs  the instructions that the call's result, or the elements of its tuple, replace
    text     a module whose entry has the call, with a parameter per operand, and a `get-tuple-element` per output
    key      the key of the kernels that it runs
    """

    computation: str
    gone: tuple[str, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    text: str
    key: str


class ModuleBytes:
    """A module's message."""

    def __init__(self, message: bytes) -> None:
        """Raises ValueError if the message is damaged."""
        self.name = ""
        self.bodies: list[Body] = []
        self.donates = False
        """Whether the module donates inputs."""
        self.is_reordered = False
        """Whether a replacement has moved other instructions of a schedule than those that only name memory."""
        self._entry = 0
        self._rest: list[bytes] = []
        self._schedule: dict[int, list[int]] | None = None
        """The order of the instructions of each computation, by numbers, if XLA has scheduled the module."""
        for f in fields(message):
            if f.number == ENTRY:
                self._entry = f.value
            if f.number == COMPUTATIONS:
                self.bodies.append(Body(f.data))
                continue
            if f.number == SCHEDULE:
                self._schedule = _sequences(f.data)
                continue
            if f.number == NAME:
                self.name = f.data.decode()
            self.donates |= f.number in (ALIASES, DONORS) and bool(f.data)
            self._rest.append(f.raw)

    @property
    def entry_name(self) -> str:
        """The name of the entry computation; empty if there is none."""
        return next((body.name for body in self.bodies if body.number == self._entry), "")

    @property
    def stack_frames(self) -> bytes:
        """The tables of stack frames; empty if there are none."""
        return b"".join(f.data for raw in self._rest for f in fields(raw) if f.number == STACK_FRAMES)

    def fingerprint(self) -> str:
        """A hash of the module without its number, its stack frames and its schedule."""
        digest = hashlib.sha256()
        for raw in self._rest:
            if varint(raw, 0)[0] >> 3 not in (MODULE_NUMBER, STACK_FRAMES):
                digest.update(raw)
        for body in self.bodies:
            digest.update(body.raw)
        return digest.hexdigest()

    def replace(self, change: Replacement, call: Sequence[WireInstruction]) -> None:
        """Replaces instructions by a call. `call` are the call and its `get-tuple-element`s in the module of
        `Replacement.text`.

        Raises KeyError for an unknown name.
        """
        body = {b.name: b for b in self.bodies}[change.computation]
        nodes = {n.name: n for n in body.nodes}
        inputs = [nodes[name].number for name in change.inputs]
        outputs = [nodes[name].number for name in change.outputs]
        gone = {nodes[name].number for name in change.gone}
        first, *elements = call
        free = 1 + max(n.number & ((1 << _LOCAL) - 1) for n in body.nodes)
        first.number = outputs[0] if not elements else body.number << _LOCAL | free
        first.operands = inputs
        first.name = _free_name(f"hlo_opt.{change.outputs[0]}", nodes)
        first.metadata = nodes[change.gone[-1]].metadata
        for element, number, name in zip(elements, outputs, change.outputs, strict=False):
            element.number, element.operands, element.name = number, [first.number], name
        kept = [n for n in body.nodes if n.number not in gone]
        if self._schedule is not None:
            place = {number: k for k, number in enumerate(self._schedule[body.number])}
            kept.sort(key=lambda n: place[n.number])
        body.nodes = _in_order([*kept, *call])
        reading = {n.number for n in kept if n.operands and not n.is_view}
        before, after = ([n.number for n in nodes if n.number in reading] for nodes in (kept, body.nodes))
        self.is_reordered |= self._schedule is not None and before != after
        if self._schedule is not None:
            self._schedule[body.number] = [n.number for n in body.nodes]
        self._drop()

    def _drop(self) -> None:
        """Removes computations without a caller. Only reachable ones are parsed: a replaced loop may have had thousands
        of instructions."""
        by_number = {b.number: b for b in self.bodies}
        alive, todo = {self._entry}, [self._entry]
        while todo:
            called = by_number[todo.pop()].called() - alive
            alive |= called
            todo += called
        self.bodies = [b for b in self.bodies if b.number in alive]

    def message(self) -> bytes:
        """The bytes of the module."""
        computations = [of_bytes(COMPUTATIONS, body.message()) for body in self.bodies]
        if self._schedule is None:
            return b"".join([*self._rest, *computations])
        left = {body.number for body in self.bodies}
        sequences = [_sequence(key, order) for key, order in self._schedule.items() if key in left]
        return b"".join([*self._rest, *computations, of_bytes(SCHEDULE, b"".join(sequences))])


def _sequences(message: bytes) -> dict[int, list[int]]:
    """The sequences of a schedule, by the number of their computation. Raises ValueError if it is damaged."""
    result: dict[int, list[int]] = {}
    for entry in fields(message):
        key, order = 0, []
        for f in fields(entry.data):
            if f.number == KEY:
                key = f.value
            else:
                order = [number for each in fields(f.data) for number in numbers(each)]
        result[key] = order
    return result


def _sequence(key: int, order: Sequence[int]) -> bytes:
    return of_bytes(SEQUENCES, of_number(KEY, key) + of_bytes(VALUE, packed(SCHEDULED, order)))


def _free_name(base: str, names: Mapping[str, WireInstruction]) -> str:
    count, name = 0, base
    while name in names:
        count += 1
        name = f"{base}.{count}"
    return name


def _in_order(nodes: Sequence[WireInstruction]) -> list[WireInstruction]:
    """The nodes with operands and control predecessors first, otherwise in their order."""
    by_number = {n.number: n for n in nodes}
    done: dict[int, WireInstruction] = {}
    for start in nodes:
        stack = [start]
        while stack:
            node = stack[-1]
            missing = [o for o in (*node.operands, *node.waits) if o not in done and o in by_number]
            if node.number in done or not missing:
                done.setdefault(stack.pop().number, node)
            else:
                stack += [by_number[o] for o in reversed(missing)]
    return list(done.values())
