"""A module flattened for comparison: calls and fusions expanded, tuples split, names and text order dropped.

A *scope* is a computation that runs on its own: the entry, a loop body, a branch, a reducer. A *site* is one operation
in a scope; an operation of a computation called twice has two sites. A site has two hashes: `forward` of what it
computes, from the parameters; `backward` of its uses, down to the root. Sites of modules flattened with the same
`Forms` compare by these numbers.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field

from hlo_opt.analysis.graph.numbering import Table, is_commutative, is_looked_through
from hlo_opt.analysis.graph.spelling import constant_key, plain_attributes
from hlo_opt.ir import Called, Computation, Instruction, Literal, Module, Shape
from hlo_opt.ir.walk import needed_first
from hlo_opt.ops.sets import APPLIED, fused, tuple_elements, tuple_index

GROWTH = 4
ROOM = 100_000
"""Calls are expanded unless the module would grow by more than this factor and this number."""


@dataclass(slots=True, eq=False)
class FlatSite:
    """An operation in a scope.

    inputs   the arrays it reads, as (site, result number)
    users    the reverse, as (site, position among its inputs, result number)
    fusion   the outermost fusion it was expanded from
    callers  the calls it was expanded from, outermost first
    """

    scope: Scope
    index: int
    instruction: Instruction
    key: int
    inputs: tuple[tuple[FlatSite, int], ...]
    bodies: tuple[tuple[str, Scope], ...] = ()
    fusion: Instruction | None = None
    callers: tuple[Instruction, ...] = ()
    users: list[tuple[FlatSite, int, int]] = field(default_factory=list)
    roots: list[int] = field(default_factory=list)
    """The numbers of the scope's results that it computes."""
    forward: int = -1
    backward: int = -1
    partner: FlatSite | None = None
    """The matching site of the other module, once found."""

    @property
    def opcode(self) -> str:
        return self.instruction.opcode

    def __repr__(self) -> str:
        return f"<site {self.instruction.name}>"


@dataclass(eq=False)
class Scope:
    """A computation that runs on its own. `owner` is a site that calls it, None for the entry; `number` hashes what it
    computes."""

    computation: Computation
    sites: list[FlatSite] = field(default_factory=list)
    results: list[tuple[FlatSite, int]] = field(default_factory=list)
    owner: FlatSite | None = None
    number: int = -1


FlatValue = tuple[FlatSite, int] | list["FlatValue"]
"""An array, as a result of a site; or the elements of a tuple."""


class Forms:
    """Numbers for equal things, shared by the compared modules."""

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}
        self._shapes = Table().bare
        self._literals: dict[int, int] = {}
        self._kept: list[Literal] = []
        self._commutes: dict[str, bool] = {}

    def number(self, key: Hashable) -> int:
        """The number of a key: equal for equal keys."""
        return self._numbers.setdefault(key, len(self._numbers))

    def shape(self, shape: Shape) -> int:
        """The number of a shape, ignoring layouts."""
        return self._shapes.number(shape)

    def commutes(self, opcode: str) -> bool:
        known = self._commutes.get(opcode)
        if known is None:
            known = self._commutes[opcode] = is_commutative(opcode)
        return known

    def key(self, instruction: Instruction) -> int:
        """The number of an instruction without its operands, called computations and parameter number."""
        literal = instruction.literal
        constant = None if literal is None else self._literal(literal)
        shape = self.shape(instruction.shape)
        attributes = plain_attributes(instruction) if instruction.attributes else ()
        return self.number((instruction.opcode, shape, attributes, constant))

    def _literal(self, literal: Literal) -> int:
        known = self._literals.get(id(literal))
        if known is None:
            known = self._literals[id(literal)] = self.number(("literal", constant_key(literal)))
            self._kept.append(literal)
        return known


@dataclass(eq=False)
class _Frame:
    """The state of expanding one computation."""

    computation: Computation
    arguments: list[FlatValue] | None
    fusion: Instruction | None
    callers: tuple[Instruction, ...]
    todo: Iterator[Instruction]
    values: dict[Instruction, FlatValue] = field(default_factory=dict)
    opened: Instruction | None = None


@dataclass(eq=False)
class Flat:
    """The scopes of a module, callees first, the entry last."""

    module: Module
    entry: Scope
    scopes: dict[Computation, Scope]

    def sites(self) -> Iterator[FlatSite]:
        """All sites, callees' first."""
        for scope in self.scopes.values():
            yield from scope.sites


def grows_too_much(module: Module) -> bool:
    """Whether expanding all calls makes a module too large."""
    sizes: dict[Computation, int] = {}
    for computation in needed_first([module.entry], lambda c: list(dict.fromkeys(c.called))):
        sizes[computation] = len(computation.instructions) + sum(
            sizes[c] for i in computation.instructions if i.opcode in APPLIED for c in i.called()
        )
    text = sum(len(c.instructions) for c in module.computations)
    return max(sizes.values(), default=0) > GROWTH * text + ROOM


