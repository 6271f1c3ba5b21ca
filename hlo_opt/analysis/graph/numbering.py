"""Value numbering: two values get one number exactly when the same operations on the same parameters compute them.

Fusions and calls are looked through, tuples are split, commutative operands are sorted, and a concatenate of
concatenates along the same dimension counts as one. Modules numbered with a shared table compare by number. Layouts
matter only where bytes are read directly: in bitcasts, custom calls and unknown opcodes, at the interface of called
computations, and for side effects.

Each occurrence of a side effect gets a number of its own: two draws of a generator are two values, even if a
computation is called twice. So does a value with a control dependency that nothing else implies. Both are occurrences;
`agree` says whether those of two computations can be matched. A loop or conditional with side effects inside is one
occurrence, and its computations are compared as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Generic, TypeVar

from hlo_opt.analysis.graph.occurrences import Matching, RootGraph, VisitBudget, match
from hlo_opt.analysis.properties import elsewhere, fusion_backend_kind, has_side_effect, is_boundary_fusion
from hlo_opt.diag import VerifyError
from hlo_opt.ir import Attribute, Called, Computation, Instruction, Literal, Module, Shape
from hlo_opt.ops import OpKind, find
from hlo_opt.ops.sets import APPLIED, fused, is_view, tuple_elements, tuple_index

ValueNumber = int | tuple["ValueNumber", ...]
"""The number of an array or token, or the numbers of a tuple's elements."""

WORK_LIMIT = 20_000_000
"""The most instructions that numbering visits: calls nested n deep, each twice, are 2^n."""

IGNORED = frozenset({"metadata", "frontend_attributes", "sharding", "origin", "statistics", "backend_config"})
"""Attributes that do not change a value."""

_IGNORED_OF_EFFECTS = IGNORED - {"frontend_attributes", "sharding"}
"""For side effects, these name the other end of a transfer and its device."""

_IGNORED_OF_FUSIONS = IGNORED - {"backend_config"}
"""For fusions, the backend config names the library kernel."""

_IGNORED_OF_CALLS = _IGNORED_OF_EFFECTS & _IGNORED_OF_FUSIONS
"""An opaque callee may read all of them."""

_NOT_ALWAYS_IGNORED = IGNORED - _IGNORED_OF_CALLS

_REACH_LIMIT = 5_000_000
"""The most values visited to find control dependencies that others imply. Beyond it, each dependency counts."""

_SMALL_LITERAL = 1024


_JOINS = "concatenate"


class _Role(Enum):
    """How the number of an instruction's value is determined."""

    PLAIN = auto()
    """By shape, attributes, operands and called computations."""
    COMMUTATIVE = auto()
    """Plain, with two operands in any order."""
    CONSTANT = auto()
    """Plain, with the literal."""
    BITCAST = auto()
    """Plain, with layouts."""
    OPAQUE = auto()
    """With layouts, and possibly a side effect."""
    ELSEWHERE = auto()
    """The value exists elsewhere, and is looked through."""


_COMMUTATIVE, _CONSTANT, _BITCAST, _OPAQUE, _ELSEWHERE = (
    _Role.COMMUTATIVE,
    _Role.CONSTANT,
    _Role.BITCAST,
    _Role.OPAQUE,
    _Role.ELSEWHERE,
)
"""As globals: Python 3.11 takes ten times as long to look up a member in its class."""


def _role(instruction: Instruction) -> _Role:
    opcode = instruction.opcode
    is_part = tuple_elements(instruction) is not None or tuple_index(instruction) is not None
    if is_part or instruction.parameter_number is not None or opcode == _JOINS:
        return _Role.ELSEWHERE
    if instruction.literal is not None:
        return _Role.CONSTANT
    if is_view(opcode):
        return _Role.BITCAST
    if _is_opaque(opcode) or has_side_effect(instruction):
        return _Role.OPAQUE
    return _Role.COMMUTATIVE if is_commutative(opcode) else _Role.PLAIN


