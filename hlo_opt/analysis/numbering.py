"""Value numbering: two values get the same number exactly when the same operations on the same parameters make them.

Fusions and calls are looked through, tuples are taken apart, commutative operands are sorted, and a concatenate of concatenates along the same
dimension counts as one. Modules numbered with one shared table compare by number. Layouts count only where bytes are read as they lie: bitcast,
custom-call, and what has side effects.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Generic, TypeVar

from hlo_opt.analysis.facts import has_side_effect
from hlo_opt.diag import VerifyError
from hlo_opt.ir import Attribute, Called, Computation, Instruction, Literal, Module, Shape
from hlo_opt.ops import find

Value = int | tuple["Value", ...]
"""The number of an array (or token), or the numbers of a tuple's elements."""

WORK_LIMIT = 20_000_000
"""Instructions that numbering may visit: calls nested n deep, each twice, are 2^n."""

IGNORED = frozenset(
    {"metadata", "frontend_attributes", "sharding", "origin", "statistics", "control-predecessors", "backend_config"}
)
"""Attributes that do not change a value. A custom-call's backend config does."""

_SMALL_LITERAL = 1024


class _Role(Enum):
    """What an opcode says about the number of an instruction's value."""

    PLAIN = auto()
    """It goes by shape, attributes and operands, and by what is called."""
    COMMUTATIVE = auto()
    """The same, with two operands in any order."""
    CONSTANT = auto()
    """Plain, and the literal counts, too."""
    BITCAST = auto()
    """Plain, and it counts how the bytes lie in memory."""
    OPAQUE = auto()
    """So it does here, and something may happen besides."""
    ELSEWHERE = auto()
    """The value is made elsewhere: it is looked through."""


_ELSEWHERE = frozenset({"parameter", "fusion", "call", "tuple", "get-tuple-element", "concatenate"})


def _role(instruction: Instruction) -> _Role:
    opcode = instruction.opcode
    if opcode in _ELSEWHERE:
        return _Role.ELSEWHERE
    if opcode == "constant":
        return _Role.CONSTANT
    if opcode == "bitcast":
        return _Role.BITCAST
    if opcode.startswith("custom-call") or has_side_effect(instruction):
        return _Role.OPAQUE
    return _Role.COMMUTATIVE if is_commutative(opcode) else _Role.PLAIN


T = TypeVar("T")


class _Alike(Generic[T]):
    """Numbers for things: the same for those of which `form` makes the same. A thing is looked up by its identity, which is quicker than comparing it."""

    def __init__(self, form: Callable[[T], Hashable]) -> None:
        self._form = form
        self._by_form: dict[Hashable, int] = {}
        self.known: dict[int, int] = {}
        """By identity."""
        self._kept: list[T] = []
        """What was asked about: a thing that is gone could hand its identity on."""

    def number(self, thing: T) -> int:
        found = self.known.get(id(thing))
        if found is None:
            found = self.known[id(thing)] = self._by_form.setdefault(self._form(thing), len(self._by_form))
            self._kept.append(thing)
        return found


@dataclass(eq=False)
class Table:
    """Numbers by what they stand for, shared between the modules that are compared."""

    numbers: dict[tuple[object, ...], int] = field(default_factory=dict)
    made_by: list[Instruction | None] = field(default_factory=list)
    operands: list[tuple[int, ...]] = field(default_factory=list)
    parts: dict[tuple[int, int], tuple[Value, ...]] = field(default_factory=dict)
    roles: dict[str, _Role] = field(default_factory=dict)
    bare: _Alike[Shape] = field(default_factory=lambda: _Alike(Shape.without_layout))
    """Shapes, alike when they hold the same kind of values."""
    laid_out: _Alike[Shape] = field(default_factory=lambda: _Alike(Shape.laid_out))
    """Shapes, alike when they lie in memory alike, too."""
    literals: _Alike[Literal | None] = field(default_factory=lambda: _Alike(_literal_key))

    def number(
        self, key: tuple[object, ...], instruction: Instruction | None = None, operands: tuple[int, ...] = ()
    ) -> int:
        found = self.numbers.get(key)
        return self.add(key, instruction, operands) if found is None else found

    def add(self, key: tuple[object, ...], instruction: Instruction | None, operands: tuple[int, ...]) -> int:
        """The number of what has none yet."""
        made = self.numbers[key] = len(self.made_by)
        self.made_by.append(instruction)
        self.operands.append(operands)
        return made

    def flat(self, value: Value) -> int:
        """One number for a value, a tuple's elements included."""
        if isinstance(value, int):
            return value
        return self.number(("tuple", *(self.flat(v) for v in value)), None, tuple(leaves(value)))

    def taken_apart(self, number: int, shape: Shape) -> Value:
        """A tuple-shaped value as its elements."""
        if shape.elements is None:
            return number
        made_by = self.made_by[number]
        return tuple(
            self.taken_apart(self.number(("element", number, n), made_by, (number,)), element)
            for n, element in enumerate(shape.elements)
        )