class _Flattening:
    def __init__(self, module: Module, forms: Forms, opens_calls: bool) -> None:
        self.forms = forms
        self.module = module
        self.opens_calls = opens_calls
        self.scopes: dict[Computation, Scope] = {}

    def flat(self) -> Flat:
        order = needed_first([self.module.entry], lambda c: list(dict.fromkeys(c.called)))
        apart = {c for one in order for i in one.instructions if not self._opens(i) for c in i.called()}
        for computation in order:
            if computation in apart or computation is self.module.entry:
                self._add(computation)
        return Flat(self.module, self.scopes[self.module.entry], self.scopes)

    def _opens(self, instruction: Instruction) -> bool:
        """Expands all fusions, also those that stand for a library kernel; which kernel that is shows in the list of
        kernels."""
        if instruction.opcode not in APPLIED:
            return False
        return fused(instruction) is not None or (self.opens_calls and is_looked_through(instruction))

    def _add(self, computation: Computation) -> None:
        scope = self.scopes[computation] = Scope(computation)
        root = self._open(scope)
        scope.results = list(_leaves(root))
        for number, (site, _) in enumerate(scope.results):
            site.roots.append(number)
        self._number(scope)

    def _open(self, scope: Scope) -> FlatValue:
        """Create the sites of a scope, with an explicit stack."""
        computation = scope.computation
        stack = [_Frame(computation, None, None, (), iter(computation.instructions))]
        while True:
            frame = stack[-1]
            needed = self._advance(scope, frame)
            if needed is not None:
                stack.append(needed)
                continue
            value = frame.values[frame.computation.root]
            stack.pop()
            if not stack:
                return value
            opened = stack[-1].opened
            assert opened is not None
            stack[-1].values[opened] = value

    def _advance(self, scope: Scope, frame: _Frame) -> _Frame | None:
        """Continue until a computation must be expanded, and return its frame; None when done."""
        values = frame.values
        for instruction in frame.todo:
            number = instruction.parameter_number
            if number is not None and frame.arguments is not None:
                values[instruction] = frame.arguments[number]
                continue
            parts = tuple_elements(instruction)
            if parts is not None:
                values[instruction] = [values[o] for o in parts]
                continue
            element = tuple_index(instruction)
            if element is not None:
                whole = values[instruction.operands[0]]
                if isinstance(whole, list):
                    values[instruction] = whole[element]
                    continue
            if self._opens(instruction):
                frame.opened = instruction
                (callee,) = instruction.called()
                kernel = frame.fusion or (instruction if fused(instruction) is not None else None)
                arguments = [values[o] for o in instruction.operands]
                callers = (*frame.callers, instruction)
                return _Frame(callee, arguments, kernel, callers, iter(callee.instructions))
            values[instruction] = self._site(scope, frame, instruction)
        return None

    def _site(self, scope: Scope, frame: _Frame, instruction: Instruction) -> FlatValue:
        values = frame.values
        operands = [values[o] for o in instruction.operands]
        if any(isinstance(value, list) for value in operands):
            operands = [leaf for value in operands for leaf in _leaves(value)]
        inputs: tuple[tuple[FlatSite, int], ...] = tuple(operands)  # type: ignore[arg-type]
        bodies = tuple(
            [
                (f"{name}.{n}" if len(value.computations) > 1 else name, self.scopes[c])
                for name, value in instruction.attributes.items()
                if isinstance(value, Called)
                for n, c in enumerate(value.computations)
            ]
        )
        key = self.forms.key(instruction)
        site = FlatSite(scope, len(scope.sites), instruction, key, inputs, bodies, frame.fusion, frame.callers)
        for _, body in bodies:
            body.owner = body.owner or site
        for place, (source, result) in enumerate(inputs):
            source.users.append((site, place, result))
        scope.sites.append(site)
        if instruction.shape.elements is None:
            return (site, 0)
        return _as_elements(site, instruction.shape, iter(range(1 << 60)))

    def _number(self, scope: Scope) -> None:
        number, commutes = self.forms.number, self.forms.commutes
        for site in scope.sites:
            parts: list[Hashable] = [
                (s.forward, r) if s.instruction.shape.elements is not None else s.forward for s, r in site.inputs
            ]
            if len(parts) == 2 and commutes(site.opcode):
                parts.sort(key=hash)
            called = [(name, body.number) for name, body in site.bodies]
            called.sort()
            site.forward = number((site.key, site.instruction.parameter_number, *called, "of", *parts))
        for site in reversed(scope.sites):
            uses = [(u.backward, 0 if len(u.inputs) == 2 and commutes(u.opcode) else p, r) for u, p, r in site.users]
            uses.sort()
            site.backward = number((site.key, "to", *uses, "gives", *site.roots))
        results = [(s.forward, r) for s, r in scope.results]
        parameters = sorted(s.forward for s in scope.sites if s.instruction.parameter_number is not None)
        acting = sorted(s.forward for s in scope.sites if not s.users and not s.roots)
        scope.number = number(("scope", *results, "from", *parameters, "acts", *acting))


def _leaves(value: FlatValue) -> Iterable[tuple[FlatSite, int]]:
    if isinstance(value, tuple):
        return (value,)
    arrays: list[tuple[FlatSite, int]] = []
    todo: list[FlatValue] = [value]
    while todo:
        part = todo.pop()
        if isinstance(part, tuple):
            arrays.append(part)
        else:
            todo.extend(reversed(part))
    return arrays


def _as_elements(site: FlatSite, shape: Shape, numbers: Iterator[int]) -> FlatValue:
    if shape.elements is None:
        return (site, next(numbers))
    return [_as_elements(site, element, numbers) for element in shape.elements]


def flatten(module: Module, forms: Forms, *, opens_calls: bool = True) -> Flat:
    """Flatten a module. Computations that nothing calls are left out."""
    return _Flattening(module, forms, opens_calls).flat()