def _is_opaque(opcode: str) -> bool:
    """Whether it is unknown what an operation reads: a custom call, or an opcode outside the op table."""
    spec = find(opcode)
    return spec is None or spec.kind is OpKind.OPAQUE


T = TypeVar("T")


class _Alike(Generic[T]):
    """Numbers things by `form`: equal forms, equal numbers. Objects are cached by identity, which is faster than
    comparing them."""

    def __init__(self, form: Callable[[T], Hashable]) -> None:
        self._form = form
        self._by_form: dict[Hashable, int] = {}
        self.known: dict[int, int] = {}
        """Numbers by object identity."""
        self._kept: list[T] = []
        """Keeps the objects alive, so that identities are not reused."""

    def number(self, value: T) -> int:
        number = self.known.get(id(value))
        if number is None:
            number = self.known[id(value)] = self._by_form.setdefault(self._form(value), len(self._by_form))
            self._kept.append(value)
        return number


@dataclass(eq=False)
class Table:
    """Numbers by key, shared between the compared modules."""

    numbers: dict[tuple[object, ...], int] = field(default_factory=dict)
    instruction_of: list[Instruction | None] = field(default_factory=list)
    operands: list[tuple[int, ...]] = field(default_factory=list)
    keys: list[tuple[object, ...]] = field(default_factory=list)
    parts: dict[tuple[int, int], tuple[int, ...]] = field(default_factory=dict)
    waits: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """The values that an occurrence waits for, as far as its operands do not imply it."""
    roles: dict[str, _Role] = field(default_factory=dict)
    bare: _Alike[Shape] = field(default_factory=lambda: _Alike(Shape.without_layout))
    """Shapes, equal when they hold the same kind of values."""
    laid_out: _Alike[Shape] = field(default_factory=lambda: _Alike(Shape.laid_out))
    """Shapes, equal when layouts are equal too."""
    literals: _Alike[Literal] = field(default_factory=lambda: _Alike(literal_key))
    budget: VisitBudget = field(default_factory=VisitBudget)
    _heads: dict[Hashable, int] = field(default_factory=dict)
    _bodies: dict[Hashable, list[RootGraph]] = field(default_factory=dict)

    def number(
        self, key: tuple[object, ...], instruction: Instruction | None = None, operands: tuple[int, ...] = ()
    ) -> int:
        number = self.numbers.get(key)
        return self.add(key, instruction, operands) if number is None else number

    def add(self, key: tuple[object, ...], instruction: Instruction | None, operands: tuple[int, ...]) -> int:
        """Add a new number for a key."""
        number = self.numbers[key] = len(self.instruction_of)
        self.instruction_of.append(instruction)
        self.operands.append(operands)
        self.keys.append(key)
        return number

    def occurrence(self, head: Hashable, instruction: Instruction, operands: tuple[int, ...]) -> int:
        """A unique number."""
        return self.add((_OCCURRENCE, len(self.instruction_of), head), instruction, operands)

    def head(self, number: int) -> int:
        """The number of a value's key without operands (for an occurrence, without its unique part)."""
        key, count = self.keys[number], len(self.operands[number])
        head = key[2] if key[0] is _OCCURRENCE else key[: len(key) - count]
        return self._heads.setdefault(head, len(self._heads))

    def only_waits(self, occurrence: int) -> bool:
        """Whether an occurrence is only a value with control dependencies, not a side effect."""
        return self.keys[occurrence][2] is _WAITS

    def commutes(self, number: int) -> bool:
        """Whether the order of the value's operands is irrelevant."""
        return is_commutative(str(self.keys[number][0]))

    def flat(self, value: ValueNumber) -> int:
        """One number for a value; a tuple's stands for its elements."""
        if isinstance(value, int):
            return value
        elements = tuple([self.flat(v) for v in value])
        return self.number(("tuple", *elements), None, elements)

    def as_elements(self, number: int, shape: Shape) -> ValueNumber:
        """A tuple-shaped value as its elements."""
        if shape.elements is None:
            return number
        instruction_of = self.instruction_of[number]
        return tuple(
            self.as_elements(self.number(("get-tuple-element", n, number), instruction_of, (number,)), element)
            for n, element in enumerate(shape.elements)
        )

    def body(self, numbered: Numbered) -> Hashable:
        """A key for what a computation computes from its own parameters: equal for two when they agree."""
        root = self.flat(numbered.root)
        if not numbered.occurrences:
            return root
        part = RootGraph(root, numbered.occurrences)
        kinds = tuple(sorted([self.head(o) for o in numbered.occurrences]))
        alike = self._bodies.setdefault(kinds, [])
        for number, known in enumerate(alike):
            if match(self, known, part, self.budget).pairs is not None:
                return kinds, number
        alike.append(part)
        return kinds, len(alike) - 1