def leaves(value: Value) -> Iterator[int]:
    """The numbers of a value's array leaves, in order."""
    if isinstance(value, int):
        yield value
    else:
        for element in value:
            yield from leaves(element)


@dataclass
class Numbered:
    """A computation: its root, its side effects (each as often as it happens) and its control dependencies. `values` has every
    instruction where the computation stands on its own parameters; it is empty where it is inlined."""

    root: Value
    values: dict[Instruction, Value] = field(default_factory=dict)
    effects: Counter[int] = field(default_factory=Counter)
    waits: Counter[tuple[int, int]] = field(default_factory=Counter)


def literal_key(instruction: Instruction) -> Hashable:
    """What two constants are compared by. Small ones by their bits; large ones by their text, which is quicker; elided ones equal only themselves."""
    return _literal_key(instruction.literal)


def _literal_key(literal: Literal | None) -> Hashable:
    if literal is None or literal.is_elided:
        return ("elided", id(literal))
    if literal.text is not None and literal.shape.element_count > _SMALL_LITERAL:
        return literal.text
    return literal.key()


def attribute_key(instruction: Instruction) -> tuple[tuple[str, str], ...]:
    """The attributes that count, without called computations, by name."""
    found = [
        (name, value.text)
        for name, value in instruction.attributes.items()
        if name not in IGNORED and isinstance(value, Attribute)
    ]
    if instruction.opcode == "custom-call" and "backend_config" in instruction.attributes:
        found.append(("backend_config", instruction.attributes["backend_config"].text))
    if len(found) > 1:
        found.sort()
    return tuple(found)


def is_commutative(opcode: str) -> bool:
    """Whether the order of two operands does not count: as the op table says, but for mulhi, which XLA does not call commutative
    (HloOpcodeIsBinaryCommutative in xla/hlo/ir/hlo_opcode.cc), so that both see the same values as equal."""
    spec = find(opcode)
    return spec is not None and spec.commutative and opcode != "mulhi"