def leaves(value: ValueNumber) -> Iterator[int]:
    """The numbers of a value's array leaves, in order."""
    if isinstance(value, int):
        yield value
    else:
        for element in value:
            yield from leaves(element)


@dataclass
class Numbered:
    """A numbered computation: its root, its occurrences in order, and whether any is a side effect.

    `values` has all instructions when numbered on its own parameters; it is empty when inlined.
    """

    root: ValueNumber
    values: dict[Instruction, ValueNumber]
    occurrences: list[int]
    acts: bool


def agree(table: Table, one: Numbered, other: Numbered) -> Matching:
    """Whether two computations on their own parameters are equivalent, and how their occurrences correspond."""
    left, right = (RootGraph(table.flat(n.root), n.occurrences) for n in (one, other))
    if not one.occurrences and not other.occurrences:
        return Matching({} if left.root == right.root else None, {}, {}, False)
    return match(table, left, right, table.budget)


def literal_key(literal: Literal) -> Hashable:
    """The key by which constants compare: bits for small ones, text for large ones (faster), identity for elided
    ones."""
    if literal.is_elided:
        return literal  # equal only to itself; keeping it prevents its identity from being reused
    if literal.text is not None and literal.shape.element_count > _SMALL_LITERAL:
        return literal.text
    return literal.key()


def attribute_key(instruction: Instruction) -> tuple[tuple[str, str], ...]:
    """The attributes that affect the value, sorted by name, without called computations."""
    attributes, ignored = instruction.attributes, IGNORED
    if not attributes:
        return ()
    if not _NOT_ALWAYS_IGNORED.isdisjoint(attributes):
        if _is_opaque(instruction.opcode):
            ignored = _IGNORED_OF_CALLS
        elif has_side_effect(instruction):
            ignored = _IGNORED_OF_EFFECTS
        elif fused(instruction) is not None:
            ignored = _IGNORED_OF_FUSIONS
    texts = [(name, v.text) for name, v in attributes.items() if name not in ignored and isinstance(v, Attribute)]
    return tuple(sorted(texts) if len(texts) > 1 else texts)


def is_commutative(opcode: str) -> bool:
    """Whether the order of two operands is irrelevant: as in the op table, except for mulhi, which XLA does not treat
    as commutative (HloOpcodeIsBinaryCommutative in xla/hlo/ir/hlo_opcode.cc); both must consider the same values
    equal."""
    spec = find(opcode)
    return spec is not None and spec.commutative and opcode != "mulhi"


def all_differ(computation: Computation) -> bool:
    """Whether it is certain without numbering that all values of a computation differ, as in most bodies of fusions:
    the first two that are equal would be the same operation on the same operands, for all before them differ. False
    where anything is looked through. A tuple equals tuples of the same elements, and one whose elements it takes; a
    concatenate of no other concatenate equals those of the same operands."""
    seen: dict[Hashable, Instruction] = {}
    attributes: dict[Hashable, set[Hashable]] = {}
    roles: dict[str, _Role] = {}
    for i in computation.instructions:
        if i.parameter_number is not None:
            continue
        role = roles.get(i.opcode)
        if role is None:
            role = roles[i.opcode] = _role(i)
        if (role is _ELSEWHERE and not _stands_for_itself(i)) or i.opcode in APPLIED or i.control_predecessors:
            return False
        literal = None if i.literal is None else literal_key(i.literal)
        key = (i.opcode, i.shape.element_type, i.shape.dimensions, literal, *sorted(map(id, i.operands)))
        first = seen.setdefault(key, i)
        if first is not i:  # as slices of one array
            theirs, own = attributes.setdefault(key, {attribute_key(first)}), attribute_key(i)
            if own in theirs:
                return False
            theirs.add(own)
    return True


def _stands_for_itself(i: Instruction) -> bool:
    """Whether the value of a concatenate, a tuple or an element of one is made of its operands' values alone, and is
    not one of these."""
    if tuple_elements(i) is not None:
        return not is_another_tuple(i)
    if tuple_index(i) is not None:
        return tuple_elements(i.operands[0]) is None and i.operands[0].opcode not in APPLIED and not _is_empty(i.shape)
    return i.opcode == _JOINS and all(operand.opcode != _JOINS for operand in i.operands)


def _is_empty(shape: Shape) -> bool:
    return shape.elements == ()


def is_another_tuple(instruction: Instruction) -> bool:
    """Whether a tuple consists of all elements of an existing tuple."""
    parts = tuple_elements(instruction)
    whole = parts[0].operands[0] if parts and tuple_index(parts[0]) is not None else None
    if parts is None or whole is None or len(parts) != len(whole.shape.elements or ()):
        return False
    return all(tuple_index(part) == n and part.operands[0] is whole for n, part in enumerate(parts))