class Numbering:
    """Numbers the values of one module."""

    def __init__(self, module: Module, table: Table) -> None:
        self.module = module
        self.table = table
        self._known: dict[tuple[object, ...], Numbered] = {}
        self.visited = 0
        """Instructions that were numbered, those of a body once for what it is given."""

    def entry(self) -> Numbered:
        """The entry computation. Raises VerifyError when its calls expand to more than `WORK_LIMIT` instructions."""
        return self.computation(self.module.entry, None)

    def computation(self, computation: Computation, arguments: tuple[Value, ...] | None) -> Numbered:
        """A computation on its own parameters (`arguments` None) or inlined at values. Uses a stack of its own, not Python's."""
        key = (computation, arguments)
        stack = [_Walk(computation, arguments)]
        while stack:
            walk = stack[-1]
            needed = self._advance(walk)
            if needed is not None:
                stack.append(needed)
                continue
            self._known[walk.computation, walk.arguments] = Numbered(
                walk.values[walk.computation.root],
                walk.values if walk.arguments is None else {},
                walk.effects,
                walk.waits,
            )
            stack.pop()
        return self._known[key]

    def _advance(self, walk: _Walk) -> _Walk | None:
        """Number instructions until one needs a computation that has no number yet; None when all are done."""
        order, values, given, roles = walk.order, walk.values, walk.arguments, self.table.roles
        start = walk.position
        for position in range(start, len(order)):
            instruction = order[position]
            opcode = instruction.opcode
            operands = tuple([values[o] for o in instruction.operands])
            role = roles.get(opcode)
            if role is None:
                role = roles[opcode] = _role(instruction)
            value: Value | None = None
            if role is _Role.ELSEWHERE:
                if given is not None and instruction.parameter_number is not None:
                    value = given[instruction.parameter_number]
            elif role is not _Role.OPAQUE:
                value = self._computed(instruction, role, operands)
            if value is None:
                inlined = opcode in ("fusion", "call")
                called: list[Numbered] = []
                for callee in instruction.called():
                    arguments = operands if inlined else None
                    known = self._known.get((callee, arguments))
                    if known is None:
                        walk.position = position
                        self._visit(position - start, instruction)
                        return _Walk(callee, arguments)
                    called.append(known)
                value = self._value(walk, instruction, operands, called)
            values[instruction] = value
            if instruction.control_predecessors:
                walk.waits = walk.waits or Counter()
                for needed in instruction.control_predecessors:
                    walk.waits[self.table.flat(values[needed]), self.table.flat(value)] += 1
        self._visit(len(order) - start, walk.computation.root)
        return None

    def _visit(self, count: int, last: Instruction) -> None:
        self.visited += count
        if self.visited > WORK_LIMIT:
            raise VerifyError(
                f"the calls of {self.module.name} expand to more than {WORK_LIMIT} instructions",
                span=self.module.span(last),
            )

    def _computed(self, i: Instruction, role: _Role, operands: tuple[Value, ...]) -> Value | None:
        """The value of an instruction that only computes; None for one that calls computations. Most are of this kind, so this is written to be quick."""
        table = self.table
        shape = i.shape
        bare = table.bare.known.get(id(shape))
        if bare is None:
            bare = table.bare.number(shape)
        given: tuple[object, ...] = operands
        if role is _Role.COMMUTATIVE and len(operands) == 2:
            one, other = operands
            if isinstance(one, int) and isinstance(other, int) and one > other:
                given = (other, one)
        elif role is _Role.CONSTANT:
            given = (table.literals.number(i.literal),)
        elif role is _Role.BITCAST:
            given = (*[table.laid_out.number(s) for s in (shape, *[o.shape for o in i.operands])], *operands)
        attributes: list[tuple[str, str]] = []
        for name, attribute in i.attributes.items():
            if name not in IGNORED:
                if isinstance(attribute, Called):
                    return None
                attributes.append((name, attribute.text))
        if len(attributes) > 1:
            attributes.sort()
        key = (i.opcode, bare, *attributes, *given)
        number = table.numbers.get(key)
        if number is None:
            number = table.add(key, i, tuple([table.flat(v) for v in operands]))
        return number if shape.elements is None else table.taken_apart(number, shape)

    def _value(self, walk: _Walk, i: Instruction, operands: tuple[Value, ...], called: list[Numbered]) -> Value:
        """The value of any other instruction."""
        table = self.table
        opcode = i.opcode
        if opcode == "parameter":
            number = i.parameter_number or 0
            return table.taken_apart(table.number(("parameter", number, i.shape.without_layout()), i), i.shape)
        if opcode in ("fusion", "call"):
            if called[0].effects or called[0].waits:
                walk.effects = walk.effects + called[0].effects
                walk.waits = walk.waits + called[0].waits
            return called[0].root
        if opcode == "tuple":
            return operands
        if opcode == "get-tuple-element":
            given = operands[0]
            assert isinstance(given, tuple)
            return given[i.attribute("index", int)]
        if opcode == "concatenate":
            return self._concatenate(i, operands)
        # what only waits inside does nothing outside: where nobody asks for the result, it may go
        acts = has_side_effect(i) or any(n.effects for n in called)
        layouts: tuple[int, ...] = ()
        if acts or opcode == "custom-call":
            layouts = tuple([table.laid_out.number(shape) for shape in (i.shape, *(o.shape for o in i.operands))])
        flat = tuple([v if isinstance(v, int) else table.flat(v) for v in operands])
        key = (
            "full",
            opcode,
            table.bare.number(i.shape),
            layouts,
            attribute_key(i),
            _called_key(i, called, table) if called else (),
            tuple(sorted(flat)) if is_commutative(opcode) and len(flat) == 2 else flat,
        )
        number = table.number(key, i, flat)
        if acts:
            walk.effects = walk.effects or Counter()
            walk.effects[number] += 1
        return table.taken_apart(number, i.shape)

    def _concatenate(self, i: Instruction, operands: tuple[Value, ...]) -> Value:
        dimension = i.ints("dimensions")[0]
        parts: list[Value] = []
        for value in operands:
            parts.extend(self.table.parts.get((value, dimension), (value,)) if isinstance(value, int) else (value,))
        flat = tuple(self.table.flat(p) for p in parts)
        number = self.table.number(("concatenate", dimension, i.shape.without_layout(), flat), i, flat)
        self.table.parts[number, dimension] = tuple(parts)
        return number


_NO_EFFECTS: Counter[int] = Counter()
_NO_WAITS: Counter[tuple[int, int]] = Counter()
"""Stay empty: most computations have neither, and there are many."""


class _Walk:
    """Where the numbering of one computation stands."""

    def __init__(self, computation: Computation, arguments: tuple[Value, ...] | None) -> None:
        self.computation = computation
        self.arguments = arguments
        self.order = list(computation.instructions)
        self.position = 0
        self.values: dict[Instruction, Value] = {}
        self.effects: Counter[int] = _NO_EFFECTS
        self.waits: Counter[tuple[int, int]] = _NO_WAITS


def _called_key(i: Instruction, called: list[Numbered], table: Table) -> tuple[object, ...]:
    names = [(name, len(v.computations)) for name, v in i.attributes.items() if isinstance(v, Called)]
    return (
        *names,
        *((table.flat(n.root), tuple(sorted(n.effects.items())), tuple(sorted(n.waits.items()))) for n in called),
    )