class Numbering:
    """Numbers the values of one module."""

    def __init__(self, module: Module, table: Table) -> None:
        self.module = module
        self.table = table
        self._known: dict[tuple[object, ...], Numbered] = {}
        self._looks_left = _REACH_LIMIT
        self.visited = 0
        """The number of visited instructions; a body counts once per distinct arguments."""

    def entry(self) -> Numbered:
        """Number the entry computation. Raises VerifyError when its calls expand to more than `WORK_LIMIT`
        instructions."""
        return self.computation(self.module.entry, None)

    def computation(self, computation: Computation, arguments: tuple[ValueNumber, ...] | None) -> Numbered:
        """Number a computation on its own parameters (`arguments` None) or inlined. Uses an explicit stack."""
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
                walk.occurrences,
                walk.acts,
            )
            stack.pop()
        return self._known[key]

    def _advance(self, walk: _Walk) -> _Walk | None:
        """Number instructions until one needs an unnumbered computation, and return its walk; None when done."""
        order, values, argument_values, roles = walk.order, walk.values, walk.arguments, self.table.roles
        start = walk.position
        for position in range(start, len(order)):
            instruction = order[position]
            opcode = instruction.opcode
            operands = tuple([values[o] for o in instruction.operands])
            role = roles.get(opcode)
            if role is None:
                role = roles[opcode] = _role(instruction)
            value: ValueNumber | None = None
            if role is _ELSEWHERE:
                if argument_values is not None and instruction.parameter_number is not None:
                    value = argument_values[instruction.parameter_number]
            elif role is not _OPAQUE:
                value = self._computed(instruction, role, operands)
            if value is None:
                inlined = opcode in APPLIED and is_looked_through(instruction)
                called: list[Numbered] = []
                for callee in instruction.called():
                    arguments = operands if inlined else None
                    known = self._known.get((callee, arguments))
                    if known is None:
                        walk.position = position
                        self._visit(position - start, instruction)
                        return _Walk(callee, arguments)
                    called.append(known)
                    if inlined and known.occurrences:
                        del self._known[callee, arguments]  # its side effects occur again at each call
                value = self._value(walk, instruction, operands, called, inlined)
            if instruction.control_predecessors:
                value = self._held(walk, instruction, value)
            values[instruction] = value
        self._visit(len(order) - start, walk.computation.root)
        return None

    def _visit(self, count: int, last: Instruction) -> None:
        self.visited += count
        if self.visited > WORK_LIMIT:
            raise VerifyError(
                f"the calls of {self.module.name} expand to more than {WORK_LIMIT} instructions",
                span=self.module.span(last),
            )

    def _computed(self, i: Instruction, role: _Role, operands: tuple[ValueNumber, ...]) -> ValueNumber | None:
        """The value of an instruction without calls or effects; None for one with calls. The common case, optimised for
        speed."""
        table = self.table
        shape = i.shape
        bare = table.bare.known.get(id(shape))
        if bare is None:
            bare = table.bare.number(shape)
        key_operands: tuple[object, ...] = operands
        if role is _COMMUTATIVE:
            one, other = operands
            assert isinstance(one, int) and isinstance(other, int)
            key_operands = (min(one, other), max(one, other))
        elif role is _CONSTANT:
            assert i.literal is not None
            key_operands = (table.literals.number(i.literal),)
        elif role is _BITCAST:
            key_operands = (*[table.laid_out.number(s) for s in (shape, *[o.shape for o in i.operands])], *operands)
        attributes: list[tuple[str, str]] = []
        if not IGNORED.issuperset(i.attributes):  # as few are: most have metadata at most
            for name, attribute in i.attributes.items():
                if name not in IGNORED:
                    if isinstance(attribute, Called):
                        return None
                    attributes.append((name, attribute.text))
        if len(attributes) > 1:
            attributes.sort()
        key = (i.opcode, bare, *attributes, *key_operands)
        number = table.numbers.get(key)
        if number is None:
            number = table.add(key, i, tuple([v if isinstance(v, int) else table.flat(v) for v in operands]))
        return number if shape.elements is None else table.as_elements(number, shape)

    def _value(
        self, walk: _Walk, i: Instruction, operands: tuple[ValueNumber, ...], called: list[Numbered], inlined: bool
    ) -> ValueNumber:
        """The value of any other instruction."""
        table = self.table
        opcode = i.opcode
        if i.parameter_number is not None:
            key = (opcode, i.parameter_number, table.bare.number(i.shape))
            return table.as_elements(table.number(key, i), i.shape)
        if inlined:
            (body,) = called
            if body.occurrences:
                walk.happens(i, body.occurrences, body.acts)
            return body.root
        if tuple_elements(i) is not None:
            return operands
        element = tuple_index(i)
        if element is not None:
            (whole_tuple,) = operands
            assert isinstance(whole_tuple, tuple)
            return whole_tuple[element]
        if opcode == _JOINS:
            return self._concatenate(i, operands)
        # control dependencies inside are invisible outside: if the result is unused, it may be removed
        acts = has_side_effect(i) or any(n.acts for n in called)
        reads_bytes = acts or _is_opaque(opcode)
        shapes = tuple(
            [
                (table.laid_out if reads_bytes else table.bare).number(s)
                for s in (i.shape, *[o.shape for o in i.operands])
            ]
        )
        flat = tuple([table.flat(v) for v in operands])
        head = (opcode, shapes, attribute_key(i), _called_key(i, called, table))
        if not acts:
            return table.as_elements(table.number((*head, *flat), i, flat), i.shape)
        number = table.occurrence(head, i, flat)
        walk.happens(i, [number], True)
        return table.as_elements(number, i.shape)

    def _concatenate(self, i: Instruction, operands: tuple[ValueNumber, ...]) -> ValueNumber:
        table, (dimension,) = self.table, i.ints("dimensions")
        parts: list[int] = []
        for value in operands:
            assert isinstance(value, int)
            parts.extend(table.parts.get((value, dimension), (value,)))
        flat = tuple(parts)
        number = table.number((i.opcode, dimension, *flat), i, flat)
        table.parts[number, dimension] = flat
        return number

    def _held(self, walk: _Walk, i: Instruction, value: ValueNumber) -> ValueNumber:
        """The value of an instruction with control dependencies: unique, unless other dependencies imply them. Likewise
        for effects inside it."""
        table = self.table
        needed: set[int] = set()
        for predecessor in i.control_predecessors:
            needed.update(leaves(walk.values[predecessor]))
            needed.update(walk.inside.get(predecessor, ()))
        for occurrence in sorted(walk.inside.get(i, ())):
            waits = self._not_implied(needed.union(table.waits.get(occurrence, ())), table.operands[occurrence])
            if waits:
                table.waits[occurrence] = waits
        return self._wrapped(walk, i, value, needed)

    def _wrapped(self, walk: _Walk, i: Instruction, value: ValueNumber, needed: set[int]) -> ValueNumber:
        if not isinstance(value, int):
            return tuple([self._wrapped(walk, i, v, needed) for v in value])
        waits = self._not_implied(needed, (value,))
        if not waits:
            return value
        number = self.table.occurrence(_WAITS, i, (value,))
        self.table.waits[number] = waits
        walk.happens(i, [number], False)
        return number

    def _not_implied(self, needed: set[int], operands: tuple[int, ...]) -> tuple[int, ...]:
        """The control dependencies that operands, or other dependencies, do not imply."""
        if not needed:
            return ()
        table = self.table
        first = min(needed)
        seen: set[int] = set()
        stack = [*operands]
        for number in needed:
            stack.extend(table.operands[number])
            stack.extend(table.waits.get(number, ()))
        while stack and self._looks_left > 0:
            number = stack.pop()
            if number < first or number in seen:
                continue
            self._looks_left -= 1
            seen.add(number)
            stack.extend(table.operands[number])
            stack.extend(table.waits.get(number, ()))
        return tuple(sorted(needed - seen))


def is_looked_through(instruction: Instruction) -> bool:
    """Whether a call or fusion is equivalent to its computation: same thread, no library kernel, no aliasing."""
    if fused(instruction) is None:
        return not any(map(elsewhere, instruction.called()))
    names_library = is_boundary_fusion(instruction) and fusion_backend_kind(instruction)
    return not names_library and "output_to_operand_aliasing" not in instruction.attributes


_OCCURRENCE = object()
"""Marks the keys of occurrences; differs from every opcode."""

_WAITS = "waits"
"""The head of a value that is distinct only by its control dependencies."""


class _Walk:
    """The state of numbering one computation."""

    def __init__(self, computation: Computation, arguments: tuple[ValueNumber, ...] | None) -> None:
        self.computation = computation
        self.arguments = arguments
        self.order = list(computation.instructions)
        self.position = 0
        self.values: dict[Instruction, ValueNumber] = {}
        self.occurrences: list[int] = []
        self.acts = False
        self.inside: dict[Instruction, list[int]] = {}
        """The occurrences inside each instruction."""

    def happens(self, instruction: Instruction, occurrences: list[int], acts: bool) -> None:
        self.occurrences.extend(occurrences)
        self.inside.setdefault(instruction, []).extend(occurrences)
        self.acts = self.acts or acts


def _called_key(i: Instruction, called: list[Numbered], table: Table) -> Hashable:
    """A key for what an instruction calls, by attribute name."""
    bodies = iter(called)
    forms: list[Hashable] = []
    for name, value in i.attributes.items():
        if isinstance(value, Called):
            forms.append((name, *[(table.body(next(bodies)), _interface(c, table)) for c in value.computations]))
    return frozenset(forms)


def _interface(computation: Computation, table: Table) -> Hashable:
    """The layouts of a computation's parameters and root, and its thread."""
    shapes = [table.laid_out.number(i.shape) for i in (computation.root, *computation.parameters)]
    return (*shapes, frozenset({name: value.text for name, value in computation.attributes.items()}.items()))
